"""What an honest author most likely did wrong, said with the verdict. Changes no verdict.

Reads the source as text; a hint that cannot be given is left out. Device layer.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

_RESTORING = frozenset({"restore_value", "reset_to_zero", "pre_hook"})
_READS, _WRITES = frozenset({"load"}), frozenset({"store"})
#: what gives a value, not a pointer
_VALUES = frozenset({"load", "dot", "arange", "program_id", "zeros", "full"})
_BOTH = frozenset({"atomic_add", "atomic_max", "atomic_min", "atomic_xchg", "atomic_cas"})


def autotuned_in_place(source: str) -> str:
    """One sentence if a kernel under ``triton.autotune`` updates an argument in place, and nothing
    restores it between trials; else empty. Autotuning runs the kernel several times."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef):
            continue
        calls = [d for d in function.decorator_list if isinstance(d, ast.Call)]
        tuned = next((call for call in calls if _is_autotune(call)), None)
        if tuned is None or any(keyword.arg in _RESTORING for keyword in tuned.keywords):
            continue
        updated = updated_parameters(function)
        if updated:
            name = updated[0]
            return (
                f"kernel {function.name!r} seems to update {name!r} in place under "
                "triton.autotune, which runs it several times on the first call: "
                f"restore_value=[{name!r}] keeps the trials from adding up"
            )
    return ""


def updated_parameters(function: ast.FunctionDef) -> list[str]:
    """Parameters of a Triton kernel that it both loads from and stores to, or updates atomically.

    Pointers are followed through assignments of names: the first operand of a sum is the pointer.
    """
    parameters = [argument.arg for argument in function.args.args]
    roots: dict[str, str] = {name: name for name in parameters}
    read: set[str] = set()
    written: set[str] = set()
    for node in _in_order(function):
        if isinstance(node, ast.Assign):
            root = _root(node.value, roots)
            for target in node.targets:
                if isinstance(target, ast.Name):
                    roots[target.id] = root
        elif isinstance(node, ast.Call) and node.args and isinstance(node.func, ast.Attribute):
            root, name = _root(node.args[0], roots), node.func.attr
            read |= {root} if name in _READS | _BOTH else set()
            written |= {root} if name in _WRITES | _BOTH else set()
    return [name for name in parameters if name in read & written]


def _is_autotune(decorator: ast.Call) -> bool:
    function = decorator.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name == "autotune"


def _in_order(node: ast.AST) -> Iterator[ast.AST]:
    for child in ast.iter_child_nodes(node):
        yield child
        yield from _in_order(child)


def _root(value: ast.expr, roots: dict[str, str]) -> str:
    """The parameter that a pointer expression starts from; empty where there is none."""
    if isinstance(value, ast.Name):
        return roots.get(value.id, "")
    if isinstance(value, ast.BinOp):
        left = _root(value.left, roots)
        return left or (_root(value.right, roots) if isinstance(value.op, ast.Add) else "")
    if isinstance(value, ast.Call) and value.args and isinstance(value.func, ast.Attribute):
        return "" if value.func.attr in _VALUES else _root(value.args[0], roots)
    return ""
