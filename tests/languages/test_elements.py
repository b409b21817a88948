"""Elements of tensors that come to the host: what the scan follows, and what it lets be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.languages.test_scan import HEAD, body, scan

HERE = Path(__file__).parent
PUT = """
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import logging
import math
import operator
import typing
import warnings


@triton.jit
def put(y_ptr, v):
    tl.store(y_ptr, v)
"""


def snippets(name: str) -> dict[str, str]:
    """The pieces of a text file, by what stands behind ``===``."""
    parts = re.split(r"^=== (.+)$", (HERE / name).read_text(), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (code.strip("\n") for code in parts[2::2]), strict=True))


ELEMENTS = snippets("elements.txt")
HIDDEN = snippets("hidden_tensors.txt")
KERNELS = snippets("kernels.txt")

HONEST = {
    "a length for a grid": "n = int(self[0, 0].item())\nkernel[(n,)](self, y, 1, BLOCK=64)",
    "a length for a grid, divided": "n = int(self[0, 0])\n"
    "kernel[(triton.cdiv(n, 64),)](self, y, n, BLOCK=64)",
    "in a grid function": "n = self[0, 0].item()\n"
    "kernel[lambda meta: (triton.cdiv(n, meta['BLOCK']),)](self, y, n, BLOCK=64)",
    "a factor as it is": "put[(1,)](y, self[0, 0].item())",
    "a factor as a float": "put[(1,)](y, float(self[0, 0]))",
    "a factor or none": "v = self[0, 0].item() if dim is not None else 1.0\nput[(1,)](y, v)",
    "a factor from either": "v = self[0, 0] if dim else 2.0\n"
    "put[(1,)](y, v.item() if isinstance(v, torch.Tensor) else v)",
    "a size": "z = torch.empty(int(self[0, 0]), 4)\nlaunch(self, z)\nput[(1,)](z, z.numel())",
    "a size, and arithmetic with it": "z = self.new_empty((int(self[0, 0]), 4))\n"
    "kernel[(1,)](z, y, z.shape[0] * z.stride(0), BLOCK=triton.next_power_of_2(z.numel()))",
    "a slice": "n = int(self[0, 0])\nz = y.reshape(-1)[:n]\nlaunch(z, z)",
    "a part": "start, end = int(self[0, 0]), int(self[0, 1])\nlaunch(self[start:end], y)",
    "nothing to do": "n = int(self[0, 0])\nif n == 0:\n    return torch.empty_like(self)\n"
    "put[(n,)](y, n)",
    "nothing to do, in a list": "def parts(n):\n    if n == 0:\n"
    "        return [torch.empty(0) for _ in range(2)]\n    return [torch.empty(n), torch.empty(n)]"
    "\n\na, b = parts(int(self[0, 0]))\nkernel[(1,)](a, b, b.numel(), BLOCK=64)",
    "only if there is any": "n = int(self[0, 0])\nif n:\n    m = self.shape[-1]\n"
    "    kernel[(n,)](self, y, m, BLOCK=triton.next_power_of_2(m))",
    "a loop over launches": "for i in range(int(self[0, 0])):\n"
    "    kernel[(1,)](self[i], y[i], self.shape[-1], BLOCK=64)",
    "a loop with continue": "for i in range(2):\n    n = int(self[0, i])\n    if n == 0:\n"
    "        continue\n    block = 64\n    kernel[(n,)](self, y, n, BLOCK=block)",
    "one of two kernels": "n = int(self[0, 0])\nif n > 9:\n    launch(self, y)\nelse:\n"
    "    kernel[(1,)](self, y, n, BLOCK=64)",
    "an error that tells": "n = int(self[0, 0])\nif n < 0:\n    raise ValueError(f'{n} < 0')",
    "asserted": "n = int(self[0, 0])\nassert n >= 0, n\nput[(n,)](y, n)",
    "in a tuple with sizes": "n, m = int(self[0, 0]), self.shape[-1]\nsizes = (n, m)\n"
    "kernel[(sizes[0],)](self, y, sizes[1], BLOCK=triton.next_power_of_2(sizes[1]))",
    "in an object": "class Plan:\n    def __init__(self, n, block):\n        self.n = n\n"
    "        self.block = block\n\nplan = Plan(int(self[0, 0]), 64)\n"
    "kernel[(plan.n,)](self, y, plan.n, BLOCK=plan.block)",
    "by keyword": "options = dict(n=self[0, 0].item())\nkernel[(1,)](self, y, BLOCK=64, **options)",
    "tested by size": "block = 64 if self.numel() < 100 else 128\ncount = 0\n"
    "for n in self.shape:\n    if n > 1:\n        count += 1\n"
    "kernel[(count,)](self, y, count, BLOCK=block)",
    "found in a try": "try:\n    block = {1: 64}[self.dim()]\nexcept KeyError:\n    block = 128\n"
    "kernel[(1,)](self, y, 1, BLOCK=block)",
    "text of sizes": "name = f'{tuple(self.shape)} {self.dtype}'\nput[(1,)](y, len(name))",
    "None in a list": "if None in [self, y]:\n    return y",
    "a kernel given a named tuple": "N = collections.namedtuple('N', 'a b')\n@triton.jit\n"
    "def k(x_ptr, n):\n    tl.store(x_ptr + n.a, n.b)\nk[(1,)](self, N(1, 2))",
    "a kernel given a function of the language": "@triton.jit\ndef k(x_ptr, F: tl.constexpr):\n"
    "    tl.store(x_ptr, F(tl.load(x_ptr)))\nk[(1,)](self, F=tl.exp)",
    "a kernel given a type and infinity": "@triton.jit\ndef k(x_ptr, top, D: tl.constexpr):\n"
    "    tl.store(x_ptr, tl.minimum(tl.load(x_ptr), top).to(D))\n"
    "k[(1,)](self, math.inf, D=tl.float16)",
    "getattr in a kernel": "@triton.jit\ndef k(x_ptr):\n    f = getattr(tl, 'exp')\n"
    "    tl.store(x_ptr, f(tl.load(x_ptr)))\nk[(1,)](self)",
    "members of tensors in a kernel": "@triton.jit\ndef k(x_ptr):\n"
    "    t = (tl.load(x_ptr + tl.arange(0, 4)), 1)\n    tl.store(x_ptr, t[0].max(0))\n"
    "k[(1,)](self)",
    "a constexpr function": "@triton.constexpr_function\ndef half(n):\n"
    "    return n // 2 if n > 1 else 1\n\n@triton.jit\ndef k(x_ptr, B: tl.constexpr):\n"
    "    tl.store(x_ptr, half(B))\n\nk[(1,)](self, B=4)",
    "a list that grows": "parts = []\nfor i in range(2):\n    parts.append(self[i])\n"
    "parts += [y]\nparts[0:1] = [self]\nlaunch(*parts[:2])",
}


def test_there_are_many() -> None:
    assert len(ELEMENTS) > 180
    assert len(HIDDEN) > 100


@pytest.mark.parametrize("name", ELEMENTS)
def test_elements_reach_no_answer(name: str) -> None:
    assert scan(body(ELEMENTS[name] + "\nreturn y", PUT))


@pytest.mark.parametrize("name", HIDDEN)
def test_hidden_tensors_are_found(name: str) -> None:
    assert scan(body(HIDDEN[name] + "\nreturn y", PUT))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_keep_what_they_read(name: str) -> None:
    assert scan(body(KERNELS[name] + "\nreturn y", PUT))


TOPS = {
    "a constexpr function that remembers": "@triton.constexpr_function\n"
    "def tell(v):\n    SEEN.append(v)\n    return 0",
    "a constexpr function that reaches in": "@triton.constexpr_function\n"
    "def tell(v):\n    return v.handle.data",
    "a kernel that appends": "@triton.jit\ndef k(x_ptr):\n    SEEN.append(tl.load(x_ptr))",
}


@pytest.mark.parametrize("name", TOPS)
def test_kernels_keep_what_they_read_at_top_level(name: str) -> None:
    assert scan(body("return y", f"{PUT}\n\nSEEN = []\n\n\n{TOPS[name]}"))


@pytest.mark.parametrize("name", HONEST)
def test_honest_reads(name: str) -> None:
    assert scan(body(HONEST[name] + "\nreturn y", PUT)) == []


def test_the_line_and_what_to_do_instead() -> None:
    text = body("v = self[0, 0].item()\nput[(1,)](y, v * 2)\nreturn y", PUT)
    (finding,) = scan(text)
    lines = f"{HEAD}\n\n{text}".splitlines()
    assert "put[(1,)](y, v * 2)" in lines[finding.line - 1]
    assert "give a kernel the tensor, and compute it there" in finding.reason


def test_a_number_may_be_answered_with_as_it_is() -> None:
    text = "def {}(self):\n    launch(self, self)\n    return self.item(){}\n"
    assert scan(text.format("item", ""), "aten::item") == []
    (finding,) = scan(text.format("item", " * 2"), "aten::item")
    assert "answers with a number that host code made" in finding.reason


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        ("while True:\n    pass", ""),
        ("while 1:\n    for i in range(3):\n        break", ""),
        ("while True:\n    break", "no Triton kernel"),
        ("while True:\n    return self", "no Triton kernel"),
        ("while self.numel():\n    pass", "no Triton kernel"),
        ("while True:\n    try:\n        break\n    finally:\n        pass", "no Triton kernel"),
        ("while True:\n    while True:\n        pass\n    break", "no Triton kernel"),
        ("for i in range(3):\n    pass", "no Triton kernel"),
        ("while True:\n    self * 2", "`*` on a tensor"),
    ],
)
def test_who_never_returns_needs_no_kernel(lines: str, word: str) -> None:
    text = "\n".join(f"    {line}" for line in lines.splitlines())
    findings = scan(f"def softmax(self, dim, dtype=None):\n{text}\n")
    assert word in findings[0].reason if word else findings == []


def test_a_class_is_no_entry_point() -> None:
    (finding,) = scan("class softmax:\n    pass\n")
    assert "is a class: the entry point is a function" in finding.reason
