"""OpenCode. Source: its documentation of configuration, providers and ``opencode run``."""

from __future__ import annotations

import json

from kernelmark.evaluators.methods.agents.base import Preset, Seat, Start


def _start(seat: Seat) -> Start:
    model = f"kernelmark/{seat.model}"
    config = {
        "provider": {
            "kernelmark": {
                "npm": "@ai-sdk/openai-compatible",
                "name": "kernelmark",
                "options": {"baseURL": f"{seat.url}/v1", "apiKey": seat.token},
                "models": {seat.model: {"name": seat.model}},
            }
        },
        "model": model,
        "small_model": model,
        "autoupdate": False,
        "share": "disabled",
        "permission": {"*": "allow", "webfetch": "deny", "websearch": "deny"},
    }
    return Start(
        arguments=("run", "--format", "json", "--model", model, seat.prompt),
        environment={
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        },
        files={".config/opencode/opencode.json": json.dumps(config)},
    )


PRESET = Preset(
    program="opencode",
    provider="openai",
    tested="1.18.33",
    install="npm install -g opencode-ai",
    start=_start,
)
