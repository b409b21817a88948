"""Files that are whole or absent, whenever the process is killed."""

from __future__ import annotations

import json
import os
import uuid
from pathlib import Path
from typing import Any

from kernelmark.benchmark.errors import UserError


def write_bytes(path: Path, data: bytes) -> None:
    """Writes `path` by a temporary neighbour, flush to disk, and rename. Makes its folder."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.part")
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Writes `value` as JSON, whole or not at all."""
    write_bytes(path, (json.dumps(value, indent=1, sort_keys=True) + "\n").encode())


def read_json(path: Path) -> Any:
    """The JSON value in `path`; `UserError` where it is missing or not JSON."""
    try:
        return json.loads(path.read_bytes())
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (ValueError, RecursionError) as error:
        raise UserError(f"{path}: not JSON ({error})") from None


def slug(operator: str) -> str:
    """An operator's id as a file name: ``aten::softmax`` gives ``aten.softmax``."""
    return operator.replace("::", ".", 1)
