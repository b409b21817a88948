"""Which agent of a session sent a request, where its headers tell.

Sent by the client: good for telling sub-agents apart, never for deciding what is allowed. Headers
as seen on the wire from Claude Code 2.1.197, Codex 0.171.0 and OpenCode 1.18.33, each with a
sub-agent; Gemini CLI 0.61.0 sends none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

_SESSION = ("x-claude-code-session-id", "session-id", "x-session-id")
_PARENT = ("x-claude-code-parent-agent-id", "x-codex-parent-thread-id", "x-parent-session-id")
#: an agent's own name; those of Codex and OpenCode come with the main agent's requests too
_AGENT = ("x-claude-code-agent-id",)
_AGENT_WITH_PARENT = ("thread-id", "x-session-id")
_LONGEST = 200


@dataclass(frozen=True)
class Sender:
    """Empty texts: not told. `agent` is empty for the main agent of a session."""

    session: str
    agent: str
    parent_agent: str


def sender(headers: Mapping[str, str]) -> Sender:
    """Who sent a request with these headers."""
    parent = _first(headers, _PARENT)
    agent = _first(headers, (*_AGENT, *_AGENT_WITH_PARENT) if parent else _AGENT)
    return Sender(_first(headers, _SESSION), agent, parent)


def retry_count(headers: Mapping[str, str]) -> int | None:
    """How often the client says that it has tried before: SDKs of OpenAI and Anthropic."""
    text = headers.get("x-stainless-retry-count", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 6 else None


def _first(headers: Mapping[str, str], names: tuple[str, ...]) -> str:
    values = (headers.get(name, "") for name in names)
    return next((value[:_LONGEST] for value in values if value), "")
