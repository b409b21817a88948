"""A method over a suite: run, demo, and jobs for another machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelmark.benchmark.commands.shared import (
    INFRASTRUCTURE,
    INTERRUPTED,
    AsJson,
    complain,
    home,
    portability_cache,
)
from kernelmark.benchmark.errors import UserError

if TYPE_CHECKING:
    from kernelmark.submissions.repeats import Claim, Repeat

app = typer.Typer()
jobs_app = typer.Typer(help="Grade on another machine, where only torch and triton are.")
app.add_typer(jobs_app, name="jobs", no_args_is_help=True)


@app.command()
def run(
    method: Annotated[str, typer.Option(help="A name of `kernelmark methods`.")] = "",
    suite: Annotated[str, typer.Option(help="A suite, or one operator's id.")] = "demo",
    chip: Annotated[
        str,
        typer.Option(
            help="The chip to grade on; more of them, and compile targets, after it by comma: "
            "columns of the same run (`targets` is all compile targets)."
        ),
    ] = "auto",
    model: Annotated[str, typer.Option(help="For methods that call a model.")] = "",
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="KEY=VALUE for the method.")
    ] = None,
    operators: Annotated[str, typer.Option(help="Only these of the suite, by comma.")] = "",
    tier: Annotated[str, typer.Option(help="small or full; auto: full where time counts")] = "auto",
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that the run may use.")] = None,
    budget_usd: Annotated[float | None, typer.Option(help="Dollars that the run may use.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            help="SCOPE.LIMIT=N: attempt, operator or run; tokens, in_uncached, in_cache_read, "
            "in_cache_write, out_total, usd, requests or wall_s."
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Operators in production at once.")] = 4,
    base_url: Annotated[
        str,
        typer.Option(
            help="Of the model's provider, in whose words the method speaks (OpenAI's; a preset's "
            "own); else its public one."
        ),
    ] = "",
    api_key_env: Annotated[
        str,
        typer.Option(help="Environment variable with the provider's key; else the usual one."),
    ] = "",
    cases_from: Annotated[
        str,
        typer.Option(
            metavar="REPO@REVISION|DIR",
            help="Take the operators' cases from a published data set; its content hash then "
            "stands in every verdict. See dataset.",
        ),
    ] = "",
    out: Annotated[Path | None, typer.Option(help="Run folder to make.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Run folder to go on with; all else is in it.")
    ] = None,
    grade: Annotated[
        bool, typer.Option(help="No: only produce; the chip need not be here. See jobs export.")
    ] = True,
    executor: Annotated[
        str, typer.Option(help="local: this machine; ray: a Ray cluster that runs already.")
    ] = "local",
    devices: Annotated[
        str, typer.Option(help="Accelerators of this machine to grade on: all, or 0,1.")
    ] = "all",
    address: Annotated[
        str, typer.Option(help="Of the Ray cluster; else RAY_ADDRESS, or the one on this machine.")
    ] = "",
    resource: Annotated[
        str, typer.Option(help="Of the Ray cluster, e.g. chip:nvidia-h200; if it has several.")
    ] = "",
    most: Annotated[
        int, typer.Option(min=0, help="Accelerators of the Ray cluster to take at most; 0: all.")
    ] = 0,
    as_json: AsJson = False,
) -> None:
    """A method over a suite on a chip. Resumable: kill it any time, go on with --resume DIR."""
    from kernelmark.evaluators.campaigns import running, summary
    from kernelmark.evaluators.campaigns.access import access_of

    place = running.Place(executor, devices, address, resource, most, portability_cache())
    running.check_place(place)
    budgets = _budgets(budget_tokens, budget_usd, budget or [])
    if resume is not None:
        folder = running.reopen(resume, budgets)
    else:
        if not method:
            raise UserError("--method is missing; kernelmark methods lists them")
        request = running.Request(
            method=method,
            model=model,
            suite=suite,
            chips=tuple(name.strip() for name in chip.split(",") if name.strip()),
            options=_options(option or []),
            operators=tuple(name.strip() for name in operators.split(",") if name.strip()),
            tier=tier,
            budgets=budgets,
            grade=grade,
            here=executor == "local",
            cases_from=cases_from,
        )
        folder = running.begin(request, out, home().runs, complain)
    access = access_of(folder.run, base_url, api_key_env, os.environ)
    try:
        running.carry_out(folder, access, workers, grading=grade, place=place)
    except KeyboardInterrupt:
        complain(f"stopped; kernelmark run --resume {folder.root}")
        raise typer.Exit(INTERRUPTED) from None
    except UserError as error:
        raise UserError(f"{error}; then kernelmark run --resume {folder.root}") from None
    summary.report(folder, as_json)
    raise typer.Exit(INFRASTRUCTURE if summary.infrastructure_errors(folder) else 0)


@app.command()
def demo() -> None:
    """Grade the project's own kernels on this CPU, compile each for all targets, show the board.

    Runs measured on hardware, which ship with the project, stand on it too.
    """
    from kernelmark.benchmark.boards import print_boards
    from kernelmark.evaluators.campaigns import running, summary
    from kernelmark.evaluators.campaigns.access import Access
    from kernelmark.evaluators.campaigns.folder import RunFolder
    from kernelmark.submissions.board import build, open_board
    from kernelmark.submissions.bundle import Disclosure
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.inbox import deliver
    from kernelmark.submissions.ingest import ingest as take_in
    from kernelmark.submissions.shipped import deliver_shipped

    place = home()
    request = running.Request(method="reference", suite="demo", chips=("interpreter", "targets"))
    folder = running.begin(request, None, place.runs)
    here = running.Place(cache=portability_cache())
    running.carry_out(folder, Access("", "", ""), workers=4, place=here)
    summary.report(folder, as_json=False)
    deliver(place, RunFolder.open(folder.root), Disclosure())
    deliver_shipped(place)
    take_in(place, current_catalogue())
    build(place)
    with open_board(place) as connection:
        print_boards(connection, "", "", as_json=False)
    typer.echo("Open the leaderboard with: make app")
    failed = summary.infrastructure_errors(folder)
    raise typer.Exit(INFRASTRUCTURE if failed else 0)


@jobs_app.command("export")
def jobs_export(
    job: Annotated[Path, typer.Argument(help="Job folder to make.")],
    run: Annotated[
        Path | None, typer.Option("--run", help="Run folder, of kernelmark run --no-grade.")
    ] = None,
    submission: Annotated[
        list[str] | None,
        typer.Option(help="Instead: what passed of a bundle, or of a submission, by its id."),
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(min=1, help="With --submission: only so many operators of each, drawn once."),
    ] = None,
) -> None:
    """Write a job: what `python -m kernelmark.evaluators.grading JOB OUT` grades elsewhere."""
    if (run is None) == (not submission):
        raise UserError("--run, or --submission: one of them")
    if run is None:
        from kernelmark.submissions.repeats import export_sample

        count = export_sample(_claims(submission or []), job, sample, complain)
    else:
        from kernelmark.evaluators.campaigns.folder import RunFolder
        from kernelmark.evaluators.campaigns.jobs import export_job

        count = export_job(RunFolder.open(run), job)
    typer.echo(f"{count} candidates in {job}")


@jobs_app.command("import")
def jobs_import(
    results: Annotated[Path, typer.Argument(help="OUT of the grading elsewhere.")],
    run: Annotated[Path, typer.Option("--run", help="The run folder that the job came from.")],
) -> None:
    """Take the verdicts of a job into its run folder."""
    from kernelmark.evaluators.campaigns.folder import RunFolder
    from kernelmark.evaluators.campaigns.jobs import import_results

    count = import_results(RunFolder.open(run), results)
    typer.echo(f"{count} verdicts into {run}")


@jobs_app.command("compare")
def jobs_compare(
    results: Annotated[list[Path], typer.Argument(help="OUT of jobs export --submission.")],
    submission: Annotated[
        list[str] | None,
        typer.Option(help="A bundle, or a submission's id; else all that ship with the project."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """How far verdicts of another day or machine lie within what submissions state.

    Nothing is kept and no trust changes; kernelmark regrade --results does that.
    """
    from dataclasses import asdict

    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.submissions import repeats
    from kernelmark.submissions.shipped import FOLDER

    found = repeats.results(results)
    claims = _claims(submission or [str(path) for path in sorted(FOLDER.glob("*.zip"))])
    rows = [row for claim in claims if (row := repeats.repeat(claim, found)) is not None]
    if not rows:
        raise UserError("none of these verdicts is of a candidate that these submissions state")
    if as_json:
        print_json([asdict(row) for row in rows])
        return
    columns = {"name": "entry", "submission": "submission", "operators": "operators"}
    columns |= {"passed": "pass again", "agree": "agree"}
    columns |= {"timed": "timed", "within": "within", "meeting": "intervals meet"}
    columns |= {"close": "within 5%", "cases": "cases", "cases_within": "cases within"}
    columns |= {"cases_meeting": "case intervals meet"}
    caption = (
        "agree: passes again and is not certainly 10% slower; within: the new speedup lies in the "
        "stated 95% interval; operators by geometric mean of their cases"
    )
    print_rows([_repeat_row(row) for row in rows], columns, caption=caption)
    others = [
        {"name": row.name, "operator": a.pair.operator, "reason": a.reason}
        for row in rows
        for a in row.agreements
        if not a.agrees
    ]
    if others:
        print_rows(others, {"name": "entry", "operator": "operator", "reason": "not as stated"})


def _claims(names: Sequence[str]) -> list[Claim]:
    from kernelmark.submissions.repeats import find_bundle, read_claim

    return [read_claim(find_bundle(home(), name)) for name in names]


def _repeat_row(row: Repeat) -> dict[str, object]:
    """A row of numbers with their shares."""
    operators = len(row.agreements)

    def part(count: int, whole: int) -> str:
        return f"{count} ({count / whole:.0%})" if whole else "-"

    return {
        "name": row.name,
        "submission": row.submission[:8],
        "operators": operators,
        "passed": part(row.same_status, operators),
        "agree": part(row.agreeing, operators),
        "timed": row.timed,
        "within": part(row.within, row.timed),
        "meeting": part(row.meeting, row.timed),
        "close": part(row.close, row.timed),
        "cases": row.cases,
        "cases_within": part(row.cases_within, row.cases),
        "cases_meeting": part(row.cases_meeting, row.cases),
    }


def _budgets(tokens: int | None, usd: float | None, texts: Sequence[str]) -> dict[str, float]:
    from kernelmark.evaluators.campaigns.budgets import parse_budgets

    given = {"run.tokens": tokens, "run.usd": usd}
    short = [f"{name}={value}" for name, value in given.items() if value is not None]
    return parse_budgets([*texts, *short])


def _options(pairs: Sequence[str]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (_, equals, _) in zip(pairs, split, strict=True) if not equals]
    if wrong:
        raise UserError(f"-o {wrong[0]}: write KEY=VALUE")
    return {key: value for key, _, value in split}
