"""Layouts of quantised weights: packing and unpacking are inverse, and words are what they say."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kernelmark.operators.vllm import packing
from kernelmark.operators.vllm.ggml import read_weights
from kernelmark.operators.vllm.ggml_formats import FORMATS, decode, draw_halves
from kernelmark.operators.vllm.ggml_gemm import quantise, sort_into_blocks


def codes(bits: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(bits + sum(shape))
    return torch.randint(0, 1 << bits, shape, generator=generator)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 8])
@pytest.mark.parametrize("dim", [-2, -1])
def test_words_round_trip(bits: int, dim: int) -> None:
    plain = codes(bits, 2, 64, 96)
    packed = packing.pack_words(plain, bits, dim)
    assert packed.dtype == torch.int32
    assert packed.numel() * 32 == plain.numel() * bits
    assert torch.equal(packing.unpack_words(packed, bits, dim), plain)


def test_three_bit_codes_straddle_words() -> None:
    plain = torch.zeros(32, 1, dtype=torch.int64)
    plain[10], plain[21] = 7, 7
    words = packing.from_int32(packing.pack_words(plain, 3, 0)).flatten().tolist()
    assert words == [0b11 << 30, 1 | 1 << 31, 0b11]


@pytest.mark.parametrize("bits", [4, 8])
def test_awq_round_trip(bits: int) -> None:
    plain = codes(bits, 3, 32, 64)
    assert torch.equal(packing.awq_unpack(packing.awq_pack(plain, bits), bits), plain)


def test_awq_nibbles_are_even_columns_then_odd() -> None:
    word = packing.from_int32(packing.awq_pack(torch.arange(8).view(1, 8))).item()
    assert f"{word:08x}" == "75316420"


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
def test_exllama_round_trip(bits: int) -> None:
    words = packing.pack_words(codes(bits, 96, 10), bits, 0)
    shuffled = packing.exllama_shuffle(words, bits)
    assert torch.equal(packing.exllama_unshuffle(shuffled, bits), words)
    assert torch.equal(shuffled, words) == (bits == 8)


def test_exllama_three_bits_spread_the_last_two_rows() -> None:
    plain = torch.zeros(32, 1, dtype=torch.int64)
    plain[30], plain[31], plain[1] = 0b101, 0b010, 0b111
    shuffled = packing.exllama_shuffle(packing.pack_words(plain, 3, 0), 3)
    words = packing.from_int32(shuffled).flatten().tolist()
    assert words == [1 << 15 | 0b111 << 16, 1 << 31, 1 << 15]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("a_8bit", [False, True])
def test_marlin_round_trip(bits: int, a_8bit: bool) -> None:
    plain = codes(bits, 2, 64, 192)
    packed = packing.marlin_pack(plain, bits, a_8bit)
    assert packed.shape == (2, 4, 192 * bits // 2)
    assert torch.equal(packing.marlin_unpack(packed, bits, a_8bit), plain)


def test_marlin_first_word_is_the_first_threads() -> None:
    """Thread 0, tile 0: rows 0, 1, 8, 9 of columns 0 and 8, interleaved."""
    plain = torch.zeros(16, 64, dtype=torch.int64)
    for value, (row, column) in enumerate([(r, c) for c in (0, 8) for r in (0, 1, 8, 9)], start=1):
        plain[row, column] = value
    word = packing.from_int32(packing.marlin_pack(plain, 4))[0, 0].item()
    assert f"{word:08x}" == "86427531"


@pytest.mark.parametrize("bits", [4, 8])
def test_marlin_zeros_round_trip(bits: int) -> None:
    zeros = codes(bits, 3, 128)
    assert torch.equal(
        packing.marlin_unpack_zeros(packing.marlin_pack_zeros(zeros, bits), bits), zeros
    )


@pytest.mark.parametrize("single", [False, True])
def test_marlin_scales_round_trip(single: bool) -> None:
    scales = torch.arange(256.0).view(2, 128)
    moved = packing.marlin_permute_scales(scales, single)
    assert torch.equal(packing.marlin_unpermute_scales(moved, single), scales)
    assert moved[0, :4].tolist() == ([0, 1, 8, 9] if single else [0, 8, 16, 24])
    sparse = packing.marlin_24_permute_scales(scales, single)
    assert torch.equal(packing.marlin_24_unpermute_scales(sparse, single), scales)


@pytest.mark.parametrize("bits", [4, 8])
def test_sparse_marlin_round_trip(bits: int) -> None:
    kept = codes(bits, 64, 128)
    pairs = torch.tensor([(0, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 3)])
    chosen = pairs[codes(8, 32, 128) % 6]
    places = chosen.movedim(-1, 1).reshape(64, 128)
    words, meta = packing.marlin_24_pack(kept, places, bits)
    assert words.shape == (4, 128 * bits // 2)
    assert meta.shape == (4, 256)
    again = packing.marlin_24_unpack(words, meta, bits)
    assert torch.equal(again[0], kept)
    assert torch.equal(again[1], places)
    dense = packing.marlin_24_dense(kept + 1, places)
    assert ((dense != 0).view(32, 4, 128).sum(1) == 2).all()


@pytest.mark.parametrize("n", [16, 48, 64, 80])
def test_allspark_round_trip(n: int) -> None:
    plain = codes(8, 48, n)
    packed = packing.n32k16_pack(plain)
    assert packed.shape == (-(-n // 32) * 32, 48)
    assert torch.equal(packing.n32k16_unpack(packed, n), plain)
    scales = torch.arange(float(n)).view(1, n) + 1
    moved = packing.n32k16_permute_scales(scales)
    assert torch.equal(packing.n32k16_unpermute_scales(moved, n), scales)


def test_allspark_run_holds_columns_eight_apart() -> None:
    plain = (torch.arange(16).view(16, 1) * 8 + torch.arange(32) // 8).to(torch.int64)
    plain[:, torch.arange(32) % 8 != 0] = 255
    run = packing.n32k16_pack(plain).flatten()[:64].tolist()
    rows = [
        2 * q + 8 * h + low for q in range(4) for c in range(4) for h in (0, 1) for low in (0, 1)
    ]
    columns = [c for q in range(4) for c in range(4) for _ in range(4)]
    assert run == [8 * row + column for row, column in zip(rows, columns, strict=True)]


@pytest.mark.parametrize("quant_type", FORMATS)
def test_ggml_blocks_decode_as_their_bytes_read(quant_type: int) -> None:
    form = FORMATS[quant_type]
    generator = torch.Generator().manual_seed(quant_type)
    packed = torch.randint(0, 256, (3, 2 * form.nbytes), generator=generator).to(torch.uint8)
    draw_halves(packed, quant_type, generator)
    value, size = decode(packed, quant_type, torch.float64)
    np.testing.assert_allclose(value.numpy(), read_weights(packed, quant_type), rtol=1e-12)
    assert (value.abs() <= size * (1 + 1e-12)).all()
    assert 1e-3 < value.std() < 1


def test_activations_in_q8_1() -> None:
    x = torch.zeros(1, 64)
    x[0, 0], x[0, 1], x[0, 2] = 127.0, -2.5, 2.49
    assert quantise(x, torch.float64)[0, :3].tolist() == [127.0, -3.0, 2.0]
    assert quantise(x, torch.float64)[0, 3:].abs().max() == 0


def test_pairs_are_sorted_into_blocks_of_one_expert() -> None:
    chosen = torch.tensor([[2, 0], [2, 1], [0, 2], [2, 0], [0, 2], [1, 2]])
    slots = 12 + 3 * 3 + 3
    ids, experts, used = sort_into_blocks(chosen, 3, slots)
    assert int(used) == 4 + 4 + 8
    listed = [int(i) for i in ids if i < 12]
    assert sorted(listed) == list(range(12))
    for slot in range(int(used)):
        if ids[slot] < 12:
            assert chosen.flatten()[ids[slot]] == experts[slot // 4]
