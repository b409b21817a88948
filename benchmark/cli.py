"""The command line. Imports happen when a command runs, so that --help answers at once.

Exit status: 0 done; 1 the thing asked about failed (a wrong kernel, a refused bundle); 2 wrong
usage; 3 infrastructure; 130 interrupted.
"""

from __future__ import annotations

import os
import sys

import typer

from kernelmark.benchmark.commands import (
    catalogue,
    dataset,
    grading,
    intake,
    runs,
    season,
    store,
    submissions,
    usage,
)
from kernelmark.benchmark.commands.shared import INFRASTRUCTURE, USAGE, complain
from kernelmark.benchmark.errors import InfrastructureError, UserError

app = typer.Typer(
    name="kernelmark",
    help="Benchmark of methods that write accelerator kernels: correct, fast, at what price.",
    epilog="Start with: kernelmark operators, kernelmark chips, kernelmark check FILE --op ID",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for module in (catalogue, dataset, grading, runs, store, season, submissions, intake, usage):
    app.add_typer(module.app)


def main() -> None:
    """Entry point of the command `kernelmark`."""
    try:
        app()
    except _user_errors() as error:
        complain(str(error))
        sys.exit(USAGE)
    except InfrastructureError as error:
        complain(str(error))
        sys.exit(INFRASTRUCTURE)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); nothing is left to say.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)


def _user_errors() -> tuple[type[Exception], ...]:
    # Where the registry was never imported, nothing of it was raised; importing it takes seconds.
    registry = sys.modules.get("kernelmark.operators.registry")
    return (UserError, registry.UnknownName) if registry else (UserError,)


if __name__ == "__main__":
    main()
