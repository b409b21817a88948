"""Budgets of a run: where they stop it, what is said, and how it goes on."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns import access, running, summary
from kernelmark.evaluators.campaigns.budgets import limits, parse_budgets
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.outcome import outcome
from kernelmark.evaluators.campaigns.scripted import Provider, load_script, serve_script
from kernelmark.evaluators.campaigns.usage import usage_report
from kernelmark.evaluators.metering.budget import Limits
from kernelmark.evaluators.metering.ledger import read_ledger, total_tokens
from kernelmark.operators.registry import UnknownName

#: right at once; right the second time
OPERATORS = ("vllm::rms_norm", "cublas::cublasSaxpy_v2")


@pytest.fixture
def provider(monkeypatch: pytest.MonkeyPatch) -> Iterator[Provider]:
    """One scripted provider for all sittings of a test."""
    with serve_script(load_script("demo")) as provider:

        @contextlib.contextmanager
        def same(script: Any) -> Iterator[Provider]:
            yield provider

        monkeypatch.setattr(access, "serve_script", same)
        yield provider


def begin(root: Path, *budgets: str) -> RunFolder:
    """A new run of `refine` with recorded replies."""
    request = running.Request(
        "refine",
        "demo",
        ("interpreter",),
        model="scripted",
        operators=OPERATORS,
        budgets=parse_budgets(budgets),
    )
    return running.begin(request, root, root)


def carry_out(folder: RunFolder, workers: int = 1) -> None:
    running.carry_out(folder, access.Access("", "", ""), workers)


def failures(folder: RunFolder) -> list[str | None]:
    return [attempt.failure for attempt in folder.attempts()]


def test_a_budget_stops_the_run_and_more_of_it_goes_on(
    tmp_path: Path, provider: Provider, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = begin(tmp_path / "run", "run.tokens=7000")
    carry_out(folder)
    assert failures(folder)[-1] == "budget_exhausted"
    stopped = [a for a in folder.attempts() if a.failure == "budget_exhausted"]
    assert stopped[0].note.startswith("budget of 7000 tokens for the run: ")
    assert provider.billed_tokens <= 7000
    (rows,) = (read_ledger(folder.ledger_path),)
    assert rows[-1].outcome == "budget_denied"

    summary.report(folder, as_json=True)
    report = json.loads(capsys.readouterr().out)
    assert list(report["stopped_by_budget"]) == [stopped[0].note]
    summary.report(folder, as_json=False)
    assert "--budget-tokens N" in capsys.readouterr().out

    asked = list(provider.requests)
    again = running.reopen(folder.root)
    carry_out(again)  # nothing has changed: nothing is asked
    assert provider.requests == asked
    more = running.reopen(folder.root, parse_budgets(["run.tokens=100000"]))
    assert more.run.budget_tokens == 100_000
    carry_out(more)
    assert [outcome(more, id).status for id in OPERATORS] == ["passed", "passed"]
    assert sorted(provider.requests) == [
        "cublas::cublasSaxpy_v2#1",
        "cublas::cublasSaxpy_v2#2",
        "vllm::rms_norm#1",
    ]
    assert total_tokens(read_ledger(folder.ledger_path)) == provider.billed_tokens
    assert usage_report(more)["total"]["tokens"] == provider.billed_tokens


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("operator.requests=1", "budget of 1 requests for cublas::cublasSaxpy_v2"),
        ("run.requests=1", "budget of 1 requests for the run"),
        ("attempt.tokens=10", "budget of 10 tokens for attempt 1 at vllm::rms_norm"),
        ("run.usd=1", "the model has no known price"),
        ("run.wall_s=0", "budget of 0 wall_s for the run"),
    ],
)
def test_each_scope_and_limit_is_named(
    tmp_path: Path, provider: Provider, budget: str, said: str
) -> None:
    folder = begin(tmp_path / "run", budget)
    carry_out(folder)
    assert "budget_exhausted" in failures(folder)
    assert any(said in stop for stop in summary.budget_stops(folder)), summary.budget_stops(folder)


def test_a_budget_is_overspent_by_one_response_a_worker_at_most(
    tmp_path: Path, provider: Provider
) -> None:
    folder = begin(tmp_path / "run", "run.out_total=1")
    carry_out(folder, workers=2)
    assert len(provider.requests) <= 2


def test_what_was_achieved_before_the_budget_ended_counts(
    tmp_path: Path, provider: Provider
) -> None:
    folder = begin(tmp_path / "run", "operator.requests=1")
    carry_out(folder)
    found = outcome(folder, "cublas::cublasSaxpy_v2")
    assert found.status == "wrong_values"
    assert found.attempts == 2
    assert found.attempt is not None
    assert found.attempt.number == 1


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tokens=3", "write SCOPE.LIMIT=N"),
        ("run.tokens", "write SCOPE.LIMIT=N"),
        ("suite.tokens=3", "scope of a budget"),
        ("run.token=3", "did you mean tokens"),
        ("run.tokens=many", "'many' is not a number"),
        ("run.tokens=1.5", "a whole number"),
        ("run.usd=-1", "0 or more"),
        ("run.usd=nan", "0 or more"),
    ],
)
def test_budgets_that_are_none(text: str, why: str) -> None:
    with pytest.raises((UserError, UnknownName), match=why):
        parse_budgets([text])


def test_budgets_by_scope() -> None:
    given = parse_budgets(["run.usd=2.5", "run.tokens=10", "attempt.requests=3"])
    assert limits(given) == {"run": Limits(tokens=10, usd=2.5), "attempt": Limits(requests=3)}


def test_scripted_is_a_method_and_a_model(tmp_path: Path, provider: Provider) -> None:
    request = running.Request(
        "scripted",
        "demo",
        ("interpreter",),
        operators=OPERATORS[:1],
        options={"method": "one-shot"},
    )
    folder = running.begin(request, tmp_path / "run", tmp_path)
    assert folder.run.model == "scripted"
    carry_out(folder)
    assert outcome(folder, OPERATORS[0]).status == "passed"
    with pytest.raises(UserError, match="leave --model out"):
        running.begin(
            running.Request("scripted", "demo", ("interpreter",), model="gpt-5"), None, tmp_path
        )
