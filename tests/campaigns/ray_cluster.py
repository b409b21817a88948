"""A Ray cluster of several nodes on this machine, each a process tree that can be killed."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import ray

START_S = 90.0


class Node:
    """One node: `ray start --block` and all that comes of it."""

    def __init__(self, words: list[str], log: Path) -> None:
        command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--block", *words]
        command += ["--num-cpus=2", "--object-store-memory=80000000", "--disable-usage-stats"]
        command += ["--resources", json.dumps({"chip:interpreter": 1})]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
        }
        with log.open("wb") as file:
            self.process = subprocess.Popen(
                command, env=environment, stdout=file, stderr=file, start_new_session=True
            )

    def tree(self) -> list[int]:
        """Process ids of everything that it has started, itself first."""
        children: dict[int, list[int]] = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                with contextlib.suppress(OSError):
                    stat = (folder / "stat").read_text().rpartition(")")[2].split()
                    children.setdefault(int(stat[1]), []).append(int(folder.name))
        found = [self.process.pid]
        for pid in found:
            found += children.get(pid, [])
        return found

    def grades(self) -> bool:
        """Whether a judge of this node has a runner."""
        commands = []
        for pid in self.tree():
            with contextlib.suppress(OSError):
                commands.append(Path(f"/proc/{pid}/cmdline").read_bytes())
        judges = sum(b"import pinned" in command for command in commands)
        return judges > 0 and sum(b"import server" in command for command in commands) > 1

    def kill(self) -> None:
        """As if the machine had lost its power."""
        for pid in self.tree():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[tuple[str, list[Node]]]:
    """Address and nodes (head first) of a cluster of two, each with one `chip:interpreter`."""
    with socket.socket() as sock:
        sock.bind(("", 0))
        port = sock.getsockname()[1]
    host = ray.util.get_node_ip_address()  # Ray takes this for a loopback address, too
    address = f"{host}:{port}"
    head = ["--head", f"--port={port}", "--include-dashboard=false"]
    nodes = [Node([*head, f"--temp-dir={folder}"], folder / "head.log")]
    try:
        _wait_for(host, port)
        nodes.append(Node([f"--address={address}"], folder / "n.log"))
        yield address, nodes
    finally:
        for node in reversed(nodes):
            node.kill()


def _wait_for(host: str, port: int) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
            return
        time.sleep(0.2)
    raise TimeoutError("the head node does not answer")
