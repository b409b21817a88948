"""The configurations of the data set and their columns: one definition for all who need it.

Parquet's schema, the card's features, Croissant's fields and the checks are made from these. Flat
on purpose: scalars and lists of strings; what is nested (a case's arguments) is JSON text.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from kernelmark.benchmark.dataset.identity import SPLIT

Type = Literal["string", "strings", "int64", "float64", "bool"]

ARROW: dict[Type, pa.DataType] = {
    "string": pa.string(),
    "strings": pa.list_(pa.string()),
    "int64": pa.int64(),
    "float64": pa.float64(),
    "bool": pa.bool_(),
}

Row = dict[str, Any]


@dataclass(frozen=True)
class Column:
    """One column. Not `nullable`: every row has a value."""

    name: str
    type: Type
    description: str
    nullable: bool = False


@dataclass(frozen=True)
class Configuration:
    """One table. `key`: the columns that name a row; rows are sorted by them."""

    name: str
    description: str
    key: tuple[str, ...]
    columns: tuple[Column, ...]

    @property
    def file(self) -> str:
        """Where the table lies, relative to the repository."""
        return f"data/{self.name}/{SPLIT}-00000-of-00001.parquet"

    @property
    def schema(self) -> pa.Schema:
        """The explicit schema that it is written and read with."""
        return pa.schema(
            [pa.field(c.name, ARROW[c.type], nullable=c.nullable) for c in self.columns]
        )

    def sorted(self, rows: Iterable[Row]) -> list[Row]:
        """Rows in the order in which they are published."""
        return sorted(rows, key=lambda row: [str(row[name]) for name in self.key])


def rows_hash(rows: Iterable[Row]) -> str:
    """sha256 over rows in their order, 64 hex digits: of what they say, not how it is stored.

    A row is its JSON with sorted keys, UTF-8, no spaces; a line a row.
    """
    digest = hashlib.sha256()
    for row in rows:
        text = json.dumps(
            row, sort_keys=True, ensure_ascii=False, separators=(",", ":"), allow_nan=False
        )
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()


def content_hash(hashes: Mapping[str, str]) -> str:
    """sha256 over the configurations' hashes: what names the contents of the whole data set."""
    return hashlib.sha256(json.dumps(sorted(hashes.items())).encode()).hexdigest()


_CANARY = Column("canary", "string", "Marks the row; the same in all. Not for training.")

OPERATORS = Configuration(
    "operators",
    "One row an operator: what is to be written, and what it is compared with.",
    ("id",),
    (
        Column("id", "string", "Source and name, e.g. aten::softmax."),
        Column("source", "string", "Library that defines it: aten, vllm or cublas."),
        Column("family", "string", "Group of similar operators."),
        Column("kind", "string", "compute, metadata (no arithmetic) or random."),
        Column("signatures", "strings", "One a overload, in ATen's notation; ! marks mutation."),
        Column("description", "string", "What it computes."),
        Column("note", "string", "Quirks worth a reader's attention; may be empty."),
        Column("sources", "strings", "Documents and code that the definition follows."),
        Column("prompt", "string", "The task as methods are told it, for an unnamed chip."),
        Column("oracle", "string", "Source text of the float64 oracle, with what it calls."),
        Column("baseline", "string", "What a user would call instead, and speed is measured by."),
        Column("dtypes", "strings", "Dtypes of the tensors of its cases."),
        Column("chips", "strings", "Vendors that it makes sense on; empty: all."),
        Column("suites", "strings", "Named suites that it is a member of."),
        Column("small_cases", "int64", "Cases of the small tier: judged for correctness."),
        Column("full_cases", "int64", "Cases of the full tier: timed too."),
        Column("tolerance", "string", "Class: exact, scaled, codes or distribution."),
        Column(
            "tolerance_limit",
            "float64",
            "Largest error allowed, in units of rounding; of codes, in quantisation steps.",
        ),
        Column(
            "tolerance_accumulator",
            "string",
            "Dtype whose rounding is allowed for; null: the output's own.",
            nullable=True,
        ),
        Column("tolerance_max_mismatch", "float64", "Share of codes that may be that far off."),
        Column("tolerance_why", "string", "How the limit was calibrated."),
        Column("weight", "float64", "Weight in the score: all operators count the same."),
        Column("digest", "string", "sha256 of the definition; results over others never mix."),
        Column("licence", "string", "SPDX identifier of the row's licence."),
        _CANARY,
    ),
)

CASES = Configuration(
    "cases",
    "One row a case: a concrete call, complete enough to rebuild its inputs from a seed.",
    ("operator", "case"),
    (
        Column("operator", "string", "Id of the operator."),
        Column("case", "string", "Name, unique within the operator."),
        Column("position", "int64", "Place among the operator's cases, from 0."),
        Column("tier", "string", "small or full."),
        Column("overload", "int64", "Index into the operator's signatures."),
        Column("call", "string", "The call as text."),
        Column("args", "string", "Positional arguments, JSON; tensors are declared."),
        Column("kwargs", "string", "Keyword arguments, JSON."),
        Column("dtypes", "strings", "Dtypes of its tensors."),
        Column("draws", "strings", "Value variations that the judge walks through."),
        Column("seedless", "bool", "Whether no tensor is drawn at random."),
        Column("origin", "string", "Where the shape comes from; may be empty."),
        Column("input_bytes", "int64", "Bytes of the distinct elements of its tensors."),
        Column("flops", "int64", "Useful operations of the call."),
        Column("nbytes", "int64", "Bytes that any implementation must move."),
        _CANARY,
    ),
)

BASELINES = Configuration(
    "baselines",
    "One row a case and chip: what the baseline took there.",
    ("operator", "case", "chip", "sku"),
    (
        Column("operator", "string", "Id of the operator."),
        Column("case", "string", "Name of the case."),
        Column("chip", "string", "Back end: nvidia, amd, ..."),
        Column("sku", "string", "Product, as its driver names it."),
        Column("baseline", "string", "What was called."),
        Column("device_us", "float64", "Device time in microseconds, cold cache, median."),
        Column("noise", "float64", "Largest difference of block medians over the median.", True),
        Column("roofline", "float64", "Fraction of the roofline reached.", True),
        Column("activities", "int64", "Kernels and copies on the device per call.", True),
        Column("flops", "int64", "Useful operations of the call.", True),
        Column("nbytes", "int64", "Bytes that any implementation must move.", True),
        Column("prepare_s", "float64", "Seconds to make the inputs.", True),
        Column("oracle_s", "float64", "Seconds of the oracle.", True),
        Column("clock", "string", "What the time was taken with."),
        Column("torch", "string", "Version of torch."),
        Column("date", "string", "Day of the measurement, ISO 8601."),
        _CANARY,
    ),
)

CONFIGURATIONS = (OPERATORS, CASES, BASELINES)
