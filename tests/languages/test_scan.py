"""The scan, idiom by idiom: what it must let pass and what it must see through."""

from __future__ import annotations

import textwrap

import pytest

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.operators.registry import get_operator

HEAD = """\
import torch
import triton
import triton.language as tl


@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + at, tl.load(x_ptr + at, mask=at < n), mask=at < n)


def launch(x, y):
    kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), BLOCK=128)
"""


def scan(text: str, operator: str = "aten::softmax", entry: str = "") -> list[Finding]:
    """Findings of the Triton scan over `HEAD` and `text`."""
    found = get_operator(operator)
    source = HEAD + "\n\n" + textwrap.dedent(text)
    return get_language("triton").scan(source, entry or found.name, found)


def body(lines: str, top: str = "") -> str:
    """An entry point for softmax with `lines` in it, and `top` before it."""
    inside = textwrap.indent(textwrap.dedent(lines).strip("\n"), "    ")
    start = "def softmax(self, dim, dtype=None):\n    y = torch.empty_like(self)\n"
    return f"{textwrap.dedent(top)}\n\n{start}    launch(self, y)\n{inside}\n"


HONEST = {
    "shape arithmetic": "n = self.shape[-1] * 2 + self.numel() // 3\nreturn y",
    "shapes compared": "if self.shape == y.shape and self.dim() > 0:\n    return y\nreturn y",
    "new_empty": "z = self.new_empty(self.shape)\nlaunch(self, z)\nreturn z",
    "finfo": "top = torch.finfo(self.dtype).max\nlow = torch.iinfo(torch.int32).min\nreturn y",
    "promotion": "d = torch.promote_types(self.dtype, torch.float16)\n"
    "e = torch.result_type(self, 2.0)\nreturn y",
    "broadcasting": "a, b = torch.broadcast_tensors(self, y)\n"
    "s = torch.broadcast_shapes(a.shape, (1,))\nreturn y",
    "views": "z = y.view(-1).unsqueeze(0).expand(2, -1).permute(1, 0).t()[0, ..., None]\nreturn y",
    "views by slices": "z = y[..., :1] if y.dim() else y\nreturn y",
    "as_strided": "z = y.as_strided((y.numel(),), (1,), y.storage_offset())\nreturn y",
    "moves": "z = self.contiguous().clone().to(torch.float32)\nz.zero_()\nreturn y",
    "device properties": "p = torch.cuda.get_device_properties(self.device)\n"
    "n = p.multi_processor_count * 2\nreturn y",
    "current device": "d = torch.cuda.current_device()\n"
    "s = torch.cuda.current_stream().cuda_stream\nreturn y",
    "device context": "with torch.cuda.device(self.device):\n    launch(self, y)\nreturn y",
    "device strings": "z = torch.empty(3, device=f'{self.device.type}:0')\nreturn y",
    "shape lists": "s = list(self.shape)\nif s:\n    s[-1] = 1\ns.append(2)\n"
    "z = torch.empty(s + [3], device=self.device)\nreturn y",
    "strides unpacked": "a, *rest = (*self.stride(), 0, 0)\nreturn y",
    "errors": "if self.dim() > 9:\n    raise NotImplementedError(f'{self.dim()} dims')\nreturn y",
    "asserts": "assert isinstance(self, torch.Tensor) and self.dtype.is_floating_point\nreturn y",
    "printing": "print('softmax', self.shape)\nreturn y",
    "item": "n = int(self.reshape(-1)[0].item()) if self.numel() else 0\nm = n * 2\nreturn y",
    "alignment": "aligned = self.data_ptr() % 16 == 0 and y.data_ptr() % 16 == 0\nreturn y",
    "try": "try:\n    launch(self, y)\nexcept RuntimeError:\n    launch(self, y)\nreturn y",
    "walrus": "if (n := self.numel()) > 3:\n    n += 1\nreturn y",
    "narrowing": "other = self if dim else 2.0\n"
    "z = other.numel() if isinstance(other, torch.Tensor) else other * 2\nreturn y",
    "narrowing by return": "other = self if dim else 2.0\n"
    "if torch.is_tensor(other):\n    return y\nz = other * 2 + 1\nreturn y",
    "optional tensor": "bias = self if dim else None\nif bias is not None:\n    n = bias.numel()\n"
    "return y",
    "hasattr": "other = self if dim else 3\n"
    "n = 1 if hasattr(other, 'numel') else other * 2\nreturn y",
    "loop with break": "n = 1\nfor i in range(9):\n    n *= 2\n"
    "    if n > 4:\n        break\nreturn y",
    "table of kernels": "table = {torch.float32: kernel}\nk = table.get(self.dtype, kernel)\n"
    "k[(1,)](self, y, 1, BLOCK=128)\nreturn y",
    "grid function": "def grid(meta):\n    return (triton.cdiv(meta['n'], meta['BLOCK']),)\n\n"
    "kernel[grid](self, y, self.numel(), BLOCK=64)\nreturn y",
    "closures": "n = self.numel()\ngrid = lambda meta: (n // meta['BLOCK'] + 1,)\n"
    "kernel[grid](self, y, n, BLOCK=64)\nreturn y",
    "comprehension over tensors": "total = sum(t.numel() for t in (self, y))\n"
    "strides = [s * 2 for t in (self, y) for s in t.stride()]\nreturn y",
    "dict of numbers": "cfg = {'a': 1, 'x': self}\nn = cfg['a'] + 1\nreturn y",
    "keyword dict": "options = dict(BLOCK=128, num_warps=4)\n"
    "kernel[(1,)](self, y, 1, **options)\nreturn y",
    "tensors zipped": "for t, s in zip((self, y), (1, 2)):\n    n = t.numel() * s\nreturn y",
    "enumerated": "for i, t in enumerate([self, y]):\n    n = i * 2\nreturn y",
    "starred between tensors": "args = (self, y)\nkernel[(1,)](*args, 1, BLOCK=128)\nreturn y",
    "sorted sizes": "order = sorted(range(self.dim()), key=lambda d: -self.stride(d))\nreturn y",
    "target": "from triton.runtime import driver\n"
    "hip = driver.active.get_current_target().backend == 'hip'\nreturn y",
    "main guard": "return y\n\n\nif __name__ == '__main__':\n    print(torch.randn(3).softmax(0))",
    "unused reference": "return y\n\n\ndef reference(x):\n    return torch.softmax(x, -1)",
    "type checking": "return y\n\n\nfrom typing import TYPE_CHECKING\n\nif TYPE_CHECKING:\n"
    "    import numpy",
    "argument named like a builtin": "def inner(input, id, vars):\n"
    "    return input.numel() + id\n\nn = inner(self, 1, 2)\nreturn y",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_idiom(name: str) -> None:
    assert scan(body(HONEST[name])) == []


HONEST_TOPS = {
    "config table": ("CONFIGS = {n: {'BLOCK': n} for n in (64, 128)}", "c = CONFIGS[64]\nreturn y"),
    "config cache": (
        "CACHE = {}",
        "key = (self.shape, self.dtype)\nif key not in CACHE:\n    CACHE[key] = 64 * 2\nreturn y",
    ),
    "cached function of numbers": (
        "import functools\n\n\n@functools.lru_cache(maxsize=8)\n"
        "def pick(n, dtype):\n    return n * 2",
        "n = pick(self.numel(), self.dtype)\nreturn y",
    ),
    "slots": (
        "class C:\n    __slots__ = ('n',)\n\n    def __init__(self, n):\n        self.n = n * 2",
        "n = C(self.numel()).n + 1\nreturn y",
    ),
    "kernel factory": (
        "def make():\n    @triton.jit\n    def inner(x_ptr, n):\n        tl.store(x_ptr, n)\n\n"
        "    return inner\n\n\nMADE = make()",
        "MADE[(1,)](y, 1)\nreturn y",
    ),
    "descriptor hook": (
        "from triton.tools.tensor_descriptor import TensorDescriptor\n\n\n"
        "def hook(nargs):\n    nargs['x_desc'].block_shape = [nargs['BLOCK'], 64]\n\n\n"
        "@triton.autotune([triton.Config({'BLOCK': 64}, pre_hook=hook)], key=['n'])\n@triton.jit\n"
        "def tuned(x_desc, n, BLOCK: tl.constexpr):\n    x_desc.load([0, 0])",
        "tuned[(1,)](TensorDescriptor.from_tensor(y, [64, 64]), 1)\nreturn y",
    ),
    "launch metadata": (
        "def note(grid, kernel, args):\n"
        "    return {'name': f\"{kernel.name} {args['n'] * 2}\", "
        "'bytes': args['x_ptr'].numel() * args['x_ptr'].element_size()}\n\n\n"
        "@triton.jit(launch_metadata=note)\ndef noted(x_ptr, n):\n    tl.store(x_ptr, n)",
        "noted[(1,)](y, 1)\nreturn y",
    ),
    "zeroing hook": (
        "@triton.autotune([triton.Config({'BLOCK': 64}, "
        "pre_hook=lambda nargs: nargs['x_ptr'].zero_())], key=['n'])\n@triton.jit\n"
        "def tuned(x_ptr, n, BLOCK: tl.constexpr):\n    tl.atomic_add(x_ptr, n)",
        "tuned[(1,)](y, 1)\nreturn y",
    ),
    "stride tuple then tensors": (
        "@triton.autotune([triton.Config({'BLOCK': 64})], key=['n'])\n@triton.jit\n"
        "def tuned(x_ptr, a, b, y_ptr, n, BLOCK: tl.constexpr):\n    tl.store(y_ptr, n)",
        "tuned[(1,)](self, *self.stride(), y, 1)\nreturn y",
    ),
}


@pytest.mark.parametrize("name", HONEST_TOPS)
def test_honest_module(name: str) -> None:
    top, lines = HONEST_TOPS[name]
    assert scan(body(lines, top)) == []


DISHONEST = {
    "operator": "return y + self",
    "reflected operator": "return 2.0 * self",
    "comparison": "return self == y",
    "gathering": "return y[self]",
    "gathering by list": "return y[[0, 1]]",
    "tensor in a list": "xs = [self]\nzs = xs\nxs.append(y)\nreturn zs[1] * 2",
    "tensor in a dict": "d = {}\nd['a'] = self\nreturn d.get('a') * 2",
    "tensor as a key": "d = {self: 1}\nfor k in d:\n    return k * 2\nreturn y",
    "tensor in keys()": "d = dict.fromkeys([self], 1)\nreturn [k * 2 for k in d.keys()][0]",
    "tensor in an object": "class C:\n    pass\n\nc = C()\nc.x = self\nreturn c.x * 2",
    "tensor in an error": "try:\n    raise ValueError(self)\nexcept ValueError as e:\n"
    "    return e.args[0] * 2",
    "tensor in an enumeration": "import enum\n\nclass E(enum.Enum):\n    A = self\n\n"
    "return E['A'].value * 2",
    "tensor by a generator": "def g():\n    yield self\n\nreturn next(g()) * 2",
    "tensor by cast": "from typing import cast\nreturn cast(int, self) * 2",
    "tensor by star": "def f(*a):\n    return a[0] * 2\n\nreturn f(*[self])",
    "tensor by double star": "def f(**k):\n    return k['x'] * 2\n\nreturn f(x=self)",
    "tensor by default": "def f(a=self):\n    return a * 2\n\nreturn f()",
    "tensor by zip": "return [a * b for a, b in zip([self], [2])][0]",
    "tensor by reduce": "import functools\nreturn functools.reduce(lambda a, b: a * b, [self, y])",
    "tensor by nonlocal": "z = 1\n\ndef f():\n    nonlocal z\n    z = self\n\nf()\nreturn z * 2",
    "tensor after break": "z = 1\nfor i in range(3):\n    z = self\n    break\nreturn z * 2",
    "tensor after try": "z = 1\ntry:\n    z = self\n    raise ValueError\nexcept ValueError:\n"
    "    pass\nreturn z * 2",
    "tensor after loop": "a = b = c = 1\nfor i in range(9):\n    c = b\n    b = a\n    a = self\n"
    "return c * 2",
    "match": "match self:\n    case z:\n        return z * 2",
    "own class as a type": "from abc import ABC\n\nclass N(ABC):\n    pass\n\n"
    "N.register(torch.Tensor)\nif isinstance(self, (N, int)):\n    return self * 2\nreturn y",
    "hidden isinstance": "isinstance = lambda a, b: False\n"
    "if isinstance(self, torch.Tensor):\n    return y\nreturn self * 2",
    "builtin by comprehension": "[eval for eval in ()]\nreturn eval('self * 2')",
    "format with attributes": "return '{0.__class__}'.format_map({})",
    "annotation that runs": "z: __import__('os') = 1\nreturn y",
    "annotation of an argument": "def f(a: print(1)):\n    return a\n\nreturn y",
    "delegation": "return y.where(y > 0, self)",
    "augmented": "y *= 2\nreturn y",
    "subscripted write of a product": "y[:] = self * 2\nreturn y",
    "type then call": "return type(self)(y)",
    "to the host": "return torch.tensor(self.tolist())",
    "random": "return torch.rand_like(self)",
    "stream": "s = torch.cuda.current_stream()\ns.synchronize()\nreturn y",
    "out argument": "return torch.zeros(3, out=y)",
    "fill by a tensor": "return torch.full((3,), fill_value=self)",
    "metaclass": "class M(metaclass=type):\n    pass\n\nreturn y",
    "decorated class": "@torch.compile\nclass M:\n    pass\n\nreturn y",
}


@pytest.mark.parametrize("name", DISHONEST)
def test_dishonest_idiom(name: str) -> None:
    assert scan(body(DISHONEST[name]))


DISHONEST_TOPS = {
    "builtin after del": "open = 1\ndel open\nFILE = open('/tmp/x')",
    "builtin declared only": "eval: int\nX = eval('1')",
    "builtin in a class": "class C:\n    if 0:\n        eval = 1\n    x = eval('1')",
    "builtin made global": "def f():\n    global exec\n    exec = 1\n\n\nexec('1')",
    "star import": "from math import *",
    "relative import": "from . import secrets",
    "module of a module": "import typing\nM = typing.sys",
    "private module": "import torch._C",
    "hook that computes": "@triton.jit(launch_metadata=lambda g, k, a: a['x_ptr'] * 2)\n"
    "def odd(x_ptr):\n    tl.load(x_ptr)\n\n\ndef g(x):\n    odd[(1,)](x)\n\n\n"
    "class G:\n    pass",
    "heuristic that hands over a function": "@triton.heuristics({'F': lambda args: launch})\n"
    "@triton.jit\ndef odd(x_ptr, F: tl.constexpr):\n    F(x_ptr)",
    "configuration that hands over a function": "@triton.autotune([triton.Config({'F': launch})], "
    "key=[])\n@triton.jit\ndef odd(x_ptr, F: tl.constexpr):\n    F(x_ptr)",
    "default that hands over a function": "@triton.jit\ndef odd(x_ptr, F: tl.constexpr = launch):\n"
    "    F(x_ptr)",
    "table of host functions": "TABLE = [launch]\n\n\n@triton.jit\ndef odd(x_ptr):\n"
    "    TABLE[0](x_ptr)",
    "shadowed in a kernel": "@triton.jit\ndef odd(x_ptr):\n    [torch for torch in (0,)]\n"
    "    torch.softmax(x_ptr, 0)",
    "nested function in a kernel": "@triton.jit\ndef odd(x_ptr):\n    def f():\n        pass\n",
    "import in a kernel": "@triton.jit\ndef odd(x_ptr):\n    import os\n",
}


@pytest.mark.parametrize("name", DISHONEST_TOPS)
def test_dishonest_module(name: str) -> None:
    uses = "odd[(1,)](self)\nreturn y" if "def odd(" in DISHONEST_TOPS[name] else "return y"
    assert scan(body(uses, DISHONEST_TOPS[name]))


def test_the_line_and_the_advice() -> None:
    text = body("return torch.softmax(self, dim)")
    (finding,) = scan(text)
    lines = f"{HEAD}\n\n{text}".splitlines()
    assert "torch.softmax" in lines[finding.line - 1]
    assert "torch.softmax" in finding.reason
    assert "Triton kernel" in finding.reason


@pytest.mark.parametrize(
    ("source", "line", "word"),
    [
        ("def softmax(:\n", 1, "syntax error"),
        ("x = 1\0\n", 1, ""),
        ("# -*- coding: utf-7 -*-\n", 1, "encoding"),
        ("x = 1\n", 1, "entry point"),
        ("(" * 5000 + ")" * 5000, 1, ""),
        ("x = " + "-" * 20000 + "1\n", 1, ""),
        ("\ud800", 1, ""),
        ("def softmax(self, dim, dtype=None):\n    return self\n", 1, "no Triton kernel"),
    ],
)
def test_files_that_are_no_candidates(source: str, line: int, word: str) -> None:
    findings = get_language("triton").scan(source, "softmax", get_operator("aten::softmax"))
    assert findings
    assert findings[0].line == line
    assert word in findings[0].reason


def test_code_without_end_is_refused_in_time() -> None:
    deep = "\n".join(f"def f{i}(x):\n    return f{i + 1}((x, x)), f{i + 1}([x])" for i in range(40))
    findings = scan(body("return f0(self)", deep + "\n\n\ndef f40(x):\n    return x\n"))
    assert findings == [] or "intricate" in findings[0].reason


def test_overloads_are_told_apart() -> None:
    text = """
    def rsub(self, other, alpha=1, *, out=None):
        y = torch.empty_like(self)
        launch(self, y)
        {}
        return y
    """
    assert scan(text.format("z = other * alpha"), "aten::rsub")
    narrowed = "z = 0 if isinstance(other, torch.Tensor) else other * alpha"
    assert scan(text.format(narrowed), "aten::rsub") == []


def test_moving_is_refused_to_operators_whose_work_it_is() -> None:
    text = """
    def {}(tensors, dim=0, *, out=None):
        y = torch.empty_like(tensors[0])
        launch(tensors[0], y)
        y[:1] = tensors[0]
        return y
    """
    assert "own work" in scan(text.format("cat"), "aten::cat")[0].reason
    assert scan(text.format("softmax").replace("tensors[0]", "tensors")) == []
