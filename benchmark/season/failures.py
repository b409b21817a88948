"""What is not covered, what fails, and what does not compile elsewhere."""

from __future__ import annotations

import re

from kernelmark.benchmark.season.data import Row, Season, by_key
from kernelmark.benchmark.season.markdown import code, counted, escaped, share, table

_REASONS_SHOWN = 12


def coverage(season: Season) -> str:
    """Operators that an entry hands in nothing for, by source, with the method's reasons."""
    query = """
    SELECT entry, count(*) AS operators, count(*) FILTER (WHERE candidate IS NOT NULL) AS given,
        {sources}
    FROM season_cell GROUP BY place, entry ORDER BY place
    """
    sources = [r["source"] for r in season.rows("SELECT DISTINCT source FROM season_outcome")]
    sources.sort()
    counts = ", ".join(
        f"count(*) FILTER (WHERE source = '{source}' AND status = 'no_candidate') AS {source}"
        for source in sources
    )
    found = season.rows(query.format(sources=counts))
    columns = {"entry": "entry", "given": "candidates:", "share": "of the suite:"}
    columns |= {source: f"none for {source}:" for source in sources}
    rows = [
        {**row, "entry": code(row["entry"]), "share": share(row["given"] / row["operators"])}
        for row in found
    ]
    return f"""## Coverage

An operator that a method hands in nothing for is `no_candidate`: it counts 0 in the score, and is
no failure of a kernel.

{table(columns, rows)}

{_reasons(season)}"""


def _reasons(season: Season) -> str:
    query = """
    SELECT entry,
        coalesce(nullif(replace(note, operator, 'it'), ''), 'nothing was handed in') AS why,
        count(*) AS operators, min(operator) AS example
    FROM season_cell WHERE status = 'no_candidate'
    GROUP BY place, entry, why ORDER BY place, operators DESC, example
    """
    found = season.rows(query)
    if not found:
        return ""
    columns = {"entry": "entry", "operators": "operators:", "why": "why", "example": "e.g."}
    rows: list[Row] = []
    for (entry,), reasons in by_key(found, "entry").items():
        rows += [
            {
                "entry": code(entry),
                "operators": reason["operators"],
                "why": escaped(reason["why"]),
                "example": code(reason["example"]),
            }
            for reason in reasons[:_REASONS_SHOWN]
        ]
        more = sum(reason["operators"] for reason in reasons[_REASONS_SHOWN:])
        if more:
            rows.append({"entry": code(entry), "operators": more, "why": "other reasons"})
    return f"The methods' own words for why:\n\n{table(columns, rows)}"


def what_fails(season: Season) -> str:
    """Candidates that were handed in and are not right, by kind and one by one."""
    found = season.rows(
        """
        SELECT entry, status, error_class, operator, coalesce(nullif(message, ''), note) AS said
        FROM season_cell WHERE NOT solved AND status <> 'no_candidate'
        ORDER BY place, status, error_class, operator
        """
    )
    if not found:
        return "## What fails, and why\n\nEvery candidate that was handed in is solved.\n"
    counts = season.rows(
        """
        SELECT error_class, {entries}, count(*) AS total
        FROM season_cell WHERE NOT solved AND status <> 'no_candidate'
        GROUP BY error_class ORDER BY total DESC, error_class
        """.format(
            entries=", ".join(
                f"count(*) FILTER (WHERE place = {int(e['place'])}) AS e{int(e['place'])}"
                for e in season.entries
            )
        )
    )
    columns = {"error_class": "what", "total": "all:"}
    columns |= {f"e{entry['place']}": f"{code(entry['entry'])}:" for entry in season.entries}
    shown = [{**row, "error_class": code(row["error_class"])} for row in counts]
    each = {"entry": "entry", "operator": "operator", "status": "status", "said": "what was said"}
    rows = [
        {
            "entry": code(row["entry"]),
            "operator": code(row["operator"]),
            "status": code(row["status"]),
            "said": escaped(row["said"]),
        }
        for row in found
    ]
    return f"""## What fails, and why

{counted(len(found), "candidate")} handed in and not solved. By status and, where the message names
one, exception:

{table(columns, shown)}

One by one:

{table(each, rows)}
"""


def portability(season: Season) -> str:
    """How many of an entry's candidates compile for each target, and why the others do not."""
    found = season.rows(
        """
        SELECT e.entry, p.target, p.compiled, p.tried FROM season_entry AS e
        JOIN v_portability AS p USING (submission, suite, suite_digest)
        ORDER BY e.place, p.target
        """
    )
    if not found:
        return ""
    targets = sorted({row["target"] for row in found}, key=_target_order)
    columns = {"entry": "entry"} | {target: f"{code(target)}:" for target in targets}
    rows = []
    for (entry,), group in by_key(found, "entry").items():
        counts = {row["target"]: f"{row['compiled']}/{row['tried']}" for row in group}
        rows.append({"entry": code(entry), **counts})
    return f"""## Does it compile elsewhere

Candidates that compile for a target, of those that were tried. No such hardware is needed for it,
and nothing is said of results or speed there. Candidates of compilers and libraries call a package
and bring no kernels of their own, so there is nothing to compile.

{table(columns, rows)}

{_portability_errors(season)}"""


def _portability_errors(season: Season) -> str:
    query = """
    SELECT e.entry, p.error_class, string_agg(p.target, ' ' ORDER BY p.target) AS targets,
        max(p.operators) AS operators, min(p.example) AS example,
        arg_min(p.example_error, (p.example, p.target)) AS error
    FROM season_entry AS e JOIN v_portability_error AS p USING (submission, suite, suite_digest)
    GROUP BY e.place, e.entry, p.error_class ORDER BY e.place, operators DESC, p.error_class
    """
    found = season.rows(query)
    if not found:
        return "Every candidate compiles for every target that it was tried on."
    columns = {
        "entry": "entry",
        "error_class": "what",
        "operators": "operators, at most:",
        "targets": "on",
        "example": "e.g.",
        "error": "which says",
    }
    rows = [
        {
            **row,
            "entry": code(row["entry"]),
            "error_class": code(row["error_class"]),
            "targets": code(row["targets"]),
            "example": code(row["example"]),
            "error": escaped(row["error"]),
        }
        for row in found
    ]
    return f"Why the others do not:\n\n{table(columns, rows)}"


def _target_order(target: str) -> tuple[str, int, str]:
    """By vendor and generation, whose numbers are hexadecimal in some names (gfx90a)."""
    vendor, generation = re.match(r"([g-z_]*)([0-9a-f]*)", target.lower()).groups()  # type: ignore[union-attr]
    return vendor, int(generation or "0", 16), target
