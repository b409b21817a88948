"""What host code of a Triton candidate may touch: the allow-list, as tables.

The rule behind the tables: **what computes must be the candidate's own kernels.** Host code may ask
(shape, dtype, device), make (new tensors with constant contents), look at differently (views), and
move (copies, conversions, initialisation of buffers). It may not compute on tensors, and may not
reach for the machine or the judge.

Decisions that are not obvious:

- *Moving* (`contiguous`, `clone`, `to`, `copy_`, slice assignment, `fill_`, `zero_`) is allowed for
  operators whose own work it is not: `MOVING_OPERATORS` says which moves are refused to whom. The
  integrity gate still asks that kernels, not moves, make the answer.
- *Reading one value* (`item`, `int(t)`, `float(t)`, `bool(t)`) is allowed: output sizes depend on
  data. What is read is followed (`_values.Element`): as it is, a kernel may be given it; whatever
  is made from it or chosen by it may be a size, a grid, a slice or a bound of a loop, but may not
  reach a kernel, the contents of a tensor or the answer: that would be computing on the host.
  A number that has become the size of a tensor, as it was read, is a size like any other.
  Reading many (`tolist`, `cpu`, `numpy`), or without saying so (formatting, truth, indexing by a
  tensor), is refused. What no text shows, such as a branch that leaves a function, the integrity
  gate bounds: it counts what is read (`grading.hostwork`).
- `data_ptr` is allowed: for dispatch on alignment and for address tables. Addresses may not be
  remembered between calls.
- `torch.cuda.current_stream` may be asked for; streams, events and graphs may not be made.
"""

from __future__ import annotations

import builtins
import importlib
import re
import types
from functools import cache

from kernelmark.evaluators.languages._values import PLAIN, Path, Values, one

#: device modules of torch and of its vendors' plug-ins
DEVICES = ("cuda", "npu", "musa", "xpu", "mlu", "hpu", "mps", "cpu", "accelerator")

PLUGINS = frozenset({"torch_npu", "torch_musa", "torch_mlu", "intel_extension_for_pytorch"})

#: modules that are allowed as a whole
MODULES = frozenset({"math", "typing", "numbers", "abc", "collections.abc", "__future__"})

MEMBERS = {
    "functools": {"partial", "reduce", "wraps", "lru_cache", "cache"},
    "itertools": {
        "product", "chain", "accumulate", "zip_longest", "permutations", "combinations", "repeat",
        "islice", "pairwise",
    },
    "operator": {
        "mul", "add", "sub", "floordiv", "mod", "neg", "eq", "ne", "lt", "le", "gt", "ge",
        "itemgetter", "index", "or_", "and_", "truediv", "pow",
    },
    "dataclasses": {"dataclass", "field", "replace", "astuple", "asdict", "fields"},
    "enum": {"Enum", "IntEnum", "auto", "unique", "Flag", "IntFlag"},
    "collections": {"namedtuple", "OrderedDict", "defaultdict", "abc"},
    "contextlib": {"nullcontext"},
    "logging": {"getLogger"},
    "warnings": {"warn"},
}  # fmt: skip

TORCH_DTYPES = re.compile(
    r"((b?float|u?int|complex|bits)\d+(_\w+)?"
    r"|double|half|short|int|long|bool|float|cfloat|cdouble|chalf|quint8|qint8|qint32)$"
)
TORCH_PLAIN = {
    "inf", "nan", "pi", "e", "strided", "contiguous_format", "preserve_format", "channels_last",
    "channels_last_3d", "sparse_coo", "jagged", "newaxis", "__version__",
}  # fmt: skip

#: torch functions that make a tensor out of plain values
CREATE_EMPTY = {"empty", "empty_like", "empty_strided", "empty_permuted"}
CREATE_FILLED = {
    "zeros", "zeros_like", "ones", "ones_like", "full", "full_like", "arange", "tensor",
    "as_tensor", "scalar_tensor",
}  # fmt: skip
CREATE = CREATE_EMPTY | CREATE_FILLED
#: of those and of the `new_` methods: filled with values that are given, or with one number
FILLED_BY_VALUES = {"arange", "tensor", "as_tensor", "scalar_tensor", "new_tensor"}
FILLED_BY_NUMBER = {"full", "full_like", "new_full"}
RANDOM = {"randint", "rand", "seed", "initial_seed"}

#: torch functions that answer with a view of their argument, or with several
VIEWS = {
    "reshape", "transpose", "permute", "squeeze", "unsqueeze", "flatten", "unflatten", "movedim",
    "moveaxis", "swapaxes", "swapdims", "t", "narrow", "select", "as_strided", "ravel", "diagonal",
    "view_as_real", "view_as_complex", "broadcast_to", "atleast_1d", "atleast_2d", "atleast_3d",
    "detach", "adjoint",
}  # fmt: skip
MANY_VIEWS = {
    "split", "chunk", "unbind", "tensor_split", "broadcast_tensors", "split_with_sizes", "hsplit",
    "vsplit", "dsplit",
}  # fmt: skip
#: torch functions that answer with plain values
ASK = {
    "finfo", "iinfo", "promote_types", "result_type", "can_cast", "broadcast_shapes", "is_tensor",
    "is_floating_point", "is_complex", "numel", "get_default_dtype", "Size", "device", "dtype",
    "is_same_size", "get_default_device",
}  # fmt: skip
DEVICE_ASK = {
    "current_device", "get_device_capability", "device_count", "is_available", "get_device_name",
    "is_bf16_supported", "current_accelerator", "current_device_index", "is_initialized",
    "synchronize",
}  # fmt: skip
#: of those that may be asked about tensors
ASK_OF_TENSORS = {
    "result_type",
    "is_tensor",
    "is_floating_point",
    "is_complex",
    "numel",
    "is_same_size",
}
CONTEXTS = {"no_grad", "inference_mode", "enable_grad"}

#: what may be asked of a tensor
TENSOR_PLAIN = {
    "shape", "ndim", "dtype", "device", "is_cuda", "is_cpu", "is_xpu", "is_meta", "is_sparse",
    "is_quantized", "layout", "requires_grad", "itemsize", "nbytes", "is_mps", "is_leaf",
}  # fmt: skip
TENSOR_ASK = {
    "size", "dim", "ndimension", "numel", "nelement", "stride", "storage_offset", "is_contiguous",
    "element_size", "is_floating_point", "is_complex", "is_signed", "data_ptr", "get_device",
    "is_conj", "is_neg", "is_same_size", "item", "dim_order", "is_inference", "is_pinned",
}  # fmt: skip
#: views and moves that take their form from another tensor
BY_ANOTHER = {"view_as", "reshape_as", "expand_as", "to", "type_as", "copy_", "broadcast_tensors"}
TENSOR_PROPERTIES = {"T", "mT", "H", "mH", "data", "real", "imag"}
TENSOR_VIEWS = VIEWS | {
    "view", "view_as", "reshape_as", "expand", "expand_as", "unfold", "resize_", "requires_grad_",
    "squeeze_", "unsqueeze_", "t_", "transpose_", "resolve_conj", "resolve_neg",
}  # fmt: skip
NEW_EMPTY = {"new_empty", "new_empty_strided"}
NEW_FILLED = {"new_zeros", "new_ones", "new_full", "new_tensor"}
#: methods that move or convert without computing, by class of move
CONVERT = {
    "contiguous", "clone", "to", "type", "type_as", "float", "half", "double", "bfloat16", "int",
    "long", "short", "char", "byte", "bool", "cuda",
}  # fmt: skip
WRITE = {"copy_", "setitem"}
FILL = {"fill_", "zero_"}

MOVES = {
    **dict.fromkeys(CONVERT, "convert"),
    **dict.fromkeys(WRITE, "write"),
    **dict.fromkeys(FILL | NEW_FILLED | CREATE_FILLED, "fill"),
}
_COPIES = ("clone", "contiguous", "to", "_to_copy", "copy_", "cat", "stack", "reshape", "rot90",
           "im2col", "permute_cols", "shuffle_rows", "cp_gather_cache", "reshape_and_cache",
           "reshape_and_cache_flash", "swap_blocks", "copy_blocks", "copy_blocks_mla",
           "concat_and_cache_mla", "cublasCcopy_v2", "cublasDcopy_v2", "cublasZswap_v2",
           "select_backward", "convert_fp8")  # fmt: skip
_CONVERSIONS = ("clone", "contiguous", "to", "_to_copy", "copy_", "convert_fp8", "cublasCcopy_v2",
                "cublasDcopy_v2")  # fmt: skip
_FILLS = ("fill_", "zero_", "zeros", "zeros_like", "ones_like", "new_ones", "full", "arange",
          "scalar_tensor")  # fmt: skip
#: operators whose own work is a move: the classes of move that their host code may not make
MOVING_OPERATORS: dict[str, set[str]] = {}
for _name in _COPIES:
    MOVING_OPERATORS.setdefault(_name, set()).add("write")
for _name in _CONVERSIONS:
    MOVING_OPERATORS.setdefault(_name, set()).add("convert")
for _name in _FILLS:
    MOVING_OPERATORS.setdefault(_name, set()).update({"fill", "write"})

#: operators whose own work is a view and a copy of it: the views that their host code may not take
VIEWING_OPERATORS = {"im2col": {"unfold", "as_strided"}}

#: builtins that host code may call, by what they make of tensors
BUILTINS_PLAIN = {
    "abs", "all", "any", "bin", "bool", "bytes", "callable", "chr", "complex", "divmod", "float",
    "format", "hash", "hex", "int", "isinstance", "issubclass", "len", "max", "min", "oct", "ord",
    "pow", "print", "range", "repr", "round", "slice", "str", "sum",
}  # fmt: skip
BUILTINS_OVER_TENSORS = {
    "isinstance", "len", "bool", "int", "float", "print", "callable", "complex",
}  # fmt: skip
BUILTINS_CONTAINERS = {
    "dict", "enumerate", "filter", "frozenset", "iter", "list", "map", "next", "reversed", "set",
    "sorted", "tuple", "zip",
}  # fmt: skip
BUILTINS_SPECIAL = {
    "getattr", "hasattr", "property", "staticmethod", "classmethod", "type", "object",
}  # fmt: skip
EXCEPTIONS = {
    "ArithmeticError", "AssertionError", "AttributeError", "Exception", "IndexError", "KeyError",
    "LookupError", "NotImplementedError", "OverflowError", "RuntimeError", "StopIteration",
    "TypeError", "ValueError", "ZeroDivisionError", "UserWarning", "RuntimeWarning",
    "DeprecationWarning", "ImportError", "ModuleNotFoundError", "MemoryError",
}  # fmt: skip
BUILTINS_CONSTANT = {"NotImplemented", "Ellipsis", "__name__", "__debug__", "__doc__"}
BUILTINS = BUILTINS_PLAIN | BUILTINS_CONTAINERS | BUILTINS_SPECIAL | EXCEPTIONS | BUILTINS_CONSTANT

#: names that stand for builtins again wherever a module or class does not define them after all
FORBIDDEN_NAMES = frozenset(dir(builtins)) - BUILTINS

#: what may be read of objects of a known sort; the value says what it is
OPAQUE_ATTRIBUTES: dict[str, dict[str, str]] = {
    "stream": {"cuda_stream": "plain", "npu_stream": "plain", "musa_stream": "plain",
               "sycl_queue": "plain", "device": "plain", "device_index": "plain"},
    "storage": {"data_ptr": "address", "nbytes": "plain", "size": "plain", "device": "plain"},
    "compiled": {"n_regs": "plain", "n_spills": "plain", "metadata": "plain",
                 "_init_handles": "plain", "name": "plain", "asm": "plain", "hash": "plain"},
    "config": {"kwargs": "plain", "num_warps": "plain", "num_stages": "plain", "num_ctas": "plain",
               "maxnreg": "plain", "all_kwargs": "plain", "pre_hook": "plain"},
    "descriptor": {"shape": "plain", "strides": "plain", "block_shape": "plain", "base": "tensor"},
    "logger": dict.fromkeys(("debug", "info", "warning", "isEnabledFor"), "plain"),
    "context": {},
    "exception": {},
    "type": {"__name__": "plain"},
    "generator": {"initial_seed": "plain", "seed": "plain", "device": "plain",
                  "get_offset": "plain", "set_offset": "plain"},
}  # fmt: skip

#: attributes that lead from an honest object to the machine; refused on every value
INTROSPECTION = {
    "handle",
    "format_map", "gi_frame", "gi_code", "cr_frame", "tb_frame", "tb_next", "f_back", "f_globals",
    "f_locals", "f_builtins", "mro", "func_globals", "func_code", "ag_frame", "with_traceback",
}  # fmt: skip
#: underscored names that are harmless and common
HARMLESS = {"__name__", "__doc__", "__version__", "_init_handles", "_replace", "_fields", "_asdict",
            "__qualname__", "_"}  # fmt: skip
#: special methods that a candidate's class may define
SPECIAL_METHODS = {"__init__", "__post_init__", "__call__", "__getitem__", "__len__", "__repr__",
                   "__str__", "__eq__", "__hash__"}  # fmt: skip

TRITON_CALLS = {"cdiv", "next_power_of_2", "jit", "autotune", "heuristics", "Config", "reinterpret",
                "set_allocator", "constexpr_function"}  # fmt: skip
#: builtins that use up a generator expression before anything else can happen
EAGER = {"sum", "any", "all", "tuple", "list", "set", "frozenset", "sorted", "min", "max", "dict"}
#: errors that no element of a tensor can raise: those of compiling and of resources
PLAIN_ERRORS = {"triton.OutOfResources", "triton.CompilationError", "triton.PTXASError"}
TRITON_ERRORS = {"OutOfResources", "CompilationError", "TritonError", "PTXASError"}
TRITON_MODULES = {
    "triton", "triton.language", "triton.language.extra", "triton.runtime", "triton.runtime.driver",
    "triton.runtime.driver.active", "triton.runtime.driver.active.utils", "triton.tools",
    "triton.tools.tensor_descriptor", "triton.experimental", "triton.experimental.gluon",
    "triton.runtime.errors", "triton.compiler", "triton.compiler.errors",
    "triton.runtime.autotuner",
    "triton.errors", "triton.runtime.jit",
}  # fmt: skip
#: members of those that answer a question about the device
DRIVER_ASK = {
    "triton.runtime.driver.active.utils.get_device_properties",
    "triton.runtime.driver.active.get_current_device",
    "triton.runtime.driver.active.get_current_target",
    "triton.runtime.driver.active.get_active_torch_device",
    "triton.runtime.driver.active.get_device_properties",
}
KERNEL_LANGUAGES = ("triton.language", "triton.experimental.gluon.language")
#: what kernels may refer to, or be given
IN_KERNELS = (*KERNEL_LANGUAGES, "math.")
_NOT_LANGUAGE = {
    "builtins", "core", "functools", "importlib", "inspect", "ir", "jit", "knobs", "math", "numpy",
    "np", "os", "runtime", "sys", "tl", "triton", "typing", "types", "warnings", "builder",
}  # fmt: skip
#: modules that are compute or machine access, with the advice for each
ADVICE = {
    "torch": "write that computation in a Triton kernel",
    "numpy": "use math and Python integers on the host, Triton kernels for tensors",
    "os": "a candidate has no business with the machine; configure by arguments",
    "sys": "a candidate has no business with the interpreter",
    "time": "clocks belong to the judge; remove the timing code",
}


class Refused(Exception):
    """A name that is not on the allow-list; the message says what to do instead."""


def module_allowed(name: str) -> bool:
    """Whether ``import name`` may stand in a candidate."""
    if name in MODULES or name in MEMBERS or name in PLUGINS or name in TRITON_MODULES:
        return True
    if name == "torch" or (name.startswith("torch.") and name[6:] in DEVICES):
        return True
    return _language_module(name)


def _language_module(name: str) -> bool:
    for root in KERNEL_LANGUAGES:
        if name == root:
            return True
        if name.startswith(root + "."):
            parts = name[len(root) + 1 :].split(".")
            return not any(p[:1] == "_" or p in _NOT_LANGUAGE - {"math", "core"} for p in parts)
    return False


def refusal(path: str) -> str:
    """Why `path` is refused, and what to do."""
    root = path.split(".")[0]
    advice = ADVICE.get(root, "it is not on the list of what host code may use")
    if path.startswith(("torch.Tensor.", "torch.nn", "torch.ops", "torch._C", "torch.special")):
        advice = ADVICE["torch"]
    elif re.match(r"torch\.\w+\.(\w*Stream|Event|stream|CUDAGraph|graph|MemPool)", path):
        advice = "launch on the current stream; streams, events and graphs belong to the judge"
    elif path.startswith(("torch.compile", "torch.jit", "torch._", "torch.library", "torch.utils")):
        advice = "compilers and libraries enter in the language `library`, not in this one"
    elif re.match(r"torch\.(\w+\.\w+|save|load|hub|manual_seed|set_\w+|from_\w+|backends)$", path):
        advice = "it is not on the list of what host code may use"
    elif path.startswith("triton.testing"):
        advice = "clocks belong to the judge; use triton.autotune to choose a configuration"
    return f"`{path}` is refused: {advice}"


def element(doing: str) -> str:
    """Why an element of a tensor may not go there; `doing` says where it goes."""
    return (
        f"{doing} a number read out of a tensor: give a kernel the tensor, or the number as an "
        "ordinary argument, and write the values there"
    )


def computed(doing: str) -> str:
    """Why a number that is made from elements may not go there; `doing` says where it goes."""
    return (
        f"{doing} a number that host code made from a tensor's elements (by arithmetic, a "
        "comparison or a branch): give a kernel the tensor, and compute it there"
    )


def implicit(doing: str) -> str:
    """Why an element may not be read like this; `doing` says how it is read."""
    return (
        f"{doing}, which brings its elements to the host: decide in a kernel, ask `is None`, or "
        "read one number with .item()"
    )


@cache
def resolve(path: str) -> Values:
    """What the full name `path` stands for. Raises `Refused`."""
    if module_allowed(path):
        return one(Path(path))
    parent, _, name = path.rpartition(".")
    if name.startswith("_") and name not in HARMLESS:
        raise Refused(f"`{path}` is refused: underscored names are internals")
    resolved = _member(parent, name)
    if resolved is None:
        raise Refused(refusal(path))
    return resolved


def _member(parent: str, name: str) -> Values | None:
    path = one(Path(f"{parent}.{name}"))
    if parent in MODULES:
        found = getattr(importlib.import_module(parent), name, None)
        return None if found is None or isinstance(found, types.ModuleType) else path
    if parent == "itertools.chain":
        return path if name == "from_iterable" else None
    if parent in MEMBERS:
        return path if name in MEMBERS[parent] else None
    if parent == "torch":
        return _torch_member(name)
    if parent.startswith("torch.") and parent[6:] in DEVICES:
        return path if name in DEVICE_ASK | {
            "get_device_properties", "current_stream", "device", "device_of", "default_generators",
        } else None  # fmt: skip
    if parent == "torch.Tensor":
        return None
    if _language_module(parent):
        return _language_member(parent, name)
    if parent == "triton":
        return path if name in TRITON_CALLS | TRITON_ERRORS else _version(name)
    if f"{parent}.{name}" in DRIVER_ASK:
        return path
    if parent.startswith("triton.") and name in TRITON_ERRORS:
        return one(Path(f"triton.{name}"))
    if parent in ("triton.runtime.jit", "triton.runtime.autotuner", "triton.runtime"):
        names = {"jit": "jit", "autotune": "autotune", "heuristics": "heuristics",
                 "Config": "Config"}  # fmt: skip
        return one(Path(f"triton.{name}")) if name in names else None
    if parent == "triton.tools.tensor_descriptor" and name == "TensorDescriptor":
        return path
    if parent.startswith("triton.tools.tensor_descriptor.TensorDescriptor"):
        return path if name == "from_tensor" else None
    if parent == "triton.experimental.gluon" and name == "jit":
        return one(Path("triton.jit"))
    return None


def is_function(path: str) -> bool:
    """Whether a member of the kernel language is a function, in Python or in the language."""
    parent, _, name = path.rpartition(".")
    if not _language_module(parent):
        return False
    try:
        found = getattr(importlib.import_module(parent), name, None)
    except Exception:  # a vendor's part that is not installed: nothing is known of it
        return False
    return isinstance(found, types.FunctionType) or hasattr(found, "device_caches")


def _version(name: str) -> Values | None:
    return PLAIN if name == "__version__" else None


def _torch_member(name: str) -> Values | None:
    if name in TORCH_PLAIN or TORCH_DTYPES.match(name):
        return PLAIN
    known = CREATE | VIEWS | MANY_VIEWS | ASK | CONTEXTS | RANDOM | {"Tensor", "Generator", "clone"}
    return one(Path(f"torch.{name}")) if name in known else None


def _language_member(parent: str, name: str) -> Values | None:
    """A member of the kernel language; None for a module that it happens to import."""
    path = one(Path(f"{parent}.{name}"))
    try:
        module = importlib.import_module(parent)
    except Exception:  # a vendor's part of the language that is not installed where the judge runs
        return None if name in _NOT_LANGUAGE else path
    found = getattr(module, name, None)
    if isinstance(found, types.ModuleType):
        return path if _language_module(found.__name__) else None
    if found is None:
        return None if name in _NOT_LANGUAGE else path
    if type(found).__name__ in ("dtype", "constexpr"):
        return PLAIN
    owner = getattr(found, "__module__", None) or type(found).__module__
    return path if owner.split(".")[0] == "triton" else None
