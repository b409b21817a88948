"""How everything on the other pages is computed, its limits, and all data for download."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from kernelmark.benchmark import ranks
from kernelmark.leaderboard import parts, queries, state, tables
from kernelmark.leaderboard.tables import Column, count

HERE = Path(__file__).parent.parent
#: larger databases are not sent through the browser
LARGEST_BYTES = 300 << 20


def explain() -> None:
    """The words of scoring."""
    st.markdown((HERE / "about.md").read_text())
    st.caption(
        f"Ranks: {ranks.N_BOOT} resamples, seed {ranks.SEED}, {ranks.CONFIDENCE:.0%} simultaneous."
    )


def downloads() -> None:
    """Every table and view of the database, and the database."""
    current = parts.board()
    sizes = parts.frame(queries.TABLE_SIZES)
    st.text(
        "Every table and view that the pages read. Views whose names begin with v_ hold what is "
        "computed; the others hold what was handed in."
    )
    left, right = st.columns([2, 1])
    with left:
        name = state.one("Table", list(sizes["name"]), "table", "v_rank")
    with right:
        kind = state.section("File", ["CSV", "Parquet"], "file")
    file = f"{name}.{kind.lower()}"
    mime = "text/csv" if kind == "CSV" else tables.PARQUET
    tables.download(file, lambda: contents(name, kind), file, mime, help="The whole table.")
    size = current.path.stat().st_size
    if size <= LARGEST_BYTES:
        label = f"The database (DuckDB, {size / 1e6:,.1f} MB)"
        mime = "application/octet-stream"
        tables.download(label, current.path.read_bytes, "kernelmark.duckdb", mime, help=label)
    else:
        st.text(f"The database has {size / 1e9:,.1f} GB: export it with the command line.")
        st.code("kernelmark leaderboard --export FOLDER", language=None, wrap_lines=True)
    st.subheader("Tables")
    columns = {"name": Column("table"), "rows": count("rows")}
    tables.table(sizes, columns, "tables", "Tables and views of the database", height=480)


def contents(name: str, kind: str) -> bytes:
    """A whole table as a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table"
        parts.board().copy(name, path, kind)
        return path.read_bytes()


def changes() -> None:
    """What changed in how results are made or shown."""
    st.markdown((HERE / "changelog.md").read_text())


pages = {"How it is computed": explain, "Download": downloads, "Changelog": changes}
pages[state.section("Show", list(pages), "part", label_visibility="collapsed")]()
build = parts.frame(queries.BUILD).iloc[0]
st.caption(
    f"Database built {build['built_at'][:16].replace('T', ' ')} UTC from {build['parts']} parts; "
    f"scoring code {str(build['code_sha256'])[:12]}."
)
