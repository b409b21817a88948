"""Compilers and libraries as candidates: each call is one that the package's own source takes."""

from __future__ import annotations

import ast
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.grading.judge import Settings, grade
from kernelmark.evaluators.grading.workers import close_servers
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.evaluators.methods import flag_gems, liger
from kernelmark.evaluators.methods._library import Call, Package, library_source
from kernelmark.evaluators.methods.base import Proposal, Task
from kernelmark.evaluators.methods.registry import make_method
from kernelmark.operators.draws import draw
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import all_operators, get_operator, source_operators

LIBRARIES = {module.PACKAGE.name: module for module in (flag_gems, liger)}
MAPPED = [(name, id) for name, module in LIBRARIES.items() for id in module.CALLS]


def source_of(name: str, id: str) -> str:
    module = LIBRARIES[name]
    return library_source(id, get_operator(id).name, module.PACKAGE, module.CALLS[id])


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources of both packages, from the package registry."""
    folder = tmp_path_factory.mktemp("wheels")
    names = [f"{m.PACKAGE.name}=={m.PACKAGE.version}" for m in LIBRARIES.values()]
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "-d", str(folder)]
    done = subprocess.run([*command, *names], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"the packages cannot be had: {done.stderr.strip().splitlines()[-1]}")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder / "unpacked")
    return folder / "unpacked"


def exported(root: Path, module: str) -> dict[str, tuple[str, str]]:
    """What a package's ``__init__`` has by name: (module, name), stars followed."""
    path = root / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    names: dict[str, tuple[str, str]] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                if alias.name == "*":
                    names.update(exported(root, node.module))
                else:
                    names[alias.asname or alias.name] = (node.module, alias.name)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names[node.name] = (module, node.name)
    return names


def arguments_of(root: Path, module: str, name: str) -> ast.arguments | None:
    """The parameters of a function; of ``forward`` for an autograd function, without ``ctx``;
    None for what is made at run time."""
    path = root / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return node.args
        if isinstance(node, ast.ClassDef) and node.name == name:
            (forward,) = [
                n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "forward"
            ]
            forward.args.args.pop(0)
            return forward.args
    return None


def takes(arguments: ast.arguments, call: ast.Call) -> bool:
    """Whether a function with these parameters takes the call."""
    if arguments.vararg:
        return True
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args)]
    keywords = {k.arg for k in call.keywords}
    given = {*names[: len(call.args)], *keywords}
    required = {*names[: len(names) - len(arguments.defaults)]}
    required |= {
        a.arg for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True) if d is None
    }
    known = {*names, *(a.arg for a in arguments.kwonlyargs)}
    return len(call.args) <= len(names) and keywords <= known and required <= given


@pytest.mark.parametrize(("name", "id"), MAPPED)
def test_each_call_is_one_that_the_package_takes(packages: Path, name: str, id: str) -> None:
    module = LIBRARIES[name].PACKAGE.module
    tree = ast.parse(source_of(name, id))
    names = exported(packages, module)
    imported: dict[str, tuple[str, str]] = {}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module:
            found = exported(packages, node.module)
            for alias in node.names:
                imported[alias.asname or alias.name] = found[alias.name]
    used = 0
    for node in ast.walk(tree):
        if not isinstance(node, ast.Attribute | ast.Name):
            continue
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == module:
            assert node.attr in names, f"{module} has no {node.attr}"
            used += 1
        used += isinstance(node, ast.Name) and node.id in imported
    assert used
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            function = ast.unparse(node.func).removesuffix(".apply")
            where = imported.get(function) or names.get(function.removeprefix(f"{module}."))
            if where is None or not (function in imported or function.startswith(module)):
                continue
            arguments = arguments_of(packages, *where)
            assert arguments is None or takes(arguments, node), f"{function}: {ast.unparse(node)}"


@pytest.mark.parametrize(("name", "id"), MAPPED)
def test_each_candidate_passes_the_scan_and_takes_every_call(name: str, id: str) -> None:
    operator, source = get_operator(id), source_of(name, id)
    assert get_language("library").scan(source, operator.name, operator) == []
    (function,) = [n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    for case in operator.cases():
        text = ", ".join(["None"] * len(case.args) + [f"{key}=None" for key in case.kwargs])
        (call,) = ast.parse(f"f({text})").body
        assert isinstance(call, ast.Expr)
        assert isinstance(call.value, ast.Call)
        assert takes(function.args, call.value), f"{case.name}: {ast.unparse(function.args)}"


def proposal(method: str, operator: Operator, **options: str) -> Proposal:
    (made,) = make_method(method, options).propose(
        Task(operator, "nvidia", "library", ""),
        None,  # type: ignore[arg-type]
    )
    return made


@pytest.mark.parametrize("method", ["flag-gems", "liger"])
def test_what_a_library_lacks_is_said(method: str) -> None:
    made = proposal(method, get_operator("cublas::cublasSaxpy_v2"))
    assert made.failure == "no_candidate"
    assert "has no kernel for cublas::cublasSaxpy_v2" in made.note


def test_the_declared_version_is_in_the_text() -> None:
    assert source_of("flag-gems", "aten::mm").startswith("# package: flag-gems==5.0.2\n")
    call = Call("x, *, out=None", "p.f(x)")
    source = library_source("aten::f", "f", Package("p", "1", "p"), call)
    assert source.endswith(
        "def f(x, *, out=None):\n    result = p.f(x)\n"
        "    return result if out is None else out.copy_(result)\n"
    )


@pytest.mark.parametrize("operator", all_operators().values(), ids=lambda op: op.id)
def test_torch_compile_hands_in_what_inductor_compiles(operator: Operator) -> None:
    made = proposal("torch-compile", operator)
    if made.candidate is None:
        assert made.failure == "no_candidate"
        assert made.note
        return
    assert get_language("library").scan(made.candidate.source, operator.name, operator) == []


@pytest.mark.parametrize(
    ("id", "why"),
    [
        ("aten::poisson", "does not compile aten.poisson.default"),
        ("aten::item", "cannot be traced"),
        ("cublas::cublasSgemm_v2", "not stated in torch"),
    ],
)
def test_torch_compile_says_what_it_cannot(id: str, why: str) -> None:
    made = proposal("torch-compile", get_operator(id))
    assert made.failure == "no_candidate"
    assert why in made.note


def test_the_versions_of_where_it_is_graded_are_declared() -> None:
    softmax, norm = get_operator("aten::softmax"), get_operator("vllm::rms_norm")
    for method in ("torch-compile", "torch-eager"):
        made = proposal(method, softmax, torch="2.11.0+cu130")
        assert made.candidate is not None
        assert made.candidate.source.startswith("# package: torch==2.11.0\n")
    made = proposal("torch-eager", norm, vllm="0.14.1")
    assert made.candidate is not None
    assert made.candidate.source.startswith("# package: vllm==0.14.1\n")
    made = proposal("torch-eager", norm, vllm="")
    assert (made.candidate, made.failure) == (None, "no_candidate")
    assert proposal("torch-eager", softmax, vllm="").candidate is not None


def test_statements_that_are_carried_over_compute_the_same() -> None:
    """Run as they stand, without the compiler, against the formulations that they come from."""
    carried = 0
    for operator in source_operators("vllm").values():
        made = proposal("torch-compile", operator)
        if made.candidate is None:
            continue
        carried += 1
        text = made.candidate.source
        statement = text[: text.index("# Static shapes")]
        name = text.split("torch.compile(\n    ")[1].split(",")[0]
        module: dict[str, Any] = {}
        exec(statement, module)
        case = operator.tier("small")[0]
        call = draw(operator, case, "base", 7, torch.device("cpu"))
        mine, theirs = call.clone(), call.clone()
        got = module[name](*mine.args, **mine.kwargs)
        expected = operator.baseline.formulation(*theirs.args, **theirs.kwargs)  # type: ignore[attr-defined]
        assert _same(got, expected), operator.id
        assert _same(mine.tensors(), theirs.tensors()), operator.id
    assert carried >= 42


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(
            a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    return bool(a == b)


@pytest.mark.parametrize("id", ["aten::softmax", "aten::mm", "vllm::rms_norm", "aten::index_put_"])
def test_torch_compile_has_a_candidate_for_what_matters(id: str) -> None:
    assert proposal("torch-compile", get_operator(id)).candidate is not None


@pytest.mark.slow
def test_what_inductor_compiles_passes_the_judge() -> None:
    """Nothing of the compiler outlives the call: tqdm, which is installed here, kept a thread."""
    operator = get_operator("aten::silu")
    made = proposal("torch-compile", operator)
    assert made.candidate is not None
    try:
        settings = Settings(cases=("rows-float32",), timeout_s=120.0)
        verdict = grade(made.candidate, operator, get_chip("interpreter"), settings)
    finally:
        close_servers()
    assert verdict.status == "passed", verdict.message


@pytest.mark.slow
@pytest.mark.parametrize("id", ["aten::add_", "aten::rsub", "aten::ones_like"])
def test_calls_that_the_compiler_is_particular_about_are_stated_for_it(id: str) -> None:
    """Traced and decomposed as for Inductor, without its code: alpha by position, out variants."""
    operator = get_operator(id)
    made = proposal("torch-compile", operator)
    assert made.candidate is not None
    text = made.candidate.source
    module: dict[str, Any] = {}
    exec(text[: text.index("# Static shapes")], module)
    compiled = torch.compile(
        module["_statement"], dynamic=False, backend="aot_eager_decomp_partition"
    )
    for case in operator.tier("small"):
        torch._dynamo.reset()
        call = draw(operator, case, "base", 7, torch.device("cpu"))
        compiled(*call.args, **call.kwargs)
