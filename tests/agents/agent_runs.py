"""Runs of the method `command` for tests: one operator, the interpreter, any agent."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from kernelmark.benchmark.prompts import told_cases
from kernelmark.benchmark.suites import get_suite
from kernelmark.evaluators.campaigns.campaign import Campaign, Tools
from kernelmark.evaluators.campaigns.folder import RunFolder
from kernelmark.evaluators.campaigns.plan import make_tasks, plan_run
from kernelmark.evaluators.campaigns.records import Attempt
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.metering.model import metered_model
from kernelmark.evaluators.methods.reference import KERNELS
from kernelmark.evaluators.methods.registry import make_method
from kernelmark.operators.registry import get_operator

OPERATOR = "cublas::cublasSaxpy_v2"
GOOD = (KERNELS / "cublas" / "cublasSaxpy_v2.py").read_text()


def judge(candidate: Candidate, *, told: bool = False) -> Verdict:
    """The real judge; `told`: on the calls that the agent is told."""
    operator = get_operator(candidate.operator)
    names = [case.name for case in told_cases(operator) if case.tier == "small"]
    settings = replace(Settings(), cases=tuple(names) if told else ())
    return grade(candidate, operator, get_chip("interpreter"), settings)


def judge_told(candidate: Candidate) -> Verdict:
    """The real judge on the calls that the agent is told."""
    return judge(candidate, told=True)


def instant(candidate: Candidate) -> Verdict:
    """A judge that is not asked much: passes everything."""
    operator, id = candidate.operator, candidate.id
    return Verdict(operator, id, "interpreter", "interpreted", "passed", "right")


class AgentRun:
    """A run that is over: its folder, its one attempt, what the agent printed."""

    def __init__(self, folder: RunFolder) -> None:
        self.folder = folder
        (self.attempt,) = folder.attempts()
        (self.place,) = (folder.root / "workspaces").glob("*/attempt-1")

    @property
    def source(self) -> str:
        """The candidate's source."""
        return self.folder.candidate(self.attempt).source

    @property
    def printed(self) -> str:
        """The transcript."""
        return (self.place / "transcript.log").read_text(errors="replace")

    @property
    def session(self) -> dict[str, Any]:
        """The record of the agent's ending."""
        data: dict[str, Any] = json.loads((self.place / "session.json").read_text())
        return data


def attempt_of(
    root: Path,
    options: dict[str, str],
    *,
    check: Callable[[Candidate], Verdict] | None = instant,
    upstream: Any = None,
    limits: Any = None,
    operators: tuple[str, ...] = (OPERATOR,),
) -> tuple[RunFolder, list[Attempt]]:
    """Carries out a run of `command` with `options`; `upstream` is the provider's base URL."""
    method = make_method("command", options)
    suite, chip = get_suite("demo"), get_chip("interpreter")
    chosen = [get_operator(id) for id in operators]
    if (root / "run.json").exists():
        folder = RunFolder.open(root)
    else:
        model = "m" if method.uses_model else ""
        run = plan_run("command", method, model, suite, chosen, chip, tier="small")
        folder = RunFolder.create(root, run)
    tasks = make_tasks(chosen, chip, get_language("triton"), "agent")
    line = nullcontext()
    if upstream is not None:
        line = metered_model(  # type: ignore[assignment]
            run=folder.run.id,
            model="m",
            ledger_path=folder.ledger_path,
            base_url=upstream.url(method.provider),  # type: ignore[attr-defined]
            key=upstream.key,
            key_name="KEY",
            limits=limits,
            provider=method.provider,  # type: ignore[attr-defined]
            only_lines=True,
        )
    with line as model_access:
        tools = Tools(None, model=model_access, check=check)
        Campaign(folder, method, tasks, tools).run()
    return folder, list(folder.attempts())


def agent_run(root: Path, options: dict[str, str], **more: Any) -> AgentRun:
    """One operator's attempt."""
    folder, _ = attempt_of(root, options, **more)
    return AgentRun(folder)


def shell(root: Path, script: str, options: dict[str, str] | None = None, **more: Any) -> AgentRun:
    """An agent that is a shell script."""
    file = root / "agent.sh"
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)
    return agent_run(root / "run", {"command": str(file), **(options or {})}, **more)
