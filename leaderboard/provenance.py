"""Where an entry comes from: its disclosure, environment, reproducing command, tokens."""

from __future__ import annotations

import json
from typing import Any

import pandas as pd
import streamlit as st

from kernelmark.leaderboard import parts, queries, tables, text
from kernelmark.leaderboard.tables import Column, count

_SHOWN = (
    "submission", "run", "method", "kind", "model", "language", "selection", "suite", "chip",
    "tier", "options", "budget_tokens", "benchmark_version", "submitter", "organisation",
    "contact", "url", "notes", "licence", "open_weights", "trained_on_benchmark",
    "attempts_declared", "created_at", "sealed_at", "ingested_at",
)  # fmt: skip


def headline(standing: pd.Series) -> None:
    """The few numbers that matter; what is not known is left out."""
    rank, high = standing["rank"], standing["rank_high"]
    found = {
        "Rank": ""
        if pd.isna(rank)
        else f"{rank:.0f}"
        if rank == high
        else f"{rank:.0f}–{high:.0f}",
        "Solved": f"{standing['solved']}/{standing['operators']}",
        "Score": text.number(standing["score"], "number", 3),
        "Speedup": text.number(standing["speedup"], "number", 2),
        "Tokens / operator": text.number(standing["tokens_per_operator"], "compact", 0),
        "Trust": str(standing["trust"]).replace("_", " "),
    }
    shown = {label: value for label, value in found.items() if value}
    with st.container(horizontal=True, gap="medium"):
        for label, value in shown.items():
            st.metric(label, value, width="content")


def reproduce(facts: pd.Series) -> str | None:
    """The command that makes the same run again; None where its words cannot be trusted."""
    words = ["kernelmark", "run", "--method", facts["method"]]
    if facts["model"]:
        words += ["--model", facts["model"]]
    words += ["--suite", facts["suite"], "--chip", facts["chip"]]
    if facts["tier"]:
        words += ["--tier", facts["tier"]]
    if not text.missing(facts["budget_tokens"]):
        words += ["--budget-tokens", str(int(facts["budget_tokens"]))]
    for key, value in sorted(_object(facts["options"]).items()):
        words += ["--option", f"{key}={value}"]
    return text.command([str(word) for word in words])


def show(facts: pd.Series, standing: pd.Series) -> None:
    """Everything said of the run, and how to run it again."""
    line = reproduce(facts)
    st.subheader("Run it again")
    if line is None:
        st.warning("A name in this entry holds characters that a terminal may misread: no command.")
    else:
        st.code(line, language=None, wrap_lines=True)
    st.caption("Methods with a model need its key and will not give the same candidates twice.")
    st.subheader("Provenance")
    names = [name for name in _SHOWN if name in facts and not text.missing(facts[name])]
    said = pd.DataFrame({"what": names, "value": [str(facts[name]) for name in names]})
    tables.table(
        said, {"what": Column("what"), "value": Column("value")}, "provenance", "Provenance"
    )
    st.subheader("Environment")
    pairs = _object(facts["environment"])
    if not pairs:
        st.text("The run does not say in what environment it was made.")
    else:
        environment = pd.DataFrame({"what": list(pairs), "value": [str(v) for v in pairs.values()]})
        columns = {"what": Column("what"), "value": Column("value")}
        tables.table(environment, columns, "environment", "Environment of the run")
    st.subheader("Decisions about trust")
    decisions = parts.frame(queries.TRUST, submission=facts["submission"])
    labels = {"decided_at": "when", "trust": "level", "reason": "reason", "decided_by": "by"}
    tables.table(
        decisions, {c: Column(n) for c, n in labels.items()}, "trust", "Decisions about trust"
    )
    _regrades(facts["submission"])


def _regrades(submission: str) -> None:
    """What was found when we graded the same candidates again."""
    st.subheader("Graded again")
    runs = parts.frame(queries.REGRADES, submission=submission)
    if runs.empty:
        st.text("Nobody has graded these candidates again yet.")
        return
    columns = {
        "ended_at": Column("when"),
        "outcome": Column("outcome"),
        "reason": Column("reason", width="large"),
        "sku": Column("on"),
        "candidates": count("candidates"),
        "agreeing": count("agree"),
        "contradicting": count("contradict"),
        "speed_ratio": Column("speedup found / claimed", "number", 3),
        "speed_ratio_low": Column("low", "number", 3),
        "speed_ratio_high": Column("high", "number", 3),
        "graded_by": Column("by"),
    }
    tables.table(runs, columns, "regrades", "Re-grades of this entry")
    columns = {
        "operator": Column("operator", width="medium"),
        "agreement": Column("agreement"),
        "claimed_status": Column("claimed status"),
        "status": Column("status found"),
        "claimed_speedup": Column("claimed speedup", "number"),
        "speedup": Column("speedup found", "number"),
        "reason": Column("reason", width="large"),
    }
    rows = parts.frame(queries.AGREEMENTS, submission=submission)
    rows = rows.assign(agreement=["✓ agrees" if a else "✗ differs" for a in rows["agrees"]])
    tables.table(rows, columns, "agreements", "Claimed and found, by candidate", height=420)


def tokens(submission: str, standing: pd.Series) -> None:
    """The ledger by operator."""
    usage = parts.frame(queries.USAGE, submission=submission)
    if standing["metering"] == "not applicable":
        st.info("No model stands behind this entry, so there are no tokens to count.")
        return
    if usage.empty:
        st.warning("Nothing was metered: what this entry cost is not known.")
        return
    if standing["metering"] == "partial":
        st.warning("Metering is partial: the true numbers are higher.")
    tables.table(
        usage,
        {
            "operator": Column("operator"),
            "requests": count("requests"),
            "in_uncached": Column("input", "compact"),
            "in_cache_read": Column("cache read", "compact"),
            "in_cache_write": Column("cache write", "compact"),
            "out_total": Column("output", "compact"),
            "out_reasoning": Column("of it reasoning", "compact"),
            "tokens": Column("tokens", "compact"),
            "cost_usd": Column("$", "dollars", 4),
            "unmetered": count("requests not metered"),
        },
        "ledger",
        "Tokens by operator, as the provider reported them",
        height=560,
    )


def _object(value: Any) -> dict[str, Any]:
    found = json.loads(value) if isinstance(value, str) and value else {}
    return found if isinstance(found, dict) else {}
