"""A run of `refine` that is killed again and again ends as if nothing had happened."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import killed_run
import pytest

from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.scripted import (
    Provider,
    Script,
    ScriptedReply,
    load_script,
    serve_script,
)
from kernelmark.evaluators.metering.ledger import LedgerRow, read_ledger, total_tokens

KILLS = 30


def recorded() -> Script:
    """The replies that ship, with recorded usage: what a judge says may differ in its figures."""
    return {
        operator: tuple(
            ScriptedReply(reply.text, "stop", 1000 + number, len(reply.text) // 4)
            for number, reply in enumerate(replies)
        )
        for operator, replies in load_script("demo").items()
    }


def sit(root: Path, provider: Provider, kill_after_s: float | None = None) -> tuple[int, float]:
    """One sitting, killed so long after its work has begun; exit status and seconds of work."""
    command = [sys.executable, killed_run.__file__, str(root), provider.url]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    began = time.monotonic()
    try:
        process.wait(kill_after_s)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
    return process.wait(), time.monotonic() - began


def established(folder: RunFolder) -> dict[str, Any]:
    """Attempts, statuses, and what the provider told of tokens."""
    verdicts = {}
    for attempt in folder.attempts():
        if attempt.candidate:
            verdict = folder.verdict(attempt.operator, attempt.candidate)
            verdicts[attempt.operator, attempt.candidate] = verdict and verdict.status
    rows = read_ledger(folder.ledger_path)
    return {
        "attempts": [(a.operator, a.number, a.candidate, a.failure) for a in folder.attempts()],
        "verdicts": verdicts,
        "missing": folder.missing(),
        "tokens": total_tokens(rows),
        "requests": Counter((r.operator, r.attempt) for r in rows if r.outcome == "ok"),
    }


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_sigkill_at_random_moments_changes_nothing(tmp_path: Path) -> None:
    """A run that ends before all kills are spent is compared, and another one takes the rest."""
    with serve_script(recorded(), delay_s=0.1) as provider:
        status, work_s = sit(tmp_path / "whole", provider)
        assert status == 0
        whole = established(RunFolder.open(tmp_path / "whole"))
    assert whole["missing"] == []
    assert set(whole["requests"].values()) == {1}
    kills = runs = 0
    while kills < KILLS:
        runs += 1
        with serve_script(recorded(), delay_s=0.1) as provider:
            kills += _killed(tmp_path / f"killed{runs}", provider, work_s / 3, KILLS - kills, whole)
    assert kills == KILLS


def _killed(root: Path, provider: Provider, most_s: float, most: int, whole: Any) -> int:
    """One run to its end, killed up to `most` times; how often it was."""
    kills, status = 0, -signal.SIGKILL
    while status != 0:
        limit = random.uniform(0, most_s) if kills < most else None
        status, _ = sit(root, provider, limit)
        assert status in (0, -signal.SIGKILL)
        kills += status != 0
    assert established(RunFolder.open(root)) == whole
    _balances(read_ledger(root / "ledger.jsonl"), provider)
    return kills


def _balances(rows: list[LedgerRow], provider: Provider) -> None:
    """Ledger and provider agree, but for what was in flight at a kill, and that is labelled."""
    lost = [row for row in rows if row.outcome == "gateway_abort"]
    assert {row.usage_source for row in lost} <= {"missing"}
    assert len(rows) == len(lost) + sum(row.outcome == "ok" for row in rows)
    answered_twice = len(provider.requests) - len(set(provider.requests))
    assert answered_twice <= len(lost)
    if not lost:
        assert provider.billed_tokens == total_tokens(rows)
