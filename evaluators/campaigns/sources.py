"""Reading a candidate from a file that a person names: mistakes are answered with one line."""

from __future__ import annotations

import ast
from pathlib import Path

from kernelmark.benchmark.errors import UserError
from kernelmark.evaluators.grading.records import Candidate
from kernelmark.evaluators.languages.registry import get_language
from kernelmark.operators.records import Operator

#: the longest source that is read; a candidate is a file that a person could read
MAX_BYTES = 1 << 20


def read_candidate(path: Path, operator: Operator, language: str, entry: str) -> Candidate:
    """The candidate that `path` holds.

    `UserError` for what is no regular file, is too long or not UTF-8, a syntax error (with its
    line), or no function of the entry point's name (with the names of those that there are).
    `UnknownName` for the language. A byte order mark is left out, as Python does.
    """
    suffix = get_language(language).suffix
    if path.exists() and not path.is_file():
        raise UserError(f"{path}: not a file of source text")
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise UserError(f"{path}: longer than {MAX_BYTES} bytes, the most that is read")
        source = content.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not UTF-8 ({error.reason} at byte {error.start})") from None
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}") from None
    candidate = Candidate(operator.id, source, language, entry)
    if suffix == ".py":
        _has_entry(path, source, candidate.entry_point)
    return candidate


def defined_names(source: str) -> tuple[list[str], list[str]]:
    """Functions that Python `source` defines at its top level, and all other names bound there.

    Raises `SyntaxError`, or `ValueError` for text that no compiler takes (null bytes).
    """
    functions: list[str] = []
    others: list[str] = []
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions.append(node.name)
        elif isinstance(node, ast.ClassDef):
            others.append(node.name)
        elif isinstance(node, ast.Assign):
            others += [target.id for target in node.targets if isinstance(target, ast.Name)]
        elif isinstance(node, ast.Import | ast.ImportFrom):
            others += [(alias.asname or alias.name).split(".")[0] for alias in node.names]
    return functions, others


def _has_entry(path: Path, source: str, entry: str) -> None:
    try:
        functions, others = defined_names(source)
    except SyntaxError as error:
        raise UserError(f"{path}:{error.lineno or 1}: syntax error: {error.msg}") from None
    except ValueError as error:
        raise UserError(f"{path}: cannot be parsed: {error}") from None
    except (RecursionError, MemoryError):
        raise UserError(f"{path}: cannot be parsed: nested too deeply") from None
    if entry not in functions and entry not in others:
        found = f"it defines {', '.join(functions)}" if functions else "it defines no function"
        raise UserError(f"{path}: no function {entry}; {found} (--entry names another)")
