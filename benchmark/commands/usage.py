"""What a run used: tokens and dollars by operator, attempt, model and class."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from kernelmark.benchmark.commands.shared import AsJson

app = typer.Typer()

#: tokens by class, as headings
_CLASSES = {
    "in_uncached": "input",
    "in_cache_read": "cache read",
    "in_cache_write_5m": "cache write",
    "in_cache_write_1h": "written for 1 h",
    "out_total": "output",
    "out_reasoning": "of it reasoning",
}
_DOUBTS = {
    "unpriced": "unpriced",
    "estimated": "estimated",
    "missing": "usage missing",
}


@app.command()
def usage(
    run: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    attempts: Annotated[bool, typer.Option("--attempts", help="One row an attempt too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Tokens and dollars of a run, by operator, attempt, model and class; tokens per solved."""
    from kernelmark.benchmark.rendering import out, plain, print_json, print_rows
    from kernelmark.evaluators.campaigns.folder import RunFolder
    from kernelmark.evaluators.campaigns.usage import usage_report

    report = usage_report(RunFolder.open(run))
    if as_json:
        print_json(report)
        return
    total = {"operator": "total", "model": "total", **report["total"]}
    head = {"operator": "operator", "status": "status", "attempts": "attempts"}
    print_rows([*report["operators"], total], _columns(head, total))
    if attempts:
        head = {"operator": "operator", "attempt": "attempt"}
        print_rows(report["attempts"], _columns(head, total))
    print_rows(report["models"], _columns({"model": "model"}, total))
    out().print(plain(_summary(report)))


def _columns(head: dict[str, str], total: dict[str, Any]) -> dict[str, str]:
    """Classes and doubts are shown where the run has any."""
    classes = {key: text for key, text in _CLASSES.items() if total[key]}
    doubts = {key: text for key, text in _DOUBTS.items() if total[key]}
    return {**head, "requests": "requests", **classes, "tokens": "tokens", "usd": "$", **doubts}


def _summary(report: dict[str, Any]) -> str:
    parts = [f"{report['solved']} solved"]
    if report["tokens_per_solved"] is not None:
        parts.append(f"{report['tokens_per_solved']:,.0f} tokens per solved")
    if report["usd_per_solved"] is not None:
        parts.append(f"${report['usd_per_solved']:.4f} per solved")
    if report["refused"]:
        parts.append(f"{report['refused']} requests refused by a budget")
    return "; ".join(parts)
