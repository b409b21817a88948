"""What the accelerator of this machine is to a compiler: enough to compile for it without it.

A process that pretends to have the device (`_pretend`, `_compiling`) must answer the candidate's
questions as the device would, so that the same kernels are compiled and found again. Device layer.
"""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass, replace
from typing import Any

from kernelmark.evaluators.chips.base import Chip
from kernelmark.evaluators.chips.targets import CHIPS, CompileTarget

#: what torch tells of a CUDA device that host code may ask for
_ANSWERS = (
    *("name", "major", "minor", "multi_processor_count", "warp_size", "total_memory"),
    *("shared_memory_per_block", "shared_memory_per_block_optin", "L2_cache_size", "gcnArchName"),
    *("shared_memory_per_multiprocessor", "regs_per_multiprocessor"),
    *("max_threads_per_multi_processor", "max_threads_per_block", "is_integrated"),
)


@dataclass(frozen=True)
class Here:
    """A compile target's name, and the answers of the device that is here (plain values)."""

    target: str
    answers: dict[str, Any]

    def as_message(self) -> dict[str, Any]:
        """For a process that compiles; `from_message` takes it."""
        return asdict(self)

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Here:
        """What `as_message` gave."""
        return cls(str(message["target"]), dict(message["answers"]))

    def compile_target(self) -> CompileTarget:
        """The target with this device's own count of multiprocessors and name."""
        target = next(chip for chip in CHIPS if chip.name == self.target)
        return replace(
            target,
            product=str(self.answers.get("name", target.product)),
            multiprocessors=int(self.answers.get("multi_processor_count", target.multiprocessors)),
        )


def device_here(chip: Chip) -> Here | None:
    """The device of `chip` as a compile target; None where it is none that is known here.

    Asks torch about the device in use, so `chip` must be usable. A compile target is its own.
    """
    names = {target.name for target in CHIPS}
    if chip.name in names:
        return Here(chip.name, {})
    if chip.attests != "executed" or chip.device != "cuda":
        return None
    device = importlib.import_module("torch").cuda.get_device_properties(0)
    answers = {name: getattr(device, name) for name in _ANSWERS if hasattr(device, name)}
    plain = {k: v for k, v in answers.items() if isinstance(v, bool | int | float | str)}
    if chip.vendor == "nvidia":
        name = f"sm_{device.major}{device.minor}"
    else:
        name = str(plain.get("gcnArchName", "")).split(":")[0]
    return Here(name, plain) if name in names else None
