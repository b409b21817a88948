"""Selective scan (Mamba): a diagonal linear recurrence with input-dependent steps.

Oracle and formulation: a segmented scan by doubling, float64 and float32. Second statement: NumPy,
token by token.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from kernelmark.operators.building import FLOATS, dtype_name, spec
from kernelmark.operators.draws import Call
from kernelmark.operators.records import Case, Cost, Expected, Mutant, Operator, Tolerance
from kernelmark.operators.vllm.baselines import NAME, CustomOp
from kernelmark.operators.vllm.parts import brain, distinct, half, single

_PAD = -1
#: channels that the oracle scans at once
_CHUNK = 512

_SCAN = Tolerance(
    limit=8.0,
    why="a step costs an exp of 2 ulp and its argument's rounding, a product and a sum; errors of "
    "older steps decay with the state, so a few steps' worth remains",
)


def _spread(total: int, sequences: int) -> list[int]:
    """Sequence lengths of a case: unequal, at least 1, `total` together."""
    lengths = [max(1, total * (2 * i + 1) // sequences**2) for i in range(sequences)]
    lengths[-1] += total - sum(lengths)
    return lengths


@functools.cache
def _cases() -> Sequence[Case]:
    def case(
        name: str, dim: int, total: int, state: int = 16, groups: int = 1, batch: int = 1,
        dtype: torch.dtype = single, options: str = "DzbSi", packed: bool = True,
        states: torch.dtype = single, idle: bool = False, origin: str = "",
    ) -> Case:  # fmt: skip
        """`options`: D, z and b for D_, z_ and delta_bias_, S for softplus, i for initial states.
        `packed`: sequences in one row; else [batch, dim, total]."""
        lead = () if packed else (batch,)
        x = spec((*lead, dim, total), dtype)
        step = spec((*lead, dim, total), dtype, fill="uniform", low=0.0, high=0.5)
        mixed = spec((*lead, groups, state, total), dtype)
        slots = batch + 2
        args = (
            x,
            step,
            spec((dim, state), fill="uniform", low=-4.0, high=-0.05),
            mixed,
            mixed,
            spec((dim,)) if "D" in options else None,
            x if "z" in options else None,
            spec((dim,), fill="uniform", low=-0.5, high=0.5) if "b" in options else None,
            "S" in options,
            spec((batch + 1,), torch.int32, fill="zeros") if packed else None,
            spec((batch,), torch.int32, fill="zeros") if packed else None,
            spec((batch,), torch.bool, fill="bool") if "i" in options else None,
            spec((slots if packed else batch, dim, state), states),
            _PAD,
        )
        tier: Any = "full" if origin else "small"
        name = f"{name}-idle" if idle else name
        # A scan of inputs 64 times larger says nothing more, and steps are drawn as declared.
        return Case(name, args, tier=tier, origin=origin, draws=("base", "base", "structured"))

    mamba, falcon = "Mamba 2.8B: 5120 channels", "Falcon Mamba 7B: 8192 channels"
    return (
        *(case(dtype_name(t), 8, 20, batch=3, dtype=t) for t in FLOATS),
        case("plain", 8, 18, options="", batch=2),
        case("with-d", 8, 18, options="D", batch=2, dtype=half),
        case("softplus-only", 6, 15, options="S", batch=1),
        case("gate-only", 6, 15, options="z", batch=2, dtype=brain),
        case("initial-states", 8, 20, options="DSi", batch=4),
        case("two-groups", 8, 17, groups=2, batch=2, dtype=half),
        case("four-states", 8, 16, state=4, batch=2),
        case("one-token-each", 8, 3, batch=3),
        case("padded-sequence", 8, 20, batch=3, idle=True),
        case("batched", 6, 14, batch=2, packed=False, options="DzbS"),
        case("batched-initial", 6, 14, batch=2, packed=False, dtype=half),
        case("half-states", 8, 20, batch=2, dtype=half, states=half),
        case("long", 2, 300, batch=1, state=8),
        case("mamba-2.8b", 5120, 4096, batch=8, dtype=brain, options="DzbSi", origin=mamba),
        case("mamba-2.8b-float16", 5120, 4096, batch=4, dtype=half, origin=mamba),
        case("falcon-mamba-7b", 8192, 4096, batch=8, dtype=brain, origin=falcon),
        case("falcon-mamba-7b-one", 8192, 2048, batch=1, dtype=brain, origin=falcon),
        case("jamba-mini", 8192, 2048, batch=16, dtype=brain,
             origin="Jamba Mini: 8192 channels, 16 states"),
        case("mamba-130m-float32", 1536, 8192, batch=8, dtype=single,
             origin="Mamba 130M: 1536 channels"),
    )  # fmt: skip


def _prepare(call: Call, case: Case, generator: torch.Generator) -> None:
    starts, indices, states = call.args[9], call.args[10], call.args[12]
    if starts is None:
        return
    sequences = len(starts) - 1
    lengths = torch.tensor(_spread(call.args[0].shape[-1], sequences), device=starts.device)
    order = distinct(sequences, (sequences,), generator, starts.device)
    starts[0] = 0
    starts[1:] = lengths[order].cumsum(0)
    indices.copy_(distinct(len(states), (sequences,), generator, starts.device))
    if case.name.endswith("-idle"):
        indices[1] = _PAD


def _packed(args: tuple[Any, ...]) -> dict[str, Any]:
    """Arguments as one packed row of sequences: [dim, total], with each token's sequence."""
    u, delta, a, b, c, d, z, bias, softplus, starts, indices, initial, states = args[:13]
    device = u.device
    if starts is None:
        batch, length = u.shape[0], u.shape[2]
        joined = [None if t is None else t.movedim(0, -2).flatten(-2) for t in (u, delta, b, c, z)]
        u, delta, b, c, z = joined
        starts = torch.arange(batch + 1, device=device) * length
    sequences = len(starts) - 1
    if indices is None:
        indices = torch.arange(sequences, device=device)
    token = torch.arange(u.shape[1], device=device)
    owner = torch.searchsorted(starts[1:].long(), token, right=True)
    return {
        "u": u, "delta": delta, "a": a, "b": b, "c": c, "d": d, "z": z, "bias": bias,
        "softplus": softplus, "states": states, "owner": owner, "first": token == starts[owner],
        "last": starts[1:].long() - 1, "indices": indices.long(),
        "initial": torch.zeros(sequences, dtype=torch.bool, device=device)
        if initial is None else initial,
    }  # fmt: skip


def _scan(work: torch.dtype, p: dict[str, Any], rows: slice) -> dict[str, torch.Tensor]:
    """Outputs [rows, total], final states [sequences, rows, state], and their magnitudes."""
    u = p["u"][rows].to(work)
    step = p["delta"][rows].to(work)
    if p["bias"] is not None:
        step = step + p["bias"][rows].to(work).unsqueeze(1)
    if p["softplus"]:
        step = torch.nn.functional.softplus(step)
    dim, groups = len(p["u"]), len(p["b"])
    group = torch.arange(dim, device=u.device)[rows] // (dim // groups)
    decay = torch.exp(step.unsqueeze(1) * p["a"][rows].to(work).unsqueeze(2))
    drive = (step * u).unsqueeze(1) * p["b"].to(work)[group]
    c = p["c"].to(work)[group]
    begin = p["states"][p["indices"].clamp_min(0)][:, rows].to(work)
    begin = torch.where(p["initial"].view(-1, 1, 1), begin, 0.0)
    before = begin[p["owner"]].permute(1, 2, 0)  # [rows, state, total]
    first = p["first"]
    head = torch.where(first, decay * before, 0.0)
    carried = torch.where(first, 0.0, decay)
    state = _doubled(carried, drive + head)
    size = _doubled(carried, drive.abs() + head.abs())
    y, spread = (state * c).sum(1), (size * c.abs()).sum(1)
    if p["d"] is not None:
        skip = p["d"][rows].to(work).unsqueeze(1) * u
        y, spread = y + skip, spread + skip.abs()
    if p["z"] is not None:
        z = p["z"][rows].to(work)
        gate = torch.nn.functional.silu(z)
        y, spread = y * gate, spread * gate.abs() * (1 + z.abs())
    final, reach = (t[:, :, p["last"]].permute(2, 0, 1) for t in (state, size))
    return {"y": y, "spread": spread, "final": final, "reach": reach}


def _doubled(decay: torch.Tensor, drive: torch.Tensor) -> torch.Tensor:
    """x[t] = decay[t] * x[t - 1] + drive[t] along the last dimension, in log2(length) passes."""
    step, length = 1, drive.shape[-1]
    while step < length:
        older = torch.nn.functional.pad(drive[..., :-step], (step, 0))
        drive = drive + decay * older
        decay = decay * torch.nn.functional.pad(decay[..., :-step], (step, 0))
        step *= 2
    return drive


def _unpacked(y: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A packed row back in the shape of the argument."""
    if like.dim() == 2:
        return y
    return y.reshape(len(y), like.shape[0], like.shape[2]).transpose(0, 1)


def _results(work: torch.dtype, args: tuple[Any, ...], chunk: int) -> dict[str, torch.Tensor]:
    """All channels, with outputs of skipped sequences as they were."""
    p = _packed(args)
    dim = len(p["u"])
    parts = [_scan(work, p, slice(i, i + chunk)) for i in range(0, dim, chunk)]
    made = {name: torch.cat([part[name] for part in parts], 1 if name in ("final", "reach") else 0)
            for name in parts[0]}  # fmt: skip
    live = p["indices"] != args[13]
    target = args[6] if args[6] is not None else args[1]
    written = p["z"] if args[6] is not None else p["delta"]
    y = torch.where(live[p["owner"]], made["y"], written.to(work))
    made["y"] = _unpacked(y, target)
    made["spread"] = _unpacked(torch.where(live[p["owner"]], made["spread"], 0.0), target)
    # Slots of skipped sequences are left alone: they are written with what they hold.
    slot = p["indices"].clamp_min(0)
    kept = torch.where(live.view(-1, 1, 1), made["final"], args[12][slot].to(work))
    order = torch.argsort(live.long(), stable=True)  # living sequences write last
    made["states"] = args[12].to(work).index_put((slot[order],), kept[order])
    zero = torch.zeros_like(made["states"])
    reach = torch.where(live.view(-1, 1, 1), made["reach"], 0.0)
    made["reach"] = zero.index_put((slot[order],), reach[order])
    return made


def _oracle(*args: Any) -> list[Expected]:
    made = _results(torch.float64, args, _CHUNK)
    delta, z, states = args[1], args[6], args[12]
    results = [Expected(made["y"], args[0].dtype, made["spread"])]
    if z is not None:  # the steps are scratch then
        anything = torch.zeros((), dtype=torch.bool, device=delta.device).expand(delta.shape)
        results.insert(0, Expected(delta.double(), delta.dtype, mask=anything))
    return [*results, Expected(made["states"], states.dtype, made["reach"])]


def _second(*args: Any) -> list[Any]:
    u, delta, a, b, c, d, z, bias, softplus, starts, indices, initial, states, pad = args[:14]
    wide: list[Any] = [
        None if t is None else t.double().numpy() for t in (u, delta, a, b, c, d, z, bias)
    ]
    u, delta, a, b, c, d, z, bias = wide
    target = z if z is not None else delta
    out, final = target.copy(), states.double().numpy().copy()
    jobs: list[tuple[int, slice, tuple[int, ...]]]
    if starts is None:
        jobs = [(i, slice(None), (i,)) for i in range(len(u))]
    else:
        jobs = [(i, slice(int(starts[i]), int(starts[i + 1])), ()) for i in range(len(starts) - 1)]
    group = np.arange(len(a)) // (len(a) // b.shape[-3])
    for i, span, lead in jobs:
        slot = i if indices is None else int(indices[i])
        if slot == pad:
            continue
        keep = initial is not None and bool(initial[i])
        x = final[slot].copy() if keep else np.zeros(a.shape)
        at = range(u.shape[-1])[span]
        for t in at:
            dt = delta[(*lead, slice(None), t)] + (0 if bias is None else bias)
            dt = np.logaddexp(0, dt) if softplus else dt
            now = u[(*lead, slice(None), t)]
            x = np.exp(dt[:, None] * a) * x + (dt * now)[:, None] * b[(*lead, ..., t)][group]
            y = (x * c[(*lead, ..., t)][group]).sum(1) + (0 if d is None else d * now)
            if z is not None:
                gate = z[(*lead, slice(None), t)]
                y = y * gate / (1 + np.exp(-gate))
            out[(*lead, slice(None), t)] = y
        final[slot] = x
    return [out, final] if z is None else [delta, out, final]


def _selective_scan_fwd(*args: Any) -> None:
    made = _results(torch.float32, args, len(args[2]))
    (args[6] if args[6] is not None else args[1]).copy_(made["y"])
    args[12].copy_(made["states"])


def _cost(case: Case) -> Cost:
    u, delta, a, b, c, d, z, bias = case.args[:8]
    states = case.args[12]
    used = [t for t in (u, delta, a, b, c, d, z, bias) if t is not None]
    sequences = states.shape[0] - 2 if case.args[9] is not None else states.shape[0]
    held = 2 * sequences * a.numel * states.dtype.itemsize
    nbytes = sum(t.nbytes for t in used) + u.nbytes + held
    return Cost(flops=u.numel * (7 * a.shape[1] + 4), nbytes=nbytes)


def _mutant(variant: str) -> Any:
    def mutant(*args: Any) -> None:
        given = list(args)
        if variant == "skip connection dropped":
            given[5] = None
        if variant == "bias of steps dropped":
            given[7] = None
        if variant == "softplus turned round":
            given[8] = not args[8]
        if variant == "initial states ignored":
            given[11] = None
        if variant == "sequences run together" and args[9] is not None:
            joined = torch.zeros_like(args[9])
            joined[-1] = args[9][-1]
            given[9] = joined
        if variant == "states not decayed":
            given[2] = torch.zeros_like(args[2])
        if variant == "first group for all":
            given[3], given[4] = (t[..., :1, :, :].expand_as(t) for t in (args[3], args[4]))
        if variant == "final states left":
            given[12] = args[12].clone()
        if variant == "gate without silu" and args[6] is not None:
            ungated = [*given[:6], None, *given[7:]]
            ungated[1] = args[1].clone()
            _selective_scan_fwd(*ungated)
            args[6].copy_(ungated[1].float() * args[6].float())
            return
        _selective_scan_fwd(*given)

    return mutant


OPERATORS = (
    Operator(
        id="vllm::selective_scan_fwd",
        family="scan (state space)",
        signatures=(
            "selective_scan_fwd(u: Tensor, delta: Tensor!, A: Tensor, B: Tensor, C: Tensor, "
            "D_: Tensor?, z_: Tensor!?, delta_bias_: Tensor?, delta_softplus: bool, "
            "query_start_loc: Tensor?, cache_indices: Tensor?, has_initial_state: Tensor?, "
            "ssm_states: Tensor!, pad_slot_id: int, block_size: int=1024, "
            "block_idx_first_scheduled_token: Tensor?=None, "
            "block_idx_last_scheduled_token: Tensor?=None, initial_state_idx: Tensor?=None) -> ()",
        ),
        description=(
            "Mamba's selective scan over a batch of sequences. Packed: `query_start_loc` (int32 "
            "[sequences + 1]) cuts the tokens; `u` and `delta` are [dim, total], B and C [groups, "
            "dstate, total]; `cache_indices` (int32 [sequences]) gives each sequence's slot of "
            "`ssm_states` [slots, dim, dstate], or `pad_slot_id`: that sequence is skipped, its "
            "outputs stay. Not packed (`query_start_loc` and `cache_indices` None): [batch, dim, "
            "length] and [batch, groups, dstate, length], slot i for sequence i. u, delta, B, C "
            "and z share a dtype (float16, bfloat16, float32); `A` [dim, dstate], `D_` and "
            "`delta_bias_` [dim] are float32; all contiguous. For channel d, with n over dstate "
            "and g = d // (dim / groups): dt = delta[d, t] + delta_bias_[d], then log(1 + exp(dt)) "
            "if `delta_softplus`; x[n] = exp(dt * A[d, n]) * x[n] + dt * u[d, t] * B[g, n, t]; y = "
            "sum over n of x[n] * C[g, n, t] + D_[d] * u[d, t]; with z: y * z * sigmoid(z). x "
            "starts as the slot's state where `has_initial_state` (bool [sequences]) holds, else "
            "as 0, and ends in the slot, rounded to the dtype of `ssm_states`. y is written over "
            "`z_` where it is given (`delta` is then undefined afterwards), else over `delta`. "
            "float32 inside. The block arguments are at their defaults."
        ),
        sources=(
            "vLLM 0.13, vllm._custom_ops.selective_scan_fwd",
            "csrc/mamba/mamba_ssm/selective_scan_fwd.cu",
            "Gu and Dao, Mamba (2023), algorithm 2",
        ),
        cases=_cases,
        oracle=_oracle,
        second=_second,
        baseline=CustomOp("selective_scan_fwd", _selective_scan_fwd),
        baseline_name=NAME,
        cost=_cost,
        tolerance=_SCAN,
        mutants=tuple(
            Mutant(name, _mutant(name))
            for name in (
                "skip connection dropped",
                "bias of steps dropped",
                "softplus turned round",
                "initial states ignored",
                "sequences run together",
                "states not decayed",
                "first group for all",
                "final states left",
                "gate without silu",
            )
        ),
        prepare=_prepare,
    ),
)
