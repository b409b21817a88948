"""What a chip adapter is: one file in this folder, with one `CHIP` (or several `CHIPS`) in it.

Adapters are found by folder and, for out-of-tree vendors, by the entry point group
``kernelmark.chips`` (`registry`). Importing one probes nothing and imports neither torch nor
triton; `detect` does. Device layer.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Protocol

from kernelmark.evaluators.grading.records import Attestation

NEVER = "never run on hardware"


@dataclass(frozen=True)
class Peaks:
    """Spec-sheet ceilings of one SKU, dense (no structured sparsity), with their source and date.

    `flops_per_s` by dtype name (``float16``, ``tf32``, ``int8``, ...); multiply and add count two.
    """

    bytes_per_s: float
    flops_per_s: dict[str, float]
    last_level_cache_bytes: int
    source: str

    def least_us(self, nbytes: float, flops: float, dtypes: Collection[str] | None = None) -> float:
        """The least time for so much traffic and arithmetic, microseconds. `dtypes`: of which the
        fastest that has a peak does the arithmetic; None: whatever is fastest here, as products of
        a wide type can be made of many of a narrow one."""
        rates = [
            rate for name, rate in self.flops_per_s.items() if dtypes is None or name in dtypes
        ]
        return 1e6 * max(nbytes / self.bytes_per_s, flops / max(rates) if rates else 0.0)


@dataclass(frozen=True)
class Detection:
    """Whether a chip can be used here. `why` says why not, or what was found."""

    usable: bool
    why: str
    sku: str = ""
    count: int = 0
    driver: str = ""  #: version of the vendor's driver or runtime, where it is told


@dataclass(frozen=True)
class Memory:
    """Device memory of one accelerator, as the runtime tells it."""

    free_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class Health:
    """Whether an accelerator computes at all. `why` is one line for a person."""

    ok: bool
    why: str


class Chip(Protocol):
    """A back end. `name` is the word on the command line; `device` torch's device type."""

    name: str
    vendor: str
    device: str
    attests: Attestation
    verified_on: str  #: last hardware it was verified on, or `NEVER`
    notes: str  #: toolchain notes that go into prompts
    dtypes: frozenset[str]  #: torch dtype names (``bfloat16``) that kernels can use
    plugin: str  #: module to import after torch (``torch_npu``); empty where torch has the device
    visible_variable: str  #: environment variable that selects accelerators; empty: none
    profiler: str  #: source of a device trace (``cupti``); empty where there is none

    def detect(self) -> Detection:
        """Looks for the hardware and the software it needs; never raises."""
        ...

    def prepare(self, environment: dict[str, str], index: int) -> None:
        """Sets the variables that a runner process needs (visible device, interpreter)."""
        ...

    def preload(self) -> None:
        """Called once in the process that forks runners: what can be done before there is a
        device context, and makes none."""
        ...

    def activate(self) -> None:
        """Called once in the runner before the candidate is imported (plug-ins, Triton driver)."""
        ...

    def synchronize(self) -> None:
        """Waits for all work on the device."""
        ...

    def peaks(self, sku: str) -> Peaks | None:
        """Ceilings of a SKU; None where they are not known."""
        ...

    def flush_bytes(self, sku: str) -> int:
        """Bytes to write for a cold last-level cache: at least twice its size; 0 without one."""
        ...

    def memory(self, index: int = 0) -> Memory | None:
        """Free and total device memory of one accelerator; None where the runtime tells none."""
        ...

    def health(self, index: int = 0) -> Health:
        """Computes something small whose answer is known; never raises."""
        ...

    def unsupported(self, dtypes: tuple[str, ...]) -> str:
        """Why a case of these dtypes cannot run here; empty where it can."""
        ...

    def timer(self) -> Any | None:
        """A timer (`evaluators.grading.timing`), or None where speed is never measured."""
        ...


def missing_dtypes(chip: str, supported: frozenset[str], dtypes: tuple[str, ...]) -> str:
    """The one sentence about dtypes that a chip lacks; empty where none is lacking."""
    lacking = sorted(set(dtypes) - supported)
    return f"{chip} has no {', '.join(lacking)}" if lacking else ""


#: what Triton knows on every GPU back end; adapters add the 8-bit floats that theirs converts
COMMON_DTYPES = frozenset(
    {"float64", "float32", "float16", "bfloat16", "complex64", "complex128", "bool"}
    | {"int64", "int32", "int16", "int8", "uint64", "uint32", "uint16", "uint8"}
)
