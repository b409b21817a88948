"""The benchmark's own rows in the lake: its operators and suites, as this version defines them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
from dataclasses import dataclass

from kernelmark.benchmark.prompts import describe_case, dtype_names
from kernelmark.benchmark.suites import Suite, get_suite, operator_digest, suite_names
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import all_operators
from kernelmark.submissions.tables import Row


@dataclass(frozen=True)
class Catalogue:
    """Operators and suites of this version."""

    operators: tuple[Operator, ...]
    suites: tuple[Suite, ...]

    @property
    def digest(self) -> str:
        """sha256 over what the rows say, 64 hex digits."""
        content = [self.operator_rows(""), self.case_rows(""), self.suite_rows("")]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    def members(self) -> dict[str, set[str]]:
        """Operators by suite digest, for validation; each operator is a suite of one too."""
        single = (get_suite(operator.id) for operator in self.operators)
        return {suite.digest: set(suite.ids) for suite in (*single, *self.suites)}

    def operator_rows(self, catalogued_at: str) -> list[Row]:
        """Rows of the table `operators`."""
        version = importlib.metadata.version("kernelmark")
        return [
            {
                "operator": operator.id,
                "operator_digest": operator_digest(operator),
                "source": operator.source,
                "family": operator.family,
                "kind": operator.kind,
                "signatures": json.dumps(operator.signatures),
                "description": operator.description,
                "note": operator.note,
                "baseline": operator.baseline_name,
                "dtypes": json.dumps(dtype_names(operator.cases())),
                "small_cases": len(operator.tier("small")),
                "full_cases": len(operator.tier("full")),
                "benchmark_version": version,
                "catalogued_at": catalogued_at,
            }
            for operator in self.operators
        ]

    def case_rows(self, catalogued_at: str) -> list[Row]:
        """Rows of the table `cases`: each concrete call, in words, with its work."""
        return [
            {
                "operator": operator.id,
                "operator_digest": operator_digest(operator),
                "case": case.name,
                "tier": case.tier,
                "origin": case.origin,
                "call": describe_case(operator, case),
                "flops": cost.flops,
                "nbytes": cost.nbytes,
                "catalogued_at": catalogued_at,
            }
            for operator in self.operators
            for case in operator.cases()
            for cost in [operator.cost(case)]
        ]

    def suite_rows(self, catalogued_at: str) -> list[Row]:
        """Rows of the table `suites`: one an operator of each suite."""
        return [
            {
                "suite": suite.name,
                "suite_digest": suite.digest,
                "description": suite.description,
                "operator": operator.id,
                "operator_digest": operator_digest(operator),
                "catalogued_at": catalogued_at,
            }
            for suite in self.suites
            for operator in suite.operators
        ]


def current_catalogue() -> Catalogue:
    """The catalogue of the installed version."""
    suites = tuple(get_suite(name) for name in suite_names())
    return Catalogue(tuple(all_operators().values()), suites)
