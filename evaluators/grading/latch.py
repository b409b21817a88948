"""The second clock: the judge times a queue of calls from outside the runner.

The runner's own figures are claims. Here the judge alone holds the clock:

1. The judge asks the runner to queue N calls behind a latch: `queue` makes the stream wait for a
   word in a page of memory that both processes share, launches the calls, and has the stream write
   another word at the end. The runner answers "queued"; nothing has run.
2. The judge writes fresh inputs into the shared memory that the queue reads. The answers did not
   exist before this moment.
3. `Latch.release` lets the stream go and reads the judge's clock; `Latch.wait` spins on the other
   word and reads it again.
4. The judge checks results of the calls, secretly chosen.

The time between 3's two readings is device time of N calls back to back: the host's launches were
over before it began, so a kernel of 2 microseconds shows its 2 microseconds and the gap to the next
one, about 1.3 more. With N and with 2N calls: the difference leaves out the fixed cost, which on an
H200 is 5 to 15 microseconds, and 150 when the device first has to switch from the judge's context
to the runner's (`statistics.per_call_us`, `alternate`).

A runner that claims less than the device needed is contradicted, whatever it does to its clocks,
tracer or channel. One way is left to it: native code that writes the "done" word itself while the
work goes on. It gains no more than the time until the judge reads the results; nothing in Python or
Triton that passes the scan can write that word.

Queueing also gives the host time per call (what `DeviceLatch.queue` returns). A call that waits for
the device itself cannot be queued: the runner then never answers, the judge releases after its time
limit, and the case has no second clock of this kind (`statistics.agreement` says what follows).

Linux and CUDA (driver API `cuStreamWaitValue32`, `cuStreamWriteValue32`, CUDA 12 and newer).
"""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

#: launches that fit into a stream's queue, with a margin: past about a thousand the launch blocks,
#: and behind a closed latch would block for ever
QUEUE_LIMIT = 400

_GO, _DONE = 0, 64  # byte offsets, in different cache lines
_SIZE = 4096
_MAP_DEVICE = 2  # CU_MEMHOSTREGISTER_DEVICEMAP
_WAIT_GEQ = 0  # CU_STREAM_WAIT_VALUE_GEQ
_WRITE_DEFAULT = 0  # with a system-wide memory barrier before the write


class LatchError(RuntimeError):
    """The latch cannot be used here, or was not reached in time."""


class Latch:
    """The judge's side: owns the page. `fd` goes to the runner (inherited, or sent by SCM_RIGHTS).

    Tickets number the queues of one latch: 1, 2, 3, ...; each is released once.
    """

    def __init__(self) -> None:
        self.fd = os.memfd_create("kernelmark-latch")
        os.ftruncate(self.fd, _SIZE)
        self._page = mmap.mmap(self.fd, _SIZE)
        self._go = ctypes.c_uint32.from_buffer(self._page, _GO)
        self._done = ctypes.c_uint32.from_buffer(self._page, _DONE)
        self._ticket = 0

    def next_ticket(self) -> int:
        """The number of the queue that is to be made now."""
        self._ticket += 1
        return self._ticket

    def release(self, ticket: int) -> int:
        """Lets the queue run. Returns the judge's clock just before, `perf_counter_ns`."""
        before = time.perf_counter_ns()
        self._go.value = ticket
        return before

    def wait(self, ticket: int, timeout_s: float) -> int:
        """Spins until the queue is done; the judge's clock then. Past the limit: LatchError."""
        limit = time.perf_counter_ns() + int(timeout_s * 1e9)
        while self._done.value != ticket:
            if time.perf_counter_ns() > limit:
                raise LatchError(f"queue {ticket} not done within {timeout_s} s")
        return time.perf_counter_ns()

    def close(self) -> None:
        """Gives the page back."""
        del self._go, self._done
        self._page.close()
        os.close(self.fd)


class DeviceLatch:
    """The runner's side: makes a stream wait for the judge and tell it when it is done."""

    def __init__(self, fd: int) -> None:
        """Maps the page `fd` into this process and its CUDA context (which must exist)."""
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._page = mmap.mmap(fd, _SIZE)
        self._anchor = ctypes.c_char.from_buffer(self._page)
        address = ctypes.c_void_p(ctypes.addressof(self._anchor))
        self._check("cuMemHostRegister_v2", address, ctypes.c_size_t(_SIZE), _MAP_DEVICE)
        device = ctypes.c_uint64()
        self._check("cuMemHostGetDevicePointer_v2", ctypes.byref(device), address, 0)
        self._address = address
        self._base = device.value

    def queue(self, calls: Sequence[Callable[[], object]], ticket: int, stream: int) -> float:
        """Queues `calls` on the current stream (its handle: `stream`) behind the latch.

        Returns the host's time per call, microseconds. Runs nothing before the judge releases;
        the launches of all calls together must stay under `QUEUE_LIMIT`.
        """
        handle = ctypes.c_void_p(stream)
        self._word("cuStreamWaitValue32_v2", handle, _GO, ticket, _WAIT_GEQ)
        begin = time.perf_counter_ns()
        for call in calls:
            call()
        elapsed = time.perf_counter_ns() - begin
        self._word("cuStreamWriteValue32_v2", handle, _DONE, ticket, _WRITE_DEFAULT)
        return elapsed / 1e3 / max(1, len(calls))

    def close(self) -> None:
        """Unmaps the page. The device must be idle."""
        self._check("cuMemHostUnregister", self._address)
        del self._anchor
        self._page.close()

    def _word(self, name: str, stream: Any, offset: int, value: int, flags: int) -> None:
        address = ctypes.c_uint64(self._base + offset)
        self._check(name, stream, address, ctypes.c_uint32(value), ctypes.c_uint(flags))

    def _check(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver, name)(*arguments)
        if code:
            raise LatchError(f"{name} failed with CUDA error {code}")
