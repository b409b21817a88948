"""What baselines compile outlives their runner; no candidate sees where it is kept."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import stepping
import torch
from judging import body, judged
from test_timing_gate import NEGATIVE

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading import inductor, isolation, server
from kernelmark.evaluators.grading.isolation import Limits
from kernelmark.evaluators.grading.judge import Settings
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


def started(running: Server, cases: Sequence[Case]) -> Warming:
    """The warming of a baseline's runner for `cases`, not begun."""

    def spawn() -> Worker:
        return running.spawn("baseline", stepping.CHIP, Limits())

    return Warming(spawn, NEGATIVE, cases, torch.device("cpu"), 20.0)


def test_a_warmed_runner_is_handed_over_and_one_that_is_not_wanted_ends(cache: Path) -> None:
    running = Server(stepping.CHIP, cache=str(cache))
    cases = NEGATIVE.tier("full")

    def warming() -> Warming:
        return started(running, cases)

    try:
        worker = warming().take()
        assert worker is not None
        assert Path(f"/proc/{worker.pid}").exists()
        worker.end()
        unwanted = warming()
        unwanted.start()
        unwanted.close()
        assert unwanted.take() is None
    finally:
        running.close()


def test_runners_share_the_cases_and_none_works_when_one_is_taken(cache: Path) -> None:
    running = Server(stepping.CHIP, cache=str(cache))
    first, second, third = (replace(NEGATIVE.tier("full")[0], name=name) for name in "abc")
    made = []

    def make(share: Sequence[Case]) -> Warming:
        made.append(started(running, share))
        return made[-1]

    warmings = Warmings(make, shares([first, second, third], 2))
    try:
        warmings.start()
        worker = warmings.take(second)
        assert worker is not None
        assert not any(warming._thread.is_alive() for warming in made)
        assert first in warmings
        assert second not in warmings
        assert third not in warmings
        assert warmings.take(third) is None
        (waiting,) = warmings.wait()
        assert Path(f"/proc/{waiting}").exists()
        worker.end()
    finally:
        warmings.close()
        running.close()
    assert not Path(f"/proc/{waiting}").exists()


def test_what_was_compiled_apart_is_adopted_and_what_was_chosen_there_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "inductor"
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(home))
    inductor.compile_into("apart")
    apart = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert apart == tmp_path / "apart"
    for name in ("ab/code.py", "ab/code.best_config", "fxgraph/cd/entry"):
        (apart / name).parent.mkdir(parents=True, exist_ok=True)
        (apart / name).write_text(name)
    (home / "ab").mkdir(parents=True)
    (home / "ab/tuned.best_config").write_text("kept")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(home))
    inductor.adopt("apart")
    found = {str(path.relative_to(home)) for path in home.rglob("*") if path.is_file()}
    assert found == {"ab/code.py", "ab/tuned.best_config", "fxgraph/cd/entry"}
    assert not apart.exists()
    inductor.adopt("never made")  # nothing was compiled


def test_the_first_time_compilers_are_done_and_gone_before_one_tunes(cache: Path) -> None:
    running = Server(stepping.CHIP, cache=str(cache))
    case = NEGATIVE.tier("full")[0]
    first = Warmings(lambda share: started(running, share), [[case], [case]])
    warmings = Warmings(lambda share: started(running, share), [[case]], first)
    try:
        warmings.start()
        compiling = first.wait()
        worker = warmings.take(case)
        assert worker is not None
        assert worker.pid not in compiling
        assert not any(Path(f"/proc/{pid}").exists() for pid in compiling)
        worker.end()
    finally:
        warmings.close()
        running.close()


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
