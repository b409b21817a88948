"""Whatever process dies at whatever moment, there is a verdict: never a hang, an orphan, or a pass
that was not earned."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time

import pytest
from judging import HONEST, helpers, judged, vanishes

from kernelmark.evaluators.grading.workers import close_servers

MOMENTS = [pytest.param(n, marks=[pytest.mark.slow] if n >= 16 else []) for n in range(48)]
WRONG = HONEST.replace("v * 2", "v * 3")


def kill_one(after_s: float, dice: random.Random) -> threading.Thread:
    """Kills one of the helper processes that live after `after_s` seconds, and waits for its end:
    a server that is still dying would fail the next grade, which has a kill of its own."""

    def strike() -> None:
        time.sleep(after_s)
        victims = sorted(helpers())
        if victims:
            victim = dice.choice(victims)
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
            vanishes(lambda: helpers() & {victim})

    thread = threading.Thread(target=strike)
    thread.start()
    return thread


@pytest.fixture(scope="module")
def usual_s() -> float:
    """How long an undisturbed grade takes here, the server's start included."""
    close_servers()
    begin = time.monotonic()
    assert judged(HONEST).status == "passed"
    return time.monotonic() - begin


@pytest.mark.parametrize("number", MOMENTS)
def test_any_helper_killed_at_any_moment(number, usual_s):
    dice = random.Random(number)
    if number % 8 == 0:
        close_servers()  # the server's start is struck too
    right = number % 4 != 3
    striker = kill_one(dice.random() * (usual_s if number % 8 == 0 else 0.6), dice)
    begin = time.monotonic()
    verdict = judged(HONEST if right else WRONG)
    late = striker.is_alive()
    striker.join()
    if late:
        close_servers()  # struck after the verdict: that is not the next grade's to bear
    assert verdict.status == ("passed" if right else "wrong_values"), verdict.message
    assert time.monotonic() - begin < 60
    if number % 8 == 7:
        close_servers()
        assert vanishes(helpers)


def test_killed_again_and_again_it_says_so(monkeypatch):
    stop = threading.Event()

    def strike() -> None:
        while not stop.wait(0.02):
            for pid in helpers():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    thread = threading.Thread(target=strike)
    thread.start()
    try:
        verdict = judged(HONEST)
    finally:
        stop.set()
        thread.join()
    assert verdict.status == "infrastructure_error"
    assert judged(HONEST).status == "passed"


JUDGE = """
import sys
sys.path.insert(0, {here!r})
from judging import body, judged, QUICK
from dataclasses import replace
from kernelmark.evaluators.languages.triton import TritonLanguage
TritonLanguage.scan = lambda *args: []
print("ready", flush=True)
judged(body("while True: pass"), settings=replace(QUICK, timeout_s=60))
"""


@pytest.mark.parametrize("delay_s", [0.0, 0.5, 3.0])
def test_the_judge_killed_leaves_no_orphan(delay_s):
    mark = f"CUDA_JUDGE_MARK={random.random()}"
    process = subprocess.Popen(
        [sys.executable, "-c", JUDGE.format(here=os.path.dirname(__file__))],
        env=os.environ | dict([mark.split("=")]),
        stdout=subprocess.PIPE,
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(delay_s)
    process.kill()
    process.wait()
    process.stdout.close()
    assert vanishes(lambda: orphans(mark))


def orphans(mark: str) -> list[str]:
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(name)
        except OSError:
            continue
    return found
