"""Triton drivers for machines without the accelerator. Imports triton: only for child processes.

Triton asks its active driver for the target, the current device, and how to benchmark; with no
accelerator it has none, and stops with "0 active drivers". These two answer in its stead.
"""

from __future__ import annotations

import contextlib
import functools
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.backends.driver import DriverBase
from triton.runtime.autotuner import Autotuner

Benchmarker = Callable[..., Sequence[float]]


class HostDriver(DriverBase):  # type: ignore[misc]
    """Answers for a device that is not there: CPU tensors, one device, one stream."""

    def __init__(self, target: GPUTarget, properties: dict[str, int], benchmark: Benchmarker):
        self.target = target
        self.properties = properties
        self.benchmark = benchmark
        self.utils = self
        self.launcher_cls = NoLaunch

    @classmethod
    def is_active(cls) -> bool:
        return True

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cpu")

    def get_device_interface(self) -> Any:
        return torch.cpu

    def get_benchmarker(self) -> Benchmarker:
        return self.benchmark

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        arch = self.target.arch
        return divmod(arch, 10) if isinstance(arch, int) else (int(arch[3:-2]), int(arch[-2], 16))

    def get_empty_cache_for_benchmark(self) -> torch.Tensor:
        return torch.empty(1)

    def clear_cache(self, cache: torch.Tensor) -> None:
        pass

    def assemble_tensormap_to_arg(self, tensormaps_info: Any, args: Any) -> Any:
        return args

    # `utils` of a real driver

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        return dict(self.properties)

    def load_binary(self, *args: Any) -> tuple[int, int, int, int, int]:
        """(module, function, registers, spills, threads a block may have): nothing is loaded."""
        return 1, 1, 0, 0, 1024


class NoLaunch:
    """A launcher that does nothing."""

    def __init__(self, src: Any, metadata: Any) -> None:
        pass

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        pass


class LauncherOnly(NoLaunch):
    """A launcher that does nothing, once the real one has been compiled into Triton's cache.

    Triton up to 3.6 gives the C compiler a source for each signature of a kernel, which takes it
    longer than many a kernel takes.
    """

    def __init__(self, src: Any, metadata: Any) -> None:
        from triton.backends.nvidia import driver

        driver.CudaLauncher(src, metadata)


def launcher_for(backend: str) -> type[NoLaunch]:
    """The launcher of a process that compiles for the device of this machine."""
    if backend != "cuda" or not _cuda_ready:
        return NoLaunch
    from triton.backends.nvidia import driver

    return LauncherOnly if hasattr(driver, "make_launcher") else NoLaunch


_cuda_ready = False


def preload_cuda() -> None:
    """Makes Triton's CUDA driver before runners are forked, without a context.

    It compiles a helper library in C at its start, which each runner would do again. Where that
    fails nothing is lost: runners try for themselves, and say what is wrong.
    """
    global _cuda_ready
    from triton.backends.nvidia import driver

    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.dict(os.environ, {"TRITON_CACHE_DIR": folder}),
        contextlib.suppress(Exception),
    ):
        made = driver.CudaDriver()
        made.get_benchmarker = brief_benchmarker
        triton.runtime.driver.set_active(made)
        _cuda_ready = True


def brief_benchmarker() -> Callable[..., Any]:
    """What an autotuner measures with, unless a kernel brings its own: `do_bench` for 25 ms.

    Its default of 125 ms for each configuration makes tuning nine tenths of a grade of a matrix
    product: on an H200 9 s of 18.
    """
    return functools.partial(triton.testing.do_bench, warmup=5, rep=20)


def use(driver: HostDriver) -> None:
    """Makes `driver` Triton's, and its benchmark every autotuner's, whatever a kernel asks for.

    A kernel's own ``do_bench``, ``use_cuda_graph`` or cached tuning results would measure an
    accelerator that is not there.
    """
    triton.runtime.driver.set_active(driver)
    Autotuner.do_bench = property(lambda self: driver.benchmark)
    Autotuner.check_disk_cache = lambda self, key, configs, bench: bool(bench())


def first_config(kernel_call: Callable[[], None], quantiles: Sequence[float]) -> Sequence[float]:
    """Runs nothing and finds all configurations equally fast, so the first one is taken."""
    return [0.0] * len(quantiles)


def every_config(kernel_call: Callable[[], None], quantiles: Sequence[float]) -> Sequence[float]:
    """Calls (compiles) every configuration, and finds all equally fast."""
    kernel_call()
    return [0.0] * len(quantiles)
