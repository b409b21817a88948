"""Cases as JSON: every kind of argument comes back as it was, and nonsense is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from kernelmark.operators.case_json import (
    argument_from_json,
    argument_to_json,
    case_from_json,
    case_to_json,
)
from kernelmark.operators.records import Case, OnDevice, Pointers, TensorSpec

STRIDED = TensorSpec((2, 3), torch.bfloat16, "integers", 0, 5, (1, 2), 7)
ARGUMENTS: list[Any] = [
    None,
    True,
    3,
    -0.0,
    1e-300,
    float("inf"),
    float("nan"),
    complex(1.5, float("-inf")),
    "mean",
    (1, (2.0, None), ()),
    [1, [2]],
    TensorSpec(()),
    STRIDED,
    TensorSpec((0, 4), torch.float8_e4m3fn, low=0, high=1),
    Pointers(STRIDED, 3),
    OnDevice(),
    torch.complex64,
    torch.channels_last,
]


@pytest.mark.parametrize("value", ARGUMENTS, ids=repr)
def test_arguments_come_back(value: Any) -> None:
    text = json.dumps(argument_to_json(value), allow_nan=False)
    assert repr(argument_from_json(json.loads(text))) == repr(value)


def test_a_case_comes_back() -> None:
    case = Case("name", tuple(ARGUMENTS), {"out": STRIDED}, "full", 2, "a model", ("base",), True)
    assert repr(case_from_json(json.loads(json.dumps(case_to_json(case))))) == repr(case)


def test_an_argument_of_a_new_kind_is_not_lost() -> None:
    with pytest.raises(TypeError, match="no JSON form for an argument of type set"):
        argument_to_json({1, 2})


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"tensor": {}},
        {"tensor": {"shape": [1], "dtype": "float32", "color": "red"}},
        {"tensor": {"shape": 3, "dtype": "float32"}},
        {"tensor": {"shape": [1.5], "dtype": "float32"}},
        {"tensor": {"shape": [1], "dtype": "load"}},
        {"tensor": {"shape": [1], "dtype": 7}},
        {"tensor": {"shape": [1], "dtype": "float32", "strides": [True]}},
        {"pointers": [3]},
        {"pointers": {"member": {"shape": [1], "dtype": "float32"}, "count": True}},
        {"pointers": {"member": {"shape": [1], "dtype": "float32"}, "count": 3, "more": 1}},
        {"dtype": "channels_last"},
        {"dtype": "ops"},
        {"memory_format": "float32"},
        {"float": "1.0"},
        {"complex": [1]},
        {"device": "cuda"},
        {"list": 3},
        {"a": 1, "b": 2},
        {"__import__": "os"},
    ],
    ids=str,
)
def test_nonsense_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match=r"not a|no dtype|no memory_format|not of type"):
        argument_from_json(data)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("name", 3),
        ("args", {}),
        ("kwargs", []),
        ("tier", "huge"),
        ("overload", True),
        ("origin", None),
        ("draws", "base"),
        ("draws", [1]),
        ("seedless", 0),
    ],
)
def test_fields_of_the_wrong_type_are_refused(field: str, value: Any) -> None:
    data = {**case_to_json(Case("name", ())), field: value}
    with pytest.raises(ValueError, match=r"must be|unknown tier|not of type"):
        case_from_json(data)


@pytest.mark.parametrize("data", [None, [], {}, {"name": "x"}])
def test_what_is_no_case_is_refused(data: Any) -> None:
    with pytest.raises(ValueError, match="a case has the fields"):
        case_from_json(data)
