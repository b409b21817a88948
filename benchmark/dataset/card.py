"""The card: README.md with the YAML block that the Hub and `datasets` read."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import yaml

from kernelmark.benchmark.dataset.identity import (
    CANARY,
    CITATION,
    CURRENT,
    LICENCE,
    RELEASES,
    REPO,
    SPLIT,
    SUMMARY,
    TITLE,
)
from kernelmark.benchmark.dataset.schema import CONFIGURATIONS, OPERATORS, Column, Row

#: headings that a card must have; `dataset check` looks for each
SECTIONS = (
    "Configurations",
    "Why it exists",
    "Composition",
    "Scoring",
    "Intended use",
    "Limits",
    "Known exploits",
    "Changelog",
    "Canary",
    "Citation",
)

_SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))

_LOADING = """```python
from datasets import load_dataset

operators = load_dataset("{repo}", split="{split}")  # one row an operator
cases = load_dataset("{repo}", "cases", split="{split}")  # one row a call
baselines = load_dataset("{repo}", "baselines", split="{split}")  # one row a call and chip
```

A call's inputs are declared, not stored. `kernelmark` makes them from a row and a seed, the same
bytes on the same device type and torch version:

```python
import torch
from kernelmark.benchmark.dataset.rows import case_of
from kernelmark.operators.draws import draw
from kernelmark.operators.registry import get_operator

row = cases[0]
call = draw(get_operator(row["operator"]), case_of(row), "base", 1, torch.device("cpu"))
```

Grade over exactly this revision, whose content hash then stands in every verdict:

```
kernelmark run --method reference --suite all --cases-from {repo}@v{version}
```"""

_WHY = """Many benchmarks ask for kernels; few can say which of two good methods is better, on which
chip, at what price. Operators here are those that users call (PyTorch ATen, vLLM, cuBLAS), with
their own signatures, on shapes of named models, against the implementation that a user would call
instead. Each result is compared with a float64 oracle, within a limit that honest kernels meet and
deliberately wrong ones do not, and timed with a cold cache, in turns with the baseline."""

_SCORING = """Always over a whole suite: an operator that is not solved counts 0.

- `solved`: share of operators whose candidate passed every gate;
- `score`: mean over operators of min(speedup, 2), 0 where not solved (`weight` is the same for
  all);
- `speedup`: geometric mean over solved operators; of one operator, over its full-tier cases: device
  time of the baseline over device time of the candidate;
- the share of operators at least p times as fast as the baseline, for every p;
- fraction of the roofline; tokens and dollars per solved operator.

Ranks are intervals (paired bootstrap over operators); entries that cannot be told apart share one.
Results over different `digest`s of an operator are never ranked together.

An element's error is |y - reference| / (eps_out |reference| + eps_acc S), with S the same operation
over absolute values: `tolerance_limit` bounds it, eps_acc is that of `tolerance_accumulator`."""

_USE = """For judging methods that write kernels: language models, agents, compilers, libraries,
people. Not for training: scores of models that were trained on it say nothing. A submission
discloses whether its model may have seen the data set; the canary helps to find out."""

_LIMITS = """- Single and fused operators, not whole models; forward and backward as listed.
- Oracles and cases are public. Inputs are not: the judge draws them from secret seeds.
- Shapes are fixed and told; a kernel tuned to them need not be good at others.
- Times depend on driver, clocks, and compiler: `baselines` says what each was taken with, and a run
  measures its own baseline beside the candidate. Published times are for orientation.
- Operators that name one vendor's library (`chips`) say little about other chips.
- Draws are equal only for one device type and torch version: generators differ between them."""

_EXPLOITS = """Each was tried by a dishonest candidate that the project keeps as a test.

- Calling a vendor's or framework's routine, returning an input, zeros or a constant, caching by
  address, identity or version, counting calls, deferring work past the clock, patching clocks,
  replaying files, reaching for the judge's frames or expected values: refused by the scan, found by
  secret inputs, poisoned outputs and a second process, or by replay without the kernels.
- A lower precision than the signature asks: found by the comparison.
- A time below what the chip's peaks allow: `implausible`, never ranked.
- Not stopped: host code that reads elements one by one into Python numbers and computes with those.
  It can gain "solved", never speed."""


def make_card(tables: Mapping[str, Sequence[Row]], sizes: Mapping[str, int], hash: str) -> str:
    """README.md. `sizes`: bytes of each configuration's file; `hash`: the content hash."""
    front = yaml.safe_dump(_front_matter(tables, sizes), sort_keys=False, width=1000)
    fields = {"repo": REPO, "version": CURRENT.version, "split": SPLIT}
    body = {
        "Configurations": _configurations(tables) + "\n\n" + _LOADING.format(**fields),
        "Why it exists": _WHY,
        "Composition": _composition(tables),
        "Scoring": _SCORING,
        "Intended use": _USE,
        "Limits": _LIMITS,
        "Known exploits": _EXPLOITS,
        "Changelog": _changelog(),
        "Canary": f"{CANARY}\n\nIt stands in every row and file. Keep it where you copy them.",
        "Citation": f"```bibtex\n{CITATION}\n```",
    }
    head = f"# {TITLE}\n\n{SUMMARY}\n\nVersion {CURRENT.version}, content hash `{hash}`."
    sections = [f"## {title}\n\n{body[title]}" for title in SECTIONS]
    return f"---\n{front}---\n\n" + "\n\n".join([head, *sections]) + "\n"


def front_matter(card: str) -> Any:
    """The YAML block of a card. `ValueError` where there is none, or it cannot be read."""
    if not card.startswith("---\n") or "\n---\n" not in card[4:]:
        raise ValueError("no YAML block at its head")
    try:
        return yaml.safe_load(card[4:].split("\n---\n", 1)[0])
    except yaml.YAMLError as error:
        raise ValueError(f"its YAML block cannot be read: {' '.join(str(error).split())}") from None


def card_configs() -> list[dict[str, Any]]:
    """The card's `configs`: which files make which configuration."""
    return [
        {
            "config_name": configuration.name,
            **({"default": True} if configuration is OPERATORS else {}),
            "data_files": [{"split": SPLIT, "path": configuration.file}],
        }
        for configuration in CONFIGURATIONS
    ]


def card_features(columns: Sequence[Column]) -> list[dict[str, str]]:
    """The card's `features` of one configuration, as `datasets` writes them."""
    return [
        {"name": c.name, "list": "string"}
        if c.type == "strings"
        else {"name": c.name, "dtype": c.type}
        for c in columns
    ]


def _front_matter(tables: Mapping[str, Sequence[Row]], sizes: Mapping[str, int]) -> dict[str, Any]:
    total = sum(len(rows) for rows in tables.values())
    # In memory; without it `datasets` warns, and ignores what the card says of the split.
    nbytes = {c.name: pa.Table.from_pylist(tables[c.name], c.schema).nbytes for c in CONFIGURATIONS}
    return {
        "pretty_name": TITLE,
        "license": LICENCE.lower(),
        "language": ["en", "code"],
        "task_categories": ["text-generation"],
        "size_categories": [next(name for most, name in _SIZES if total < most)],
        "annotations_creators": ["expert-generated"],
        "source_datasets": ["original"],
        "tags": ["benchmark", "code", "gpu", "kernel-generation", "triton", "cuda", "croissant"],
        "configs": card_configs(),
        "dataset_info": [
            {
                "config_name": configuration.name,
                "features": card_features(configuration.columns),
                "splits": [
                    {
                        "name": SPLIT,
                        "num_bytes": nbytes[configuration.name],
                        "num_examples": len(tables[configuration.name]),
                    }
                ],
                "download_size": sizes[configuration.name],
                "dataset_size": nbytes[configuration.name],
            }
            for configuration in CONFIGURATIONS
        ],
    }


def _configurations(tables: Mapping[str, Sequence[Row]]) -> str:
    parts = [f"One split, `{SPLIT}`: nothing here is to be trained on."]
    for configuration in CONFIGURATIONS:
        default = ", the default" if configuration is OPERATORS else ""
        count = len(tables[configuration.name])
        lines = [f"### {configuration.name} ({count} rows{default})", "", configuration.description]
        lines += ["", "| column | type | what it is |", "|---|---|---|"]
        lines += [f"| `{c.name}` | {_type(c)} | {c.description} |" for c in configuration.columns]
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def _type(column: Column) -> str:
    name = "list of strings" if column.type == "strings" else column.type
    return f"{name}, or null" if column.nullable else name


def _composition(tables: Mapping[str, Sequence[Row]]) -> str:
    operators, cases, baselines = (tables[c.name] for c in CONFIGURATIONS)
    lines = ["| source | operators | small cases | full cases |", "|---|---|---|---|"]
    source = {row["id"]: row["source"] for row in operators}
    members = Counter(source.values())
    tiers = Counter((source[row["operator"]], row["tier"]) for row in cases)
    for name, count in members.items():
        lines.append(f"| {name} | {count} | {tiers[name, 'small']} | {tiers[name, 'full']} |")
    lines.append("")
    for sku in sorted({row["sku"] for row in baselines}):
        rows = [row for row in baselines if row["sku"] == sku]
        measured = len({row["operator"] for row in rows})
        lines.append(f"Baselines on {sku}: {len(rows)} cases of {measured} operators.")
    dtypes = sorted({dtype for row in operators for dtype in row["dtypes"]})
    lines += ["", f"Dtypes: {', '.join(dtypes)}."]
    lines += [
        "",
        "Small cases are for correctness (tails, empty and strided tensors, every overload); full "
        "cases are timed, and name the model that their shape comes from (`origin`). Everything "
        "was written for this benchmark; no person's data is in it.",
    ]
    return "\n".join(lines)


def _changelog() -> str:
    return "\n".join(
        f"- {release.version} ({release.date}): {' '.join(release.changes)}" for release in RELEASES
    )
