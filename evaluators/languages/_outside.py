"""Calls of what comes from outside the candidate: builtins, torch, triton, modules; methods."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Callable

from kernelmark.evaluators.languages import _policy as policy
from kernelmark.evaluators.languages._state import Args, State
from kernelmark.evaluators.languages._trees import (
    callables_of,
    constant_of,
    fields_of,
)
from kernelmark.evaluators.languages._values import (
    BOTTOM,
    COMPUTED,
    NOTHING,
    PLAIN,
    READ,
    TENSOR,
    Box,
    Cached,
    Class,
    Function,
    Instance,
    Kernel,
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
    derived,
    element_of,
    holds_tensor,
    is_plain,
    join,
    one,
    sized_by,
    stained,
    strongest,
    tuple_of,
)


class Outside(State):
    """What is made of a call of something on the allow-list (`_policy`)."""

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
        given = args.all()
        if holds_tensor(given):
            return self.refuse(
                node, f"`{name}` on a tensor computes outside your kernels: do it in a kernel"
            )
        heard = self._call_back(given, PLAIN | derived(given), node)
        return derived(given | heard)

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
            return self._folded(args.get(0), items, node)
        functions = frozenset(v for v in args.get(0) if not isinstance(v, Plain | Nothing))
        return one(Cached(functions)) if functions else one(Path("functools.cache"))

    def _folded(self, function: Values, items: Values, node: ast.AST) -> Values:
        """What a function of two comes to, which is given what it has made, over and over."""
        made = items
        for _ in range(8):
            before = made
            made = made | self.call(function, Args([made, items]), node)
            if made == before:
                return made
        return self.refuse(node, "too intricate a fold: write a loop")

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
        if member == "accumulate":
            function = args.get(1, "func") - NOTHING
            first = args.named.get("initial", BOTTOM)
            items = self._folded(function, items | first, node) if function else items | first
        else:
            items = items | self._call_back(args.all(), items, node)
        if any(isinstance(v, Plain) and v.element for v in args.all()):  # how many there are
            items = stained(items) | COMPUTED
        if member in ("chain", "chain.from_iterable", "islice", "repeat", "accumulate"):
            return self._iterator(items, node)
        return self._iterator(PLAIN if is_plain(items) else one(Sequence(items)), node)

    def _call_dataclasses(self, member: str, args: Args, node: ast.AST) -> Values:
        if member == "dataclass":
            if not args.positional:
                return one(Path("dataclasses.dataclass"))
            return join(
                [
                    one(dataclasses.replace(v, fields=fields_of(v)))
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
        if args.all():
            return self.refuse(node, "nullcontext hands a value on unseen: assign it to a name")
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
            return self._view_by_function(member, args, node)
        if member in policy.ASK:
            return self._ask(member, args, node)
        if member in policy.CONTEXTS:
            functions = frozenset(v for v in args.get(0) if isinstance(v, Function))
            return functions or one(Opaque("context"))
        if member in policy.RANDOM:
            if not self._random:
                return self.refuse(node, policy.refusal(f"torch.{member}"))
            if element_of(args.all()):
                return self.refuse(node, policy.element("draws random numbers by"))
            return PLAIN if "seed" in member else self._make(node)
        if member == "clone":
            self._move("clone", node)
            return self._tensors(args.get(0, "input"))
        last = member.rpartition(".")[2]
        if last in policy.DEVICE_ASK or last == "get_device_properties":
            return derived(args.all())
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
        return self._made(member, args, node)

    def _made(self, name: str, args: Args, node: ast.AST) -> Values:
        """A new tensor."""
        if self.importing:
            return self.refuse(node, "makes a tensor at import: make it anew in every call")
        written, sizes = self._written_and_sizes(name, args)
        if element_of(join(written)):
            return self.refuse(node, policy.element(f"`{name}` fills a tensor with"))
        given = [v.sized for v in deep(join(sizes)) if isinstance(v, Tensor)]
        return one(Tensor(strongest([*given, sized_by(one(Tuple(tuple(sizes))))])))

    def _written_and_sizes(self, name: str, args: Args) -> tuple[list[Values], list[Values]]:
        """What a function that makes a tensor writes into it, and what it takes sizes from."""
        everything = [*args.positional, *args.named.values(), args.loose()]
        if name in policy.FILLED_BY_VALUES or (args.loose() and name in policy.FILLED_BY_NUMBER):
            return everything, []
        if name in policy.FILLED_BY_NUMBER:
            return [args.get(1, "fill_value")], [args.get(0, "size"), args.get(0, "input")]
        return [], everything

    def _tensors(self, values: Values) -> Values:
        """Those of `values` that are tensors; any tensor, where none is known."""
        return frozenset(v for v in values if isinstance(v, Tensor)) or TENSOR

    def _view_by_function(self, member: str, args: Args, node: ast.AST) -> Values:
        if member.startswith("broadcast_tensors"):
            return one(Sequence(args.all() or TENSOR))
        rest = Args(args.positional[1:], args.named, args.star, args.double, args.tail)
        first = args.get(0, "input")
        rest.named.pop("input", None)
        return self._views(member, first, rest, node)

    def _views(self, name: str, owner: Values, args: Args, node: ast.AST) -> Values:
        """What looking at `owner` differently gives: one tensor, or several."""
        if name in self._refused_views:
            self.refuse(node, f"`{name}` is this operator's own work: find the places in a kernel")
        if name not in policy.BY_ANOTHER and holds_tensor(args.all()):
            return self.refuse(node, policy.implicit(f"`{name}` by a tensor"))
        index = one(Tuple((*args.positional, *args.named.values(), args.loose())))
        found = join([self._viewed(v, index) for v in self._tensors(owner)])
        if name in policy.MANY_VIEWS and element_of(index):  # how many there are
            found = one(Tensor("computed"))
        return one(Sequence(found)) if name in policy.MANY_VIEWS else found

    def _viewed(self, owner: Value, index: Values) -> Values:
        """A view of the tensor `owner` by what `index` holds."""
        told = [v.sized for v in (owner, *deep(index)) if isinstance(v, Tensor)]
        told.append(sized_by(index))
        return one(Tensor(strongest(told)))

    def _ask(self, member: str, args: Args, node: ast.AST) -> Values:
        given = args.all()
        if member not in policy.ASK_OF_TENSORS and holds_tensor(given):
            return self.refuse(node, policy.implicit(f"`torch.{member}` of a tensor"))
        sized = strongest(v.sized for v in deep(given) if isinstance(v, Tensor))
        if member == "numel":
            return one(Plain(element=sized))
        return one(Plain(element=element_of(given)))

    def _call_triton(self, name: str, args: Args, node: ast.AST) -> Values:
        member = name.removeprefix("triton.")
        if member in ("jit", "constexpr_function"):
            functions = [v for v in args.get(0) if isinstance(v, Function)]
            if not functions:  # with options: the decorator itself
                options = enumerate(self._find_hooks(args, node, "metadata"))
                given = tuple((f"{kind}:{i}", one(f)) for i, (kind, f) in options)
                return one(Partial(one(Path(name)), (), given))
            if member == "constexpr_function":
                importing, self.importing = self.importing, False  # it is run by kernels
                self._call_back(args.get(0), PLAIN | COMPUTED, node)
                self.importing = importing
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
            if element_of(args.all()):
                self.refuse(node, policy.element("a configuration gives a kernel"))
            self._kernel_argument(args.get(0, "kwargs"), node)
            return one(Opaque("config"))
        if member == "reinterpret":
            return self._tensors(args.get(0))
        if member == "set_allocator":
            self._allocator(args, node)
            return NOTHING
        if member.startswith("tools.tensor_descriptor.TensorDescriptor"):
            self._kernel_argument(args.all(), node)
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
            return self._call_over_tensors(name, args, node)
        held = join([args.all(), *(self._inside(v) for v in args.all())])
        heard = self._call_back(held, PLAIN | derived(held), node)
        told = COMPUTED if element_of(heard) else BOTTOM
        return self._plain_call(name, Args(star=(held - callables_of(held)) | told), node)

    def _call_over_tensors(self, name: str, args: Args, node: ast.AST) -> Values:
        """Builtins that may be given a tensor: questions, and the reading of one element."""
        given = args.all()
        if name in ("isinstance", "callable"):
            return PLAIN
        if name == "print":
            if holds_tensor(given):
                return self.refuse(node, policy.implicit("prints a tensor"))
            return NOTHING
        if name == "len":
            return join(map(self._length, given)) or PLAIN
        found: list[Values] = []
        for value in given:
            if isinstance(value, Tensor):
                found.append(READ)
            elif name == "bool" and not isinstance(value, Plain):
                found.append(self._length(value))
            elif isinstance(value, Plain) and len(args.positional) == 1 and not args.named:
                address = value.address and name == "int"
                found.append(one(Plain(address=address, element=value.element)))
            else:
                found.append(derived(given))
        return join(found) or PLAIN

    def _length(self, value: Value) -> Values:
        if isinstance(value, Tensor):
            return one(Plain(element=value.sized))
        if isinstance(value, Tuple):
            return PLAIN
        if isinstance(value, Plain):
            return derived(one(value))
        if any(isinstance(v, Tensor) and v.sized for v in contents(value)):
            return COMPUTED
        keys = value.site.keys[0] if isinstance(value, Box) and value.site.keys else BOTTOM
        told = element_of(contents(value)) == "computed" or element_of(keys)
        return COMPUTED if told else PLAIN

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
        got = join([*found, args.get(2)])
        return stained(got) if element_of(args.get(1)) else got

    def _call_container(self, name: str, args: Args, node: ast.AST) -> Values:
        first = args.get(0)
        if name in ("list", "set", "frozenset", "sorted"):
            if name == "sorted":
                self._operate_compare(node, self.elements(first, node))
            site = self._site(node)
            heard = self._call_back(args.named.get("key", BOTTOM), self.elements(first, node), node)
            self._grow(site, self.elements(first, node))
            if element_of(heard) or (name != "list" and element_of(one(Box(site)))):
                self._stain(one(Box(site)))  # an order, or which of them are equal
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
            number = COMPUTED if self._long(first) else PLAIN
            return self._iterator(tuple_of([number, self.elements(first, node)]), node)
        if name == "zip":
            lists = [self.elements(a, node) for a in args.positional]
            if args.loose():
                inner = join([*lists, self.elements(args.loose(), node)])
                return self._iterator(one(Sequence(inner)), node)
            return self._iterator(tuple_of(lists), node)
        items = [self.elements(a, node) for a in args.positional[1:]]
        given = Args(items, star=self.elements(args.loose(), node))
        result = self.call(frozenset(v for v in first if not isinstance(v, Nothing)), given, node)
        if name == "map":
            return self._iterator(result, node)
        if self._truth(result if result else join(items), node):
            items = [stained(join(items)) | COMPUTED]
        return self._iterator(join(items), node)

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
            return self._tensor_method(owner, name, args, node)
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
            if name == "_asdict":
                site = self._site(node, mapping=True)
                self._grow(site, contents(owner))
                return one(Box(site))
            return one(owner) if name == "_replace" else derived(contents(owner) | args.all())
        if isinstance(owner, Box):
            return self._box_method(owner, name, args, node)
        if name in ("index", "count"):
            self._operate_compare(node, args.all() | one(owner))
            return derived(args.all() | one(owner))
        return self.refuse(node, f"`.{name}` of a tuple is not for candidates")

    def _tensor_method(self, owner: Tensor, name: str, args: Args, node: ast.AST) -> Values:
        given = args.all()
        if name in policy.TENSOR_ASK:
            if holds_tensor(given) and name != "is_same_size":
                return self.refuse(node, policy.implicit(f"`{name}` by a tensor"))
            return self._asked(owner, name, given)
        if name == "untyped_storage":
            if owner.sized:
                return self.refuse(node, "the storage of a tensor whose size was read: ask itself")
            return one(Opaque("storage"))
        if name in policy.MOVES:
            self._move(name, node)
        if name in policy.NEW_EMPTY | policy.NEW_FILLED:
            if holds_tensor(given):
                return self.refuse(node, f"`{name}` copies a tensor: use a kernel or .clone()")
            return self._made(name, args, node)
        if name in policy.MOVES:
            if element_of(given):
                return self.refuse(node, policy.element(f"`{name}` writes"))
            if name in policy.FILL and holds_tensor(given):
                return self.refuse(node, f"`{name}` by a tensor: use copy_, or a kernel")
            return one(owner)
        return self._views(name, one(owner), args, node)

    def _asked(self, owner: Tensor, name: str, given: Values) -> Values:
        if name == "item":
            return READ
        if name == "data_ptr":
            return one(Plain(address=True, element="computed" if owner.sized else ""))
        return one(Plain(element="computed" if element_of(given) else owner.sized))

    def _box_method(self, box: Box, name: str, args: Args, node: ast.AST) -> Values:
        site, held = box.site, contents(box)
        if element_of(args.all()) and name not in ("append", "extend", "add", "update"):
            # The number finds a place in it, or an item of it.
            self._stain(one(box))
            held = stained(contents(box))
        if name in ("append", "add", "insert", "setdefault", "appendleft"):
            key = None
            if name == "setdefault" and isinstance(node, ast.Call) and node.args:
                key = constant_of(node.args[0])
            stored = join([*args.positional[-1:], args.loose()])
            self._store(site, stored, node, key)
            if site.shared and not self.importing and len(args.positional) > 1:
                self._remember(args.positional[0], node)
            return held | stored
        if name in ("extend", "update"):
            for values in [*args.positional, args.loose()]:
                pairs = self._pairs(values) if site.keys is not None else values
                self._update(site, pairs, node)
            for key, values in args.named.items():
                self._store(site, values, node, key)
            return NOTHING
        if name == "popitem":
            return tuple_of([site.keys[0] if site.keys else PLAIN, held])
        if name in ("pop", "get", "popleft"):
            default = args.get(1)
            if name == "get" and isinstance(node, ast.Call) and node.args:
                key = constant_of(node.args[0])
                if key is not None:
                    known = join([site.keyed.get(key, BOTTOM), site.rest[0]])
                    return known | (default or NOTHING)
                if element_of(args.get(0)):
                    default = stained(default or NOTHING)
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
            heard = self._call_back(args.named.get("key", BOTTOM), held, node)
            if element_of(heard | held):
                self._stain(one(box))
            return NOTHING
        if name in ("reverse", "clear", "remove", "discard", "index", "count", "issubset"):
            if name in ("remove", "index", "count"):
                self._operate_compare(node, held)
            return derived(held | args.all())
        return self.refuse(node, f"`.{name}` of a container is not read by the scan")
