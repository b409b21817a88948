"""Reads kernel bodies: what a `triton.jit` function may refer to.

On a chip a kernel body is compiled by Triton and can't reach anything else. Under the interpreter
it is run as Python, so the same limits are held here, for the same verdict everywhere: parameters,
locals, the kernel language, other kernels, constants.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._interpret import Interpreter
from kernelmark.evaluators.languages._trees import assigned
from kernelmark.evaluators.languages._values import (
    Frame,
    Function,
    Kernel,
    Nothing,
    Opaque,
    Path,
    Plain,
    Tuple,
    Value,
    Values,
    contents,
    deep,
)

BUILTINS = {
    "range", "min", "max", "abs", "len", "float", "int", "bool", "isinstance", "print", "tuple",
    "list", "sum", "getattr", "hasattr", "str", "zip", "slice", "True", "False", "None", "type",
    "round", "pow", "divmod", "reversed", "enumerate", "map",
}  # fmt: skip
CALLED_ONLY = {"getattr", "hasattr", "type", "map", "print"}
HOST_CALLS = {"triton.cdiv", "triton.next_power_of_2", "triton.language"}
STATEMENTS = (
    ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal, ast.Try, ast.ClassDef, ast.FunctionDef,
    ast.AsyncFunctionDef, ast.Raise, ast.Delete,
)  # fmt: skip
EXPRESSIONS = (ast.Yield, ast.YieldFrom, ast.Await, ast.NamedExpr)
#: how vendors name their kernels: a candidate's may not look like one in a trace
VENDOR = re.compile(
    r"(ampere|volta|turing|hopper|sm\d+_|cutlass|cublas|cudnn|nvjet|gemmk1|gemv2|Cijk_|void_|"
    r"at_native|vectorized_elementwise|elementwise_kernel|reduce_kernel|Memcpy|Memset|splitK)"
)


def check_kernels(scan: Interpreter, source: str) -> None:
    """Adds a finding for whatever a kernel may not do or refer to."""
    lines = source.splitlines()
    for kernel in scan.kernels.values():
        _check_text(scan, kernel, lines)
        if VENDOR.match(kernel.node.name):
            scan.refuse(kernel.node, f"`{kernel.node.name}` is named like a vendor's kernel")
        local = _locals(scan, kernel)
        nodes = [node for statement in kernel.node.body for node in ast.walk(statement)]
        called = {id(node.func) for node in nodes if isinstance(node, ast.Call)}
        for node in nodes:
            _check_node(scan, kernel, node, local)
            if isinstance(node, ast.Name) and node.id in CALLED_ONLY and id(node) not in called:
                scan.refuse(node, f"kernel `{kernel.node.name}`: `{node.id}` may only be called")


def _check_text(scan: Interpreter, kernel: Kernel, lines: list[str]) -> None:
    """Triton reads a kernel's text by looking for ``def``: there may be one such line only."""
    node = kernel.node
    first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
    text = [line.strip() for line in lines[first - 1 : node.end_lineno]]
    if sum(line.startswith("def ") for line in text) != 1:
        scan.refuse(node, f"kernel `{node.name}`: only one line of it may begin with `def`")


def _locals(scan: Interpreter, kernel: Kernel) -> set[str]:
    """Names of the kernel's own. Those of an inner scope may not hide a name from outside."""
    a = kernel.node.args
    names = {p.arg for p in (*a.posonlyargs, *a.args, *a.kwonlyargs)}
    names |= {p.arg for p in (a.vararg, a.kwarg) if p is not None}
    names |= assigned(kernel.node.body)
    inner: set[str] = set()
    for part in ast.walk(kernel.node):
        if isinstance(part, ast.comprehension):
            inner |= assigned([ast.Expr(part.target)])
        elif isinstance(part, ast.Lambda):
            inner |= {p.arg for p in part.args.args}
    visible = BUILTINS | {name for frame in _frames(kernel) for name in frame.names}
    for name in sorted((inner - names) & visible):
        scan.refuse(kernel.node, f"kernel `{kernel.node.name}`: an inner `{name}` hides another")
    return names | inner


def _frames(kernel: Kernel) -> Iterator[Frame]:
    frame: Frame | None = kernel.frame
    while frame is not None:
        yield frame
        frame = frame.parent


def _check_node(scan: Interpreter, kernel: Kernel, node: ast.AST, local: set[str]) -> None:
    name = kernel.node.name
    if isinstance(node, STATEMENTS + EXPRESSIONS):
        scan.refuse(node, f"kernel `{name}`: `{type(node).__name__}` has no place in a kernel")
    elif isinstance(node, ast.Attribute):
        if node.attr.startswith("_") or node.attr in policy.INTROSPECTION | {"handle", "data"}:
            scan.refuse(node, f"kernel `{name}`: `.{node.attr}` reaches into internals")
        elif isinstance(node.ctx, ast.Store):
            scan.refuse(node, f"kernel `{name}`: attributes can't be assigned in a kernel")
        else:
            _check_path(scan, kernel, node, local)
            _check_owner(scan, kernel, node, local)
    elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
        scan.refuse(node, f"kernel `{name}`: items can't be assigned in a kernel")
    elif isinstance(node, ast.Name) and node.id not in local:
        for value in _lookup(scan, kernel, node):
            if not _allowed(value):
                scan.refuse(node, f"kernel `{name}`: `{node.id}` is host code: {_advice(value)}")
    elif isinstance(node, ast.Call) and not _plain_name(node):
        scan.refuse(node, f"kernel `{name}`: `{ast.unparse(node.func)}` of what is put together")


def _plain_name(node: ast.Call) -> bool:
    if isinstance(node.func, ast.Name) and node.func.id == "type":
        return len(node.args) == 1 and not node.keywords
    if not (isinstance(node.func, ast.Name) and node.func.id in ("getattr", "hasattr")):
        return True
    if len(node.args) < 2 or not isinstance(node.args[1], ast.Constant):
        return False
    text = str(node.args[1].value)
    return not text.startswith("_") and text not in ("handle", "data")


def _check_path(scan: Interpreter, kernel: Kernel, node: ast.Attribute, local: set[str]) -> None:
    """An attribute chain that starts at a module must lead to an allowed member of it."""
    for path in _paths(scan, kernel, node, local):
        try:
            policy.resolve(path)
        except policy.Refused as error:
            scan.refuse(node, f"kernel `{kernel.node.name}`: {error}")
            return
        allowed = path.startswith((*policy.KERNEL_LANGUAGES, "math")) or path in HOST_CALLS
        if not allowed and not policy.module_allowed(path):
            scan.refuse(node, f"kernel `{kernel.node.name}`: `{path}` is host code")


def _check_owner(scan: Interpreter, kernel: Kernel, node: ast.Attribute, local: set[str]) -> None:
    """Functions of the language and other kernels are called; what they are made of is no one's."""
    owners = list(_functions(scan, kernel, node.value, local))
    if owners:
        reason = f"`.{node.attr}` of `{owners[0]}` reaches into internals"
        scan.refuse(node, f"kernel `{kernel.node.name}`: {reason}")


def _functions(scan: Interpreter, kernel: Kernel, node: ast.expr, local: set[str]) -> Iterator[str]:
    """Names of the kernels and of the language's functions that an expression stands for."""
    if isinstance(node, ast.Name) and node.id not in local:
        for value in _lookup(scan, kernel, node):
            if isinstance(value, Kernel):
                yield value.node.name
            elif isinstance(value, Path) and policy.is_function(value.name):
                yield value.name
    elif isinstance(node, ast.Attribute):
        for path in _paths(scan, kernel, node, local):
            if policy.is_function(path):
                yield path


def _paths(scan: Interpreter, kernel: Kernel, node: ast.expr, local: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Name) and node.id not in local:
        for value in _lookup(scan, kernel, node):
            if isinstance(value, Path) and policy.module_allowed(value.name):
                yield value.name
    elif isinstance(node, ast.Attribute):
        for path in _paths(scan, kernel, node.value, local):
            full = f"{path}.{node.attr}"
            # Below a member (``tl.float32.itemsize``) there is nothing left to reach.
            if policy.module_allowed(path):
                yield full


def _lookup(scan: Interpreter, kernel: Kernel, node: ast.Name) -> Values:
    for frame in _frames(kernel):
        if node.id in frame.names:
            return frame.cells.get(node.id, frozenset())
    if node.id not in BUILTINS:
        scan.refuse(
            node, f"kernel `{kernel.node.name}`: `{node.id}` is neither defined nor of the language"
        )
    return frozenset()


def _allowed(value: Value) -> bool:
    if isinstance(value, Path):
        name = value.name
        if name.startswith((*policy.KERNEL_LANGUAGES, "math")) or name in HOST_CALLS:
            return True
        return name == "triton" or (name.startswith("triton.") and policy.module_allowed(name))
    if isinstance(value, Function):
        return value.sort == "constexpr"
    if isinstance(value, Tuple):
        return all(map(_allowed, deep(contents(value))))  # a table of constants
    return isinstance(value, Plain | Nothing | Kernel) or value == Opaque("config")


def _advice(value: Value) -> str:
    if isinstance(value, Function):
        return "decorate it with triton.jit to call it from a kernel"
    return "pass what the kernel needs as an argument"
