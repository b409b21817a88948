"""Grading submissions again and exchanging them: regrade, intake, sync."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmark.benchmark.commands.shared import (
    FAILED,
    INTERRUPTED,
    AsJson,
    HubRepo,
    OneChip,
    complain,
    home,
    hub_exchange,
)
from kernelmark.benchmark.errors import UserError

app = typer.Typer()

GradedBy = Annotated[str, typer.Option("--as", help="Who grades; shown beside the verdicts.")]


@app.command()
def regrade(
    id: Annotated[str, typer.Argument(metavar="ID", help="6 letters or more of a submission's id")],
    chip: Annotated[str, typer.Option(help="Where; else the chip that it claims.")] = "",
    graded_by: GradedBy = "kernelmark regrade",
    results: Annotated[
        list[Path] | None,
        typer.Option(help="Verdicts of another machine: OUT of a job (jobs export --submission)."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Grade a submission's candidates again and compare with what was claimed.

    Both stay: our verdicts count from then on, where the hardware is the one claimed. Exit status 1
    where we contradict the claim.
    """
    from dataclasses import asdict

    from kernelmark.benchmark.rendering import err, plain, print_json
    from kernelmark.evaluators.campaigns.placing import usable_chip
    from kernelmark.evaluators.grading.records import Verdict
    from kernelmark.submissions import repeats
    from kernelmark.submissions.board import build
    from kernelmark.submissions.regrading import carry_out, plan, recorded
    from kernelmark.submissions.taking_turns import grader
    from kernelmark.submissions.trust import WAIT_S

    place = home()
    planned = plan(place, id, chip, graded_by)
    console = err()

    def shown(verdict: Verdict) -> None:
        console.print(plain(f"{verdict.status:<14} {verdict.operator}"))

    if results:
        grade = recorded(repeats.results(results), planned)
    else:
        grade = grader(place, usable_chip(planned.chip))
    result = carry_out(place, planned, grade, notify=shown)
    build(place, WAIT_S)
    conclusion = result.conclusion
    if as_json:
        print_json(asdict(result))
    else:
        typer.echo(f"{result.submission[:16]} {conclusion.outcome}: {conclusion.reason}")
        for agreement in result.agreements:
            if not agreement.agrees:
                typer.echo(f"  {agreement.pair.operator}: {agreement.reason}")
        typer.echo(f"trust: {result.trust}")
    raise typer.Exit(FAILED if conclusion.outcome == "contradicts" else 0)


@app.command()
def intake(
    chip: OneChip = "auto",
    hub: HubRepo = "",
    watch: Annotated[bool, typer.Option("--watch", help="Go on until interrupted.")] = False,
    pause_s: Annotated[float, typer.Option(help="Seconds between rounds.")] = 30.0,
    graded_by: GradedBy = "kernelmark intake",
) -> None:
    """Take submissions from the inbox, and a repository: validate, grade again, publish.

    Any number of intakes, of several chips, may share one home: nothing is done twice, and what one
    left when it was killed another takes over.
    """
    from kernelmark.evaluators.campaigns.placing import usable_chip
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.intake import Tools
    from kernelmark.submissions.intake import watch as go_on
    from kernelmark.submissions.taking_turns import grader

    if pause_s <= 0:
        raise UserError("--pause-s: must be more than 0")
    place, here = home(), usable_chip(chip)
    tools = Tools(
        catalogue=current_catalogue(),
        chip=here.name,
        grade=grader(place, here),
        graded_by=graded_by,
        exchange=hub_exchange(place, hub) if hub else None,
        notify=lambda text: typer.echo(text, err=True),
    )
    try:
        go_on(place, tools, pause_s, rounds=None if watch else 1)
    except KeyboardInterrupt:
        complain("stopped; what was graded so far is kept")
        raise typer.Exit(INTERRUPTED) from None


@app.command()
def sync(hub: HubRepo, as_json: AsJson = False) -> None:
    """Make this lake and that of a results repository hold the same parts; rebuild the board."""
    from dataclasses import asdict

    from kernelmark.benchmark.rendering import print_json
    from kernelmark.submissions.board import build
    from kernelmark.submissions.trust import WAIT_S

    place = home()
    synced = hub_exchange(place, hub).sync()
    board = build(place, WAIT_S)
    if as_json:
        print_json({**asdict(synced), "board": str(board)})
        return
    typer.echo(f"{len(synced.pulled)} parts came, {len(synced.pushed)} went; {board}")
