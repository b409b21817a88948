"""Tiny operators and candidates for the judge's tests; everything runs on the interpreter."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable, Collection
from pathlib import Path

import torch

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.records import Candidate, Verdict
from kernelmark.operators.records import (
    Alias,
    Case,
    Cost,
    Expected,
    Operator,
    TensorSpec,
    Tolerance,
)


def operator(name: str, signature: str, oracle, cases, **more) -> Operator:
    """An operator with only what the judge looks at."""
    return Operator(
        id=f"aten::{name}",
        family="test",
        signatures=(signature,),
        description="for tests",
        sources=("none",),
        cases=lambda: cases,
        oracle=oracle,
        second=oracle,
        baseline=oracle,
        baseline_name="none",
        cost=lambda case: Cost(0, 0),
        tolerance=more.pop("tolerance", Tolerance(limit=2.0)),
        **more,
    )


TWICE = operator(
    "twice",
    "twice(self: Tensor) -> Tensor",
    lambda self: [Expected(self.double() * 2, self.dtype)],
    (
        Case("vector", (TensorSpec((70,)),)),
        Case("half", (TensorSpec((3, 40), torch.float16),)),
        Case("strided", (TensorSpec((4, 5), strides=(11, 2), offset=3),)),
        Case("empty", (TensorSpec((0, 4)),)),
    ),
)

TWICE_INPLACE = operator(
    "twice_",
    "twice_(self: Tensor!) -> Tensor!",
    lambda self: [Expected(self.double() * 2, self.dtype)],
    (
        Case("vector", (TensorSpec((70,)),)),
        Case("strided", (TensorSpec((4, 5), strides=(11, 2), offset=3),)),
    ),
)

ROW = operator(
    "row",
    "row(self: Tensor, index: int) -> Tensor",
    lambda self, index: [
        Alias(
            0, (self.shape[1],), (self.stride(1),), self.storage_offset() + index * self.stride(0)
        )
    ],
    (Case("second", (TensorSpec((4, 5), offset=2), 1)),),
    kind="metadata",
)

TOTAL = operator(
    "total",
    "total(self: Tensor) -> Scalar",
    lambda self: [int(self.sum())],
    (Case("integers", (TensorSpec((9,), torch.int64, "integers", 0, 9),)),),
    tolerance=Tolerance(kind="exact", limit=0.0),
    kind="metadata",
)

KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def double(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    v = tl.load(x + i, mask=i < n)
    tl.store(y + i, v * 2, mask=i < n)

def launch(x, y):
    if x.numel():
        double[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), B=64)
    return y
"""

HONEST = (
    KERNEL
    + """
def twice(self):
    x = self.contiguous()
    return launch(x, torch.empty_like(x))
"""
)


def body(text: str) -> str:
    """A candidate that does `text` before it answers rightly."""
    lines = "\n".join("    " + line for line in text.strip().splitlines())
    return (
        KERNEL
        + f"""
import ctypes, os, sys, threading, time, socket, json
kept = {{}}
calls = []
def twice(self):
    x = self.contiguous()
{lines}
    return launch(x, torch.empty_like(x))
"""
    )


QUICK = Settings(timeout_s=20.0)


def judged(
    source: str, operator: Operator = TWICE, settings: Settings = QUICK, entry: str = ""
) -> Verdict:
    """The verdict on the interpreter."""
    candidate = Candidate(operator.id, source, entry=entry)
    return grade(candidate, operator, get_chip("interpreter"), settings)


#: in the environment of every helper process that this test process causes, orphans too
_MARK = f"CUDA_TEST_MARK={uuid.uuid4()}"
os.environ.update([_MARK.split("=")])


def helpers() -> set[int]:
    """Ids of the server and runner processes, and whatever they started, that live now.

    They have sessions of their own: what else the tests of this process started (multiprocessing's
    resource tracker, say) does not."""
    found = set()
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            marked = _MARK.encode() in (folder / "environ").read_bytes()
            if marked and os.getsid(int(folder.name)) != os.getsid(0):
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def vanishes(living: Callable[[], Collection[object]], within_s: float = 20.0) -> bool:
    """Whether nothing is left before long: the kernel takes a moment to bury a process."""
    deadline = time.monotonic() + within_s
    while living() and time.monotonic() < deadline:
        time.sleep(0.02)
    return not living()
