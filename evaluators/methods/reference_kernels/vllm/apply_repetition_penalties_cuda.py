"""Repetition penalties: elementwise over a tile of one sequence's vocabulary.

Logits that did not occur are neither computed nor written back: the store is masked by the two
masks, so untouched lines of the logits are read but never written.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def _penalise(logits, prompt, output, penalties, vocabulary, TILE: tl.constexpr):
    sequence = tl.program_id(0).to(tl.int64)
    token = tl.program_id(1) * TILE + tl.arange(0, TILE)
    inside = token < vocabulary
    at = sequence * vocabulary + token
    seen = tl.load(prompt + at, mask=inside, other=0) | tl.load(output + at, mask=inside, other=0)
    penalty = tl.load(penalties + sequence).to(tl.float32)
    x = tl.load(logits + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(logits + at, tl.where(x > 0, x / penalty, x * penalty), mask=inside & (seen != 0))


def apply_repetition_penalties_cuda(logits, prompt_mask, output_mask, repetition_penalties):
    sequences, vocabulary = logits.shape
    if logits.numel() == 0:
        return
    tile = min(triton.next_power_of_2(vocabulary), 2048)
    grid = (sequences, triton.cdiv(vocabulary, tile))
    _penalise[grid](
        logits,
        prompt_mask.view(torch.uint8),
        output_mask.view(torch.uint8),
        repetition_penalties,
        vocabulary,
        TILE=tile,
        num_warps=8,
    )
