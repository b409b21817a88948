"""`dataset check`: sound data sets pass, each defect is found and said where it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from kernelmark.benchmark.cli import app
from kernelmark.benchmark.dataset.build import CARD, CITATION_FILE, CROISSANT, EVAL, MANIFEST
from kernelmark.benchmark.dataset.build import sha256_of as file_hash
from kernelmark.benchmark.dataset.check import check
from kernelmark.benchmark.dataset.identity import CANARY
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

pytest.importorskip("mlcroissant")

Break = Callable[[Path], None]


def test_a_built_data_set_is_sound(built: Path) -> None:
    assert check(built) == []


def rows(change: Callable[[list[Row]], Any], configuration: Configuration) -> Break:
    """Changes rows and makes the manifest and Croissant agree, as a careless publisher would."""

    def apply(root: Path) -> None:
        path = root / configuration.file
        table = pq.read_table(path).to_pylist()
        change(table)
        schema = pa.schema([field.with_nullable(True) for field in configuration.schema])
        pq.write_table(pa.Table.from_pylist(table, schema), path)
        agree(root)

    return apply


def agree(root: Path) -> None:
    """Recomputes every hash of the manifest and Croissant."""
    manifest = json.loads((root / MANIFEST).read_text())
    hashes = {}
    for c in CONFIGURATIONS:
        table = pq.read_table(root / c.file).to_pylist()
        hashes[c.name] = rows_hash(table)
        manifest["configurations"][c.name] |= {"rows": len(table), "hash": hashes[c.name]}
    old, manifest["content_hash"] = manifest["content_hash"], content_hash(hashes)
    croissant = json.loads((root / CROISSANT).read_text())
    for item in croissant["distribution"]:
        item["sha256"] = file_hash(root / item["contentUrl"])
    (root / CROISSANT).write_text(json.dumps(croissant).replace(old, manifest["content_hash"]))
    card = (root / CARD).read_text()
    (root / CARD).write_text(card.replace(old, manifest["content_hash"]))
    for name in manifest["files"]:
        path = root / name
        manifest["files"][name] = {"sha256": file_hash(path), "bytes": path.stat().st_size}
    (root / MANIFEST).write_text(json.dumps(manifest))


def text(name: str, old: str, new: str) -> Break:
    """Replaces text in a file, and makes the manifest agree."""

    def apply(root: Path) -> None:
        content = (root / name).read_text()
        assert old in content
        (root / name).write_text(content.replace(old, new))
        if name != MANIFEST:
            agree(root)

    return apply


def setting(index: int, **values: Any) -> Callable[[list[Row]], None]:
    return lambda table: table[index].update(values)


def column_retyped(root: Path) -> None:
    path = root / CASES.file
    table = pq.read_table(path)
    index = table.schema.get_field_index("flops")
    pq.write_table(table.set_column(index, "flops", table["flops"].cast(pa.float64())), path)


def column_dropped(root: Path) -> None:
    path = root / OPERATORS.file
    pq.write_table(pq.read_table(path).drop_columns(["oracle"]), path)


def tampered(root: Path) -> None:
    """One time is better than it was; nothing else is touched."""
    path = root / BASELINES.file
    table = pq.read_table(path).to_pylist()
    table[0]["device_us"] /= 2
    pq.write_table(pa.Table.from_pylist(table, BASELINES.schema), path)


def not_finite(root: Path) -> None:
    path = root / BASELINES.file
    table = pq.read_table(path).to_pylist()
    table[0]["noise"] = float("inf")
    pq.write_table(pa.Table.from_pylist(table, BASELINES.schema), path)


def args_of(table: list[Row]) -> Row:
    return next(row for row in table if '"tensor"' in row["args"])


def other_shape(table: list[Row]) -> None:
    row = args_of(table)
    args = json.loads(row["args"])
    next(a for a in args if isinstance(a, dict) and "tensor" in a)["tensor"]["shape"] = [3]
    row["args"] = json.dumps(args)


def unknown_fill(table: list[Row]) -> None:
    row = args_of(table)
    args = json.loads(row["args"])
    next(a for a in args if isinstance(a, dict) and "tensor" in a)["tensor"]["fill"] = "cauchy"
    row["args"] = json.dumps(args)


BROKEN: dict[str, tuple[Break, str, str]] = {
    "no manifest": (lambda r: (r / MANIFEST).unlink(), MANIFEST, "is missing"),
    "manifest is no JSON": (lambda r: void((r / MANIFEST).write_text("{")), MANIFEST, "cannot be"),
    "manifest is a list": (lambda r: void((r / MANIFEST).write_text("[]")), MANIFEST, "no version"),
    "version": (text(MANIFEST, '"version": "', '"version": "v'), MANIFEST, "MAJOR.MINOR.PATCH"),
    "a file is missing": (lambda r: (r / CITATION_FILE).unlink(), CITATION_FILE, "is missing"),
    "a file is too much": (lambda r: void((r / "x.py").write_text("1")), "x.py", "not listed"),
    "a file is another": (tampered, BASELINES.file, "sha256 differs"),
    "rows are others": (tampered, MANIFEST, "the content hash is not that of the rows"),
    "no Parquet": (lambda r: void((r / CASES.file).write_bytes(b"no")), CASES.file, "cannot be"),
    "a column's type": (column_retyped, CASES.file, "flops is of type double, not int64"),
    "a column is missing": (column_dropped, OPERATORS.file, "column oracle is missing"),
    "a null": (rows(setting(0, prompt=None), OPERATORS), OPERATORS.file, "prompt is null"),
    "a canary in a row": (rows(setting(5, canary=""), CASES), CASES.file, "canary is missing"),
    "a row twice": (rows(lambda t: t.append(t[0]), CASES), CASES.file, "stands there 2 times"),
    "order": (rows(lambda t: t.reverse(), CASES), CASES.file, "not sorted"),
    "an operator is missing": (rows(lambda t: t.pop(), OPERATORS), CASES.file, "no operator"),
    "a case is missing": (rows(lambda t: t.pop(), CASES), OPERATORS.file, "cases are published"),
    "another shape": (rows(other_shape, CASES), OPERATORS.file, "digest is not that of"),
    "unknown fill": (rows(unknown_fill, CASES), CASES.file, "unknown fill 'cauchy'"),
    "arguments no JSON": (rows(setting(3, args="["), CASES), CASES.file, "describes no case"),
    "arguments no case": (
        rows(setting(3, args='[{"x": 1}]'), CASES), CASES.file, "not an argument",
    ),
    "too many arguments": (
        rows(setting(3, args=json.dumps([1] * 40)), CASES), CASES.file, "do not fit",
    ),
    "unknown keyword": (rows(setting(3, kwargs='{"zz": 1}'), CASES), CASES.file, "do not fit"),
    "unknown draw": (rows(setting(3, draws=["odd"]), CASES), CASES.file, "unknown draw 'odd'"),
    "overload": (rows(setting(3, overload=9), CASES), CASES.file, "overload 9 is none of"),
    "tier": (rows(setting(3, tier="huge"), CASES), CASES.file, "unknown tier 'huge'"),
    "position": (rows(setting(3, position=999), CASES), OPERATORS.file, "positions"),
    "signature": (
        rows(setting(0, signatures=["f(x) -> y"]), OPERATORS), CASES.file, "cannot read parameter",
    ),
    "tolerance": (
        rows(setting(0, tolerance_limit=1e9), OPERATORS), OPERATORS.file, "digest is not that of",
    ),
    "tolerance class": (
        rows(setting(0, tolerance="near"), OPERATORS), OPERATORS.file, "unknown tolerance 'near'",
    ),
    "source": (rows(setting(0, source="cuda"), OPERATORS), OPERATORS.file, "source is not cuda"),
    "licence": (rows(setting(0, licence="MIT"), OPERATORS), OPERATORS.file, "licence is MIT"),
    "baseline of nothing": (
        rows(setting(0, case="no-such"), BASELINES), BASELINES.file, "there is no such case",
    ),
    "baseline in no time": (
        rows(setting(0, device_us=0.0), BASELINES), BASELINES.file, "device_us is 0.0",
    ),
    "baseline not a number": (not_finite, BASELINES.file, "noise is inf"),
    "rows without a hash": (not_finite, MANIFEST, "not finite"),
    "card section": (text(CARD, "## Limits", "## More"), CARD, "section Limits is missing"),
    "card without YAML": (text(CARD, "---\npretty", "pretty"), CARD, "no YAML block"),
    "card YAML": (text(CARD, "pretty_name:", "pretty_name: ]"), CARD, "cannot be read"),
    "card licence": (text(CARD, "license: apache-2.0", "license: mit"), CARD, "license is mit"),
    "card path": (text(CARD, "path: data/cases/", "path: data/case/"), CARD, "configs"),
    "card split": (text(CARD, "- split: test", "- split: train"), CARD, "configs"),
    "card count": (text(CARD, "num_examples: 8", "num_examples: 9"), CARD, "splits of operators"),
    "card size": (text(CARD, "num_bytes: ", "bytes: "), CARD, "splits of "),
    "card feature": (text(CARD, "name: flops", "name: flop"), CARD, "features of cases"),
    "card canary": (text(CARD, CANARY, "none"), CARD, "canary is missing"),
    "Croissant": (text(CROISSANT, '"@type": "cr:Field"', '"@type": "cr:Fild"'), CROISSANT, ""),
    "Croissant column": (
        text(CROISSANT, '"@id": "cases/flops"', '"@id": "cases/case"'), CROISSANT, "",
    ),
    "Croissant version": (
        text(CROISSANT, '"version": "', '"version": "9'), CROISSANT, "version is 9",
    ),
    "Croissant no JSON": (
        lambda r: void((r / CROISSANT).write_text("{")), CROISSANT, "cannot be read",
    ),
    "eval split": (text(EVAL, "split: test", "split: dev"), EVAL, "there is no configuration"),
    "eval name": (text(EVAL, "name: Kernelmark\n", ""), EVAL, "name is missing"),
    "eval no YAML": (lambda r: void((r / EVAL).write_text("a: [")), EVAL, "is not a mapping"),
}  # fmt: skip


def void(value: object) -> None:
    """Drops what a function returns."""


@pytest.mark.parametrize("name", BROKEN)
def test_each_defect_is_found(name: str, copy: Path) -> None:
    damage, where, what = BROKEN[name]
    damage(copy)
    defects = check(copy)
    found = [d for d in defects if d.where.split(" ")[0] == where and what in str(d)]
    assert found, "\n".join(map(str, defects))
    assert all("\n" not in str(defect) for defect in defects)


def test_hidden_files_are_not_defects(copy: Path) -> None:
    root = copy
    (root / ".gitattributes").write_text("*.parquet filter=lfs\n")
    (root / ".git").mkdir()
    (root / ".git/HEAD").write_text("ref: refs/heads/main\n")
    assert check(root) == []


def test_the_command_says_each_defect_in_a_line(copy: Path) -> None:
    root = copy
    (root / "stray.txt").write_text("1")
    (root / EVAL).unlink()
    done = CliRunner().invoke(app, ["dataset", "check", str(root)])
    assert done.exit_code == 1
    assert "stray.txt: is not listed in kernelmark.json\n" in done.stdout
    assert "eval.yaml: is missing\n" in done.stdout
    as_json = CliRunner().invoke(app, ["dataset", "check", "--json", str(root)])
    assert {"where": "eval.yaml", "what": "is missing"} in json.loads(as_json.stdout)
