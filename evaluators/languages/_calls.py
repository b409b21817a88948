"""Calls of what the candidate defines: functions, classes, kernels."""

from __future__ import annotations

import ast
import dataclasses
from typing import Any

from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._outside import Outside
from kernelmark.evaluators.languages._state import MAX_CONTEXTS, Args
from kernelmark.evaluators.languages._trees import (
    Env,
    assigned,
    is_constexpr,
    is_generator,
    names_with_default,
    parameters_of,
    walk_scope,
)
from kernelmark.evaluators.languages._values import (
    ADDRESS,
    BOTTOM,
    COMPUTED,
    NOTHING,
    PLAIN,
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
    Tuple,
    Value,
    Values,
    contents,
    deep,
    derived,
    element_of,
    holds_address,
    holds_tensor,
    join,
    one,
    tuple_of,
)


class Calls(Outside):
    """Follows calls into functions, and launches into what they bind."""

    # -- calls -------------------------------------------------------------------------------

    def _expr_Call(self, node: ast.Call, env: Env, frame: Frame) -> Values:
        function = self.value(node.func, env, frame)
        if function and all(
            isinstance(v, Path) and v.name.removeprefix("builtins.") in policy.EAGER
            for v in function
        ):
            self._eager.update(id(a) for a in node.args if isinstance(a, ast.GeneratorExp))
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
        given = args.all()
        if holds_tensor(given):
            return self.refuse(node, "passes a tensor to a call that the scan cannot follow")
        heard = self._call_back(given, PLAIN | derived(given), node)
        if element_of(given | heard | one(value)):
            return derived(given | heard | one(value))
        return one(dataclasses.replace(value, text=None))

    def _call_back(self, values: Values, given: Values, node: ast.AST) -> Values:
        """Follows functions that are handed to somebody who will call them."""
        functions = frozenset(
            v
            for v in values
            if isinstance(
                v, Function | Cached | Partial | Kernel | Instance | Method | Launch | Class
            )
            or (isinstance(v, Path) and not policy.module_allowed(v.name))
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

    def _call_function(self, function: Function, args: Args, node: ast.AST) -> Values:
        bound = self._bind_arguments(function, args)
        key: Any = (self._under > 0, *sorted(bound.items(), key=lambda item: item[0]))
        contexts = self._contexts.setdefault(id(function.node), set())
        if key not in contexts and len(contexts) >= MAX_CONTEXTS:
            key = ("any", self._under > 0)
        contexts.add(key)
        body = function.node.body
        statements: list[ast.stmt] = body if isinstance(body, list) else []
        if isinstance(body, ast.expr):
            statements = [ast.Return(body, lineno=body.lineno)]
        if id(body) not in self._names:
            self._names[id(body)] = assigned(statements)
        names = frozenset(bound) | self._names[id(body)]
        frame = self._frame(function.node, function.frame, key, names)
        for name, values in bound.items():
            self._cell(frame, name, values)
        if key[0] == "any":
            bound = {name: frame.cells[name] for name in bound}
        if id(frame) in self._done:
            self._met += id(frame) in self._telling
        else:
            met = self._met
            self._done.add(id(frame))
            self._enter(frame, statements)
            branch, self._branch = self._branch, 0
            end = self._block(statements, dict(bound), frame)
            self._branch = branch
            if end is not None:
                frame.ends.append(True)
                self._into(frame.returns, NOTHING)
            if self._met > met:
                self._telling.add(id(frame))
        if is_generator(function.node):
            return self._iterator(frame.yields[0], node)
        return frame.returns[0]

    def _enter(self, frame: Frame, body: list[ast.stmt]) -> None:
        """Binds `global` and `nonlocal` names to the frames that own them."""
        for statement in walk_scope(body):
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
            return derived(args.all())
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
        # Builtins and operators may call these; what they tell is part of what the object holds.
        for method in ("__len__", "__repr__", "__str__", "__hash__"):
            told = self.call(self._members(cls, instance, method, node), Args(), node)
            self._grow(site, COMPUTED if element_of(told) else BOTTOM, method)
        told = self.call(self._members(cls, instance, "__eq__", node), Args([PLAIN]), node)
        self._grow(site, COMPUTED if element_of(told) else BOTTOM, "__eq__")
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
        self._met += 1
        parameters = parameters_of(kernel.node)
        names = [parameter.arg for parameter in parameters]
        if id(kernel.node) in self._tuned:  # tuned: configurations give some of the arguments
            known = len(args.positional)
            rest = [n for n in names[known:] if n in args.named or n not in self._supplied]
            names = names[:known] + rest
        bound = args.spread(names, names_with_default(kernel.node))
        for parameter in parameters:
            values = bound.get(parameter.arg, BOTTOM)
            self._grow(kernel.site, values, parameter.arg)
            if is_constexpr(parameter) and holds_tensor(values):
                self.refuse(node, f"`{parameter.arg}` is a constexpr: a tensor cannot be one")
            if is_constexpr(parameter) and element_of(values):
                self.refuse(node, policy.element(f"`{parameter.arg}` is a constexpr: it gets"))
        self._kernel_argument(args.all(), node)
        if any(isinstance(value, Box) for value in deep(args.all())):
            self.refuse(node, "passes a list or dict to a kernel: pass its items, or a tuple")
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
            elif not isinstance(value, Plain | Tuple | Sequence | Box | Nothing):
                self.refuse(node, "a grid is made of numbers, or is a function of your own")
        for sort, hook in [*self._hooks[0], *self._hooks.get(id(kernel.node), {})]:
            self._call_hook(sort, hook, given, node)
        return one(Opaque("compiled"))

    def _kernel_argument(self, values: Values, node: ast.AST) -> None:
        if element_of(values) == "computed":
            self.refuse(node, policy.computed("gives a kernel"))
        for value in deep(values):
            if isinstance(value, Function) and value.sort == "constexpr":
                continue
            host = isinstance(value, Function | Cached | Partial | Class | Method | Launch)
            foreign = isinstance(value, Path) and not value.name.startswith(policy.IN_KERNELS)
            if host or foreign:
                self.refuse(node, "passes host code to a kernel: pass jit functions only")
            if isinstance(value, Instance) and not self._is_record(value.cls):
                self.refuse(node, "passes an object to a kernel: pass numbers, or a named tuple")

    def _is_record(self, cls: Class) -> bool:
        """A named tuple or data class without code."""
        functions = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
        plain = not any(isinstance(part, functions) for part in ast.walk(cls.node))
        return cls.fields is not None and plain and all(map(self._is_record, cls.bases))

    def _call_hook(self, sort: str, hook: Value, meta: Values, node: ast.AST) -> None:
        configs = one(Sequence(one(Opaque("config"))))
        everything = join([contents(v) for v in meta])
        if sort == "early_config_prune":
            chosen = self.call(one(hook), Args([configs, meta], double=everything), node)
            self._chosen_config(chosen, node)
        elif sort == "perf_model":
            time = self.call(one(hook), Args(star=everything, double=everything), node)
            self._chosen_config(time, node)
        elif sort == "metadata":
            self.call(one(hook), Args([PLAIN, PLAIN, meta]), node)
        elif sort == "heuristic":
            result = self.call(one(hook), Args([meta]), node)
            self._kernel_argument(result, node)
            if element_of(result):
                self.refuse(node, policy.element("a heuristic gives a kernel"))
            if holds_tensor(result):
                self.refuse(node, "a heuristic gives numbers, not tensors")
        else:
            self.call(one(hook), Args([meta], star=PLAIN | NOTHING), node)

    def _chosen_config(self, values: Values, node: ast.AST) -> None:
        if element_of(values):
            self.refuse(node, policy.element("chooses a configuration by"))

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
        for value in held:
            foreign = isinstance(value, Path) and not value.name.startswith("triton")
            if foreign or isinstance(value, Class | Method):
                self.refuse(node, "a hook is a function of your own")
        callables = [v for v in held if isinstance(v, Function | Cached | Partial | Instance)]
        return [(special.get(v, sort), v) for v in callables]
