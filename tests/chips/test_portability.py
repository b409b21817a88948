"""Real compilations for targets that are not here, and every way in which they go wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kernelmark.evaluators.chips import _calls, _pretend
from kernelmark.evaluators.chips.portability import Compiler, portability
from kernelmark.evaluators.chips.registry import compile_targets
from kernelmark.evaluators.grading.channel import Channel
from kernelmark.evaluators.grading.records import Candidate, Portability
from kernelmark.operators.registry import UnknownName, get_operator

HEAD = "import torch\nimport triton\nimport triton.language as tl\n"
SOFTMAX = (
    HEAD
    + """
@triton.autotune([triton.Config({}, num_warps=4), triton.Config({}, num_warps=8)], key=["n"])
@triton.heuristics({"EVEN": lambda a: a["n"] % a["BLOCK"] == 0})
@triton.jit
def _softmax(x, o, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    if EVEN:
        v = tl.load(x + row * n + i).to(tl.float32)
    else:
        v = tl.load(x + row * n + i, mask=i < n, other=-float("inf")).to(tl.float32)
    v = tl.exp(v - tl.max(v, 0))
    tl.store(o + row * n + i, v / tl.sum(v, 0), mask=i < n)


def softmax(x, dim, dtype=None):
    assert x.is_cuda
    assert torch.cuda.get_device_properties(x.device).multi_processor_count > 1
    y = x.movedim(dim, -1).contiguous()
    o = torch.empty(y.shape, dtype=dtype or y.dtype, device="cuda")
    n = y.shape[-1]
    if y.numel():
        _softmax[(y.numel() // n,)](y, o, n, BLOCK=triton.next_power_of_2(n))
    return o.movedim(-1, dim)
"""
)
ONE_KERNEL = (
    HEAD
    + """
@triton.jit
def _kernel(x, o, N: tl.constexpr):
    i = tl.arange(0, N)
    BODY


def softmax(x, dim, dtype=None):
    o = torch.empty_like(x)
    _kernel[(1,)](x, o, 64)
    return o
"""
)
MATMUL = (
    HEAD
    + """
@triton.jit
def _dot(a, b, c, M: tl.constexpr, K: tl.constexpr):
    m, k = tl.arange(0, M), tl.arange(0, K)
    x = tl.load(a + m[:, None] * K + k[None, :]).to(tl.float16)
    y = tl.load(b + k[:, None] * M + m[None, :]).to(tl.float16)
    tl.store(c + m[:, None] * M + m[None, :], tl.dot(x, y))


def softmax(x, dim, dtype=None):
    o = torch.empty_like(x)
    _dot[(1,)](x, x, o, 64, 64)
    return o
"""
)


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler(limit_s=60, at_most=1) as compiler:
        yield compiler


def rows(compiler: Compiler, source: str, *targets: str) -> list[Portability]:
    candidate = Candidate("aten::softmax", source)
    return compiler.portability(candidate, get_operator("aten::softmax"), list(targets))


def body(text: str) -> str:
    return ONE_KERNEL.replace("BODY", text)


def test_softmax_compiles_for_all_targets(compiler: Compiler) -> None:
    found = rows(compiler, SOFTMAX, *compile_targets())
    assert [row.target for row in found] == compile_targets()
    for row in found:
        assert (row.status, row.error) == ("passed", ""), row
        assert [k.num_warps for k in row.kernels] == [4, 8]  # both configurations
        assert all("BLOCK=" in k.config and "EVEN=" in k.config for k in row.kernels)
        assert all(k.registers and k.registers > 0 for k in row.kernels)
        assert row.occupancy is not None
        assert 0 < row.occupancy <= 1
        assert row.matrix_instructions == 0


def test_matrix_instructions_are_seen(compiler: Compiler) -> None:
    for row in rows(compiler, MATMUL, "sm_80", "sm_90", "sm_100", "gfx942", "gfx1100"):
        assert row.status == "passed", row
        assert row.matrix_instructions, row
        assert row.kernels[0].shared_bytes, row


@pytest.mark.parametrize(
    ("source", "target", "status", "error"),
    [
        (body("tl.store(o + i, tl.load(x + missing))"), "sm_90", "build_error", "missing"),
        (body("tl.store(o + i, tl.made_up(i))"), "gfx942", "build_error", "made_up"),
        (
            body("tl.store(o + i, tl.load(x + i).to(tl.float8e4nv).to(tl.float32))"),
            "sm_80",
            "unsupported",
            "fp8e4nv",
        ),
        (body("tl.static_assert(N == 32)"), "sm_90", "build_error", "CompileTimeAssertionFailure"),
        (
            HEAD + "def softmax(x, dim, dtype=None):\n    return torch.softmax(x, dim)\n",
            "sm_90",
            "runtime_error",
            "launched no Triton kernel",
        ),
        (
            HEAD + "def softmax(x, dim, dtype=None):\n    raise ValueError('my own')\n",
            "gfx942",
            "runtime_error",
            "my own (line 5)",
        ),
        (HEAD + "import nothing_like_it\n", "sm_90", "runtime_error", "nothing_like_it"),
        (HEAD + "def other():\n    pass\n", "sm_90", "runtime_error", "softmax"),
        (
            HEAD + "import os\ndef softmax(x, dim, dtype=None):\n    os._exit(0)\n",
            "sm_90",
            "runtime_error",
            "ended early",
        ),
        (
            HEAD + "import os\ndef softmax(x, dim, dtype=None):\n    os.abort()\n",
            "sm_90",
            "runtime_error",
            "died of SIG",  # the first process of a namespace cannot abort: SIGSEGV
        ),
    ],
)
def test_what_goes_wrong_has_its_status(
    compiler: Compiler, source: str, target: str, status: str, error: str
) -> None:
    (row,) = rows(compiler, source, target)
    assert (row.status, error in row.error) == (status, True), row


def test_an_assembler_that_returns_nothing_is_a_build_error(compiler: Compiler) -> None:
    source = body(
        "j = tl.inline_asm_elementwise('v_nonsense_b32 $0, $1', '=v,v', [i],"
        " dtype=tl.int32, is_pure=True, pack=1)\n    tl.store(o + i, j.to(tl.float32))"
    )
    (row,) = rows(compiler, source, "gfx942")
    assert row.status == "build_error", row
    assert "v_nonsense_b32" in row.error or "nonsense" in row.error, row
    (row,) = rows(compiler, source.replace("=v,v", "=r,r"), "sm_90")
    assert row.status == "build_error", row


def test_too_much_shared_memory_is_a_build_error(compiler: Compiler) -> None:
    source = MATMUL.replace("64, 64)", "64, 512)")
    found = rows(compiler, source, "sm_120", "gfx942")
    assert [row.status for row in found] == ["build_error"] * 2, found
    assert all("shared memory" in row.error for row in found), found
    assert all("shared memory" in row.kernels[0].error for row in found), found


def test_a_hung_candidate_is_timed_out_and_gone() -> None:
    source = HEAD + "import time\ndef softmax(x, dim, dtype=None):\n    time.sleep(600)\n"
    with Compiler(limit_s=2, at_most=1) as compiler:
        (row,) = rows(compiler, source, "sm_90")
        assert row.status == "timed_out", row
        assert 2 <= row.seconds < 5
        (row,) = rows(compiler, SOFTMAX, "sm_90")  # the helper is none the worse
        assert row.status in ("passed", "timed_out")


def test_an_interrupted_answer_is_not_taken_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with Compiler() as compiler:
        with monkeypatch.context() as patch:
            patch.setattr(Channel, "receive", interrupted)
            with pytest.raises(KeyboardInterrupt):
                rows(compiler, HEAD + "import nothing_like_it\n", "sm_90")
        (row,) = rows(compiler, SOFTMAX, "sm_90")
    assert row.status == "passed", row.error


def test_noise_on_the_streams_is_harmless(compiler: Compiler) -> None:
    noise = "import sys\nprint('{}' * 100000)\nsys.stderr.write('x' * 100000)\n"
    (row,) = rows(compiler, noise + SOFTMAX, "sm_90")
    assert row.status == "passed", row


def test_a_second_time_comes_from_the_cache(tmp_path: Path) -> None:
    operator, candidate = get_operator("aten::softmax"), Candidate("aten::softmax", SOFTMAX)
    first = portability(candidate, operator, ["sm_90"], cache=tmp_path, at_most=1)
    with Compiler(cache=tmp_path, at_most=1) as compiler:
        assert compiler.portability(candidate, operator, ["sm_90"]) == first
        assert compiler._helper is None  # nothing was started
    assert len(list(tmp_path.rglob("*.json"))) == 1
    other = Candidate("aten::softmax", SOFTMAX + "\n# another")
    with Compiler(cache=tmp_path, at_most=1) as compiler:
        compiler.portability(other, operator, ["sm_90"])
        assert compiler._helper is not None


def test_only_triton_is_compiled() -> None:
    candidate = Candidate("aten::softmax", "import torch", language="library")
    (row,) = portability(candidate, get_operator("aten::softmax"), ["sm_90"])
    assert (row.status, "library" in row.error) == ("unsupported", True)


def test_unknown_target_offers_names(compiler: Compiler) -> None:
    with pytest.raises(UnknownName, match="sm_90"):
        rows(compiler, SOFTMAX, "sm90")


def test_cases_differ_in_dtypes_and_cost_no_memory() -> None:
    operator = get_operator("aten::softmax")
    cases = _calls.choose(operator, 8)
    assert len({(case.overload, case.dtypes) for case in cases}) == len(cases)
    made = _calls.make(operator, [case.name for case in cases])
    for case, (name, args, _) in zip(cases, made, strict=True):
        assert name == case.name
        spec = case.tensors[0]
        assert args[0].shape == spec.shape
        assert args[0].dtype == spec.dtype
        assert args[0].data_ptr() % 16 == spec.offset * spec.dtype.itemsize % 16


def test_the_second_call_has_what_a_target_is_likeliest_to_lack() -> None:
    def dtypes(id: str) -> list[set[torch.dtype]]:
        return [set(case.dtypes) for case in _calls.choose(get_operator(id), 2)]

    assert torch.bfloat16 in dtypes("aten::mm")[1]
    assert torch.float8_e4m3fn in dtypes("vllm::scaled_fp8_quant")[1]
    assert len(dtypes("cublas::cublasSgemm_v2")) == 1  # all of its calls have the same


def test_shapes_are_broadcast_as_torch_does() -> None:
    for shapes in ([], [(2,), (3, 1), (1, 1, 1)], [(0, 4), (1,)], [(), ()]):
        assert _pretend._broadcast_shapes(*shapes) == torch.broadcast_shapes(*shapes)
    with pytest.raises(RuntimeError):
        _pretend._broadcast_shapes((2,), (3,))


WARM = """
import triton
from kernelmark.evaluators.chips import _compile_worker, targets
plain, made = triton.compile, []
def compile(*args, **kwargs):
    plain(*args, **kwargs)
    made.append(kwargs["target"].arch)
triton.compile = compile
_compile_worker.warm_up(targets.CHIPS)
print(len(made))
"""


def test_the_helper_gets_ready_for_every_target() -> None:
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, "-c", WARM], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == [str(len(compile_targets()))], done.stderr
