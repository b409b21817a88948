"""Cases as plain JSON values and back, so that they can be published, stored and sent.

`case_from_json(case_to_json(case))` equals `case` in every field, to the types of its numbers, so
that an operator's digest survives. Device layer: the standard library and torch.

An argument is written as itself where JSON has it (null, bool, int, finite float, str), an array
where it is a tuple, and an object with one key where it is anything else::

    {"tensor": {"shape": [4, 8], "dtype": "float16", "fill": "normal", ...}}
    {"pointers": [{"shape": ...}, ...]}     {"device": null}            {"list": [1, 2]}
    {"dtype": "float32"}                    {"memory_format": "channels_last"}
    {"complex": [1.0, -2.0]}                {"float": "inf"}

Of a tensor, `fill`, `low`, `high`, `strides` and `offset` are left out where they are the default.
"""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import torch

from kernelmark.operators.records import Argument, Case, OnDevice, Pointers, TensorSpec

_DEFAULTS = {field.name: field.default for field in fields(TensorSpec)}
_OPTIONAL = ("fill", "low", "high", "strides", "offset")
_CASE_FIELDS = tuple(field.name for field in fields(Case))


def case_to_json(case: Case) -> dict[str, Any]:
    """Every field of a case, as JSON values. Raises `TypeError` for an argument of a new kind."""
    return {
        "name": case.name,
        "args": argument_to_json(case.args),
        "kwargs": {name: argument_to_json(value) for name, value in case.kwargs.items()},
        "tier": case.tier,
        "overload": case.overload,
        "origin": case.origin,
        "draws": list(case.draws),
        "seedless": case.seedless,
    }


def case_from_json(data: Any) -> Case:
    """The case that `case_to_json` gave. `ValueError` says what is wrong, and where."""
    if not isinstance(data, dict) or set(data) != set(_CASE_FIELDS):
        raise ValueError(f"a case has the fields {', '.join(_CASE_FIELDS)}")
    args, kwargs, draws = data["args"], data["kwargs"], data["draws"]
    if not isinstance(args, list) or not isinstance(kwargs, dict) or not isinstance(draws, list):
        raise ValueError("args and draws must be arrays, kwargs an object")
    if data["tier"] not in ("small", "full"):
        raise ValueError(f"unknown tier {data['tier']!r}")
    return Case(
        name=_typed(data["name"], str, "name"),
        args=tuple(argument_from_json(value) for value in args),
        kwargs={name: argument_from_json(value) for name, value in kwargs.items()},
        tier=data["tier"],
        overload=_typed(data["overload"], int, "overload"),
        origin=_typed(data["origin"], str, "origin"),
        draws=tuple(_typed(draw, str, "draws") for draw in draws),
        seedless=_typed(data["seedless"], bool, "seedless"),
    )


def argument_to_json(value: Argument) -> Any:
    """One argument (or a tuple of all) as JSON values."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else {"float": repr(value)}
        case complex():
            return {"complex": [argument_to_json(value.real), argument_to_json(value.imag)]}
        case tuple():
            return [argument_to_json(item) for item in value]
        case list():
            return {"list": [argument_to_json(item) for item in value]}
        case TensorSpec():
            return {"tensor": _tensor_to_json(value)}
        case Pointers():
            return {"pointers": {"member": _tensor_to_json(value.member), "count": value.count}}
        case OnDevice():
            return {"device": None}
        case torch.dtype():
            return {"dtype": _short(value)}
        case torch.memory_format():
            return {"memory_format": _short(value)}
    raise TypeError(f"no JSON form for an argument of type {type(value).__name__}")


def argument_from_json(data: Any) -> Argument:
    """The argument that `argument_to_json` gave. `ValueError` says what is wrong."""
    if data is None or isinstance(data, bool | int | float | str):
        return data
    if isinstance(data, list):
        return tuple(argument_from_json(item) for item in data)
    if not isinstance(data, dict) or len(data) != 1:
        raise ValueError(f"not an argument: {str(data)[:80]}")
    ((kind, value),) = data.items()
    match kind, value:
        case "tensor", dict():
            return _tensor_from_json(value)
        case "pointers", {"member": dict(member), "count": count, **rest} if not rest:
            return Pointers(_tensor_from_json(member), _typed(count, int, "count"))
        case "list", list():
            return [argument_from_json(item) for item in value]
        case "device", None:
            return OnDevice()
        case "dtype", str():
            return dtype_named(value)
        case "memory_format", str():
            return _torch_name(value, torch.memory_format)
        case "float", ("inf" | "-inf" | "nan"):
            return float(value)
        case "complex", [real, imaginary]:
            return complex(argument_from_json(real), argument_from_json(imaginary))
    raise ValueError(f"not an argument: {str(data)[:80]}")


def dtype_named(name: str) -> torch.dtype:
    """The dtype ``torch.<name>``; `ValueError` where there is none."""
    dtype: torch.dtype = _torch_name(name, torch.dtype)
    return dtype


def _tensor_to_json(spec: TensorSpec) -> dict[str, Any]:
    row: dict[str, Any] = {"shape": list(spec.shape), "dtype": _short(spec.dtype)}
    for name in _OPTIONAL:
        value, default = getattr(spec, name), _DEFAULTS[name]
        if value != default or type(value) is not type(default):
            row[name] = argument_to_json(value)
    return row


def _tensor_from_json(data: Any) -> TensorSpec:
    if not isinstance(data, dict) or not {"shape", "dtype"} <= set(data) <= set(_DEFAULTS):
        raise ValueError(f"not a tensor: {str(data)[:80]}")
    values = {name: argument_from_json(value) for name, value in data.items()}
    values["dtype"] = dtype_named(_typed(data["dtype"], str, "dtype"))
    for name in ("shape", "strides"):
        if values.get(name) is not None and not _integers(values[name]):
            raise ValueError(f"{name} is not an array of integers: {str(data[name])[:80]}")
    return TensorSpec(**values)


def _integers(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(item) is int for item in value)


def _short(name: object) -> str:
    return str(name).removeprefix("torch.")


def _torch_name(name: str, kind: type) -> Any:
    found = getattr(torch, name, None)
    if not isinstance(found, kind):
        raise ValueError(f"torch has no {kind.__name__} {name!r}")
    return found


def _typed(value: Any, kind: type, what: str) -> Any:
    if type(value) is not kind:
        raise ValueError(f"{what} is not of type {kind.__name__}: {str(value)[:80]}")
    return value
