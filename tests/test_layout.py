"""The shape of the project: who imports whom, the device layer alone, the wheel, the help."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import sysconfig
import time
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP = ("operators", "benchmark", "evaluators", "submissions", "leaderboard")
DEVICE_LAYER = ("operators", "evaluators/grading", "evaluators/chips", "evaluators/languages")
DEVICE_PACKAGES = {"torch", "triton", "numpy"}

#: folder -> folders of the project that it may import (DESIGN section 1)
MAY_IMPORT = {
    "operators": {"operators"},
    "evaluators/grading": {*DEVICE_LAYER},
    "evaluators/chips": {*DEVICE_LAYER},
    "evaluators/languages": {*DEVICE_LAYER},
    "evaluators": {"operators", "benchmark", "evaluators"},
    "benchmark": {"operators", "benchmark"},
    "submissions": {"operators", "benchmark", "evaluators", "submissions"},
    "leaderboard": {"benchmark", "leaderboard"},
}


def sources(folder: str) -> Iterator[Path]:
    return (ROOT / folder).rglob("*.py")


def imported(path: Path) -> set[str]:
    """Modules that a file imports anywhere, whole dotted names."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def folder_of(path: Path) -> str:
    """The longest folder of MAY_IMPORT that holds the file."""
    relative = path.relative_to(ROOT).as_posix()
    return max((f for f in MAY_IMPORT if relative.startswith(f + "/")), key=len)


def project_files() -> list[Path]:
    return [path for top in TOP for path in sources(top)]


@pytest.mark.parametrize("path", project_files(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_imports_follow_the_table_of_the_design(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    if name == "benchmark/cli.py" or name.startswith("benchmark/commands/"):
        return  # the command line alone may import everything
    allowed = MAY_IMPORT[folder_of(path)]
    for name in imported(path):
        if name.startswith("kernelmark."):
            target = name.removeprefix("kernelmark.").replace(".", "/")
            assert any(target == a or target.startswith(a + "/") for a in allowed), (
                f"{path.relative_to(ROOT)} imports {name}"
            )


def test_the_device_layer_names_no_other_package() -> None:
    allowed = sys.stdlib_module_names | DEVICE_PACKAGES | {"kernelmark", "__future__"}
    # Second statements of operators are checked with SciPy in tests; they import it when called.
    lazily = {"scipy"}
    for folder in DEVICE_LAYER:
        for path in sources(folder):
            tree = ast.parse(path.read_text())
            for node in tree.body:
                names = (
                    [alias.name for alias in node.names]
                    if isinstance(node, ast.Import)
                    else [node.module or ""]
                    if isinstance(node, ast.ImportFrom)
                    else []
                )
                for name in names:
                    assert name.split(".")[0] in allowed, f"{path} imports {name}"
            others = {n.split(".")[0] for n in imported(path)} - allowed
            # `torch_npu` and the like: a vendor's plug-in, imported by its adapter when activated.
            plugins = {n for n in others if n.startswith("torch_")}
            assert others - lazily - plugins - {"vllm"} == set(), f"{path} imports {others}"


BLOCKED = """
import importlib.abc, pkgutil, sys
class Only(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        top = name.split(".")[0]
        if top in BLOCK:
            raise ModuleNotFoundError(f"blocked: {name}")
import importlib.metadata
keep = {"torch", "triton", "numpy", "kernelmark"}
needed_by_torch = {"torchgen", "sympy", "mpmath", "networkx", "jinja2", "markupsafe", "filelock",
                   "fsspec", "typing_extensions", "functorch", "nvidia", "setuptools",
                   "_distutils_hack", "pkg_resources", "cuda"}
BLOCK = {top for top in importlib.metadata.packages_distributions()} - keep - needed_by_torch
sys.meta_path.insert(0, Only())
import kernelmark.operators, kernelmark.evaluators
count = 0
for package in ("kernelmark.operators", "kernelmark.evaluators.grading",
                "kernelmark.evaluators.chips", "kernelmark.evaluators.languages"):
    module = importlib.import_module(package)
    for info in pkgutil.walk_packages(module.__path__, package + "."):
        if info.name.endswith("__main__"):
            continue
        importlib.import_module(info.name)
        count += 1
assert "pydantic" not in sys.modules and "typer" not in sys.modules
assert "pydantic" in BLOCK and "scipy" in BLOCK, "nothing was blocked"
print(count)
"""


def test_the_device_layer_imports_with_every_other_package_blocked() -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT / ".typing")}
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 30


def test_nothing_of_the_project_runs_at_import_of_the_command_line() -> None:
    """`kernelmark --help` answers at once: no torch, no duckdb, no streamlit."""
    code = (
        "import sys, kernelmark.benchmark.cli; "
        "print([m for m in ('torch', 'triton', 'duckdb', 'pyarrow', 'streamlit', 'litellm') "
        "if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-m", "kernelmark.benchmark.cli", "--help"],
        capture_output=True,
        check=True,
    )
    assert time.perf_counter() - start < 3.0


def test_the_root_is_no_package() -> None:
    assert not (ROOT / "__init__.py").exists()
    assert os.readlink(ROOT / ".typing" / "kernelmark") == ".."


def test_every_folder_with_code_is_in_the_wheel() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        "kernelmark." + path.parent.relative_to(ROOT).as_posix().replace("/", ".")
        for top in TOP
        for path in (ROOT / top).rglob("__init__.py")
    }
    assert listed == found


def test_a_wheel_works_in_an_empty_environment(tmp_path: Path) -> None:
    """Built, installed elsewhere, used from an unrelated folder: nothing of the clone is needed."""
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("kernelmark-*.whl")
    target = tmp_path / "env"
    venv.create(target, with_pip=False)
    python = target / "bin" / "python"
    site = next((target / "lib").glob("python*/site-packages"))
    # Dependencies come from this environment's folder; its editable hook does not come along.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--quiet", wheel],
        check=True,
        capture_output=True,
    )
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "KERNELMARK_HOME": str(tmp_path)}
    where = subprocess.run(
        [python, "-c", "import kernelmark.operators as o; print(o.__file__)"],
        capture_output=True, text=True, check=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert str(target) in where.stdout
    done = subprocess.run(
        [target / "bin" / "kernelmark", "operators", "--suite", "demo", "--json"],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "aten::softmax" in done.stdout
