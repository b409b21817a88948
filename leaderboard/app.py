"""The leaderboard: `streamlit run leaderboard/app.py`, which `kernelmark leaderboard` does.

Reads the built database under ``$KERNELMARK_HOME`` and nothing else; writes nothing; runs no code
that anybody submitted. One file a page under `views/`.
"""

from __future__ import annotations

from pathlib import Path

import duckdb
import streamlit as st

from kernelmark.leaderboard import parts, state

PAGES = {
    "Results": [
        st.Page("views/board.py", title="Board", icon=":material/leaderboard:", default=True),
        st.Page("views/cost.py", title="Cost and quality", icon=":material/payments:"),
        st.Page("views/speed.py", title="Speed curve", icon=":material/show_chart:"),
        st.Page("views/compare.py", title="Compare", icon=":material/compare_arrows:"),
        st.Page("views/entry.py", title="Entry", icon=":material/description:"),
    ],
    "Operators and chips": [
        st.Page("views/operators.py", title="Operators", icon=":material/grid_on:"),
        st.Page("views/operator.py", title="Operator", icon=":material/function:"),
        st.Page("views/chips.py", title="Chips", icon=":material/memory:"),
        st.Page("views/failures.py", title="Failures", icon=":material/error:"),
    ],
    "Kernelmark": [
        st.Page("views/published.py", title="Published elsewhere", icon=":material/menu_book:"),
        st.Page("views/submit.py", title="Submit", icon=":material/upload:"),
        st.Page("views/about.py", title="About", icon=":material/info:"),
    ],
}

#: words of charts: axes, names of points, of lines
CHART_WORDS = (
    ".js-plotly-plot :is(.xtick text, .ytick text, .xtitle, .ytitle, .textpoint text, "
    ".annotation-text)"
)
#: where Streamlit's own colours are too faint: what is chosen (white on the light primary colour),
#: words of charts, and highlighted source
CONTRAST = {
    "dark": "[data-testid=stMultiSelect] span[title], "
    "[data-testid=stMultiSelect] span[title] ~ * { color: #10141a } "
    f"{CHART_WORDS} {{ fill: #c3c8d2 !important }}",
    "light": f"{CHART_WORDS} {{ fill: #4d5361 !important }} "
    "pre .token.string, pre .token.string span { color: #0a6b27 !important } "
    "pre .token:is(.keyword, .function, .builtin, .boolean, .number) { color: #14569b !important } "
    "pre .token:is(.operator, .decorator, .annotation) { color: #9a4706 !important } "
    "pre .token.comment, pre .linenumber { color: #5c6270 !important }",
}
#: room for tables: Streamlit leaves a third of a laptop's screen empty
ROOM = (
    "@media (min-width: 768px) { [data-testid=stMainBlockContainer] "
    "{ padding: 3.5rem 2.5rem 4rem } }"
    # Maps scroll sideways on a phone: squeezed, their cells could not be read.
    "[class*=st-key-map] { overflow-x: auto } [class*=st-key-map] > * { min-width: 44rem }"
)
#: choices that pages have in common
SHARED = {
    **dict.fromkeys(("Board", "Cost and quality", "Speed curve", "Operators"), ("suite", "chip")),
    **dict.fromkeys(("Compare", "Chips", "Failures"), ("suite",)),
}

# The icon first: else that of the page is used, which the browser fetches from elsewhere.
st.set_page_config(page_icon=str(Path(__file__).with_name("icon.svg")), layout="wide")
page = st.navigation(PAGES, position="hidden")
st.set_page_config(page_title=f"{page.title} · Kernelmark")


def menu() -> None:
    """Links to all pages. They carry suite and chip along, which Streamlit's own menu drops."""
    for title, pages in PAGES.items():
        st.markdown(f"**{title}**")
        for other in pages:
            chosen = state.kept(SHARED.get(other.title, ()))
            st.page_link(other, label=other.title, icon=other.icon, query_params=chosen)


with st.sidebar:
    links = st.container(gap="xsmall")
    st.session_state["plain"] = state.flag(
        "Plain tables", "plain", help="Tables for keyboards, screen readers and printing."
    )
st.html(f"<style>{ROOM} {CONTRAST.get(st.context.theme.type or 'light', '')}</style>")
st.title(page.title)
try:
    page.run()
except parts.Done:
    pass
except (duckdb.CatalogException, duckdb.BinderException):
    if parts.board().current_code:
        raise
    st.error("This database was built by another version. Build it again: kernelmark ingest")
finally:
    with links:
        menu()
    state.flush()
