"""Gemini CLI. Source: its documentation of ``settings.json`` and of headless use."""

from __future__ import annotations

import json

from kernelmark.evaluators.methods.agents.base import Preset, Seat, Start

_SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    "tools": {"exclude": ["google_web_search", "web_fetch"]},
}


def _start(seat: Seat) -> Start:
    return Start(
        arguments=(
            *("--skip-trust", "--approval-mode", "yolo", "--model", seat.model),
            *("--output-format", "stream-json", "-p", seat.prompt),
        ),
        environment={"GOOGLE_GEMINI_BASE_URL": seat.url, "GEMINI_API_KEY": seat.token},
        files={".gemini/settings.json": json.dumps(_SETTINGS)},
    )


PRESET = Preset(
    program="gemini",
    provider="gemini",
    tested="0.61.0",
    install="npm install -g @google/gemini-cli",
    start=_start,
)
