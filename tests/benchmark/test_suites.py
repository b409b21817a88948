"""Suites hold what their rule says."""

from __future__ import annotations

import pytest

from kernelmark.benchmark.prompts import Setting, build_prompt, describe_case
from kernelmark.benchmark.suites import CORE, DEMO, FIRST, get_suite, suite_names
from kernelmark.evaluators.methods.reference import KERNELS
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import UnknownName, all_operators

SETTING = Setting("interpreter", "Chip notes.", "triton", "Language rules.")


@pytest.mark.parametrize("name", suite_names())
def test_members_exist_once_and_the_digest_is_stable(name: str) -> None:
    suite = get_suite(name)
    assert suite.operators
    assert len(set(suite.ids)) == len(suite.ids)
    assert suite.digest == get_suite(name).digest


def test_sources_make_up_all() -> None:
    parts = [get_suite(source).ids for source in ("aten", "vllm", "cublas")]
    assert [id for part in parts for id in part] == list(get_suite("all").ids)


def test_core_has_the_proportions_of_the_sources() -> None:
    core = get_suite("core").operators
    assert all(operator.kind == "compute" for operator in core)
    counts = [sum(op.source == source for op in core) for source in ("aten", "vllm", "cublas")]
    assert counts == [21, 10, 9]
    assert len({(operator.source, operator.family) for operator in core}) >= 25


def test_portable_leaves_nvidia_out() -> None:
    portable = get_suite("portable").operators
    assert {operator.source for operator in portable} == {"aten", "vllm"}
    assert set(get_suite("aten").ids) <= {operator.id for operator in portable}


@pytest.mark.parametrize("id", CORE)
def test_core_has_reference_kernels(id: str) -> None:
    source, name = id.split("::")
    assert (KERNELS / source / f"{name}.py").is_file()


def test_demo_and_first() -> None:
    assert len(FIRST) == 24
    assert {id.split("::")[0] for id in DEMO} == {"aten", "vllm", "cublas"}
    assert set(DEMO) <= set(FIRST)


def test_one_operator_is_a_suite() -> None:
    assert get_suite("aten::softmax").ids == ("aten::softmax",)


def test_an_unknown_suite_offers_near_names() -> None:
    with pytest.raises(UnknownName, match="did you mean cublas"):
        get_suite("cubls")


@pytest.mark.parametrize("operator", all_operators().values(), ids=lambda op: op.id)
def test_a_prompt_tells_all_that_is_needed(operator: Operator) -> None:
    prompt = build_prompt(operator, SETTING)
    assert all(signature in prompt for signature in operator.signatures)
    assert operator.description.strip() in prompt
    assert f"`{operator.name}`" in prompt
    assert "Chip notes." in prompt
    assert "Language rules." in prompt
    for case in operator.tier("full"):
        assert describe_case(operator, case) in prompt
    for secret in ("mutant", "seed", "TensorSpec", "float64 oracle("):
        assert secret not in prompt
    assert len(prompt) < 40_000
