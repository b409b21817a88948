"""From a run to the board: submit, ingest, leaderboard."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelmark.benchmark.commands.shared import FAILED, AsJson, HubRepo, home, hub_exchange
from kernelmark.benchmark.errors import UserError

app = typer.Typer()


@app.command()
def submit(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A run folder.")],
    submitter: Annotated[str, typer.Option(help="Your name or handle.")] = "",
    organisation: Annotated[str, typer.Option()] = "",
    contact: Annotated[str, typer.Option(help="Shown publicly.")] = "",
    url: Annotated[str, typer.Option(help="Of the method.")] = "",
    notes: Annotated[str, typer.Option(help="What a reader should know.")] = "",
    licence: Annotated[str, typer.Option(help="Of the candidates.")] = "Apache-2.0",
    trained_on_benchmark: Annotated[str, typer.Option(help="yes, no or unknown")] = "unknown",
    open_weights: Annotated[str, typer.Option(help="yes, no or unknown")] = "unknown",
    attempts_declared: Annotated[int, typer.Option(help="Runs made, this one included.")] = 1,
    partial: Annotated[bool, typer.Option("--partial", help="Hand in an unfinished run.")] = False,
    hub: HubRepo = "",
    as_json: AsJson = False,
) -> None:
    """Seal a run and deliver it: to the inbox here, or as a pull request to a repository.

    Keys, tokens and home folders are blanked out first, and told; a candidate that holds a secret
    is not sealed. kernelmark ingest, or an intake, takes it from there.
    """
    from pydantic import TypeAdapter, ValidationError

    from kernelmark.benchmark.rendering import print_json
    from kernelmark.evaluators.campaigns.folder import RunFolder
    from kernelmark.submissions.bundle import Disclosure
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.inbox import place as move_in
    from kernelmark.submissions.inbox import sealed
    from kernelmark.submissions.ingest import read_rows
    from kernelmark.submissions.redaction import Redactor, secret_values

    run_folder = RunFolder.open(folder)
    missing = run_folder.missing()
    if missing and not partial:
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise UserError(
            f"{missing[0]}{more}; finish with kernelmark run --resume {folder}, or --partial"
        )
    fields = {
        "submitter": submitter,
        "organisation": organisation,
        "contact": contact,
        "url": url,
        "notes": notes,
        "licence": licence,
        "trained_on_benchmark": trained_on_benchmark,
        "open_weights": open_weights,
        "attempts_declared": attempts_declared,
    }
    try:
        disclosure = TypeAdapter(Disclosure).validate_python(fields)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"--{str(first['loc'][0]).replace('_', '-')}: {first['msg']}") from None
    redactor = Redactor(secret_values(os.environ))
    place = home()
    with sealed(place, run_folder, disclosure, redactor) as (submission, staging):
        _, problems = read_rows(staging, current_catalogue().members(), submission.sealed_at)
        if problems:
            lines = [f"{problem.where}: {problem.what}" for problem in problems[:10]]
            raise UserError("\n  ".join(["the sealed run would be refused:", *lines]))
        if hub:
            proposed = hub_exchange(place, hub).propose(staging, submission.id)
            new, where = proposed.new, proposed.url
        else:
            new, where = move_in(place, staging, submission.id), ""
    redacted = redactor.redacted.lines()
    if as_json:
        told = {"submission": submission.id, "new": new, "complete": submission.complete}
        print_json({**told, "pull_request": where or None, "redacted": redacted})
        return
    typer.echo(submission.id if new else f"{submission.id} (delivered before)")
    if where:
        typer.echo(where)
    for line in redacted:
        typer.echo(f"blanked out in {line}", err=True)
    if not submission.complete:
        typer.echo("not the whole suite: operators that are missing count 0", err=True)


@app.command()
def ingest(as_json: AsJson = False) -> None:
    """Validate what waits in the inbox, add it to the lake, build the board's database."""
    from dataclasses import asdict

    from kernelmark.benchmark.rendering import err, print_json, print_rows
    from kernelmark.submissions.board import build
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.ingest import ingest as take_in

    place = home()
    with err().status("validating") as status:
        results = take_in(place, current_catalogue())
        status.update("building the database")
        board = build(place)
    if as_json:
        print_json({"board": str(board), "bundles": [asdict(result) for result in results]})
    else:
        rows = [
            {
                "submission": result.name[:16],
                "state": "accepted" if result.accepted else "refused",
                "why": "\n".join(f"{p.where}: {p.what}" for p in result.problems[:10]),
            }
            for result in results
        ]
        if rows:
            print_rows(rows, {"submission": "submission", "state": "", "why": ""})
        typer.echo(f"{sum(r.accepted for r in results)} accepted of {len(results)}; {board}")
    raise typer.Exit(0 if all(result.accepted for result in results) else FAILED)


@app.command()
def leaderboard(
    print_: Annotated[bool, typer.Option("--print", help="In the terminal.")] = False,
    suite: Annotated[str, typer.Option(help="With --print: this suite only.")] = "",
    chip: Annotated[str, typer.Option(help="With --print: this chip only.")] = "",
    port: Annotated[int, typer.Option(help="Of the app.")] = 8501,
    export: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write a copy that needs no server.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The app; with --print or --json, its board in the terminal; with --export, as files."""
    from kernelmark.submissions.board import open_board

    if export is not None:
        from kernelmark.benchmark.static_page import export as write

        with open_board(home()) as connection:
            typer.echo(f"{len(write(connection, export))} files; open {export / 'index.html'}")
        return
    if print_ or as_json:
        from kernelmark.benchmark.boards import print_boards

        with open_board(home()) as connection:
            print_boards(connection, suite, chip, as_json)
        return
    open_board(home()).close()
    _serve(port)


def _serve(port: int) -> None:
    import importlib.util

    if importlib.util.find_spec("streamlit") is None:
        raise UserError("the app needs streamlit: pip install 'kernelmark[app]'")
    script = Path(__file__).parents[2] / "leaderboard" / "app.py"
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    os.environ["KERNELMARK_HOME"] = str(home().root)
    os.execv(sys.executable, command)
