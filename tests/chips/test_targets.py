"""Static occupancy against hand-worked figures, and reading of code objects."""

from __future__ import annotations

import pytest

from kernelmark.evaluators.chips import _code_objects
from kernelmark.evaluators.chips.registry import get_chip
from kernelmark.evaluators.chips.targets import CompileTarget

#: (target, registers, shared bytes, warps, occupancy). NVIDIA: 65,536 registers in units of 8 a
#: thread, so 100 -> 104 registers * 32 * 4 warps = 13,312 a block: 4 blocks of 4 in 64 warps.
WORKED = [
    ("sm_80", 32, 0, 4, 1.0),
    ("sm_80", 100, 0, 4, 0.25),
    ("sm_80", 255, 0, 8, 0.125),
    ("sm_80", 32, 48 * 1024, 4, 12 / 64),  # 164 KB / 49 KB: 3 blocks
    ("sm_90", 32, 100 * 1024, 8, 16 / 64),  # 228 KB / 101 KB: 2 blocks
    ("sm_90", 32, 228 * 1024, 8, 0.0),  # a block may have 227 KB
    ("sm_80", 16, 0, 1, 0.5),  # 32 blocks of one warp
    ("sm_120", 32, 0, 4, 1.0),
    ("sm_120", 168, 0, 4, 0.25),  # 3 waves of 12 a partition
    ("gfx942", 64, 0, 4, 1.0),  # 512 / 64: 8 waves
    ("gfx942", 128, 0, 4, 0.5),
    ("gfx942", 32, 40 * 1024, 4, 4 / 32),  # one block in 64 KB
    ("gfx1100", 96, 0, 4, 1.0),  # 1,536 / 96: 16 waves
    ("gfx1100", 128, 0, 4, 40 / 64),  # 144 registers: 10 waves
]


@pytest.mark.parametrize(("name", "registers", "shared", "warps", "expected"), WORKED)
def test_occupancy(name: str, registers: int, shared: int, warps: int, expected: float) -> None:
    target = get_chip(name)
    assert isinstance(target, CompileTarget)
    assert target.multiprocessor.occupancy(registers, shared, warps) == pytest.approx(expected)


def test_no_elf_is_refused() -> None:
    assert not _code_objects.is_elf(b"")
    with pytest.raises(ValueError, match="not a 64-bit ELF"):
        _code_objects.read_cubin(b"nothing", "")


def test_amd_metadata_is_read() -> None:
    text = """
    v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]
    v_add_f32 v0, v1, v2
      - .private_segment_fixed_size: 24
        .vgpr_count:     48
    """
    found = _code_objects.read_amdgcn(text)
    assert (found.registers, found.spilled_bytes, found.matrix_instructions) == (48, 24, 1)


def test_ptx_matrix_instructions_are_counted() -> None:
    ptx = "mma.sync.aligned.m16n8k16 ;\n wgmma.mma_async.sync ;\n tcgen05.mma.cta ;\n add.f32 ;"
    assert len(_code_objects._PTX_MATRIX.findall(ptx)) == 3
