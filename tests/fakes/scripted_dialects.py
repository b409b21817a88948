"""How each dialect puts an answer, for `scripted_upstream`. Written from the providers' API
references, apart from the code under test."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fakes.scripted_upstream import Asked, Reply, ToolCall
    from kernelmark.evaluators.metering.ledger import Usage

Json = dict[str, Any]
CREATED = 1_760_000_000


def render(asked: Asked, reply: Reply, id: str, usage: Usage) -> bytes:
    """The whole body of an answer."""
    if asked.api == "embeddings":
        return _json(_embeddings(asked, reply, usage))
    whole, streamed = {
        "chat": (_chat, _chat_events),
        "responses": (_response, _response_events),
        "messages": (_message, _message_events),
        "gemini": (_gemini, _gemini_chunks),
    }[asked.api]
    if not asked.stream:
        return _json(whole(asked, reply, id, usage))
    events = list(streamed(asked, reply, id, usage))
    if reply.error_in_stream:
        events = [*events[: len(events) // 2], _stream_error(asked)]
    if content_type(asked) == "application/json":
        return b"[" + b",\r\n".join(_json(event) for event in events) + b"]"
    return _events(asked, events, done=asked.api == "chat" and not reply.error_in_stream)


def content_type(asked: Asked) -> str:
    """Of an answer to this request."""
    events = asked.stream and (asked.api != "gemini" or asked.query.get("alt") == "sse")
    return "text/event-stream" if events else "application/json"


def error(asked: Asked, status: int, message: str) -> Json:
    """An error object."""
    if asked.provider == "openai":
        kind = "invalid_request_error" if status < 500 else "server_error"
        return {"error": {"message": message, "type": kind, "param": None, "code": None}}
    if asked.provider == "anthropic":
        kinds = {429: "rate_limit_error", 529: "overloaded_error", 401: "authentication_error"}
        kind = kinds.get(status, "invalid_request_error" if status < 500 else "api_error")
        return {"type": "error", "error": {"type": kind, "message": message}}
    words = {429: "RESOURCE_EXHAUSTED", 404: "NOT_FOUND", 401: "UNAUTHENTICATED"}
    word = words.get(status, "INVALID_ARGUMENT" if status < 500 else "UNAVAILABLE")
    return {"error": {"code": status, "message": message, "status": word}}


def free(asked: Asked, models: Sequence[str]) -> Json:
    """The answer to a request that costs nothing."""
    names = models or ("some-model",)
    if asked.api == "count_tokens":
        tokens = len(asked.text) // 4 + 1
        if asked.provider == "gemini":
            return {"totalTokens": tokens}
        kind = {"object": "response.input_tokens"} if asked.provider == "openai" else {}
        return {**kind, "input_tokens": tokens}
    if asked.provider == "gemini":
        return {"models": [{"name": f"models/{name}", "displayName": name} for name in names]}
    if asked.provider == "anthropic":
        common = {"type": "model", "created_at": "2025-01-01T00:00:00Z"}
        data = [{**common, "id": name, "display_name": name} for name in names]
        return {"data": data, "has_more": False, "first_id": names[0], "last_id": names[-1]}
    common = {"object": "model", "created": CREATED, "owned_by": "nobody"}
    return {"object": "list", "data": [{**common, "id": name} for name in names]}


def tool_names(body: Mapping[str, Any]) -> list[str]:
    """Names of the tools in a request of any dialect."""
    names: list[str] = []
    for tool in body.get("tools") or ():
        declared = tool.get("functionDeclarations") or tool.get("function_declarations")
        for each in declared or [tool.get("function") or tool]:
            if isinstance(each.get("name"), str):
                names.append(each["name"])
    return names


# OpenAI, chat completions


def _chat(asked: Asked, reply: Reply, id: str, usage: Usage) -> Json:
    calls = [_chat_call(call, n) for n, call in enumerate(reply.tool_calls)]
    message: Json = {"role": "assistant", "content": reply.text or None}
    if calls:
        message["tool_calls"] = calls
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    choice = {"index": 0, "message": message, "finish_reason": _finish(reply), "logprobs": None}
    told = {"usage": _chat_usage(usage)} if reply.report_usage else {}
    return {**_chat_base(asked, reply, id, "chat.completion"), "choices": [choice], **told}


def _chat_events(asked: Asked, reply: Reply, id: str, usage: Usage) -> Iterable[Json]:
    base = _chat_base(asked, reply, id, "chat.completion.chunk")

    def chunk(delta: Json, finish: str | None = None) -> Json:
        return {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    yield chunk({"role": "assistant", "content": ""})
    if reply.reasoning:
        yield chunk({"reasoning_content": reply.reasoning})
    for text in _split(reply.text, reply.deltas):
        yield chunk({"content": text})
    for n, call in enumerate(reply.tool_calls):
        whole = _chat_call(call, n)
        first, second = _split(whole["function"]["arguments"], 2)
        head = {**whole, "index": n, "function": {**whole["function"], "arguments": first}}
        yield chunk({"tool_calls": [head]})
        yield chunk({"tool_calls": [{"index": n, "function": {"arguments": second}}]})
    last = chunk({}, _finish(reply))
    if reply.usage_on_last:
        last["usage"] = _chat_usage(usage)
    yield last
    wanted = (asked.body.get("stream_options") or {}).get("include_usage")
    if wanted and reply.report_usage and not reply.usage_on_last:
        yield {**base, "choices": [], "usage": _chat_usage(usage)}


def _chat_base(asked: Asked, reply: Reply, id: str, kind: str) -> Json:
    return {"id": id, "object": kind, "created": CREATED, "model": _model(asked, reply)}


def _chat_call(call: ToolCall, n: int) -> Json:
    function = {"name": call.name, "arguments": _arguments(call)}
    return {"id": call.id or f"call_{n}", "type": "function", "function": function}


def _chat_usage(usage: Usage) -> Json:
    written = usage.in_cache_write_5m + usage.in_cache_write_1h
    inputs = usage.in_uncached + usage.in_cache_read + written
    return {
        "prompt_tokens": inputs,
        "completion_tokens": usage.out_total,
        "total_tokens": inputs + usage.out_total,
        "prompt_tokens_details": {
            "cached_tokens": usage.in_cache_read,
            "cache_write_tokens": written,
        },
        "completion_tokens_details": {"reasoning_tokens": usage.out_reasoning},
    }


def _finish(reply: Reply) -> str:
    if reply.cut_short:
        return "length"
    return "tool_calls" if reply.tool_calls else "stop"


def _embeddings(asked: Asked, reply: Reply, usage: Usage) -> Json:
    asked_for = asked.body["input"]
    texts = [asked_for] if isinstance(asked_for, str) else asked_for
    vector: Any = [0.5, -0.25]
    if asked.body.get("encoding_format") == "base64":
        vector = base64.b64encode(struct.pack("<2f", *vector)).decode()
    data = [{"object": "embedding", "index": n, "embedding": vector} for n in range(len(texts))]
    tokens = usage.in_uncached
    told = {"usage": {"prompt_tokens": tokens, "total_tokens": tokens}}
    answer = {"object": "list", "data": data, "model": _model(asked, reply)}
    return {**answer, **told} if reply.report_usage else answer


# OpenAI, responses


def _response(asked: Asked, reply: Reply, id: str, usage: Usage) -> Json:
    return {
        **_response_base(asked, reply, id),
        "status": "incomplete" if reply.cut_short else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if reply.cut_short else None,
        "output": _items(reply),
        "usage": _response_usage(usage) if reply.report_usage else None,
    }


def _response_base(asked: Asked, reply: Reply, id: str) -> Json:
    return {
        "id": id,
        "object": "response",
        "created_at": CREATED,
        "model": _model(asked, reply),
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "status": "in_progress",
        "output": [],
        "usage": None,
    }


def _items(reply: Reply) -> list[Json]:
    items: list[Json] = []
    if reply.reasoning:
        summary = [{"type": "summary_text", "text": reply.reasoning}]
        items.append({"type": "reasoning", "id": "rs_0", "summary": summary})
    if reply.text:
        content = [{"type": "output_text", "text": reply.text, "annotations": []}]
        message = {"type": "message", "id": "msg_0", "role": "assistant", "status": "completed"}
        items.append({**message, "content": content})
    for n, call in enumerate(reply.tool_calls):
        item: Json = {
            "type": "custom_tool_call" if call.custom else "function_call",
            "id": f"{'ctc' if call.custom else 'fc'}_{n}",
            "call_id": call.id or f"call_{n}",
            "name": call.name,
            "status": "completed",
        }
        if call.namespace:
            item["namespace"] = call.namespace
        item["input" if call.custom else "arguments"] = _arguments(call)
        items.append(item)
    return items


def _response_events(asked: Asked, reply: Reply, id: str, usage: Usage) -> Iterable[Json]:
    numbers = iter(range(1 << 30))

    def event(kind: str, **fields: Any) -> Json:
        return {"type": f"response.{kind}", "sequence_number": next(numbers), **fields}

    base = _response_base(asked, reply, id)
    yield event("created", response=base)
    yield event("in_progress", response=base)
    for index, item in enumerate(_items(reply)):
        at = {"output_index": index, "item_id": item["id"]}
        begun = {**item, "status": "in_progress"} if "status" in item else dict(item)
        name = {"message": "content", "reasoning": "summary"}.get(item["type"])
        name = name or ("input" if item["type"] == "custom_tool_call" else "arguments")
        begun[name] = [] if name in ("content", "summary") else ""
        yield event("output_item.added", output_index=index, item=begun)
        yield from _item_deltas(event, item, at, reply.deltas)
        yield event("output_item.done", output_index=index, item=item)
    last = _response(asked, reply, id, usage)
    yield event(str(last["status"]), response=last)


def _item_deltas(event: Any, item: Json, at: Json, deltas: int) -> Iterable[Json]:
    if item["type"] == "message":
        part = item["content"][0]
        at = {**at, "content_index": 0}
        yield event("content_part.added", **at, part={**part, "text": ""})
        for text in _split(part["text"], deltas):
            yield event("output_text.delta", **at, delta=text, logprobs=[])
        yield event("output_text.done", **at, text=part["text"], logprobs=[])
        yield event("content_part.done", **at, part=part)
    elif item["type"] == "reasoning":
        at = {**at, "summary_index": 0}
        text = item["summary"][0]["text"]
        empty = {"type": "summary_text", "text": ""}
        yield event("reasoning_summary_part.added", **at, part=empty)
        yield event("reasoning_summary_text.delta", **at, delta=text)
        yield event("reasoning_summary_text.done", **at, text=text)
        yield event("reasoning_summary_part.done", **at, part={**empty, "text": text})
    elif item["type"] == "custom_tool_call":
        yield event("custom_tool_call_input.delta", **at, delta=item["input"])
        yield event("custom_tool_call_input.done", **at, input=item["input"])
    else:
        for text in _split(item["arguments"], 2):
            yield event("function_call_arguments.delta", **at, delta=text)
        done = {"name": item["name"], "arguments": item["arguments"]}
        yield event("function_call_arguments.done", **at, **done)


def _response_usage(usage: Usage) -> Json:
    written = usage.in_cache_write_5m + usage.in_cache_write_1h
    inputs = usage.in_uncached + usage.in_cache_read + written
    return {
        "input_tokens": inputs,
        "input_tokens_details": {
            "cached_tokens": usage.in_cache_read,
            "cache_write_tokens": written,
        },
        "output_tokens": usage.out_total,
        "output_tokens_details": {"reasoning_tokens": usage.out_reasoning},
        "total_tokens": inputs + usage.out_total,
    }


# Anthropic, messages


def _message(asked: Asked, reply: Reply, id: str, usage: Usage) -> Json:
    told = {"usage": _message_usage(usage)} if reply.report_usage else {}
    return {
        "id": id,
        "type": "message",
        "role": "assistant",
        "model": _model(asked, reply),
        "content": _blocks(reply),
        "stop_reason": _stop_reason(reply),
        "stop_sequence": None,
        **told,
    }


def _blocks(reply: Reply) -> list[Json]:
    blocks: list[Json] = []
    if reply.reasoning:
        blocks.append({"type": "thinking", "thinking": reply.reasoning, "signature": "s"})
    if reply.text:
        blocks.append({"type": "text", "text": reply.text})
    for n, call in enumerate(reply.tool_calls):
        id = call.id or f"toolu_{n}"
        use = {"type": "tool_use", "id": id, "name": call.name, "input": call.arguments}
        blocks.append(use)
    return blocks


def _message_events(asked: Asked, reply: Reply, id: str, usage: Usage) -> Iterable[Json]:
    begun = {**_message(asked, reply, id, usage), "content": [], "stop_reason": None}
    if reply.report_usage:
        begun["usage"] = {**_message_usage(usage), "output_tokens": 1}
        del begun["usage"]["output_tokens_details"]
    yield {"type": "message_start", "message": begun}
    yield {"type": "ping"}
    for index, block in enumerate(_blocks(reply)):
        name = {"thinking": "thinking", "text": "text", "tool_use": "input"}[block["type"]]
        empty = {**block, name: {} if name == "input" else ""}
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        for delta in _block_deltas(block, reply.deltas):
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    details = {"thinking_tokens": usage.out_reasoning}
    final = {"output_tokens": usage.out_total, "output_tokens_details": details}
    told = {"usage": final} if reply.report_usage else {}
    yield {"type": "message_delta", "delta": stop, **told}
    yield {"type": "message_stop"}


def _block_deltas(block: Json, deltas: int) -> Iterable[Json]:
    if block["type"] == "thinking":
        yield {"type": "thinking_delta", "thinking": block["thinking"]}
        yield {"type": "signature_delta", "signature": "s"}
    elif block["type"] == "text":
        for text in _split(block["text"], deltas):
            yield {"type": "text_delta", "text": text}
    else:
        for text in _split(json.dumps(block["input"], ensure_ascii=False), 2):
            yield {"type": "input_json_delta", "partial_json": text}


def _message_usage(usage: Usage) -> Json:
    return {
        "input_tokens": usage.in_uncached,
        "cache_creation_input_tokens": usage.in_cache_write_5m + usage.in_cache_write_1h,
        "cache_read_input_tokens": usage.in_cache_read,
        "cache_creation": {
            "ephemeral_5m_input_tokens": usage.in_cache_write_5m,
            "ephemeral_1h_input_tokens": usage.in_cache_write_1h,
        },
        "output_tokens": usage.out_total,
        "output_tokens_details": {"thinking_tokens": usage.out_reasoning},
        "service_tier": "standard",
    }


def _stop_reason(reply: Reply) -> str:
    if reply.cut_short:
        return "max_tokens"
    return "tool_use" if reply.tool_calls else "end_turn"


# Gemini


def _gemini(asked: Asked, reply: Reply, id: str, usage: Usage) -> Json:
    return _candidate(asked, reply, id, _parts(reply), usage, finish=True)


def _gemini_chunks(asked: Asked, reply: Reply, id: str, usage: Usage) -> Iterable[Json]:
    parts: list[Json] = []
    for part in _parts(reply):
        split = [part] if "functionCall" in part else _split(part["text"], reply.deltas)
        parts += [p if isinstance(p, dict) else {**part, "text": p} for p in split]
    for n, part in enumerate(parts):
        last = n == len(parts) - 1
        yield _candidate(asked, reply, id, [part], usage, finish=last)


def _candidate(
    asked: Asked, reply: Reply, id: str, parts: list[Json], usage: Usage, *, finish: bool
) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if finish:
        candidate["finishReason"] = "MAX_TOKENS" if reply.cut_short else "STOP"
    chunk: Json = {
        "candidates": [candidate],
        "modelVersion": _model(asked, reply),
        "responseId": id,
    }
    if reply.report_usage:
        chunk["usageMetadata"] = _gemini_usage(usage, finish)
    return chunk


def _parts(reply: Reply) -> list[Json]:
    parts: list[Json] = []
    if reply.reasoning:
        parts.append({"text": reply.reasoning, "thought": True})
    if reply.text:
        parts.append({"text": reply.text})
    for call in reply.tool_calls:
        parts.append({"functionCall": {"name": call.name, "args": call.arguments}})
    return parts or [{"text": ""}]


def _gemini_usage(usage: Usage, finish: bool) -> Json:
    inputs = usage.in_uncached + usage.in_cache_read
    raw: Json = {"promptTokenCount": inputs, "totalTokenCount": inputs}
    if usage.in_cache_read:
        raw["cachedContentTokenCount"] = usage.in_cache_read
    if finish:
        raw["candidatesTokenCount"] = usage.out_total - usage.out_reasoning
        raw["totalTokenCount"] = inputs + usage.out_total
        if usage.out_reasoning:
            raw["thoughtsTokenCount"] = usage.out_reasoning
    return raw


# all


def _stream_error(asked: Asked) -> Json:
    if asked.api == "responses":
        fault = {"code": "server_error", "message": "scripted", "param": None}
        return {"type": "error", "sequence_number": 99, **fault}
    return error(asked, 529, "scripted")


def _events(asked: Asked, events: Iterable[Json], *, done: bool) -> bytes:
    named = asked.api in ("responses", "messages")
    lines = [
        (f"event: {event['type']}\n".encode() if named else b"") + b"data: " + _json(event)
        for event in events
    ]
    if done:
        lines.append(b"data: [DONE]")
    return b"".join(line + b"\n\n" for line in lines)


def _model(asked: Asked, reply: Reply) -> str:
    return reply.model or f"{asked.model}-served"


def _arguments(call: ToolCall) -> str:
    if isinstance(call.arguments, str):
        return call.arguments
    return json.dumps(call.arguments, ensure_ascii=False)


def _split(text: str, parts: int) -> list[str]:
    size = -(-len(text) // parts) or 1
    return [text[size * n : size * (n + 1)] for n in range(parts)]


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()
