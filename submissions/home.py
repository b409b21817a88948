"""Where everything lives: one folder, ``$KERNELMARK_HOME``.

::

    runs/<run>/               run folders, unless --out says otherwise
    inbox/<submission>/       sealed bundles, delivered, not yet ingested
    bundles/<submission>/     bundles that have been ingested, kept as they came
    rejected/<submission>/    bundles that did not validate, with problems.json
    lake/<part>/<table>.parquet   immutable rows; a part is one submission, catalogue or decision
    boards/<digest>.duckdb    databases built from the lake
    current.duckdb            link to the one in use
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Home:
    """Paths under one root. Nothing is made before it is needed."""

    root: Path

    @property
    def runs(self) -> Path:
        """Run folders."""
        return self.root / "runs"

    @property
    def inbox(self) -> Path:
        """Bundles to be ingested."""
        return self.root / "inbox"

    @property
    def bundles(self) -> Path:
        """Bundles that have been ingested."""
        return self.root / "bundles"

    @property
    def rejected(self) -> Path:
        """Bundles that did not validate."""
        return self.root / "rejected"

    @property
    def lake(self) -> Path:
        """Parquet parts."""
        return self.root / "lake"

    @property
    def boards(self) -> Path:
        """Built databases."""
        return self.root / "boards"

    @property
    def current(self) -> Path:
        """The database in use: a link, replaced atomically."""
        return self.root / "current.duckdb"

    @property
    def ingest_lock(self) -> Path:
        """Held by the one process that ingests or builds."""
        return self.root / "ingest.lock"
