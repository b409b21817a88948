"""What is seen of host code: elements that it reads, operators that it has torch compute."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from judging import KERNEL, judged, operator

from kernelmark.evaluators.grading.hostwork import MOST_READS, HostWork
from kernelmark.evaluators.grading.judge import Settings
from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages.triton import TritonLanguage
from kernelmark.operators.records import Case, Expected, TensorSpec

X = torch.arange(24.0).reshape(4, 6)
#: for every method that the scan lets host code call: one call of it
ARGUMENTS: dict[str, tuple[object, ...]] = {
    "reshape": (6, 4), "transpose": (0, 1), "permute": (1, 0), "unsqueeze": (0,),
    "unflatten": (1, (2, 3)), "movedim": (0, 1), "moveaxis": (0, 1), "swapaxes": (0, 1),
    "swapdims": (0, 1), "narrow": (0, 1, 2), "select": (0, 1), "as_strided": ((2,), (3,)),
    "broadcast_to": ((2, 4, 6),), "view": (24,), "view_as": (X,), "reshape_as": (X,),
    "expand": (2, 4, 6), "expand_as": (X,), "unfold": (0, 2, 1), "resize_": (2, 2),
    "unsqueeze_": (0,), "transpose_": (0, 1), "split": (2,), "chunk": (2,), "tensor_split": (2,),
    "split_with_sizes": ([1, 3],), "hsplit": (2,), "vsplit": (2,), "type": (torch.float64,),
    "to": (torch.float16,), "type_as": (X.half(),), "copy_": (X,), "fill_": (2.0,),
    "new_empty": (3,), "new_empty_strided": ((2,), (3,)), "new_zeros": (3,), "new_ones": (3,),
    "new_full": ((3,), 2.0), "new_tensor": ([1.0],), "is_same_size": (X,), "element_size": (),
}  # fmt: skip
#: not called: they want another tensor, another device, or are functions of torch alone
ELSEWHERE = {"view_as_complex", "view_as_real", "dsplit", "broadcast_tensors", "cuda", "setitem",
             "atleast_1d", "atleast_2d", "atleast_3d", "item"}  # fmt: skip
METHODS = sorted(
    (policy.TENSOR_VIEWS | policy.MANY_VIEWS | policy.CONVERT | policy.WRITE | policy.FILL
     | policy.NEW_EMPTY | policy.NEW_FILLED | policy.TENSOR_ASK) - ELSEWHERE
)  # fmt: skip

FUNCTIONS: dict[str, Callable[[], object]] = {
    "empty": lambda: torch.empty(3),
    "empty_like": lambda: torch.empty_like(X),
    "empty_strided": lambda: torch.empty_strided((2,), (3,)),
    "full": lambda: torch.full((3,), 2.0),
    "full_like": lambda: torch.full_like(X, 2.0),
    "zeros_like": lambda: torch.zeros_like(X),
    "ones": lambda: torch.ones(3),
    "arange": lambda: torch.arange(3),
    "tensor": lambda: torch.tensor([1, 2]),
    "as_tensor": lambda: torch.as_tensor(2.0),
    "scalar_tensor": lambda: torch.scalar_tensor(2.0),
    "broadcast_tensors": lambda: torch.broadcast_tensors(X, X[0]),
    "atleast": lambda: (torch.atleast_1d(X), torch.atleast_2d(X), torch.atleast_3d(X)),
    "complex views": lambda: torch.view_as_real(torch.view_as_complex(X.reshape(4, 3, 2))),
    "parts": lambda: (torch.view_as_complex(X.reshape(4, 3, 2)).real, X.T, X.mT, X.data),
    "asked": lambda: (torch.result_type(X, 2), torch.promote_types(torch.int8, torch.half)),
    "slices": lambda: (X[1], X[..., None, ::2], X[1:, 2]),
    "written": lambda: (X.clone().__setitem__((0, 1), 2.0), X.clone().__setitem__(0, X[1])),
    "random": lambda: torch.randint(2**31, (1,)),
}


def watched(work: Callable[[], object], inference: bool = False) -> HostWork:
    """What is seen of `work`."""
    with torch.inference_mode(inference), HostWork() as seen:
        work()
    return seen


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_what_the_scan_allows_is_no_computation(name: str, inference: bool) -> None:
    x = torch.ones(1, 1) if name in ("squeeze_", "squeeze") else X.clone()
    seen = watched(lambda: getattr(x, name)(*ARGUMENTS.get(name, ())), inference)
    assert (seen.computed, seen.reads) == (set(), 0)


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_the_scan_allows_are_no_computation(name: str, inference: bool) -> None:
    seen = watched(FUNCTIONS[name], inference)
    assert (seen.computed, seen.reads) == (set(), 0)


@pytest.mark.parametrize(
    ("work", "name"),
    [
        (lambda: X * 2, "aten::mul"),
        (lambda: X @ X.T, "aten::mm"),
        (lambda: X[[0, 1]], "aten::index"),
        (lambda: X[((0, 1),)], "aten::index"),
        (lambda: X.softmax(-1), "aten::_softmax"),
        (lambda: 0.0 in X, "aten::eq"),
        (lambda: torch.view_as_complex(X.reshape(4, 3, 2)).mH.imag.resolve_neg(), "aten::_conj"),
    ],
)
def test_computation_is_seen(work: Callable[[], object], name: str) -> None:
    assert name in watched(work).computed


@pytest.mark.parametrize(
    ("work", "reads"),
    [
        (lambda: X[0, 1].item(), 1),
        (lambda: float(X[0, 1]) + int(X[1, 1]), 2),
        (lambda: f"{X[0, 1]}", 1),
        (lambda: [1, 2][X[0, 1].long()], 1),
        (lambda: [bool(x) for x in X[0]], 6),
        (lambda: X[:, :1].expand(4, X[0, 2].long()), 1),
        (lambda: X.untyped_storage()[0], 1),
    ],
)
def test_reads_are_counted(work: Callable[[], object], reads: int) -> None:
    assert watched(work).reads == reads


def test_nothing_of_a_compiler_is_imported() -> None:
    code = (
        "import sys, torch\n"
        "from kernelmark.evaluators.grading.hostwork import HostWork\n"
        "with HostWork() as work: torch.ones(3)[0].item()\n"
        "assert work.reads == 1\n"
        "assert 'torch._dynamo' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


TWICE_KERNEL = (
    KERNEL
    + """
@triton.jit
def kernel(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def twice(self):
    x = self.contiguous()
    y = torch.empty_like(x)
    {}
    if x.numel():
        kernel[(triton.cdiv(x.numel(), 64),)](x, y, x.numel(), B=64)
    return y
"""
)


def blind(monkeypatch: pytest.MonkeyPatch) -> None:
    """The scan sees nothing; what stands behind it must do."""
    monkeypatch.setattr(TritonLanguage, "scan", lambda *args: [])


@pytest.mark.parametrize(
    ("line", "status", "words"),
    [
        ("pass", "passed", ""),
        ("n = [v.item() for v in x.reshape(-1)[:MOST]]", "passed", ""),
        ("n = [v.item() for v in x.reshape(-1)[: MOST + 1]]", "tampered", "read 9 elements"),
        ("z = x + x", "tampered", "computed with aten::add"),
    ],
)
def test_the_judge_says_what_host_code_did(
    monkeypatch: pytest.MonkeyPatch, line: str, status: str, words: str
) -> None:
    blind(monkeypatch)
    source = TWICE_KERNEL.format(line.replace("MOST", str(MOST_READS)))
    verdict = judged(source)
    assert verdict.status == status, verdict.message
    assert words in verdict.message
    assert verdict.evidence["host_reads"] <= MOST_READS + 1


SLOW = operator(
    "slow",
    "slow(self: Tensor) -> Tensor",
    lambda self: [Expected(self.double() * 2, self.dtype)],
    tuple(Case(f"case-{i}", (TensorSpec((70 + i,)),)) for i in range(40)),
)


def test_a_grade_ends_in_time_though_every_call_does(monkeypatch: pytest.MonkeyPatch) -> None:
    blind(monkeypatch)
    source = "import time\n" + TWICE_KERNEL.format("time.sleep(0.5)").replace(
        "def twice", "def slow"
    )
    verdict = judged(source, SLOW, Settings(timeout_s=30.0, grade_timeout_s=4.0, timing=False))
    assert verdict.status == "timed_out"
    assert "longer than 4 s in all (each call may take 30 s)" in verdict.message
    assert verdict.seconds < 30


def test_the_limit_holds_inside_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    blind(monkeypatch)
    source = "import time\n" + TWICE_KERNEL.format("time.sleep(600)").replace(
        "def twice", "def slow"
    )
    verdict = judged(source, SLOW, Settings(timeout_s=500.0, grade_timeout_s=3.0, timing=False))
    assert verdict.status == "timed_out"
    assert "longer than 3 s in all" in verdict.message
    assert verdict.seconds < 60
