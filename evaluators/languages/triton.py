"""Candidates in Triton: the first language.

The scan is an allow-list over the host code (`_interpret`, tables in `_policy`) and over what
kernels refer to (`_kernels`). It reads text and runs nothing. It does not judge whether the kernels
do the work: outputs, replay with kernels disabled, and device traces do (the later gates).
"""

from __future__ import annotations

import ast
import importlib.util
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import ModuleType
from typing import Any
from unittest import mock

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages._interpret import Interpreter
from kernelmark.evaluators.languages._kernels import check_kernels
from kernelmark.evaluators.languages.base import Skipped
from kernelmark.operators.records import Operator

MAX_SOURCE_BYTES = 1 << 20
MAX_FINDINGS = 50
_COOKIE = re.compile(r"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")

TEMPLATE = """\
Write one Python file. Triton kernels (`@triton.jit`) must do all computing on tensors.

Host code may: ask tensors for shape, stride, dtype, device, data_ptr; make them (torch.empty,
empty_like, zeros, full, x.new_empty, ...); view them (view, reshape, transpose, expand, slices);
move them (contiguous, clone, to, copy_) unless moving is what the operator does; do arithmetic on
numbers; choose kernels and configurations; launch kernels with kernel[grid](...). It may read at
most 8 elements a call with item(): as a size, a grid or the bound of a loop, or to hand it to a
kernel unchanged; a number that is made from them may reach no kernel and no answer.
triton.autotune, triton.heuristics, triton.Config, libdevice, inline assembly, helper functions,
classes, closures, module-level constants and tables are welcome.

Host code may not: compute on tensors (torch functions, operators such as x + y or x @ y, indexing
by tensors), keep tensors or counters between calls, make streams, threads, graphs or events, read
clocks, files, the environment or the interpreter, patch anything, or build code from strings.
Imports: torch, triton, math, functools, itertools, operator, typing, dataclasses, enum,
collections, contextlib, logging, warnings.

An example, for an operator `shift(self, amount, *, out=None)` that adds a number to a tensor:

```python
import torch
import triton
import triton.language as tl


@triton.jit
def shift_kernel(x_ptr, out_ptr, amount, n, BLOCK: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float32)
    tl.store(out_ptr + i, (x + amount).to(out_ptr.dtype.element_ty), mask=i < n)


def shift(self, amount, *, out=None):
    x = self.contiguous()
    result = torch.empty_like(x)
    n = x.numel()
    if n:
        shift_kernel[(triton.cdiv(n, 1024),)](x, result, amount, n, BLOCK=1024)
    return result if out is None else out.copy_(result)
```
"""


class TritonLanguage:
    """`Language` of Triton candidates."""

    name = "triton"
    suffix = ".py"
    template = TEMPLATE
    own_kernels = True
    kinds: frozenset[str] | None = None

    def scan(self, source: str, entry: str, operator: Operator | None = None) -> list[Finding]:
        """Reasons to refuse `source`, by line. With `operator`, tensors are known by signature."""
        tree = parse(source)
        if isinstance(tree, Finding):
            return [tree]
        interpreter = Interpreter(tree, entry, operator)
        try:
            interpreter.run()
            check_kernels(interpreter, source)
        except Exception as error:  # foreign text may not stop a judge: what is not read is refused
            reason = f"cannot be read by the scan ({type(error).__name__}: {error}); simplify"
            return [Finding(1, reason)]
        wants_kernel = operator is None or operator.kind != "metadata"
        # One that never returns gives no answer: later gates say what it does with its time.
        idle = not interpreter.launched and not interpreter.endless
        if not interpreter.findings and wants_kernel and idle:
            interpreter.refuse(tree, f"`{entry}` launches no Triton kernel of its own")
        return sorted(interpreter.findings, key=lambda f: (f.line, f.reason))[:MAX_FINDINGS]

    def load(self, path: str, entry: str) -> Callable[..., Any]:
        """Imports the file at `path` under a name of its own; returns its function `entry`."""
        return load_module(path, entry)

    @contextmanager
    def disable_kernels(self) -> Iterator[Skipped]:
        """Turns every launch into nothing: compiled, interpreted, tuned, or from a handle."""
        from triton.runtime import autotuner, interpreter, jit

        skipped = Skipped()

        def skip_run(self: Any, *args: Any, **kwargs: Any) -> Any:
            if kwargs.get("warmup"):
                return run(self, *args, **kwargs)
            skipped.launches += 1
            return None

        def skip_call(self: Any, *args: Any, **kwargs: Any) -> None:
            skipped.launches += 1

        def skip_handle(self: Any, grid: Any) -> Callable[..., None]:
            return lambda *args, **kwargs: skip_call(self)

        run = jit.JITFunction.run
        with ExitStack() as stack:
            for owner, attribute, replacement in (
                (jit.JITFunction, "run", skip_run),
                (autotuner.Autotuner, "run", skip_call),
                (autotuner.Heuristics, "run", skip_call),
                (interpreter.GridExecutor, "__call__", skip_call),
                (_compiled_kernel(), "__getitem__", skip_handle),
            ):
                stack.enter_context(mock.patch.object(owner, attribute, replacement))
            yield skipped

    def kernel_names(self, module: ModuleType) -> frozenset[str]:
        """Names of all functions of the module's file that are made into kernels.

        Read from the text, so that kernels made inside functions are found too; a name is a
        kernel's even if it is decorated by a call (``kernel = triton.jit(function)``).
        """
        with open(module.__file__ or "", encoding="utf-8") as file:
            tree = parse(file.read())
        if isinstance(tree, Finding):
            return frozenset()
        interpreter = Interpreter(tree, "", None)
        interpreter.run()
        named = {kernel.node.name for kernel in interpreter.kernels.values()}
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and any(
                "jit" in ast.dump(decorator) for decorator in node.decorator_list
            ):
                named.add(node.name)
        return frozenset(named)


LANGUAGE = TritonLanguage()


def parse(source: str) -> ast.Module | Finding:
    """The syntax tree, or why there is none: also where Python would read another text."""
    if len(source.encode(errors="replace")) > MAX_SOURCE_BYTES:
        return Finding(1, f"the source is larger than {MAX_SOURCE_BYTES >> 20} MiB")
    for number, line in enumerate(source.splitlines()[:2], 1):
        cookie = _COOKIE.match(line)
        if cookie and cookie[1].lower().replace("_", "-") not in ("utf-8", "utf8", "ascii"):
            return Finding(number, f"source encoding {cookie[1]!r}: a candidate is UTF-8 text")
    try:
        source.encode()
        return ast.parse(source)
    except SyntaxError as error:
        return Finding(error.lineno or 1, f"syntax error: {error.msg}")
    except (ValueError, RecursionError, MemoryError) as error:
        return Finding(1, f"cannot be parsed: {error}")


def load_module(path: str, entry: str) -> Callable[..., Any]:
    """Imports a candidate's file as a module of its own; returns its function `entry`."""
    name = "kernelmark_candidate"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up by name
    spec.loader.exec_module(module)
    function: Callable[..., Any] = getattr(module, entry)
    return function


def _compiled_kernel() -> type:
    from triton.compiler import compiler

    kernel: type = compiler.CompiledKernel
    return kernel
