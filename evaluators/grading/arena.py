"""The memory through which tensors pass between the judge and a runner, and nothing else does.

The judge allocates it: shared host memory (a sealed memfd), or on CUDA one allocation of the device
that runners open by CUDA IPC, so that tensors never visit the host. Whatever lies in it may change
under the judge's eyes: it copies bytes out first and then looks at the copy. Device layer.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import mmap
import os
import warnings
from typing import Any

import torch

from kernelmark.evaluators.grading.channel import Garbled

#: every region starts at a multiple of this many bytes
ALIGNMENT = 512
#: a memfd of which neither side can change the size: else a runner could make the judge fault
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Arena:
    """`bytes`: uint8 tensor over the shared memory, on the host or on the device.

    `description` and `fd` are what a runner needs to open it (`open_arena`).
    """

    def __init__(self, nbytes: int, device: torch.device, transport: str) -> None:
        self.nbytes = nbytes
        self.transport = transport
        self.fd: int | None = None
        self.description: dict[str, Any] = {"transport": transport, "nbytes": nbytes}
        if transport == "memfd":
            self.fd = os.memfd_create("kernelmark-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(self.fd, nbytes)
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, _SEALS)
            self.bytes = _mapped(self.fd, nbytes)
        elif transport == "cuda-ipc":
            self.bytes = torch.empty(nbytes, dtype=torch.uint8, device=device)
            self.description["handle"] = _exported(self.bytes)
        else:
            raise ValueError(f"no transport {transport!r}")

    def close(self) -> None:
        """Lets go of the memory. Runners that opened it keep theirs until they end."""
        del self.bytes
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


def open_arena(description: dict[str, Any], fd: int | None) -> torch.Tensor:
    """The runner's view of an arena. `fd` came with the message; it is closed here."""
    nbytes = int(description["nbytes"])
    if description["transport"] == "memfd":
        if fd is None:
            raise Garbled("no descriptor came with the arena")
        with contextlib.closing(os.fdopen(fd, "r+b", buffering=0)) as file:
            return _mapped(file.fileno(), nbytes)
    return _imported(description["handle"], nbytes)


def aligned(offset: int) -> int:
    """The next multiple of `ALIGNMENT`."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def storage_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A flat uint8 tensor over the whole storage of `tensor`; shares memory, not its version."""
    flat = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return flat.set_(tensor.untyped_storage())


def _mapped(fd: int, nbytes: int) -> torch.Tensor:
    if nbytes == 0:
        return torch.empty(0, dtype=torch.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the buffer is writable; older torch warns nonetheless
        return torch.frombuffer(mmap.mmap(fd, nbytes), dtype=torch.uint8)


def _exported(tensor: torch.Tensor) -> list[Any]:
    """CUDA IPC handle of the allocation, as torch gives it, with bytes as base64 text."""
    storage: Any = tensor.untyped_storage()
    return [
        {"b": base64.b64encode(part).decode()} if isinstance(part, bytes) else part
        for part in storage._share_cuda_()
    ]


def _imported(handle: list[Any], nbytes: int) -> torch.Tensor:
    parts = [base64.b64decode(p["b"]) if isinstance(p, dict) else p for p in handle]
    parts[0] = torch.cuda.current_device()  # the runner may see one device only
    cuda: Any = torch.UntypedStorage
    storage = cuda._new_shared_cuda(*parts)
    return torch.empty(0, dtype=torch.uint8, device="cuda").set_(storage)[:nbytes]
