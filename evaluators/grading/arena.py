"""The memory through which tensors pass between the judge and a runner, and nothing else does.

The judge allocates it: shared host memory (a sealed memfd), or on NVIDIA device memory shared by
descriptor (`sharing`), so that tensors never visit the host. Whatever lies in it may change
under the judge's eyes: it copies bytes out first and then looks at the copy. Device layer.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import warnings
from typing import Any

import torch

from kernelmark.evaluators.grading.sharing import SharedMemory

#: every region starts at a multiple of this many bytes
ALIGNMENT = 512
#: a memfd of which neither side can change the size: else a runner could make the judge fault
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class Arena:
    """`bytes`: uint8 tensor over the shared memory, on the host or on the device.

    The judge makes one with `Arena.allocate`; a runner opens it with `Arena.adopt`, from
    `description` and the descriptor `fd`, which it gets beside the message.
    """

    def __init__(self, transport: str, nbytes: int, fd: int | None) -> None:
        self.transport = transport
        self.nbytes = nbytes
        self.fd = fd
        self._shared: SharedMemory | None = None
        self.bytes = torch.empty(0, dtype=torch.uint8)

    @classmethod
    def allocate(cls, nbytes: int, transport: str) -> Arena:
        """New memory. `transport`: ``memfd``, or ``cuda-descriptor`` (raises SharingError)."""
        if transport == "cuda-descriptor":
            shared = SharedMemory.allocate(nbytes)
            arena = cls(transport, shared.nbytes, shared.fd)
            arena._shared, arena.bytes = shared, shared.bytes
            return arena
        fd = os.memfd_create("kernelmark-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, nbytes)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        arena = cls(transport, nbytes, fd)
        arena.bytes = _mapped(fd, nbytes)
        return arena

    @classmethod
    def adopt(cls, description: dict[str, Any], fd: int) -> Arena:
        """The runner's view of the judge's memory. Closes `fd`."""
        nbytes = int(description["nbytes"])
        arena = cls(description["transport"], nbytes, None)
        if arena.transport == "cuda-descriptor":
            arena._shared = SharedMemory.adopt(fd, nbytes)
            arena.bytes = arena._shared.bytes
        else:
            arena.bytes = _mapped(fd, nbytes)
        os.close(fd)
        return arena

    @property
    def description(self) -> dict[str, Any]:
        """What `adopt` needs beside the descriptor."""
        return {"transport": self.transport, "nbytes": self.nbytes}

    def close(self) -> None:
        """Lets go of the memory; views of it die. Others that opened it keep theirs."""
        del self.bytes
        if self._shared is not None:
            self._shared.close()
        elif self.fd is not None:
            os.close(self.fd)
        self.fd = None


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
