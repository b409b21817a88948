"""`kernelmark dataset check`: everything that is wrong with a built data set, a line each.

Takes nothing on trust: files against the manifest, rows against their schema, each other and the
digests, the card and the other texts against the rows. Needs no network.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from kernelmark.benchmark.dataset.build import CARD, CITATION_FILE, CROISSANT, EVAL, MANIFEST
from kernelmark.benchmark.dataset.build import sha256_of as file_hash
from kernelmark.benchmark.dataset.card import SECTIONS, card_configs, card_features, front_matter
from kernelmark.benchmark.dataset.identity import CANARY, LICENCE, SPLIT
from kernelmark.benchmark.dataset.load import read_manifest
from kernelmark.benchmark.dataset.rows import case_of, tolerance_of
from kernelmark.benchmark.dataset.schema import (
    BASELINES,
    CASES,
    CONFIGURATIONS,
    OPERATORS,
    Configuration,
    Row,
    content_hash,
    rows_hash,
)
from kernelmark.benchmark.errors import UserError
from kernelmark.benchmark.suites import definition_digest
from kernelmark.operators.draws import FILLS, VARIATIONS
from kernelmark.operators.records import Case, parse_signature

_VERSION = re.compile(r"\d+\.\d+\.\d+")
Tables = dict[str, list[Row]]


@dataclass(frozen=True)
class Defect:
    """One thing that is wrong: the file (and row), and what it is."""

    where: str
    what: str

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


def check(root: Path) -> list[Defect]:
    """All defects of the data set in `root`; none if it may be published."""
    try:
        manifest = read_manifest(root)
    except UserError as error:
        return [Defect(MANIFEST, str(error))]
    defects = [*_files(root, manifest), *_manifest(manifest)]
    tables: Tables = {}
    for configuration in CONFIGURATIONS:
        rows, found = _table(root, configuration)
        defects += found
        if rows is not None:
            tables[configuration.name] = rows
    if len(tables) == len(CONFIGURATIONS):
        defects += [*_hashes(manifest, tables), *_across(tables)]
        defects += [*_card(root, manifest, tables)]
    defects += [*_croissant(root, manifest), *_eval(root), *_canaries(root)]
    return list(dict.fromkeys(defects))


def _files(root: Path, manifest: Mapping[str, Any]) -> Iterator[Defect]:
    """Every file is listed, is there, and has the bytes that it is listed with."""
    listed = manifest.get("files")
    if not isinstance(listed, dict):
        yield Defect(MANIFEST, "lists no files")
        return
    found = {
        path.relative_to(root).as_posix()
        for path in root.rglob("*")
        if not path.is_dir() and not any(p.startswith(".") for p in path.relative_to(root).parts)
    }
    required = {CARD, CROISSANT, EVAL, CITATION_FILE, *(c.file for c in CONFIGURATIONS)}
    for path in sorted(required - set(listed)):
        yield Defect(MANIFEST, f"does not list {path}")
    for path in sorted(found - set(listed) - {MANIFEST}):
        yield Defect(path, f"is not listed in {MANIFEST}")
    for path, entry in sorted(listed.items()):
        if path not in found:
            yield Defect(path, "is missing")
        elif not isinstance(entry, dict) or file_hash(root / path) != entry.get("sha256"):
            yield Defect(path, f"is not the file that {MANIFEST} lists (sha256 differs)")
        elif (root / path).stat().st_size != entry.get("bytes"):
            yield Defect(path, f"is not as long as {MANIFEST} says")


def _manifest(manifest: Mapping[str, Any]) -> Iterator[Defect]:
    if not _VERSION.fullmatch(manifest["version"]):
        yield Defect(MANIFEST, f"version {manifest['version']!r} is not MAJOR.MINOR.PATCH")
    if manifest.get("canary") != CANARY:
        yield Defect(MANIFEST, "the canary is missing")


def _hashes(manifest: Mapping[str, Any], tables: Tables) -> Iterator[Defect]:
    try:
        hashes = {name: rows_hash(rows) for name, rows in tables.items()}
    except ValueError:
        yield Defect(MANIFEST, "rows have no hash, as a number in them is not finite")
        return
    said = manifest.get("configurations")
    said = said if isinstance(said, dict) else {}
    for name, rows in tables.items():
        about = said.get(name)
        if not isinstance(about, dict):
            yield Defect(MANIFEST, f"says nothing of configuration {name}")
            continue
        if about.get("rows") != len(rows):
            yield Defect(MANIFEST, f"{name} has {len(rows)} rows, not {about.get('rows')}")
        if about.get("hash") != hashes[name]:
            yield Defect(MANIFEST, f"the hash of {name} is not that of its rows")
    if manifest["content_hash"] != content_hash(hashes):
        yield Defect(MANIFEST, "the content hash is not that of the rows")


def _table(root: Path, configuration: Configuration) -> tuple[list[Row] | None, list[Defect]]:
    """Rows, if they can be read with their schema, and what is wrong with them one by one."""
    where = configuration.file
    try:
        table = pq.read_table(root / where, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        return None, [Defect(where, f"cannot be read ({' '.join(str(error).split())[:200]})")]
    if defects := list(_schema(configuration, table.schema)):
        return None, defects
    rows: list[Row] = table.to_pylist()
    return rows, list(_rows(configuration, rows))


def _schema(configuration: Configuration, found: pa.Schema) -> Iterator[Defect]:
    wanted, where = configuration.schema, configuration.file
    for name in wanted.names:
        if name not in found.names:
            yield Defect(where, f"column {name} is missing")
        elif not found.field(name).type.equals(wanted.field(name).type):
            got, want = found.field(name).type, wanted.field(name).type
            yield Defect(where, f"column {name} is of type {got}, not {want}")
    for name in found.names:
        if name not in wanted.names:
            yield Defect(where, f"column {name} is not of this configuration")


def _rows(configuration: Configuration, rows: Sequence[Row]) -> Iterator[Defect]:
    where = configuration.file
    required = [column.name for column in configuration.columns if not column.nullable]
    keys = Counter(tuple(row[name] for name in configuration.key) for row in rows)
    for key, count in keys.items():
        if count > 1:
            yield Defect(f"{where} {' '.join(map(str, key))}", f"stands there {count} times")
    for row in rows:
        at = f"{where} {' '.join(str(row[name]) for name in configuration.key)}"
        for name in required:
            if row[name] is None:
                yield Defect(at, f"{name} is null")
        for name, value in row.items():
            if isinstance(value, float) and not math.isfinite(value):
                yield Defect(at, f"{name} is {value}")
        if row["canary"] != CANARY:
            yield Defect(at, "the canary is missing")
    if rows and configuration.sorted(rows) != list(rows):
        yield Defect(where, f"rows are not sorted by {', '.join(configuration.key)}")


def _across(tables: Tables) -> Iterator[Defect]:
    """What only several tables together can show."""
    operators = {row["id"]: row for row in tables["operators"]}
    cases: dict[str, list[tuple[Row, Case]]] = defaultdict(list)
    broken: set[str] = set()
    for row in tables["cases"]:
        at, operator = (
            f"{CASES.file} {row['operator']} {row['case']}",
            operators.get(row["operator"]),
        )
        if operator is None:
            yield Defect(at, f"there is no operator {row['operator']}")
            continue
        try:
            case = case_of(row)
        except (ValueError, TypeError) as error:
            broken.add(row["operator"])
            yield Defect(at, f"describes no case: {error}")
            continue
        yield from _case(at, case, operator["signatures"])
        cases[row["operator"]].append((row, case))
    for id, operator in operators.items():
        if id not in broken:
            yield from _operator(operator, cases[id])
    yield from _baselines(tables)


def _case(at: str, case: Case, signatures: Sequence[str]) -> Iterator[Defect]:
    if not 0 <= case.overload < len(signatures):
        yield Defect(at, f"overload {case.overload} is none of {len(signatures)} signatures")
        return
    try:
        parameters = parse_signature(signatures[case.overload])
    except ValueError as error:
        yield Defect(at, str(error))
        return
    names = [p.name for p in parameters if not p.keyword_only]
    unknown = set(case.kwargs) - {p.name for p in parameters}
    if len(case.args) > len(names) or unknown:
        yield Defect(at, f"its arguments do not fit {signatures[case.overload]}")
    for spec in case.tensors:
        if spec.fill not in FILLS:
            yield Defect(at, f"unknown fill {spec.fill!r}")
    for draw in case.draws:
        if draw not in VARIATIONS:
            yield Defect(at, f"unknown draw {draw!r}")


def _operator(row: Row, cases: Sequence[tuple[Row, Case]]) -> Iterator[Defect]:
    at = f"{OPERATORS.file} {row['id']}"
    for tier in ("small", "full"):
        count = sum(case.tier == tier for _, case in cases)
        if count != row[f"{tier}_cases"]:
            yield Defect(at, f"{count} {tier} cases are published, not {row[f'{tier}_cases']}")
    if row["id"].split("::")[0] != row["source"]:
        yield Defect(at, f"its source is not {row['source']}")
    if row["licence"] != LICENCE:
        yield Defect(at, f"its licence is {row['licence']}, not {LICENCE}")
    for name in ("signatures", "description", "prompt", "oracle"):
        if not row[name]:
            yield Defect(at, f"{name} is empty")
    ordered = sorted(cases, key=lambda pair: pair[0]["position"])
    if [pair[0]["position"] for pair in ordered] != list(range(len(ordered))):
        yield Defect(at, "positions of its cases are not 0, 1, 2, ...")
    try:
        digest = definition_digest(
            row["id"],
            row["kind"],
            row["signatures"],
            row["baseline"],
            tolerance_of(row),
            [case for _, case in ordered],
        )
    except ValueError as error:
        yield Defect(at, str(error))
        return
    if digest != row["digest"]:
        yield Defect(at, "its digest is not that of its definition and cases")


def _baselines(tables: Tables) -> Iterator[Defect]:
    full = {(row["operator"], row["case"]): row["tier"] for row in tables["cases"]}
    for row in tables["baselines"]:
        at = f"{BASELINES.file} {row['operator']} {row['case']} {row['sku']}"
        if (row["operator"], row["case"]) not in full:
            yield Defect(at, "there is no such case")
        elif full[row["operator"], row["case"]] != "full":
            yield Defect(at, "its case is not of the full tier")
        if row["device_us"] is not None and not row["device_us"] > 0:
            yield Defect(at, f"device_us is {row['device_us']}")


def _card(root: Path, manifest: Mapping[str, Any], tables: Tables) -> Iterator[Defect]:
    text = _read(root / CARD)
    if text is None:
        yield Defect(CARD, "cannot be read")
        return
    for title in SECTIONS:
        if f"\n## {title}\n" not in text:
            yield Defect(CARD, f"section {title} is missing")
    for what in ("content_hash", "version"):
        if manifest[what] not in text:
            yield Defect(CARD, f"does not name the {what.replace('_', ' ')}")
    try:
        front = front_matter(text)
    except ValueError as error:
        yield Defect(CARD, str(error))
        return
    front = front if isinstance(front, dict) else {}
    if front.get("license") != LICENCE.lower():
        yield Defect(CARD, f"license is {front.get('license')}, not {LICENCE.lower()}")
    if front.get("configs") != card_configs():
        yield Defect(CARD, "configs do not name the configurations and their files")
    infos = {
        i.get("config_name"): i for i in front.get("dataset_info") or [] if isinstance(i, dict)
    }
    for configuration in CONFIGURATIONS:
        info = infos.get(configuration.name, {})
        if info.get("features") != card_features(configuration.columns):
            yield Defect(CARD, f"features of {configuration.name} are not those of its file")
        count = len(tables[configuration.name])
        if not _is_split(info.get("splits"), count):
            yield Defect(CARD, f"splits of {configuration.name} are not {SPLIT} of {count} rows")


def _is_split(splits: Any, count: int) -> bool:
    """Whether a card's `splits` is the one split of `count` rows, as `datasets` reads it."""
    match splits:
        case [{"name": str(name), "num_examples": int(rows), "num_bytes": int()}]:
            return name == SPLIT and rows == count
    return False


def _croissant(root: Path, manifest: Mapping[str, Any]) -> Iterator[Defect]:
    text = _read(root / CROISSANT)
    try:
        data = json.loads(text or "")
        files = {item["contentUrl"]: item["sha256"] for item in data["distribution"]}
        version = data["version"]
    except (ValueError, KeyError, TypeError) as error:
        yield Defect(CROISSANT, f"cannot be read ({type(error).__name__}: {error})")
        return
    if version != manifest["version"]:
        yield Defect(CROISSANT, f"version is {version}, not {manifest['version']}")
    for configuration in CONFIGURATIONS:
        path = root / configuration.file
        if path.is_file() and files.get(configuration.file) != file_hash(path):
            yield Defect(CROISSANT, f"sha256 of {configuration.file} is not that of the file")
    try:
        import mlcroissant
    except ImportError:
        yield Defect(CROISSANT, "not validated: pip install 'kernelmark[hub]' for mlcroissant")
        return
    try:
        issues = mlcroissant.Dataset(jsonld=root / CROISSANT).metadata.issues
    except (mlcroissant.ValidationError, ValueError, KeyError, TypeError) as error:
        yield Defect(CROISSANT, " ".join(str(error).split())[:300])
        return
    for issue in sorted({*issues.errors, *issues.warnings}):
        yield Defect(CROISSANT, " ".join(issue.split()))


def _eval(root: Path) -> Iterator[Defect]:
    try:
        data = yaml.safe_load(_read(root / EVAL) or "")
        tasks = [(task["id"], task["config"], task["split"]) for task in data["tasks"]]
        missing = {"name", "description", "evaluation_framework"} - set(data)
    except (yaml.YAMLError, KeyError, TypeError):
        yield Defect(EVAL, "is not a mapping with tasks of id, config and split")
        return
    for name in sorted(missing):
        yield Defect(EVAL, f"{name} is missing")
    for id, config, split in tasks:
        if config not in {c.name for c in CONFIGURATIONS} or split != SPLIT:
            yield Defect(EVAL, f"task {id}: there is no configuration {config}, split {split}")


def _canaries(root: Path) -> Iterator[Defect]:
    for name in (CARD, CROISSANT, EVAL, CITATION_FILE):
        if CANARY not in (_read(root / name) or ""):
            yield Defect(name, "the canary is missing")


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
