"""The published data set: build, check, push, load."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from kernelmark.benchmark.commands.shared import FAILED, AsJson, complain, home
from kernelmark.benchmark.errors import UserError

app = typer.Typer()
dataset_app = typer.Typer(help="The published data set: build, check, push, load.")
app.add_typer(dataset_app, name="dataset", no_args_is_help=True)

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the data set.")]

#: what stands in a published prompt where a run names its chip
ANY_CHIP = "an accelerator"
ANY_CHIP_NOTES = "A run names the chip; what its adapter says of it stands here."


@dataset_app.command("build")
def dataset_build(folder: Folder, as_json: AsJson = False) -> None:
    """Write the data set as a Hugging Face repository: Parquet, card, Croissant. Needs no network.

    The same definitions give the same bytes; kernelmark.json lists every file with its sha256.
    """
    from dataclasses import asdict

    from kernelmark.benchmark.dataset.build import build
    from kernelmark.benchmark.prompts import Setting
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.evaluators.languages.registry import get_language

    language = get_language("triton")
    built = build(folder, Setting(ANY_CHIP, ANY_CHIP_NOTES, language.name, language.template))
    if as_json:
        print_json(asdict(built))
        return
    rows = [{"file": path, **about} for path, about in built.files.items()]
    counts = ", ".join(f"{count} {name}" for name, count in built.rows.items())
    print_rows(rows, {"file": "file", "bytes": "bytes", "sha256": "sha256"})
    typer.echo(f"{counts}\nversion {built.version}, content hash {built.content_hash}")
    if built.stale:
        complain(f"{built.stale} measured baselines left out: their cases are no more")


@dataset_app.command("check")
def dataset_check(folder: Folder, as_json: AsJson = False) -> None:
    """Validate a built data set: files, rows, digests, card, Croissant. A line a defect."""
    from dataclasses import asdict

    from kernelmark.benchmark.dataset.check import check
    from kernelmark.benchmark.dataset.load import read_manifest
    from kernelmark.benchmark.rendering import print_json

    defects = check(folder)
    if as_json:
        print_json([asdict(defect) for defect in defects])
    else:
        for defect in defects:
            sys.stdout.write(f"{defect}\n")
        if not defects:
            manifest = read_manifest(folder)
            hash = manifest["content_hash"]
            typer.echo(f"sound\nversion {manifest['version']}, content hash {hash}")
    raise typer.Exit(FAILED if defects else 0)


@dataset_app.command("push")
def dataset_push(
    repo: Annotated[str, typer.Argument(help="NAMESPACE/NAME on the Hub; made if it is not there")],
    folder: Folder,
    pull_request: Annotated[
        bool, typer.Option("--pull-request", help="Propose it instead of committing to main.")
    ] = False,
    private: Annotated[bool, typer.Option(help="If the repository is made: private.")] = False,
    as_json: AsJson = False,
) -> None:
    """Upload a checked data set in one commit, and tag its version.

    The token is taken from HF_TOKEN. Conflicts, rate limits and failures of the Hub are retried.
    """
    from dataclasses import asdict

    from kernelmark.benchmark.dataset.check import check
    from kernelmark.benchmark.dataset.push import Push
    from kernelmark.benchmark.rendering import print_json

    token = os.environ.get("HF_TOKEN", "")
    if not token:
        raise UserError("HF_TOKEN is not set; put a token with write access into the environment")
    if defects := check(folder):
        raise UserError(f"{folder} is not sound, {len(defects)} defects; the first: {defects[0]}")
    from huggingface_hub import HfApi

    push = Push(HfApi(token=token), repo, folder, complain, pull_request, private)
    pushed = push.run()
    if as_json:
        print_json(asdict(pushed))
        return
    at = pushed.pull_request or f"{pushed.repo}@{pushed.commit}"
    typer.echo(f"{at}\nversion {pushed.version}, content hash {pushed.content_hash}")


@dataset_app.command("load")
def dataset_load(
    source: Annotated[
        str, typer.Argument(metavar="[REPO|DIR]", help="On the Hub, or a folder; else our own.")
    ] = "",
    revision: Annotated[str, typer.Option(help="A commit, branch or tag; else the newest.")] = "",
    rows: Annotated[
        str, typer.Option(help="Print the rows of this configuration, a JSON object a line.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Fetch a published data set, verify its content hash, say what it is; or print its rows."""
    from kernelmark.benchmark.dataset.load import load
    from kernelmark.benchmark.rendering import print_json, print_rows
    from kernelmark.operators.registry import UnknownName

    published = load(source, revision, home().root / "hub")
    if rows:
        if rows not in published.tables:
            raise UnknownName("configuration", rows, list(published.tables))
        for row in published.tables[rows]:
            sys.stdout.write(json.dumps(row, ensure_ascii=False) + "\n")
        return
    about = {
        "source": published.source,
        "folder": str(published.folder),
        "version": published.version,
        "content_hash": published.content_hash,
        "rows": {name: len(table) for name, table in published.tables.items()},
    }
    if as_json:
        print_json(about)
        return
    table = [{"configuration": name, "rows": len(t)} for name, t in published.tables.items()]
    print_rows(table, {"configuration": "configuration", "rows": "rows"})
    typer.echo(
        f"{published.source}\nversion {published.version}, content hash {published.content_hash}"
    )
