"""Layouts of quantised weights, each as a pair: pack and unpack.

Every function works on int64 codes of shape [..., rows, columns] on any device, without loops over
elements, and is exact. Orders are computed on the codes' device: on the CPU they would make
``torch.compile`` compile C++, for seconds. The layouts are those of vLLM 0.13: GPTQ
(`quant_utils.pack_rows`), AWQ (`quant_utils.pack_cols`), the shuffled words of ExLlama kernels
(csrc/quantization/gptq), Marlin (`marlin_utils`, `marlin_utils_test`), 2:4 sparse Marlin
(`marlin_utils_test_24`), and AllSpark's n32k16 order (csrc/quantization/gptq_allspark). They are
stated here in our own words.
"""

from __future__ import annotations

import torch

from kernelmark.operators.vllm.parts import split_dim

#: Marlin's layout in words, for descriptions
MARLIN_LAYOUT = (
    "Marlin's layout: the [K, N] codes are cut into 16 x 16 tiles, four tiles side by side (16 x "
    "64 codes) follow one another along N, then along K; 1024 codes are stored for each of the 32 "
    "threads of a warp in turn. Thread t gets, for tile 0 to 3, the eight codes v0 to v7 at "
    "columns c = t // 4 (v0 to v3) and c + 8 (v4 to v7), rows r, r + 1, r + 8, r + 9 with r = 2 (t "
    "% 4). 4 bits: one word a tile, its nibbles from the low end v0, v2, v4, v6, v1, v3, v5, v7; 8 "
    "bits: two words a tile, bytes v0, v2, v1, v3 and v4, v6, v5, v7. With `is_a_8bit` 32 x 16 "
    "tiles come in pairs (32 x 32 codes); for each tile and each of columns c and c + 8, thread t "
    "gets v0 to v3 at rows r to r + 3 and v4 to v7 at rows r + 16 to r + 19, r = 4 (t % 4); 4 "
    "bits: one word, nibbles v0, v4, v1, v5, v2, v6, v3, v7; 8 bits: two words, bytes in order. "
)

# --- words ---------------------------------------------------------------------------------------


def to_int32(words: torch.Tensor) -> torch.Tensor:
    """Unsigned 32-bit words, given as int64, as int32 of the same bits."""
    return torch.where(words >= 1 << 31, words - (1 << 32), words).to(torch.int32)


def from_int32(words: torch.Tensor) -> torch.Tensor:
    """The bits of int32 words as int64 in [0, 2^32)."""
    return words.to(torch.int64) & 0xFFFFFFFF


def pack_words(codes: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """Codes packed along `dim` as a stream of bits, lowest first, into int32 words.

    32 codes of `bits` bits fill `bits` words (for 3 bits, two codes of 32 straddle words). The
    size of `dim` times `bits` is a multiple of 32.
    """
    last = codes.movedim(dim, -1)
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, device=codes.device)
        words = (split_dim(last, -1, (last.shape[-1] * bits // 32, 32 // bits)) << shifts).sum(-1)
        return to_int32(words).movedim(-1, dim).contiguous()
    stream = (last.unsqueeze(-1) >> torch.arange(bits, device=codes.device)) & 1
    stream = stream.reshape(*last.shape[:-1], last.shape[-1] * bits // 32, 32)
    words = (stream << torch.arange(32, device=codes.device)).sum(-1)
    return to_int32(words).movedim(-1, dim).contiguous()


def unpack_words(words: torch.Tensor, bits: int, dim: int) -> torch.Tensor:
    """The codes that `pack_words` packed, int64."""
    last = from_int32(words.movedim(dim, -1))
    if 32 % bits == 0:
        shifts = torch.arange(0, 32, bits, device=words.device)
        codes = (last.unsqueeze(-1) >> shifts) & ((1 << bits) - 1)
    else:
        stream = (last.unsqueeze(-1) >> torch.arange(32, device=words.device)) & 1
        stream = stream.reshape(*last.shape[:-1], last.shape[-1] * 32 // bits, bits)
        codes = (stream << torch.arange(bits, device=words.device)).sum(-1)
    return codes.reshape(*last.shape[:-1], last.shape[-1] * 32 // bits).movedim(-1, dim)


def _blocked(codes: torch.Tensor, order: torch.Tensor, dim: int) -> torch.Tensor:
    """Every block of len(order) codes along `dim` rearranged: position p gets code order[p]."""
    last = codes.movedim(dim, -1)
    blocks = split_dim(last, -1, (last.shape[-1] // order.numel(), order.numel()))
    return blocks[..., order].flatten(-2).movedim(-1, dim)


def _unblocked(codes: torch.Tensor, order: torch.Tensor, dim: int) -> torch.Tensor:
    """The codes that `_blocked` was given."""
    last = codes.movedim(dim, -1)
    blocks = split_dim(last, -1, (last.shape[-1] // order.numel(), order.numel()))
    return _put_back(blocks, order).flatten(-2).movedim(-1, dim)


def _put_back(blocks: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """What `blocks` is when it is x[..., order]: x."""
    found = torch.empty_like(blocks)
    found[..., order] = blocks
    return found


def _even_odd(count: int, device: torch.device) -> torch.Tensor:
    """0, 2, 4, ... and then 1, 3, 5, ...; `count` in all, an even number."""
    at = torch.arange(count, device=device)
    return at % (count // 2) * 2 + at // (count // 2)


# --- AWQ -----------------------------------------------------------------------------------------


def awq_pack(codes: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """[..., K, N] codes to int32 [..., K, N * bits / 32].

    A word holds neighbouring columns of one row; the p-th code from the low end is that of column
    0, 2, 4, 6, 1, 3, 5, 7 (4 bits) or 0, 2, 1, 3 (8 bits) of the word's columns.
    """
    return pack_words(_blocked(codes, _even_odd(32 // bits, codes.device), -1), bits, -1)


def awq_unpack(words: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """The codes that `awq_pack` packed."""
    return _unblocked(unpack_words(words, bits, -1), _even_odd(32 // bits, words.device), -1)


# --- GPTQ and ExLlama ----------------------------------------------------------------------------


def exllama_shuffle(words: torch.Tensor, bits: int) -> torch.Tensor:
    """GPTQ words [..., K * bits / 32, N] with the codes inside each word (3 bits: three words) put
    in the order of ExLlama's kernels.

    4 bits: even rows in the low half, odd rows in the high half; 2 bits: the same over 16 rows;
    8 bits: unchanged. 3 bits, 32 rows in words 0 to 2: word w holds rows 10 w + (0, 2, 4, 6, 8) in
    bits 0 to 14, rows 10 w + (1, 3, 5, 7, 9) in bits 16 to 30, and bit w of rows 30 and 31 in its
    bits 15 and 31.
    """
    if bits == 8:
        return words.clone()
    device = words.device
    if bits == 3:
        single = _blocked(unpack_words(words, 1, -2), _exllama_bits_of_3(device), -2)
        return pack_words(single, 1, -2)
    codes = _blocked(unpack_words(words, bits, -2), _even_odd(32 // bits, device), -2)
    return pack_words(codes, bits, -2)


def exllama_unpack(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Codes [..., K, N] of shuffled words, int64."""
    if bits == 8:
        return unpack_words(words, 8, -2)
    if bits == 3:
        single = _unblocked(unpack_words(words, 1, -2), _exllama_bits_of_3(words.device), -2)
        return unpack_words(pack_words(single, 1, -2), 3, -2)
    row = torch.arange(32 // bits, device=words.device).view(-1, 1)
    shifted = from_int32(words).unsqueeze(-2) >> (row // 2 * bits + row % 2 * 16)
    return (shifted & ((1 << bits) - 1)).flatten(-3, -2)


def exllama_unshuffle(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The words that `exllama_shuffle` was given."""
    return pack_words(exllama_unpack(words, bits), bits, -2)


def _exllama_bits_of_3(device: torch.device) -> torch.Tensor:
    """For every bit of three shuffled words, the bit of the plain stream that it holds."""
    word, at = torch.arange(3, device=device).view(3, 1, 1), torch.arange(16, device=device)
    odd = torch.arange(2, device=device).view(2, 1)
    row = 10 * word + at // 3 * 2 + odd
    last = 3 * (30 + odd) + word  # bit `word` of row 30 or 31, in the half's highest bit
    return torch.where(at < 15, 3 * row + at % 3, last).reshape(-1)


# --- Marlin --------------------------------------------------------------------------------------


def marlin_order(bits: int, device: torch.device, a_8bit: bool = False) -> torch.Tensor:
    """Where the 1024 codes of a group of tiles come from, in the order in which they are packed.

    A group of tiles is 16 x 64 codes (four 16 x 16 tiles side by side), each tile's rows one after
    the other; with 8-bit activations 32 x 32 codes (two 32 x 16 tiles). Each of a warp's 32
    threads owns the codes that the tensor core wants from it: column thread / 4 (and that plus 8),
    and the rows of its quarter.
    """
    thread, tile, half, step = _of_a_warp(2 if a_8bit else 4, 8 if a_8bit else 4, device)
    column, quarter = thread // 4, thread % 4
    if a_8bit:
        row = 4 * quarter + step % 4 + 16 * (step // 4)
        order = 16 * row + column + 8 * half + 512 * tile
    else:
        row = 2 * quarter + step % 2 + 8 * (step // 2)
        order = 16 * row + column + 8 * half + 256 * tile
    return order.reshape(-1, 32 // bits)[:, _interleave(bits, device, a_8bit)].reshape(-1)


def _of_a_warp(tiles: int, steps: int, device: torch.device) -> tuple[torch.Tensor, ...]:
    """Numbers of threads, tiles, halves of a tile and steps, each along a dimension of its own."""
    shapes = ((32, 1, 1, 1), (tiles, 1, 1), (2, 1), (steps,))
    return tuple(torch.arange(shape[0], device=device).view(shape) for shape in shapes)


def _interleave(bits: int, device: torch.device, a_8bit: bool = False) -> torch.Tensor:
    """Order of the codes within a word: what a few instructions turn into pairs of 16 bits."""
    if not a_8bit:
        return _even_odd(32 // bits, device)
    return _fours(device) if bits == 4 else torch.arange(4, device=device)


def marlin_pack(codes: torch.Tensor, bits: int, a_8bit: bool = False) -> torch.Tensor:
    """[..., K, N] codes to int32 [..., K / 16, N * 16 * bits / 32]; K % 16 = 0 (32 with 8-bit
    activations), N % 64 = 0.
    """
    rows, columns = codes.shape[-2:]
    height = 32 if a_8bit else 16
    tiles = codes.reshape(*codes.shape[:-2], rows // height, height, columns // 16, 16)
    flat = tiles.transpose(-3, -2).reshape(*codes.shape[:-2], rows // 16, columns * 16)
    return pack_words(_blocked_flat(flat, marlin_order(bits, codes.device, a_8bit)), bits, -1)


def marlin_unpack(words: torch.Tensor, bits: int, a_8bit: bool = False) -> torch.Tensor:
    """The codes that `marlin_pack` packed."""
    flat = unpack_words(words, bits, -1)
    rows, columns = flat.shape[-2] * 16, flat.shape[-1] // 16
    height = 32 if a_8bit else 16
    flat = _unblocked_flat(flat, marlin_order(bits, words.device, a_8bit))
    tiles = flat.reshape(*words.shape[:-2], rows // height, columns // 16, height, 16)
    return tiles.transpose(-3, -2).reshape(*words.shape[:-2], rows, columns)


def _blocked_flat(flat: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """Blocks of len(order) codes rearranged over the last two dimensions taken as one."""
    blocks = flat.reshape(*flat.shape[:-2], -1, order.numel())
    return blocks[..., order].reshape(flat.shape)


def _unblocked_flat(flat: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    """The codes that `_blocked_flat` was given."""
    blocks = flat.reshape(*flat.shape[:-2], -1, order.numel())
    return _put_back(blocks, order).reshape(flat.shape)


def _marlin_columns(single: bool, device: torch.device) -> torch.Tensor:
    """Order of the columns of scales: 64 at a time for groups, 32 for one scale a column."""
    if single:
        lane, at = torch.arange(4, device=device).view(4, 1), torch.arange(8, device=device)
        return (2 * lane + at % 2 + at // 2 * 8).reshape(-1)
    return torch.arange(64, device=device).view(8, 8).t().reshape(-1)


def marlin_permute_scales(scales: torch.Tensor, single: bool) -> torch.Tensor:
    """Scales [groups, N] with their columns in Marlin's order. `single`: one group in all, or
    8-bit activations; biases are permuted the same way.
    """
    return _blocked(scales, _marlin_columns(single, scales.device), -1).contiguous()


def marlin_unpermute_scales(scales: torch.Tensor, single: bool) -> torch.Tensor:
    """The scales that `marlin_permute_scales` was given."""
    return _unblocked(scales, _marlin_columns(single, scales.device), -1).contiguous()


def marlin_pack_zeros(zeros: torch.Tensor, bits: int) -> torch.Tensor:
    """Zero points [groups, N] (int64) to int32 [groups, N * bits / 32]: columns in the order of
    group scales, then interleaved in each word.
    """
    columns = _blocked(zeros, _marlin_columns(False, zeros.device), -1)
    return pack_words(_blocked(columns, _interleave(bits, zeros.device), -1), bits, -1)


def marlin_unpack_zeros(words: torch.Tensor, bits: int) -> torch.Tensor:
    """The zero points that `marlin_pack_zeros` packed."""
    columns = _unblocked(unpack_words(words, bits, -1), _interleave(bits, words.device), -1)
    return _unblocked(columns, _marlin_columns(False, words.device), -1)


# --- 2:4 sparse Marlin ---------------------------------------------------------------------------


def marlin_24_order(bits: int, device: torch.device) -> torch.Tensor:
    """As `marlin_order`, for compressed codes of 2:4 sparse weights."""
    thread, tile, half, step = _of_a_warp(4, 4, device)
    column, quarter = thread // 4, thread % 4
    row = 2 * quarter + step % 2 + 8 * (step // 2)
    order = 16 * row + 256 * (column // 2) + 8 * (column % 2) + 4 * half + tile
    return order.reshape(-1, 32 // bits)[:, _interleave(bits, device)].reshape(-1)


def marlin_24_pack(
    kept: torch.Tensor, places: torch.Tensor, bits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Kept codes [K / 2, N] and their places to (words, metadata).

    Rows 2 i and 2 i + 1 of `kept` are the codes kept of rows 4 i to 4 i + 3 of the dense matrix;
    `places` (same shape, 0 to 3, the first below the second) says which. Words are int32
    [K / 32, N * 16 * bits / 32], metadata int16 [K / 32, 2 N].
    """
    half_k, n = kept.shape
    tiles = kept.reshape(half_k // 16, 16, n // 16, 16).transpose(1, 2)
    flat = tiles.reshape(half_k // 16, n * 16)
    words = pack_words(_blocked_flat(flat, marlin_24_order(bits, kept.device)), bits, -1)
    pairs = places.reshape(half_k // 2, 2, n)
    nibbles = (pairs[:, 0] + 4 * pairs[:, 1]).t().reshape(n, half_k // 8, 4)
    meta = (nibbles << torch.arange(0, 16, 4, device=kept.device)).sum(-1)
    meta = torch.where(meta >= 1 << 15, meta - (1 << 16), meta).to(torch.int16)
    stored = torch.empty(meta.numel(), dtype=torch.int16, device=kept.device)
    stored[_meta_positions(n, half_k // 8, kept.device)] = meta.reshape(-1)
    return words, stored.view(half_k // 16, 2 * n)


def marlin_24_unpack(
    words: torch.Tensor, meta: torch.Tensor, bits: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """(kept codes, places) that `marlin_24_pack` packed."""
    flat = unpack_words(words, bits, -1)
    flat = _unblocked_flat(flat, marlin_24_order(bits, words.device))
    half_k, n = flat.shape[0] * 16, flat.shape[1] // 16
    kept = flat.reshape(half_k // 16, n // 16, 16, 16).transpose(1, 2).reshape(half_k, n)
    at = _meta_positions(n, half_k // 8, words.device)
    values = meta.reshape(-1)[at].to(torch.int64).view(n, half_k // 8, 1) & 0xFFFF
    nibbles = (values >> torch.arange(0, 16, 4, device=words.device)) & 15
    nibbles = nibbles.view(n, half_k // 2).t()
    places = torch.stack([nibbles & 3, nibbles >> 2], 1).reshape(half_k, n)
    return kept, places


def marlin_24_dense(values: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    """Dense [K, N] of kept values [K / 2, N], zero elsewhere."""
    half_k, n = values.shape
    dense = values.new_zeros(half_k // 2, 4, n)
    dense.scatter_(1, places.reshape(half_k // 2, 2, n), values.reshape(half_k // 2, 2, n))
    return dense.view(2 * half_k, n)


def _meta_positions(n: int, columns: int, device: torch.device) -> torch.Tensor:
    """Where CUTLASS stores the 16-bit metadata element (row of the transposed matrix, column):
    rows reordered within 64, 2 x 2 blocks transposed, columns interleaved by two.
    """
    row = torch.arange(n, device=device).view(n, 1).expand(n, columns)
    column = torch.arange(columns, device=device).view(1, columns).expand(n, columns)
    within = row % 64
    row = row - within + row % 2 * 2 + row % 8 // 4 + row % 4 // 2 * 32 + within // 8 * 4
    swap = (row % 2 == 0).long() * (column % 2 == 1) - (row % 2 == 1).long() * (column % 2 == 0)
    row, column = row + swap, column - swap
    return (column // 2 * n * 2 + row * 2 + column % 2).reshape(-1)


def marlin_24_permute_scales(scales: torch.Tensor, single: bool) -> torch.Tensor:
    """Scales of 2:4 sparse Marlin: 8 columns at a time in the order 0, 4, 1, 5, 2, 6, 3, 7 for
    groups, untouched for one scale a column.
    """
    done = scales if single else _blocked(scales, _fours(scales.device), -1)
    return done.clone(memory_format=torch.contiguous_format)


def marlin_24_unpermute_scales(scales: torch.Tensor, single: bool) -> torch.Tensor:
    """The scales that `marlin_24_permute_scales` was given."""
    done = scales if single else _unblocked(scales, _fours(scales.device), -1)
    return done.clone(memory_format=torch.contiguous_format)


def _fours(device: torch.device) -> torch.Tensor:
    """0, 4, 1, 5, 2, 6, 3, 7."""
    at = torch.arange(8, device=device)
    return at // 2 + at % 2 * 4


# --- AllSpark ------------------------------------------------------------------------------------


def n32k16_pack(codes: torch.Tensor) -> torch.Tensor:
    """uint8-valued codes [K, N] (K, N multiples of 16) to uint8 [N rounded up to 32, K].

    A block of 32 columns and 16 rows becomes 8 runs of 64 codes. Run i holds columns i, i + 8,
    i + 16, i + 24; it is the concatenation over q = 0..3 of 16 codes, for each of those columns
    the rows 2 q, 2 q + 1, 2 q + 8, 2 q + 9. In memory: block of columns, i, block of rows, run.
    Columns beyond N are zeros.
    """
    k, n = codes.shape
    padded = torch.nn.functional.pad(codes, (0, -n % 32)).to(torch.uint8)
    # rows: block, high, q, low; columns: block, c (of four), i
    split = padded.view(k // 16, 2, 4, 2, padded.shape[1] // 32, 4, 8)
    return split.permute(4, 6, 0, 2, 5, 1, 3).reshape(padded.shape[1], k)


def n32k16_unpack(packed: torch.Tensor, n: int) -> torch.Tensor:
    """The codes [K, n] that `n32k16_pack` packed, int64."""
    wide, k = packed.shape
    split = packed.view(wide // 32, 8, k // 16, 4, 4, 2, 2)
    return split.permute(2, 5, 3, 6, 0, 4, 1).reshape(k, wide)[:, :n].to(torch.int64)


def n32k16_permute_scales(scales: torch.Tensor) -> torch.Tensor:
    """[1, N] per-column values to [1, N rounded up to 32]: 32 at a time, position 4 r + c holds
    column 8 c + r.
    """
    padded = torch.nn.functional.pad(scales, (0, -scales.shape[-1] % 32))
    return _blocked(padded, _columns_of_32(scales.device), -1).contiguous()


def n32k16_unpermute_scales(scales: torch.Tensor, n: int) -> torch.Tensor:
    """The values [1, n] that `n32k16_permute_scales` was given."""
    return _unblocked(scales, _columns_of_32(scales.device), -1)[..., :n].contiguous()


def _columns_of_32(device: torch.device) -> torch.Tensor:
    return torch.arange(32, device=device).view(4, 8).t().reshape(-1)
