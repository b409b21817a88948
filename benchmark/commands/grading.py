"""One candidate, and the judge itself: check, portability, selftest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernelmark.benchmark.commands.shared import (
    FAILED,
    INFRASTRUCTURE,
    INTERRUPTED,
    AsJson,
    Entry,
    LanguageName,
    OneChip,
    OperatorId,
    complain,
    portability_cache,
)
from kernelmark.benchmark.errors import InfrastructureError, UserError

app = typer.Typer()


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The candidate's source.")],
    op: OperatorId,
    chip: OneChip = "auto",
    tier: Annotated[str, typer.Option(help="small, or full: small and full cases")] = "small",
    entry: Entry = "",
    language: LanguageName = "triton",
    timeout_s: Annotated[float, typer.Option(help="For one call, compilation included.")] = 60.0,
    grade_timeout_s: Annotated[float, typer.Option(help="For the whole grade.")] = 900.0,
    as_json: AsJson = False,
) -> None:
    """Grade one candidate: status, gates, and what went wrong where."""
    from kernelmark.benchmark.rendering import err, print_json
    from kernelmark.evaluators.campaigns.placing import tier_for, usable_chip
    from kernelmark.evaluators.grading.workers import close_servers, shared_server

    if not file.exists():
        raise UserError(f"{file}: no such file")
    for option, seconds in (("timeout-s", timeout_s), ("grade-timeout-s", grade_timeout_s)):
        if not 0 < seconds < float("inf"):
            raise UserError(f"--{option} {seconds:g}: must be a number of seconds above 0")
    where = usable_chip(chip)
    if where.attests == "compiled":
        raise UserError(
            f"{where.name} is a compile target; kernelmark portability {file} --op {op} compiles"
        )
    try:
        # The processes that will run the candidate get ready while this one imports torch.
        shared_server(where)
        from kernelmark.evaluators.campaigns.report import print_verdict
        from kernelmark.evaluators.campaigns.sources import read_candidate
        from kernelmark.evaluators.grading.judge import Settings, grade
        from kernelmark.evaluators.grading.records import to_json
        from kernelmark.operators.registry import get_operator

        operator = get_operator(op)
        candidate = read_candidate(file, operator, language, entry)
        settings = Settings(
            tier=tier_for(tier, where), timeout_s=timeout_s, grade_timeout_s=grade_timeout_s
        )
        with err().status(f"grading on {where.name}") as status:
            verdict = grade(
                candidate,
                operator,
                where,
                settings,
                lambda gate, text: status.update(f"{gate} {text}"),
            )
    except KeyboardInterrupt:
        complain("stopped; nothing was kept")
        raise typer.Exit(INTERRUPTED) from None
    finally:
        close_servers()
    print_json(to_json(verdict)) if as_json else print_verdict(verdict)
    if verdict.status == "infrastructure_error":
        raise typer.Exit(INFRASTRUCTURE)
    raise typer.Exit(0 if verdict.status == "passed" else FAILED)


@app.command()
def selftest(
    chip: OneChip = "auto",
    rounds: Annotated[int, typer.Option(min=2, help="Measurements of each case.")] = 5,
    as_json: AsJson = False,
) -> None:
    """Measure this machine's judge: clocks, false wins, repeatability, isolation."""
    from dataclasses import asdict

    from kernelmark.benchmark.rendering import err, print_json, print_rows
    from kernelmark.evaluators.campaigns.placing import usable_chip
    from kernelmark.evaluators.grading import selftest as backend
    from kernelmark.evaluators.grading.workers import Infrastructure, close_servers

    where = usable_chip(chip)
    if where.attests == "compiled":
        raise UserError(f"{where.name} is a compile target: nothing runs, nothing is measured")
    try:
        with err().status(f"measuring the judge on {where.name}") as status:
            found = backend.selftest(where, backend.subjects(), rounds, progress=status.update)
    except Infrastructure as error:
        raise InfrastructureError(str(error)) from error
    finally:
        close_servers()
    rows = [asdict(row) for row in found]
    columns = {"what": "what", "value": "value", "unit": "unit", "detail": "detail"}
    print_json(rows) if as_json else print_rows(rows, columns)


@app.command()
def portability(
    file: Annotated[Path, typer.Argument(help="The candidate's source.")],
    op: OperatorId,
    chip: Annotated[str, typer.Option(help="Compile targets, comma-separated; else all.")] = "",
    entry: Entry = "",
    language: LanguageName = "triton",
    calls: Annotated[
        int | None, typer.Option(min=1, help="Calls of different dtypes to compile for, if not 2.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile one candidate for every target; no accelerator is needed."""
    from kernelmark.evaluators.chips.portability import AT_MOST, Compiler

    with Compiler(cache=portability_cache(), at_most=calls or AT_MOST) as compiler:
        compiler.start()  # the helper gets ready while this process imports torch
        from kernelmark.benchmark.rendering import err, print_json
        from kernelmark.evaluators.campaigns.report import print_portability
        from kernelmark.evaluators.campaigns.sources import read_candidate
        from kernelmark.evaluators.chips.registry import compile_targets
        from kernelmark.evaluators.grading.records import to_json
        from kernelmark.operators.registry import UnknownName, get_operator

        operator = get_operator(op)
        candidate = read_candidate(file, operator, language, entry)
        targets = [name.strip() for name in chip.split(",") if name.strip()] or compile_targets()
        for target in targets:
            if target not in compile_targets():
                raise UnknownName("compile target", target, compile_targets())
        with err().status(f"compiling for {len(targets)} targets"):
            rows = compiler.portability(candidate, operator, targets)
    print_json([to_json(row) for row in rows]) if as_json else print_portability(rows)
    raise typer.Exit(0 if all(row.status == "passed" for row in rows) else FAILED)
