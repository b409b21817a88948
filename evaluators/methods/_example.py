"""An example for an agent's workspace: a candidate that passes, for an operator unlike its own."""

from __future__ import annotations

from kernelmark.evaluators.methods.reference import KERNELS
from kernelmark.operators.records import Operator
from kernelmark.operators.registry import get_operator

#: in order of preference; two of a source, of different families
_EXAMPLES = (
    *("aten::softmax", "aten::silu", "vllm::rms_norm", "vllm::topk_softmax"),
    *("cublas::cublasSaxpy_v2", "cublas::cublasSdot_v2"),
)


def example_for(operator: Operator) -> str:
    """Source of a reference kernel: of the same source if there is one, of another family."""
    others = [get_operator(id) for id in _EXAMPLES]
    fitting = [other for other in others if other.family != operator.family]
    fitting.sort(key=lambda other: other.source != operator.source)  # stable
    for other in fitting:
        path = KERNELS / other.source / f"{other.name}.py"
        if path.exists():
            return f"# A candidate for {other.id}, as an example of form.\n{path.read_text()}"
    raise LookupError("no example kernel")
