"""What baselines compile outlives their runner; no candidate sees where it is kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import stepping
import torch
from judging import body, judged
from test_timing_gate import NEGATIVE

from kernelmark.evaluators.grading import isolation, server
from kernelmark.evaluators.grading.isolation import Limits
from kernelmark.evaluators.grading.judge import Settings
from kernelmark.evaluators.grading.warming import Warming
from kernelmark.evaluators.grading.workers import Server
from kernelmark.evaluators.languages.triton import TritonLanguage


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


def test_a_warmed_runner_is_handed_over_and_one_that_is_not_wanted_ends(cache: Path) -> None:
    running = Server(stepping.CHIP, cache=str(cache))
    cases, device = NEGATIVE.tier("full"), torch.device("cpu")

    def warming() -> Warming:
        return Warming(
            lambda: running.spawn("baseline", stepping.CHIP, Limits()),
            NEGATIVE,
            cases,
            device,
            20.0,
        )

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
