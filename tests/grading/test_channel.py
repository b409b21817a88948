"""Messages and the descriptors beside them, however the bytes arrive."""

from __future__ import annotations

import array
import os
import socket
import struct

import pytest

from kernelmark.evaluators.grading.channel import Channel, Garbled


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    first, second = Channel(ours), Channel(theirs)
    yield first, second
    first.close()
    second.close()


def test_descriptors_belong_to_their_own_message(ends) -> None:
    """One read may bring several messages; those without descriptors came first."""
    ours, theirs = ends
    read, write = os.pipe()
    theirs.send({"event": "exited"})
    theirs.send({"event": "spawned"}, [read])
    theirs.send({"event": "later"})
    theirs.send({"event": "two"}, [read, write])
    counts = []
    for name in ("exited", "spawned", "later", "two"):
        message, fds = ours.receive(5.0)
        assert message["event"] == name
        counts.append(len(fds))
        for fd in fds:
            os.close(fd)
    assert counts == [0, 1, 0, 2]
    os.close(read)
    os.close(write)


@pytest.mark.parametrize(("claimed", "sent"), [(1, 0), (0, 1), (2, 1), (1, 2)])
def test_descriptors_that_the_message_does_not_tell_of_are_refused(ends, claimed, sent) -> None:
    ours, theirs = ends
    read, write = os.pipe()
    before = len(os.listdir("/proc/self/fd"))
    body = b"{}"
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [read] * sent))]
    theirs.socket.sendmsg([struct.pack("<IB", len(body), claimed) + body], rights if sent else [])
    with pytest.raises(Garbled, match="descriptors"):
        ours.receive(5.0)
    ours.close()
    assert len(os.listdir("/proc/self/fd")) == before - 1  # what came was closed with the channel
    os.close(read)
    os.close(write)
