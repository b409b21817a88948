"""What there is: operators, suites, chips, methods."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelmark.benchmark.commands.shared import AsJson, LanguageName, OneChip

if TYPE_CHECKING:
    from kernelmark.operators.records import Operator

app = typer.Typer()
operators_app = typer.Typer(help="List operators; show one.", invoke_without_command=True)
app.add_typer(operators_app, name="operators")


@operators_app.callback()
def operators(
    context: typer.Context,
    source: Annotated[str, typer.Option(help="aten, vllm or cublas")] = "",
    suite: Annotated[str, typer.Option(help="Members of this suite only.")] = "",
    as_json: AsJson = False,
) -> None:
    """List operators; `kernelmark operators show ID` tells all about one."""
    if context.invoked_subcommand:
        return
    from kernelmark.benchmark.prompts import dtype_names
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.benchmark.suites import get_suite
    from kernelmark.operators.registry import SOURCES, UnknownName

    if source and source not in SOURCES:
        raise UnknownName("source", source, list(SOURCES))
    members = get_suite(suite or source or "all").operators
    rows = [
        {
            "operator": op.id,
            "family": op.family,
            "kind": op.kind,
            "small": len(op.tier("small")),
            "full": len(op.tier("full")),
            "dtypes": " ".join(dtype_names(op.cases())),
            "baseline": op.baseline_name,
        }
        for op in members
        if not source or op.source == source
    ]
    if as_json:
        print_json(rows)
        return
    headings = {"small": "small cases", "full": "full cases"}
    columns = {key: headings.get(key, key) for key in rows[0]} if rows else {"operator": ""}
    print_rows(rows, columns, caption=f"{len(rows)} operators")


@operators_app.command("show")
def operators_show(
    id: Annotated[str, typer.Argument(metavar="ID", help="e.g. aten::softmax")],
    prompt: Annotated[bool, typer.Option("--prompt", help="The text methods are given.")] = False,
    chip: OneChip = "interpreter",
    language: LanguageName = "triton",
    track: Annotated[
        str, typer.Option(help="Who is asked: model (answers with the file) or agent (writes it).")
    ] = "model",
    as_json: AsJson = False,
) -> None:
    """One operator: signature, description, cases, baseline; or the prompt for a chip."""
    from kernelmark.benchmark.prompts import Setting, build_prompt, track_named
    from kernelmark.benchmark.rendering import out, plain, print_json
    from kernelmark.benchmark.suites import operator_digest
    from kernelmark.evaluators.chips.registry import get_chip
    from kernelmark.evaluators.languages.registry import get_language
    from kernelmark.operators.registry import get_operator

    operator = get_operator(id)
    if prompt:
        where, lang = get_chip(chip), get_language(language)
        to = track_named(track)
        setting = Setting(where.name, where.notes, lang.name, lang.template, to)
        text = build_prompt(operator, setting)
        print_json({"operator": id, "prompt": text}) if as_json else sys.stdout.write(text)
        return
    about = _about(operator)
    if as_json:
        print_json({**about, "digest": operator_digest(operator)})
        return
    for key, value in about.items():
        lines = value if isinstance(value, list) else [value]
        out().print(plain(key, "bold"))
        for line in lines:
            out().print(plain(f"  {line}"))


def _about(operator: Operator) -> dict[str, Any]:
    from kernelmark.benchmark.baseline_times import baseline_times
    from kernelmark.benchmark.prompts import describe_case, describe_tolerance

    about: dict[str, Any] = {
        "id": operator.id,
        "family": operator.family,
        "kind": operator.kind,
        "signatures": list(operator.signatures),
        "description": operator.description,
        "note": operator.note,
        "baseline": operator.baseline_name,
        "tolerance": describe_tolerance(operator.tolerance),
        "sources": list(operator.sources),
        "cases": [f"{c.name} [{c.tier}]: {describe_case(operator, c)}" for c in operator.cases()],
        "measured": [
            f"{row['case']}: {row['baseline']} {row['device_us']:.2f} us on {row['sku']} "
            f"({100 * (row['roofline'] or 0):.0f}% of the roofline)"
            for row in baseline_times(operator.id)
        ],
    }
    return {key: value for key, value in about.items() if value}


@app.command()
def suites(as_json: AsJson = False) -> None:
    """List suites."""
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.benchmark.suites import get_suite, suite_names

    rows = [
        {
            "suite": suite.name,
            "operators": len(suite.operators),
            "version": suite.digest[:12],
            "description": suite.description,
        }
        for suite in map(get_suite, suite_names())
    ]
    print_json(rows) if as_json else print_rows(rows, {key: key for key in rows[0]})


@app.command()
def chips(as_json: AsJson = False) -> None:
    """List back ends: which work here, what each attests, and why the others do not."""
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.evaluators.chips.registry import all_chips

    rows = []
    for chip in all_chips().values():
        found = chip.detect()
        rows.append(
            {
                "chip": chip.name,
                "usable": found.usable,
                "attests": chip.attests,
                "sku": found.sku,
                "count": found.count,
                "verified_on": chip.verified_on,
                "why": found.why,
            }
        )
    headings = {"usable": "usable here", "verified_on": "last verified on"}
    columns = {key: headings.get(key, key) for key in rows[0] if key != "count"}
    print_json(rows) if as_json else print_rows(rows, columns)


@app.command()
def methods(as_json: AsJson = False) -> None:
    """List methods and the options that each takes."""
    import dataclasses

    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.evaluators.methods.registry import method_class, method_names

    rows = []
    for name in method_names():
        method = method_class(name)
        options = [f.name for f in dataclasses.fields(method)]  # type: ignore[arg-type]
        rows.append(
            {
                "method": name,
                "kind": method.kind,
                "language": method.language if isinstance(method.language, str) else "by option",
                "model": method.uses_model if isinstance(method.uses_model, bool) else "by option",
                "options": " ".join(options),
                "summary": method.summary,
            }
        )
    headings = {"model": "needs --model"}
    columns = {key: headings.get(key, key) for key in rows[0]}
    print_json(rows) if as_json else print_rows(rows, columns)
