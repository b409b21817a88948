"""Secrets in what is about to be published: found, blanked out, and told of.

Three kinds: keys and tokens by their known shapes, values that the caller knows to be secret (those
of environment variables that hold keys), and what is merely private (home folders). Works on the
strings of parsed JSON, never on its text, so numbers and structure cannot be hurt. A secret of a
shape that nobody knows is not found.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Shape:
    """One kind of secret. `marks`: texts one of which is in every match; they are looked for first,
    as that is much faster."""

    kind: str
    marks: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(kind: str, marks: tuple[str, ...], pattern: str) -> Shape:
    return Shape(kind, marks, re.compile(pattern))


#: where a token may begin; after a letter only where that ends an escape of JSON (`\n`, `\u201c`)
_START = r"(?:(?<![A-Za-z0-9_-])|(?<=\\[bfnrt])|(?<=\\u[0-9a-fA-F]{4}))"

#: keys and tokens, by the shapes that their issuers document
SECRETS = (
    _shape("private key", ("PRIVATE KEY-----",), r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]*"),
    _shape("provider key", ("sk-",), _START + r"sk-(?:ant-|proj-|or-|svcacct-)?[A-Za-z0-9_-]{20,}"),
    _shape("Hugging Face token", ("hf_",), _START + r"hf_[A-Za-z0-9]{30,}"),
    _shape(
        "GitHub token",
        ("ghp_", "gho_", "ghu_", "ghs_", "ghr_"),
        _START + r"gh[pousr]_[A-Za-z0-9]{36,}",
    ),
    _shape("GitHub token", ("github_pat_",), _START + r"github_pat_[A-Za-z0-9_]{40,}"),
    _shape("GitLab token", ("glpat-",), _START + r"glpat-[A-Za-z0-9_-]{20,}"),
    _shape("Google key", ("AIza",), _START + r"AIza[A-Za-z0-9_-]{35}"),
    _shape("AWS key", ("AKIA", "ASIA"), _START + r"A(?:KI|SI)A[A-Z0-9]{16}(?![A-Z0-9])"),
    _shape("Slack token", ("xox",), _START + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _shape("provider key", ("gsk_",), _START + r"gsk_[A-Za-z0-9]{40,}"),
    _shape("provider key", ("xai-",), _START + r"xai-[A-Za-z0-9]{40,}"),
    _shape("provider key", ("nvapi-",), _START + r"nvapi-[A-Za-z0-9_-]{40,}"),
    _shape("JSON web token", ("eyJ",), _START + r"eyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    _shape("bearer token", ("earer ",), r"[Bb]earer [A-Za-z0-9_.~+/=-]{16,}"),
    _shape("password in an address", ("://",), r"(?<=://)[^\s/:@'\"]+:[^\s/:@'\"]{3,}(?=@)"),
)

#: private, not secret: blanked out where that can be done, never a reason to refuse
HOME_FOLDER = re.compile(
    r"(?:(?<![\w.])/(?:home|Users)/[^/\s\"':;,]+|[A-Za-z]:\\+Users\\+[^\\\s\"']+)"
)
_HOME_MARKS = ("/home/", "/Users/", "\\Users\\")

#: shorter values of environment variables are not looked for: they would be found everywhere
_SHORTEST = 12


def secret_kind(text: str) -> str | None:
    """What kind of secret `text` holds, by shape; None where none is seen."""
    for shape in SECRETS:
        if any(mark in text for mark in shape.marks) and shape.pattern.search(text):
            return shape.kind
    return None


def secret_values(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Values of environment variables that are named like secrets and long enough to look for."""
    named = re.compile(r"(?i)(key|token|secret|passw|credential)")
    return tuple(
        value
        for name, value in environment.items()
        if named.search(name) and len(value) >= _SHORTEST and not value.isdigit()
    )


@dataclass
class Redacted:
    """What was found. `places`: (file, kind) with how often; `kept`: where private text stays."""

    places: Counter[tuple[str, str]] = field(default_factory=Counter)
    kept: list[str] = field(default_factory=list)

    def counts(self) -> dict[str, int]:
        """How often by kind."""
        kinds: Counter[str] = Counter()
        for (_, kind), count in self.places.items():
            kinds[kind] += count
        return dict(sorted(kinds.items()))

    def lines(self) -> list[str]:
        """For a person: one line a file and kind, and one for each text that stays."""
        blanked = [f"{file}: {kind}, {n} times" for (file, kind), n in sorted(self.places.items())]
        return blanked + self.kept


class Redactor:
    """Blanks out secrets, those in `values` too, and remembers what it did."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = tuple(values)
        self.redacted = Redacted()

    def clean(self, value: Any, file: str) -> Any:
        """`value` (plain JSON) without secrets and home folders, in keys of objects too."""
        if isinstance(value, str):
            return self._text(value, file)
        if isinstance(value, dict):
            return {self._text(k, file): self.clean(v, file) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [self.clean(item, file) for item in value]
        return value

    def secret_in(self, text: str) -> str | None:
        """The kind of a secret in `text`, if there is one."""
        if any(value in text for value in self._values):
            return "value of an environment variable"
        return secret_kind(text)

    def note_private(self, text: str, where: str) -> None:
        """Remembers private text that cannot be blanked out."""
        for match in HOME_FOLDER.finditer(text):
            self.redacted.kept.append(f"{where}: stays as it is: {match[0]}")

    def _text(self, text: str, file: str) -> str:
        if len(text) < _SHORTEST - 4:
            return text
        for value in self._values:
            if value in text:
                self.redacted.places[file, "value of an environment variable"] += text.count(value)
                text = text.replace(value, "[redacted]")
        for shape in SECRETS:
            if any(mark in text for mark in shape.marks):
                text, count = shape.pattern.subn(f"[redacted {shape.kind}]", text)
                if count:
                    self.redacted.places[file, shape.kind] += count
        if any(mark in text for mark in _HOME_MARKS):
            text, count = HOME_FOLDER.subn("~", text)
            if count:
                self.redacted.places[file, "home folder"] += count
        return text
