"""One sitting of a run of `refine` with recorded replies: ``python killed_run.py ROOT URL``.

The judge, the gateway and the ledger are the real ones; the provider is another process's, so that
it goes on when this one is killed. Says ``begun`` when the work begins.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kernelmark.evaluators.campaigns import access, running
from kernelmark.evaluators.campaigns.folder import RunFolder

#: with a reply that holds no file, one that fails, one that is right at once; quick to grade
OPERATORS = (
    "aten::silu",
    "aten::softmax",
    "vllm::rms_norm",
    "vllm::reshape_and_cache",
    "cublas::cublasSaxpy_v2",
)
REQUEST = running.Request("refine", "demo", ("interpreter",), model="scripted", operators=OPERATORS)


def open_run(root: Path) -> RunFolder:
    """The run at `root`, new or as it stands."""
    if (root / "run.json").exists():
        return running.reopen(root)
    return running.begin(REQUEST, root, root)


def _sit(root: Path, url: str) -> None:
    @contextlib.contextmanager
    def elsewhere(script: Any) -> Iterator[Any]:
        yield SimpleNamespace(url=url)

    access.serve_script = elsewhere  # type: ignore[assignment]
    folder = open_run(root)
    sys.stdout.write("begun\n")
    sys.stdout.flush()
    running.carry_out(folder, access.Access("", "", ""), workers=2)


if __name__ == "__main__":
    _sit(Path(sys.argv[1]), sys.argv[2])
