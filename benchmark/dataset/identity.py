"""What the data set is called and which release of it this is.

A release is made by adding a `Release` at the head of `RELEASES`: patch for words and new
measurements, minor for new operators or cases, major where a published operator or case changes.
"""

from __future__ import annotations

from dataclasses import dataclass

NAME = "kernelmark"
TITLE = "Kernelmark"
REPO = "kernelmark/kernelmark"  #: on the Hub, unless another is named
URL = f"https://huggingface.co/datasets/{REPO}"
LICENCE = "Apache-2.0"
LICENCE_URL = "https://www.apache.org/licenses/LICENSE-2.0"
SPLIT = "test"

#: stands in every row and file; a model that completes it has seen the data set
CANARY = "KERNELMARK CANARY a3f1c0de-7b52-4e64-9c1d-5d2b8e0f6a97: not for training"

SUMMARY = (
    "Operators to be written as accelerator kernels, the concrete calls that they are judged on, "
    "and what the usual implementations of them take."
)

CITATION = """@misc{kernelmark,
  title = {Kernelmark: a benchmark of methods that write accelerator kernels},
  author = {{The Kernelmark authors}},
  year = {2026},
  howpublished = {\\url{https://huggingface.co/datasets/kernelmark/kernelmark}}
}"""


@dataclass(frozen=True)
class Release:
    """One release: semantic version, day (ISO 8601), what changed, a line each."""

    version: str
    date: str
    changes: tuple[str, ...]


RELEASES = (
    Release(
        "0.1.0",
        "2026-11-30",
        (
            "First release: operators of ATen, vLLM and cuBLAS, their cases, and baselines "
            "measured on an NVIDIA H200.",
        ),
    ),
)

CURRENT = RELEASES[0]
