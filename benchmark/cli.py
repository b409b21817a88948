"""The command line. Imports happen when a command runs, so that --help answers at once.

Exit status: 0 done; 1 the thing asked about failed (a wrong kernel, a refused bundle); 2 wrong
usage; 3 infrastructure; 130 interrupted.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernelmark.benchmark.errors import InfrastructureError, UserError

if TYPE_CHECKING:
    from kernelmark.operators.records import Operator
    from kernelmark.submissions.home import Home

FAILED, USAGE, INFRASTRUCTURE, INTERRUPTED = 1, 2, 3, 130

app = typer.Typer(
    name="kernelmark",
    help="Benchmark of methods that write accelerator kernels: correct, fast, at what price.",
    epilog="Start with: kernelmark operators, kernelmark chips, kernelmark check FILE --op ID",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
operators_app = typer.Typer(help="List operators; show one.", invoke_without_command=True)
jobs_app = typer.Typer(help="Grade on another machine, where only torch and triton are.")
app.add_typer(operators_app, name="operators")
app.add_typer(jobs_app, name="jobs", no_args_is_help=True)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
OneChip = Annotated[
    str,
    typer.Option("--chip", help="A name of `kernelmark chips`; auto: the accelerator here, if any"),
]
OperatorId = Annotated[str, typer.Option("--op", help="The operator, e.g. aten::softmax")]
Entry = Annotated[str, typer.Option(help="Function to call; else the operator's name.")]
LanguageName = Annotated[str, typer.Option(help="Language that the file is written in.")]


def main() -> None:
    """Entry point of the command `kernelmark`."""
    try:
        app()
    except _user_errors() as error:
        _complain(str(error))
        sys.exit(USAGE)
    except InfrastructureError as error:
        _complain(str(error))
        sys.exit(INFRASTRUCTURE)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


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
    as_json: AsJson = False,
) -> None:
    """One operator: signature, description, cases, baseline; or the prompt for a chip."""
    from kernelmark.benchmark.prompts import Setting, build_prompt
    from kernelmark.benchmark.rendering import out, plain, print_json
    from kernelmark.benchmark.suites import operator_digest
    from kernelmark.evaluators.chips.registry import get_chip
    from kernelmark.evaluators.languages.registry import get_language
    from kernelmark.operators.registry import get_operator

    operator = get_operator(id)
    if prompt:
        where, lang = get_chip(chip), get_language(language)
        setting = Setting(where.name, where.notes, lang.name, lang.template)
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
                "language": method.language,
                "model": method.uses_model,
                "options": " ".join(options),
                "summary": method.summary,
            }
        )
    headings = {"model": "needs --model"}
    columns = {key: headings.get(key, key) for key in rows[0]}
    print_json(rows) if as_json else print_rows(rows, columns)


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The candidate's source.")],
    op: OperatorId,
    chip: OneChip = "auto",
    tier: Annotated[str, typer.Option(help="small, or full: small and full cases")] = "small",
    entry: Entry = "",
    language: LanguageName = "triton",
    timeout_s: Annotated[float, typer.Option(help="For one call, compilation included.")] = 60.0,
    as_json: AsJson = False,
) -> None:
    """Grade one candidate: status, gates, and what went wrong where."""
    from kernelmark.benchmark.rendering import err, print_json
    from kernelmark.evaluators.campaigns.placing import tier_for, usable_chip
    from kernelmark.evaluators.grading.workers import close_servers, shared_server

    if not file.exists():
        raise UserError(f"{file}: no such file")
    if not 0 < timeout_s < float("inf"):
        raise UserError(f"--timeout-s {timeout_s:g}: must be a number of seconds above 0")
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
        settings = Settings(tier=tier_for(tier, where), timeout_s=timeout_s)
        with err().status(f"grading on {where.name}") as status:
            verdict = grade(
                candidate,
                operator,
                where,
                settings,
                lambda gate, text: status.update(f"{gate} {text}"),
            )
    except KeyboardInterrupt:
        _complain("stopped; nothing was kept")
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
    as_json: AsJson = False,
) -> None:
    """Compile one candidate for every target; no accelerator is needed."""
    from kernelmark.benchmark.rendering import err, print_json
    from kernelmark.evaluators.campaigns.report import print_portability
    from kernelmark.evaluators.campaigns.sources import read_candidate
    from kernelmark.evaluators.chips.portability import portability as compile_for
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
        rows = compile_for(candidate, operator, targets)
    print_json([to_json(row) for row in rows]) if as_json else print_portability(rows)
    raise typer.Exit(0 if all(row.status == "passed" for row in rows) else FAILED)


@app.command()
def run(
    method: Annotated[str, typer.Option(help="A name of `kernelmark methods`.")] = "",
    suite: Annotated[str, typer.Option(help="A suite, or one operator's id.")] = "demo",
    chip: Annotated[
        str,
        typer.Option(
            help="The chip to grade on; compile targets after it, comma-separated, add "
            "portability columns (`targets` is all of them)."
        ),
    ] = "auto",
    model: Annotated[str, typer.Option(help="For methods that call a model.")] = "",
    option: Annotated[
        list[str] | None, typer.Option("-o", "--option", help="KEY=VALUE for the method.")
    ] = None,
    operators: Annotated[str, typer.Option(help="Only these of the suite, by comma.")] = "",
    tier: Annotated[str, typer.Option(help="small or full; auto: full where time counts")] = "auto",
    budget_tokens: Annotated[int | None, typer.Option(help="Tokens that a run may use.")] = None,
    workers: Annotated[int, typer.Option(help="Operators in production at once.")] = 4,
    base_url: Annotated[
        str, typer.Option(help="Of the model's provider, OpenAI dialect.")
    ] = "https://api.openai.com/v1",
    api_key_env: Annotated[
        str, typer.Option(help="Environment variable with the provider's key.")
    ] = "OPENAI_API_KEY",
    out: Annotated[Path | None, typer.Option(help="Run folder to make.")] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Run folder to go on with; all else is in it.")
    ] = None,
    grade: Annotated[
        bool, typer.Option(help="No: only produce; the chip need not be here. See jobs export.")
    ] = True,
    as_json: AsJson = False,
) -> None:
    """A method over a suite on a chip. Resumable: kill it any time, go on with --resume DIR."""
    from kernelmark.evaluators.campaigns import running

    if resume is not None:
        folder = running.reopen(resume)
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
            budget_tokens=budget_tokens,
            grade=grade,
        )
        folder = running.begin(request, out, _home().runs)
    access = running.Access(base_url, os.environ.get(api_key_env, ""), api_key_env)
    try:
        running.carry_out(folder, access, workers, grading=grade)
    except KeyboardInterrupt:
        _complain(f"stopped; kernelmark run --resume {folder.root}")
        raise typer.Exit(INTERRUPTED) from None
    running.report(folder, as_json)
    raise typer.Exit(INFRASTRUCTURE if running.infrastructure_errors(folder) else 0)


@app.command()
def demo() -> None:
    """Grade the project's own kernels on this CPU, compile each for all targets, show the board."""
    from kernelmark.benchmark.boards import print_boards
    from kernelmark.evaluators.campaigns import running
    from kernelmark.evaluators.campaigns.folder import RunFolder
    from kernelmark.submissions.board import build, open_board
    from kernelmark.submissions.bundle import Disclosure
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.inbox import deliver
    from kernelmark.submissions.ingest import ingest as take_in

    home = _home()
    request = running.Request(method="reference", suite="demo", chips=("interpreter", "targets"))
    folder = running.begin(request, None, home.runs)
    running.carry_out(folder, running.Access("", "", ""), workers=4)
    running.report(folder, as_json=False)
    deliver(home, RunFolder.open(folder.root), Disclosure())
    take_in(home, current_catalogue())
    build(home)
    with open_board(home) as connection:
        print_boards(connection, "", "", as_json=False)
    typer.echo("Open the leaderboard with: make app")
    failed = running.infrastructure_errors(folder)
    raise typer.Exit(INFRASTRUCTURE if failed else 0)


@jobs_app.command("export")
def jobs_export(
    job: Annotated[Path, typer.Argument(help="Job folder to make.")],
    run: Annotated[Path, typer.Option("--run", help="Run folder, of kernelmark run --no-grade.")],
) -> None:
    """Write a job: what `python -m kernelmark.evaluators.grading JOB OUT` grades elsewhere."""
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
    as_json: AsJson = False,
) -> None:
    """Seal a run and deliver it to the inbox; kernelmark ingest takes it from there."""
    from pydantic import TypeAdapter, ValidationError

    from kernelmark.benchmark.rendering import print_json
    from kernelmark.evaluators.campaigns.folder import RunFolder
    from kernelmark.submissions.bundle import Disclosure
    from kernelmark.submissions.inbox import deliver

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
    submission, new = deliver(_home(), run_folder, disclosure)
    if as_json:
        print_json({"submission": submission.id, "new": new, "complete": submission.complete})
        return
    typer.echo(submission.id if new else f"{submission.id} (delivered before)")
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

    home = _home()
    with err().status("validating") as status:
        results = take_in(home, current_catalogue())
        status.update("building the database")
        board = build(home)
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
def submissions(as_json: AsJson = False) -> None:
    """List submissions: on the board, waiting, refused."""
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.submissions.listing import list_submissions

    rows = list_submissions(_home())
    if as_json:
        print_json(rows)
        return
    columns = {
        "submission": "submission",
        "state": "",
        "method": "method",
        "model": "model",
        "suite": "suite",
        "chip": "chip",
        "trust": "trust",
        "complete": "whole suite",
        "submitter": "submitter",
        "created_at": "run at",
    }
    short = [{**row, "submission": row["submission"][:16]} for row in rows]
    print_rows(short, columns, caption=f"{len(rows)} submissions")


@app.command()
def leaderboard(
    print_: Annotated[bool, typer.Option("--print", help="In the terminal.")] = False,
    suite: Annotated[str, typer.Option(help="With --print: this suite only.")] = "",
    chip: Annotated[str, typer.Option(help="With --print: this chip only.")] = "",
    port: Annotated[int, typer.Option(help="Of the app.")] = 8501,
    as_json: AsJson = False,
) -> None:
    """The app; with --print or --json, its board in the terminal."""
    from kernelmark.submissions.board import open_board

    if print_ or as_json:
        from kernelmark.benchmark.boards import print_boards

        with open_board(_home()) as connection:
            print_boards(connection, suite, chip, as_json)
        return
    open_board(_home()).close()
    _serve(port)


def _serve(port: int) -> None:
    import importlib.util

    if importlib.util.find_spec("streamlit") is None:
        raise UserError("the app needs streamlit: pip install 'kernelmark[app]'")
    script = Path(__file__).parent.parent / "leaderboard" / "app.py"
    command = [sys.executable, "-m", "streamlit", "run", str(script), "--server.port", str(port)]
    os.environ["KERNELMARK_HOME"] = str(_home().root)
    os.execv(sys.executable, command)


def _home() -> Home:
    from kernelmark.submissions.home import Home

    root = os.environ.get("KERNELMARK_HOME") or "~/.kernelmark"
    return Home(Path(root).expanduser().absolute())


def _options(pairs: Sequence[str]) -> dict[str, str]:
    split = [pair.partition("=") for pair in pairs]
    wrong = [pair for pair, (_, equals, _) in zip(pairs, split, strict=True) if not equals]
    if wrong:
        raise UserError(f"-o {wrong[0]}: write KEY=VALUE")
    return {key: value for key, _, value in split}


def _complain(message: str) -> None:
    sys.stderr.write(f"kernelmark: {message}\n")


def _user_errors() -> tuple[type[Exception], ...]:
    # Where the registry was never imported, nothing of it was raised; importing it takes seconds.
    registry = sys.modules.get("kernelmark.operators.registry")
    return (UserError, registry.UnknownName) if registry else (UserError,)


if __name__ == "__main__":
    main()
