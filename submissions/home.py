"""Where everything lives: one folder, ``$KERNELMARK_HOME``.

::

    runs/<run>/               run folders, unless --out says otherwise
    inbox/<submission>/       sealed bundles, delivered, not yet ingested; <name>.zip too
    bundles/<submission>/     bundles that have been ingested, kept as they came
    rejected/<name>/          bundles that did not validate, beside <name>.problems.json
    lake/<part>/              immutable rows: one Parquet file a table, part.json beside them
    boards/<digest>.duckdb    databases built from the lake
    current.duckdb            link to the one in use
    claims/                   who is re-grading what (`submissions.claims`)
    regrades/<regrade>/       re-grades in progress: verdicts that are there already
    hub.json                  what has been exchanged with a results repository
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
    def claims(self) -> Path:
        """Who is re-grading what."""
        return self.root / "claims"

    @property
    def regrades(self) -> Path:
        """Re-grades in progress."""
        return self.root / "regrades"

    @property
    def ingest_lock(self) -> Path:
        """Held by the one process that writes the lake or builds."""
        return self.root / "ingest.lock"
