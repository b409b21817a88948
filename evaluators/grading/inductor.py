"""``torch.compile`` made ready in the process that forks runners.

A baseline that is compiled imports a thousand modules first and hashes torch's sources, 3 s or
more in each runner. Done once before the forks it costs them nothing. No device context is made,
and nothing is compiled: Inductor would ask the device for its name. Device layer.
"""

from __future__ import annotations

import contextlib
import importlib
import os

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


def prepare() -> None:
    """Imports what compiling needs. What this torch does not have is left to the runner."""
    # Inductor compiles in the runner itself: a pool would be processes more beside what is timed.
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
    for name in _MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):
        from torch._inductor.codecache import torch_key

        torch_key()  # of its sources, kept
