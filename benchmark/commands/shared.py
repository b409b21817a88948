"""What commands share: exit statuses, options, the home folder, one line of complaint."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernelmark.benchmark.errors import UserError

if TYPE_CHECKING:
    from kernelmark.submissions.exchange import Exchange
    from kernelmark.submissions.home import Home

FAILED, USAGE, INFRASTRUCTURE, INTERRUPTED = 1, 2, 3, 130

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
OneChip = Annotated[
    str,
    typer.Option("--chip", help="A name of `kernelmark chips`; auto: the accelerator here, if any"),
]
OperatorId = Annotated[str, typer.Option("--op", help="The operator, e.g. aten::softmax")]
Entry = Annotated[str, typer.Option(help="Function to call; else the operator's name.")]
HubRepo = Annotated[
    str, typer.Option("--hub", help="A results repository on the Hub, NAMESPACE/NAME.")
]
LanguageName = Annotated[str, typer.Option(help="Language that the file is written in.")]


def home() -> Home:
    """The folder `$KERNELMARK_HOME`, by default `~/.kernelmark`."""
    from kernelmark.submissions.home import Home

    root = os.environ.get("KERNELMARK_HOME") or "~/.kernelmark"
    return Home(Path(root).expanduser().absolute())


def portability_cache() -> Path:
    """Where rows of compile targets are kept: the same sources are not compiled twice."""
    return home().root / "portability"


def hub_exchange(place: Home, repo: str) -> Exchange:
    """What goes between a home and a results repository; the token is taken from HF_TOKEN."""
    import importlib.util

    if importlib.util.find_spec("huggingface_hub") is None:
        raise UserError("--hub needs huggingface_hub: pip install 'kernelmark[hub]'")
    from huggingface_hub import HfApi

    from kernelmark.submissions.exchange import Exchange

    return Exchange(place, HfApi(token=os.environ.get("HF_TOKEN") or None), repo, complain)


def complain(message: str) -> None:
    """One line on stderr, with the command's name."""
    sys.stderr.write(f"kernelmark: {message}\n")
