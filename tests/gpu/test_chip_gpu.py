"""The adapter of whatever accelerator is in this machine, on the hardware itself."""

from __future__ import annotations

import pytest

from kernelmark.evaluators.chips.registry import all_chips

CHIPS = [c for c in all_chips().values() if c.attests == "executed" and c.detect().usable]
pytestmark = pytest.mark.skipif(not CHIPS, reason="no accelerator here")


def test_exactly_one_vendor_claims_this_machine() -> None:
    assert len(CHIPS) == 1


@pytest.mark.parametrize("chip", CHIPS, ids=lambda c: c.name)
def test_adapter(chip) -> None:  # type: ignore[no-untyped-def]
    import torch

    found = chip.detect()
    assert found.count == getattr(torch, chip.device).device_count()
    health = chip.health(0)
    assert health.ok, health.why
    memory = chip.memory(0)
    assert memory is not None
    assert 0 < memory.free_bytes <= memory.total_bytes
    chip.synchronize()
    peaks = chip.peaks(found.sku)
    assert peaks is not None, f"no peaks for {found.sku}: add them"
    cache = getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)
    assert chip.flush_bytes(found.sku) >= 2 * cache
    assert chip.timer() is not None
