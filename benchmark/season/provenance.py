"""Where each entry comes from, and every operator with every entry's speedup."""

from __future__ import annotations

import json
import re
import shlex

from kernelmark.benchmark.season.data import Row, Season, by_key
from kernelmark.benchmark.season.markdown import NOTHING, code, escaped, number, share, table

_PLAIN = re.compile(r"[A-Za-z0-9_.,:=/@+ -]*")

_FACTS = """
SELECT e.place, e.entry, s.*, t.trust
FROM season_entry AS e JOIN submissions AS s USING (submission) JOIN v_trust AS t USING (submission)
ORDER BY e.place
"""
_GRADED = """
SELECT environment, count(*) AS verdicts, min(created_at) AS first, max(created_at) AS last,
    sum(seconds) AS seconds
FROM v_verdict WHERE submission = $submission GROUP BY environment ORDER BY first, environment
"""

#: what of a verdict's environment is told; the isolation is the judge's own and the same for all
_TOLD = ("torch", "triton", "python", "driver", "platform")


def entries(season: Season) -> str:
    """Command, environments, device and dates of each entry."""
    facts = season.rows(_FACTS)
    told = "\n\n".join(_entry(season, row) for row in facts)
    return f"""## Where each entry comes from

Each entry is a sealed bundle in `submissions/bundles/`, named by the hash of its contents:
candidates, verdicts with all raw samples, portability rows and environments; `kernelmark
submissions show ID` tells more. The commands do all of it on a machine with the chip; from another,
`--no-grade` and `kernelmark jobs` take the candidates to it. Accelerators are told apart by a hash
that reveals nothing else of them.

{told}
"""


def _entry(season: Season, facts: Row) -> str:
    graded = season.rows(_GRADED, submission=facts["submission"])
    lines = {
        "submission": code(facts["submission"]),
        "run": f"{code(facts['run'])}, begun {_time(facts['created_at'])}",
        "sealed": f"{_time(facts['sealed_at'])} by {escaped(facts['submitter']) or NOTHING}, "
        f"licence {escaped(facts['licence'])}, trust {escaped(facts['trust'])}",
        "produced with": _environment(facts["environment"], ("kernelmark", *_TOLD)),
        **_sittings(graded),
        "notes": escaped(facts["notes"], 400),
    }
    listed = "\n".join(f"- {name}: {value}" for name, value in lines.items() if value)
    return f"### {code(facts['entry'])}\n\n{_command(facts)}\n\n{listed}"


def _sittings(graded: list[Row]) -> dict[str, str]:
    """When, with what and on which accelerators the verdicts were made."""
    if not graded:
        return {}
    environments = [_object(row["environment"]) for row in graded]
    versions = sorted({_told(environment, _TOLD) for environment in environments})
    devices: dict[str, int] = {}
    for row, environment in zip(graded, environments, strict=True):
        name = str(environment.get("accelerator", ""))
        devices[name] = devices.get(name, 0) + row["verdicts"]
    unnamed = devices.pop("", 0)
    named = [f"{code(name)} ({count})" for name, count in sorted(devices.items())]
    named += [f"not told ({unnamed})"] if unnamed else []
    first = min(row["first"] for row in graded)
    last = max(row["last"] for row in graded)
    hours = sum(row["seconds"] or 0.0 for row in graded) / 3600
    return {
        "graded": f"{_time(first)} to {_time(last)}, {number(hours, 1)} hours of grading in all",
        "graded with": "; ".join(versions),
        "accelerators (verdicts)": ", ".join(named),
    }


def _command(facts: Row) -> str:
    """The command that makes the run again, as a block; nothing where a word is unusual."""
    words = ["kernelmark", "run", "--method", facts["method"]]
    words += ["--model", facts["model"]] if facts["model"] else []
    targets = json.loads(facts["targets"] or "[]")
    words += ["--suite", facts["suite"], "--chip", ",".join([facts["chip"], *targets])]
    words += ["--tier", facts["tier"]]
    for key, value in sorted(_object(facts["options"]).items()):
        words += ["--option", f"{key}={value}"]
    if not all(_PLAIN.fullmatch(word) for word in words):
        return "A name in this entry holds characters that a terminal may misread: no command."
    return f"```bash\n{shlex.join(words)}\n```"


def _environment(text: str, names: tuple[str, ...]) -> str:
    return _told(_object(text), names)


def _told(environment: Row, names: tuple[str, ...]) -> str:
    return ", ".join(f"{n} {escaped(environment[n])}" for n in names if environment.get(n))


def _object(text: str | None) -> Row:
    found = json.loads(text) if text else {}
    return found if isinstance(found, dict) else {}


def _time(text: str) -> str:
    return escaped(text[:16].replace("T", " ")) + " UTC" if text else NOTHING


def every_operator(season: Season) -> str:
    """One line an operator: what each entry makes of it."""
    query = """
    SELECT o.operator, o.source, o.family, o.outcome, o.roofline, c.entry, c.status, c.speedup
    FROM season_outcome AS o JOIN season_cell AS c USING (operator)
    ORDER BY o.source, o.family, o.operator, c.place
    """
    columns = {"operator": "operator", "family": "family"}
    columns |= {name: f"{code(name)}:" for name in season.names}
    columns |= {"roofline": "best's roofline:"}
    rows = []
    for (operator,), cells in by_key(season.rows(query), "operator").items():
        row = {
            "operator": code(operator),
            "family": escaped(cells[0]["family"]),
            "roofline": share(cells[0]["roofline"]),
        }
        row |= {cell["entry"]: _speedup(cell, cells) for cell in cells}
        rows.append(row)
    return f"""## Every operator

Speedups over the baseline; bold is the winner; a word is the status of what is not solved, a dash
that nothing was handed in.

{table(columns, rows)}
"""


def _speedup(cell: Row, cells: list[Row]) -> str:
    if cell["status"] == "no_candidate":
        return NOTHING
    if cell["status"] != "passed":
        return escaped(cell["status"].replace("_", " "))
    text = "solved" if cell["speedup"] is None else number(cell["speedup"])
    return f"**{text}**" if cells[0]["outcome"] == cell["entry"] else text
