"""What an agent uses and leaves behind: its processes, from ``/proc``, and its files. Linux.

Files by the system's own programs: an agent may nest folders deeper than paths and Python's
recursion go.
"""

from __future__ import annotations

import os
import subprocess
from collections import defaultdict
from pathlib import Path

_PAGE_BYTES = os.sysconf("SC_PAGESIZE")


def tree_use(root: int) -> tuple[int, int]:
    """Number of processes below and with `root`, and bytes resident in all of them.

    Pages that several share are counted for each.
    """
    children: dict[int, list[int]] = defaultdict(list)
    resident: dict[int, int] = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            fields = Path(f"/proc/{name}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            continue  # it has just ended
        children[int(fields[1])].append(int(name))
        resident[int(name)] = int(fields[21]) * _PAGE_BYTES
    count = nbytes = 0
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in resident:
            count += 1
            nbytes += resident[pid]
            waiting += children[pid]
    return count, nbytes


def folder_bytes(root: Path) -> int:
    """Bytes on disk of all below `root`, however deep; links are not followed."""
    words = ["du", "-sk", "--", str(root)]
    said = subprocess.run(words, capture_output=True, check=False).stdout  # it fails on what goes
    return int(said.split()[0]) * 1024 if said.strip() else 0


def files_below(root: Path) -> list[str]:
    """Paths of all files below `root`, relative to it, in no order."""
    words = ["find", ".", "-type", "f", "-print0"]
    said = subprocess.run(words, cwd=root, capture_output=True, check=False).stdout
    return [os.fsdecode(path).removeprefix("./") for path in said.split(b"\0") if path]


def remove_folder(root: Path) -> None:
    """Removes `root`, however deep, whatever rights were taken from what is in it; links are not
    followed."""
    if not root.exists():
        return
    subprocess.run(["chmod", "-R", "u+rwx", "--", str(root)], capture_output=True, check=False)
    subprocess.run(["rm", "-rf", "--", str(root)], check=True)
