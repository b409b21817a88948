"""Codex. Source: its documentation of ``config.toml`` and of ``codex exec``."""

from __future__ import annotations

import json

from kernelmark.evaluators.methods.agents.base import Preset, Seat, Start

#: TOML takes JSON's texts
_CONFIG = """\
model = {model}
model_provider = "kernelmark"
web_search = "disabled"
check_for_update_on_startup = false

[model_providers.kernelmark]
name = "kernelmark"
base_url = {url}
env_key = "KERNELMARK_TOKEN"
wire_api = "responses"
request_max_retries = 2
stream_max_retries = 0

[analytics]
enabled = false
"""


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False)


def _start(seat: Seat) -> Start:
    config = _CONFIG.format(model=_text(seat.model), url=_text(f"{seat.url}/v1"))
    return Start(
        arguments=(
            *("exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"),
            *("--json", seat.prompt),
        ),
        environment={"KERNELMARK_TOKEN": seat.token},
        files={".codex/config.toml": config},
    )


PRESET = Preset(
    program="codex",
    provider="openai",
    tested="0.171.0",
    install="npm install -g @openai/codex",
    start=_start,
)
