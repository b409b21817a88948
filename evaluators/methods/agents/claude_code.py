"""Claude Code. Source: its documentation of environment variables and of headless use."""

from __future__ import annotations

from kernelmark.evaluators.methods.agents.base import Preset, Seat, Start


def _start(seat: Seat) -> Start:
    return Start(
        arguments=(
            *("-p", seat.prompt, "--model", seat.model, "--dangerously-skip-permissions"),
            *("--output-format", "stream-json", "--verbose"),
            # They run on the provider's side, beyond the sandbox.
            *("--disallowedTools", "WebSearch", "WebFetch"),
        ),
        environment={
            "ANTHROPIC_BASE_URL": seat.url,
            "ANTHROPIC_AUTH_TOKEN": seat.token,
            # Background calls too: one run, one model.
            "ANTHROPIC_DEFAULT_HAIKU_MODEL": seat.model,
            "ANTHROPIC_DEFAULT_SONNET_MODEL": seat.model,
            "ANTHROPIC_DEFAULT_OPUS_MODEL": seat.model,
            "CLAUDE_CODE_SUBAGENT_MODEL": seat.model,
            "CLAUDE_CODE_ATTRIBUTION_HEADER": "0",  # it would keep sessions from sharing caches
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
        },
    )


PRESET = Preset(
    program="claude",
    provider="anthropic",
    tested="2.1.197",
    install="npm install -g @anthropic-ai/claude-code",
    start=_start,
)
