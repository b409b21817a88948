"""Candidate languages, found by folder: a file with a `LANGUAGE` in it is a language.

Files whose name starts with an underscore are parts of a language, not languages.
"""

from __future__ import annotations

import importlib
import pkgutil

from kernelmark.evaluators import languages
from kernelmark.evaluators.languages.base import Language
from kernelmark.operators.registry import UnknownName


def language_names() -> list[str]:
    """Names of all languages, sorted. Imports none of them."""
    found = (info.name for info in pkgutil.iter_modules(languages.__path__))
    return sorted(name for name in found if not _is_part(name))


def get_language(name: str) -> Language:
    """The language called `name`. Raises `UnknownName`."""
    if name not in language_names():
        raise UnknownName("language", name, language_names())
    language: Language = importlib.import_module(f"{languages.__name__}.{name}").LANGUAGE
    return language


def _is_part(name: str) -> bool:
    return name in ("base", "registry") or name.startswith("_")
