"""Reads what a compiled kernel uses, from its code object. Standard library only.

NVIDIA: the cubin's ``.nv.info`` (the attributes that ``cuobjdump --dump-resource-usage`` prints)
and the PTX. AMD: the metadata at the end of the assembly (LLVM, AMDGPU usage, code object V5).
Nothing is disassembled, so a kernel costs microseconds.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

#: attributes of .nv.info whose value is (symbol, number): registers, bytes of the stack frame
_REGISTERS, _FRAME = 0x2F, 0x11
_WITH_SIZE = 0x04  #: format of an attribute: a size and that many bytes follow

_PTX_MATRIX = re.compile(r"\b(?:wmma\.mma|mma\.sync|wgmma\.mma_async|tcgen05\.mma)\b")
_AMD_MATRIX = re.compile(r"^\s*v_(?:mfma|smfmac|wmma|swmmac)_", re.MULTILINE)


@dataclass(frozen=True)
class Resources:
    """What one kernel uses. None: the code object does not tell.

    `spilled_bytes` is local memory per thread: what the compiler spilled, and local arrays.
    `matrix_instructions` counts those in the code, not those executed.
    """

    registers: int | None
    spilled_bytes: int | None
    matrix_instructions: int


def read_cubin(cubin: bytes, ptx: str) -> Resources:
    """Resources of a cubin with one kernel, from its ELF attributes and its PTX.

    Functions that the kernel calls have attributes too: the largest figures stand.
    Raises `ValueError` where the bytes are no 64-bit ELF file.
    """
    registers: list[int] = []
    frames: list[int] = []
    for name, content in _sections(cubin):
        if name == ".nv.info":
            for attribute, value in _attributes(content):
                if attribute == _REGISTERS:
                    registers.append(struct.unpack("<II", value)[1])
                elif attribute == _FRAME:
                    frames.append(struct.unpack("<II", value)[1])
    matrix = len(_PTX_MATRIX.findall(ptx))
    return Resources(max(registers, default=None), max(frames, default=None), matrix)


def read_amdgcn(assembly: str) -> Resources:
    """Resources of AMD assembly, from its metadata."""
    registers = _figure(assembly, "vgpr_count")
    spilled = _figure(assembly, "private_segment_fixed_size")
    return Resources(registers, spilled, len(_AMD_MATRIX.findall(assembly)))


def is_elf(code: bytes) -> bool:
    """Whether these bytes can be a code object at all."""
    return code[:4] == b"\x7fELF"


def _figure(assembly: str, name: str) -> int | None:
    found = re.findall(rf"^\s*(?:- )?\.{name}:\s*(\d+)", assembly, re.MULTILINE)
    return max(map(int, found), default=None)


def _sections(elf: bytes) -> list[tuple[str, bytes]]:
    """(name, content) of each section of a little-endian 64-bit ELF file."""
    if not is_elf(elf) or elf[4] != 2:
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", elf, 0x28)
    size, count, names_index = struct.unpack_from("<HHH", elf, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", elf, table + i * size) for i in range(count)]
    names = _content(elf, headers[names_index])
    return [(_text(names, header[0]), _content(elf, header)) for header in headers]


def _content(elf: bytes, header: tuple[int, ...]) -> bytes:
    no_bits = 8
    return b"" if header[1] == no_bits else elf[header[4] : header[4] + header[5]]


def _text(names: bytes, at: int) -> str:
    return names[at : names.index(b"\0", at)].decode()


def _attributes(content: bytes) -> list[tuple[int, bytes]]:
    """(attribute, value) pairs of an ``.nv.info`` section."""
    found, at = [], 0
    while at + 4 <= len(content):
        form, attribute, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == _WITH_SIZE:
            found.append((attribute, content[at : at + size]))
            at += size
    return found
