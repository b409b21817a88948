"""What a vLLM operator is measured against, decided where it runs.

Where vLLM is installed and the tensors are on its accelerator, that is vLLM's own custom op.
Elsewhere it is the operator's formulation in torch, in the case's dtypes: compiled by
``torch.compile`` on an accelerator, eager on a CPU. `CustomOp.name_on` says which.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from functools import cache
from typing import Any

import torch

NAME = "vllm; without it, the torch.compile formulation"

Function = Callable[..., Any]


class CustomOp:
    """A baseline that is vLLM's custom op where there is one, and a formulation elsewhere.

    `name` is looked up in ``vllm._custom_ops``. `adapt` gets that function and the operator's
    arguments, for the few ops whose Python wrapper is not called like the operator. `major` is the
    only compute capability (8 for 8.x) that vLLM's kernel runs on; None: any. Formulations compute
    in float32 what vLLM's kernels do, and have no loops over elements.
    """

    def __init__(
        self,
        name: str,
        formulation: Function,
        adapt: Function | None = None,
        major: int | None = None,
    ) -> None:
        self.name = name
        self.formulation = formulation
        self.adapt = adapt
        self.major = major

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        device = _device((args, tuple(kwargs.values())))
        custom = self._custom(device)
        if custom is not None:
            return self.adapt(custom, *args, **kwargs) if self.adapt else custom(*args, **kwargs)
        if device.type == "cpu":
            return self.formulation(*args, **kwargs)
        return _compiled(self.formulation)(*args, **kwargs)

    def name_on(self, device: torch.device) -> str:
        """``vllm 0.13.0``, ``torch.compile formulation`` or ``eager formulation``."""
        if self._custom(device) is not None:
            return f"vllm {importlib.import_module('vllm').__version__}"
        return "eager formulation" if device.type == "cpu" else "torch.compile formulation"

    def _custom(self, device: torch.device) -> Function | None:
        """vLLM's function where it is installed and runs on `device`."""
        if device.type != "cuda":
            return None
        if self.major is not None and torch.cuda.get_device_capability(device)[0] != self.major:
            return None
        return _vllm_function(self.name)


@cache
def _vllm_function(name: str) -> Function | None:
    """vLLM's function of that name, or None where vLLM or the op is not installed."""
    if importlib.util.find_spec("vllm") is None:
        return None
    function: Function | None = getattr(importlib.import_module("vllm._custom_ops"), name, None)
    return function


@cache
def _compiled(function: Function) -> Function:
    """`function` compiled for static shapes.

    Every case of an operator is its own specialisation, so recompilations are not limited.
    Intermediate roundings that an operator states are kept: Inductor's pattern matcher, which
    drops pairs of casts (torch 2.11 also those with a look at the bits in between), is off.
    """
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 1024)
    config.accumulated_recompile_limit = max(config.accumulated_recompile_limit, 1 << 16)
    options: dict[str, Any] = {"emulate_precision_casts": True, "pattern_matcher": False}
    compiled: Function = torch.compile(function, dynamic=False, options=options)
    return compiled


def _device(value: Any) -> torch.device:
    """The device of the first tensor that is not on the CPU; the CPU if there is none."""
    if isinstance(value, torch.Tensor):
        return value.device
    if isinstance(value, list | tuple):
        found = [_device(item) for item in value]
        return next((d for d in found if d.type != "cpu"), torch.device("cpu"))
    return torch.device("cpu")
