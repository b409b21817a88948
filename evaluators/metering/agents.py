"""Which agent of a session sent a request, where its headers tell.

Sent by the client: good for telling sub-agents apart, never for deciding what is allowed. Headers
as Claude Code 2.1, Codex 0.171 and OpenCode 1.18 send them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SESSION = ("x-claude-code-session-id", "session-id", "session_id", "x-session-id")
_AGENT = ("x-claude-code-agent-id", "x-openai-subagent")
_PARENT = ("x-claude-code-parent-agent-id", "x-codex-parent-thread-id", "x-parent-session-id")
_LONGEST = 200


@dataclass(frozen=True)
class Sender:
    """Empty texts: not told."""

    session: str
    agent: str
    parent_agent: str


def sender(headers: Mapping[str, str]) -> Sender:
    """Who sent a request with these headers."""
    return Sender(_first(headers, _SESSION), _first(headers, _AGENT), _first(headers, _PARENT))


def retry_count(headers: Mapping[str, str]) -> int | None:
    """How often the client says that it has tried before: SDKs of OpenAI and Anthropic."""
    text = headers.get("x-stainless-retry-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    values = (headers.get(name, "") for name in names)
    return next((value[:_LONGEST] for value in values if value), "")
