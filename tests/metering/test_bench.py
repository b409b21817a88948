"""The benchmark runs, and the gateway adds little. Its figures are for a quiet machine; the bounds
here hold on a loaded one."""

from __future__ import annotations

from pathlib import Path

from bench_gateway import bench


def test_what_the_gateway_adds(tmp_path: Path) -> None:
    figures = bench(40, tmp_path)
    assert figures["without"]["request"] > 0
    assert figures["added"]["request"] < 60
    assert figures["added"]["chunk"] < 20
