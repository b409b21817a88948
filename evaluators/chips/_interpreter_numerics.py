"""Makes Triton's interpreter compute what a GPU computes. Imports triton: only for child processes.

As shipped (3.4 to 3.7) the interpreter stores bfloat16 and 8-bit floats as integers and does
arithmetic on those integers; truncates float32 to bfloat16; propagates NaN through `maximum`; has
no libdevice; and reduces with a custom function one element at a time. A right kernel would be
called wrong, or time out. `install` puts right what it can; `interpreter.CHIP.notes` lists what
it cannot.
"""

from __future__ import annotations

import ast
import inspect
import sys
import warnings
from collections.abc import Callable
from dataclasses import replace
from operator import index
from types import FunctionType
from typing import Any

import numpy as np
import torch
import triton.language as tl
from numpy.typing import NDArray
from triton._C.libtriton import ir
from triton.runtime import interpreter
from triton.runtime.errors import InterpreterError
from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle

from kernelmark.evaluators.chips import _libdevice

Array = NDArray[Any]

#: Triton's name of a float that numpy lacks -> torch's dtype, numpy's storage
NARROW: dict[str, tuple[torch.dtype, type[np.generic]]] = {
    "bf16": (torch.bfloat16, np.uint16),
    "fp8e5": (torch.float8_e5m2, np.uint8),
    "fp8e4nv": (torch.float8_e4m3fn, np.uint8),
    "fp8e4b8": (torch.float8_e4m3fnuz, np.uint8),
    "fp8e5b16": (torch.float8_e5m2fnuz, np.uint8),
}
_TABLES = {
    name: torch.arange(256, dtype=torch.uint8).view(dtype).to(torch.float32).numpy()
    for name, (dtype, storage) in NARROW.items()
    if storage is np.uint8
}


def install() -> None:
    """Patches the interpreter of this process, for good."""
    np.seterr(all="ignore")  # a GPU does not warn of overflow
    warnings.filterwarnings("ignore", category=RuntimeWarning)
    _patch_language_once()
    _patch_boolean_operators()
    _patch_builder()
    _patch_reductions()
    _patch_libdevice()


def decode(data: Array, dtype: str) -> Array:
    """float32 values of narrow floats in their storage; anything else as it is."""
    if dtype not in NARROW or data.dtype != NARROW[dtype][1]:
        return data
    if dtype == "bf16":
        wide: Array = (data.astype(np.uint32) << 16).view(np.float32)
        return wide
    return _TABLES[dtype][data]


def encode(values: Array, dtype: str, toward_zero: bool = False) -> Array:
    """`values` (floats) in the storage of Triton type `dtype`, rounded to nearest even.

    8-bit floats saturate, as ``cvt.rn.satfinite`` does (PTX ISA 8.x, ``cvt``).
    """
    if dtype == "bf16":
        out = _round_to_bfloat16(values.astype(np.float32))
    elif dtype in NARROW:
        kind = NARROW[dtype][0]
        top = torch.finfo(kind).max
        clipped = np.ascontiguousarray(np.clip(values, -top, top).astype(np.float32))
        out = torch.from_numpy(clipped).to(kind).view(torch.uint8).numpy()
    else:
        out = values.astype(_FLOATS[dtype])
    return _step_toward_zero(out, values, dtype) if toward_zero else out


_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def _round_to_bfloat16(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return np.where(np.isnan(values), np.uint16(0x7FFF), rounded)


def _step_toward_zero(out: Array, values: Array, dtype: str) -> Array:
    """Undoes rounding away from zero: one less in sign-magnitude is one ulp nearer to zero."""
    away = np.abs(decode(out, dtype).astype(np.float64)) > np.abs(values.astype(np.float64))
    bits = out.view(f"uint{8 * out.itemsize}")
    nearer: Array = (bits - away.astype(bits.dtype)).view(out.dtype)
    return nearer


def _name(handle: TensorHandle) -> str:
    return str(handle.dtype.scalar.name)


def _values(handle: TensorHandle) -> Array:
    return decode(handle.data, _name(handle))


def _handle(values: Array, dtype: Any) -> TensorHandle:
    """A handle of Triton type `dtype` for computed values; comparisons stay bool."""
    if values.dtype == np.bool_:
        return TensorHandle(values, tl.int1)
    return TensorHandle(encode(values, dtype.scalar.name), dtype.scalar)


# Language: patched once, not at every call of every device function


class _KeptScope:
    """What `_patch_lang` returns from now on: nothing to restore."""

    def restore(self) -> None:
        pass


def _patch_language_once() -> None:
    """Patches `triton.language` for the whole process.

    The interpreter patches and restores some 300 attributes at every launch, and again at each
    call of a device function: about a millisecond each.
    """

    def probe() -> None:
        pass

    names = {"tl": tl, "core": tl.core}
    interpreter._patch_lang(FunctionType(probe.__code__, names))
    kept = _KeptScope()
    interpreter._patch_lang = lambda fn: kept
    tl.tensor.__bool__ = _truth
    tl.tensor.__index__ = lambda self: int(self.handle.data.item())
    interpreter._implicit_cvt = _converting_arguments(interpreter._implicit_cvt)
    executor = interpreter.GridExecutor
    executor._init_args_hst = _annotated_arguments(executor._init_args_hst)


def _annotated_arguments(plain: Callable[..., Any]) -> Callable[..., Any]:
    """Floats of a parameter annotated float64 (``alpha: tl.float64``) stay float64, as compiled."""

    def init(self: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        hints = inspect.get_annotations(self.fn)
        doubles = {n for n, hint in hints.items() if "float64" in str(hint) or "fp64" in str(hint)}
        if doubles:
            names = inspect.getfullargspec(self.fn).args
            args = tuple(_double(a, n in doubles) for n, a in zip(names, args, strict=False))
            kwargs = {n: _double(a, n in doubles) for n, a in kwargs.items()}
        return plain(self, args, kwargs)

    return init


def _double(value: Any, wanted: bool) -> Any:
    return np.float64(value) if wanted and isinstance(value, float | int) else value


class NoTruth(TypeError):
    """A block was asked whether it is true: an error of the compiler too."""


def _truth(tensor: Any) -> bool:
    # Triton's own code asks whether an argument was given (`other.handle if other else None`).
    if sys._getframe(1).f_globals.get("__name__", "").startswith("triton.language."):
        return True
    data = tensor.handle.data
    if data.size != 1:
        raise NoTruth("a block has no single truth value; use tl.where, or & and |")
    return bool(data.item())


def _converting_arguments(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Scalars typed as the compiler types them: bool is int1, float is float32 (not Python's)."""

    def convert(arg: Any) -> Any:
        if isinstance(arg, bool):
            return tl.tensor(TensorHandle(np.array([arg], np.bool_), tl.int1), tl.int1)
        if isinstance(arg, np.float64):
            return tl.tensor(TensorHandle(np.array([arg]), tl.float64), tl.float64)
        if isinstance(arg, float):
            return tl.tensor(TensorHandle(np.array([arg], np.float32), tl.float32), tl.float32)
        return plain(arg)

    return convert


# Boolean operators: Python's ask a block for its truth, Triton's work on blocks


class _Rewriter(interpreter.ASTTransformer):  # type: ignore[misc]
    """Turns ``a and b`` into ``_both(lambda: a, lambda: b)``, and so on."""

    def visit_Assign(self, node: ast.Assign) -> ast.AST:
        node.value = self.visit(node.value)
        rewritten: ast.AST = super().visit_Assign(node)
        return rewritten

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        name = "_both" if isinstance(node.op, ast.And) else "_either"
        none = ast.arguments([], [], None, [], [], None, [])
        return _call_of(name, [ast.Lambda(none, value) for value in node.values])

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        return _call_of("_negation", [node.operand]) if isinstance(node.op, ast.Not) else node


def _call_of(name: str, arguments: list[Any]) -> ast.Call:
    return ast.Call(ast.Name(name, ast.Load()), arguments, [])


def _is_block(value: Any) -> bool:
    return isinstance(value, tl.tensor) and value.handle.data.size != 1


def _both(*operands: Callable[[], Any]) -> Any:
    value = operands[0]()
    for operand in operands[1:]:
        if _is_block(value):
            value = interpreter.interpreter_semantic.logical_and(value, _tensor(operand()))
        elif not value:
            return value
        else:
            value = operand()
    return value


def _either(*operands: Callable[[], Any]) -> Any:
    value = operands[0]()
    for operand in operands[1:]:
        if _is_block(value):
            value = interpreter.interpreter_semantic.logical_or(value, _tensor(operand()))
        elif value:
            return value
        else:
            value = operand()
    return value


def _negation(value: Any) -> Any:
    return interpreter.interpreter_semantic.not_(value) if _is_block(value) else not value


def _tensor(value: Any) -> Any:
    return interpreter.interpreter_semantic.to_tensor(value)


def _patch_boolean_operators() -> None:
    """The rewriter gives each kernel the names of the interpreter's module."""
    for function in (_both, _either, _negation):
        setattr(interpreter, function.__name__, function)
    interpreter.FunctionRewriter.ast_transformer = _Rewriter()


# Arithmetic


def _patch_builder() -> None:
    builder = InterpreterBuilder
    for name in ("binary_op", "unary_op", "ternary_op"):
        setattr(builder, name, _computing(getattr(builder, name)))
    builder.cast_impl = _casting(builder.cast_impl)
    builder.create_fp_to_fp = _converting(builder.create_fp_to_fp)
    builder.create_atomic_rmw = _adding(builder.create_atomic_rmw)
    builder.create_dot = _dot
    builder.create_fma = _fma
    builder.create_umulhi = _umulhi
    builder.create_erf = _erf
    builder.create_clampf = _clamp
    builder.create_extern_elementwise = _extern
    builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    # The back ends allow these too; every precision is the full one here.
    interpreter.interpreter_builder.options = replace(
        interpreter.interpreter_builder.options,
        allowed_dot_input_precisions=("tf32", "tf32x3", "ieee", "bf16x3", "bf16x6"),
    )
    builder.get_bf16 = lambda self, value: _handle(np.array([value], np.float32), tl.bfloat16)


def _computing(plain: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """`binary_op` and its like, computing narrow floats in float32 and rounding once."""

    def compute(self: Any, *operands: Any) -> TensorHandle:
        *handles, op = operands
        if op is np.where or not any(_name(h) in NARROW for h in handles):
            return plain(self, *operands)
        return _handle(op(*map(_values, handles)), handles[-1].dtype)

    return compute


def _casting(plain: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    def cast(self: Any, source: TensorHandle, dst_type: Any) -> TensorHandle:
        dst = dst_type.scalar
        if dst.name in NARROW:
            return TensorHandle(encode(_values(source), dst.name), dst)
        if _name(source) in NARROW:
            return TensorHandle(_values(source).astype(interpreter._get_np_dtype(dst)), dst)
        return plain(self, source, dst_type)

    return cast


def _converting(plain: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    def convert(self: Any, source: TensorHandle, dst_type: Any, mode: Any) -> TensorHandle:
        dst = dst_type.scalar
        if "fp8e4b15" in (dst.name, _name(source)):  # a format that torch lacks
            return plain(self, source, dst_type, mode)
        toward_zero = mode == ir.ROUNDING_MODE.RTZ
        return TensorHandle(encode(_values(source), dst.name, toward_zero), dst)

    return convert


def _adding(plain: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """Atomics; of the narrow floats only bfloat16 has one, addition."""

    def update(
        self: Any, op: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any
    ) -> TensorHandle:
        if _name(val) not in NARROW or op != ir.ATOMIC_OP.FADD:
            return plain(self, op, ptr, val, mask, sem, scope)
        old = np.zeros_like(val.data)
        for i in np.ndindex(val.data.shape):
            if np.broadcast_to(mask.data, val.data.shape)[i]:
                where, one = ptr.data[i].reshape(1), np.ones(1, bool)
                before = interpreter._interpreter.load(
                    where, one, np.zeros(1, old.dtype), old.dtype
                )
                total = decode(before, _name(val)) + decode(val.data[i].reshape(1), _name(val))
                interpreter._interpreter.store(where, encode(total, _name(val)), one)
                old[i] = before[0]
        return TensorHandle(old, val.dtype.scalar)

    return update


def _dot(
    self: Any, a: TensorHandle, b: TensorHandle, d: TensorHandle, precision: Any, imprecise: Any
) -> TensorHandle:
    """``a @ b + d``: integers exactly; floats narrower than float32 accumulate in float32."""
    left, right = _values(a), _values(b)
    if left.dtype.kind in "iu":
        product = np.matmul(left.astype(np.float64), right.astype(np.float64))  # exact below 2^53
        return TensorHandle(product.astype(d.data.dtype) + d.data, d.dtype.scalar)
    if _name(a) == "fp8e4b15":
        raise NotImplementedError("tl.dot of fp8e4b15 is not supported in interpreter mode")
    wide = np.float64 if d.data.dtype == np.float64 else np.float32
    total = np.matmul(left.astype(wide), right.astype(wide)) + _values(d)
    return TensorHandle(encode(total, d.dtype.scalar.name), d.dtype.scalar)


def _fma(self: Any, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
    if z.data.dtype.kind in "iu" and _name(z) not in NARROW:
        return TensorHandle(x.data * y.data + z.data, z.dtype.scalar)
    exact = [_values(h).astype(np.float64) for h in (x, y, z)]
    return _handle(exact[0] * exact[1] + exact[2], z.dtype)


def _umulhi(self: Any, x: TensorHandle, y: TensorHandle) -> TensorHandle:
    """The upper half of the product of the operands as unsigned integers."""
    unsigned = np.dtype(f"u{x.data.itemsize}")
    high = _libdevice.symbol("__nv_umulhi", [x.data.view(unsigned), y.data.view(unsigned)])
    return TensorHandle(high.view(x.data.dtype), x.dtype.scalar)


def _erf(self: Any, arg: TensorHandle) -> TensorHandle:
    return TensorHandle(_libdevice.call("erf", arg.data).astype(arg.data.dtype), arg.dtype.scalar)


def _clamp(self: Any, x: Any, low: Any, high: Any, propagate: Any) -> TensorHandle:
    if propagate == ir.PROPAGATE_NAN.ALL:
        return self.ternary_op(x, low, high, np.clip)
    return self.ternary_op(x, low, high, lambda v, lo, hi: np.fmin(np.fmax(v, lo), hi))


# Reductions and scans with a custom function: whole arrays at a time, in order


def _patch_reductions() -> None:
    ReduceOps.generic_reduce = _or_plain(_tree_reduce, ReduceOps.generic_reduce)
    ScanOps.generic_scan = _or_plain(_doubling_scan, ScanOps.generic_scan)
    ReduceOps.sum = _summing(ReduceOps.sum, _tree_reduce)
    ScanOps.cumsum = _summing(ScanOps.cumsum, _doubling_scan)


def _or_plain(fast: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    """`plain`, element by element, only where the function branches on a value."""

    def run(self: Any, operands: tuple[Any, ...]) -> Any:
        try:
            return fast(self, operands)
        except (NoTruth, InterpreterError) as error:
            cause: BaseException | None = error
            while isinstance(cause, InterpreterError):  # wrapped once by each device function
                cause = cause.__cause__
            if not isinstance(cause, NoTruth):
                raise
        return plain(self, operands)

    return run


def _summing(plain: Callable[..., Any], generic: Callable[..., Any]) -> Callable[..., Any]:
    """Sums that numpy would take over the integers that narrow floats are stored as."""

    def run(self: Any, operand: Any) -> Any:
        if _name(operand.handle) not in NARROW:
            return plain(self, operand)
        result = generic(self, (operand,))
        return result if isinstance(self, ScanOps) else result[0]

    return run


def _combine(self: Any, operands: tuple[Any, ...], first: Any, second: Any) -> list[Array]:
    """The combining function over two lists of arrays; each result in its operand's storage."""

    def tensors(arrays: list[Array]) -> list[Any]:
        return [self.to_tensor(a, t.dtype) for a, t in zip(arrays, operands, strict=True)]

    shape = first[0].shape
    result = self.combine_fn.rewrite()(*tensors(first), *tensors(second))
    result = result if isinstance(result, tuple) else (result,)
    arrays = []
    for value, operand in zip(result, operands, strict=True):
        tensor = _tensor(value)
        if tensor.dtype.scalar != operand.dtype.scalar:
            tensor = interpreter.interpreter_semantic.cast(tensor, operand.dtype.scalar)
        arrays.append(np.broadcast_to(tensor.handle.data, shape))
    return arrays


def _tree_reduce(self: Any, operands: tuple[Any, ...]) -> list[Any]:
    """Combines neighbours pairwise: log2(n) calls, and the order of operands kept.

    Every dimension of a Triton block is a power of two.
    """
    whole, rank = self.axis is None, operands[0].handle.data.ndim
    arrays = [t.handle.data.reshape(-1) if whole else t.handle.data for t in operands]
    axis = 0 if whole else index(self.axis) % rank  # a tensor at times
    every_other = (slice(None),) * axis + (slice(0, None, 2),)
    its_neighbour = (slice(None),) * axis + (slice(1, None, 2),)
    while arrays[0].shape[axis] > 1:
        left, right = [a[every_other] for a in arrays], [a[its_neighbour] for a in arrays]
        arrays = _combine(self, operands, left, right)
    if self.keep_dims:
        arrays = [a.reshape((1,) * rank) if whole else a for a in arrays]
    else:
        arrays = [a.squeeze(axis) for a in arrays]
    return [
        self.to_tensor(a if a.shape else a.reshape(1)[0], t.dtype)
        for a, t in zip(arrays, operands, strict=True)
    ]


def _doubling_scan(self: Any, operands: tuple[Any, ...]) -> list[Any]:
    """Inclusive scan by doubling (Hillis and Steele 1986): log2(n) calls, operands in order."""
    arrays = [t.handle.data for t in operands]
    axis = index(self.axis) % arrays[0].ndim
    n, step = arrays[0].shape[axis], 1
    position = np.arange(n).reshape([n if d == axis else 1 for d in range(arrays[0].ndim)])
    while step < n:
        earlier = [np.roll(a, step, axis) for a in arrays]
        combined = _combine(self, operands, earlier, arrays)
        arrays = [
            np.where(position >= step, new, old) for new, old in zip(combined, arrays, strict=True)
        ]
        step *= 2
    return [self.to_tensor(a, t.dtype) for a, t in zip(arrays, operands, strict=True)]


# libdevice


def _extern(
    self: Any, lib: str, path: str, symbol: str, args: list[TensorHandle], ret: Any, pure: bool
) -> TensorHandle:
    dtype = interpreter._get_np_dtype(ret.scalar)
    result = np.asarray(_libdevice.symbol(symbol, [a.data for a in args]))
    return TensorHandle(result.astype(dtype), ret.scalar)


def _patch_libdevice() -> None:
    """Gives `libdevice` functions a body, in every module that candidates import them from.

    ``triton.language.extra.libdevice`` holds empty functions that the compiler swaps for those of
    the target; under the interpreter they would return None without a word.
    """
    from triton.language.extra import cuda, libdevice
    from triton.language.extra.cuda import libdevice as cuda_libdevice

    targets = [libdevice, cuda_libdevice, cuda.libdevice]
    try:
        from triton.language.extra.hip import libdevice as hip_libdevice

        targets.append(hip_libdevice)
    except ImportError:  # a Triton built without AMD's back end
        pass
    for name, function in inspect.getmembers(cuda_libdevice, inspect.isfunction):
        if tl.core.is_builtin(function):
            bound = _bound(function)
            for module in targets:
                if hasattr(module, name):
                    setattr(module, name, bound)


def _bound(function: Callable[..., Any]) -> Callable[..., Any]:
    semantic = interpreter.interpreter_semantic

    def call(*args: Any, _semantic: Any = None, **kwargs: Any) -> Any:
        return function(*args, _semantic=semantic, **kwargs)

    call.__triton_builtin__ = True  # type: ignore[attr-defined]
    return call
