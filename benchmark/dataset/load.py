"""Reading a published data set: from a folder, or a revision on the Hub.

What is read is what was published: the content hash is computed from the rows and compared with
the manifest's, so that a hash in a verdict names what was really used.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from kernelmark.benchmark.dataset.build import MANIFEST
from kernelmark.benchmark.dataset.identity import REPO
from kernelmark.benchmark.dataset.rows import case_of
from kernelmark.benchmark.dataset.schema import CONFIGURATIONS, Row, content_hash, rows_hash
from kernelmark.benchmark.errors import InfrastructureError, UserError
from kernelmark.operators.records import Case

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_REPO = re.compile(r"(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")


@dataclass(frozen=True)
class Published:
    """A data set that was read. `source`: the folder, or ``REPO@COMMIT``."""

    source: str
    folder: Path
    version: str
    content_hash: str
    tables: Mapping[str, Sequence[Row]]

    @cached_property
    def cases(self) -> dict[str, tuple[Case, ...]]:
        """Cases by operator, in their order."""
        found: dict[str, list[Row]] = defaultdict(list)
        for row in self.tables["cases"]:
            found[row["operator"]].append(row)
        for rows in found.values():
            rows.sort(key=lambda row: row["position"])
        try:
            return {id: tuple(case_of(row) for row in rows) for id, rows in found.items()}
        except ValueError as error:
            raise UserError(f"{self.source}: a row describes no case: {error}") from None

    @cached_property
    def digests(self) -> dict[str, str]:
        """Digest of each operator's definition, as published."""
        return {row["id"]: row["digest"] for row in self.tables["operators"]}


def load(
    source: str, revision: str = "", cache: Path | None = None, api: HfApi | None = None
) -> Published:
    """Reads `source`: a folder, or a repository on the Hub (``REPO``, ``REPO@REVISION``; empty:
    the project's own), at `revision` (a commit, branch or tag; else the newest).

    `UserError` where it is not there or not what its manifest says; `InfrastructureError` where
    the Hub cannot be reached. `api`: else that of `HF_ENDPOINT`, with the environment's token.
    Files from there are kept in `cache`, or where `huggingface_hub` keeps its own.
    """
    if source and Path(source).expanduser().is_dir():
        if revision:
            raise UserError(f"{source} is a folder: it has no revision {revision}")
        return read_folder(Path(source).expanduser())
    match = _REPO.fullmatch(source or REPO)
    if match is None or (match["revision"] and revision and match["revision"] != revision):
        raise UserError(f"{source}: neither a folder nor REPO@REVISION on the Hub")
    folder, commit = _download(match["repo"], revision or match["revision"] or "main", cache, api)
    return read_folder(folder, f"{match['repo']}@{commit}")


def read_folder(folder: Path, source: str = "") -> Published:
    """Reads a folder that `dataset build` wrote. `UserError` where it is not whole."""
    manifest = read_manifest(folder)
    tables = {c.name: read_table(folder, c.name) for c in CONFIGURATIONS}
    try:
        hashes = {name: rows_hash(rows) for name, rows in tables.items()}
    except ValueError as error:
        raise UserError(f"{source or folder}: its rows have no hash: {error}") from None
    if content_hash(hashes) != manifest["content_hash"]:
        raise UserError(f"{source or folder}: its rows are not those that its manifest names")
    return Published(
        source or str(folder.resolve()),
        folder,
        manifest["version"],
        manifest["content_hash"],
        tables,
    )


def read_manifest(folder: Path) -> dict[str, Any]:
    """The manifest. `UserError` where there is none, or it is none."""
    path = folder / MANIFEST
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{folder}: no data set ({MANIFEST} is missing)") from None
    except (ValueError, OSError) as error:
        raise UserError(f"{path}: cannot be read ({error})") from None
    strings = ("version", "content_hash")
    if not isinstance(manifest, dict) or not all(isinstance(manifest.get(k), str) for k in strings):
        raise UserError(f"{path}: has no version and content_hash")
    return manifest


def read_table(folder: Path, name: str) -> list[Row]:
    """Rows of one configuration, in the order of the file. `UserError` where it is not readable."""
    configuration = next(c for c in CONFIGURATIONS if c.name == name)
    path = folder / configuration.file
    try:
        table = pq.read_table(path, partitioning=None)
    except (OSError, pa.ArrowException) as error:
        raise UserError(f"{path}: cannot be read ({' '.join(str(error).split())})") from None
    for field in configuration.schema:
        if (
            field.name not in table.schema.names
            or table.schema.field(field.name).type != field.type
        ):
            raise UserError(f"{path}: has no column {field.name} of type {field.type}")
    rows: list[Row] = table.to_pylist()
    return rows


def _download(repo: str, revision: str, cache: Path | None, api: HfApi | None) -> tuple[Path, str]:
    """The revision's files in the Hub's cache, and its commit."""
    from huggingface_hub import HfApi
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        folder = Path(
            (api or HfApi()).snapshot_download(
                repo,
                repo_type="dataset",
                revision=revision,
                cache_dir=cache,
                allow_patterns=[MANIFEST, *(c.file for c in CONFIGURATIONS)],
            )
        )
    except HFValidationError:
        raise UserError(f"{repo}: neither a folder nor a repository's name") from None
    except RevisionNotFoundError:
        raise UserError(f"{repo} has no revision {revision}") from None
    except RepositoryNotFoundError:
        raise UserError(f"no data set {repo} on the Hub, or HF_TOKEN may not read it") from None
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        text = " ".join(str(error).split())
        raise InfrastructureError(f"{repo}@{revision} cannot be fetched: {text}") from None
    return folder, folder.name
