"""Device memory that two processes share by a file descriptor (CUDA driver API, VMM, POSIX handle).

CUDA's older IPC handles (`cudaIpcOpenMemHandle`, which torch uses) cannot be opened by a process
of another user: an H200 answers "mapping of buffer object failed" to `nobody`. A descriptor sent
over a socket is a capability: whoever holds it may map the memory, whatever its user and
namespaces. Device layer.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

import torch

_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED: the one kind there is
_POSIX = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


class SharingError(RuntimeError):
    """The driver refused."""


class _Location(ctypes.Structure):  # CUmemLocation
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):  # CUmemAllocationProp
    _fields_ = (
        ("type", ctypes.c_int),
        ("handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):  # CUmemAccessDesc
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


class SharedMemory:
    """`bytes`: uint8 tensor of at least the size asked for, on the current CUDA device.

    Made by `allocate` (its `fd` is to be sent to another process, over a Unix socket, together
    with `nbytes`) or by `adopt`. The tensor and all views of it die with `close`.
    """

    def __init__(self, handle: int, nbytes: int) -> None:
        """Maps the allocation `handle` of `nbytes` into this process."""
        self.nbytes = nbytes
        self.fd: int | None = None
        self._handle = handle
        address = ctypes.c_uint64()
        _driver(
            "cuMemAddressReserve", ctypes.byref(address), _size(nbytes), _size(0), _u64(0), _u64(0)
        )
        self._address = address.value
        _driver("cuMemMap", address, _size(nbytes), _size(0), _u64(handle), _u64(0))
        access = _Access(_Location(_DEVICE, _current_device()), _READ_WRITE)
        _driver("cuMemSetAccess", address, _size(nbytes), ctypes.byref(access), _size(1))
        self.bytes = torch.as_tensor(_Pointer(self._address, nbytes), device="cuda")

    @classmethod
    def allocate(cls, nbytes: int) -> SharedMemory:
        """New memory; `nbytes` is rounded up to the driver's granularity (2 MiB)."""
        location = _Location(_DEVICE, _current_device())
        properties = _Properties(_PINNED, _POSIX, location)
        grain, handle, fd = ctypes.c_size_t(), ctypes.c_uint64(), ctypes.c_int()
        reference = ctypes.byref(properties)
        _driver("cuMemGetAllocationGranularity", ctypes.byref(grain), reference, 0)
        rounded = -(-max(1, nbytes) // grain.value) * grain.value
        _driver("cuMemCreate", ctypes.byref(handle), _size(rounded), reference, _u64(0))
        _driver("cuMemExportToShareableHandle", ctypes.byref(fd), handle, _POSIX, _u64(0))
        memory = cls(handle.value, rounded)
        memory.fd = fd.value
        return memory

    @classmethod
    def adopt(cls, fd: int, nbytes: int) -> SharedMemory:
        """The memory behind `fd`, which stays the caller's to close. `nbytes` as its owner says."""
        torch.cuda.synchronize()  # a fresh process has no context yet, and an import needs one
        handle = ctypes.c_uint64()
        descriptor = ctypes.c_void_p(fd)
        _driver("cuMemImportFromShareableHandle", ctypes.byref(handle), descriptor, _POSIX)
        return cls(handle.value, nbytes)

    def close(self) -> None:
        """Unmaps the memory; it is freed once every process has let go of it."""
        torch.cuda.synchronize()
        del self.bytes
        _driver("cuMemUnmap", _u64(self._address), _size(self.nbytes))
        _driver("cuMemAddressFree", _u64(self._address), _size(self.nbytes))
        _driver("cuMemRelease", _u64(self._handle))
        if self.fd is not None:
            os.close(self.fd)
            self.fd = None


class _Pointer:
    """What torch needs to see device memory as a tensor without copying it."""

    def __init__(self, address: int, nbytes: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (address, False),
            "version": 3,
        }


_size, _u64 = ctypes.c_size_t, ctypes.c_uint64


def _current_device() -> int:
    torch.cuda.synchronize()  # makes sure that this thread has the device's context
    device = ctypes.c_int()
    _driver("cuCtxGetDevice", ctypes.byref(device))
    return device.value


def _driver(name: str, *arguments: Any) -> None:
    code = getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)
    if code:
        raise SharingError(f"{name} failed with CUDA error {code}")
