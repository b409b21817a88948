"""Usage of a run: sums by operator, attempt, model and class; what is not known is not made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import scripted_campaign
from typer.testing import CliRunner

from kernelmark.benchmark.cli import app
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.usage import spent, usage_report
from kernelmark.evaluators.metering.ledger import Ledger, LedgerRow, Usage

ROW = LedgerRow(
    run="r",
    operator=scripted_campaign.OPERATORS[0],
    attempt=1,
    request="x.1",
    api="chat",
    model_requested="m",
    outcome="ok",
    usage_source="provider",
    usage=Usage(in_uncached=10, in_cache_read=20, out_total=7, out_reasoning=3),
    model_served="m-2026",
    cost_usd=0.5,
)


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    """A finished run of three operators with a ledger of six requests."""
    folder = scripted_campaign.open_run(tmp_path / "run")
    scripted_campaign.run_all(folder)
    second = scripted_campaign.OPERATORS[1]
    ledger = Ledger(folder.ledger_path)
    for row in (
        ROW,
        replace(ROW, request="x.2", attempt=2, usage=Usage(in_cache_write_5m=5, out_total=1)),
        replace(ROW, request="x.3", operator=second, usage_source="estimated"),
        replace(ROW, request="x.4", operator=second, outcome="budget_denied", usage=Usage()),
        replace(ROW, request="x.5", api="count_tokens", usage=Usage(in_uncached=99)),
        replace(
            ROW, request="x.6", outcome="gateway_abort", usage_source="missing", usage=Usage(),
            cost_usd=None, model_served="",
        ),
    ):  # fmt: skip
        ledger.append(row)
    ledger.close()
    return folder


def test_sums_by_operator_attempt_and_model(folder: RunFolder) -> None:
    report = usage_report(folder)
    first, second, third = report["operators"]
    assert (first["tokens"], first["requests"], first["missing"]) == (43, 3, 1)
    assert (second["tokens"], second["requests"], second["estimated"]) == (37, 1, 1)
    assert (third["tokens"], third["requests"]) == (0, 0)
    attempts = [(a["operator"], a["attempt"], a["tokens"]) for a in report["attempts"]]
    one, two = scripted_campaign.OPERATORS[:2]
    assert sorted(attempts) == sorted([(one, 1, 37), (one, 2, 6), (two, 1, 37)])
    assert {m["model"]: m["tokens"] for m in report["models"]} == {"m-2026": 80, "m": 0}
    total = report["total"]
    assert (total["in_uncached"], total["in_cache_read"], total["out_total"]) == (20, 40, 15)
    assert (total["in_cache_write_5m"], total["out_reasoning"]) == (5, 6)
    assert total["tokens"] == 80
    assert total["usd"] == 1.5
    assert report["refused"] == 1
    assert report["tokens_per_solved"] == pytest.approx(80 / report["solved"])


def test_an_unknown_price_makes_the_sum_unknown() -> None:
    both = spent([ROW, replace(ROW, cost_usd=None)])
    assert (both.usd, both.unpriced) == (None, 1)
    refused = replace(ROW, cost_usd=None, outcome="error", usage=Usage())
    assert spent([ROW, refused]).usd == 0.5  # nothing was used, so nothing costs
    assert spent([]).usd == 0


def test_the_command_prints_all_of_it(folder: RunFolder) -> None:
    shown = CliRunner().invoke(app, ["usage", str(folder.root), "--attempts"])
    assert shown.exit_code == 0
    for text in ("total", "cache read", "of it reasoning", "usage missing", "tokens per solved"):
        assert text in shown.output
    assert "unpriced" not in shown.output
    told = CliRunner().invoke(app, ["usage", str(folder.root), "--json"])
    assert '"tokens": 80' in told.output
