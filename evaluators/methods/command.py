"""Any command-line agent, in any language, alone in a sandboxed workspace.

The workspace holds the task, an example candidate of another operator, and nothing else; `verify`
asks the judge about a file, on the calls that the task tells. The agent reaches its model through
the gateway and nothing else of the network. The candidate is what lies in the declared file when
the agent has ended, however it ended; its transcript, its checks and its ending are kept in the
run folder.

An agent that was interrupted with the run begins its attempt anew when the run is resumed; what it
spent before stays in the ledger.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import re
import shlex
import stat
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Literal

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.files import read_json, write_json
from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.campaigns.sources import MAX_BYTES
from kernelmark.evaluators.grading.channel import printable
from kernelmark.evaluators.grading.records import Candidate, Status, from_json, to_json
from kernelmark.evaluators.methods._checks import Checks
from kernelmark.evaluators.methods._example import example_for
from kernelmark.evaluators.methods.agents.base import Seat, Start
from kernelmark.evaluators.methods.agents.registry import get_preset, preset_names
from kernelmark.evaluators.methods.base import Line, MethodError, Proposal, Task, Workspace
from kernelmark.evaluators.sandbox import bubblewrap
from kernelmark.evaluators.sandbox.installation import Installation, find_installation
from kernelmark.evaluators.sandbox.processes import files_below, folder_bytes, remove_folder
from kernelmark.evaluators.sandbox.session import (
    GATEWAY_PORT,
    AgentLimits,
    Ending,
    Places,
    Plan,
    prepared,
    run_agent,
)
from kernelmark.evaluators.sandbox.transcript import Transcript

TASK_FILE, EXAMPLE_FILE = "TASK.md", "example.py"
#: how long an agent may go on once its budget has refused a request
AFTER_BUDGET_S = 30.0
#: a larger workspace is removed when the agent has ended
KEPT_BYTES = 64 << 20
_RUN_STOPS = "the run stops"
_GIVEN = (TASK_FILE, EXAMPLE_FILE)
_MOST_NAMES, _MAX_NAME = 5, 100
_VERSION = re.compile(r"\d+(\.\d+){2,}([-+.]?\w+)*")
#: statuses of an attempt without a candidate, by the limit that stopped its agent
_STOPPED: dict[str, Status] = {"wall_s": "timed_out", "memory_bytes": "out_of_memory"}

_WORKSPACE_TEXT = """

## Your workspace

You are alone in a sandbox, in the folder {workspace}. Write your file to `{file}` there: what lies
in it when you end is what is judged. `{task}` holds this text, `{example}` a candidate for another
operator that passes. There is no accelerator, no Triton and no network here; the command `verify`
is how you run your file:

    verify [--json] [{file}]

It has the judge grade the file on the calls named above, with fresh inputs, and prints what is
wrong, where and how far off, or that it passed and how fast it is. You have {checks} checks and
{minutes:g} minutes. Nobody answers questions. End when `verify` says `passed` and you know nothing
that would make it faster.
"""


@dataclass(frozen=True)
class Command:
    """An agent: a preset, or any command.

    `preset`: a name of `evaluators/methods/agents`; `program` another path of its program.
    `command`: words as a shell splits them, in which ``{prompt}``, ``{model}``, ``{url}``,
    ``{token}`` and ``{file}`` are replaced; `provider` whose words it speaks to a model, if it
    calls one. `file`: where the candidate is to be. `checks`: how often `verify` answers.
    `expose`: folders to be shown read-only, separated by ``:``. ``sandbox=none`` runs an agent
    with all rights of this user, and says so in the attempt.
    """

    preset: str = ""
    program: str = ""
    command: str = ""
    provider: Literal["", "openai", "anthropic", "gemini"] = ""
    file: str = "candidate.py"
    checks: int = 50
    expose: str = ""
    sandbox: Literal["bubblewrap", "none"] = "bubblewrap"
    wall_s: float = 1800.0
    memory_gib: float = 8.0
    processes: int = 512
    disk_gib: float = 2.0
    file_gib: float = 0.5
    kind: ClassVar[MethodKind] = "agent"
    language: ClassVar[str] = "triton"
    selection: ClassVar[Selection] = "last"
    summary: ClassVar[str] = "a command-line agent in a sandbox (-o preset=NAME or -o command=...)"

    @property
    def uses_model(self) -> bool:
        """Presets do; a command that names a provider does."""
        return bool(self.provider)

    def __post_init__(self) -> None:
        if self.preset and not self.provider:
            provider = get_preset(self.preset).provider
            object.__setattr__(self, "provider", provider)

    def check(self) -> None:
        """Options that contradict each other; a machine without bubblewrap."""
        if bool(self.preset) == bool(self.command):
            names = ", ".join(preset_names())
            raise UserError(f"method command needs -o preset=NAME ({names}) or -o command=...")
        if self.program and not self.preset:
            raise UserError("option program: names the program of a preset")
        if self.file != os.path.basename(self.file) or self.file in ("", ".", "..", *_GIVEN):
            raise UserError("option file: a file name, without a folder")
        amounts = (self.wall_s, self.memory_gib, self.processes, self.disk_gib, self.file_gib)
        if min(amounts) <= 0 or self.checks < 0:
            raise UserError("limits must be greater than 0")
        if self.command:
            _split(self.command)
        for path in self._exposed:
            if why := bubblewrap.refuse_exposure(path, ()):
                raise UserError(f"option expose: {why}")
        if self.sandbox == "bubblewrap" and (why := bubblewrap.missing()):
            raise UserError(
                f"{why}; agents run in it. -o sandbox=none runs them unprotected: they can read "
                "what you can, hidden cases too, and every attempt says so"
            )

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """One attempt; from memory where it has been made."""
        folder = workspace.root / "attempt-1"
        ending = folder / "proposal.json"
        if ending.exists():
            yield _remembered(ending)
            return
        proposal = self._attempt(task, workspace, folder)
        candidate = proposal.candidate
        write_json(ending, {**to_json(proposal), "candidate": candidate and to_json(candidate)})
        yield proposal

    @property
    def _exposed(self) -> list[str]:
        return [os.path.abspath(os.path.expanduser(p)) for p in self.expose.split(":") if p]

    @property
    def _limits(self) -> AgentLimits:
        return AgentLimits(
            wall_s=self.wall_s,
            memory_bytes=int(self.memory_gib * (1 << 30)),
            processes=self.processes,
            disk_bytes=int(self.disk_gib * (1 << 30)),
            file_bytes=int(self.file_gib * (1 << 30)),
        )

    def _attempt(self, task: Task, workspace: Workspace, folder: Path) -> Proposal:
        preset = get_preset(self.preset) if self.preset else None
        name = (self.program or preset.program) if preset else _split(self.command)[0]
        found = find_installation(name)
        if found is None:
            hint = f" ({preset.install})" if preset else ""
            return Proposal(failure="method_error", note=f"{name}: no such program here{hint}")
        for path in self._exposed:
            if why := bubblewrap.refuse_exposure(path, (workspace.root,)):
                return Proposal(failure="method_error", note=why)
        line = workspace.line() if self.uses_model else None
        remove_folder(folder)
        work = folder / "workspace"
        work.mkdir(parents=True)
        prompt = self._prepare(task, work)
        bare = self.sandbox == "none"
        with prepared(work, bare) as (control, places):
            seat = self._seat(prompt, places, line)
            start = preset.start(seat) if preset else self._start(seat)
            transcript = Transcript(folder / "transcript.log", line.secrets if line else ())
            checks = Checks(task, workspace, self.checks, folder)
            plan = self._plan(found, start, line)
            reasons = _Reasons(workspace, line)
            ending = run_agent(plan, work, control, places, transcript, checks.answer, reasons)
        if ending.stopped == _RUN_STOPS:
            raise CancelledError
        version = _version(found, preset.version, bare) if preset else ""
        agent = self.preset or os.path.basename(name)
        about = {
            "agent": agent,
            "version": version,
            "sandbox": "none" if bare else bubblewrap.version(),
            "checks": checks.made,
            "candidate_file": self.file,
            **dataclasses.asdict(ending),
        }
        write_json(folder / "session.json", about)
        told = (
            f"{self.preset or name} {version}".strip() + f", {checks.made} checks, {_how(ending)}"
        )
        told += ", no sandbox" if bare else ""
        try:
            return self._outcome(task, work, ending, line, told)
        finally:
            _keep_little(work)

    def _prepare(self, task: Task, work: Path) -> str:
        """Fills the workspace; the prompt."""
        place = str(work) if self.sandbox == "none" else bubblewrap.WORKSPACE
        text = task.prompt.rstrip() + _WORKSPACE_TEXT.format(
            workspace=place,
            file=self.file,
            task=TASK_FILE,
            example=EXAMPLE_FILE,
            checks=self.checks,
            minutes=round(self.wall_s / 60, 1),
        )
        (work / TASK_FILE).write_text(text, encoding="utf-8")
        (work / EXAMPLE_FILE).write_text(example_for(task.operator), encoding="utf-8")
        return text

    def _seat(self, prompt: str, places: Places, line: Line | None) -> Seat:
        url = ""
        if line is not None:
            bare = self.sandbox == "none"
            url = line.url if bare else f"http://127.0.0.1:{GATEWAY_PORT}{line.path}"
        return Seat(
            url=url,
            token=line.token if line else "",
            model=line.model if line else "",
            prompt=prompt,
            home=places.home,
            workspace=places.workspace,
            candidate=self.file,
        )

    def _start(self, seat: Seat) -> Start:
        """How a command without a preset is started: it is told its model every usual way."""
        given = {
            "prompt": seat.prompt,
            "model": seat.model,
            "url": seat.url,
            "token": seat.token,
            "file": f"{seat.workspace}/{seat.candidate}",
        }
        words = [_filled(word, given) for word in _split(self.command)[1:]]
        environment = {}
        if self.uses_model:
            environment = {
                "KERNELMARK_MODEL": seat.model,
                "KERNELMARK_URL": seat.url,
                "KERNELMARK_TOKEN": seat.token,
                "OPENAI_BASE_URL": f"{seat.url}/v1",
                "OPENAI_API_BASE": f"{seat.url}/v1",
                "OPENAI_API_KEY": seat.token,
                "ANTHROPIC_BASE_URL": seat.url,
                "ANTHROPIC_API_KEY": seat.token,
                "GOOGLE_GEMINI_BASE_URL": seat.url,
                "GEMINI_API_KEY": seat.token,
            }
        return Start(tuple(words), environment)

    def _plan(self, found: Installation, start: Start, line: Line | None) -> Plan:
        path = ":".join((*found.path, "/usr/local/bin", "/usr/bin", "/bin"))
        return Plan(
            command=(found.program, *start.arguments),
            environment={"PATH": path, **start.environment},
            files=start.files,
            visible=(*found.visible, *self._exposed),
            candidate=self.file,
            gateway=line.socket if line else None,
            limits=self._limits,
            bare=self.sandbox == "none",
        )

    def _outcome(
        self, task: Task, work: Path, ending: Ending, line: Line | None, told: str
    ) -> Proposal:
        """The candidate that was left, or why there is none."""
        trouble = line.trouble() if line else ""
        try:
            source = read_left(work / self.file)
        except ValueError as error:
            if trouble:
                text = f"{told}: {trouble}"
                raise MethodError(text, "infrastructure_error") from None
            others = _others(work, self.file)
            status, reason = self._failure(ending, line, str(error), others)
            return Proposal(failure=status, note=f"{told}: {reason}")
        if trouble and ending.exit_status != 0 and not ending.stopped:
            raise MethodError(f"{told}: {trouble}", "infrastructure_error")
        return Proposal(Candidate(task.operator.id, source, task.language), note=told)

    def _failure(
        self, ending: Ending, line: Line | None, absent: str, others: str
    ) -> tuple[Status, str]:
        refused = line.refused() if line else ""
        if refused:
            return "budget_exhausted", f"{refused}; {absent}"
        if ending.stopped:
            return _STOPPED.get(ending.stopped, "method_error"), absent
        refusal = line.refusal() if line else ""
        if refusal:
            return "method_error", f"{refusal}; {absent}"
        if ending.exit_status != 0:
            return "method_error", f"{absent}; it said last: {ending.last_line}"
        return "no_candidate", absent + others


class _Reasons:
    """Why an agent is to be ended, asked now and then: its run stops; its budget has been used up,
    and it has had time to finish what it was doing."""

    def __init__(self, workspace: Workspace, line: Line | None) -> None:
        self._workspace = workspace
        self._line = line
        self._refused_at: float | None = None

    def __call__(self) -> str:
        if self._workspace.stopping():
            return _RUN_STOPS
        if self._line is None or not self._line.refused():
            return ""
        self._refused_at = self._refused_at or time.monotonic()
        return "budget" if time.monotonic() - self._refused_at > AFTER_BUDGET_S else ""


def _keep_little(work: Path) -> None:
    """What an agent left stays in the run folder if it is not much."""
    if folder_bytes(work) > KEPT_BYTES:
        remove_folder(work)


def read_left(path: Path) -> str:
    """The text that an agent left in a file. Raises `ValueError` that says why it cannot be taken.

    The agent chose what lies there: only a regular file is read, never what a link leads to.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except FileNotFoundError:
        raise ValueError(f"no {path.name} was written") from None
    except OSError:
        raise ValueError(f"{path.name} is a link or cannot be read") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path.name} is not a file")
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise ValueError(f"{path.name} is longer than {MAX_BYTES} bytes")
    if not content.strip():
        raise ValueError(f"{path.name} is empty")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} is not UTF-8 ({error.reason})") from None


def _others(work: Path, declared: str) -> str:
    """Files that were written in place of the declared one."""
    names = [printable(name.replace("\n", "?"), _MAX_NAME) for name in files_below(work)]
    known = (*_GIVEN, declared)
    found = sorted(name for name in names if name not in known and not name.startswith("."))
    if not found:
        return ""
    more = f" and {len(found) - _MOST_NAMES} more" if len(found) > _MOST_NAMES else ""
    return f"; it wrote {', '.join(found[:_MOST_NAMES])}{more}"


def _how(ending: Ending) -> str:
    seconds = f"after {ending.seconds:.0f} s"
    if ending.stopped:
        return f"stopped {seconds}: over {ending.stopped}"
    return f"ended {seconds}" + (f" with {ending.exit_status}" if ending.exit_status else "")


@functools.cache
def _version(found: Installation, words: tuple[str, ...], bare: bool) -> str:
    """The version that an agent tells, asked in a sandbox of its own; empty where it tells none."""
    with tempfile.TemporaryDirectory(prefix="kernelmark-") as name:
        folder = Path(name)
        for part in ("workspace", "control"):
            (folder / part).mkdir()
        view = bubblewrap.View(folder / "workspace", folder / "control", None, found.visible)
        before = [] if bare else bubblewrap.words(view)
        home = name if bare else bubblewrap.HOME
        path = ":".join((*found.path, "/usr/local/bin", "/usr/bin", "/bin"))
        try:
            said = subprocess.run(
                [*before, found.program, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                timeout=60,
                env={"PATH": path, "HOME": home, "LANG": "C.UTF-8"},
            ).stdout
        except subprocess.TimeoutExpired:
            return ""
    match = _VERSION.search(said)
    return match[0] if match else ""


def _remembered(path: Path) -> Proposal:
    stored = read_json(path)
    candidate = stored["candidate"]
    return Proposal(
        candidate and from_json(Candidate, candidate), stored["failure"], stored["note"]
    )


def _split(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UserError(f"option command: {error}") from None
    if not words:
        raise UserError("option command: is empty")
    return words


def _filled(word: str, given: dict[str, str]) -> str:
    for name, value in given.items():
        if word == f"{{{name}}}":
            return value
        if name != "prompt":  # a text that may hold any of the others
            word = word.replace(f"{{{name}}}", value)
    return word


METHOD = Command
