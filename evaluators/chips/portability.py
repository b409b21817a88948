"""Whether a candidate compiles for chips that are not here, and what comes out.

For each target the candidate's host code runs on CPU tensors under a Triton driver that launches
nothing; every kernel, and every configuration of an autotuner, is compiled. Nothing is executed,
so nothing is said of results or speed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from kernelmark.evaluators.chips import _compile_worker
from kernelmark.evaluators.chips.registry import compile_targets, get_chip
from kernelmark.evaluators.grading import isolation
from kernelmark.evaluators.grading.channel import Channel, Closed
from kernelmark.evaluators.grading.records import (
    Candidate,
    Portability,
    Status,
    from_json,
    to_json,
)

if TYPE_CHECKING:  # they import torch; the helper can start before that
    from kernelmark.operators.records import Case, Operator

#: changes whenever what is compiled, or how it is read, changes; part of the cache's key
FORMAT = 1
START_S = 120.0
#: calls that a candidate is compiled for; each costs a tenth of a second a kernel and target
AT_MOST = 2
#: large pages for what LLVM allocates save it a twentieth of its time
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}


class WorkerDied(RuntimeError):
    """The compiling helper is gone: the machine's fault, not the candidate's."""


def portability(
    candidate: Candidate,
    operator: Operator,
    targets: Sequence[str] | None = None,
    *,
    cache: Path | None = None,
    processes: int = 0,
    limit_s: float = 60.0,
    at_most: int = AT_MOST,
) -> list[Portability]:
    """One row for each of `targets` (default: all compile targets), in their order.

    `at_most` calls of different dtypes are compiled; `limit_s` is per target; `processes` targets
    are compiled at a time (0: one a CPU); rows are kept in the folder `cache` and read from there.
    Raises `UnknownName` for a target that is none, `WorkerDied` where the helper cannot be had.
    """
    with Compiler(cache=cache, processes=processes, limit_s=limit_s, at_most=at_most) as compiler:
        return compiler.portability(candidate, operator, targets)


class Compiler:
    """Compiles many candidates with one helper, which starts with the first that needs it.

    `start` before importing what imports torch saves a second.
    """

    def __init__(
        self,
        *,
        cache: Path | None = None,
        processes: int = 0,
        limit_s: float = 60.0,
        at_most: int = AT_MOST,
    ) -> None:
        self.cache = cache
        self.processes = processes or len(os.sched_getaffinity(0))
        self.limit_s = limit_s
        self.at_most = at_most
        self._helper: tuple[subprocess.Popen[bytes], Channel] | None = None

    def __enter__(self) -> Compiler:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def kill(self) -> None:
        """Ends the helper from another thread: `portability` there raises `WorkerDied`."""
        if self._helper is not None:
            self._helper[0].kill()

    def close(self) -> None:
        """Ends the helper."""
        if self._helper is not None:
            process, channel = self._helper
            channel.close()
            process.kill()
            process.wait()
            self._helper = None

    def portability(
        self, candidate: Candidate, operator: Operator, targets: Sequence[str] | None = None
    ) -> list[Portability]:
        """As the function of this name."""
        from kernelmark.evaluators.chips import _calls

        names = list(compile_targets() if targets is None else targets)
        if candidate.language != "triton":
            why = f"candidates of language {candidate.language} are not compiled here"
            return [Portability(get_chip(name).name, "unsupported", why) for name in names]
        cases = _calls.choose(operator, self.at_most)
        plan = {name: _supported(name, cases) for name in names}
        rows: dict[str, Portability | None] = {
            name: self._known(candidate, operator, name, plan[name][0]) for name in names
        }
        for name, (possible, why) in plan.items():
            if not possible:
                rows[name] = Portability(name, "unsupported", why)
        wanted = {name: plan[name][0] for name in names if rows[name] is None}
        if wanted:
            for made in self._compile(candidate, operator, wanted):
                rows[made.target] = made
                self._keep(candidate, operator, made, wanted[made.target])
        return [row for name in names if (row := rows[name]) is not None]

    def _compile(
        self, candidate: Candidate, operator: Operator, wanted: dict[str, list[Case]]
    ) -> list[Portability]:
        made = {case.name for cases in wanted.values() for case in cases}
        job = {
            "operator": operator.id,
            "language": candidate.language,
            "source": candidate.source,
            "entry": candidate.entry_point,
            "targets": {name: [case.name for case in cases] for name, cases in wanted.items()},
            "cases": sorted(made),
            "processes": self.processes,
            "limit_s": self.limit_s,
        }
        channel = self.start()
        try:
            channel.send(job)
            answer, _ = channel.receive(START_S + (self.limit_s + 10) * len(wanted))
        except (Closed, TimeoutError) as error:
            self.close()
            raise WorkerDied(f"the compiling helper gave no answer: {error}") from error
        except BaseException:  # interrupted: the answer would be taken for that of the next job
            self.close()
            raise
        needs_kernel = operator.kind != "metadata"
        results = [_compile_worker.result_of(data) for data in answer["results"]]
        return [_row(result, needs_kernel) for result in results]

    def start(self) -> Channel:
        """Starts the helper, unless it runs, and does not wait: it takes a second to be ready."""
        if self._helper is not None:
            return self._helper[1]
        ours, theirs = socket.socketpair()
        process = subprocess.Popen(
            _compile_worker.command(theirs.fileno()),
            pass_fds=(theirs.fileno(),),
            env={**isolation.environment(), **_ENVIRONMENT},
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        theirs.close()
        self._helper = (process, Channel(ours))
        return self._helper[1]

    def _known(
        self, candidate: Candidate, operator: Operator, target: str, cases: list[Case]
    ) -> Portability | None:
        if self.cache is None:
            return None
        try:
            data = json.loads(self._file(candidate, operator, target, cases).read_text())
        except FileNotFoundError:
            return None
        return from_json(Portability, data)

    def _keep(
        self, candidate: Candidate, operator: Operator, row: Portability, cases: list[Case]
    ) -> None:
        """Keeps a row that would come out the same again; a time limit depends on the machine."""
        if self.cache is None or row.status == "timed_out":
            return
        path = self._file(candidate, operator, row.target, cases)
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False) as file:
            json.dump(to_json(row), file)
        os.replace(file.name, path)

    def _file(
        self, candidate: Candidate, operator: Operator, target: str, cases: list[Case]
    ) -> Path:
        assert self.cache is not None
        version = importlib.metadata.version("triton")
        key = [candidate.id, operator.id, repr(cases), target, version, FORMAT]
        digest = hashlib.sha256(json.dumps(key).encode()).hexdigest()
        return self.cache / digest[:2] / f"{digest}.json"


def _supported(target: str, cases: list[Case]) -> tuple[list[Case], str]:
    """The cases that can be compiled for `target`, and why the first of the others can't."""
    chip, reason, kept = get_chip(target), "", []
    found = chip.detect()
    if not found.usable:
        return [], found.why
    for case in cases:
        why = chip.unsupported(tuple(str(d).removeprefix("torch.") for d in case.dtypes))
        reason = reason or why
        if not why:
            kept.append(case)
    return kept, reason or "no case can be made here"


def _row(result: _compile_worker.Result, needs_kernel: bool) -> Portability:
    status, error = _status(result, needs_kernel)
    built = [k for k in result.kernels if not k.error]
    occupancies = [k.occupancy for k in built if k.occupancy is not None]
    matrix = [k.matrix_instructions for k in built if k.matrix_instructions is not None]
    return Portability(
        result.target,
        status,
        error,
        tuple(result.kernels),
        min(occupancies, default=None),
        sum(matrix) if matrix else None,
        round(result.seconds, 3),
    )


def _status(result: _compile_worker.Result, needs_kernel: bool) -> tuple[Status, str]:
    """The one status of a target, by its worst call; `unsupported` only where every call is."""
    for wanted in ("build_error", "runtime_error"):
        for case, outcome, error in result.calls:
            if outcome == wanted:
                return outcome, f"{case}: {error}" if case else error
    if result.timed_out:
        return "timed_out", result.ended
    if result.ended:
        during = f"while compiling {result.compiling}: " if result.compiling else ""
        return ("build_error" if result.compiling else "runtime_error"), during + result.ended
    lacking = [error for _, outcome, error in result.calls if outcome == "unsupported"]
    if lacking and len(lacking) == len(result.calls):
        return "unsupported", lacking[0]
    if needs_kernel and not result.kernels:
        return "runtime_error", "launched no Triton kernel"
    return "passed", lacking[0] if lacking else ""
