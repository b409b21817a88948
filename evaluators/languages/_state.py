"""What a scan remembers while it follows a candidate, and what it may ask of itself."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._trees import (
    Env,
    assigned,
)
from kernelmark.evaluators.languages._values import (
    BOTTOM,
    COMPUTED,
    PLAIN,
    Box,
    Class,
    Frame,
    Function,
    FunctionNode,
    Kernel,
    Plain,
    Site,
    Tensor,
    Value,
    Values,
    deep,
    element_of,
    holds_address,
    holds_tensor,
    join,
    one,
    stained,
)
from kernelmark.operators.records import Operator

MAX_STEPS = 600_000
MAX_CONTEXTS = 80  #: distinct argument sets for one function before they are joined


@dataclass
class Args:
    """Arguments of an abstract call. `star`, `double`: what ``*x`` and ``**x`` may hold; `tail`:
    what stands after the last ``*x`` of unknown length."""

    positional: list[Values] = field(default_factory=list)
    named: dict[str, Values] = field(default_factory=dict)
    star: Values = BOTTOM
    double: Values = BOTTOM
    tail: list[Values] = field(default_factory=list)

    def all(self) -> Values:
        """Everything that is passed."""
        return join([*self.positional, *self.named.values(), self.loose()])

    def loose(self) -> Values:
        """Everything that is passed in a place that is not known."""
        return join([self.star, *self.tail, self.double])

    def get(self, index: int, name: str = "") -> Values:
        """One argument, by position or name; BOTTOM if it is not given."""
        if index < len(self.positional):
            return self.positional[index]
        return self.named[name] if name in self.named else self.loose()

    def spread(self, names: list[str], optional: set[str]) -> dict[str, Values]:
        """Arguments by the names of positional parameters; those not given are left out.

        Where every parameter must be given, the length of a ``*x`` follows from their number.
        """
        bound = dict(zip(names, self.positional, strict=False))
        bound |= {name: self.named[name] for name in names if name in self.named}
        free = [name for name in names if name not in bound]
        length = len(free) - len(self.tail)
        if self.star and not self.double and length >= 0 and not optional & set(free):
            bound |= dict.fromkeys(free[:length], self.star)
            bound |= dict(zip(free[length:], self.tail, strict=True))
        elif self.loose():
            bound |= dict.fromkeys(free, self.loose())
        return bound


class TooIntricate(Exception):
    """The code takes more steps to follow than the scan allows."""


class State:
    """Findings, scopes, objects and kernels of one scan."""

    def __init__(self, tree: ast.Module, entry: str, operator: Operator | None) -> None:
        self.tree = tree
        self.entry = entry
        self.operator = operator
        self.findings: dict[Finding, None] = {}
        self.kernels: dict[tuple[int, int], Kernel] = {}
        self.launched = False
        self.endless = False  #: whether the entry point can never return
        self.importing = True
        self._under = 0  #: branches and loops round here that elements of tensors decide
        self._branch = 0  #: those of them that are in the function that is followed
        self._left: list[tuple[int, bool]] = []  #: loops: their `_branch`; left by such a branch
        self._met = 0  #: values so far that stem from elements, and launches: what they may raise
        self._telling: set[int] = set()  #: frames and ``try`` in which there was any
        self._eager: set[int] = set()  #: generator expressions that are used up where they stand
        globals_ = (n for s in ast.walk(tree) if isinstance(s, ast.Global) for n in s.names)
        self.module = Frame(tree, None, True, assigned(tree.body) | frozenset(globals_))
        self._frames: dict[Any, Frame] = {}
        self._sites: dict[Any, Site] = {}
        self._contexts: dict[int, set[Any]] = {}
        #: functions that Triton calls at a launch, by the kernel's node (0: any kernel's)
        self._hooks: dict[int, dict[tuple[str, Value], None]] = {0: {}}
        self._tuned: set[int] = set()
        self._escapes: dict[int, frozenset[str]] = {}
        self._names: dict[int, frozenset[str]] = {}  #: bound in a function, by its body
        self._supplied: set[str] = set()  #: parameters that configurations and heuristics give
        self._done: set[int] = set()
        self._late: dict[Finding, None] = {}  #: findings that hold only if a round ends with them
        self._changed = False
        self._steps = 0
        name = operator.name if operator else ""
        self._refused_moves = policy.MOVING_OPERATORS.get(name, set())
        self._refused_views = policy.VIEWING_OPERATORS.get(name, set())
        self._random = operator is not None and operator.kind == "random"
        if operator is not None and operator.kind == "metadata":
            self._refused_moves = set()

    def refuse(self, node: ast.AST, reason: str) -> Values:
        """Records a finding at the node's line; answers BOTTOM, so that one cause is told once."""
        self.findings[Finding(getattr(node, "lineno", 1), reason)] = None
        return BOTTOM

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooIntricate

    def _into(self, cell: list[Values], values: Values) -> None:
        grown = join([cell[0], values])
        if grown != cell[0]:
            cell[0] = grown
            self._changed = True

    # -- memory ------------------------------------------------------------------------------

    def _site(self, node: ast.AST, *key: Any, mapping: bool = False) -> Site:
        key = (id(node), self.importing, *key)
        if key not in self._sites:
            self._sites[key] = Site(node, self.importing, [PLAIN] if mapping else None)
        return self._sites[key]

    def _grow_keys(self, site: Site, keys: Values) -> None:
        if site.keys is not None:
            told = (v for v in keys if not isinstance(v, Plain) or v.element)
            self._into(site.keys, frozenset(told))

    def _grow(self, site: Site, values: Values, key: Any = None) -> None:
        """Adds what `site` may hold: under a known key, or anywhere."""
        if key is None:
            grown = join([site.rest[0], values])
            if grown != site.rest[0]:
                site.rest[0] = grown
                self._changed = True
            return
        grown = join([site.keyed.get(key, BOTTOM), values])
        if grown != site.keyed.get(key):
            site.keyed[key] = grown
            self._changed = True

    def _store(self, site: Site, values: Values, node: ast.AST, key: Any = None) -> None:
        if site.shared and not self.importing:
            self._remember(values, node)
        self._grow(site, stained(values) if self._under else values, key)

    def _stain(self, values: Values) -> None:
        """Lists and dicts of numbers among `values`: an element decided what they hold."""
        for value in values:
            held = deep(one(value)) if isinstance(value, Box) else ()
            if isinstance(value, Box) and any(isinstance(v, Plain) for v in held):
                self._grow(value.site, COMPUTED)
                self._grow_keys(value.site, COMPUTED)

    def _stain_names(self, names: Iterable[str], env: Env, frame: Frame) -> None:
        """Names that a branch binds which an element decides: their values tell of the element."""
        for name in names:
            if name in frame.cells:
                values = stained(env.get(name) or frame.cells[name])
                self._stain(values)
                env[name] = values
                self._cell(frame, name, values)

    def _cell(self, frame: Frame, name: str, values: Values) -> None:
        grown = join([frame.cells.get(name, BOTTOM), values])
        if grown != frame.cells.get(name):
            frame.cells[name] = grown
            self._changed = True

    def _remember(self, values: Values, node: ast.AST) -> None:
        """Refuses state that outlives the call and could change an answer."""
        if holds_tensor(values):
            self.refuse(node, "keeps a tensor between calls: make it anew in every call")
        if holds_address(values):
            self.refuse(node, "remembers an address between calls: ask for it in every call")
        if element_of(values):
            self.refuse(node, "remembers a tensor's element between calls: read it in every call")
        for value in deep(values):
            if isinstance(value, Function) and not value.frame.shared:
                self.refuse(node, "keeps a closure of this call: define the function at top level")

    def _update(self, site: Site, values: Values, node: ast.AST) -> None:
        for value in values:
            if isinstance(value, Box):
                for key, held in list(value.site.keyed.items()):
                    self._store(site, held, node, key)
                self._store(site, value.site.rest[0], node)
                self._grow_keys(site, value.site.keys[0] if value.site.keys else BOTTOM)
            else:
                self._store(site, self._elements(value, node), node)
                pairs = (v for v in deep(one(value)) if isinstance(v, Plain | Tensor))
                self._grow_keys(site, frozenset(pairs))

    def _frame(self, node: ast.AST, parent: Frame, key: Any, names: frozenset[str]) -> Frame:
        full = (id(node), id(parent), key, self.importing)
        if full not in self._frames:
            self._frames[full] = Frame(node, parent, self.importing, names)
        return self._frames[full]

    def _resolve(self, path: str, node: ast.AST) -> Values:
        try:
            return policy.resolve(path)
        except policy.Refused as error:
            return self.refuse(node, str(error))

    # -- what other parts of the interpreter give --------------------------------------------

    def value(self, node: ast.expr, env: Env, frame: Frame) -> Values:
        """Everything that the expression may be."""
        raise NotImplementedError

    def call(self, function: Values, args: Args, node: ast.AST) -> Values:
        """Calls everything that `function` may be."""
        raise NotImplementedError

    def elements(self, values: Values, node: ast.AST) -> Values:
        """What iterating gives."""
        raise NotImplementedError

    def _elements(self, value: Value, node: ast.AST) -> Values:
        raise NotImplementedError

    def _attribute(self, owner: Values, name: str, node: ast.AST) -> Values:
        raise NotImplementedError

    def _members(self, cls: Class, owner: Values, name: str, node: ast.AST) -> Values:
        raise NotImplementedError

    def _operate_compare(self, node: ast.AST, values: Values) -> None:
        raise NotImplementedError

    def _call_back(self, values: Values, given: Values, node: ast.AST) -> Values:
        raise NotImplementedError

    def _long(self, iterable: Values) -> bool:
        raise NotImplementedError

    def _rebind(self, node: ast.expr, env: Env, frame: Frame) -> None:
        raise NotImplementedError

    def _truth(self, values: Values, node: ast.AST) -> bool:
        raise NotImplementedError

    def _launch(self, kernel: Kernel, grid: Values, args: Args, node: ast.AST) -> Values:
        raise NotImplementedError

    def _kernel(self, function: Function) -> Values:
        raise NotImplementedError

    def _kernel_argument(self, values: Values, node: ast.AST) -> None:
        raise NotImplementedError

    def _find_hooks(self, args: Args, node: ast.AST, sort: str = "hook") -> list[tuple[str, Value]]:
        raise NotImplementedError

    def _bind(self, name: str, values: Values, env: Env, frame: Frame, node: ast.AST) -> None:
        raise NotImplementedError

    def _assign(self, target: ast.expr, values: Values, env: Env, frame: Frame) -> None:
        raise NotImplementedError

    def _narrow(self, test: ast.expr, env: Env, frame: Frame, holds: bool) -> Env:
        raise NotImplementedError

    def _function(self, node: FunctionNode, env: Env, frame: Frame) -> Function:
        raise NotImplementedError

    def _block(self, body: list[ast.stmt], env: Env | None, frame: Frame) -> Env | None:
        raise NotImplementedError
