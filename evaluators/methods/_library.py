"""Candidates of language `library`: a few declared lines that call a named, versioned package.

A `Call` says how one operator's arguments become a call of the package. Where the package has no
variant that writes into `out`, its result is copied there, as a user would.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.methods.base import Proposal, Task

_OUT = "return result if out is None else out.copy_(result)"


@dataclass(frozen=True)
class Package:
    """A package from the registry of Python packages, in the version that its calls are for."""

    name: str
    version: str
    module: str


@dataclass(frozen=True)
class Call:
    """`parameters` of the function; `result` is an expression that calls the package.

    `before` are statements ahead of it, `imports` are those beside the package and torch. With
    ``out`` among the parameters the result is copied there; `silent`: nothing is returned.
    """

    parameters: str
    result: str
    before: tuple[str, ...] = ()
    imports: tuple[str, ...] = ()
    silent: bool = False


def propose_call(task: Task, package: Package, calls: Mapping[str, Call]) -> Proposal:
    """The package's kernel for the task's operator, or `no_candidate`."""
    call = calls.get(task.operator.id)
    if call is None:
        note = f"{package.name} {package.version} has no kernel for {task.operator.id}"
        return Proposal(failure="no_candidate", note=note)
    source = library_source(task.operator.id, task.operator.name, package, call)
    return Proposal(Candidate(task.operator.id, source, "library"))


def library_source(id: str, name: str, package: Package, call: Call) -> str:
    """The candidate's text."""
    has_out = "out=None" in call.parameters
    if call.silent:
        end = [call.result]
    elif has_out:
        end = [f"result = {call.result}", _OUT]
    else:
        end = [f"return {call.result}"]
    body = "".join(f"    {line}\n" for line in [*call.before, *end])
    imports = "".join(f"{line}\n" for line in call.imports)
    modules = "".join(f"import {name}\n" for name in sorted({package.module, "torch"}))
    return (
        f"# package: {package.name}=={package.version}\n# module: {package.module}\n"
        f'"""{package.name}\'s kernel for {id}."""\n\n'
        f"{modules}{imports}\n\n"
        f"def {name}({call.parameters}):\n{body}"
    )
