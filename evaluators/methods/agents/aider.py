"""Aider. Source: its documentation of command-line options.

It edits the candidate in its replies; that its test command is `verify` closes the loop.
"""

from __future__ import annotations

from kernelmark.evaluators.methods.agents.base import Preset, Seat, Start


def _start(seat: Seat) -> Start:
    return Start(
        arguments=(
            *("--model", f"openai/{seat.model}", "--weak-model", f"openai/{seat.model}"),
            *("--yes-always", "--no-git", "--no-check-update", "--analytics-disable"),
            *("--no-show-model-warnings", "--no-show-release-notes", "--no-detect-urls"),
            *("--no-pretty", "--no-fancy-input", "--edit-format", "whole"),
            *("--auto-test", "--test-cmd", "verify"),
            *("--message", seat.prompt, seat.candidate),
        ),
        environment={
            "OPENAI_API_BASE": f"{seat.url}/v1",
            "OPENAI_API_KEY": seat.token,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )


PRESET = Preset(
    program="aider",
    provider="openai",
    tested="0.86.2",
    install="pip install aider-chat",
    start=_start,
)
