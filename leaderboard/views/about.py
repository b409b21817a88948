"""How everything on the other pages is computed, and how to take part."""

from __future__ import annotations

import streamlit as st

from kernelmark.leaderboard import data, parts

st.markdown(
    """
Kernelmark grades *candidates*, kernels that somebody or something wrote for an *operator*, on a
*chip*. A *method* is whatever writes them: a model, an agent, a compiler, a library, a person.

**Correct** means: on every case, over secret inputs that are drawn anew for every grade, every
result agrees with an oracle in float64 within a limit that honest kernels stay under and wrong ones
do not. The candidate runs in a process of its own that never sees the expected values.

**Speed** is device time of the baseline over device time of the candidate, caches cold, both
measured in turns. **Score** is the mean over the whole suite of min(speedup, 2); an operator that
is not solved counts 0, so leaving out hard operators never helps.

**Ranks** are intervals: operators are resampled (paired, seeded), and an entry counts as better
than another only if the simultaneous interval of their difference excludes 0. Entries that cannot
be told apart share a rank.

**Trust** says who saw it: `self_reported` by its author, `regraded` by us from its candidates,
`verified` if we also ran the method, `flagged` or `withdrawn` with a reason.

**Tokens** are what the provider reported on the wire. What was not metered is said to be so.
"""
)
st.subheader("Take part")
st.code(parts.COMMANDS, language="bash")
build = parts.board().frame(data.BUILD).iloc[0]
st.caption(
    f"Database built {build['built_at']} from {build['parts']} parts; "
    f"scoring code {str(build['code_sha256'])[:12]}."
)
