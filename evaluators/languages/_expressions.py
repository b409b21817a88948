"""Expressions: what a piece of host code may be worth."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from kernelmark.evaluators.grading.records import Finding
from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._calls import Calls
from kernelmark.evaluators.languages._state import Args
from kernelmark.evaluators.languages._trees import (
    SIGNS,
    Comprehension,
    Env,
    assigned,
    constant_of,
)
from kernelmark.evaluators.languages._values import (
    ADDRESS,
    BOTTOM,
    COMPUTED,
    NOTHING,
    PLAIN,
    TENSOR,
    Box,
    Cached,
    Class,
    Frame,
    Function,
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
    Tensor,
    Tuple,
    Value,
    Values,
    contents,
    deep,
    derived,
    element_of,
    holds_tensor,
    is_plain,
    join,
    one,
    stained,
    tuple_of,
)


class Expressions(Calls):
    """Evaluates expressions over abstract values."""

    # -- expressions -------------------------------------------------------------------------

    def value(self, node: ast.expr, env: Env, frame: Frame) -> Values:
        """Everything that the expression may be."""
        self._tick()
        handler: Callable[[Any, Env, Frame], Values] | None = getattr(
            self, f"_expr_{type(node).__name__}", None
        )
        if handler is None:
            return self.refuse(node, f"`{type(node).__name__}` expressions are not for candidates")
        values = handler(node, env, frame)
        self._met += any(isinstance(v, Plain) and v.element != "" for v in values)
        return values

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
            return derived(one(value))
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
        if isinstance(value, Cached) and name == "cache_clear":
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
            return one(Plain(element=value.sized))
        if name in policy.TENSOR_PROPERTIES:
            return one(value)
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
            return self._subscript_tensor(value, index, node)
        if isinstance(value, Kernel):
            return one(Launch(value, index))
        if holds_tensor(index):
            return self.refuse(node, policy.implicit("picks an item by a tensor"))
        found = self._item_of(value, index, node)
        return stained(found) if element_of(index) else found

    def _item_of(self, value: Value, index: Values, node: ast.Subscript) -> Values:
        if isinstance(value, Plain):
            return one(dataclasses.replace(value, text=None))
        if isinstance(value, Tuple):
            return self._tuple_item(value, node.slice)
        if isinstance(value, Sequence):
            slices = isinstance(node.slice, ast.Slice)
            return one(value) if slices else value.element
        if isinstance(value, Box):
            if element_of(index):  # what a slice holds, and how much of it
                return stained(contents(value)) | COMPUTED
            key = constant_of(node.slice)
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
            return derived(index) if value.enum else one(value)
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

    def _subscript_tensor(self, owner: Tensor, index: Values, node: ast.AST) -> Values:
        if holds_tensor(index) or any(isinstance(v, Box) for v in deep(index)):
            return self.refuse(
                node, "indexing by a tensor or list computes outside your kernels: use tl.load"
            )
        return self._viewed(owner, index)

    def _tuple_item(self, value: Tuple, index: ast.expr) -> Values:
        if isinstance(index, ast.Slice):
            return one(Sequence(join(value.items)))
        position = constant_of(index)
        if isinstance(position, int) and -len(value.items) <= position < len(value.items):
            return value.items[position]
        return join(value.items)

    def _expr_Slice(self, node: ast.Slice, env: Env, frame: Frame) -> Values:
        bounds = [
            self.value(part, env, frame)
            for part in (node.lower, node.upper, node.step)
            if part is not None
        ]
        if any(map(holds_tensor, bounds)):
            self.refuse(node, "a slice bound read from a tensor: use .item()")
        return one(Plain(element=element_of(join(bounds))))  # a part, from here to there

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

    def _expr_Set(self, node: ast.Set, env: Env, frame: Frame) -> Values:
        made = self._expr_List(node, env, frame)
        if element_of(made):  # equal ones are one
            self._stain(made)
        return made

    def _expr_Dict(self, node: ast.Dict, env: Env, frame: Frame) -> Values:
        site = self._site(node, mapping=True)
        for key, item in zip(node.keys, node.values, strict=True):
            values = self.value(item, env, frame)
            if key is None:
                self._update(site, values, item)
                continue
            named = self.value(key, env, frame)
            self._grow(site, values, constant_of(key))
            self._grow_keys(site, named)
        return one(Box(site))

    def _expr_JoinedStr(self, node: ast.JoinedStr, env: Env, frame: Frame) -> Values:
        return derived(join([self.value(part, env, frame) for part in node.values]))

    def _expr_FormattedValue(self, node: ast.FormattedValue, env: Env, frame: Frame) -> Values:
        values = self.value(node.value, env, frame)
        if node.format_spec is not None:
            values = values | self.value(node.format_spec, env, frame)
        if holds_tensor(values):
            return self.refuse(node, policy.implicit("writes a tensor out as text"))
        return derived(values)

    def _expr_IfExp(self, node: ast.IfExp, env: Env, frame: Frame) -> Values:
        decided = self._truth(self.value(node.test, env, frame), node.test)
        with self._decided(decided):
            then = self.value(node.body, self._narrow(node.test, env, frame, True), frame)
            other = self.value(node.orelse, self._narrow(node.test, env, frame, False), frame)
        return self._chosen(decided, [then, other], node, env, frame)

    def _expr_BoolOp(self, node: ast.BoolOp, env: Env, frame: Frame) -> Values:
        going_on = isinstance(node.op, ast.And)
        found: list[Values] = []
        decided, inner = False, env
        for part in node.values:
            with self._decided(decided):
                found.append(self.value(part, inner, frame))
            if part is not node.values[-1]:
                decided = self._truth(found[-1], part) or decided
            inner = self._narrow(part, inner, frame, going_on)
        return self._chosen(decided, found, node, env, frame)

    def _truth(self, values: Values, node: ast.AST) -> bool:
        """Whether elements of tensors decide if `values` count as true."""
        if any(isinstance(v, Tensor) for v in values):
            self.refuse(node, policy.implicit("tests whether a tensor is true"))
        return bool(element_of(values))

    @contextmanager
    def _decided(self, decided: bool) -> Iterator[None]:
        """While open, what is done is done or left because of a tensor's element."""
        self._under += decided
        self._branch += decided
        yield
        self._under -= decided
        self._branch -= decided

    def _chosen(
        self, decided: bool, found: list[Values], node: ast.expr, env: Env, frame: Frame
    ) -> Values:
        """One of `found`; if an element decided which, they tell of it, and so do names in them."""
        self._rebind(node, env, frame)
        if not decided:
            return join(found)
        self._stain_names(assigned([ast.Expr(node)]), env, frame)
        chosen = stained(join(found))
        self._stain(chosen)
        return chosen

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

    def _comprehension(
        self, node: Comprehension, env: Env, frame: Frame
    ) -> tuple[Env, Frame, Values]:
        """The names and the scope that the element of a comprehension is evaluated in; and what
        elements of tensors add to it, if they decide how often that is."""
        targets = [ast.Expr(g.target) for g in node.generators]
        scope = self._frame(node, frame, "comprehension", assigned(targets))
        env = dict(env)
        told = BOTTOM
        for generator in node.generators:
            if generator.is_async:
                self.refuse(generator.iter, "nothing may be deferred: no async comprehensions")
            source = self.value(generator.iter, env, scope)
            told = told | (COMPUTED if self._long(source) else BOTTOM)
            self._assign(generator.target, self.elements(source, generator.target), env, scope)
            for condition in generator.ifs:
                if self._truth(self.value(condition, env, scope), condition):
                    told = COMPUTED
                env = self._narrow(condition, env, scope, True)
        return env, scope, told

    def _long(self, iterable: Values) -> bool:
        """Whether elements of tensors may decide how often a loop over `iterable` goes round.

        Whatever fills a container because of an element leaves a computed number in it.
        """
        numbers = frozenset(v for v in iterable if isinstance(v, Plain))
        return bool(element_of(numbers)) or element_of(iterable) == "computed"

    def _expr_ListComp(self, node: ast.ListComp | ast.SetComp, env: Env, frame: Frame) -> Values:
        site = self._site(node)
        inner, scope, told = self._comprehension(node, env, frame)
        self._grow(site, self.value(node.elt, inner, scope) | told)
        self._told(told, node, env, frame)
        return one(Box(site))

    def _expr_SetComp(self, node: ast.SetComp, env: Env, frame: Frame) -> Values:
        made = self._expr_ListComp(node, env, frame)
        if element_of(made):  # equal ones are one
            self._stain(made)
        return made

    def _ever(self, name: str, frame: Frame) -> Values:
        """Everything that a name of this function ever is."""
        found = frame.cells.get(name, BOTTOM)
        while isinstance(frame.node, Comprehension) and frame.parent is not None:
            frame = frame.parent
            found = found | frame.cells.get(name, BOTTOM)
        return found

    def _rebind(self, node: ast.expr, env: Env, frame: Frame) -> None:
        """Names that are bound somewhere inside `node`, under conditions or over and over."""
        while isinstance(frame.node, Comprehension) and frame.parent is not None:
            frame = frame.parent
        for name in assigned([ast.Expr(node)]):
            if name in frame.cells and name not in frame.outer:
                env[name] = env.get(name, BOTTOM) | frame.cells[name]

    def _told(self, told: Values, node: ast.expr, env: Env, frame: Frame) -> None:
        """Names that a comprehension binds outside, as often as an element says."""
        self._rebind(node, env, frame)
        if told:
            self._stain_names(assigned([ast.Expr(node)]), env, frame)

    def _expr_GeneratorExp(self, node: ast.GeneratorExp, env: Env, frame: Frame) -> Values:
        names = env
        if id(node) not in self._eager:  # run later, when the names may be something else
            names = {name: values | self._ever(name, frame) for name, values in env.items()}
        inner, scope, told = self._comprehension(node, names, frame)
        items = self.value(node.elt, inner, scope) | told
        self._told(told, node, env, frame)
        return self._iterator(items, node)

    def _expr_DictComp(self, node: ast.DictComp, env: Env, frame: Frame) -> Values:
        site = self._site(node, mapping=True)
        inner, scope, told = self._comprehension(node, env, frame)
        self._grow_keys(site, self.value(node.key, inner, scope) | told)
        self._grow(site, self.value(node.value, inner, scope) | told)
        self._told(told, node, env, frame)
        return one(Box(site))

    def _expr_Yield(self, node: ast.Yield, env: Env, frame: Frame) -> Values:
        values = self.value(node.value, env, frame) if node.value else NOTHING
        self._into(frame.yields, stained(values) if self._under else values)
        return NOTHING

    def _expr_YieldFrom(self, node: ast.YieldFrom, env: Env, frame: Frame) -> Values:
        self._into(frame.yields, self.elements(self.value(node.value, env, frame), node))
        return NOTHING

    def _expr_UnaryOp(self, node: ast.UnaryOp, env: Env, frame: Frame) -> Values:
        values = self.value(node.operand, env, frame)
        if isinstance(node.op, ast.Not):
            self._truth(values, node)
            return derived(frozenset(v for v in values if not isinstance(v, Tensor)))
        return self._operate(node, node.op, values, BOTTOM)

    def _expr_BinOp(self, node: ast.BinOp, env: Env, frame: Frame) -> Values:
        left, right = self.value(node.left, env, frame), self.value(node.right, env, frame)
        return self._operate(node, node.op, left, right)

    def _operate(self, node: ast.AST, op: ast.AST, left: Values, right: Values) -> Values:
        """A binary (or, with nothing on the right, unary) operator."""
        both = left | right
        sign = SIGNS.get(type(op).__name__, "this operator")
        if any(isinstance(v, Tensor) for v in both):
            return self.refuse(
                node, f"`{sign}` on a tensor computes outside your kernels: do it in a kernel"
            )
        if any(isinstance(v, Instance | Function | Kernel | Cached | Partial) for v in both):
            return self.refuse(node, f"`{sign}` on an object that the scan cannot follow")
        held = join([contents(v) for v in both])
        if any(isinstance(v, Box | Tuple | Sequence) for v in both):
            return self._concatenate(node, both, held)
        return derived(both)

    def _concatenate(self, node: ast.AST, both: Values, held: Values) -> Values:
        plain = frozenset(v for v in both if isinstance(v, Plain))
        held = held | (derived(plain) if plain else BOTTOM)
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
                tensors = frozenset(v for v in right if isinstance(v, Tensor))
                self._operate_compare(node, tensors)
                if left - NOTHING:
                    self._operate_compare(node, self.elements(right - tensors, node))
            else:
                self._operate_compare(node, left | right)
        return derived(join(values))

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
            return one(value)
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
