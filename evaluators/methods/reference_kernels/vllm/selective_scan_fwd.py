"""Selective scan: a program walks one sequence for a tile of channels, the state in registers.

The recurrence is sequential in time and independent across channels and states, so the grid is
(sequence, channel tile) and time is a loop. A step reads one element a channel of u, delta (and z)
and one a state of B and C; neighbouring steps find them in the first-level cache. The output
overwrites delta, or z, only after the same program has read it.
"""

import triton
import triton.language as tl


@triton.jit
def _softplus(x):
    return tl.where(x > 20.0, x, tl.log(1.0 + tl.exp(tl.minimum(x, 20.0))))


@triton.jit
def _scan(
    u, delta, a, b, c, d, z, bias, starts, indices, initial, states,
    dim, state, per_group, length, batch_stride, mixed_stride, row, pad,
    SOFTPLUS: tl.constexpr, PACKED: tl.constexpr, HAS_D: tl.constexpr, HAS_Z: tl.constexpr,
    HAS_BIAS: tl.constexpr, HAS_INITIAL: tl.constexpr,
    CHANNELS: tl.constexpr, STATE: tl.constexpr,
):  # fmt: skip
    sequence = tl.program_id(0)
    slot = sequence
    begin, end = 0, length
    if PACKED:
        slot = tl.load(indices + sequence)
        begin, end = tl.load(starts + sequence), tl.load(starts + sequence + 1)
        end = tl.where(slot == pad, begin, end)
    base = sequence.to(tl.int64) * batch_stride
    mixed = sequence.to(tl.int64) * mixed_stride

    channel = tl.program_id(1) * CHANNELS + tl.arange(0, CHANNELS)
    n = tl.arange(0, STATE)
    here = channel < dim
    both = here[:, None] & (n < state)[None, :]
    matrix = channel[:, None] * state + n[None, :]
    decay = tl.load(a + matrix, mask=both, other=0.0)
    held = states + slot.to(tl.int64) * dim * state + matrix
    live = both & (slot != pad) if PACKED else both
    x = tl.zeros([CHANNELS, STATE], tl.float32)
    if HAS_INITIAL:
        known = tl.load(initial + sequence) != 0
        x = tl.load(held, mask=live & known, other=0.0).to(tl.float32)
    skip = tl.zeros([CHANNELS], tl.float32)
    if HAS_D:
        skip = tl.load(d + channel, mask=here, other=0.0)
    shift = tl.zeros([CHANNELS], tl.float32)
    if HAS_BIAS:
        shift = tl.load(bias + channel, mask=here, other=0.0)
    lines = channel.to(tl.int64) * row + base
    pairs = ((channel // per_group)[:, None] * state + n[None, :]).to(tl.int64) * row + mixed

    for t in range(begin, end):
        now = tl.load(u + lines + t, mask=here, other=0.0).to(tl.float32)
        step = tl.load(delta + lines + t, mask=here, other=0.0).to(tl.float32) + shift
        if SOFTPLUS:
            step = _softplus(step)
        drive = tl.load(b + pairs + t, mask=both, other=0.0).to(tl.float32)
        read = tl.load(c + pairs + t, mask=both, other=0.0).to(tl.float32)
        x = tl.exp(step[:, None] * decay) * x + (step * now)[:, None] * drive
        y = tl.sum(x * read, axis=1) + skip * now
        if HAS_Z:
            gate = tl.load(z + lines + t, mask=here, other=0.0).to(tl.float32)
            tl.store(z + lines + t, y * gate / (1.0 + tl.exp(-gate)), mask=here)
        else:
            tl.store(delta + lines + t, y, mask=here)
    tl.store(held, x, mask=live)


def selective_scan_fwd(
    u, delta, A, B, C, D_, z_, delta_bias_, delta_softplus, query_start_loc, cache_indices,
    has_initial_state, ssm_states, pad_slot_id, block_size=1024,
    block_idx_first_scheduled_token=None, block_idx_last_scheduled_token=None,
    initial_state_idx=None,
):  # fmt: skip
    packed = query_start_loc is not None
    dim, state = A.shape
    groups, length = B.shape[-3], u.shape[-1]
    sequences = query_start_loc.shape[0] - 1 if packed else u.shape[0]
    channels = min(triton.next_power_of_2(dim), 32)
    _scan[(sequences, triton.cdiv(dim, channels))](
        u, delta, A, B, C, D_, z_, delta_bias_, query_start_loc, cache_indices,
        has_initial_state, ssm_states, dim, state, dim // groups, length,
        0 if packed else u.stride(0), 0 if packed else B.stride(0), length, pad_slot_id,
        SOFTPLUS=delta_softplus, PACKED=packed, HAS_D=D_ is not None, HAS_Z=z_ is not None,
        HAS_BIAS=delta_bias_ is not None, HAS_INITIAL=has_initial_state is not None,
        CHANNELS=channels, STATE=triton.next_power_of_2(state), num_warps=1,
    )  # fmt: skip
