"""A bundle in one zip file: unpacked with bounds, whatever the archive says of paths."""

from __future__ import annotations

import stat
import zipfile
import zlib
from pathlib import Path
from typing import IO

from kernelmark.submissions.bundle import FILES, MANIFEST
from kernelmark.submissions.validation import MAX_FILE_BYTES, MAX_MANIFEST_BYTES, Problem, shown

#: no honest bundle compresses better: JSON of random digits and hashes
MAX_RATIO = 200
_CHUNK = 1 << 20


def unpack(archive: Path, destination: Path) -> list[Problem]:
    """Unpacks a bundle into the new folder `destination`; every problem where it is not one."""
    destination.mkdir(parents=True)
    try:
        with zipfile.ZipFile(archive) as opened:
            problems = _look(opened)
            if problems:
                return problems
            return [p for info in opened.infolist() for p in _take(opened, info, destination)]
    except (zipfile.BadZipFile, OSError, ValueError, EOFError, NotImplementedError) as error:
        return [Problem(".", f"is no zip archive that can be read: {shown(error)}")]


def pack(bundle: Path, archive: Path) -> None:
    """Packs a bundle; the same bundle gives the same bytes."""
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as opened:
        for name in (MANIFEST, *FILES):
            if (bundle / name).exists():
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                opened.writestr(info, (bundle / name).read_bytes())


def _look(opened: zipfile.ZipFile) -> list[Problem]:
    problems = []
    names = set()
    for info in opened.infolist()[: 10 * len(FILES)]:
        name = shown(info.filename)
        limit = MAX_MANIFEST_BYTES if info.filename == MANIFEST else MAX_FILE_BYTES
        if info.filename not in (MANIFEST, *FILES):
            problems.append(Problem(name, "is no file of a bundle"))
        if info.filename in names:
            problems.append(Problem(name, "is there twice"))
        names.add(info.filename)
        if info.flag_bits & 1:
            problems.append(Problem(name, "is encrypted"))
        if stat.S_ISLNK(info.external_attr >> 16):
            problems.append(Problem(name, "is not a plain file"))
        if info.file_size > limit:
            problems.append(Problem(name, f"has {info.file_size} bytes; at most {limit}"))
        elif info.file_size > MAX_RATIO * max(info.compress_size, 1024):
            problems.append(Problem(name, f"is compressed more than {MAX_RATIO} times"))
    return problems


def _take(opened: zipfile.ZipFile, info: zipfile.ZipInfo, destination: Path) -> list[Problem]:
    try:
        with opened.open(info) as source, (destination / info.filename).open("wb") as target:
            _copy(source, target, info.file_size)
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, RuntimeError) as error:
        return [Problem(shown(info.filename), f"cannot be unpacked: {shown(error)}")]
    return []


def _copy(source: IO[bytes], target: IO[bytes], size: int) -> None:
    taken = 0
    while chunk := source.read(_CHUNK):
        taken += len(chunk)
        if taken > size:
            raise ValueError("holds more bytes than it says")
        target.write(chunk)
