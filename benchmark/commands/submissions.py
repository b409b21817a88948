"""The group `submissions`: list, filter, export; one of them; withdraw, decide; the schemas."""

from __future__ import annotations

import getpass
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from kernelmark.benchmark.commands.shared import AsJson, home
from kernelmark.benchmark.errors import UserError

app = typer.Typer()
group = typer.Typer(invoke_without_command=True)
app.add_typer(group, name="submissions")

Id = Annotated[str, typer.Argument(metavar="ID", help="A submission; 6 letters or more of its id.")]
Reason = Annotated[str, typer.Option(help="Shown publicly.")]
By = Annotated[str, typer.Option("--by", help="Who decides; else the name of this user.")]

_COLUMNS = {
    "submission": "submission",
    "state": "",
    "method": "method",
    "model": "model",
    "suite": "suite",
    "chip": "chip",
    "trust": "trust",
    "regrade_outcome": "re-grade",
    "complete": "whole suite",
    "submitter": "submitter",
    "created_at": "run at",
}


@group.callback()
def submissions(
    context: typer.Context,
    state: Annotated[str, typer.Option(help="accepted, waiting or refused")] = "",
    method: Annotated[str, typer.Option()] = "",
    kind: Annotated[str, typer.Option(help="agent, model, compiler, library or human")] = "",
    model: Annotated[str, typer.Option()] = "",
    suite: Annotated[str, typer.Option()] = "",
    chip: Annotated[str, typer.Option()] = "",
    trust: Annotated[str, typer.Option(help="self_reported, regraded, verified, …")] = "",
    submitter: Annotated[str, typer.Option()] = "",
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV instead of a table.")] = False,
    parquet: Annotated[Path | None, typer.Option(help="Write a Parquet file.")] = None,
    as_json: AsJson = False,
) -> None:
    """List submissions, on the board, waiting or refused; filter and export them."""
    if context.invoked_subcommand is not None:
        return
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.submissions import listing

    given: dict[str, str] = {
        "state": state,
        "method": method,
        "kind": kind,
        "model": model,
        "suite": suite,
        "chip": chip,
        "trust": trust,
        "submitter": submitter,
    }
    rows = listing.list_submissions(home(), given)
    if parquet is not None:
        listing.write_parquet(rows, parquet)
    if as_json:
        print_json(rows)
    elif as_csv:
        sys.stdout.write(listing.as_csv(rows))
    elif parquet is None:
        short = [{**row, "submission": row["submission"][:16]} for row in rows]
        print_rows(short, _COLUMNS, caption=f"{len(rows)} submissions")


@group.command()
def show(id: Id, as_json: AsJson = False) -> None:
    """One submission: what it is, its decisions, and its re-grades beside what was claimed."""
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.submissions.board import open_board
    from kernelmark.submissions.regrading import find

    with open_board(home()) as connection:
        submission = find(connection, id)

        def rows(table: str, order: str) -> list[dict[str, Any]]:
            query = f"SELECT * FROM {table} WHERE submission = ? ORDER BY {order}"
            result = connection.execute(query, [submission])
            names = [column[0] for column in result.description]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

        told: dict[str, Any] = {
            "submission": rows("submissions", "submission")[0],
            "trust": rows("trust", "decided_at"),
            "regrades": rows("regrades", "ended_at"),
            "agreements": rows("agreements", "agrees, operator"),
        }
    if as_json:
        print_json(told)
        return
    head = told["submission"]
    lines = [{"field": name, "value": value} for name, value in head.items() if value]
    print_rows(lines, {"field": "", "value": ""})
    decisions = {"decided_at": "decided at", "trust": "trust", "reason": "reason"}
    print_rows(told["trust"], {**decisions, "decided_by": "by"})
    print_regrades(told["regrades"], told["agreements"])


def print_regrades(regrades: list[dict[str, Any]], agreements: list[dict[str, Any]]) -> None:
    """Re-grades, and the candidates that do not agree."""
    from kernelmark.benchmark.rendering import print_rows

    if not regrades:
        return
    columns = {"ended_at": "graded at", "chip": "chip", "sku": "SKU", "outcome": "outcome"}
    counts = {"candidates": "candidates", "agreeing": "agree", "contradicting": "contradict"}
    print_rows(regrades, {**columns, **counts, "speed_ratio": "speed / claim", "reason": "reason"})
    others = [row for row in agreements if not row["agrees"]]
    if others:
        named = {"operator": "operator", "claimed_status": "claimed", "status": "found"}
        speeds = {"claimed_speedup": "claimed speedup", "speedup": "found speedup"}
        print_rows(others, {**named, **speeds, "reason": "reason"}, title="not as claimed")


@group.command()
def withdraw(id: Id, reason: Reason, by: By = "") -> None:
    """Take a submission out of the ranking, for a reason. It stays, marked; nothing is deleted."""
    _decide(id, "withdrawn", reason, by)


@group.command("trust")
def set_trust(
    id: Id,
    level: Annotated[str, typer.Argument(help="self_reported, regraded, verified or flagged")],
    reason: Reason,
    by: By = "",
) -> None:
    """Decide how far a submission is trusted, for a reason; earlier decisions stay."""
    if level not in ("self_reported", "regraded", "verified", "flagged"):
        raise UserError(f"{level} is no level of trust; withdraw has a command of its own")
    _decide(id, level, reason, by)


def _decide(id: str, level: Any, reason: str, by: str) -> None:
    from kernelmark.submissions.board import build, open_board
    from kernelmark.submissions.regrading import find
    from kernelmark.submissions.trust import WAIT_S, decide

    with open_board(home()) as connection:
        submission = find(connection, id)
    decide(home(), submission, level, reason, by or getpass.getuser())
    build(home(), WAIT_S)
    typer.echo(f"{submission} {level}")


@group.command()
def pack(
    id: Id,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="E.g. submissions/bundles.")],
) -> None:
    """Write a sealed bundle as one zip file that is named by its id, as those that ship are."""
    from kernelmark.submissions.archive import pack as write
    from kernelmark.submissions.repeats import find_bundle

    bundle = find_bundle(home(), id)
    if not bundle.is_dir():
        raise UserError(f"{bundle} is packed already")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{bundle.resolve().name}.zip"
    write(bundle, path)
    typer.echo(f"{path}, {path.stat().st_size / 1e6:.1f} MB")


@group.command()
def schema(
    out: Annotated[Path | None, typer.Option(help="Write one file a schema here.")] = None,
) -> None:
    """JSON Schema of a bundle's files: printed, or written to a folder."""
    from kernelmark.benchmark.rendering import print_json
    from kernelmark.submissions.schemas import schemas, write_schemas

    if out is None:
        print_json(schemas())
        return
    for path in write_schemas(out):
        typer.echo(path)
