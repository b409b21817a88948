"""Questions about syntax trees that take no knowledge of values."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from typing import Any

from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._values import (
    BOTTOM,
    PLAIN,
    TENSOR,
    Cached,
    Class,
    Function,
    FunctionNode,
    Partial,
    Values,
)

_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
Env = dict[str, Values]
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

SEQUENCES = {"builtins.list", "builtins.tuple", "builtins.dict"}
SIGNS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
    "MatMult": "@", "BitAnd": "&", "BitOr": "|", "BitXor": "^", "LShift": "<<", "RShift": ">>",
    "USub": "-", "UAdd": "+", "Invert": "~",
}  # fmt: skip


def callables_of(values: Values) -> Values:
    return frozenset(v for v in values if isinstance(v, Function | Cached | Partial))


def merge(a: Env | None, b: Env | None) -> Env | None:
    """What is known where two ways meet."""
    if a is None or b is None:
        return b if a is None else a
    return {name: a.get(name, BOTTOM) | b.get(name, BOTTOM) for name in a.keys() | b.keys()}


def parameters_of(node: FunctionNode) -> list[ast.arg]:
    a = node.args
    rest = [p for p in (a.vararg, a.kwarg) if p is not None]
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *rest]


def names_with_default(node: FunctionNode) -> set[str]:
    names = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    return set(names[len(names) - len(node.args.defaults) :])


def guess_of(parameter: ast.arg, function: FunctionNode) -> Values:
    """For a scan without an operator: a tensor, if it is annotated or used like one."""
    if parameter.annotation is not None:
        return TENSOR if "Tensor" in ast.dump(parameter.annotation) else PLAIN
    known = policy.TENSOR_PLAIN | policy.TENSOR_ASK | policy.TENSOR_VIEWS | policy.CONVERT
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and name_of(node.value) == parameter.arg:
            return TENSOR if node.attr in known else PLAIN
    return PLAIN


def is_constexpr(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and "constexpr" in ast.dump(parameter.annotation)


def name_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.NamedExpr):
        return node.target.id
    return node.id if isinstance(node, ast.Name) else None


def constant_of(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = constant_of(node.operand)
        return -inner if isinstance(inner, int) else None
    return None


def as_load(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Attribute(node.value, node.attr, ast.Load()), node)
    assert isinstance(node, ast.Subscript)
    return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)


def is_main_guard(test: ast.expr) -> bool:
    """``__name__ == "__main__"``: never true in a grade, where the file is imported."""
    return (
        isinstance(test, ast.Compare)
        and isinstance(test.left, ast.Name)
        and test.left.id == "__name__"
        and len(test.ops) == 1
        and isinstance(test.ops[0], ast.Eq)
        and isinstance(test.comparators[0], ast.Constant)
        and test.comparators[0].value == "__main__"
    )


def is_endless(node: ast.While) -> bool:
    """``while True`` without a ``break`` of its own: control does not go on after it."""
    if not (isinstance(node.test, ast.Constant) and node.test.value):
        return False
    todo: list[ast.AST] = list(node.body)
    while todo:
        part = todo.pop()
        if isinstance(part, ast.Break):
            return False
        if not isinstance(part, (*_SCOPES, ast.For, ast.While)):
            todo.extend(ast.iter_child_nodes(part))
        elif isinstance(part, ast.For | ast.While):
            todo.extend(part.orelse)
    return True


def annotated_names(node: ast.ClassDef) -> tuple[str, ...]:
    return tuple(
        s.target.id
        for s in node.body
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    )


def fields_of(cls: Class) -> tuple[str, ...]:
    inherited = [name for base in cls.bases for name in base.fields or ()]
    return tuple(dict.fromkeys([*inherited, *annotated_names(cls.node)]))


def walk_scope(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
    """Every node of a scope, without those of the scopes inside it."""
    todo = list(body)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, Comprehension):  # a scope but for its assignment expressions
            todo.extend(n for n in ast.walk(node) if isinstance(n, ast.NamedExpr))
        elif not isinstance(node, _SCOPES):
            todo.extend(ast.iter_child_nodes(node))


def assigned(body: Iterable[ast.AST]) -> frozenset[str]:
    """Names that are bound in a scope."""
    names: set[str] = set()
    for node in walk_scope(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(a.asname or a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    for node in walk_scope(body):
        if isinstance(node, ast.Global | ast.Nonlocal):
            names.difference_update(node.names)
    return frozenset(names)


def is_generator(node: FunctionNode) -> bool:
    body = node.body if isinstance(node.body, list) else [node.body]
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in walk_scope(body))
