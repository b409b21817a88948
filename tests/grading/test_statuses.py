"""Every status that a candidate can earn from the judge, each by a candidate that earns it.

The scan would refuse most of these before they run; here it is open, so that the gates behind it
have to see for themselves.
"""

from __future__ import annotations

import pytest
import torch
from judging import (
    HONEST,
    KERNEL,
    ROW,
    TOTAL,
    TWICE,
    TWICE_INPLACE,
    body,
    helpers,
    judged,
    operator,
    vanishes,
)

from kernelmark.evaluators.grading.judge import Settings
from kernelmark.evaluators.grading.workers import close_servers
from kernelmark.evaluators.languages.triton import TritonLanguage
from kernelmark.operators.records import Case, Expected, TensorSpec, Tolerance


@pytest.fixture
def no_scan(monkeypatch):
    monkeypatch.setattr(TritonLanguage, "scan", lambda *args: [])


def test_honest_passes_and_says_how():
    verdict = judged(HONEST)
    assert (verdict.status, verdict.message) == ("passed", "right; not timed: interpreter")
    assert [g.name for g in verdict.gates] == [
        "scan",
        "build",
        "correctness",
        "integrity",
        "timing",
    ]
    assert all(gate.passed for gate in verdict.gates)
    assert {c.case for c in verdict.comparisons} == {"vector", "half", "strided", "empty"}
    assert verdict.environment["isolation"]


FAULTS = {
    "syntax": ("def twice(:", "build_error", "syntax"),
    "import fails": (KERNEL + "nothing_of_the_kind\ndef twice(self): ...", "build_error", "line"),
    "no entry": (KERNEL, "build_error", "twice"),
    "raises": (body("raise ValueError('no such luck')"), "runtime_error", "no such luck"),
    "exits": (body("raise SystemExit(0)"), "runtime_error", "SystemExit"),
    "ends its process": (body("os._exit(0)"), "runtime_error", "status 0"),
    "segmentation fault": (body("ctypes.string_at(0)"), "runtime_error", "SIGSEGV"),
    "host memory": (body("torch.empty(1 << 42)"), "out_of_memory", "memory"),
    "host memory, bit by bit": (
        body("kept[0] = [bytearray(1 << 28) for _ in range(4000)]"),
        "out_of_memory",
        "MemoryError",
    ),
    "wrong shape": (
        body("return launch(x, torch.empty_like(x)).reshape(-1, 1)"),
        "wrong_shape",
        "expected",
    ),
    "wrong dtype": (
        body("return launch(x, torch.empty_like(x, dtype=torch.float64))"),
        "wrong_dtype",
        "float64",
    ),
    "nothing": (body("return None"), "wrong_layout", "NoneType"),
    "too many": (
        body("y = launch(x, torch.empty_like(x)); return y, y"),
        "wrong_shape",
        "2 results",
    ),
    "gaps": (
        body(
            "y = torch.empty((*x.shape, 2), dtype=x.dtype)[..., 0]\n"
            "y.copy_(launch(x, torch.empty_like(x)))\n"
            "return y"
        ),
        "wrong_layout",
        "gaps",
    ),
    "subclass": (
        body("return torch.nn.Parameter(launch(x, torch.empty_like(x)), requires_grad=False)"),
        "wrong_layout",
        "Parameter",
    ),
    "a constant": (body("return torch.full_like(x, 0.25)"), "wrong_values", "error"),
    "tail unwritten": (
        body(
            "y = torch.empty_like(x)\n"
            "double[(1,)](x, y, x.numel() - 1, B=256) if x.numel() else 0\nreturn y"
        ),
        "wrong_values",
        "nan",
    ),
    "writes to its input": (
        body("y = launch(x, torch.empty_like(x)); self.zero_(); return y"),
        "mutated_input",
        "input",
    ),
    "writes between the elements": (
        body(
            "y = launch(x, torch.empty_like(x))\n"
            "torch.as_strided(self, (1,), (1,), 0).fill_(7.0) if self.storage_offset() else 0\n"
            "return y"
        ),
        "mutated_input",
        "input",
    ),
    "returns its input": (body("return self"), "wrong_layout", "shares memory"),
    "changes its input's shape": (body("self.resize_(0)"), "mutated_input", "layout"),
    "stale by identity": (
        body(
            "if id(self) not in kept: kept[id(self)] = self, launch(x, torch.empty_like(x))\n"
            "return kept[id(self)][1].clone()"
        ),
        "wrong_values",
        "error",
    ),
    "stale by address": (
        body(
            "k = self.data_ptr(), tuple(self.shape)\n"
            "if k not in kept: kept[k] = launch(x, torch.empty_like(x))\nreturn kept[k].clone()"
        ),
        "wrong_values",
        "error",
    ),
    "stale by version": (
        body(
            "k = self.data_ptr(), self._version, tuple(self.shape)\n"
            "if k not in kept: kept[k] = launch(x, torch.empty_like(x))\nreturn kept[k].clone()"
        ),
        "wrong_values",
        "error",
    ),
    "honest for the first calls only": (
        body("calls.append(1)\nif len(calls) > 6: return torch.zeros_like(x)"),
        "wrong_values",
        "error",
    ),
    "sometimes wrong": (
        body("calls.append(1)\nif len(calls) % 3 == 2: return torch.zeros_like(x)"),
        "nondeterministic",
        "right on some runs",
    ),
    "computes without kernels": (body("return x + x"), "tampered", "own kernels"),
    "a thread goes on": (
        body("threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"),
        "tampered",
        "threads",
    ),
    "junk on the channel": (
        body(
            "for fd in range(3, 64):\n    try: os.write(fd, b'\\xff' * 64)\n"
            "    except OSError: pass"
        ),
        "tampered",
        "channel",
    ),
    "a forged answer": (
        body(
            "for fd in range(3, 64):\n    try:\n"
            "        m = json.dumps(dict(id=1, ok=True)).encode()\n"
            "        os.write(fd, len(m).to_bytes(4, 'little') + m)\n"
            "    except OSError: pass"
        ),
        "tampered",
        "channel",
    ),
    "closes the channel": (body("os.closerange(3, 64)"), "runtime_error", "ended its own process"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name, no_scan):
    source, status, words = FAULTS[name]
    verdict = judged(source, settings=Settings(timeout_s=20.0, memory_bytes=3 << 30))
    assert (verdict.status, words in verdict.message) == (status, True), verdict.message
    assert not verdict.gates[-1].passed


HARMLESS = {
    "talkative": body("print('x' * 10_000_000); sys.stderr.write('y' * 10_000_000)"),
    "forks children": body(
        "import subprocess\n"
        "for _ in range(3): subprocess.Popen(['/bin/sleep', '60'], start_new_session=True)"
    ),
    "ignores signals": body("import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_no_harm_passes_and_leaves_nothing(name, no_scan):
    close_servers()
    verdict = judged(HARMLESS[name])
    assert verdict.status == "passed", verdict.message
    # What remains is the server, and bubblewrap's monitor where that is in use.
    assert helpers()
    assert vanishes(lambda: sorted(helpers())[2:])
    close_servers()
    assert vanishes(helpers)


def test_hung_is_killed_within_its_limit(no_scan):
    close_servers()
    verdict = judged(body("while True: pass"), settings=Settings(timeout_s=1.0))
    assert verdict.status == "timed_out"
    assert verdict.seconds < 10
    assert vanishes(lambda: sorted(helpers())[2:])


def test_hung_at_import_is_killed(no_scan):
    verdict = judged("while True: pass", settings=Settings(timeout_s=1.0))
    assert verdict.status == "timed_out"


def test_scan_comes_first():
    verdict = judged(KERNEL + "def twice(self):\n    return torch.softmax(self, 0)\n")
    assert verdict.status == "rejected"
    assert [gate.name for gate in verdict.gates] == ["scan"]
    assert verdict.findings
    assert "line 17" in verdict.message
    verdict = judged("def twice(:")
    assert (verdict.status, "line 1" in verdict.message) == ("rejected", True)


def test_in_place():
    right = (
        KERNEL
        + """
def twice_(self):
    x = self.contiguous()
    self.copy_(launch(x, torch.empty_like(x)))
    return self
"""
    )
    assert judged(right, TWICE_INPLACE).status == "passed"
    wrong = right.replace("return self", "return self.clone()")
    assert judged(wrong, TWICE_INPLACE).status == "wrong_layout"
    none = right.replace("self.copy_(launch(x, torch.empty_like(x)))", "launch(x, x.clone())")
    assert judged(none, TWICE_INPLACE).status == "wrong_values"


def test_views_and_scalars(no_scan):
    assert judged("def row(self, index):\n    return self[index]", ROW).status == "passed"
    copy = judged("def row(self, index):\n    return self[index].clone()", ROW)
    assert (copy.status, "view" in copy.message) == ("wrong_layout", True)
    assert judged("def row(self, index):\n    return self[0]", ROW).status == "wrong_layout"
    assert judged("def total(self):\n    return int(self.sum())", TOTAL).status == "passed"
    assert (
        judged("def total(self):\n    return int(self.sum()) + 1", TOTAL).status == "wrong_values"
    )
    assert judged("def total(self):\n    return float(self.sum())", TOTAL).status == "wrong_dtype"


def test_what_cannot_be_asked_is_unsupported():
    verdict = judged(HONEST, settings=Settings(cases=("no such case",)))
    assert verdict.status == "unsupported"


def test_same_seed_same_comparisons():
    first, second = (judged(HONEST, settings=Settings(seed=7)) for _ in range(2))
    assert first.comparisons == second.comparisons
    third = judged(HONEST, settings=Settings(seed=8))
    assert third.comparisons != first.comparisons


def test_entry_point_may_be_named():
    verdict = judged(HONEST.replace("def twice", "def other"), TWICE, entry="other")
    assert verdict.status == "passed", verdict.message


def fair_coin(case, args, results):
    share = float(results[0].mean())
    return "" if 0.3 < share < 0.7 else f"share of ones {share:.2f}"


COIN = operator(
    "coin",
    "coin(self: Tensor) -> Tensor",
    lambda self: [
        Expected(torch.full_like(self, 0.5).double(), self.dtype, torch.tensor(0.5).double())
    ],
    (Case("many", (TensorSpec((4000,)),)),),
    kind="random",
    accepts=fair_coin,
    tolerance=Tolerance(kind="distribution", limit=0.0),
)


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        ("(torch.rand_like(self) < 0.5).float()", "passed", "right"),
        ("(torch.rand_like(self) < 0.9).float()", "wrong_values", "share of ones"),
        (
            "(torch.rand(4000, generator=torch.Generator().manual_seed(1)) < 0.5).float()",
            "wrong_values",
            "same random numbers",
        ),
        ("(torch.rand(4000) < 0.5)", "wrong_dtype", "bool"),
    ],
)
def test_random_operators_are_judged_by_their_distribution(
    no_scan, monkeypatch, answer, status, words
):
    monkeypatch.setattr(TritonLanguage, "own_kernels", False)  # torch draws here
    verdict = judged(f"import torch\ndef coin(self):\n    return {answer}\n", COIN)
    assert (verdict.status, words in verdict.message) == (status, True), verdict.message
