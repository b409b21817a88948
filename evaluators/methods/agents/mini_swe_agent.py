"""mini-swe-agent. Source: its documentation of ``mini`` and of its global configuration."""

from __future__ import annotations

from kernelmark.evaluators.methods.agents.base import Preset, Seat, Start


def _start(seat: Seat) -> Start:
    return Start(
        arguments=(
            *("--yolo", "--exit-immediately", "--cost-limit", "0", "--model"),
            *(f"openai/{seat.model}", "--task", seat.prompt),
        ),
        environment={
            "OPENAI_API_BASE": f"{seat.url}/v1",
            "OPENAI_BASE_URL": f"{seat.url}/v1",
            "OPENAI_API_KEY": seat.token,
            "MSWEA_CONFIGURED": "true",
            "MSWEA_COST_TRACKING": "ignore_errors",  # tokens are counted by the gateway
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        },
    )


PRESET = Preset(
    program="mini",
    provider="openai",
    tested="2.4.6",
    install="pip install mini-swe-agent",
    start=_start,
)
