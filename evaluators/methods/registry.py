"""Finds methods: one file each in this folder; the file's name is the method's (``one_shot`` is
``one-shot``). Files whose name starts with an underscore are parts of methods. Listing names
imports nothing."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import typing
from collections.abc import Mapping

from pydantic import TypeAdapter, ValidationError

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators import methods
from kernelmark.evaluators.methods.base import Method
from kernelmark.operators.registry import UnknownName

_NOT_METHODS = {"base", "registry"}


def method_names() -> list[str]:
    """Names of all methods, sorted."""
    modules = [i.name for i in pkgutil.iter_modules(methods.__path__) if not i.ispkg]
    return sorted(name.replace("_", "-") for name in modules if not _is_part(name))


def method_class(name: str) -> type[Method]:
    """The class behind a method's name. Raises `UnknownName`."""
    if name not in method_names():
        raise UnknownName("method", name, method_names())
    module = importlib.import_module(f"{methods.__name__}.{name.replace('-', '_')}")
    return typing.cast(type[Method], module.METHOD)


def make_method(name: str, options: Mapping[str, str]) -> Method:
    """The method `name` with `options` (texts, converted to its fields' types), checked.

    Raises `UnknownName` for the method or an option, `UserError` for a value that does not fit.
    """
    cls = method_class(name)
    hints = typing.get_type_hints(cls)
    fields = [f for f in dataclasses.fields(typing.cast(typing.Any, cls)) if f.init]
    values: dict[str, object] = {}
    for key, text in options.items():
        if key not in [f.name for f in fields]:
            raise UnknownName(f"option of method {name}", key, [f.name for f in fields])
        try:
            values[key] = _value(hints[key], text)
        except ValidationError as error:
            raise UserError(f"method {name}: option {key}: {error.errors()[0]['msg']}") from None
    absent = [f.name for f in fields if _required(f) and f.name not in values]
    if absent:
        raise UserError(f"method {name} needs {', '.join(f'-o {n}=...' for n in absent)}")
    method = cls(**values)
    method.check()
    return method


def _is_part(name: str) -> bool:
    return name in _NOT_METHODS or name.startswith("_")


def _value(hint: typing.Any, text: str) -> object:
    """`text` as a value of type `hint`; ``none`` is None where the type allows it."""
    if text == "none" and type(None) in typing.get_args(hint):
        return None
    return TypeAdapter(hint).validate_python(text)


def _required(field: dataclasses.Field[object]) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing
