"""Talking to the Hugging Face Hub: what passes by itself is tried again, the rest is told.

A commit's answer may be lost though the commit was made, so what is tried again must look first at
what is there already.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TypeVar

from kernelmark.benchmark.errors import InfrastructureError, UserError

#: conflicts (parent moved, another commit in progress) and what passes by itself
RETRIED = (408, 409, 412, 429)
TRIES = 8
LONGEST_WAIT_S = 60.0

Say = Callable[[str], None]
T = TypeVar("T")


def try_again(
    repo: str,
    what: str,
    action: Callable[[], T],
    say: Say,
    pause: Callable[[float], None] = time.sleep,
) -> T:
    """Does `action` until it works, waiting longer each time, and as long as the Hub asks.

    `UserError` for what will not pass by itself, `InfrastructureError` after `TRIES` tries.
    """
    for number in range(1, TRIES + 1):
        try:
            return action()
        except Exception as error:
            passing = _passing(error)
            if passing is None:
                raise _refused(repo, what, error) from error
            if number == TRIES:
                message = f"{repo}: {what} failed {TRIES} times; the last time: {passing}"
                raise InfrastructureError(message) from error
            wait = _wait_s(number, error)
            say(f"{what}: {passing}; again in {wait:.0f} s ({number}/{TRIES})")
            pause(wait)
    raise AssertionError("unreachable")


def _passing(error: Exception) -> str | None:
    """What to say of an error that may pass by itself; None for one that will not."""
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    status = _status(error)
    if status is not None and (status in RETRIED or status >= 500):
        return f"the Hub answers {status}"
    if isinstance(error, LocalEntryNotFoundError):
        return "a file cannot be fetched"
    broken = type(error).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore")
    if not isinstance(error, HfHubHTTPError) and (broken or isinstance(error, ConnectionError)):
        return f"the connection broke ({type(error).__name__})"
    return None


def _status(error: Exception) -> int | None:
    """The HTTP status of the answer that an error stands for."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None


def _refused(repo: str, what: str, error: Exception) -> Exception:
    """What a person is told of an error that will not pass; bugs stay what they are."""
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    if isinstance(error, HfHubHTTPError):
        status, said = _status(error), " ".join(str(error.server_message or error).split())
        if status in (401, 403):
            said += " (HF_TOKEN must be set and may write there; or propose: --pull-request)"
        return UserError(f"{repo}: {what} is refused with {status}: {said}")
    if isinstance(error, ValueError) and "Invalid metadata in README.md" in str(error):
        return UserError(f"{repo}: the Hub refuses the card: {' '.join(str(error).split())}")
    if isinstance(error, HFValidationError):
        return UserError(f"{repo}: not a repository's name, NAMESPACE/NAME")
    return error


def _wait_s(number: int, error: Exception) -> float:
    """Seconds to wait: what the Hub asks for, else doubling, with jitter, at most a minute."""
    headers = getattr(getattr(error, "response", None), "headers", {})
    asked = headers.get("Retry-After", "")
    if asked.isdigit():
        return min(float(asked), LONGEST_WAIT_S)
    return min(2.0 ** (number - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0)
