"""How to take part, from the first kernel to the board."""

from __future__ import annotations

import streamlit as st

st.subheader("One kernel")
st.text("Grade a kernel that you have, on the chip in this machine or in the interpreter:")
st.code(
    "kernelmark operators show aten::softmax\n"
    "kernelmark check softmax.py --op aten::softmax\n"
    "kernelmark portability softmax.py --op aten::softmax",
    language=None,
    wrap_lines=True,
)
st.subheader("A method")
st.text("Run it over a suite. A run can be killed at any time and goes on with --resume.")
st.code(
    "kernelmark run --method refine --model MODEL --suite core --chip nvidia --out RUN\n"
    "kernelmark run --method folder --option path=KERNELS --suite core --chip nvidia --out RUN",
    language=None,
    wrap_lines=True,
)
st.subheader("Hand it in")
st.code(
    "kernelmark submit RUN --submitter NAME --notes TEXT --open-weights yes\nkernelmark ingest",
    language=None,
    wrap_lines=True,
)
st.markdown(
    """
- A submission is sealed: every file is listed with its sha256, and nothing changes afterwards.
- It is shown as `self_reported` until somebody grades its candidates again (`regraded`) or runs the
  whole method (`verified`). Nothing is removed in silence: `flagged` and `withdrawn` entries stay
  visible with the reason, and are not ranked.
- Say how often you tried (`--attempts-declared`) and whether the model was trained on this
  benchmark. Runs that say so stay on the board, marked.
- The latest run of a method, model and submitter on a chip is ranked; older ones stay reachable.
- An operator that was not tried counts as not solved.
- Tokens are counted by the gateway that comes with `kernelmark run`. Without it an entry is shown
  as not metered.
- Names, notes and sources are public. Do not hand in what must stay private.
"""
)
st.subheader("Without a network")
st.text("Where only torch and triton are: grade a job folder there, and bring the results back.")
st.code(
    "kernelmark jobs export JOB RUN\n"
    "PYTHONPATH=.typing python -m kernelmark.evaluators.grading JOB OUT\n"
    "kernelmark jobs import OUT",
    language=None,
    wrap_lines=True,
)
