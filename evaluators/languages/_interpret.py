"""Follows a candidate's host code over abstract values, and refuses what is not on the list.

The module is run as it would be imported, then the entry point is called once for each overload of
the operator, with tensors where the signature says tensors. Functions are followed into at each
call, so that a helper is judged by what it is really given: ``(n + 1) // 2`` is honest for a number
and refused for a tensor. Everything that a value may be is kept (`_values`), over branches and
loops, until nothing new turns up. What cannot be told is refused: the scan fails closed.

Kernel bodies are not followed here but read by `_kernels`.
"""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._values import (
    ADDRESS,
    BOTTOM,
    NOTHING,
    PLAIN,
    TENSOR,
    Box,
    Cached,
    Class,
    Frame,
    Function,
    FunctionNode,
    Instance,
    Kernel,
    Launch,
    Method,
    Nothing,
    Opaque,
    Partial,
    Path,
    Plain,
    Sequence,
    Site,
    Tensor,
    Tuple,
    Value,
    Values,
    contents,
    deep,
    holds_address,
    holds_tensor,
    is_plain,
    join,
    one,
    tuple_of,
)
from kernelmark.operators.records import Operator, Parameter, parse_signature

Env = dict[str, Values]
Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp

MAX_STEPS = 600_000
MAX_ROUNDS = 30
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


class Interpreter:
    """One scan of one candidate. `run` fills `findings`, `kernels` and `launched`."""

    def __init__(self, tree: ast.Module, entry: str, operator: Operator | None) -> None:
        self.tree = tree
        self.entry = entry
        self.operator = operator
        self.findings: dict[Finding, None] = {}
        self.kernels: dict[tuple[int, int], Kernel] = {}
        self.launched = False
        self.importing = True
        globals_ = (n for s in ast.walk(tree) if isinstance(s, ast.Global) for n in s.names)
        self.module = Frame(tree, None, True, assigned(tree.body) | frozenset(globals_))
        self._frames: dict[Any, Frame] = {}
        self._sites: dict[Any, Site] = {}
        self._contexts: dict[int, set[Any]] = {}
        #: functions that Triton calls at a launch, by the kernel's node (0: any kernel's)
        self._hooks: dict[int, dict[tuple[str, Value], None]] = {0: {}}
        self._tuned: set[int] = set()
        self._escapes: dict[int, frozenset[str]] = {}
        self._supplied: set[str] = set()  #: parameters that configurations and heuristics give
        self._done: set[int] = set()
        self._late: dict[Finding, None] = {}  #: findings that hold only if a round ends with them
        self._changed = False
        self._steps = 0
        name = operator.name if operator else ""
        self._refused_moves = policy.MOVING_OPERATORS.get(name, set())
        self._random = operator is not None and operator.kind == "random"
        if operator is not None and operator.kind == "metadata":
            self._refused_moves = set()

    # -- the whole ---------------------------------------------------------------------------

    def run(self) -> None:
        """Follows the module and the entry point until nothing new turns up."""
        try:
            for _ in range(MAX_ROUNDS):
                self._changed = False
                self._done.clear()
                self._late.clear()
                self.importing = True
                self._check_names(self.module)
                self._block(self.tree.body, {}, self.module)
                self.importing = False
                self._call_entry()
                if not self._changed:
                    self.findings.update(self._late)
                    return
        except (TooIntricate, RecursionError):
            pass
        self.findings[Finding(1, "too intricate to be read; simplify the host code")] = None

    def refuse(self, node: ast.AST, reason: str) -> Values:
        """Records a finding at the node's line; answers BOTTOM, so that one cause is told once."""
        self.findings[Finding(getattr(node, "lineno", 1), reason)] = None
        return BOTTOM

    def _check_names(self, frame: Frame) -> None:
        """Modules and classes fall back to builtins where a name is not, or no longer, bound."""
        for name in sorted(frame.names & policy.FORBIDDEN_NAMES):
            self.refuse(frame.node, f"`{name}` is a builtin that may not be used: rename it")

    def _call_entry(self) -> None:
        target = self.module.cells.get(self.entry, BOTTOM)
        if self.entry not in self.module.names:
            self.refuse(self.tree, f"defines no function `{self.entry}`, the entry point")
        if any(isinstance(value, Kernel) for value in target):
            self.refuse(
                self._line_of_entry(),
                f"`{self.entry}` is a kernel: the entry point is host code that launches kernels",
            )
            return
        for args in self._entry_arguments(target):
            self.call(target, args, self._line_of_entry())

    def _line_of_entry(self) -> ast.AST:
        for statement in self.tree.body:
            if isinstance(statement, ast.FunctionDef) and statement.name == self.entry:
                return statement
        return self.tree

    def _entry_arguments(self, target: Values) -> list[Args]:
        if self.operator is not None:
            overloads = [parse_signature(text) for text in self.operator.signatures]
            return [a for overload in overloads for a in self._overload_arguments(overload)]
        guessed: list[Args] = []
        for value in target:
            if isinstance(value, Function):
                parameters = _parameters(value.node)
                named = {p.arg: _guess(p, value.node) for p in parameters}
                guessed.append(Args(named=named))
        return guessed

    def _overload_arguments(self, parameters: Iterable[Parameter]) -> list[Args]:
        full, short = Args(), Args()
        for p in parameters:
            value = self._parameter(p)
            for args in (full, short) if p.default is None else (full,):
                if p.keyword_only:
                    args.named[p.name] = value
                else:
                    args.positional.append(value)
        return [full, short]

    def _parameter(self, parameter: Parameter) -> Values:
        kind = parameter.type.replace("!", "")
        optional = NOTHING if kind.endswith("?") else BOTTOM
        if "Tensor" in kind and "[" in kind:
            site = self._site(self.tree, parameter.name)
            self._grow(site, TENSOR | (NOTHING if "?[" in kind else BOTTOM))
            return one(Box(site)) | optional
        if "Tensor" in kind:
            return TENSOR | optional
        if "Generator" in kind:
            return one(Opaque("generator")) | optional
        return PLAIN | optional

    # -- memory ------------------------------------------------------------------------------

    def _site(self, node: ast.AST, *key: Any, mapping: bool = False) -> Site:
        key = (id(node), self.importing, *key)
        if key not in self._sites:
            self._sites[key] = Site(node, self.importing, [PLAIN] if mapping else None)
        return self._sites[key]

    def _grow_keys(self, site: Site, keys: Values) -> None:
        if site.keys is not None:
            self._into(site.keys, frozenset(v for v in keys if not isinstance(v, Plain)))

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
        self._grow(site, values, key)

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
        for value in deep(values):
            if isinstance(value, Function) and not value.frame.shared:
                self.refuse(node, "keeps a closure of this call: define the function at top level")

    # -- statements --------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt], env: Env | None, frame: Frame) -> Env | None:
        """Runs statements; None where control does not go on."""
        for statement in body:
            if env is None:
                return None
            env = self._statement(statement, env, frame)
        return env

    def _statement(self, node: ast.stmt, env: Env, frame: Frame) -> Env | None:
        self._tick()
        handler: Callable[[Any, Env, Frame], Env | None] | None = getattr(
            self, f"_stmt_{type(node).__name__}", None
        )
        if handler is None:
            self.refuse(node, f"`{type(node).__name__}` statements are not for candidates")
            return env
        return handler(node, env, frame)

    def _tick(self) -> None:
        self._steps += 1
        if self._steps > MAX_STEPS:
            raise TooIntricate

    def _stmt_Expr(self, node: ast.Expr, env: Env, frame: Frame) -> Env:
        self.value(node.value, env, frame)
        return env

    def _stmt_Pass(self, node: ast.stmt, env: Env, frame: Frame) -> Env:
        return env

    _stmt_Global = _stmt_Nonlocal = _stmt_Pass  # `_enter` has bound the names

    def _stmt_Break(self, node: ast.stmt, env: Env, frame: Frame) -> None:
        # Cells hold every value a name ever has; loops read them after the body.
        return None

    _stmt_Continue = _stmt_Break

    def _stmt_Return(self, node: ast.Return, env: Env, frame: Frame) -> None:
        values = self.value(node.value, env, frame) if node.value else NOTHING
        self._into(frame.returns, values)

    def _into(self, cell: list[Values], values: Values) -> None:
        grown = join([cell[0], values])
        if grown != cell[0]:
            cell[0] = grown
            self._changed = True

    def _stmt_Raise(self, node: ast.Raise, env: Env, frame: Frame) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.value(part, env, frame)

    def _stmt_Assert(self, node: ast.Assert, env: Env, frame: Frame) -> Env:
        self.value(node.test, env, frame)
        if node.msg is not None:
            self.value(node.msg, env, frame)
        return self._narrow(node.test, env, frame, True)

    def _stmt_Assign(self, node: ast.Assign, env: Env, frame: Frame) -> Env:
        values = self.value(node.value, env, frame)
        for target in node.targets:
            self._assign(target, values, env, frame)
        return env

    def _stmt_AnnAssign(self, node: ast.AnnAssign, env: Env, frame: Frame) -> Env:
        self._annotation(node.annotation)
        if node.value is not None:
            self._assign(node.target, self.value(node.value, env, frame), env, frame)
        return env

    def _stmt_AugAssign(self, node: ast.AugAssign, env: Env, frame: Frame) -> Env:
        load = _as_load(node.target)
        left, right = self.value(load, env, frame), self.value(node.value, env, frame)
        if not self.importing and self._outlives(node.target, env, frame):
            self.refuse(node, "counts over calls: an answer may depend on the arguments alone")
        self._assign(node.target, self._operate(node, node.op, left, right), env, frame)
        return env

    def _outlives(self, target: ast.expr, env: Env, frame: Frame) -> bool:
        if isinstance(target, ast.Name):
            return target.id in frame.outer and frame.outer[target.id].shared
        owner = self.value(target.value, env, frame)  # type: ignore[attr-defined]
        return any(isinstance(v, Box | Instance) and v.site.shared for v in owner) or any(
            isinstance(v, Class) for v in owner
        )

    def _assign(self, target: ast.expr, values: Values, env: Env, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            self._bind(target.id, values, env, frame, target)
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, values, env, frame)
        elif isinstance(target, ast.Starred):
            site = self._site(target)
            self._grow(site, values)
            self._assign(target.value, one(Box(site)), env, frame)
        elif isinstance(target, ast.Subscript):
            self._set_item(target, values, env, frame)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(target, values, env, frame)

    def _bind(self, name: str, values: Values, env: Env, frame: Frame, node: ast.AST) -> None:
        if name.startswith("__") and name not in (
            "__all__",
            "__version__",
            "__author__",
            "__slots__",
        ):
            self.refuse(node, f"`{name}`: special names are not for candidates")
            return
        outer = frame.outer.get(name)
        if outer is None:
            env[name] = values
            self._cell(frame, name, values)
            return
        if outer.shared and not self.importing:
            self._remember(values, node)
        self._cell(outer, name, values)

    def _unpack(self, targets: list[ast.expr], values: Values, env: Env, frame: Frame) -> None:
        starred = any(isinstance(t, ast.Starred) for t in targets)
        for i, target in enumerate(targets):
            parts: list[Values] = []
            for value in values:
                if isinstance(value, Tuple) and not starred and len(value.items) == len(targets):
                    parts.append(value.items[i])
                else:
                    parts.append(self._elements(value, target))
            self._assign(target, join(parts), env, frame)

    def _set_item(self, target: ast.Subscript, values: Values, env: Env, frame: Frame) -> None:
        index = self.value(target.slice, env, frame)
        for owner in self.value(target.value, env, frame):
            if isinstance(owner, Tensor):
                self._subscript_tensor(index, target)
                self._move("setitem", target)
            elif isinstance(owner, Box):
                key = _constant(target.slice)
                self._store(owner.site, values, target, key)
                self._grow_keys(owner.site, index)
                if owner.site.shared and not self.importing:
                    self._remember(index, target)
            elif isinstance(owner, Plain):
                if holds_tensor(values):
                    self.refuse(target, "stores a tensor where only plain values are known")
            elif not isinstance(owner, Nothing):
                self.refuse(target, "item assignment is for tensors, lists and dicts")

    def _set_attribute(self, target: ast.Attribute, values: Values, env: Env, frame: Frame) -> None:
        for owner in self.value(target.value, env, frame):
            if isinstance(owner, Instance) and not target.attr.startswith("__"):
                self._store(owner.site, values, target, target.attr)
            elif isinstance(owner, Opaque) and owner.sort == "descriptor":
                if target.attr != "block_shape":
                    self.refuse(target, f"`.{target.attr}` of a tensor descriptor is fixed")
            elif not isinstance(owner, Nothing) and not (
                isinstance(owner, Plain) and target.attr == "block_shape"
            ):
                self.refuse(
                    target,
                    f"assigns the attribute `{target.attr}` of something that is not its own: "
                    "nothing may be patched",
                )

    def _stmt_Delete(self, node: ast.Delete, env: Env, frame: Frame) -> Env:
        for target in node.targets:
            if not isinstance(target, ast.Name | ast.Subscript):
                self.refuse(target, "only names and items can be deleted")
        return env

    def _stmt_If(self, node: ast.If, env: Env, frame: Frame) -> Env | None:
        if _is_main_guard(node.test):
            return self._block(node.orelse, env, frame)
        if self.value(node.test, env, frame) == one(Path("typing.TYPE_CHECKING")):
            return self._block(node.orelse, env, frame)
        then = self._block(node.body, self._narrow(node.test, env, frame, True), frame)
        other = self._block(node.orelse, self._narrow(node.test, env, frame, False), frame)
        return _merge(then, other)

    def _stmt_For(self, node: ast.For, env: Env, frame: Frame) -> Env:
        elements = self.elements(self.value(node.iter, env, frame), node.iter)

        def body(inner: Env) -> Env | None:
            self._assign(node.target, elements, inner, frame)
            return self._block(node.body, inner, frame)

        env = self._loop(body, env, node.body, frame)
        return _merge(env, self._block(node.orelse, dict(env), frame)) or env

    def _stmt_While(self, node: ast.While, env: Env, frame: Frame) -> Env:
        def body(inner: Env) -> Env | None:
            self.value(node.test, inner, frame)
            return self._block(node.body, self._narrow(node.test, inner, frame, True), frame)

        env = self._loop(body, env, node.body, frame)
        return _merge(env, self._block(node.orelse, dict(env), frame)) or env

    def _loop(
        self, body: Callable[[Env], Env | None], env: Env, inside: list[ast.stmt], frame: Frame
    ) -> Env:
        """Runs a body until what it leaves behind is stable; then every way out is covered."""
        changed = assigned(inside)
        for _ in range(8):
            before = dict(env)
            after = body(dict(env))
            env = _merge(env, after) or env
            # `break` and `continue` leave in the middle: take whatever the names ever were.
            for name in changed & frame.cells.keys():
                env[name] = join([env.get(name, BOTTOM), frame.cells[name]])
            if env == before:
                break
        return env

    def _stmt_With(self, node: ast.With, env: Env, frame: Frame) -> Env | None:
        for item in node.items:
            values = self.value(item.context_expr, env, frame)
            for value in values:
                if value != Opaque("context"):
                    self.refuse(item.context_expr, "only device and no_grad contexts may be opened")
            if item.optional_vars is not None:
                self._assign(item.optional_vars, PLAIN, env, frame)
        return self._block(node.body, env, frame)

    def _stmt_Try(self, node: ast.Try, env: Env, frame: Frame) -> Env | None:
        after = self._block(node.body, dict(env), frame)
        thrown = _merge(env, after) or env
        for name in assigned(node.body) & frame.cells.keys():
            thrown[name] = join([thrown.get(name, BOTTOM), frame.cells[name]])
        ends = [self._block(node.orelse, after, frame) if after is not None else None]
        for handler in node.handlers:
            inner = dict(thrown)
            if handler.type is not None:
                self.value(handler.type, inner, frame)
            if handler.name:
                self._bind(handler.name, one(Opaque("exception")), inner, frame, handler)
            ends.append(self._block(handler.body, inner, frame))
        end: Env | None = None
        for item in ends:
            end = _merge(end, item)
        if not node.finalbody:
            return end
        final = self._block(node.finalbody, dict(end if end is not None else thrown), frame)
        return final if end is not None else None

    def _stmt_Match(self, node: ast.Match, env: Env, frame: Frame) -> Env | None:
        subject = self.value(node.subject, env, frame)
        end: Env | None = dict(env)
        for case in node.cases:
            inner = dict(env)
            self._pattern(case.pattern, subject, inner, frame)
            if case.guard is not None:
                self.value(case.guard, inner, frame)
            end = _merge(end, self._block(case.body, inner, frame))
        return end

    def _pattern(self, node: ast.pattern, subject: Values, env: Env, frame: Frame) -> None:
        if isinstance(node, ast.MatchValue):
            self._operate_compare(node, subject)
            self.value(node.value, env, frame)
        elif isinstance(node, ast.MatchOr):
            for part in node.patterns:
                self._pattern(part, subject, env, frame)
        elif isinstance(node, ast.MatchAs):
            if node.pattern is not None:
                self._pattern(node.pattern, subject, env, frame)
            if node.name:
                self._bind(node.name, subject, env, frame, node)
        elif isinstance(node, ast.MatchSequence):
            inside = self.elements(subject, node)
            for part in node.patterns:
                self._pattern(part, inside, env, frame)
        elif not isinstance(node, ast.MatchSingleton):
            self.refuse(node, "this pattern is not read by the scan: use if and elif")

    def _stmt_Import(self, node: ast.Import, env: Env, frame: Frame) -> Env:
        for alias in node.names:
            if not policy.module_allowed(alias.name):
                self.refuse(node, policy.refusal(alias.name).replace("`", "`import ", 1))
                continue
            name = alias.name if alias.asname else alias.name.split(".")[0]
            bound = alias.asname or name
            self._bind(bound, self._resolve(name, node), env, frame, node)
        return env

    def _stmt_ImportFrom(self, node: ast.ImportFrom, env: Env, frame: Frame) -> Env:
        if node.level or node.module is None:
            self.refuse(node, "a candidate is one file: there is nothing to import beside it")
            return env
        for alias in node.names:
            if alias.name == "*":
                self.refuse(node, "`import *` hides what is used: name what you import")
                continue
            bound = alias.asname or alias.name
            if node.module == "__future__":
                continue
            if not policy.module_allowed(node.module):
                self.refuse(node, policy.refusal(node.module).replace("`", "`import ", 1))
                continue
            values = self._resolve(f"{node.module}.{alias.name}", node)
            self._bind(bound, values, env, frame, node)
        return env

    def _resolve(self, path: str, node: ast.AST) -> Values:
        try:
            return policy.resolve(path)
        except policy.Refused as error:
            return self.refuse(node, str(error))

    def _stmt_FunctionDef(self, node: ast.FunctionDef, env: Env, frame: Frame) -> Env:
        if node.name.startswith("__") and not (
            isinstance(frame.node, ast.ClassDef) and node.name in policy.SPECIAL_METHODS
        ):
            self.refuse(node, f"`{node.name}`: this special method is not for candidates")
            return env
        self._annotations(node)
        values = one(self._function(node, env, frame))
        for decorator in reversed(node.decorator_list):
            values = self._decorate(decorator, values, env, frame)
        self._bind_definition(node, values, env, frame)
        return env

    def _bind_definition(
        self, node: ast.FunctionDef | ast.ClassDef, values: Values, env: Env, frame: Frame
    ) -> None:
        if isinstance(frame.node, ast.ClassDef):  # special methods may be named there
            env[node.name] = values
            self._cell(frame, node.name, values)
        else:
            self._bind(node.name, values, env, frame, node)

    def _stmt_AsyncFunctionDef(self, node: ast.AsyncFunctionDef, env: Env, frame: Frame) -> Env:
        self.refuse(node, "nothing may be deferred: no async functions")
        return env

    def _function(self, node: FunctionNode, env: Env, frame: Frame) -> Function:
        arguments = node.args
        names = [p.arg for p in (*arguments.posonlyargs, *arguments.args)]
        defaults: list[tuple[str, Values]] = []
        if arguments.defaults:
            for name, default in zip(
                names[-len(arguments.defaults) :], arguments.defaults, strict=True
            ):
                defaults.append((name, self.value(default, env, frame)))
        for parameter, kw_default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            if kw_default is not None:
                defaults.append((parameter.arg, self.value(kw_default, env, frame)))
        return Function(node, frame, tuple(defaults))

    def _decorate(self, decorator: ast.expr, values: Values, env: Env, frame: Frame) -> Values:
        return self.call(self.value(decorator, env, frame), Args([values]), decorator)

    def _annotations(self, node: ast.FunctionDef) -> None:
        for parameter in _parameters(node):
            if parameter.annotation is not None:
                self._annotation(parameter.annotation)
        if node.returns is not None:
            self._annotation(node.returns)

    def _annotation(self, node: ast.expr) -> None:
        """Annotations are evaluated at import: only names, attributes and subscripts are let be."""
        allowed = (
            ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.List, ast.BinOp,
            ast.BitOr, ast.Load, ast.UnaryOp, ast.USub,
        )  # fmt: skip
        for part in ast.walk(node):
            hidden = isinstance(part, ast.Attribute) and part.attr.startswith("__")
            name = isinstance(part, ast.Name) and part.id.startswith("__")
            if hidden or name or not isinstance(part, allowed):
                self.refuse(node, "an annotation may only name types")
                return

    def _stmt_ClassDef(self, node: ast.ClassDef, env: Env, frame: Frame) -> Env:
        bases: list[Class] = []
        enum = tuple_like = False
        for base in node.bases:
            target = base.value if isinstance(base, ast.Subscript) else base
            for value in self.value(target, env, frame):
                if isinstance(value, Class):
                    bases.append(value)
                    enum = enum or value.enum
                elif isinstance(value, Path) and value.name.startswith("enum."):
                    enum = True
                elif value == Path("typing.NamedTuple"):
                    tuple_like = True
                elif value not in (
                    Path("builtins.object"), Path("typing.Protocol"), Path("typing.Generic"),
                    Path("abc.ABC"), Path("builtins.Exception"), Path("builtins.ValueError"),
                    Path("builtins.RuntimeError"),
                ):  # fmt: skip
                    self.refuse(
                        node, "a class may not build on this base: write plain functions and data"
                    )
        if node.keywords:
            self.refuse(node, "metaclasses and class keywords are not for candidates")
        inner = self._frame(node, frame, (), assigned(node.body))
        self._check_names(inner)
        self._block(node.body, {}, inner)
        if enum and any(map(holds_tensor, inner.cells.values())):
            self.refuse(node, "an enumeration of tensors: use a list")
        fields = _annotated(node) if tuple_like else None
        for inherited in bases:
            fields = fields or inherited.fields
        values: Values = one(Class(node, inner, fields, tuple(bases), enum))
        for decorator in reversed(node.decorator_list):
            values = self._decorate(decorator, values, env, frame)
        self._bind_definition(node, values, env, frame)
        return env

    # -- what is known after a test ----------------------------------------------------------

    def _narrow(self, test: ast.expr, env: Env, frame: Frame, holds: bool) -> Env:
        """A copy of `env` under the knowledge that `test` is true (or false)."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            return self._narrow(test.operand, env, frame, not holds)
        if isinstance(test, ast.BoolOp):
            conjunction = isinstance(test.op, ast.And) == holds
            if conjunction:
                for part in test.values:
                    env = self._narrow(part, env, frame, holds)
                return dict(env)
            ways: Env | None = None
            for part in test.values:
                ways = _merge(ways, self._narrow(part, env, frame, holds))
            return ways or dict(env)
        env = dict(env)
        name, keep = self._test(test, env, frame)
        if name is not None and keep is not None:
            known = self._name(name, env, frame, test)
            env[name] = frozenset(v for v in known if keep(v) is not (not holds))
        return env

    def _test(
        self, test: ast.expr, env: Env, frame: Frame
    ) -> tuple[str | None, Callable[[Value], bool | None] | None]:
        """The name that `test` is about, and a predicate: True, False, or None for either."""
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = test.left, test.comparators[0]
            is_none = isinstance(right, ast.Constant) and right.value is None
            if is_none and isinstance(test.ops[0], ast.Is | ast.IsNot):
                positive = isinstance(test.ops[0], ast.Is)
                return _name_of(left), lambda v: isinstance(v, Nothing) is positive
        if isinstance(test, ast.Call) and test.args:
            function = self.value(test.func, env, frame)
            name = _name_of(test.args[0])
            if function == one(Path("torch.is_tensor")):
                return name, lambda v: isinstance(v, Tensor)
            if function == one(Path("builtins.isinstance")) and len(test.args) == 2:
                return name, self._instance_test(self.value(test.args[1], env, frame))
            if function == one(Path("builtins.hasattr")) and len(test.args) == 2:
                text = _constant(test.args[1])
                known = policy.TENSOR_PLAIN | policy.TENSOR_ASK | policy.TENSOR_VIEWS
                if text in known:
                    return name, lambda v: True if isinstance(v, Tensor) else None
        return None, None

    def _instance_test(self, kinds: Values) -> Callable[[Value], bool | None] | None:
        """For ``isinstance(x, kinds)``: only what is sure of every kind is decided."""
        wanted = [v for v in deep(kinds) if not isinstance(v, Tuple)]
        names = {v.name for v in wanted if isinstance(v, Path)}
        if not names or len(names) < len(wanted):
            return None  # a class of the candidate's own may answer as it likes
        numbers = {
            "builtins.int", "builtins.float", "builtins.bool", "builtins.complex", "builtins.str",
        } | {n for n in names if n.startswith("numbers.")}  # fmt: skip

        def decide(value: Value) -> bool | None:
            if isinstance(value, Tensor):
                if "torch.Tensor" in names:
                    return True
                return False if names <= numbers | _SEQUENCES else None
            if isinstance(value, Plain | Nothing):
                return False if names == {"torch.Tensor"} else None
            if isinstance(value, Box | Tuple | Sequence):
                return False if names <= numbers | {"torch.Tensor"} else None
            return None

        return decide

    # -- expressions -------------------------------------------------------------------------

    def value(self, node: ast.expr, env: Env, frame: Frame) -> Values:
        """Everything that the expression may be."""
        self._tick()
        handler: Callable[[Any, Env, Frame], Values] | None = getattr(
            self, f"_expr_{type(node).__name__}", None
        )
        if handler is None:
            return self.refuse(node, f"`{type(node).__name__}` expressions are not for candidates")
        return handler(node, env, frame)

    def _expr_Constant(self, node: ast.Constant, env: Env, frame: Frame) -> Values:
        if node.value is None:
            return NOTHING
        return one(Plain(node.value)) if isinstance(node.value, str) else PLAIN

    def _expr_Name(self, node: ast.Name, env: Env, frame: Frame) -> Values:
        return self._name(node.id, env, frame, node)

    def _name(self, name: str, env: Env, frame: Frame, node: ast.AST) -> Values:
        settled = not isinstance(frame.node, ast.ClassDef) and name not in self._escaping(frame)
        if name in env and settled:
            return env[name]
        outer = frame.outer.get(name)
        if outer is not None:
            return outer.cells.get(name, BOTTOM)
        found = env.get(name, BOTTOM)
        scope: Frame | None = frame
        while scope is not None:
            if name in scope.names and (scope is frame or not isinstance(scope.node, ast.ClassDef)):
                found = found | scope.cells.get(name, BOTTOM)
                if not isinstance(scope.node, ast.ClassDef | ast.Module):
                    return found
            scope = scope.parent
        # A class or a module falls back to builtins where it has not bound the name (yet).
        if name in policy.BUILTINS_CONSTANT:
            return found | PLAIN
        if name in policy.BUILTINS:
            return found | one(Path(f"builtins.{name}"))
        if not found and name not in self.module.names:
            return self.refuse(node, f"`{name}` is neither defined here nor allowed in host code")
        return found

    def _escaping(self, frame: Frame) -> frozenset[str]:
        """Names that functions inside may bind anew (`global`, `nonlocal`) at any time."""
        while isinstance(frame.node, Comprehension) and frame.parent is not None:
            frame = frame.parent
        if id(frame.node) not in self._escapes:
            kind = ast.Global if frame is self.module else ast.Nonlocal
            found = (
                n for part in ast.walk(frame.node) if isinstance(part, kind) for n in part.names
            )
            self._escapes[id(frame.node)] = frozenset(found)
        return self._escapes[id(frame.node)]

    def _expr_Attribute(self, node: ast.Attribute, env: Env, frame: Frame) -> Values:
        owner = self.value(node.value, env, frame)
        return self._attribute(owner, node.attr, node)

    def _attribute(self, owner: Values, name: str, node: ast.AST) -> Values:
        if name in policy.INTROSPECTION or (
            name.startswith("_")
            and name not in policy.HARMLESS
            and not all(isinstance(v, Instance | Class) and name[:2] != "__" for v in owner)
        ):
            return self.refuse(node, f"`.{name}` reaches into internals")
        return join([self._attribute_of(value, name, node) for value in owner])

    def _attribute_of(self, value: Value, name: str, node: ast.AST) -> Values:
        if isinstance(value, Path):
            return self._path_attribute(value, name, node)
        if isinstance(value, Tensor):
            return self._tensor_attribute(value, name, node)
        if isinstance(value, Plain):
            return ADDRESS if value.address else PLAIN
        if isinstance(value, Instance):
            return self._instance_attribute(value, name, node)
        if isinstance(value, Class):
            return self._class_attribute(value, one(value), name, node)
        if isinstance(value, Opaque):
            return self._opaque_attribute(value, name, node)
        if isinstance(value, Kernel):
            return self._kernel_attribute(value, name, node)
        if isinstance(value, Box | Tuple | Sequence):
            return one(Method(value, name))
        if name in ("__name__", "__doc__", "__qualname__"):
            return PLAIN
        if isinstance(value, Cached) and name in ("cache_clear", "cache_info"):
            return PLAIN
        if isinstance(value, Nothing):
            return BOTTOM
        return self.refuse(node, f"`.{name}` of a function is not for candidates")

    def _path_attribute(self, value: Path, name: str, node: ast.AST) -> Values:
        if value.name.startswith("builtins."):
            if name == "fromkeys" and value.name == "builtins.dict":
                return one(Path("builtins.dict.fromkeys"))
            if name in ("maketrans", "join", "from_bytes") or name in policy.HARMLESS:
                return PLAIN
            return self.refuse(node, f"`{value.name[9:]}.{name}` is not for candidates")
        return self._resolve(f"{value.name}.{name}", node)

    def _tensor_attribute(self, value: Tensor, name: str, node: ast.AST) -> Values:
        if name in policy.TENSOR_PLAIN:
            return PLAIN
        if name in policy.TENSOR_PROPERTIES:
            return TENSOR
        known = (
            policy.TENSOR_ASK | policy.TENSOR_VIEWS | policy.MANY_VIEWS | policy.NEW_EMPTY
            | policy.NEW_FILLED | policy.CONVERT | policy.WRITE | policy.FILL | {"untyped_storage"}
        )  # fmt: skip
        if name in known and name != "broadcast_tensors":
            return one(Method(value, name))
        if name in ("tolist", "cpu", "numpy", "__array__"):
            return self.refuse(
                node, f"`.{name}()` brings tensor data to the host: read it in a kernel"
            )
        return self.refuse(
            node, f"`.{name}` of a tensor computes outside your kernels: do it in a kernel"
        )

    def _opaque_attribute(self, value: Opaque, name: str, node: ast.AST) -> Values:
        sort = policy.OPAQUE_ATTRIBUTES.get(value.sort, {}).get(name)
        if sort is None:
            return self.refuse(node, f"`.{name}` of a {value.sort} is not for candidates")
        return {"plain": PLAIN, "address": ADDRESS, "tensor": TENSOR}[sort]

    def _kernel_attribute(self, value: Kernel, name: str, node: ast.AST) -> Values:
        if name in ("run", "warmup"):
            return one(Method(value, name))
        if name == "fn":
            return one(value)
        if name in ("best_config", "configs", "arg_names", "__name__", "__doc__", "num_warps"):
            return one(Opaque("config")) if name == "best_config" else PLAIN
        return self.refuse(node, f"`.{name}` of a kernel is not for candidates: launch it")

    def _instance_attribute(self, value: Instance, name: str, node: ast.AST) -> Values:
        found = [value.site.keyed.get(name, BOTTOM)]
        found.append(self._members(value.cls, one(value), name, node))
        if value.cls.fields and name in ("_replace", "_asdict", "index", "count"):
            found.append(one(Method(value, name)))
        return join(found) or self._undefined(value.cls, name, node)

    def _undefined(self, cls: Class, name: str, node: ast.AST) -> Values:
        reason = f"`.{name}` is not defined in class `{cls.node.name}`"
        self._late[Finding(getattr(node, "lineno", 1), reason)] = None
        return BOTTOM

    def _class_attribute(self, cls: Class, owner: Values, name: str, node: ast.AST) -> Values:
        if cls.enum:
            return PLAIN if name not in cls.frame.cells else self._members(cls, owner, name, node)
        if name == "__name__":
            return PLAIN
        return self._members(cls, owner, name, node) or self._undefined(cls, name, node)

    def _members(self, cls: Class, owner: Values, name: str, node: ast.AST) -> Values:
        found: list[Values] = []
        for member in cls.frame.cells.get(name, BOTTOM):
            if isinstance(member, Function):
                bound = dataclasses.replace(member, bound=owner)
                if member.sort == "property":
                    found.append(self.call(one(bound), Args(), node))
                elif member.sort == "static":
                    found.append(one(member))
                elif member.sort == "class":
                    found.append(one(dataclasses.replace(member, bound=one(cls))))
                elif any(isinstance(v, Class) for v in owner):
                    found.append(one(member))
                else:
                    found.append(one(bound))
            else:
                found.append(one(member))
        if not found and cls.bases:
            return join([self._members(base, owner, name, node) for base in cls.bases])
        return join(found)

    def _expr_Subscript(self, node: ast.Subscript, env: Env, frame: Frame) -> Values:
        owner = self.value(node.value, env, frame)
        index = self.value(node.slice, env, frame)
        return join([self._item(value, index, node) for value in owner])

    def _item(self, value: Value, index: Values, node: ast.Subscript) -> Values:
        if isinstance(value, Tensor):
            return self._subscript_tensor(index, node)
        if isinstance(value, Plain):
            return one(dataclasses.replace(value, text=None))
        if isinstance(value, Kernel):
            return one(Launch(value, index))
        if isinstance(value, Tuple):
            return self._tuple_item(value, node.slice)
        if isinstance(value, Sequence):
            slices = isinstance(node.slice, ast.Slice)
            return one(value) if slices else value.element
        if isinstance(value, Box):
            key = _constant(node.slice)
            if isinstance(node.slice, ast.Slice):
                return one(value)
            if key is not None and key in value.site.keyed:
                return join([value.site.keyed[key], value.site.rest[0]])
            return value.site.rest[0] if key is not None else contents(value)
        if isinstance(value, Instance):
            getter = self._members(value.cls, one(value), "__getitem__", node)
            return self.call(getter, Args([index]), node) | (
                contents(value) if value.cls.fields else BOTTOM
            )
        if isinstance(value, Class):
            return PLAIN if value.enum else one(value)
        if isinstance(value, Path):
            return self._path_item(value, node)
        if value == Opaque("compiled"):
            return one(Opaque("launcher"))
        if isinstance(value, Nothing):
            return BOTTOM
        return self.refuse(node, "this cannot be subscripted in host code")

    def _path_item(self, value: Path, node: ast.AST) -> Values:
        if value.name.endswith(".default_generators"):
            return one(Opaque("generator"))
        if value.name.split(".")[0] in ("typing", "builtins", "collections"):
            return one(value)  # a generic type
        return self.refuse(node, f"`{value.name}` cannot be subscripted in host code")

    def _subscript_tensor(self, index: Values, node: ast.AST) -> Values:
        if holds_tensor(index) or any(isinstance(v, Box) for v in deep(index)):
            return self.refuse(
                node, "indexing by a tensor or list computes outside your kernels: use tl.load"
            )
        return TENSOR

    def _tuple_item(self, value: Tuple, index: ast.expr) -> Values:
        if isinstance(index, ast.Slice):
            return one(Sequence(join(value.items)))
        position = _constant(index)
        if isinstance(position, int) and -len(value.items) <= position < len(value.items):
            return value.items[position]
        return join(value.items)

    def _expr_Slice(self, node: ast.Slice, env: Env, frame: Frame) -> Values:
        for part in (node.lower, node.upper, node.step):
            if part is not None and holds_tensor(self.value(part, env, frame)):
                self.refuse(node, "a slice bound read from a tensor: use .item()")
        return PLAIN

    def _expr_Tuple(self, node: ast.Tuple, env: Env, frame: Frame) -> Values:
        if any(isinstance(e, ast.Starred) for e in node.elts):
            elements = join([self._display_element(e, env, frame) for e in node.elts])
            return PLAIN if is_plain(elements) else one(Sequence(elements))
        return tuple_of([self.value(e, env, frame) for e in node.elts])

    def _display_element(self, node: ast.expr, env: Env, frame: Frame) -> Values:
        if isinstance(node, ast.Starred):
            return self.elements(self.value(node.value, env, frame), node)
        return self.value(node, env, frame)

    def _expr_List(self, node: ast.List | ast.Set, env: Env, frame: Frame) -> Values:
        site = self._site(node)
        for element in node.elts:
            self._grow(site, self._display_element(element, env, frame))
        return one(Box(site))

    _expr_Set = _expr_List

    def _expr_Dict(self, node: ast.Dict, env: Env, frame: Frame) -> Values:
        site = self._site(node, mapping=True)
        for key, item in zip(node.keys, node.values, strict=True):
            values = self.value(item, env, frame)
            if key is None:
                self._update(site, values, item)
                continue
            named = self.value(key, env, frame)
            self._grow(site, values, _constant(key))
            self._grow_keys(site, named)
        return one(Box(site))

    def _update(self, site: Site, values: Values, node: ast.AST) -> None:
        for value in values:
            if isinstance(value, Box):
                for key, held in list(value.site.keyed.items()):
                    self._store(site, held, node, key)
                self._store(site, value.site.rest[0], node)
                self._grow_keys(site, value.site.keys[0] if value.site.keys else BOTTOM)
            else:
                self._store(site, self._elements(value, node), node)

    def _expr_JoinedStr(self, node: ast.JoinedStr, env: Env, frame: Frame) -> Values:
        parts = join([self.value(part, env, frame) for part in node.values])
        return ADDRESS if holds_address(parts) else PLAIN

    def _expr_FormattedValue(self, node: ast.FormattedValue, env: Env, frame: Frame) -> Values:
        values = self.value(node.value, env, frame)
        if node.format_spec is not None:
            self.value(node.format_spec, env, frame)
        return ADDRESS if holds_address(values) else PLAIN

    def _expr_IfExp(self, node: ast.IfExp, env: Env, frame: Frame) -> Values:
        self.value(node.test, env, frame)
        then = self.value(node.body, self._narrow(node.test, env, frame, True), frame)
        return then | self.value(node.orelse, self._narrow(node.test, env, frame, False), frame)

    def _expr_BoolOp(self, node: ast.BoolOp, env: Env, frame: Frame) -> Values:
        going_on = isinstance(node.op, ast.And)
        found: list[Values] = []
        for part in node.values:
            found.append(self.value(part, env, frame))
            env = self._narrow(part, env, frame, going_on)
        return join(found)

    def _expr_NamedExpr(self, node: ast.NamedExpr, env: Env, frame: Frame) -> Values:
        values = self.value(node.value, env, frame)
        env[node.target.id] = values
        while isinstance(frame.node, Comprehension) and frame.parent is not None:
            frame = frame.parent
        self._bind(node.target.id, values, env, frame, node)
        return values

    def _expr_Lambda(self, node: ast.Lambda, env: Env, frame: Frame) -> Values:
        return one(self._function(node, env, frame))

    def _expr_Starred(self, node: ast.Starred, env: Env, frame: Frame) -> Values:
        return self.elements(self.value(node.value, env, frame), node)

    def _comprehension(self, node: Comprehension, env: Env, frame: Frame) -> tuple[Env, Frame]:
        """The names and the scope that the element of a comprehension is evaluated in."""
        targets = [ast.Expr(g.target) for g in node.generators]
        scope = self._frame(node, frame, "comprehension", assigned(targets))
        env = dict(env)
        for generator in node.generators:
            if generator.is_async:
                self.refuse(generator.iter, "nothing may be deferred: no async comprehensions")
            source = self.value(generator.iter, env, scope)
            self._assign(generator.target, self.elements(source, generator.target), env, scope)
            for condition in generator.ifs:
                self.value(condition, env, scope)
                env = self._narrow(condition, env, scope, True)
        return env, scope

    def _expr_ListComp(self, node: ast.ListComp | ast.SetComp, env: Env, frame: Frame) -> Values:
        site = self._site(node)
        inner, scope = self._comprehension(node, env, frame)
        self._grow(site, self.value(node.elt, inner, scope))
        return one(Box(site))

    _expr_SetComp = _expr_ListComp

    def _expr_GeneratorExp(self, node: ast.GeneratorExp, env: Env, frame: Frame) -> Values:
        inner, scope = self._comprehension(node, env, frame)
        return self._iterator(self.value(node.elt, inner, scope), node)

    def _expr_DictComp(self, node: ast.DictComp, env: Env, frame: Frame) -> Values:
        site = self._site(node, mapping=True)
        inner, scope = self._comprehension(node, env, frame)
        self._grow_keys(site, self.value(node.key, inner, scope))
        self._grow(site, self.value(node.value, inner, scope))
        return one(Box(site))

    def _expr_Yield(self, node: ast.Yield, env: Env, frame: Frame) -> Values:
        values = self.value(node.value, env, frame) if node.value else NOTHING
        self._into(frame.yields, values)
        return NOTHING

    def _expr_YieldFrom(self, node: ast.YieldFrom, env: Env, frame: Frame) -> Values:
        self._into(frame.yields, self.elements(self.value(node.value, env, frame), node))
        return NOTHING

    def _expr_UnaryOp(self, node: ast.UnaryOp, env: Env, frame: Frame) -> Values:
        values = self.value(node.operand, env, frame)
        if isinstance(node.op, ast.Not):
            return PLAIN
        return self._operate(node, node.op, values, BOTTOM)

    def _expr_BinOp(self, node: ast.BinOp, env: Env, frame: Frame) -> Values:
        left, right = self.value(node.left, env, frame), self.value(node.right, env, frame)
        return self._operate(node, node.op, left, right)

    def _operate(self, node: ast.AST, op: ast.AST, left: Values, right: Values) -> Values:
        """A binary (or, with nothing on the right, unary) operator."""
        both = left | right
        sign = _SIGNS.get(type(op).__name__, "this operator")
        if any(isinstance(v, Tensor) for v in both):
            return self.refuse(
                node, f"`{sign}` on a tensor computes outside your kernels: do it in a kernel"
            )
        if any(isinstance(v, Instance | Function | Kernel | Cached | Partial) for v in both):
            return self.refuse(node, f"`{sign}` on an object that the scan cannot follow")
        held = join([contents(v) for v in both])
        if any(isinstance(v, Box | Tuple | Sequence) for v in both):
            return self._concatenate(node, both, held)
        return ADDRESS if holds_address(both) else PLAIN

    def _concatenate(self, node: ast.AST, both: Values, held: Values) -> Values:
        held = held | (PLAIN if any(isinstance(v, Plain) for v in both) else BOTTOM)
        if any(isinstance(v, Box) for v in both):
            mapping = any(isinstance(v, Box) and v.site.keys is not None for v in both)
            site = self._site(node, mapping=mapping)
            for value in both:
                if isinstance(value, Box):
                    self._update(site, one(value), node)
            self._grow(site, held)
            return one(Box(site))
        return one(Sequence(held))

    def _expr_Compare(self, node: ast.Compare, env: Env, frame: Frame) -> Values:
        parts = [node.left, *node.comparators]
        values = [self.value(part, env, frame) for part in parts]
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            if isinstance(op, ast.Is | ast.IsNot):
                continue
            if isinstance(op, ast.In | ast.NotIn):
                self._operate_compare(node, left)
                self._operate_compare(node, frozenset(v for v in right if isinstance(v, Tensor)))
            else:
                self._operate_compare(node, left | right)
        return PLAIN

    def _operate_compare(self, node: ast.AST, values: Values) -> None:
        if any(isinstance(v, Tensor) or holds_tensor(contents(v)) for v in values):
            self.refuse(
                node,
                "compares tensors outside your kernels: compare in a kernel, or test with "
                "isinstance or `is` first",
            )

    # -- iteration ---------------------------------------------------------------------------

    def elements(self, values: Values, node: ast.AST) -> Values:
        """What iterating gives."""
        return join([self._elements(value, node) for value in values])

    def _elements(self, value: Value, node: ast.AST) -> Values:
        if isinstance(value, Tensor):
            return TENSOR
        if isinstance(value, Plain):
            return one(dataclasses.replace(value, text=None))
        if isinstance(value, Box) and value.site.keys is not None:
            return value.site.keys[0]
        if isinstance(value, Tuple | Sequence | Box):
            return contents(value)
        if isinstance(value, Instance) and value.cls.fields:
            return contents(value)
        if isinstance(value, Class) and value.enum:
            return PLAIN
        if isinstance(value, Nothing):
            return BOTTOM
        return self.refuse(node, "iterates over something that the scan cannot follow")

    # -- calls -------------------------------------------------------------------------------

    def _expr_Call(self, node: ast.Call, env: Env, frame: Frame) -> Values:
        function = self.value(node.func, env, frame)
        args = Args()
        for argument in node.args:
            if not isinstance(argument, ast.Starred):
                values = self.value(argument, env, frame)
                (args.tail if args.star else args.positional).append(values)
                continue
            self._star(args, self.value(argument.value, env, frame), argument)
        for keyword in node.keywords:
            values = self.value(keyword.value, env, frame)
            if keyword.arg is not None:
                args.named[keyword.arg] = values
                continue
            for value in values:
                if isinstance(value, Box):
                    named = {k: v for k, v in value.site.keyed.items() if isinstance(k, str)}
                    for name, held in named.items():
                        args.named[name] = args.named.get(name, BOTTOM) | held
                    args.double = args.double | value.site.rest[0]
                else:
                    args.double = args.double | self._elements(value, node)
        return self.call(function, args, node)

    def _star(self, args: Args, values: Values, node: ast.AST) -> None:
        only = next(iter(values)) if len(values) == 1 else None
        if isinstance(only, Tuple) and not args.star:
            args.positional.extend(only.items)
        else:
            # An empty tuple must not look like no star at all: what follows has no known place.
            args.star = join([args.star, *args.tail, self.elements(values, node)]) or NOTHING
            args.tail = []

    def call(self, function: Values, args: Args, node: ast.AST) -> Values:
        """Calls everything that `function` may be."""
        return join([self._call_one(value, args, node) for value in function])

    def _call_one(self, value: Value, args: Args, node: ast.AST) -> Values:
        self._tick()
        if isinstance(value, Function):
            return self._call_function(value, args, node)
        if isinstance(value, Path):
            return self._call_path(value.name, args, node)
        if isinstance(value, Method):
            return self._call_method(value, args, node)
        if isinstance(value, Launch):
            return self._launch(value.kernel, value.grid, args, node)
        if isinstance(value, Plain):
            return self._call_plain(value, args, node)
        if isinstance(value, Partial):
            return self._call_partial(value, args, node)
        if isinstance(value, Class):
            return self._instantiate(value, args, node)
        if isinstance(value, Instance):
            target = self._members(value.cls, one(value), "__call__", node)
            return self.call(target, args, node)
        if isinstance(value, Cached):
            return self._call_cached(value, args, node)
        if isinstance(value, Kernel):
            return self.refuse(node, "calls a kernel without a grid: use kernel[grid](...)")
        if isinstance(value, Opaque):
            return self._call_opaque(value, args, node)
        if isinstance(value, Nothing):
            return BOTTOM
        return self.refuse(node, "calls something that the scan cannot follow")

    def _call_plain(self, value: Plain, args: Args, node: ast.AST) -> Values:
        if holds_tensor(args.all()):
            return self.refuse(node, "passes a tensor to a call that the scan cannot follow")
        self._call_back(args.all(), PLAIN, node)
        return one(dataclasses.replace(value, text=None))

    def _call_back(self, values: Values, given: Values, node: ast.AST) -> Values:
        """Follows functions that are handed to somebody who will call them."""
        functions = frozenset(
            v
            for v in values
            if isinstance(v, Function | Cached | Partial | Kernel | Instance | Method | Launch)
        )
        callables = frozenset(
            v for v in functions if not isinstance(v, Instance) or "__call__" in v.cls.frame.cells
        )
        return self.call(callables, Args(star=given), node)

    def _call_partial(self, value: Partial, args: Args, node: ast.AST) -> Values:
        merged = Args(
            [*value.args, *args.positional],
            dict(value.kwargs) | args.named,
            args.star,
            args.double,
            args.tail,
        )
        return self.call(value.function, merged, node)

    def _call_cached(self, value: Cached, args: Args, node: ast.AST) -> Values:
        if holds_tensor(args.all()):
            return self.refuse(node, "a cached function may take no tensors: pass sizes and dtypes")
        if holds_address(args.all()):
            self._remember(ADDRESS, node)
        result = self.call(value.function, args, node)
        self._remember(result, node)
        return result

    def _call_opaque(self, value: Opaque, args: Args, node: ast.AST) -> Values:
        if value.sort == "identity":
            return args.get(0)
        if value.sort == "context":  # a context as a decorator
            return args.get(0)
        if value.sort == "launcher":
            self.launched = self.launched or not self.importing
            return PLAIN
        return self.refuse(node, f"a {value.sort} is not to be called here")

    def _frame(self, node: ast.AST, parent: Frame, key: Any, names: frozenset[str]) -> Frame:
        full = (id(node), id(parent), key, self.importing)
        if full not in self._frames:
            self._frames[full] = Frame(node, parent, self.importing, names)
        return self._frames[full]

    def _call_function(self, function: Function, args: Args, node: ast.AST) -> Values:
        bound = self._bind_arguments(function, args)
        key: Any = tuple(sorted(bound.items(), key=lambda item: item[0]))
        contexts = self._contexts.setdefault(id(function.node), set())
        if key not in contexts and len(contexts) >= MAX_CONTEXTS:
            key = "any"
        contexts.add(key)
        body = function.node.body
        statements: list[ast.stmt] = body if isinstance(body, list) else []
        if isinstance(body, ast.expr):
            statements = [ast.Return(body, lineno=body.lineno)]
        names = frozenset(bound) | assigned(statements)
        frame = self._frame(function.node, function.frame, key, names)
        for name, values in bound.items():
            self._cell(frame, name, values)
        if key == "any":
            bound = {name: frame.cells[name] for name in bound}
        if id(frame) not in self._done:
            self._done.add(id(frame))
            self._enter(frame, statements)
            end = self._block(statements, dict(bound), frame)
            if end is not None:
                self._into(frame.returns, NOTHING)
        if _is_generator(function.node):
            return self._iterator(frame.yields[0], node)
        return frame.returns[0]

    def _enter(self, frame: Frame, body: list[ast.stmt]) -> None:
        """Binds `global` and `nonlocal` names to the frames that own them."""
        for statement in _walk_scope(body):
            if isinstance(statement, ast.Global):
                frame.outer.update(dict.fromkeys(statement.names, self.module))
            elif isinstance(statement, ast.Nonlocal):
                for name in statement.names:
                    owner = frame.parent
                    while owner is not None and name not in owner.names:
                        owner = owner.parent
                    if owner is not None:
                        frame.outer[name] = owner

    def _bind_arguments(self, function: Function, args: Args) -> dict[str, Values]:
        a = function.node.args
        positional = list(args.positional)
        if function.bound is not None and function.sort != "static":
            positional.insert(0, function.bound)
        defaults = dict(function.defaults)
        plain_names = [p.arg for p in (*a.posonlyargs, *a.args)]
        given_args = dataclasses.replace(args, positional=positional)
        bound = given_args.spread(plain_names, set(defaults))
        for name in plain_names:
            loose = name not in args.named and plain_names.index(name) >= len(positional)
            if name not in bound or (loose and name in defaults):
                bound[name] = bound.get(name, BOTTOM) | defaults.get(name, BOTTOM)
        for p in a.kwonlyargs:
            given = args.named.get(p.arg)
            bound[p.arg] = given if given is not None else args.double | defaults.get(p.arg, BOTTOM)
        if a.vararg is not None:
            rest = positional[len(plain_names) :]
            if args.star:
                bound[a.vararg.arg] = one(Sequence(join([*rest, args.star, *args.tail])))
            else:
                bound[a.vararg.arg] = tuple_of(rest)
        if a.kwarg is not None:
            site = self._site(function.node, "kwargs", tuple(sorted(args.named)), mapping=True)
            known = {*plain_names, *(p.arg for p in a.kwonlyargs)}
            for name, values in args.named.items():
                if name not in known:
                    self._grow(site, values, name)
            self._grow(site, args.double)
            bound[a.kwarg.arg] = one(Box(site))
        return bound

    def _instantiate(self, cls: Class, args: Args, node: ast.AST) -> Values:
        if cls.enum:
            return PLAIN
        site = self._site(node, id(cls.node))
        instance = one(Instance(cls, site))
        if cls.fields is not None:
            for i, name in enumerate(cls.fields):
                given = args.get(i, name)
                default = cls.frame.cells.get(name, BOTTOM)
                self._grow(site, given or default, name)
        for method in ("__init__", "__post_init__"):
            if cls.fields is None or method != "__init__":
                given_args = args if method == "__init__" else Args()
                self.call(self._members(cls, instance, method, node), given_args, node)
        for method in ("__len__", "__repr__", "__str__", "__hash__"):
            self.call(self._members(cls, instance, method, node), Args(), node)
        self.call(self._members(cls, instance, "__eq__", node), Args([PLAIN]), node)
        return instance

    # -- kernels -----------------------------------------------------------------------------

    def _kernel(self, function: Function) -> Values:
        if not isinstance(function.node, ast.FunctionDef):
            return self.refuse(function.node, "a kernel is a function, not a lambda")
        site = self._site(function.node, "kernel")
        kernel = Kernel(function.node, function.frame, site)
        self.kernels[id(function.node), id(function.frame)] = kernel
        for _, values in function.defaults:
            self._kernel_argument(values, function.node)
        return one(kernel)

    def _launch(self, kernel: Kernel, grid: Values, args: Args, node: ast.AST) -> Values:
        self.launched = self.launched or not self.importing
        parameters = _parameters(kernel.node)
        names = [parameter.arg for parameter in parameters]
        if id(kernel.node) in self._tuned:  # tuned: configurations give some of the arguments
            known = len(args.positional)
            rest = [n for n in names[known:] if n in args.named or n not in self._supplied]
            names = names[:known] + rest
        bound = args.spread(names, _with_default(kernel.node))
        for parameter in parameters:
            values = bound.get(parameter.arg, BOTTOM)
            self._grow(kernel.site, values, parameter.arg)
            if _is_constexpr(parameter) and holds_tensor(values):
                self.refuse(node, f"`{parameter.arg}` is a constexpr: a tensor cannot be one")
        self._kernel_argument(args.all(), node)
        meta = self._site(node, "meta", mapping=True)
        for name, values in list(kernel.site.keyed.items()):
            self._grow(meta, values, name)
        for name, values in args.named.items():
            self._grow(meta, values, name)
        self._grow(meta, PLAIN)
        given = one(Box(meta))
        for value in grid:
            if isinstance(value, Function | Partial | Cached | Instance):
                self.call(one(value), Args([given]), node)
            elif holds_tensor(one(value)):
                self.refuse(node, "a grid is made of numbers: use .item() or sizes")
        for sort, hook in [*self._hooks[0], *self._hooks.get(id(kernel.node), {})]:
            self._call_hook(sort, hook, given, node)
        return one(Opaque("compiled"))

    def _kernel_argument(self, values: Values, node: ast.AST) -> None:
        for value in deep(values):
            if isinstance(value, Function) and value.sort == "constexpr":
                continue
            if isinstance(value, Function | Cached | Partial | Class | Method | Launch):
                self.refuse(node, "passes host code to a kernel: pass jit functions only")

    def _call_hook(self, sort: str, hook: Value, meta: Values, node: ast.AST) -> None:
        configs = one(Sequence(one(Opaque("config"))))
        everything = join([contents(v) for v in meta])
        if sort == "early_config_prune":
            self.call(one(hook), Args([configs, meta], double=everything), node)
        elif sort == "perf_model":
            self.call(one(hook), Args(star=everything, double=everything), node)
        elif sort == "metadata":
            self.call(one(hook), Args([PLAIN, PLAIN, meta]), node)
        elif sort == "heuristic":
            result = self.call(one(hook), Args([meta]), node)
            self._kernel_argument(result, node)
            if holds_tensor(result):
                self.refuse(node, "a heuristic gives numbers, not tensors")
        else:
            self.call(one(hook), Args([meta], star=PLAIN | NOTHING), node)

    def _find_hooks(self, args: Args, node: ast.AST, sort: str = "hook") -> list[tuple[str, Value]]:
        """Functions among the arguments of autotune, heuristics or Config, by what calls them."""
        if "do_bench" in args.named:
            self.refuse(node, "do_bench: clocks belong to the judge")
        held = deep(args.all())
        special: dict[Value, str] = {}
        for value in held:
            if isinstance(value, Box):
                for name in ("early_config_prune", "perf_model"):
                    special.update(dict.fromkeys(value.site.keyed.get(name, BOTTOM), name))
        callables = [v for v in held if isinstance(v, Function | Cached | Partial | Instance)]
        return [(special.get(v, sort), v) for v in callables]

    # -- calls of what is allowed from outside -----------------------------------------------

    def _call_path(self, name: str, args: Args, node: ast.AST) -> Values:
        root, _, member = name.partition(".")
        if root == "builtins":
            return self._call_builtin(member, args, node)
        if root == "torch":
            return self._call_torch(member, args, node)
        if root == "triton":
            return self._call_triton(name, args, node)
        special: Callable[[str, Args, ast.AST], Values] | None = getattr(
            self, f"_call_{root}", None
        )
        if special is not None:
            return special(member, args, node)
        return self._plain_call(name, args, node)

    def _plain_call(self, name: str, args: Args, node: ast.AST) -> Values:
        if holds_tensor(args.all()):
            return self.refuse(
                node, f"`{name}` on a tensor computes outside your kernels: do it in a kernel"
            )
        self._call_back(args.all(), PLAIN, node)
        return ADDRESS if holds_address(args.all()) else PLAIN

    def _call_typing(self, member: str, args: Args, node: ast.AST) -> Values:
        if member == "cast":
            return args.get(1, "val")
        if member in ("overload", "final"):
            return args.get(0)
        if member in ("TypeVar", "NewType", "ParamSpec"):
            return PLAIN
        return self.refuse(node, f"`typing.{member}` is for annotations, not to be called")

    def _call_abc(self, member: str, args: Args, node: ast.AST) -> Values:
        return args.get(0)

    def _call_functools(self, member: str, args: Args, node: ast.AST) -> Values:
        if member == "partial":
            if args.star or args.double:
                return self.refuse(node, "partial: name the arguments instead of unpacking them")
            return one(Partial(args.get(0), tuple(args.positional[1:]), tuple(args.named.items())))
        if member == "wraps":
            return one(Opaque("identity"))
        if member == "reduce":
            items = self.elements(args.get(1), node) | args.get(2, "initial")
            result = self.call(args.get(0), Args([items, items]), node)
            return items | self.call(args.get(0), Args([items | result, items]), node)
        functions = frozenset(v for v in args.get(0) if not isinstance(v, Plain | Nothing))
        return one(Cached(functions)) if functions else one(Path("functools.cache"))

    def _call_itertools(self, member: str, args: Args, node: ast.AST) -> Values:
        if member == "repeat":
            items = args.get(0)
        elif member == "chain.from_iterable":
            items = self.elements(self.elements(args.get(0), node), node)
        else:
            given = frozenset(v for v in args.all() if not isinstance(v, Function | Path | Partial))
            items = self.elements(given, node)
        if member == "accumulate" and holds_tensor(items):
            return self._plain_call("itertools.accumulate", args, node)
        self._call_back(args.all(), items, node)
        if member in ("chain", "chain.from_iterable", "islice", "repeat", "accumulate"):
            return self._iterator(items, node)
        return self._iterator(PLAIN if is_plain(items) else one(Sequence(items)), node)

    def _call_dataclasses(self, member: str, args: Args, node: ast.AST) -> Values:
        if member == "dataclass":
            if not args.positional:
                return one(Path("dataclasses.dataclass"))
            return join(
                [
                    one(dataclasses.replace(v, fields=_fields(v)))
                    for v in args.get(0)
                    if isinstance(v, Class)
                ]
            )
        if member == "field":
            made = self.call(args.named.get("default_factory", BOTTOM), Args(), node)
            return args.named.get("default", BOTTOM) | made
        if member == "replace":
            for value in args.get(0):
                if isinstance(value, Instance):
                    for name, values in args.named.items():
                        self._store(value.site, values, node, name)
            return args.get(0)
        if member == "fields":
            return PLAIN
        return one(Sequence(join([contents(v) for v in args.get(0)])))

    def _call_enum(self, member: str, args: Args, node: ast.AST) -> Values:
        return args.get(0) if member == "unique" else PLAIN

    def _call_collections(self, member: str, args: Args, node: ast.AST) -> Values:
        if member == "namedtuple":
            return self._named_tuple(args, node)
        site = self._site(node, mapping=True)
        if member == "defaultdict":
            self._grow(site, self.call(args.get(0), Args(), node))
            return one(Box(site))
        self._update(site, args.get(0), node)
        return one(Box(site))

    def _named_tuple(self, args: Args, node: ast.AST) -> Values:
        names: list[str] = []
        if isinstance(node, ast.Call) and len(node.args) > 1:
            listed = node.args[1]
            if isinstance(listed, ast.Constant) and isinstance(listed.value, str):
                names = listed.value.replace(",", " ").split()
            elif isinstance(listed, ast.List | ast.Tuple):
                constants = [e for e in listed.elts if isinstance(e, ast.Constant)]
                names = [str(e.value) for e in constants]
        if not names:
            return self.refuse(node, "namedtuple: give the field names as constants")
        frame = self._frame(node, self.module, "namedtuple", frozenset())
        stub = ast.ClassDef("namedtuple", [], [], [], [], lineno=getattr(node, "lineno", 1))
        cls = Class(stub, frame, tuple(names))
        known = self._sites.setdefault(("class", id(node)), Site(stub, True))
        return one(dataclasses.replace(cls, node=known.node))  # type: ignore[arg-type]

    def _call_contextlib(self, member: str, args: Args, node: ast.AST) -> Values:
        return one(Opaque("context"))

    def _call_logging(self, member: str, args: Args, node: ast.AST) -> Values:
        return one(Opaque("logger"))

    def _move(self, name: str, node: ast.AST) -> None:
        kind = policy.MOVES[name]
        if kind in self._refused_moves:
            self.refuse(
                node,
                f"`{name}` is this operator's own work: do it in a kernel "
                "(read the strides there, write the values there)",
            )

    def _make(self, node: ast.AST) -> Values:
        if self.importing:
            return self.refuse(node, "makes a tensor at import: make it anew in every call")
        return TENSOR

    def _call_torch(self, member: str, args: Args, node: ast.AST) -> Values:
        if member in policy.CREATE:
            return self._create(member, args, node)
        if member in policy.VIEWS or member in policy.MANY_VIEWS:
            many = member in policy.MANY_VIEWS
            return one(Sequence(TENSOR)) if many else TENSOR
        if member in policy.ASK:
            return PLAIN
        if member in policy.CONTEXTS:
            functions = frozenset(v for v in args.get(0) if isinstance(v, Function))
            return functions or one(Opaque("context"))
        if member in policy.RANDOM:
            if not self._random:
                return self.refuse(node, policy.refusal(f"torch.{member}"))
            return PLAIN if "seed" in member else self._make(node)
        if member == "clone":
            self._move("clone", node)
            return TENSOR
        last = member.rpartition(".")[2]
        if last in policy.DEVICE_ASK or last == "get_device_properties":
            return PLAIN
        if last == "current_stream":
            return one(Opaque("stream"))
        if last in ("device", "device_of"):
            return one(Opaque("context"))
        return self.refuse(node, policy.refusal(f"torch.{member}"))

    def _create(self, member: str, args: Args, node: ast.AST) -> Values:
        if "out" in args.named or args.double:
            return self.refuse(node, f"`torch.{member}`: name the arguments, without `out`")
        first = 1 if member.endswith("_like") else 0
        given = join([*args.positional[first:], args.star, *args.tail])
        named = join([v for k, v in args.named.items() if k not in ("input", "self")])
        if holds_tensor(given | named):
            return self.refuse(node, f"`torch.{member}` copies a tensor: use a kernel or .clone()")
        if member in policy.CREATE_FILLED:
            self._move(member, node)
        return self._make(node)

    def _call_triton(self, name: str, args: Args, node: ast.AST) -> Values:
        member = name.removeprefix("triton.")
        if member in ("jit", "constexpr_function"):
            functions = [v for v in args.get(0) if isinstance(v, Function)]
            if not functions:  # with options: the decorator itself
                options = enumerate(self._find_hooks(args, node, "metadata"))
                given = tuple((f"{kind}:{i}", one(f)) for i, (kind, f) in options)
                return one(Partial(one(Path(name)), (), given))
            if member == "constexpr_function":
                self._call_back(args.get(0), PLAIN, node)
                return join([one(dataclasses.replace(f, sort="constexpr")) for f in functions])
            kernels = join([self._kernel(f) for f in functions])
            self._tune(Args([kernels], args.named), node)
            return kernels
        if member in ("autotune", "heuristics"):
            sort = "heuristic" if member == "heuristics" else "hook"
            hooks = self._find_hooks(args, node, sort)
            self._note_supplied(args.get(0, "values"))
            given = tuple((f"{kind}:{i}", one(f)) for i, (kind, f) in enumerate(hooks))
            return one(Partial(one(Path("triton.tuned")), (), given))
        if member == "tuned":  # what those answer with, applied to a kernel
            self._tuned.update(id(v.node) for v in args.get(0) if isinstance(v, Kernel))
            return self._tune(args, node)
        if member == "Config":
            self._hooks[0].update(dict.fromkeys(self._find_hooks(args, node)))
            self._note_supplied(args.get(0, "kwargs"))
            self._kernel_argument(args.get(0, "kwargs"), node)
            return one(Opaque("config"))
        if member == "reinterpret":
            return TENSOR
        if member == "set_allocator":
            self._allocator(args, node)
            return NOTHING
        if member.startswith("tools.tensor_descriptor.TensorDescriptor"):
            return one(Opaque("descriptor"))
        if member in policy.TRITON_ERRORS:
            return one(Opaque("exception"))
        return self._plain_call(name, args, node)

    def _note_supplied(self, tables: Values) -> None:
        for table in tables:
            if isinstance(table, Box):
                self._supplied.update(k for k in table.site.keyed if isinstance(k, str))

    def _tune(self, args: Args, node: ast.AST) -> Values:
        named = [(k.partition(":"), values) for k, values in args.named.items()]
        hooks = [(sort, f) for (sort, colon, _), values in named if colon for f in values]
        for value in args.get(0):
            if isinstance(value, Kernel):
                self._hooks.setdefault(id(value.node), {}).update(dict.fromkeys(hooks))
            else:
                self.refuse(node, "autotune and heuristics go around a kernel")
        return frozenset(v for v in args.get(0) if isinstance(v, Kernel))

    def _allocator(self, args: Args, node: ast.AST) -> None:
        for value in args.get(0):
            if isinstance(value, Function) and any(map(holds_tensor, value.frame.cells.values())):
                self.refuse(node, "an allocator makes new memory: it may not hold a tensor")
        importing, self.importing = self.importing, False
        self._call_back(args.get(0), PLAIN, node)
        self.importing = importing

    def _call_builtin(self, name: str, args: Args, node: ast.AST) -> Values:
        if name in policy.EXCEPTIONS:
            return one(Opaque("exception"))
        if name in policy.BUILTINS_CONTAINERS or name == "dict.fromkeys":
            return self._call_container(name, args, node)
        if name in ("getattr", "hasattr"):
            return self._get_attribute(name, args, node)
        if name in ("property", "staticmethod", "classmethod"):
            sort = {"staticmethod": "static", "classmethod": "class"}.get(name, name)
            return join(
                [
                    one(dataclasses.replace(v, sort=sort) if isinstance(v, Function) else v)
                    for v in args.get(0)
                ]
            )
        if name == "type":
            if len(args.positional) != 1 or args.named:
                return self.refuse(node, "`type` with three arguments: write the class out")
            return one(Opaque("type"))
        if name in policy.BUILTINS_OVER_TENSORS:
            return ADDRESS if holds_address(args.all()) and name == "int" else PLAIN
        held = join([args.all(), *(self._inside(v) for v in args.all())])
        self._call_back(held, PLAIN, node)
        return self._plain_call(name, Args(star=held - _callables(held)), node)

    def _inside(self, value: Value) -> Values:
        return contents(value) if isinstance(value, Tuple | Sequence | Box) else BOTTOM

    def _get_attribute(self, name: str, args: Args, node: ast.AST) -> Values:
        texts = [v.text for v in args.get(1) if isinstance(v, Plain)]
        if None in texts:
            return self.refuse(node, f"`{name}` by a name that is put together: write it out")
        if name == "hasattr":
            for text in texts:
                if text and text.startswith("_"):
                    self.refuse(node, f"`.{text}` reaches into internals")
            return PLAIN
        found = [self._attribute(args.get(0), text, node) for text in texts if text is not None]
        return join([*found, args.positional[2] if len(args.positional) > 2 else BOTTOM])

    def _call_container(self, name: str, args: Args, node: ast.AST) -> Values:
        first = args.get(0)
        if name in ("list", "set", "frozenset", "sorted"):
            if name == "sorted":
                self._operate_compare(node, self.elements(first, node))
                self._call_back(args.named.get("key", BOTTOM), self.elements(first, node), node)
            site = self._site(node)
            self._grow(site, self.elements(first, node))
            return one(Box(site))
        if name in ("dict", "dict.fromkeys"):
            site = self._site(node, mapping=True)
            if name == "dict.fromkeys":
                self._grow(site, args.get(1) | NOTHING)
                self._grow_keys(site, self.elements(first, node))
                return one(Box(site))
            self._update(site, self._pairs(first), node)
            self._grow_keys(site, join([contents(v) for v in first if not isinstance(v, Box)]))
            for key, values in args.named.items():
                self._grow(site, values, key)
            self._grow(site, args.double)
            return one(Box(site))
        if name == "tuple":
            exact = [v for v in first if isinstance(v, Tuple)]
            if len(exact) == len(first) == 1:
                return first
            items = self.elements(first, node)
            return items if is_plain(items) else one(Sequence(items))
        return self._call_iterator(name, args, node)

    def _pairs(self, values: Values) -> Values:
        """For ``dict(pairs)``: boxes as they are, iterables of pairs by what the pairs hold."""
        made: list[Values] = []
        for value in values:
            if isinstance(value, Box) and value.site.keys is not None:
                made.append(one(value))
            else:
                inside = contents(value)
                made.append(one(Sequence(join([inside, *(contents(v) for v in inside)]))))
        return join(made)

    def _call_iterator(self, name: str, args: Args, node: ast.AST) -> Values:
        first = args.get(0)
        if name == "next":
            for value in first:
                if isinstance(value, Box | Instance) and value.site.shared and not self.importing:
                    self.refuse(node, "draws from an iterator that outlives the call")
            return self.elements(first, node) | args.get(1)
        if name in ("iter", "reversed"):
            return self._iterator(self.elements(first, node), node)
        if name == "enumerate":
            return self._iterator(tuple_of([PLAIN, self.elements(first, node)]), node)
        if name == "zip":
            lists = [self.elements(a, node) for a in args.positional]
            if args.star:
                inner = self.elements(args.star, node)
                return self._iterator(one(Sequence(inner)), node)
            return self._iterator(tuple_of(lists), node)
        items = [self.elements(a, node) for a in args.positional[1:]]
        result = self.call(
            frozenset(v for v in first if not isinstance(v, Nothing)), Args(items), node
        )
        return self._iterator(result if name == "map" else join(items), node)

    def _iterator(self, elements: Values, node: ast.AST) -> Values:
        """An iterator. One that is made at import has a state, which outlives calls."""
        if not self.importing:
            return one(Sequence(elements))
        site = self._site(node, "iterator")
        self._grow(site, elements)
        return one(Box(site))

    # -- methods -----------------------------------------------------------------------------

    def _call_method(self, method: Method, args: Args, node: ast.AST) -> Values:
        owner, name = method.owner, method.name
        if isinstance(owner, Tensor):
            return self._tensor_method(name, args, node)
        if isinstance(owner, Kernel):
            grid = args.named.pop("grid", BOTTOM)
            if name == "run":
                return self._launch(owner, grid, args, node)
            launched = self.launched
            result = self._launch(owner, grid, args, node)
            self.launched = launched
            return result
        if isinstance(owner, Instance):
            for key, values in args.named.items():
                self._store(owner.site, values, node, key)
            return one(owner) if name == "_replace" else PLAIN
        if isinstance(owner, Box):
            return self._box_method(owner, name, args, node)
        if name in ("index", "count"):
            self._operate_compare(node, args.all() | one(owner))
            return PLAIN
        return self.refuse(node, f"`.{name}` of a tuple is not for candidates")

    def _tensor_method(self, name: str, args: Args, node: ast.AST) -> Values:
        if name == "data_ptr":
            return ADDRESS
        if name in policy.TENSOR_ASK:
            return PLAIN
        if name == "untyped_storage":
            return one(Opaque("storage"))
        if name in policy.MOVES:
            self._move(name, node)
        if name in policy.NEW_EMPTY | policy.NEW_FILLED:
            if holds_tensor(args.all()):
                return self.refuse(node, f"`{name}` copies a tensor: use a kernel or .clone()")
            return self._make(node)
        if name in policy.MANY_VIEWS:
            return one(Sequence(TENSOR))
        return TENSOR

    def _box_method(self, box: Box, name: str, args: Args, node: ast.AST) -> Values:
        site, held = box.site, contents(box)
        if name in ("append", "add", "insert", "setdefault", "appendleft"):
            key = None
            if name == "setdefault" and isinstance(node, ast.Call) and node.args:
                key = _constant(node.args[0])
            stored = args.positional[-1] if args.positional else args.loose()
            self._store(site, stored, node, key)
            if site.shared and not self.importing and len(args.positional) > 1:
                self._remember(args.positional[0], node)
            return held | stored
        if name in ("extend", "update"):
            for values in args.positional:
                self._update(site, values, node)
            for key, values in args.named.items():
                self._store(site, values, node, key)
            return NOTHING
        if name in ("pop", "get", "popitem", "popleft"):
            default = args.positional[1] if len(args.positional) > 1 else BOTTOM
            if name == "get" and isinstance(node, ast.Call) and node.args:
                key = _constant(node.args[0])
                if key is not None:
                    known = join([site.keyed.get(key, BOTTOM), site.rest[0]])
                    return known | (default or NOTHING)
            return held | (default or (NOTHING if name == "get" else BOTTOM))
        if name == "items":
            return one(Sequence(tuple_of([site.keys[0] if site.keys else PLAIN, held])))
        if name == "keys":
            return one(Sequence(site.keys[0] if site.keys else PLAIN))
        if name == "values":
            return one(Sequence(held))
        if name in ("copy", "union", "difference", "intersection"):
            new = self._site(node, mapping=site.keys is not None)
            self._update(new, one(box), node)
            for values in args.positional:
                self._update(new, values, node)
            return one(Box(new))
        if name == "sort":
            self._operate_compare(node, held if not args.named.get("key") else BOTTOM)
            self._call_back(args.named.get("key", BOTTOM), held, node)
            return NOTHING
        if name in ("reverse", "clear", "remove", "discard", "index", "count", "issubset"):
            if name in ("remove", "index", "count"):
                self._operate_compare(node, held)
            return PLAIN
        return self.refuse(node, f"`.{name}` of a container is not read by the scan")


_SEQUENCES = {"builtins.list", "builtins.tuple", "builtins.dict"}
_SIGNS = {
    "Add": "+", "Sub": "-", "Mult": "*", "Div": "/", "FloorDiv": "//", "Mod": "%", "Pow": "**",
    "MatMult": "@", "BitAnd": "&", "BitOr": "|", "BitXor": "^", "LShift": "<<", "RShift": ">>",
    "USub": "-", "UAdd": "+", "Invert": "~",
}  # fmt: skip


def _callables(values: Values) -> Values:
    return frozenset(v for v in values if isinstance(v, Function | Cached | Partial))


def _merge(a: Env | None, b: Env | None) -> Env | None:
    """What is known where two ways meet."""
    if a is None or b is None:
        return b if a is None else a
    return {name: a.get(name, BOTTOM) | b.get(name, BOTTOM) for name in a.keys() | b.keys()}


def _parameters(node: FunctionNode) -> list[ast.arg]:
    a = node.args
    rest = [p for p in (a.vararg, a.kwarg) if p is not None]
    return [*a.posonlyargs, *a.args, *a.kwonlyargs, *rest]


def _with_default(node: FunctionNode) -> set[str]:
    names = [p.arg for p in (*node.args.posonlyargs, *node.args.args)]
    return set(names[len(names) - len(node.args.defaults) :])


def _guess(parameter: ast.arg, function: FunctionNode) -> Values:
    """For a scan without an operator: a tensor, if it is annotated or used like one."""
    if parameter.annotation is not None:
        return TENSOR if "Tensor" in ast.dump(parameter.annotation) else PLAIN
    known = policy.TENSOR_PLAIN | policy.TENSOR_ASK | policy.TENSOR_VIEWS | policy.CONVERT
    for node in ast.walk(function):
        if isinstance(node, ast.Attribute) and _name_of(node.value) == parameter.arg:
            return TENSOR if node.attr in known else PLAIN
    return PLAIN


def _is_constexpr(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and "constexpr" in ast.dump(parameter.annotation)


def _name_of(node: ast.expr) -> str | None:
    if isinstance(node, ast.NamedExpr):
        return node.target.id
    return node.id if isinstance(node, ast.Name) else None


def _constant(node: ast.expr) -> Any:
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _constant(node.operand)
        return -inner if isinstance(inner, int) else None
    return None


def _as_load(node: ast.expr) -> ast.expr:
    if isinstance(node, ast.Name):
        return ast.copy_location(ast.Name(node.id, ast.Load()), node)
    if isinstance(node, ast.Attribute):
        return ast.copy_location(ast.Attribute(node.value, node.attr, ast.Load()), node)
    assert isinstance(node, ast.Subscript)
    return ast.copy_location(ast.Subscript(node.value, node.slice, ast.Load()), node)


def _is_main_guard(test: ast.expr) -> bool:
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


def _annotated(node: ast.ClassDef) -> tuple[str, ...]:
    return tuple(
        s.target.id
        for s in node.body
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    )


def _fields(cls: Class) -> tuple[str, ...]:
    inherited = [name for base in cls.bases for name in base.fields or ()]
    return tuple(dict.fromkeys([*inherited, *_annotated(cls.node)]))


_SCOPES = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def _walk_scope(body: Iterable[ast.AST]) -> Iterable[ast.AST]:
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
    for node in _walk_scope(body):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names.update(a.asname or a.name.split(".")[0] for a in node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            names.add(node.name)
    for node in _walk_scope(body):
        if isinstance(node, ast.Global | ast.Nonlocal):
            names.difference_update(node.names)
    return frozenset(names)


def _is_generator(node: FunctionNode) -> bool:
    body = node.body if isinstance(node.body, list) else [node.body]
    return any(isinstance(n, ast.Yield | ast.YieldFrom) for n in _walk_scope(body))
