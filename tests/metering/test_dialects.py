"""What each dialect reads: usage in every shape that providers are known to send."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from fakes import scripted_dialects
from fakes.scripted_upstream import Asked, Reply, ToolCall
from hypothesis import given
from hypothesis import strategies as st

from kernelmark.evaluators.metering.dialects.base import Dialect, Reading
from kernelmark.evaluators.metering.dialects.events import read_whole, stream_reader
from kernelmark.evaluators.metering.dialects.providers import ANTHROPIC, GEMINI, OPENAI, spoken
from kernelmark.evaluators.metering.dialects.registry import all_dialects, find_dialect
from kernelmark.evaluators.metering.ledger import Usage

METERED = {d.api: d for d in all_dialects() if not d.free}
EVENTS = "text/event-stream"


def read(api: str, answer: Any) -> Reading:
    return read_whole(METERED[api], json.dumps(answer).encode())


def stream(api: str, *events: Any) -> Reading:
    reader = stream_reader(METERED[api], EVENTS, hide=False)
    for event in events:
        reader.feed(b"data: " + json.dumps(event).encode() + b"\n\n")
    reader.end()
    return reader.reading


def chat(usage: Any, **more: Any) -> Reading:
    choice = {"index": 0, "message": {"content": "hi"}, "finish_reason": "stop"}
    return read("chat", {"id": "1", "model": "m", "choices": [choice], "usage": usage, **more})


@pytest.mark.parametrize(
    ("raw", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4}, Usage(9, out_total=4)),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "total_tokens": 13,
                "prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 1},
                "completion_tokens_details": {"reasoning_tokens": 3},
            },
            Usage(3, 5, 1, 0, 4, 3),
        ),
        (  # a server that counts reasoning apart
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "total_tokens": 20,
                "completion_tokens_details": {"reasoning_tokens": 7},
            },
            Usage(9, out_total=11, out_reasoning=7),
        ),
        (
            {
                "prompt_tokens": 9,
                "completion_tokens": 4,
                "prompt_tokens_details": None,
                "completion_tokens_details": {"reasoning_tokens": None},
            },
            Usage(9, out_total=4),
        ),
        (None, None),
        ({}, None),
        ([], None),
        ({"prompt_tokens": None, "completion_tokens": None}, None),
        ({"prompt_tokens": -1, "completion_tokens": 4}, None),
        ({"prompt_tokens": True, "completion_tokens": 4}, None),
        ({"prompt_tokens": 3}, None),
    ],
)
def test_chat(raw: Any, usage: Usage | None) -> None:
    reading = chat(raw)
    assert reading.usage == usage
    assert reading.final == (usage is not None)
    assert (reading.model, reading.upstream_id, reading.text_bytes) == ("m", "1", 2)


def test_chat_servers_that_tell_usage_in_every_chunk() -> None:
    def chunk(text: str, tokens: int, **more: Any) -> Any:
        usage = {"prompt_tokens": 9, "completion_tokens": tokens}
        return {"choices": [{"delta": {"content": text}, **more}], "usage": usage}

    reading = stream("chat", chunk("a", 1), chunk("b", 2), chunk("", 3, finish_reason="stop"))
    assert reading.usage == Usage(9, out_total=3)
    assert reading.finished
    assert reading.final
    cut = stream("chat", chunk("a", 0), chunk("b", 2))
    assert (cut.usage, cut.final) == (Usage(9, out_total=2), False)  # more may have come
    extra = {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}}
    assert stream("chat", chunk("a", 0), extra).final


@pytest.mark.parametrize("ends", [b"\n\r\n", b"\r\n\n", b"\r\r\n"])
def test_events_whose_lines_end_in_different_ways(ends: bytes) -> None:
    reader = stream_reader(METERED["chat"], EVENTS, hide=True)
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    said = {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}
    events = [json.dumps(event).encode() for event in (said, {"choices": [], "usage": usage})]
    first, extra, done = (b"data: " + event + ends for event in (*events, b"[DONE]"))
    assert first.strip() in reader.feed(first)
    assert b"usage" not in reader.feed(extra) + reader.feed(done) + reader.end()
    assert (reader.reading.usage, reader.reading.final) == (Usage(9, out_total=4), True)


@pytest.mark.parametrize("tier", ["flex", "priority", "scale"])
def test_other_than_list_prices_are_told(tier: str) -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 4}
    assert not chat(usage, service_tier=tier).list_price
    assert chat(usage, service_tier="default").list_price
    message = {"usage": {"input_tokens": 1, "output_tokens": 1, "speed": "fast"}}
    assert not read("messages", message).list_price


def test_responses_that_fail_or_stay_incomplete() -> None:
    usage = {"input_tokens": 9, "output_tokens": 4}
    for kind in ("completed", "incomplete", "failed"):
        reading = stream("responses", {"type": f"response.{kind}", "response": {"usage": usage}})
        assert (reading.usage, reading.finished, reading.ended) == (
            Usage(9, out_total=4),
            True,
            True,
        )
    failed = {"type": "response.failed", "response": {"error": {"message": "no"}, "usage": None}}
    reading = stream("responses", failed)
    assert (reading.usage, reading.final) == (None, False)
    assert "no" in reading.error


def test_messages_count_the_largest_told() -> None:
    start = {"input_tokens": 9, "cache_read_input_tokens": 50, "output_tokens": 1}
    reading = stream(
        "messages",
        {"type": "message_start", "message": {"id": "i", "model": "m", "usage": start}},
        {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "hi"}},
        {
            "type": "message_delta",
            "delta": {"stop_reason": "end_turn"},
            "usage": {"input_tokens": 0, "cache_read_input_tokens": None, "output_tokens": 30},
        },
        {"type": "message_stop"},
    )
    assert reading.usage == Usage(9, 50, out_total=30)
    assert reading.final
    assert json.loads(reading.raw_usage)["output_tokens"] == 30


def test_messages_iterations_that_are_charged_apart() -> None:
    """A compaction is not in the totals; messages and the answer of a fallback are."""
    each = {"input_tokens": 100, "output_tokens": 10}
    kinds = ("message", "compaction", "fallback_message")
    iterations = [{"type": kind, **each} for kind in kinds]
    usage = {"input_tokens": 200, "output_tokens": 20, "iterations": iterations}
    reading = read("messages", {"usage": usage})
    assert reading.usage == Usage(300, out_total=30)
    assert reading.list_price
    usage["iterations"] = [{"type": "advisor_message", **each}]
    reading = read("messages", {"usage": usage})
    assert reading.usage == Usage(300, out_total=30)
    assert not reading.list_price  # another model's


def test_messages_cache_classes() -> None:
    usage: dict[str, Any] = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation_input_tokens": 10,
    }
    assert read("messages", {"usage": usage}).usage == Usage(1, 0, 10, 0, 2)
    usage["cache_creation"] = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 7}
    assert read("messages", {"usage": usage}).usage == Usage(1, 0, 3, 7, 2)


def test_messages_server_tools_cost_apart() -> None:
    usage = {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 0}}
    assert read("messages", {"usage": usage}).list_price
    usage["server_tool_use"] = {"web_search_requests": 1}
    assert not read("messages", {"usage": usage}).list_price


def test_gemini_thoughts_and_tools_come_on_top() -> None:
    raw = {
        "promptTokenCount": 100,
        "cachedContentTokenCount": 60,
        "candidatesTokenCount": 7,
        "thoughtsTokenCount": 20,
        "toolUsePromptTokenCount": 5,
        "totalTokenCount": 132,
    }
    reading = read("gemini", {"candidates": [{"finishReason": "STOP"}], "usageMetadata": raw})
    assert reading.usage == Usage(45, 60, out_total=27, out_reasoning=20)
    assert reading.usage.total == raw["totalTokenCount"]


def test_gemini_streams_count_the_largest_told() -> None:
    first = {"promptTokenCount": 10, "thoughtsTokenCount": 9, "candidatesTokenCount": 1}
    last = {"promptTokenCount": 10, "candidatesTokenCount": 5}
    reading = stream(
        "gemini",
        {"candidates": [{"content": {"parts": [{"text": "a"}]}}], "usageMetadata": first},
        {"candidates": [{"finishReason": "STOP"}], "usageMetadata": last},
    )
    assert reading.usage == Usage(10, out_total=14, out_reasoning=9)
    assert reading.final


def test_gemini_prompts_that_are_blocked() -> None:
    blocked = {"promptFeedback": {"blockReason": "SAFETY"}, "usageMetadata": {}}
    assert stream("gemini", blocked).finished


@pytest.mark.parametrize(
    ("method", "path", "api", "model"),
    [
        ("POST", "v1beta/models/gemini-2.5-pro:streamGenerateContent", "gemini", "gemini-2.5-pro"),
        ("POST", "v1/models/gemini-2.5-pro:generateContent", "gemini", "gemini-2.5-pro"),
        ("POST", "v1alpha/tunedModels/x:generateContent", "gemini", "x"),
        ("POST", "v1beta/models/m:countTokens", "count_tokens", "m"),
        ("GET", "v1beta/models/m", "models", "m"),
        ("GET", "v1/models/llama3:latest", "models", "llama3"),
    ],
)
def test_paths(method: str, path: str, api: str, model: str) -> None:
    dialect = find_dialect(method, path, {})
    assert dialect is not None
    asked = dialect.read_request(path, {})
    assert (dialect.api, asked.model) == (api, model)
    assert asked.stream == ("stream" in path)


def test_a_path_that_three_share_goes_by_headers() -> None:
    assert spoken("v1/models", {}) is OPENAI
    assert spoken("v1/models", {"anthropic-version": "1"}) is ANTHROPIC
    assert spoken("v1/models", {"x-goog-api-key": "k"}) is GEMINI


@pytest.mark.parametrize("dialect", all_dialects(), ids=lambda d: f"{d.provider.name} {d.api}")
def test_every_dialect_survives_nonsense(dialect: Dialect) -> None:
    junk: list[Any] = [None, [], {}, "x", 3, -1, True, [[]], {"a": []}, [{}], [None]]
    names = ("usage", "usageMetadata", "choices", "candidates", "content", "message", "delta")
    names += ("error", "response", "model", "id", "type", "output", "promptFeedback")
    for value in junk:
        for name in names:
            for kind in ("message_start", "message_delta", "response.completed", "error"):
                event = {"type": kind, name: value}
                dialect.read_event(event, Reading())
                dialect.read_answer(event, Reading())
                dialect.extra(event)


def asked(api: str, array: bool) -> Asked:
    provider = METERED[api].provider.name
    query = {} if array else {"alt": "sse"}
    body = {"stream_options": {"include_usage": True}}
    return Asked(0, api, provider, "m", True, "", query, {}, body, "")


@pytest.mark.parametrize("array", [False, True])
@pytest.mark.parametrize("api", ["chat", "responses", "messages", "gemini"])
@given(
    text=st.text(max_size=60),
    argument=st.text(max_size=30),
    cuts=st.lists(st.integers(0, 3000), max_size=30),
    ends=st.sampled_from([b"\n", b"\r\n", b"\r"]),
)
def test_however_a_stream_is_cut_it_reads_the_same(
    api: str, array: bool, text: str, argument: str, cuts: list[int], ends: bytes
) -> None:
    array = array and api == "gemini"
    usage = Usage(11, 20, 0, 0, 30, 7)
    call = ToolCall("verify", {"source": argument})
    reply = Reply(text=text, reasoning="hm", tool_calls=[call], usage=usage)
    text = scripted_dialects.render(asked(api, array), reply, "id-1", usage)
    if not array:
        text = text.replace(b"\n", ends)
    kind = scripted_dialects.content_type(asked(api, array))
    for hide in (False, True):
        reader = stream_reader(METERED[api], kind, hide)
        places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
        passed = b"".join(reader.feed(text[a:b]) for a, b in pairwise(places))
        passed += reader.end()
        assert (reader.reading.usage, reader.reading.final) == (usage, True)
        assert reader.reading.upstream_id == "id-1"
        if not (hide and api == "chat"):
            assert passed == text
        else:
            assert passed.count(b"data:") == text.count(b"data:") - 1
            assert b'"usage"' not in passed.replace(argument.encode(errors="replace"), b"")
