"""Ledger, prices, budget: the parts under the gateway."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.metering.ledger import (
    Ledger,
    LedgerRow,
    Usage,
    read_ledger,
    total_tokens,
)
from kernelmark.evaluators.metering.prices import TABLE, price_table

ROW = LedgerRow(
    run="r",
    operator="aten::add",
    attempt=1,
    request="x",
    api="chat",
    model_requested="m",
    outcome="ok",
    usage_source="provider",
    usage=Usage(in_uncached=3, in_cache_read=4, out_total=5, out_reasoning=2),
)


def test_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(ROW)
    ledger.append(ROW)
    ledger.close()
    again = Ledger(tmp_path / "ledger.jsonl")
    again.append(ROW)
    again.close()
    rows = read_ledger(tmp_path / "ledger.jsonl")
    assert rows == [ROW] * 3
    assert total_tokens(rows) == 36


def test_half_a_character_in_a_name_does_not_get_into_the_file(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.jsonl")
    ledger.append(replace(ROW, model_requested="\udcffé\ud83d", session="\u2028\n"))
    (row,) = read_ledger(tmp_path / "ledger.jsonl")
    assert (row.model_requested, row.session) == ("?é?", "\u2028\n")


def test_a_line_that_is_no_row_is_named(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    Ledger(path).append(ROW)
    path.write_text(path.read_text() + '{"run": 1}\n')
    with pytest.raises(UserError, match=r"ledger.jsonl:2"):
        read_ledger(path)


def test_cost_is_every_class_at_its_price() -> None:
    table = price_table()
    usage = Usage(
        in_uncached=1_000_000, in_cache_read=2_000_000, in_cache_write_5m=1_000, out_total=100_000
    )
    cost = table.cost_usd("claude-opus-4-5", usage)
    assert cost == pytest.approx(5.0 + 2 * 0.5 + 1_000 * 6.25e-6 + 0.1 * 25)
    assert table.cost_usd("claude-opus-4-5-20251101", usage) == cost


def test_long_requests_have_their_own_price() -> None:
    table = price_table()
    short, long = Usage(in_uncached=200_000), Usage(in_uncached=200_001)
    assert table.cost_usd("gemini-2.5-pro", short) == pytest.approx(0.2 * 1.25)
    assert table.cost_usd("gemini-2.5-pro", long) == pytest.approx(0.200001 * 2.5)


def test_what_is_not_known_costs_nothing_known() -> None:
    table = price_table()
    assert table.cost_usd("nobody-knows-this-model", Usage(out_total=1)) is None
    assert table.cost_usd("gpt-5", Usage(in_cache_write_1h=1)) is None  # no such price
    assert table.cost_usd("gpt-5", Usage()) == 0


def test_every_price_is_dated_and_has_its_source() -> None:
    data = json.loads(TABLE.read_text())
    assert data["id"].count("-") == 2
    for name, entry in data["models"].items():
        assert entry["source"].startswith("https://"), name
        assert entry["tiers"][0]["from_input_tokens"] == 0, name
        assert all({"in_uncached", "out_total"} <= tier.keys() for tier in entry["tiers"]), name
