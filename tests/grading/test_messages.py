"""What is left of an exception: one line that says what is wrong."""

from __future__ import annotations

import pytest

from kernelmark.evaluators.grading.runner import describe_error
from kernelmark.evaluators.grading.workers import _fault_of


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("no such thing\nmore of it", "no such thing"),
        (
            "backend='inductor' raised:\nTypeError: add() takes 2\n\nWhile executing",
            "backend='inductor' raised: TypeError: add() takes 2",
        ),
        ("it was this:\n\n   that\n", "it was this: that"),
        ("nothing follows:", "nothing follows:"),
    ],
)
def test_a_cause_that_is_announced_is_told(text: str, line: str) -> None:
    fault = _fault_of({"error": describe_error(RuntimeError(text))}, "call")
    assert str(fault) == f"RuntimeError: {line}"
