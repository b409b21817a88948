"""The clients that methods and agents are built on, each making one request through a gateway."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import anthropic
import httpx
import httpx2
import litellm
import openai
from google import genai
from google.genai import errors as genai_errors
from google.genai import types as genai_types

from kernelmark.evaluators.metering.gateway import Grant

litellm.telemetry = False
litellm.suppress_debug_info = True

MODEL = "some-model"
MESSAGES: Any = [{"role": "user", "content": "Grüße"}]

#: what clients raise where the provider failed them
ERRORS = (
    openai.OpenAIError,
    anthropic.AnthropicError,
    genai_errors.APIError,
    genai_errors.UnknownApiResponseError,
    httpx.HTTPError,
    httpx2.HTTPError,
)

Ask = Callable[[Grant, int | None], str]


@dataclass(frozen=True)
class Client:
    """`ask` makes one request, with so many retries of its own (None: as the client likes), and
    gives the text of the answer."""

    name: str
    api: str
    provider: str
    stream: bool
    ask: Ask

    def __str__(self) -> str:
        return self.name


CLIENTS: list[Client] = []


def _client(name: str, api: str, provider: str, stream: bool) -> Callable[[Ask], Ask]:
    def register(ask: Ask) -> Ask:
        CLIENTS.append(Client(name, api, provider, stream, ask))
        return ask

    return register


def openai_client(grant: Grant, retries: int | None) -> openai.OpenAI:
    return _openai(grant.base_url, grant.token, retries)


@cache  # making a client takes longer than a request
def _openai(url: str, token: str, retries: int | None) -> openai.OpenAI:
    more = {} if retries is None else {"max_retries": retries}
    return openai.OpenAI(base_url=url, api_key=token, timeout=20, **more)


def anthropic_client(grant: Grant, retries: int | None) -> anthropic.Anthropic:
    return _anthropic(grant.root_url, grant.token, retries)


@cache
def _anthropic(url: str, token: str, retries: int | None) -> anthropic.Anthropic:
    more = {} if retries is None else {"max_retries": retries}
    return anthropic.Anthropic(base_url=url, api_key=token, timeout=20, **more)


def genai_client(grant: Grant, retries: int | None) -> genai.Client:
    return _genai(grant.root_url, grant.token, retries)


@cache
def _genai(url: str, token: str, retries: int | None) -> genai.Client:
    tries = None
    if retries is not None:
        tries = genai_types.HttpRetryOptions(attempts=retries + 1)
    options = genai_types.HttpOptions(base_url=url, timeout=20_000, retry_options=tries)
    return genai.Client(api_key=token, http_options=options)


@_client("openai chat", "chat", "openai", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    answer = openai_client(grant, retries).chat.completions.create(model=MODEL, messages=MESSAGES)
    return answer.choices[0].message.content or ""


@_client("openai chat stream", "chat", "openai", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    client = openai_client(grant, retries)
    chunks = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@_client("openai chat stream with usage", "chat", "openai", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    client, options = openai_client(grant, retries), {"include_usage": True}
    chunks = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, stream=True, stream_options=options
    )
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


@_client("openai responses", "responses", "openai", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    return openai_client(grant, retries).responses.create(model=MODEL, input="Grüße").output_text


@_client("openai responses stream", "responses", "openai", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    client = openai_client(grant, retries)
    events = client.responses.create(model=MODEL, input="Grüße", stream=True)
    return "".join(e.delta for e in events if e.type == "response.output_text.delta")


@_client("openai embeddings", "embeddings", "openai", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    answer = openai_client(grant, retries).embeddings.create(model=MODEL, input=["Grüße"])
    assert answer.data[0].embedding == [0.5, -0.25]
    return ""


@_client("anthropic messages", "messages", "anthropic", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    answer = anthropic_client(grant, retries).messages.create(
        model=MODEL, max_tokens=100, messages=MESSAGES
    )
    return "".join(block.text for block in answer.content if block.type == "text")


@_client("anthropic messages stream", "messages", "anthropic", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    client = anthropic_client(grant, retries)
    with client.messages.stream(model=MODEL, max_tokens=100, messages=MESSAGES) as stream:
        return "".join(stream.text_stream)


@_client("genai generate", "gemini", "gemini", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    client = genai_client(grant, retries)
    answer = client.models.generate_content(model=MODEL, contents="Grüße")
    return answer.text or ""


@_client("genai generate stream", "gemini", "gemini", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    client = genai_client(grant, retries)
    chunks = client.models.generate_content_stream(model=MODEL, contents="Grüße")
    return "".join(chunk.text or "" for chunk in chunks)


def _litellm(grant: Grant, retries: int | None, provider: str, stream: bool) -> str:
    base = grant.base_url if provider == "openai" else grant.root_url
    if provider == "gemini":
        base = f"{base}/v1beta"
    answer = litellm.completion(
        model=f"{provider}/{MODEL}",
        messages=MESSAGES,
        api_base=base,
        api_key=grant.token,
        max_tokens=100,
        timeout=20,
        stream=stream,
        num_retries=retries,
        max_retries=retries,
    )
    if not stream:
        return answer.choices[0].message.content or ""
    return "".join(chunk.choices[0].delta.content or "" for chunk in answer)


@_client("litellm chat", "chat", "openai", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    return _litellm(grant, retries, "openai", stream=False)


@_client("litellm chat stream", "chat", "openai", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    return _litellm(grant, retries, "openai", stream=True)


@_client("litellm messages", "messages", "anthropic", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    return _litellm(grant, retries, "anthropic", stream=False)


@_client("litellm messages stream", "messages", "anthropic", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    return _litellm(grant, retries, "anthropic", stream=True)


@_client("litellm gemini", "gemini", "gemini", stream=False)
def _(grant: Grant, retries: int | None) -> str:
    return _litellm(grant, retries, "gemini", stream=False)


@_client("litellm gemini stream", "gemini", "gemini", stream=True)
def _(grant: Grant, retries: int | None) -> str:
    return _litellm(grant, retries, "gemini", stream=True)
