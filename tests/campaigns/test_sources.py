"""What a person may name as a candidate's file, and what is answered when it is none."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.campaigns.sources import MAX_BYTES, read_candidate
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import UnknownName, get_operator

SOURCE = "def softmax(self, dim, dtype=None):\n    pass\n"


@pytest.fixture
def softmax() -> Operator:
    return get_operator("aten::softmax")


def test_a_byte_order_mark_is_left_out(tmp_path: Path, softmax: Operator) -> None:
    file = tmp_path / "bom.py"
    file.write_bytes(b"\xef\xbb\xbf" + SOURCE.encode())
    assert read_candidate(file, softmax, "triton", "").source == SOURCE


def test_a_pipe_is_refused_without_waiting(tmp_path: Path, softmax: Operator) -> None:
    pipe = tmp_path / "pipe.py"
    os.mkfifo(pipe)
    with pytest.raises(UserError, match="not a file of source text"):
        read_candidate(pipe, softmax, "triton", "")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (SOURCE + "#" * MAX_BYTES, "longer than"),
        ("x = " + "-" * 100_000 + "1\n", "nested too deeply"),
        ("def softmax(:\n", ":1: syntax error"),
        ("def other():\n    pass\n", "no function softmax; it defines other"),
    ],
)
def test_bad_text_is_answered_with_one_line(
    tmp_path: Path, softmax: Operator, content: str, said: str
) -> None:
    file = tmp_path / "candidate.py"
    file.write_text(content)
    with pytest.raises(UserError, match=said) as caught:
        read_candidate(file, softmax, "triton", "")
    assert "\n" not in str(caught.value)


def test_a_name_that_is_near_none_is_answered_with_all() -> None:
    assert str(UnknownName("colour", "xyz", ["red", "blue"])).endswith("there are blue, red")
