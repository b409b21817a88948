"""The second clock: the judge times a queue of calls from outside the runner.

The runner's own figures are claims. Here the judge alone holds the clock:

1. The judge asks the runner to queue N calls behind a latch: `queue` makes the stream wait for a
   word in a page of memory that both processes share, launches the calls, and has the stream write
   another word at the end. The runner answers "queued"; nothing has run.
2. The judge writes fresh inputs into the shared memory that the queue reads. The answers did not
   exist before this moment.
3. `Latch.release` lets the stream go. It copies the inputs, writes "begun", runs the calls, writes
   "done"; `Latch.span_us` spins on both words and reads the judge's clock at each.
4. The judge checks results of the calls, secretly chosen.

The time between the two words is device time of N calls back to back: the host's launches were over
before it began, so a kernel of 2 microseconds shows its 2 microseconds and the gap to the next one,
about 1.3 more; the two words add about 2 microseconds, once. It begins after the copies, not at the
release: between these the device switches from the judge's context to the runner's, 5 to 150
microseconds that differ from time to time. (A first version took the difference of queues of N and
2N calls from the release on; on an H200 that difference was short by 20 microseconds in the mean
and scattered by as much, which is 5% of eight calls of 50 microseconds.)

A runner that claims less than the device needed is contradicted, whatever it does to its clocks,
tracer or channel. One way is left to it: code that writes the words itself, "begun" late or "done"
early. Nothing in Python or Triton that passes the scan can write them, or reach what does.

A call that waits for
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

_GO, _DONE, _BEGUN = 0, 64, 128  # byte offsets, in different cache lines
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
        self._begun = ctypes.c_uint32.from_buffer(self._page, _BEGUN)
        self._done = ctypes.c_uint32.from_buffer(self._page, _DONE)
        self._ticket = 0

    def next_ticket(self) -> int:
        """The number of the queue that is to be made now."""
        self._ticket += 1
        return self._ticket

    def release(self, ticket: int) -> None:
        """Lets the queue run."""
        self._go.value = ticket

    def span_us(self, ticket: int, timeout_s: float) -> float:
        """The judge's time between the queue's two words. Not both in time: LatchError."""
        limit = time.perf_counter_ns() + int(timeout_s * 1e9)
        begun = self._spin(self._begun, ticket, limit)
        return (self._spin(self._done, ticket, limit) - begun) / 1e3

    def _spin(self, word: ctypes.c_uint32, ticket: int, limit: int) -> int:
        while word.value != ticket:
            if time.perf_counter_ns() > limit:
                raise LatchError(f"queue {ticket} is not done in time")
        return time.perf_counter_ns()

    def close(self) -> None:
        """Gives the page back."""
        del self._go, self._begun, self._done
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

    def queue(
        self,
        copies: Sequence[Callable[[], object]],
        calls: Sequence[Callable[[], object]],
        ticket: int,
        stream: int,
    ) -> None:
        """Queues `copies`, then `calls`, on the current stream (its handle: `stream`) behind the
        latch; the words around `calls` are what the judge times.

        The last of `copies` must be a kernel: before the first one the device may switch to this
        process, which the words do not wait for. (Calls without inputs had nothing to copy, and
        seemed 140 us longer, all together, than they were.)

        Runs nothing before the judge releases; the launches of all together must stay under
        `QUEUE_LIMIT`.
        """
        handle = ctypes.c_void_p(stream)
        self._word("cuStreamWaitValue32_v2", handle, _GO, ticket, _WAIT_GEQ)
        for copy in copies:
            copy()
        self._word("cuStreamWriteValue32_v2", handle, _BEGUN, ticket, _WRITE_DEFAULT)
        for call in calls:
            call()
        self._word("cuStreamWriteValue32_v2", handle, _DONE, ticket, _WRITE_DEFAULT)

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
