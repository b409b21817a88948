"""A campaign in a Ray cluster whose nodes die ends as one on this machine does."""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernelmark.benchmark.errors import InfrastructureError, UserError
from kernelmark.evaluators.campaigns import running
from kernelmark.evaluators.campaigns.folder import RunFolder

ray = pytest.importorskip("ray")

from ray_cluster import Node, cluster  # noqa: E402

from kernelmark.evaluators.campaigns.executors.ray import RayExecutor  # noqa: E402
from kernelmark.evaluators.chips.registry import get_chip  # noqa: E402

REQUEST = running.Request(
    method="reference",
    suite="demo",
    chips=("interpreter", "sm_90"),
    operators=("aten::add", "aten::silu", "aten::softmax", "aten::sum", "aten::mm"),
)
NO_MODEL = running.Access("", "", "")


def established(folder: RunFolder) -> dict[str, Any]:
    """What a run has found, without times."""
    found: dict[str, Any] = {}
    for attempt in folder.attempts():
        verdict = folder.verdict(attempt.operator, attempt.candidate)
        rows = folder.portability(attempt.operator, attempt.candidate)
        assert verdict is not None
        assert rows is not None
        found[attempt.operator] = (
            attempt.candidate,
            verdict.status,
            len(verdict.comparisons) > 0,
            [(row.target, row.status, len(row.kernels)) for row in rows],
        )
    return found


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_node_changes_nothing(tmp_path: Path) -> None:
    here = running.begin(REQUEST, tmp_path / "here", tmp_path)
    running.carry_out(here, NO_MODEL, 1)

    there = running.begin(REQUEST, tmp_path / "there", tmp_path)
    with tempfile.TemporaryDirectory(dir="/tmp") as short, cluster(Path(short)) as (address, nodes):
        killed = threading.Event()
        threading.Thread(
            target=kill_while_grading, args=(nodes[1], there.root, killed), daemon=True
        ).start()
        wait_for_nodes(address, 2)
        running.carry_out(there, NO_MODEL, 1, place=running.Place("ray", address=address))
        assert killed.is_set(), "the node was never seen grading"
        assert nodes[1].process.poll() is not None
    assert there.missing() == []
    assert established(there) == established(here)
    assert not ray.is_initialized()


@pytest.mark.slow
def test_a_cluster_without_the_chip_is_refused(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as short, cluster(Path(short)) as (address, _):
        with pytest.raises(UserError, match="no chip:nvidia; it has chip:interpreter"):
            RayExecutor(get_chip("nvidia"), address)
        with pytest.raises(UserError, match="no chip:interpreter-9"):
            RayExecutor(get_chip("interpreter"), address, "chip:interpreter-9")
        executor = RayExecutor(get_chip("interpreter"), address, most=1)
        assert executor.slots == 1
        executor.close()
        ray.shutdown()


def test_no_cluster_is_one_line() -> None:
    with pytest.raises(InfrastructureError, match="no Ray cluster"):
        RayExecutor(get_chip("interpreter"), "127.0.0.1:9")


def kill_while_grading(node: Node, root: Path, killed: threading.Event) -> None:
    """Kills the node in the middle: there is a verdict, and it is at another."""
    while not (len(list(root.glob("verdicts/*.json"))) >= 1 and node.grades()):
        time.sleep(0.05)
    killed.set()
    node.kill()


def wait_for_nodes(address: str, count: int) -> None:
    ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    deadline = time.monotonic() + 60
    while sum(node["Alive"] for node in ray.nodes()) < count and time.monotonic() < deadline:
        time.sleep(0.2)
    ray.shutdown()
