"""A campaign whose model and judge answer by rule, at once; run as a program it kills itself.

``python scripted_campaign.py ROOT KILL_AFTER`` runs or resumes the run at ROOT and sends itself
SIGKILL after so many things have happened (0: never).
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from kernelmark.benchmark.suites import DEMO, get_suite
from kernelmark.evaluators.campaigns.campaign import Campaign, Event, Tools
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.plan import make_tasks, plan_run
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.records import Candidate, Portability, Verdict
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.methods.base import Message, Proposal, Reply, Task, Workspace
from kernelmark.operators.registry import get_operator

OPERATORS = DEMO[:3]


@dataclass(frozen=True)
class Refiner:
    """Asks `rounds` times, and tells the model each time what the judge said."""

    rounds: int = 3
    kind: ClassVar[MethodKind] = "model"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "best"
    uses_model: ClassVar[bool] = True
    summary: ClassVar[str] = "for tests"

    def check(self) -> None:
        """Nothing can be wrong."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """Reply, candidate, verdict, next reply."""
        messages: list[Message] = [{"role": "user", "content": task.operator.id}]
        for _ in range(self.rounds):
            reply = workspace.complete(messages)
            candidate = Candidate(task.operator.id, reply.text)
            yield Proposal(candidate)
            verdict = workspace.verify(candidate)
            messages = [*messages, {"role": "user", "content": verdict.message}]


class Model:
    """Answers with a digest of what it is asked; counts."""

    def __init__(self) -> None:
        self.asked = 0

    def complete(
        self,
        operator: str,
        attempt: int,
        ask: int,
        messages: Sequence[Message],
        parameters: dict[str, Any],
    ) -> Reply:
        """A reply that depends on every message."""
        self.asked += 1
        text = hashlib.sha256(repr((operator, list(messages))).encode()).hexdigest()
        return Reply(f"# {text}\n", "stop", "scripted")


def judge(candidate: Candidate) -> Verdict:
    """Passes what has a digit first; says something that depends on the source."""
    status = "passed" if candidate.source[2].isdigit() else "wrong_values"
    return Verdict(
        candidate.operator, candidate.id, "interpreter", "interpreted", status, candidate.source
    )


def compile_one(candidate: Candidate) -> tuple[Portability, ...]:
    """Compiles everything."""
    return (Portability("sm_90", "passed"),)


def open_run(root: Path) -> RunFolder:
    """The run at `root`, new or as it stands."""
    if (root / "run.json").exists():
        return RunFolder.open(root)
    operators = [get_operator(id) for id in OPERATORS]
    chip = get_chip("interpreter")
    run = plan_run("refiner", Refiner(), "m", get_suite("demo"), operators, chip, tier="small")
    return RunFolder.create(root, run)


def run_all(
    folder: RunFolder,
    *,
    model: Model | None = None,
    method: Any = None,
    grade: Callable[[Candidate], Verdict] = judge,
    notify: Callable[[Event], None] = lambda event: None,
) -> Model:
    """Carries the run out."""
    model = model or Model()
    operators = [get_operator(id) for id in folder.run.operators]
    tasks = make_tasks(operators, get_chip("interpreter"), get_language("triton"))
    tools = Tools(grade, compile_one, model, workers=2, notify=notify)
    Campaign(folder, method or Refiner(), tasks, tools).run()
    return model


def snapshot(folder: RunFolder) -> dict[str, Any]:
    """What a run has established, without times."""
    attempts = [(a.operator, a.number, a.candidate, a.failure) for a in folder.attempts()]
    verdicts = {
        (operator, id): folder.verdict(operator, id) for operator, _, id, _ in attempts if id
    }
    return {"attempts": attempts, "verdicts": verdicts, "missing": folder.missing()}


def _main(root: Path, kill_after: int) -> None:
    happened = 0

    def notify(event: Event) -> None:
        nonlocal happened
        happened += 1
        if happened == kill_after:
            os.kill(os.getpid(), signal.SIGKILL)

    run_all(open_run(root), notify=notify)


if __name__ == "__main__":
    _main(Path(sys.argv[1]), int(sys.argv[2]))
