"""Methods that ask a model: what they ask, what they are told, when they stop."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.grading.records import Candidate, Gate, Timing, Verdict
from kernelmark.evaluators.methods._standing import standing
from kernelmark.evaluators.methods.base import Message, Proposal, Reply, Task
from kernelmark.evaluators.methods.registry import make_method
from kernelmark.operators.registry import get_operator

TASK = Task(get_operator("aten::softmax"), "interpreter", "triton", "the prompt")


def kernel(number: int) -> str:
    """The text of the reply numbered so."""
    return f"```python\ndef softmax(self, dim, dtype=None):\n    return {number}\n```"


def verdict(status: str, gates: int = 2, speedup: float | None = None) -> Verdict:
    """A verdict that passed so many gates, with one timed case where there is a speedup."""
    names = ("scan", "build", "correctness", "integrity", "timing")
    timings = ()
    if speedup is not None:
        timings = (Timing("c", 1.0, speedup, speedup, speedup, speedup, None, "events"),)
    return Verdict(
        TASK.operator.id,
        "id",
        "interpreter",
        "interpreted",
        status,  # type: ignore[arg-type]
        "the message",
        gates=tuple(Gate(name, place < gates, 0.0) for place, name in enumerate(names)),
        timings=timings,
    )


class Desk:
    """A workspace: replies numbered from 1 (or the texts given), verdicts by number."""

    def __init__(self, verdicts: Sequence[Verdict], texts: dict[int, str] | None = None) -> None:
        self.root = Path()
        self.verdicts = verdicts
        self.texts = texts or {}
        self.asked: list[Sequence[Message]] = []
        self.parameters: list[dict[str, Any]] = []
        self.verified: list[int] = []

    def complete(self, messages: Sequence[Message], **parameters: Any) -> Reply:
        self.asked.append(messages)
        self.parameters.append(parameters)
        number = len(self.asked)
        return Reply(self.texts.get(number, kernel(number)), "stop", "m")

    def verify(self, candidate: Candidate) -> Verdict:
        number = int(candidate.source.split("return ")[1])
        self.verified.append(number)
        return self.verdicts[number - 1]


def proposals(name: str, desk: Desk, **options: str) -> list[Proposal]:
    return list(make_method(name, options).propose(TASK, desk))  # type: ignore[arg-type]


WRONG, RIGHT = verdict("wrong_values"), verdict("passed", 5)


def test_best_of_stops_at_the_first_that_passes() -> None:
    desk = Desk([WRONG, WRONG, RIGHT, RIGHT])
    assert len(proposals("best-of", desk, samples="4")) == 3
    assert desk.verified == [1, 2, 3]
    assert {tuple(map(str, messages)) for messages in desk.asked} == {
        ("{'role': 'user', 'content': 'the prompt'}",)  # no sample is told of another
    }
    assert desk.parameters[0]["temperature"] == 0.8


def test_best_of_fastest_takes_all_and_asks_no_verdict() -> None:
    desk = Desk([])
    assert len(proposals("best-of", desk, samples="3", select="fastest")) == 3
    assert desk.verified == []


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("best-of", {"samples": "0"}, "samples: must be at least 1"),
        ("best-of", {"temperature": "0"}, "all the same"),
        ("best-of", {"select": "nicest"}, "select: Input should be"),
        ("refine", {"rounds": "0"}, "rounds: must be at least 1"),
        ("refine", {"temperature": "3"}, "from 0 to 2"),
        ("scripted", {"method": "folder"}, r"needs -o path="),
        ("scripted", {"method": "reference"}, "calls no model"),
    ],
)
def test_options_that_cannot_work(name: str, options: dict[str, str], why: str) -> None:
    with pytest.raises(UserError, match=why):
        make_method(name, options)


def test_none_leaves_the_temperature_out() -> None:
    desk = Desk([RIGHT])
    proposals("one-shot", desk, temperature="none", reasoning_effort="high")
    assert desk.parameters == [{"max_tokens": 16_384, "reasoning_effort": "high"}]


def test_refine_feeds_the_verdict_back_and_ends_when_nothing_is_timed() -> None:
    desk = Desk([WRONG, RIGHT])
    made = proposals("refine", desk)
    assert len(made) == 2
    task, answer, told = desk.asked[1]
    assert task["content"] == "the prompt"
    assert "return 1" in answer["content"]
    assert "wrong_values (gate correctness)" in told["content"]
    assert "Put it right" in told["content"]


def test_refine_goes_on_for_speed_from_the_best() -> None:
    desk = Desk([verdict("passed", 5, s) for s in (0.5, 2.0, 1.0, 3.0)])
    assert len(proposals("refine", desk, rounds="4", frontier="1")) == 4
    parents = [messages[1]["content"] for messages in desk.asked[1:]]
    assert ["return 1" in parents[0], "return 2" in parents[1], "return 2" in parents[2]] == [
        True
    ] * 3
    told = desk.asked[3][2]["content"]
    assert "Make it faster" in told
    assert "- passed, 0.5 times as fast" in told
    desk = Desk([verdict("passed", 5, 0.5)])
    assert len(proposals("refine", desk, stop="passed")) == 1


def test_refine_keeps_a_frontier() -> None:
    desk = Desk([verdict("wrong_values", 2), verdict("build_error", 1), RIGHT, RIGHT])
    proposals("refine", desk, rounds="2", width="2", frontier="2")
    assert len(desk.asked) == 3  # the third passes
    assert len(desk.asked[1]) == 1
    assert "return 1" in desk.asked[2][1]["content"]  # it went further than the second


def test_a_reply_without_a_file_is_told_so() -> None:
    desk = Desk([RIGHT, RIGHT], {1: "Shall I write it?"})
    first, second = proposals("refine", desk)
    assert first.failure == "no_candidate"
    assert second.candidate is not None
    told = desk.asked[1][2]["content"]
    assert "No file could be taken from this reply" in told
    assert desk.asked[1][1]["content"] == "Shall I write it?"


def test_what_was_taken_is_recorded() -> None:
    desk = Desk([RIGHT])
    (made,) = proposals("one-shot", desk)
    assert made.note == "the reply's one code block"


def test_standing_ranks_right_before_wrong_and_fast_before_slow() -> None:
    order = [
        None,
        verdict("rejected", 0),
        verdict("build_error", 1),
        verdict("wrong_values", 2),
        verdict("tampered", 3),
        verdict("passed", 5, 0.5),
        verdict("passed", 5, 2.0),
    ]
    assert sorted(order, key=standing) == order
