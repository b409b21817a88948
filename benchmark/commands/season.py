"""The page of a season, from the submissions that ship with the project."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from kernelmark.benchmark.errors import UserError

app = typer.Typer()


@app.command()
def season(
    file: Annotated[Path, typer.Argument(help="The page, e.g. docs/season-1.md.")],
    bundles: Annotated[
        Path | None, typer.Option(help="A folder of bundles as zip files; else those that ship.")
    ] = None,
) -> None:
    """Write the page of a season, and its figures beside it, from sealed bundles alone.

    What this machine has graded has no part in it.
    """
    from kernelmark.benchmark.rendering import err
    from kernelmark.benchmark.season.page import render
    from kernelmark.submissions.board import build, open_board
    from kernelmark.submissions.catalogue import current_catalogue
    from kernelmark.submissions.home import Home
    from kernelmark.submissions.ingest import ingest
    from kernelmark.submissions.shipped import FOLDER, deliver_shipped

    if file.suffix != ".md":
        raise UserError(f"{file}: the page is Markdown, name it .md")
    if not file.parent.is_dir():
        raise UserError(f"{file.parent} is no folder")
    with tempfile.TemporaryDirectory() as folder, err().status("reading the bundles"):
        home = Home(Path(folder))
        if not deliver_shipped(home, bundles or FOLDER):
            raise UserError(f"{bundles or FOLDER} holds no bundle")
        for result in ingest(home, current_catalogue()):
            if not result.accepted:
                first = result.problems[0]
                raise UserError(f"{result.name} is refused: {first.where}: {first.what}")
        build(home)
        with open_board(home) as connection:
            page = render(connection, file.stem)
    file.write_text(page.text)
    for name, text in page.figures.items():
        (file.parent / name).write_text(text)
    typer.echo(f"{file}, {', '.join(page.figures)}")
