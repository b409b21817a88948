"""Answers a candidate's questions about a device that is not there. Only for child processes.

Host code asks torch how many multiprocessors there are, or names ``cuda`` where it makes a buffer.
Without an accelerator torch raises; these answers keep the host code running on CPU tensors. They
say nothing about speed or results.
"""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import Any, cast

import torch
from torch.overrides import TorchFunctionMode


def pretend_queries(
    name: str,
    capability: tuple[int, int],
    properties: dict[str, int],
    answers: dict[str, Any] | None = None,
) -> None:
    """`torch.cuda`'s questions about the current device are answered with these properties.

    `answers`: what a device that is really there tells of itself (`here.Here`).
    """
    device = SimpleNamespace(
        name=name,
        major=capability[0],
        minor=capability[1],
        multi_processor_count=properties["multiprocessor_count"],
        warp_size=properties["warpSize"],
        total_memory=16 << 30,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=properties["max_shared_mem"],
        shared_memory_per_multiprocessor=properties["max_shared_mem"],
        regs_per_multiprocessor=properties["max_num_regs"],
        max_threads_per_multi_processor=2048,
        max_threads_per_block=1024,
        L2_cache_size=32 << 20,
        gcnArchName=name,
    )
    device.__dict__.update(answers or {})
    stream = SimpleNamespace(cuda_stream=0, device=torch.device("cpu"), device_index=0)
    replies: dict[str, Any] = {
        "current_device": lambda: 0,
        "device_count": lambda: 1,
        "get_device_capability": lambda device=None: capability,
        "get_device_properties": lambda device_=None: device,
        "get_device_name": lambda device=None: name,
        "current_stream": lambda device=None: stream,
        "is_bf16_supported": lambda including_emulation=True: True,
        "synchronize": lambda device=None: None,
        "set_device": lambda device: None,
        "device": lambda device=None: contextlib.nullcontext(),
    }
    for question, reply in replies.items():
        setattr(torch.cuda, question, reply)


def pretend_device(
    name: str,
    capability: tuple[int, int],
    properties: dict[str, int],
    answers: dict[str, Any] | None = None,
) -> Pretence:
    """The queries, and: CPU tensors claim to be CUDA tensors, and ``cuda`` means the CPU.

    `torch.broadcast_shapes` would import SymPy, which takes a second and more."""
    pretend_queries(name, capability, properties, answers)
    torch.cuda.is_available = lambda: True
    torch.Tensor.is_cuda = True
    torch.Tensor.cuda = lambda self, *args, **kwargs: self  # type: ignore[method-assign]
    torch.Tensor.get_device = lambda self: 0  # type: ignore[method-assign]
    torch.broadcast_shapes = _broadcast_shapes
    pretence = Pretence()
    pretence.__enter__()  # type: ignore[no-untyped-call]
    return pretence


class Pretence(TorchFunctionMode):
    """Replaces the device ``cuda`` by ``cpu``, and copies nothing large: contents do not matter.

    `reads` counts values that host code took out of tensors: what it does then depends on contents
    that are not the real ones.
    """

    reads = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads += func in _READS
        large = bool(args) and isinstance(args[0], torch.Tensor) and args[0].numel() > _LARGE
        if func in _IN_PLACE and large:
            return args[0]
        if func in _COPIES and large and not kwargs:
            if func is not torch.Tensor.contiguous:
                return torch.empty_like(args[0])
            if not args[0].is_contiguous():
                return torch.empty_like(args[0], memory_format=torch.contiguous_format)
        if func in _CASTS and large:
            return _cast(func, args, kwargs or {})
        swapped = {key: _swap(value) for key, value in (kwargs or {}).items()}
        return func(*(_swap(value) for value in args), **swapped)


_LARGE = 1 << 20  #: elements
_COPIES = frozenset(
    (torch.Tensor.contiguous, torch.Tensor.clone, torch.clone, torch.zeros_like, torch.ones_like)
)
_IN_PLACE = frozenset((torch.Tensor.copy_, torch.Tensor.zero_, torch.Tensor.fill_))


_CASTS: dict[Any, torch.dtype | None] = {
    torch.Tensor.to: None,
    torch.Tensor.float: torch.float32,
    torch.Tensor.double: torch.float64,
    torch.Tensor.half: torch.float16,
    torch.Tensor.bfloat16: torch.bfloat16,
}
_READS = frozenset(
    getattr(torch.Tensor, name)
    for name in (
        *("item", "tolist", "numpy", "is_nonzero", "equal", "allclose"),
        *("__bool__", "__int__", "__float__", "__index__", "__complex__", "__contains__"),
    )
) | {torch.equal, torch.allclose, torch.is_nonzero}


def _broadcast_shapes(*shapes: Any) -> torch.Size:
    tensors = [torch.empty(()).expand(shape) for shape in shapes]
    if not tensors:
        return torch.Size([])
    return cast(torch.Size, torch.broadcast_tensors(*tensors)[0].shape)  # type: ignore[no-untyped-call]


def _cast(func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """An empty tensor where a large one would be converted; itself where nothing changes."""
    tensor, *rest = args
    given = [v for v in (*rest, *kwargs.values()) if isinstance(v, torch.dtype | torch.Tensor)]
    dtype = _CASTS[func] or next(
        (v.dtype if isinstance(v, torch.Tensor) else v for v in given), tensor.dtype
    )
    same = dtype == tensor.dtype and not kwargs.get("copy")
    return tensor if same else torch.empty_like(tensor, dtype=dtype)


def _swap(value: Any) -> Any:
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return "cpu"
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("cpu")
    return value
