"""What a view shows, kept in its URL and nowhere else.

Every choice is a widget whose value is read from the query parameters at each run and written to
them by its callback. A default that depends on the store is added to the address when the page has
run (`flush`); one that never changes need not be there. So a
copied link opens where it was copied, and the browser's back button undoes a choice. Streamlit's
own binding (``bind="query-params"``) loses its values on the way back and leaves defaults out.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

#: choices that go along from page to page within one visit
_KEPT = frozenset({"suite", "chip", "plain"})


def one(
    label: str,
    options: Sequence[str],
    name: str,
    default: str | None = None,
    shown: Callable[[str], str] = str,
    **look: Any,
) -> str:
    """One of `options`, in a select box; the first, or `default`, where the URL names none."""
    value = _given(name)
    if value is None or value not in options:
        value = default if default is not None and default in options else options[0]
    st.session_state[_key(name)] = value
    st.selectbox(
        label, options, key=_key(name), format_func=shown, on_change=_store, args=(name,), **look
    )
    _note(name, value)
    return value


def many(
    label: str,
    options: Sequence[str],
    name: str,
    default: Sequence[str] = (),
    shown: Callable[[str], str] = str,
    **look: Any,
) -> list[str]:
    """Any number of `options`; `default` where the URL names none of them."""
    given = st.query_params.get_all(name)
    chosen = [value for value in given if value in options] or list(default)
    st.session_state[_key(name)] = chosen
    st.multiselect(
        label, options, key=_key(name), format_func=shown, on_change=_store, args=(name,), **look
    )
    if default:
        _note(name, chosen)
    return chosen


def section(label: str, options: Sequence[str], name: str, **look: Any) -> str:
    """One of a few parts of a page; the first where the URL names none.

    `options` are our own words: they may be read as Markdown.
    """
    value = _given(name)
    if value is None or value not in options:
        value = options[0]
    st.session_state[_key(name)] = value
    st.segmented_control(
        label, options, key=_key(name), on_change=_store, args=(name,), required=True, **look
    )
    return value


def flag(label: str, name: str, **look: Any) -> bool:
    """On or off; off is not in the URL."""
    value = _given(name) == "1"
    st.session_state[_key(name)] = value
    st.toggle(label, key=_key(name), on_change=_store, args=(name,), **look)
    if value:
        _note(name, "1")
    return value


def whole(label: str, name: str, **look: Any) -> int | None:
    """A whole number or None."""
    text = _given(name) or ""
    value = int(text) if text.isascii() and text.isdigit() and len(text) < 16 else None
    st.session_state[_key(name)] = value
    st.number_input(
        label, min_value=0, value=None, key=_key(name), on_change=_store, args=(name,), **look
    )
    return value


def day(label: str, name: str, **look: Any) -> str:
    """A date as ISO 8601, or an empty text."""
    try:
        value = datetime.date.fromisoformat(_given(name) or "")
    except ValueError:
        value = None
    st.session_state[_key(name)] = value
    st.date_input(
        label, value=None, key=_key(name), format="YYYY-MM-DD", on_change=_store, args=(name,),
        **look,
    )  # fmt: skip
    return value.isoformat() if value else ""


def words(label: str, name: str, **look: Any) -> str:
    """A free text to search for."""
    value = (_given(name) or "")[:200]
    st.session_state[_key(name)] = value
    st.text_input(label, key=_key(name), max_chars=200, on_change=_store, args=(name,), **look)
    return value


def kept(names: Sequence[str]) -> dict[str, str]:
    """Those of `names` that this visit has chosen, for links to other pages."""
    chosen: dict[str, str] = st.session_state.get("kept", {})
    return {name: chosen[name] for name in (*names, "plain") if name in chosen}


def flush() -> None:
    """Adds to the URL what this run decided and the URL did not say. Once, after the page."""
    decided: dict[str, Any] = st.session_state.pop("decided", {})
    new = {
        name: value
        for name, value in decided.items()
        if st.query_params.get_all(name) != (value if isinstance(value, list) else [value])
    }
    if new:
        st.query_params.update(new)


def _key(name: str) -> str:
    return f"url-{name}"


def _given(name: str) -> str | None:
    kept: dict[str, str] = st.session_state.setdefault("kept", {})
    value: str | None = st.query_params.get(name)
    return kept.get(name) if value is None and name in _KEPT else value


def _note(name: str, value: Any) -> None:
    st.session_state.setdefault("decided", {})[name] = value
    if name in _KEPT:
        st.session_state.setdefault("kept", {})[name] = value


def _store(name: str) -> None:
    """Callback: the widget's new value goes to the URL; nothing chosen leaves it."""
    value = st.session_state[_key(name)]
    if value is None or value is False or value == [] or value == "":
        st.session_state.setdefault("kept", {}).pop(name, None)
        if name in st.query_params:
            del st.query_params[name]
        return
    text = "1" if value is True else value if isinstance(value, list) else str(value)
    if name in _KEPT:
        st.session_state.setdefault("kept", {})[name] = text
    st.query_params[name] = text
