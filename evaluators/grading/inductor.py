"""``torch.compile`` made ready in the process that forks runners.

A baseline that is compiled imports a thousand modules first and hashes torch's sources, 3 s or
more in each runner. Done once before the forks it costs them nothing. Nothing is compiled, as
Inductor would ask the device for its name: whoever asks CUDA for anything leaves its forks unable
to use it. Device layer.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import tempfile
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from unittest import mock

import torch

from kernelmark.evaluators.grading import isolation

#: roots of what a first compilation for a GPU imports (torch 2.8 to 2.13), and lazily some of it
_MODULES = (
    "torch._dynamo.convert_frame",
    "torch._dynamo.backends.inductor",
    "torch._dynamo.dce_extra_outputs",
    "torch._dynamo.repro.after_dynamo",
    "torch._functorch._aot_autograd.subclass_codegen",
    "torch._higher_order_ops.passes",
    "torch._inductor.async_compile",
    "torch._inductor.choices",
    "torch._inductor.codegen.cpp_wrapper_cpu_array_ref",
    "torch._inductor.codegen.cpp_wrapper_gpu",
    "torch._inductor.codegen.cuda.device_op_overrides",
    "torch._inductor.codegen.cuda_combined_scheduling",
    "torch._inductor.codegen.halide",
    "torch._inductor.codegen.memory_planning",
    "torch._inductor.codegen.wrapper_fxir",
    "torch._inductor.compile_fx",
    "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.fuse_attention",
    "torch._inductor.fx_passes.serialized_patterns",
    "torch._inductor.runtime.triton_heuristics",
    "torch._subclasses.schema_check_mode",
    "torch.export._trace",
    "torch.fx.experimental.validator",
    "sympy.tensor.tensor",
)


def prepare() -> bool:
    """Imports what compiling needs; False where this torch asks CUDA meanwhile. Then nothing has
    been imported, and runners do it themselves."""
    # Inductor compiles in the runner itself: a pool would be processes more beside what is timed.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    if not _succeeds_in_a_fork(_load):
        return False
    _load()
    return True


def kept() -> bool:
    """Whether what this process compiles outlives it."""
    return os.environ.get("TORCHINDUCTOR_CACHE_DIR", "").startswith(isolation.CACHE)


def forget_choices() -> None:
    """From here on no choice between compiled variants is kept, only what was compiled. Raises
    ImportError or AttributeError where this torch keeps choices in another way."""
    from torch._inductor.runtime.autotune_cache import AutotuneCache

    # Under its own name: what is kept of a kernel refers to `save` of whoever loads it.
    def save(self: Any, *args: Any, **kwargs: Any) -> None:
        return None

    assert AutotuneCache.save is not None
    AutotuneCache.save = save  # type: ignore[method-assign]


def _load() -> None:
    """Raises `Touched`."""
    with _cuda_untouched():
        for name in _MODULES:
            with contextlib.suppress(ImportError):  # another torch has other modules
                importlib.import_module(name)
        with contextlib.suppress(ImportError, AttributeError):
            from torch._inductor.codecache import torch_key

            torch_key()  # of its sources, kept


def _succeeds_in_a_fork(work: Callable[[], None]) -> bool:
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(pid, 0)[1] == 0


class Touched(BaseException):
    """An import wanted to know something of the device."""


@contextlib.contextmanager
def _cuda_untouched() -> Iterator[None]:
    """While entered, asking CUDA raises `Touched`; how many devices there are is NVML's to say."""

    def refuse(*args: Any) -> NoReturn:
        raise Touched

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, {"PYTORCH_NVML_BASED_CUDA_CHECK": "1"}))
        stack.enter_context(mock.patch.object(torch.cuda, "_lazy_init", refuse))
        # where an import asks for a place for files, that is each runner's own
        stack.enter_context(mock.patch.object(tempfile, "tempdir", isolation.SCRATCH))
        if hasattr(torch._C, "_cuda_getDeviceCount"):
            stack.enter_context(mock.patch.object(torch._C, "_cuda_getDeviceCount", refuse))
        yield
