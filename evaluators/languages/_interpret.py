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
from collections.abc import Callable, Iterable
from typing import Any

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._expressions import Expressions
from kernelmark.evaluators.languages._state import Args, TooIntricate
from kernelmark.evaluators.languages._trees import (
    SEQUENCES,
    Comprehension,
    Env,
    annotated_names,
    as_load,
    assigned,
    constant_of,
    guess_of,
    is_endless,
    is_generator,
    is_main_guard,
    merge,
    name_of,
    parameters_of,
)
from kernelmark.evaluators.languages._values import (
    BOTTOM,
    NOTHING,
    PLAIN,
    TENSOR,
    Box,
    Class,
    Frame,
    Function,
    FunctionNode,
    Instance,
    Kernel,
    Nothing,
    Opaque,
    Path,
    Plain,
    Sequence,
    Tensor,
    Tuple,
    Value,
    Values,
    deep,
    element_of,
    holds_tensor,
    join,
    one,
    stained,
)
from kernelmark.operators.records import Parameter, parse_signature

MAX_ROUNDS = 30


class Interpreter(Expressions):
    """One scan of one candidate. `run` fills `findings`, `kernels` and `launched`."""

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
        if any(isinstance(value, Class) for value in target):
            self.refuse(
                self._line_of_entry(),
                f"`{self.entry}` is a class: the entry point is a function that launches kernels",
            )
            return
        for args in self._entry_arguments(target):
            answer = self.call(target, args, self._line_of_entry())
            if element_of(answer) == "computed":
                self.refuse(self._line_of_entry(), policy.computed("answers with"))
        self.endless = bool(target) and all(map(self._never_ends, target))

    def _never_ends(self, value: Value) -> bool:
        """Whether no call of it has come to a `return`, or to its last line."""
        if not isinstance(value, Function):
            return False
        frames = [frame for frame in self._frames.values() if frame.node is value.node]
        return bool(frames) and not any(frame.ends for frame in frames)

    def _line_of_entry(self) -> ast.AST:
        for statement in self.tree.body:
            if (
                isinstance(statement, ast.FunctionDef | ast.ClassDef)
                and statement.name == self.entry
            ):
                return statement
        return self.tree

    def _entry_arguments(self, target: Values) -> list[Args]:
        if self.operator is not None:
            overloads = [parse_signature(text) for text in self.operator.signatures]
            return [a for overload in overloads for a in self._overload_arguments(overload)]
        guessed: list[Args] = []
        for value in target:
            if isinstance(value, Function):
                parameters = parameters_of(value.node)
                named = {p.arg: guess_of(p, value.node) for p in parameters}
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

    def _stmt_Expr(self, node: ast.Expr, env: Env, frame: Frame) -> Env:
        self.value(node.value, env, frame)
        return env

    def _stmt_Pass(self, node: ast.stmt, env: Env, frame: Frame) -> Env:
        return env

    _stmt_Global = _stmt_Nonlocal = _stmt_Pass  # `_enter` has bound the names

    def _stmt_Break(self, node: ast.stmt, env: Env, frame: Frame) -> None:
        # Cells hold every value a name ever has; loops read them after the body.
        if self._left:
            branch, left = self._left[-1]
            self._left[-1] = (branch, left or self._branch > branch)
        return None

    _stmt_Continue = _stmt_Break

    def _stmt_Return(self, node: ast.Return, env: Env, frame: Frame) -> None:
        values = self.value(node.value, env, frame) if node.value else NOTHING
        if self._branch:
            self._stain(values)
            values = stained(values)
        frame.ends.append(True)
        if (
            values - NOTHING
            and isinstance(frame.node, ast.FunctionDef)
            and is_generator(frame.node)
        ):
            self.refuse(node, "a generator's return value is seen by nobody: yield it")
        self._into(frame.returns, values)

    def _stmt_Raise(self, node: ast.Raise, env: Env, frame: Frame) -> None:
        for part in (node.exc, node.cause):
            if part is not None:
                self.value(part, env, frame)

    def _stmt_Assert(self, node: ast.Assert, env: Env, frame: Frame) -> Env:
        self._truth(self.value(node.test, env, frame), node.test)
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
        load = as_load(node.target)
        left, right = self.value(load, env, frame), self.value(node.value, env, frame)
        if not self.importing and self._outlives(node.target, env, frame):
            self.refuse(node, "counts over calls: an answer may depend on the arguments alone")
        result = self._operate(node, node.op, left, right)
        for value in left:
            if isinstance(value, Box):  # changed in place, under all its names
                self._update(value.site, result, node)
        self._assign(node.target, result, env, frame)
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
        self._cell(outer, name, stained(values) if self._under else values)

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
                self._subscript_tensor(owner, index, target)
                self._move("setitem", target)
                if element_of(values):
                    self.refuse(target, policy.element("writes into a tensor"))
            elif isinstance(owner, Box):
                mapping = owner.site.keys is not None
                key = constant_of(target.slice) if mapping else None  # items of lists move about
                if element_of(index):
                    self._stain(one(owner))
                if isinstance(target.slice, ast.Slice):
                    self._update(owner.site, values, target)
                else:
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
                if element_of(values):
                    self.refuse(target, policy.element("gives a kernel"))
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
            elif isinstance(target, ast.Subscript) and element_of(
                self.value(target.slice, env, frame)
            ):
                self._stain(self.value(target.value, env, frame))
        return env

    def _stmt_If(self, node: ast.If, env: Env, frame: Frame) -> Env | None:
        if is_main_guard(node.test):
            return self._block(node.orelse, env, frame)
        test = self.value(node.test, env, frame)
        if test == one(Path("typing.TYPE_CHECKING")):
            return self._block(node.orelse, env, frame)
        decided = self._truth(test, node.test)
        with self._decided(decided):
            then = self._block(node.body, self._narrow(node.test, env, frame, True), frame)
            other = self._block(node.orelse, self._narrow(node.test, env, frame, False), frame)
        end = merge(then, other)
        if decided and end is not None:
            self._stain_names(assigned([node]), end, frame)
        return end

    def _stmt_For(self, node: ast.For, env: Env, frame: Frame) -> Env:
        source = self.value(node.iter, env, frame)
        elements = self.elements(source, node.iter)
        decided = self._long(source)

        def body(inner: Env) -> Env | None:
            self._assign(node.target, elements, inner, frame)
            return self._round(node.body, inner, frame, decided)

        env = self._loop(body, env, [*node.body, ast.Expr(node.target)], frame)
        return merge(env, self._block(node.orelse, dict(env), frame)) or env

    def _stmt_While(self, node: ast.While, env: Env, frame: Frame) -> Env | None:
        def body(inner: Env) -> Env | None:
            decided = self._truth(self.value(node.test, inner, frame), node.test)
            inner = self._narrow(node.test, inner, frame, True)
            return self._round(node.body, inner, frame, decided)

        env = self._loop(body, env, [*node.body, ast.Expr(node.test)], frame)
        if is_endless(node):
            return None
        return merge(env, self._block(node.orelse, dict(env), frame)) or env

    def _round(self, body: list[ast.stmt], env: Env, frame: Frame, decided: bool) -> Env | None:
        """Once round a loop. `decided`: an element decides if there is another round."""
        if decided:
            self._left[-1] = (self._left[-1][0], True)
        with self._decided(decided):
            return self._block(body, env, frame)

    def _loop(
        self, body: Callable[[Env], Env | None], env: Env, inside: list[ast.stmt], frame: Frame
    ) -> Env:
        """Runs a body until what it leaves behind is stable; then every way out is covered."""
        changed = assigned(inside)
        self._left.append((self._branch, False))
        for _ in range(8):
            before = dict(env)
            after = body(dict(env))
            env = merge(env, after) or env
            # `break` and `continue` leave in the middle: take whatever the names ever were.
            for name in changed & frame.cells.keys():
                env[name] = join([env.get(name, BOTTOM), frame.cells[name]])
            if self._left[-1][1]:
                self._stain_names(changed, env, frame)
            if env == before:
                break
        self._left.pop()
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
        met, telling = self._met, id(node) in self._telling
        self._under += telling
        after = self._block(node.body, dict(env), frame)
        self._under -= telling
        if self._met > met and self._catches(node, env, frame) and not telling:
            self._telling.add(id(node))
            self._changed = telling = True
        thrown = merge(env, after) or env
        for name in assigned(node.body) & frame.cells.keys():
            thrown[name] = join([thrown.get(name, BOTTOM), frame.cells[name]])
        ends = [self._block(node.orelse, after, frame) if after is not None else None]
        for handler in node.handlers:
            inner = dict(thrown)
            if handler.type is not None:
                self.value(handler.type, inner, frame)
            if handler.name:
                self._bind(handler.name, one(Opaque("exception")), inner, frame, handler)
            with self._decided(telling):
                ends.append(self._block(handler.body, inner, frame))
        end: Env | None = None
        for item in ends:
            end = merge(end, item)
        if end is not None and telling and any(way is not None for way in ends[1:]):
            self._stain_names(assigned([node]), end, frame)
        if not node.finalbody:
            return end
        with self._decided(telling):
            final = self._block(node.finalbody, dict(end if end is not None else thrown), frame)
        return final if end is not None else None

    def _catches(self, node: ast.Try, env: Env, frame: Frame) -> bool:
        """Whether code goes on after an error that an element of a tensor may have raised, be it
        on the host or in a kernel that is interpreted."""
        leaving = (ast.Return, ast.Break, ast.Continue)
        if any(isinstance(part, leaving) for s in node.finalbody for part in ast.walk(s)):
            return True
        for handler in node.handlers:
            kinds = deep(self.value(handler.type, env, frame)) if handler.type else set()
            names = {kind.name for kind in kinds if isinstance(kind, Path)}
            others = [kind for kind in kinds if not isinstance(kind, Path | Tuple)]
            only_raises = isinstance(handler.body[-1], ast.Raise) and len(handler.body) == 1
            if (not names or others or names - policy.PLAIN_ERRORS) and not only_raises:
                return True
        return False

    def _stmt_Match(self, node: ast.Match, env: Env, frame: Frame) -> Env | None:
        subject = self.value(node.subject, env, frame)
        decided = bool(element_of(subject))
        end: Env | None = dict(env)
        for case in node.cases:
            inner = dict(env)
            self._pattern(case.pattern, subject, inner, frame)
            if case.guard is not None:
                decided = self._truth(self.value(case.guard, inner, frame), case.guard) or decided
            with self._decided(decided):
                end = merge(end, self._block(case.body, inner, frame))
        if decided and end is not None:
            self._stain_names(assigned([node]), end, frame)
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
        for parameter in parameters_of(node):
            if parameter.arg.startswith("__"):
                self.refuse(node, f"`{parameter.arg}`: special names are not for candidates")
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
        for parameter in parameters_of(node):
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
        if enum and any(holds_tensor(v) or element_of(v) for v in inner.cells.values()):
            self.refuse(node, "an enumeration of tensors, or of their elements: use a list")
        fields = annotated_names(node) if tuple_like else None
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
                known = dict(env)
                for part in test.values:
                    known = self._narrow(part, known, frame, holds)
                self._rebind(test, known, frame)  # a part may bind what another has tested
                return known
            ways: Env | None = None
            for part in test.values:
                ways = merge(ways, self._narrow(part, env, frame, holds))
            known = ways or dict(env)
            self._rebind(test, known, frame)
            return known
        env = dict(env)
        name, keep = self._test(test, env, frame)
        if name is not None and keep is not None and self._is_own(name, frame):
            values = self._name(name, env, frame, test)
            env[name] = frozenset(v for v in values if keep(v) is not (not holds))
        return env

    def _is_own(self, name: str, frame: Frame) -> bool:
        """Whether nothing but the code of `frame` can bind `name` anew."""
        scope: Frame | None = frame
        while scope is not None and name not in scope.names:
            scope = scope.parent if isinstance(scope.node, Comprehension) else None
        return scope is not None and name not in self._escaping(frame)

    def _test(
        self, test: ast.expr, env: Env, frame: Frame
    ) -> tuple[str | None, Callable[[Value], bool | None] | None]:
        """The name that `test` is about, and a predicate: True, False, or None for either."""
        if isinstance(test, ast.Compare) and len(test.ops) == 1:
            left, right = test.left, test.comparators[0]
            is_none = isinstance(right, ast.Constant) and right.value is None
            if is_none and isinstance(test.ops[0], ast.Is | ast.IsNot):
                positive = isinstance(test.ops[0], ast.Is)
                return name_of(left), lambda v: isinstance(v, Nothing) is positive
        if isinstance(test, ast.Call) and test.args:
            function = self.value(test.func, env, frame)
            name = name_of(test.args[0])
            if function == one(Path("torch.is_tensor")):
                return name, lambda v: isinstance(v, Tensor)
            if function == one(Path("builtins.isinstance")) and len(test.args) == 2:
                return name, self._instance_test(self.value(test.args[1], env, frame))
            if function == one(Path("builtins.hasattr")) and len(test.args) == 2:
                text = constant_of(test.args[1])
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
                return False if names <= numbers | SEQUENCES else None
            if isinstance(value, Plain | Nothing):
                return False if names == {"torch.Tensor"} else None
            if isinstance(value, Box | Tuple | Sequence):
                return False if names <= numbers | {"torch.Tensor"} else None
            return None

        return decide
