"""Compiles every kernel that a candidate launches, for one target. Runs beside foreign code.

The candidate's host code runs; each compilation is recorded, also where the candidate catches the
error, and each autotuner configuration is compiled. Imports triton: only for child processes.
"""

from __future__ import annotations

import contextlib
import os
import re
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import triton.compiler
import triton.language as tl
from triton.compiler.errors import CompilationError
from triton.runtime.autotuner import Autotuner
from triton.runtime.errors import OutOfResources

from kernelmark.evaluators.chips import _code_objects, _pretend
from kernelmark.evaluators.chips.targets import CompileTarget
from kernelmark.evaluators.grading.records import KernelBuild, Status, to_json

Emit = Callable[[dict[str, Any]], None]

#: what Triton says of a type that a target lacks (semantic.py, 3.4 to 3.7)
_LACKS_TYPE = re.compile(r"type (\w+) not supported in this architecture")
_MAX_TEXT = 600


def never_hash_triton() -> None:
    """Names Triton by its version, and the size and time of its library, instead of by hashing its
    500 MB, which takes a second. The key only guards Triton's own disk cache.
    """
    from triton._C import libtriton
    from triton.runtime import autotuner, cache

    found = os.stat(libtriton.__file__)
    name = f"{triton.__version__}-{found.st_size}-{found.st_mtime_ns}"
    for module in (cache, autotuner, triton.compiler.compiler):
        if hasattr(module, "triton_key"):
            module.triton_key = lambda: name


def keep_only_code() -> None:
    """Triton's cache gets what is read here, code and metadata: printing the stages between takes a
    thirtieth of a compilation."""
    from triton.runtime.cache import FileCacheManager

    put = FileCacheManager.put

    def put_code(self: Any, data: Any, filename: str, binary: bool = True) -> Any:
        between = filename.endswith((".source", ".ttir", ".ttgir", ".llir"))
        return put(self, b"" if between else data, filename, binary)

    FileCacheManager.put = put_code


def dump_nothing() -> None:
    """Triton's AMD back end reads each kernel's LLVM code twice more, for dumps that are not made:
    up to a fortieth of a large kernel's compilation."""
    from triton._C.libtriton import llvm

    for name in ("translate_to_mir", "dump_sched_dag"):  # not in every Triton
        if hasattr(llvm, name):
            setattr(llvm, name, lambda *given: "")


def compile_calls(
    target: CompileTarget,
    load: Callable[[], Callable[..., Any]],
    calls: Sequence[tuple[str, tuple[Any, ...], dict[str, Any]]],
    emit: Emit,
) -> None:
    """Loads the candidate and calls it with each of `calls` (case, args, kwargs).

    Emits ``{"compiling": name}`` before and ``{"kernel": KernelBuild}`` after each compilation, and
    ``{"call": case, "outcome": status, "error": text}`` after each call; ``load`` counts as the
    call ``""`` where it fails.
    """
    recorder = pretend(target, emit)
    case = ""
    try:
        function = load()
        for case, args, kwargs in calls:
            status, text = outcome(recorder, partial(function, *args, **kwargs))
            emit({"call": case, "outcome": status, "error": text})
    except BaseException as error:  # loading, or a SystemExit in a call
        emit({"call": case, "outcome": "runtime_error", "error": describe(error)})


def pretend(target: CompileTarget, emit: Emit, answers: dict[str, Any] | None = None) -> Recorder:
    """From here on this process seems to have the target's device and compiles for it.

    `answers`: what a device that is here tells of itself (`here.Here`).
    """
    target.activate()
    recorder = Recorder(target, emit)
    recorder.pretence = _pretend.pretend_device(
        target.product, target.capability, target.properties(), answers
    )
    triton.compiler.compile = recorder.compile
    _always_tune()
    return recorder


def _always_tune() -> None:
    """Every launch of an autotuned kernel compiles all configurations: on a device any of them may
    win, and for another specialisation under the same key too."""
    run = Autotuner.run

    def run_afresh(self: Any, *args: Any, **kwargs: Any) -> Any:
        self.cache.clear()
        return run(self, *args, **kwargs)

    Autotuner.run = run_afresh


def outcome(recorder: Recorder, call: Callable[[], Any]) -> tuple[Status, str]:
    """Makes `call` and says how it went: a status, and one line."""
    try:
        call()
    except Exception as error:
        if lacking := _LACKS_TYPE.search(str(error)):
            return "unsupported", f"Triton has no {lacking[1]} for this target"
        if isinstance(error, OutOfResources) or error in recorder.errors:
            return "build_error", describe(error)
        return "runtime_error", describe(error)
    return "passed", ""


class Recorder:
    """Stands in for `triton.compiler.compile`."""

    def __init__(self, target: CompileTarget, emit: Emit) -> None:
        self.target = target
        self.emit = emit
        self.plain = triton.compiler.compile
        self.errors: list[BaseException] = []
        self.pretence: _pretend.Pretence | None = None

    def compile(self, src: Any, target: Any = None, options: Any = None, **rest: Any) -> Any:
        """Compiles, and emits what came of it."""
        config = _config(src, options or {})
        self.emit({"compiling": src.name})
        try:
            kernel = self.plain(src, target=target, options=options, **rest)
            if self.target.backend == "hip" and not _code_objects.is_elf(kernel.asm["hsaco"]):
                # LLVM's assembler prints its error and returns nothing.
                raise RuntimeError("the assembler gave no code object")
            build = self._build(kernel, src.name, config)
        except BaseException as error:
            self.errors.append(error)
            failed = KernelBuild(src.name, config=config, error=describe(error))
            self.emit({"kernel": to_json(failed)})
            raise
        self.emit({"kernel": to_json(build)})
        return kernel

    def _build(self, kernel: Any, name: str, config: str) -> KernelBuild:
        if self.target.backend == "cuda":
            used = _code_objects.read_cubin(kernel.asm["cubin"], kernel.asm["ptx"])
        else:
            used = _code_objects.read_amdgcn(kernel.asm["amdgcn"])
        shared, warps = int(kernel.metadata.shared), int(kernel.metadata.num_warps)
        limit = self.target.multiprocessor.shared_bytes_per_block
        too_much = f"needs {shared} bytes of shared memory; {self.target.name} has {limit}"
        return KernelBuild(
            name,
            used.registers,
            used.spilled_bytes,
            shared,
            warps,
            config,
            self.target.multiprocessor.occupancy(used.registers or 0, shared, warps),
            used.matrix_instructions,
            too_much if shared > limit else "",
        )


def _config(src: Any, options: dict[str, Any]) -> str:
    """``*fp32,i32 BLOCK=128 num_warps=4``: argument types, compile-time arguments, options."""
    types = [str(kind) for kind in src.signature.values() if kind != "constexpr"]
    names = src.fn.arg_names
    constants = [
        f"{names[path[0]]}={_constant(value)}"
        for path, value in src.constants.items()
        if len(path) == 1 and src.signature.get(names[path[0]]) == "constexpr"
    ]
    shown = [f"{k}={options[k]}" for k in ("num_warps", "num_stages", "num_ctas") if k in options]
    return " ".join([",".join(types), *constants, *shown])[:_MAX_TEXT]


def _constant(value: Any) -> str:
    value = value.value if isinstance(value, tl.constexpr) else value
    return getattr(value, "__name__", None) or str(value)


def describe(error: BaseException) -> str:
    """One line: the class, the message, and the line of the candidate that it came from."""
    text = str(error).strip()
    if isinstance(error, CompilationError):  # its text is the source; what counts comes last
        at = text.splitlines()[0].rstrip(":") if text else ""
        cause = error.__cause__ or getattr(error, "error_message", None)
        text = f"{at}: {cause or text.splitlines()[-1]}"
    where = ""
    with contextlib.suppress(Exception):
        frames = traceback.extract_tb(error.__traceback__)
        own = [f for f in frames if os.path.basename(f.filename).startswith("candidate")]
        where = f" (line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {' '.join(text.split())}"[:_MAX_TEXT] + where
