"""What a method may learn from a verdict, as a text: what is wrong, on which call, how far off.

Calls are described as in the prompt. Of calls that the prompt does not tell (`told_cases`) nothing
is said but that one of them failed. Expected values and seeds are never told.
"""

from __future__ import annotations

import re

from kernelmark.benchmark.prompts import describe_case, told_cases
from kernelmark.evaluators.grading.correctness import describe
from kernelmark.evaluators.grading.records import Comparison, KernelBuild, Timing, Verdict
from kernelmark.operators.draws import VARIATIONS
from kernelmark.operators.records import Operator

#: longest text of one compiler error or one exception
MAX_TEXT = 4000
_MAX_FINDINGS, _MAX_BUILDS = 20, 5
_HIDDEN = "a call that is not shown"
_CASE = re.compile(r"case '([^'\n]+)'")


def feedback(verdict: Verdict, operator: Operator) -> str:
    """Several lines: the status, then whatever the gates said of calls that may be told."""
    told = {case.name: f"the call {describe_case(operator, case)}" for case in told_cases(operator)}
    failed = next((gate.name for gate in verdict.gates if not gate.passed), "")
    head = f"{verdict.status} (gate {failed})" if failed else verdict.status
    lines = [head, *([] if verdict.findings else _reason(verdict, told))]
    lines += [f"line {f.line}: {f.reason}" for f in verdict.findings[:_MAX_FINDINGS]]
    lines += [
        f"kernel {build.kernel} {build.config}: {build.error[:MAX_TEXT]}"
        for build in [build for build in verdict.builds if build.error][:_MAX_BUILDS]
    ]
    lines += [_timing(timing, told) for timing in verdict.timings if timing.case in told]
    lines += list(dict.fromkeys(map(_resources, verdict.builds)))[:_MAX_BUILDS]
    return "\n".join(line for line in lines if line)


def _reason(verdict: Verdict, told: dict[str, str]) -> list[str]:
    if verdict.status == "infrastructure_error":
        return ["the judge failed, not the candidate; ask again"]
    wrong = next((c for c in verdict.comparisons if c.status == verdict.status), None)
    if verdict.status == "passed" or wrong is None:
        return [_without_hidden(verdict.message, told)]
    if wrong.case not in told:
        return [f"wrong on {_HIDDEN}"]
    hint = verdict.message.removeprefix(describe(wrong)).lstrip("; ")
    known = verdict.message.startswith(describe(wrong))
    drawn = VARIATIONS.get(wrong.draw, wrong.draw)
    return [f"in {told[wrong.case]}, input values {drawn}:", _wrong(wrong), hint if known else ""]


def _wrong(c: Comparison) -> str:
    """What is wrong with one result, without the right answer."""
    if c.status == "nondeterministic":
        return "right on some runs, wrong on others"
    text = f"result {c.result}"
    if c.worst_index or c.bad:
        text += f", worst at {list(c.worst_index)}"
    if c.bad:
        text += f", {c.bad} of {c.total} elements wrong"
    if c.max_error is not None and c.limit is not None:
        text += f", error {c.max_error:.3g} over limit {c.limit:g}"
    gives_away = c.status == "wrong_values" and c.expected and c.expected in c.detail
    return text if gives_away or not c.detail else f"{text}: {c.detail}"


def _without_hidden(message: str, told: dict[str, str]) -> str:
    """`message` with cases described as in the prompt; nothing of it where one is hidden."""
    names = _CASE.findall(message)
    if any(name not in told for name in names):
        return f"on {_HIDDEN}"
    return _CASE.sub(lambda match: told[match[1]], message)[:MAX_TEXT]


def _timing(timing: Timing, told: dict[str, str]) -> str:
    text = (
        f"{told[timing.case]}: {timing.device_us:.4g} us, baseline {timing.baseline_us:.4g} us, "
        f"speedup {timing.speedup:.2f}"
    )
    if timing.roofline is not None:
        text += f", {timing.roofline:.0%} of what the chip allows"
    return text


def _resources(build: KernelBuild) -> str:
    """What the compiler gave a kernel; empty where it tells nothing, or did not compile it."""
    figures = {
        "registers": build.registers,
        "bytes spilled": build.spilled_bytes,
        "bytes of shared memory": build.shared_bytes,
        "matrix instructions": build.matrix_instructions,
    }
    known = [f"{value} {name}" for name, value in figures.items() if value is not None]
    if build.error or not known:
        return ""
    if build.occupancy is not None:
        known.append(f"occupancy {build.occupancy:.0%}")
    return f"kernel {build.kernel} {build.config}: {', '.join(known)}"
