"""Code out of replies: taken by a rule, or refused with the reason."""

from __future__ import annotations

import pytest

from kernelmark.benchmark.replies import ReplyError, extract_python

GOOD = "def softmax(x):\n    return x\n"
OTHER = "def softmax(x):\n    return -x\n"


def fenced(text: str, info: str = "python", mark: str = "```") -> str:
    return f"{mark}{info}\n{text}{mark}\n"


@pytest.mark.parametrize(
    "reply",
    [
        fenced(GOOD),
        fenced(GOOD, ""),
        fenced(GOOD, "py"),
        fenced(GOOD, mark="~~~"),
        fenced(GOOD, mark="````"),
        f"Here it is:\n\n{fenced(GOOD)}\nIt is fast.",
        "First look at this:\n" + fenced("x = 1\n", "") + "\nand now\n" + fenced(GOOD),
        fenced(GOOD) + "Run it with\n" + fenced("pip install triton\n", "bash"),
        fenced(GOOD).replace("\n", "\r\n"),
        fenced(GOOD) + fenced(GOOD),  # the same twice is no choice
    ],
)
def test_one_file_is_found(reply: str) -> None:
    source = extract_python(reply, "softmax")
    assert source.text == GOOD
    assert "block" in source.note


def test_of_several_the_last_is_taken_and_said() -> None:
    source = extract_python(fenced(GOOD) + "better:\n" + fenced(OTHER), "softmax")
    assert source.text == OTHER
    assert source.note == "block 2 (python) of 2: 2 define `softmax`; the last was taken"


def test_without_a_fence_the_whole_reply_is_taken_and_said() -> None:
    source = extract_python(GOOD, "softmax")
    assert source.text == GOOD
    assert "taken whole" in source.note


def test_a_fence_inside_a_longer_one_is_text() -> None:
    inner = 'def softmax(x):\n    """\n    ```\n    softmax(x)\n    ```\n    """\n    return x\n'
    assert extract_python(fenced(inner, mark="````"), "softmax").text == inner


def test_what_was_left_out_is_said() -> None:
    reply = fenced("pip install triton\n", "bash") + fenced(GOOD) + fenced("soft = 1\n", "text")
    source = extract_python(reply, "softmax")
    assert source.text == GOOD
    assert "block 2 (python) of 3: it defines `softmax`" in source.note
    assert "block 1 (bash): line 1" in source.note
    assert "block 3 (text): defines no function" in source.note


def test_of_very_many_blocks_the_first_few_are_told() -> None:
    with pytest.raises(ReplyError, match=r"block 6 \(python\): defines no function; and 34 more"):
        extract_python(fenced("x = 1\n") * 40, "softmax")


@pytest.mark.parametrize("indent", ["    ", ""])
def test_a_fence_in_a_docstring_does_not_end_the_file(indent: str) -> None:
    fences = f"{indent}```\n    softmax(x)\n{indent}```"
    inner = f'def softmax(x):\n    """\n{fences}\n    """\n    return x\n'
    reply = fenced(inner) + "And to try it:\n" + fenced("softmax(1)\n")
    assert extract_python(reply, "softmax").text == inner


def test_a_block_in_a_list_loses_the_lists_indentation() -> None:
    reply = "1. the file\n" + "".join(f"   {line}\n" for line in fenced(GOOD).splitlines())
    assert extract_python(reply, "softmax").text == GOOD


def test_a_label_is_not_believed() -> None:
    assert extract_python(fenced(GOOD, "text"), "softmax").text == GOOD
    with pytest.raises(ReplyError, match=r"block 1 \(cpp\): line 1"):
        extract_python(fenced("void softmax(float* x) {}\n", "cpp"), "softmax")


def test_thoughts_are_left_out_and_that_is_said() -> None:
    for opening in ("<think>", ""):
        reply = f"{opening}maybe\n{fenced(OTHER)}no:\n</think>\n{fenced(GOOD)}"
        source = extract_python(reply, "softmax")
        assert source.text == GOOD
        assert "before </think> was left out" in source.note


def test_prose_with_code_in_it_is_no_file() -> None:
    reply = "Use `tl.exp` as in ```softmax``` here, then `softmax(x)` works."
    with pytest.raises(ReplyError, match="no code block"):
        extract_python(reply, "softmax")


def test_an_unclosed_block_of_a_finished_reply_is_taken_and_said() -> None:
    source = extract_python(f"```python\n{GOOD}", "softmax")
    assert source.text == GOOD
    assert "not closed" in source.note


@pytest.mark.parametrize(
    ("reply", "cut", "why"),
    [
        ("", False, "empty"),
        ("  \n", False, "empty"),
        ("I cannot do this.", False, "no code block"),
        (GOOD, True, "cut"),
        (f"<think>\n{fenced(GOOD)}", True, "cut inside its thoughts"),
        (f"```python\n{GOOD}", True, "cut inside it"),
        (fenced("def soft(x): ...\n"), False, "defines soft"),
        (fenced("x = 1\n"), False, "defines no function"),
        (fenced("def softmax(:\n"), False, "line 1"),
        (fenced("\x00" + GOOD), False, "block 1"),
        (fenced(GOOD + "# \ud800\n"), False, "cannot be parsed"),
        (fenced("class A:\n    def softmax(self): ...\n"), False, "defines no function"),
    ],
)
def test_what_is_refused_says_why(reply: str, cut: bool, why: str) -> None:
    with pytest.raises(ReplyError, match=why):
        extract_python(reply, "softmax", cut=cut)


def test_a_whole_block_of_a_cut_reply_counts() -> None:
    reply = fenced(GOOD) + "And a variant:\n```python\ndef softmax(x):\n    ret"
    assert extract_python(reply, "softmax", cut=True).text == GOOD
