"""What an agent uses and leaves behind: its processes, from ``/proc``, and its files. Linux."""

from __future__ import annotations

import os
import shutil
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
    """Bytes on disk of all files below `root`; links are not followed."""
    total = 0
    for folder, _, names in os.walk(root):
        for name in names:
            try:
                total += os.lstat(os.path.join(folder, name)).st_blocks * 512
            except OSError:
                continue  # it has just gone
    return total


def remove_folder(root: Path) -> None:
    """Removes `root`, whatever rights were taken from what is in it; links are not followed."""
    if not root.exists():
        return
    for folder, names, _ in os.walk(root):
        os.chmod(folder, 0o700)
        for name in names:
            path = os.path.join(folder, name)
            if not os.path.islink(path):
                os.chmod(path, 0o700)
    shutil.rmtree(root)
