"""The same methods over chips: what carries over, what fails where, what compiles where."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import charts, parts, queries, state, tables, text
from kernelmark.leaderboard.tables import Column, count

suite = parts.choose_suite()
rows = parts.frame(queries.BY_CHIP, **suite)
rows = rows.assign(chip_name=[parts.chip_name(row) for row in rows.to_dict("records")])
view = state.section(
    "Show", ["Methods", "Operators", "Failures", "Compile targets"], "view",
    label_visibility="collapsed",
)  # fmt: skip


def methods() -> None:
    """Share solved and score of each method on each chip, and its gap."""
    gaps = parts.frame(queries.GAPS, **suite)
    if gaps.empty:
        st.info("No method has been run on two chips over this suite yet.")
    else:
        st.text(
            "Portability gap: the share of operators that a method solves on one of its chips but "
            "not on all of them."
        )
        tables.table(
            gaps,
            {
                "method": Column("method"),
                "model": Column("model"),
                "chips": count("chips"),
                "gap": Column("gap", "percent", 0),
                "solved_anywhere": count("solved on some chip"),
                "solved_everywhere": count("solved on every chip"),
                "operators": count("operators"),
                "lowest_share": Column("lowest share solved", "percent", 0),
                "highest_share": Column("highest share solved", "percent", 0),
                "speed_ratio": Column("speedup, best / worst chip", "number"),
            },
            "gaps",
            "Portability gap of methods that ran on several chips",
        )
    keys = list(zip(rows["method"], rows["model"], rows["submitter"], strict=True))
    often = [key for key in dict.fromkeys(keys) if keys.count(key) > 1][:12]
    some = rows[[key in often for key in keys]] if often else rows.head(24)
    firsts = some.drop_duplicates(["method", "model", "submitter"])
    short = dict(
        zip(zip(firsts["method"], firsts["model"], firsts["submitter"], strict=True),
            parts.entry_names(firsts, 30), strict=True)
    )  # fmt: skip
    names = [short[k] for k in zip(some["method"], some["model"], some["submitter"], strict=True)]
    st.plotly_chart(
        charts.shares_by_chip(some, names),
        alt="Share solved of each method on each chip; the table below holds the values",
    )
    tables.table(
        rows.assign(entry=parts.entry_links(rows)),
        {
            "entry": Column("details", "link", width=60),
            "method": Column("method"),
            "model": Column("model"),
            "chip_name": Column("chip"),
            "solved_share": Column("solved", "percent", 0),
            "score": Column("score", "number", 3),
            "speedup": Column("speedup", "number"),
        },
        "by-chip",
        "Entries of this suite by method and chip",
        height=480,
    )


def operators() -> None:
    """Operators that do not carry over."""
    found = parts.frame(queries.OPERATORS_BY_CHIP, **suite)
    if found.empty:
        st.info("No operator is solved more often on one chip than on another.")
        return
    st.text("Operators that are solved more often on one chip than on another, widest gap first.")
    found = found.assign(
        chip_name=[parts.chip_name(row) for row in found.to_dict("records")],
        said=[
            f"{share:.0%} ({solved} of {entries})"
            for share, solved, entries in zip(
                found["share"], found["solved"], found["entries"], strict=True
            )
        ],
    )
    order = list(dict.fromkeys(found["operator"]))
    wide = found.pivot(index="operator", columns="chip_name", values="said").loc[order]
    usual = found.dropna(subset="usual_failure").groupby("operator")["usual_failure"].first()
    chips = list(wide.columns)
    wide = wide.assign(usual=usual).reset_index()
    tables.table(
        wide.assign(open=[parts.link("operator", operator=o) for o in wide["operator"]]),
        {
            "operator": Column("operator", width="medium"),
            **{chip: Column(f"solved on {text.short(chip, 40)}") for chip in chips},
            "usual": Column("a usual failure"),
            "open": Column("details", "link"),
        },
        "operators-by-chip",
        "Share of entries that solve an operator, by chip",
        height=640,
    )


def failures() -> None:
    """Classes of errors against chips."""
    found = parts.frame(queries.ERRORS_BY_CHIP, **suite)
    if found.empty:
        st.info("Nothing failed.")
        return
    found = found.assign(chip_name=[parts.chip_name(row) for row in found.to_dict("records")])
    wide = found.pivot_table(
        index="error_class", columns="chip_name", values="operators", aggfunc="sum", fill_value=0
    )
    wide = wide.loc[wide.sum(axis=1).sort_values(ascending=False).index]
    st.text("How often each kind of failure occurred, over all entries of a chip.")
    chips = list(wide.columns)
    tables.table(
        wide.reset_index(),
        {"error_class": Column("failure"), **{c: count(text.short(c, 40)) for c in chips}},
        "errors-by-chip",
        "Failures by kind and chip",
    )


def targets() -> None:
    """Candidates against compile targets."""
    found = parts.frame(queries.PORTABLE, **suite)
    if found.empty:
        st.info("No run over this suite was compiled for other targets (--chip nvidia,targets).")
        return
    firsts = found.drop_duplicates("submission")
    names = {
        submission: name if name.endswith(f"({chip})") else f"{name} ({chip})"
        for submission, chip, name in zip(
            firsts["submission"], firsts["chip"], parts.entry_names(firsts, 30), strict=True
        )
    }
    found = found.assign(
        share=found["compiled"] / found["tried"], name=[names[s] for s in found["submission"]]
    )
    wide = found.pivot_table(index="name", columns="target", values="share", aggfunc="first")
    wide = wide[sorted(wide.columns, key=lambda t: (t.startswith("gfx"), len(t), t))]
    with st.container(key="map-targets"):
        st.plotly_chart(
            charts.portability_map(wide.head(30)),
            alt="Share of candidates that compile for each target; the table below holds them",
        )
    tables.table(
        wide.reset_index(),
        {"name": Column("entry"), **{t: Column(str(t), "percent", 0) for t in wide.columns}},
        "targets",
        "Share of each entry's candidates that compile, by target",
    )
    errors = parts.frame(queries.PORTABILITY_ERRORS, **suite)
    st.subheader("Why candidates do not compile")
    tables.table(
        errors,
        {
            "target": Column("target"),
            "error_class": Column("failure"),
            "candidates": count("candidates"),
            "example": Column("for example"),
            "example_error": Column("its first error", width="large"),
        },
        "target-errors",
        "Why candidates do not compile, by target",
    )


pages = {"Methods": methods, "Operators": operators, "Failures": failures}
{**pages, "Compile targets": targets}[view]()
