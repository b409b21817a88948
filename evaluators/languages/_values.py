"""What the scan knows of a host value: the abstract values of `_interpret`.

A host expression stands for a set of these (`Values`). The empty set is "nothing known to reach
here": either dead code, or an expression that has already been refused.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

#: "read": an element of a tensor as it is, which a kernel may be given; "computed": made from one
#: or chosen by one, which may be a size, a grid or a bound, and nothing else
Element = Literal["", "read", "computed"]


@dataclass(frozen=True)
class Plain:
    """A number, string, dtype, shape, configuration: nothing that holds tensor data.

    `text`: the string, where it is known. `address`: an integer that came from `data_ptr()`.
    `element`: whether it stems from an element of a tensor (`Element`).
    """

    text: str | None = None
    address: bool = False
    element: Element = ""


@dataclass(frozen=True)
class Nothing:
    """None."""


@dataclass(frozen=True)
class Tensor:
    """A torch tensor. `sized`: "computed" where its size or place tells what host code made of
    elements of a tensor."""

    sized: Element = ""


@dataclass(frozen=True)
class Path:
    """A module, or an allowed member of one, by its full name (``torch.empty``)."""

    name: str


@dataclass(frozen=True)
class Opaque:
    """An object of a known sort (`policy.OPAQUE_ATTRIBUTES` says what may be read of it)."""

    sort: str


@dataclass(frozen=True)
class Tuple:
    """A tuple of known length that holds more than plain values."""

    items: tuple[Values, ...]


@dataclass(frozen=True)
class Sequence:
    """A tuple or iterator of unknown length over `element`, immutable."""

    element: Values


@dataclass(frozen=True, eq=False)
class Site:
    """Where an object was made; what it may hold. `shared`: it outlives the call. `keys`: of a
    dict, what its keys may be; None for other containers."""

    node: ast.AST
    shared: bool
    keys: list[Values] | None = None
    keyed: dict[Any, Values] = field(default_factory=dict)
    rest: list[Values] = field(default_factory=lambda: [frozenset()])


@dataclass(frozen=True)
class Box:
    """A list, set or dict."""

    site: Site


@dataclass(frozen=True, eq=False)
class Frame:
    """A scope. `cells`: every value a name ever has in it. `shared`: run at import."""

    node: ast.AST
    parent: Frame | None
    shared: bool
    names: frozenset[str]
    cells: dict[str, Values] = field(default_factory=dict)
    outer: dict[str, Frame] = field(default_factory=dict)  #: `global` and `nonlocal` names
    returns: list[Values] = field(default_factory=lambda: [frozenset()])
    yields: list[Values] = field(default_factory=lambda: [frozenset()])
    ends: list[bool] = field(default_factory=list)  #: True in it: control comes to an end here


FunctionNode = ast.FunctionDef | ast.Lambda


@dataclass(frozen=True)
class Function:
    """A host function of the candidate. `bound`: the object it is a method of."""

    node: FunctionNode
    frame: Frame
    defaults: tuple[tuple[str, Values], ...] = ()
    bound: Values | None = None
    sort: str = ""  #: "", "property", "static", "class", "constexpr"


@dataclass(frozen=True)
class Cached:
    """A function that remembers its results (`functools.cache`)."""

    function: Values


@dataclass(frozen=True)
class Partial:
    """A call with some arguments given: `functools.partial`, or a decorator with arguments."""

    function: Values
    args: tuple[Values, ...] = ()
    kwargs: tuple[tuple[str, Values], ...] = ()


@dataclass(frozen=True)
class Class:
    """A class of the candidate."""

    node: ast.ClassDef
    frame: Frame
    fields: tuple[str, ...] | None = None  #: of a dataclass or named tuple
    bases: tuple[Class, ...] = ()
    enum: bool = False


@dataclass(frozen=True)
class Instance:
    """An object of a class of the candidate; attributes stand in `site.keyed`."""

    cls: Class
    site: Site


@dataclass(frozen=True)
class Kernel:
    """A `triton.jit` function. `site.keyed`: what each parameter was launched with."""

    node: ast.FunctionDef
    frame: Frame
    site: Site


@dataclass(frozen=True)
class Launch:
    """A kernel with its grid, ready to be called."""

    kernel: Kernel
    grid: Values


@dataclass(frozen=True)
class Method:
    """A built-in method of a value."""

    owner: Value
    name: str


Value = (
    Plain | Nothing | Tensor | Path | Opaque | Tuple | Sequence | Box | Function | Cached | Partial
    | Class | Instance | Kernel | Launch | Method
)  # fmt: skip
Values = frozenset[Value]

BOTTOM: Values = frozenset()
PLAIN: Values = frozenset({Plain()})
ADDRESS: Values = frozenset({Plain(address=True)})
NOTHING: Values = frozenset({Nothing()})
TENSOR: Values = frozenset({Tensor()})
READ: Values = frozenset({Plain(element="read")})
COMPUTED: Values = frozenset({Plain(element="computed")})


def one(value: Value) -> Values:
    """The set of this value alone."""
    return frozenset({value})


def join(parts: Iterable[Values]) -> Values:
    """Everything that any of the parts may be; known strings are given up beyond 64."""
    joined: Values = frozenset().union(*parts)
    texts = [v for v in joined if isinstance(v, Plain) and v.text is not None]
    if len(texts) > 64:
        whole = Plain(None, any(v.address for v in texts), strongest(v.element for v in texts))
        joined = (joined - frozenset(texts)) | one(whole)
    return joined


def contents(value: Value) -> Values:
    """What a container of any sort may hold."""
    if isinstance(value, Tuple):
        return join(value.items)
    if isinstance(value, Sequence):
        return value.element
    if isinstance(value, Box):
        return join([*value.site.keyed.values(), value.site.rest[0]])
    if isinstance(value, Instance):
        return join(value.site.keyed.values())
    if isinstance(value, Partial):
        return join([value.function, *value.args, *(v for _, v in value.kwargs)])
    if isinstance(value, Launch):
        return value.grid
    if isinstance(value, Method):
        return one(value.owner)
    if isinstance(value, Function) and value.bound:
        return value.bound
    return BOTTOM


def deep(values: Values) -> set[Value]:
    """`values` and everything reachable inside them."""
    seen: set[Value] = set()
    todo = list(values)
    while todo:
        value = todo.pop()
        if value not in seen:
            seen.add(value)
            todo.extend(contents(value))
            if isinstance(value, Box) and value.site.keys is not None:
                todo.extend(value.site.keys[0])
    return seen


def holds_tensor(values: Values) -> bool:
    """Whether a tensor may be among the values or inside one of them."""
    return any(isinstance(value, Tensor) for value in deep(values))


def holds_address(values: Values) -> bool:
    """Whether an address may be among the values or inside one of them."""
    return any(isinstance(value, Plain) and value.address for value in deep(values))


def element_of(values: Values) -> Element:
    """What elements of tensors have to do with the values, or with what is inside them.

    The text of an exception may quote any number, so it counts as computed.
    """
    return strongest(map(_element, deep(values)))


def _element(value: Value) -> Element:
    if isinstance(value, Plain):
        return value.element
    return "computed" if value == Opaque("exception") else ""


def strongest(elements: Iterable[Element]) -> Element:
    """What holds of all together: "computed" over "read" over nothing."""
    found = set(elements)
    return "computed" if "computed" in found else "read" if "read" in found else ""


def sized_by(values: Values) -> Element:
    """What elements have to do with the size of a tensor that is made or viewed with `values`.

    One number as it was read makes a size like any other; two of them would make a product.
    """
    found = _numbers(values)
    return "computed" if len(found) > 1 or "computed" in found else ""


def _numbers(values: Values) -> list[Element]:
    """Of every number among `values` that stems from an element, how it does."""
    whole = strongest(v.element for v in values if isinstance(v, Plain))
    found: list[Element] = [whole] if whole else []
    for value in values:
        if isinstance(value, Tuple):
            found += [element for item in value.items for element in _numbers(item)]
        elif not isinstance(value, Plain) and element_of(one(value)):
            found.append("computed")  # in a list there may be many
    return found


def derived(values: Values) -> Values:
    """A plain value that is computed from `values`."""
    element: Element = "computed" if element_of(values) else ""
    return one(Plain(address=holds_address(values), element=element))


def stained(values: Values) -> Values:
    """`values` where an element of a tensor decided that it is these."""
    return frozenset(map(_stained, values))


def _stained(value: Value) -> Value:
    if isinstance(value, Plain):
        return replace(value, element="computed")
    if isinstance(value, Tuple):
        return Tuple(tuple(map(stained, value.items)))
    if isinstance(value, Sequence):
        return Sequence(stained(value.element))
    return value


def is_plain(values: Values) -> bool:
    """Whether every value is a number, string or None, and none stems from a tensor's element."""
    return all(
        isinstance(value, Nothing) or (isinstance(value, Plain) and not value.element)
        for value in values
    )


def tuple_of(items: Iterable[Values]) -> Values:
    """A tuple; of plain values, it is one plain value (a shape, a grid)."""
    items = tuple(items)
    if all(is_plain(item) for item in items):
        return ADDRESS if any(holds_address(item) for item in items) else PLAIN
    if max(map(_depth, items), default=0) > 4:
        leaves = (v for item in items for v in deep(item))
        return one(Sequence(frozenset(v for v in leaves if not isinstance(v, Tuple | Sequence))))
    return one(Tuple(items))


def _depth(values: Values) -> int:
    inside = [_depth(i) for v in values if isinstance(v, Tuple) for i in v.items]
    nested = [_depth(v.element) for v in values if isinstance(v, Sequence)]
    return 1 + max(inside + nested, default=0)
