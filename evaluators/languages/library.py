"""Candidates that are calls of a named, versioned package: compilers and libraries.

A few declared lines, no more::

    # package: flag-gems==5.0.2
    # module: flag_gems
    from flag_gems.ops import softmax

Vendor calls are what such a candidate is for, so they are not refused. Reaching for files,
processes, the network, the interpreter or the judge is. Open to the kinds `compiler` and `library`
only; an agent or a model cannot hand one in.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from types import ModuleType
from typing import Any

import torch.hub

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages._policy import INTROSPECTION
from kernelmark.evaluators.languages.base import Skipped
from kernelmark.evaluators.languages.triton import load_module, parse
from kernelmark.operators.records import Operator

MAX_LINES = 120
_PACKAGE = re.compile(r"^# package: ([A-Za-z0-9][\w.-]*)==([\w.+!-]+)$", re.MULTILINE)
_MODULE = re.compile(r"^# module: ([A-Za-z_]\w*)$", re.MULTILINE)
#: modules that any library candidate may import beside its own package
COMMON = {"torch", "triton", "math", "functools", "typing", "__future__", "operator"}
BUILTINS = {
    "abs", "all", "any", "bool", "dict", "enumerate", "float", "int", "isinstance", "len", "list",
    "max", "min", "pow", "range", "reversed", "round", "set", "sorted", "str", "sum", "tuple",
    "zip", "None", "True", "False", "ValueError", "TypeError", "NotImplementedError",
    "RuntimeError", "complex", "slice", "print", "hasattr",
}  # fmt: skip
#: parts of torch and of any package that lead to files, processes, the network or the interpreter
REFUSED_PARTS = INTROSPECTION | {
    "os", "sys", "io", "subprocess", "socket", "ctypes", "inspect", "importlib", "builtins", "gc",
    "multiprocessing", "distributed", "hub", "cpp_extension", "load", "save", "load_library",
    "threading", "shutil", "pathlib", "tempfile", "urllib", "requests", "pickle", "signal",
    "atexit", "time", "from_file", "utils", "testing", "profiler", "Event", "Stream", "CUDAGraph",
    "graph", "graphs", "elapsed_time", "knobs", "package", "serialization", "set_default_device",
    "monitor", "autograd", "library", "fx", "warnings", "storage", "memory", "random",
    "manual_seed",
}  # fmt: skip
_REFUSED_STATEMENTS = (ast.Global, ast.ClassDef, ast.AsyncFunctionDef, ast.With, ast.Try)


class LibraryLanguage:
    """`Language` of library candidates."""

    name = "library"
    suffix = ".py"
    template = __doc__ or ""
    own_kernels = False
    kinds: frozenset[str] | None = frozenset({"compiler", "library"})

    def scan(self, source: str, entry: str, operator: Operator | None = None) -> list[Finding]:
        """Reasons to refuse `source`, by line."""
        tree = parse(source)
        if isinstance(tree, Finding):
            return [tree]
        findings: dict[Finding, None] = {}
        package = _PACKAGE.search(source)
        if package is None:
            findings[Finding(1, "declare the package: a line `# package: name==version`")] = None
        if len(source.splitlines()) > MAX_LINES:
            findings[Finding(MAX_LINES, f"more than {MAX_LINES} lines: a library is called")] = None
        module = _MODULE.search(source)
        own = module[1] if module else package[1].replace("-", "_") if package else ""
        for line, reason in _reasons(tree, COMMON | {own}):
            findings[Finding(line, reason)] = None
        if not _defines(tree, entry):
            findings[Finding(1, f"defines no function `{entry}`, the entry point")] = None
        return sorted(findings, key=lambda f: (f.line, f.reason))

    def load(self, path: str, entry: str) -> Callable[..., Any]:
        """Imports the file at `path` as a module; returns its function `entry`.

        Raises `ImportError` where the declared package is not here in the declared version.
        """
        with open(path, encoding="utf-8") as file:
            check_installed(file.read())
        _without_watchers()
        return load_module(path, entry)

    @contextmanager
    def disable_kernels(self) -> Iterator[Skipped]:
        """Nothing to disable: `own_kernels` is False."""
        yield Skipped()

    def kernel_names(self, module: ModuleType) -> frozenset[str]:
        """Empty: any kernel of the package counts."""
        return frozenset()


LANGUAGE = LibraryLanguage()


def check_installed(source: str) -> None:
    """Raises `ImportError` where the declared package is not here in the declared version.

    A local part (``2.13.0+cpu``) is not compared. kernelmark itself is what runs this.
    """
    package = _PACKAGE.search(source)
    if package is None or package[1] == "kernelmark":
        return
    name, declared = package[1], package[2]
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{name} {declared} is declared, and not installed here") from None
    if installed.partition("+")[0] != declared.partition("+")[0]:
        raise ImportError(f"{name} {declared} is declared, {installed} is installed here")


def _without_watchers() -> None:
    """Keeps tqdm from starting a thread.

    Inductor counts what it compiles with a tqdm bar, shown or not; where tqdm is installed, the
    first bar starts a thread that looks after all bars for ever, and no thread may outlive a call.
    """
    bar: Any = vars(torch.hub)["tqdm"]  # tqdm's own, or torch's stand-in
    bar.monitor_interval = 0


def _reasons(tree: ast.Module, modules: set[str]) -> Iterator[tuple[int, str]]:
    defined = _bound(tree)
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 1)
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _module(line, alias.name, modules)
        elif isinstance(node, ast.ImportFrom):
            yield from _module(line, "" if node.level else node.module or "", modules)
            for alias in node.names:
                if alias.name == "*" or _refused(alias.name):
                    yield line, f"`import {alias.name}` is refused: call the package's operators"
        elif isinstance(node, ast.Attribute):
            if _refused(node.attr):
                yield line, f"`.{node.attr}` is refused: call the package's operators"
            elif isinstance(node.ctx, ast.Store | ast.Del):
                yield line, f"assigns the attribute `{node.attr}`: nothing may be patched"
        elif isinstance(node, ast.Name):
            if node.id not in defined | BUILTINS:
                yield line, f"`{node.id}` is neither defined here nor allowed"
        elif isinstance(node, _REFUSED_STATEMENTS):
            yield line, f"`{type(node).__name__}` is refused: a library is called, plainly"


def _module(line: int, name: str, modules: set[str]) -> Iterator[tuple[int, str]]:
    parts = name.split(".")
    if parts[0] not in modules:
        yield line, f"`import {name}` is not of the declared package: add `# module: NAME`"
    elif any(map(_refused, parts)):
        yield line, f"`import {name}` is refused: call the package's operators"


def _refused(name: str) -> bool:
    return name in REFUSED_PARTS or name.startswith("__")


def _bound(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
    return names


def _defines(tree: ast.Module, entry: str) -> bool:
    return any(
        entry in _bound(ast.Module([s], [])) for s in tree.body if not isinstance(s, ast.Expr)
    )
