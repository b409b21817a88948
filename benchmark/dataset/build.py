"""`kernelmark dataset build`: writes the repository, the same bytes from the same definitions.

Needs no network and takes no time of day: dates are those of the release.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from kernelmark.benchmark import baseline_times
from kernelmark.benchmark.dataset.card import make_card
from kernelmark.benchmark.dataset.croissant import make_croissant
from kernelmark.benchmark.dataset.identity import (
    CANARY,
    CITATION,
    CURRENT,
    LICENCE,
    NAME,
    SPLIT,
    SUMMARY,
    TITLE,
    URL,
)
from kernelmark.benchmark.dataset.rows import baseline_rows, case_rows, operator_rows
from kernelmark.benchmark.dataset.schema import (
    CONFIGURATIONS,
    Configuration,
    Row,
    content_hash,
    rows_hash,
)
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.prompts import Setting
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import all_operators

MANIFEST = "kernelmark.json"
CROISSANT = "croissant.json"
CARD = "README.md"
EVAL = "eval.yaml"
CITATION_FILE = "CITATION.cff"


@dataclass(frozen=True)
class Built:
    """What was written. `stale`: measured baselines left out, as their case is no more."""

    version: str
    content_hash: str
    rows: dict[str, int]
    files: dict[str, dict[str, Any]]  #: sha256 and bytes by path
    stale: int


def build(
    root: Path,
    setting: Setting,
    baselines: Path = baseline_times.FOLDER,
    operators: Sequence[Operator] = (),
) -> Built:
    """Writes the data set of `operators` (else all) to `root`; prompts are for `setting`.

    `baselines`: folder of measured baselines; those of other cases are left out.
    `UserError` where `root` holds something that no build has written.
    """
    _check_target(root)
    operators = operators or list(all_operators().values())
    cases = case_rows(operators)
    measured, stale = baseline_rows(baselines.glob("*.parquet"), cases)
    tables = {"operators": operator_rows(operators, setting), "cases": cases, "baselines": measured}
    for configuration in CONFIGURATIONS:
        _write_table(root, configuration, tables[configuration.name])
    hashes = {name: rows_hash(rows) for name, rows in tables.items()}
    _write_texts(root, tables, content_hash(hashes))
    before = _listed(root)
    manifest = _write_manifest(root, tables, hashes)
    for path in before - set(manifest["files"]):
        (root / path).unlink(missing_ok=True)
    return Built(
        CURRENT.version,
        manifest["content_hash"],
        {name: len(rows) for name, rows in tables.items()},
        manifest["files"],
        stale,
    )


def sha256_of(path: Path) -> str:
    """sha256 of a file, 64 hex digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _check_target(root: Path) -> None:
    if root.exists() and not root.is_dir():
        raise UserError(f"{root} is a file; name a folder")
    found = {path.name for path in root.iterdir()} if root.is_dir() else set()
    if MANIFEST not in found and not found <= {"data"}:  # tables alone: a build was broken off
        raise UserError(f"{root} holds something else; name a new folder")


def _listed(root: Path) -> set[str]:
    """Files of the build that stood here before."""
    path = root / MANIFEST
    listed = set(json.loads(path.read_text())["files"]) if path.exists() else set()
    return {name for name in listed if (root / name).resolve().is_relative_to(root.resolve())}


def _write_table(root: Path, configuration: Configuration, rows: Sequence[Row]) -> None:
    path = root / configuration.file
    path.parent.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, configuration.schema)
    metadata = {"canary": CANARY, "version": CURRENT.version}
    table = table.replace_schema_metadata(metadata)
    pq.write_table(table, path, compression="zstd", compression_level=9, row_group_size=1024)


def _write_texts(root: Path, tables: Mapping[str, Sequence[Row]], hash: str) -> None:
    sizes = {c.name: (root / c.file).stat().st_size for c in CONFIGURATIONS}
    files = {c.name: (sha256_of(root / c.file), sizes[c.name]) for c in CONFIGURATIONS}
    _write(root / CARD, make_card(tables, sizes, hash))
    _write(root / CROISSANT, _json(make_croissant(files, hash)))
    _write(root / EVAL, f"# {CANARY}\n" + _yaml(_eval()))
    _write(root / CITATION_FILE, f"# {CANARY}\n" + _yaml(_citation()))


def _write_manifest(
    root: Path, tables: Mapping[str, Sequence[Row]], hashes: Mapping[str, str]
) -> dict[str, Any]:
    written = (CARD, CROISSANT, EVAL, CITATION_FILE, *(c.file for c in CONFIGURATIONS))
    manifest: dict[str, Any] = {
        "name": NAME,
        "version": CURRENT.version,
        "date": CURRENT.date,
        "kernelmark": importlib.metadata.version("kernelmark"),
        "canary": CANARY,
        "content_hash": content_hash(hashes),
        "configurations": {
            c.name: {"rows": len(tables[c.name]), "hash": hashes[c.name], "file": c.file}
            for c in CONFIGURATIONS
        },
        "files": {
            path: {"sha256": sha256_of(root / path), "bytes": (root / path).stat().st_size}
            for path in sorted(written)
        },
    }
    _write(root / MANIFEST, _json(manifest))
    return manifest


def _eval() -> dict[str, Any]:
    """How the Hub registers a benchmark: tasks by configuration and split."""
    return {
        "name": TITLE,
        "description": SUMMARY,
        "evaluation_framework": NAME,
        "tasks": [{"id": "all", "config": "operators", "split": SPLIT}],
    }


def _citation() -> dict[str, Any]:
    """Citation File Format 1.2."""
    return {
        "cff-version": "1.2.0",
        "message": "If you use this data set, please cite it as below.",
        "type": "dataset",
        "title": CITATION.split("title = {")[1].split("}")[0],
        "authors": [{"name": "The Kernelmark authors"}],
        "version": CURRENT.version,
        "date-released": CURRENT.date,
        "license": LICENCE,
        "url": URL,
    }


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")


def _json(value: Any) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def _yaml(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=1000)
    return text
