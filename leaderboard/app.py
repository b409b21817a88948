"""The leaderboard: `streamlit run leaderboard/app.py`, which `kernelmark leaderboard` does.

Reads the built database under ``$KERNELMARK_HOME`` and nothing else; writes nothing; runs no code
that anybody submitted. One file a page under `views/`.
"""

from __future__ import annotations

import streamlit as st

PAGES = {
    "Results": [
        st.Page("views/board.py", title="Board", icon=":material/leaderboard:", default=True),
        st.Page("views/operators.py", title="Operators", icon=":material/grid_on:"),
        st.Page("views/operator.py", title="Operator", icon=":material/function:"),
        st.Page("views/entry.py", title="Entry", icon=":material/description:"),
    ],
    "Kernelmark": [st.Page("views/about.py", title="About", icon=":material/info:")],
}

st.set_page_config(page_title="Kernelmark", page_icon=":material/speed:", layout="wide")
page = st.navigation(PAGES)
st.header(page.title)
page.run()
