"""The three providers: where their keys go, what their errors look like, how clients tell.

A refusal has a status and a type that the provider's own clients take as final; those made by
the gateway also carry ``x-should-retry: false``, which the SDKs of OpenAI and Anthropic obey.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from kernelmark.evaluators.metering.dialects.base import Provider


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


def _x_api_key(key: str) -> dict[str, str]:
    return {"x-api-key": key} if key else {}


def _x_goog_api_key(key: str) -> dict[str, str]:
    return {"x-goog-api-key": key} if key else {}


def _openai_error(status: int, message: str, code: str) -> dict[str, Any]:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


_ANTHROPIC_TYPES = {
    401: "authentication_error",
    404: "not_found_error",
    413: "request_too_large",
}


def _anthropic_error(status: int, message: str, code: str) -> dict[str, Any]:
    default = "invalid_request_error" if status < 500 else "api_error"
    kind = _ANTHROPIC_TYPES.get(status, default)
    return {"type": "error", "error": {"type": kind, "message": message, "code": code}}


_GEMINI_STATUSES = {401: "UNAUTHENTICATED", 404: "NOT_FOUND"}


def _gemini_error(status: int, message: str, code: str) -> dict[str, Any]:
    default = "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE"
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": code.upper(),
        "domain": "kernelmark",
    }
    error = {
        "code": status,
        "message": message,
        "status": _GEMINI_STATUSES.get(status, default),
        "details": [detail],
    }
    return {"error": error}


OPENAI = Provider("openai", True, _bearer, _openai_error)
ANTHROPIC = Provider("anthropic", False, _x_api_key, _anthropic_error)
GEMINI = Provider("gemini", False, _x_goog_api_key, _gemini_error)
PROVIDERS = {provider.name: provider for provider in (OPENAI, ANTHROPIC, GEMINI)}

_GEMINI_PATH = re.compile(r"v1(alpha|beta)(/.*)?|v1/[^:]*:[a-z]+(Content|Contents|Tokens)")


def spoken(path: str, headers: Mapping[str, str]) -> Provider:
    """Whose dialect a client speaks; by path where that tells, else by headers."""
    if path.startswith("v1/messages"):
        return ANTHROPIC
    if path.startswith(("v1/chat/", "v1/responses", "v1/embeddings")):
        return OPENAI
    if _GEMINI_PATH.fullmatch(path):
        return GEMINI
    if "anthropic-version" in headers:
        return ANTHROPIC
    return GEMINI if "x-goog-api-key" in headers else OPENAI


def tokens_sent(headers: Mapping[str, str], query: Mapping[str, str]) -> list[str]:
    """Every text that a client sent where a provider's key goes."""
    bearer = headers.get("Authorization", "")
    sent = (
        bearer.removeprefix("Bearer ").strip() if bearer.startswith("Bearer ") else "",
        headers.get("x-api-key", ""),
        headers.get("x-goog-api-key", ""),
        query.get("key", ""),
    )
    return [token for token in sent if token]
