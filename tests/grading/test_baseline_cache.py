"""What baselines compile outlives their runner; no candidate sees where it is kept."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import stepping
import torch
from judging import body, judged
from test_timing_gate import NEGATIVE

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading import inductor, isolation, server
from kernelmark.evaluators.grading import warming as warming_module
from kernelmark.evaluators.grading.isolation import Limits
from kernelmark.evaluators.grading.judge import Settings
from kernelmark.evaluators.grading.sharing import SharingError
from kernelmark.evaluators.grading.warming import Warming, Warmings, shares
from kernelmark.evaluators.grading.workers import Server, Worker, discard, shared_server
from kernelmark.evaluators.languages.triton import TritonLanguage
from kernelmark.operators.records import Case


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    folder.mkdir()
    (folder / "kept").write_text("by an earlier baseline")
    return folder


def test_only_the_baselines_runner_sees_it(cache: Path) -> None:
    running = Server(stepping.CHIP, cache=str(cache))
    try:
        for role, seen in (("baseline", True), ("candidate", False)):
            worker = running.spawn(role, stepping.CHIP, Limits())
            assert "read-only root" in worker.isolation
            folder = Path(f"/proc/{worker.pid}/root{isolation.CACHE}")
            assert (folder / "kept").exists() is seen
            worker.end()
    finally:
        running.close()


def test_a_candidate_finds_nothing_there(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TritonLanguage, "scan", lambda *args: [])
    look = f"found = os.path.exists('{isolation.CACHE}') and os.listdir('{isolation.CACHE}')"
    source = body(f"{look}\nraise ValueError(f'found {{found}}')")
    verdict = judged(source, settings=Settings(timeout_s=20, baseline_cache=str(cache)))
    assert "kept" not in verdict.message
    assert "found []" in verdict.message or "found False" in verdict.message


def test_compilers_are_pointed_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isolation, "CACHE", str(tmp_path))
    for name in ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(name, "/elsewhere")
    server._use_cache()
    assert os.environ["TRITON_CACHE_DIR"] == f"{tmp_path}/triton"
    assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == f"{tmp_path}/inductor"


def test_a_folder_that_others_can_enter_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation.tempfile, "tempdir", str(tmp_path))
    found = isolation.cache_folder()
    assert found.startswith(str(tmp_path))
    Path(found).parent.chmod(0o755)
    assert isolation.cache_folder() == ""
    Path(found).parent.chmod(0o700)
    assert isolation.cache_folder() == found
    Path(found).parent.rename(tmp_path / "elsewhere")
    (tmp_path / f"kernelmark-{os.geteuid()}").symlink_to(tmp_path / "elsewhere")
    assert isolation.cache_folder() == ""


@pytest.fixture
def running(cache: Path) -> Iterator[Server]:
    server = Server(stepping.CHIP, cache=str(cache))
    yield server
    server.close()


def started(running: Server, cases: Sequence[Case], *, tunes: bool = True) -> Warming:
    """The warming of a baseline's runner for `cases`, not begun."""

    def spawn() -> Worker:
        return running.spawn("baseline", stepping.CHIP, Limits())

    return Warming(spawn, NEGATIVE, cases, torch.device("cpu"), 20.0, tunes=tunes)


def test_a_warmed_runner_is_handed_over_and_one_that_is_not_wanted_ends(running: Server) -> None:
    warming = started(running, NEGATIVE.tier("full"))
    worker = warming.take()
    assert worker is not None
    assert warming.kept
    assert Path(f"/proc/{worker.pid}").exists()
    worker.end()
    unwanted = started(running, NEGATIVE.tier("full"))
    unwanted.start()
    unwanted.close()
    assert unwanted.take() is None


def test_an_interrupted_wait_leaves_no_runner(running: Server) -> None:
    pids = []

    def slow() -> Worker:
        time.sleep(0.5)
        pids.append((worker := running.spawn("baseline", stepping.CHIP, Limits())).pid)
        return worker

    warming = Warming(slow, NEGATIVE, NEGATIVE.tier("full"), torch.device("cpu"), 20.0)
    signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    with pytest.raises(KeyboardInterrupt):
        warming.wait()
    warming.close()
    assert len(pids) == 1
    assert not Path(f"/proc/{pids[0]}").exists()


def test_whatever_breaks_warming_off_is_a_failure(
    running: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise SharingError("no room")

    monkeypatch.setattr(warming_module, "Memory", fail)
    warming = started(running, NEGATIVE.tier("full"))
    assert warming.take() is None
    assert warming.failure == "no room"


def test_runners_share_the_cases_and_none_works_when_one_is_taken(running: Server) -> None:
    first, second, third = (replace(NEGATIVE.tier("full")[0], name=name) for name in "abc")
    made = []

    def make(share: Sequence[Case]) -> Warming:
        made.append(started(running, share))
        return made[-1]

    warmings = Warmings(make, shares([first, second, third], 2))
    try:
        warmings.start()
        worker = warmings.take(second).take()
        assert worker is not None
        assert all(warming._done.is_set() for warming in made)
        assert not warmings.serves(first)
        assert warmings.serves(second)
        assert warmings.serves(third)
        (waiting,) = warmings.wait()
        assert Path(f"/proc/{waiting}").exists()
        worker.end()
        again = warmings.take(third).take()  # after a disturbance
        assert again is not None
        assert len(made) == 3
        assert warmings.serves(second)
        assert not warmings.serves(first)
        again.end()
    finally:
        warmings.close()
    assert not Path(f"/proc/{waiting}").exists()


def test_the_first_time_compilers_are_done_and_gone_before_one_tunes(running: Server) -> None:
    case = NEGATIVE.tier("full")[0]
    first = Warmings(lambda share: started(running, share, tunes=False), [[case], [case]])
    warmings = Warmings(lambda share: started(running, share), [[case]], first)
    try:
        warmings.start()
        compiling = first.wait()
        assert len(compiling) == 2
        worker = warmings.take(case).take()
        assert worker is not None
        assert worker.pid not in compiling
        assert not any(Path(f"/proc/{pid}").exists() for pid in compiling)
        worker.end()
    finally:
        warmings.close()


def test_where_nothing_is_kept_nobody_compiles_for_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(isolation, "cache_folder", lambda folder: "")
    running = Server(stepping.CHIP)
    try:
        compiling = started(running, NEGATIVE.tier("full"), tunes=False)
        assert compiling.take() is None
        assert compiling.failure == "nothing that is compiled is kept here"
        alone = started(running, NEGATIVE.tier("full"))
        worker = alone.take()
        assert worker is not None
        assert not alone.kept
        worker.end()
    finally:
        running.close()


def test_what_a_compiler_chose_is_forgotten_and_what_a_tuner_chose_is_kept(tmp_path: Path) -> None:
    """By Inductor's own classes, in two processes, as the runners that compile and the one that
    tunes: what the first pickles of a kernel keeps the choice of the second, and of it alone."""
    compiling = """
import pickle, sys, triton
from kernelmark.evaluators.grading import inductor
from torch._inductor.runtime.autotune_cache import AutotuneCache
inductor.forget_choices()
cache = AutotuneCache.create({}, sys.argv[1] + "/ab/kernel.py", "hash")
cache.save(triton.Config({"XBLOCK": 8}), 1)
open(sys.argv[1] + "/pickled", "wb").write(pickle.dumps(cache.save))
"""
    tuning = """
import pickle, sys, triton
save = pickle.loads(open(sys.argv[1] + "/pickled", "rb").read())
save(triton.Config({"XBLOCK": 16}), 1)
"""
    environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path)}
    for text, choices in ((compiling, []), (tuning, [16])):
        command = [sys.executable, "-c", text, str(tmp_path)]
        subprocess.run(command, check=True, env=environment)
        found = [json.loads(path.read_bytes()) for path in tmp_path.rglob("*.best_config")]
        assert [choice["XBLOCK"] for choice in found] == choices


@pytest.mark.parametrize(("most", "lengths"), [(1, [5]), (2, [2, 3]), (4, [1, 1, 1, 2]), (0, [5])])
def test_shares_are_of_about_one_length(most: int, lengths: list[int]) -> None:
    cases = [replace(NEGATIVE.tier("full")[0], name=name) for name in "abcde"]
    found = shares(cases, most)
    assert [len(share) for share in found] == lengths
    assert [case for share in found for case in share] == cases


def test_runners_find_torch_compile_loaded_and_no_device_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(TritonLanguage, "scan", lambda *args: [])
    chip = get_chip("interpreter")
    running = shared_server(chip, 0, Settings().baseline_cache)
    try:
        # What it is to load and the runner that it is to fork are told while it cannot listen.
        running.spawn("candidate", chip, Limits()).end()
        os.killpg(running.pid, signal.SIGSTOP)
        threading.Timer(0.5, os.killpg, (running.pid, signal.SIGCONT)).start()
        running.ready_inductor()
        source = body(
            "loaded = sum(name in sys.modules for name in NAMES)\n"
            "threads = sys.modules['torch._inductor.config'].compile_threads\n"
            "raise ValueError(f'{loaded}, {torch.cuda.is_initialized()}, {threads}')"
        )
        source += f"NAMES = {inductor._MODULES}\n"
        message = judged(source, settings=Settings(timeout_s=60)).message
    finally:
        discard(running)
    assert f"{len(inductor._MODULES)}, False, 1" in message
