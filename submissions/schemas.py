"""JSON Schema of a bundle's files, one document a file; committed copies in ``schema/``.

For those who write bundles in other languages, or check them before they are handed in. The schemas
say what a file may hold; that files fit each other is checked by `submissions.validation`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, TypeAdapter

from kernelmark.evaluators.campaigns.records import Run
from kernelmark.submissions.bundle import BUNDLE_SCHEMA_VERSION, MANIFEST, RUN, Submission
from kernelmark.submissions.validation import LINES

FOLDER = Path(__file__).parent / "schema"
_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schemas() -> dict[str, Any]:
    """The schema of each file, by name; of a file of lines, that of a line."""
    kinds: dict[str, Any] = {MANIFEST: Submission, RUN: Run, **LINES}
    return {name: _schema(name, kind) for name, kind in kinds.items()}


def write_schemas(folder: Path = FOLDER) -> list[Path]:
    """Writes every schema to ``folder``; the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, schema in schemas().items():
        path = folder / f"{name.split('.')[0]}.schema.json"
        path.write_text(json.dumps(schema, indent=1, sort_keys=True) + "\n")
        written.append(path)
    return written


def _schema(name: str, kind: Any) -> dict[str, Any]:
    whole = TypeAdapter(tuple[kind], config=ConfigDict(extra="forbid", strict=True)).json_schema()
    record = whole["prefixItems"][0]
    what = "each line of " if name.endswith(".jsonl") else ""
    return {
        "$schema": _DIALECT,
        "title": f"{what}{name}, version {BUNDLE_SCHEMA_VERSION} of the bundle",
        **record,
        "$defs": whole.get("$defs", {}),
    }


if __name__ == "__main__":
    write_schemas()
