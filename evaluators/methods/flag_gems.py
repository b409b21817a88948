"""FlagGems: a library of Triton kernels for PyTorch's operators on many vendors' chips.

The functions are those that FlagGems 5.0.2 registers for ATen (`flag_gems._FULL_CONFIG`), those
that it patches into vLLM (`flag_gems.patches`), and its experimental ones. They are called by name,
so that none falls back to ATen unnoticed. An overload that it has no kernel for is composed as a
user would: into a new tensor, then copied.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from kernelmark.evaluators.campaigns.records import MethodKind, Selection
from kernelmark.evaluators.methods._library import Call, Package, propose_call
from kernelmark.evaluators.methods.base import Proposal, Task, Workspace

PACKAGE = Package("flag-gems", "5.0.2", "flag_gems")


def _unary(name: str) -> Call:
    return Call("self, *, out=None", f"flag_gems.{name}(self)")


def _compared(name: str) -> Call:
    choice = f"flag_gems.{name} if isinstance(other, torch.Tensor) else flag_gems.{name}_scalar"
    return Call("self, other, *, out=None", f"({choice})(self, other)")


def _experimental(name: str, parameters: str, result: str) -> Call:
    """An operator that FlagGems does not register yet."""
    imports = (f"from flag_gems.experimental_ops.{name} import {name} as _{name}",)
    return Call(parameters, f"_{result}", imports=imports)


_LIKE = "dtype=None, layout=None, device=None, pin_memory=None"
_LIKE_GIVEN = "dtype=dtype, layout=layout, device=device, pin_memory=pin_memory"

CALLS: dict[str, Call] = {
    "aten::_index_put_impl_": Call(
        "self, indices, values, accumulate=False, unsafe=False",
        "flag_gems._index_put_impl_(self, list(indices), values, accumulate, unsafe)",
    ),
    "aten::_softmax": Call(
        "self, dim, half_to_float, *, out=None", "flag_gems.softmax(self, dim, half_to_float)"
    ),
    "aten::_to_copy": Call(
        f"self, *, {_LIKE}, non_blocking=False, memory_format=None, out=None",
        "flag_gems.to_copy(self, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory, "
        "non_blocking=non_blocking, memory_format=memory_format)",
        before=("dtype = dtype if out is None else out.dtype",),
    ),
    "aten::add": Call(
        "self, other, alpha=1, *, out=None", "flag_gems.add(self, other, alpha=alpha)"
    ),
    "aten::add_": Call("self, other, alpha=1", "flag_gems.add_(self, other, alpha=alpha)"),
    "aten::amin": _experimental(
        "amin", "self, dim=(), keepdim=False, *, out=None", "amin(self, dim or None, keepdim)"
    ),
    "aten::arange": Call(
        f"start, end=None, step=1, *, {_LIKE}, out=None",
        f"flag_gems.arange_start(start, end, step, {_LIKE_GIVEN})",
        before=(
            "start, end = (0, start) if end is None else (start, end)",
            "dtype = dtype if out is None else out.dtype",
            "device = device if out is None else out.device",
        ),
    ),
    "aten::argmax": Call(
        "self, dim=None, keepdim=False, *, out=None", "flag_gems.argmax(self, dim, keepdim)"
    ),
    "aten::bitwise_not": _unary("bitwise_not"),
    "aten::bmm": Call(
        "self, mat2, *, out=None",
        "flag_gems.bmm(self, mat2) if out is None else flag_gems.bmm_out(self, mat2, out)",
    ),
    "aten::cat": Call("tensors, dim=0, *, out=None", "flag_gems.cat(list(tensors), dim)"),
    "aten::contiguous": Call(
        "self, *, memory_format=torch.contiguous_format",
        "flag_gems.contiguous(self, memory_format)",
    ),
    "aten::copy_": Call(
        "self, src, non_blocking=False", "flag_gems.copy_(self, src, non_blocking)"
    ),
    "aten::cos": _unary("cos"),
    "aten::cosh": _unary("cosh"),
    "aten::cumsum": Call(
        "self, dim, *, dtype=None, out=None", "flag_gems.cumsum(self, dim, dtype=dtype)"
    ),
    "aten::div": Call(
        "self, other, *, rounding_mode=None, out=None",
        "flag_gems.true_divide(self, other) if rounding_mode is None else "
        "flag_gems.div_mode(self, other, rounding_mode=rounding_mode)",
    ),
    "aten::div_": Call(
        "self, other, *, rounding_mode=None",
        "flag_gems.true_divide_(self, other) if rounding_mode is None else "
        "flag_gems.div_mode_(self, other, rounding_mode=rounding_mode)",
    ),
    "aten::embedding": Call(
        "weight, indices, padding_idx=-1, scale_grad_by_freq=False, sparse=False, *, out=None",
        "flag_gems.embedding(weight, indices, padding_idx, scale_grad_by_freq, sparse)",
    ),
    "aten::eq": _compared("eq"),
    "aten::exponential_": Call(
        "self, lambd=1.0, *, generator=None",
        "flag_gems.exponential_(self, lambd, generator=generator)",
    ),
    "aten::fill_": Call(
        "self, value",
        "(flag_gems.fill_tensor_ if isinstance(value, torch.Tensor) else flag_gems.fill_scalar_)"
        "(self, value)",
    ),
    "aten::floor_divide": Call("self, other, *, out=None", "flag_gems.floor_divide(self, other)"),
    "aten::full": Call(
        f"size, fill_value, *, {_LIKE}, out=None",
        f"flag_gems.full(size, fill_value, {_LIKE_GIVEN})",
        before=(
            "dtype = dtype if out is None else out.dtype",
            "device = device if out is None else out.device",
        ),
    ),
    "aten::gather": Call(
        "self, dim, index, *, sparse_grad=False, out=None",
        "flag_gems.gather(self, dim, index, None, sparse_grad)",
    ),
    "aten::gt": _compared("gt"),
    "aten::hardsigmoid": _unary("hardsigmoid"),
    "aten::heaviside": _experimental(
        "heaviside", "self, values, *, out=None", "heaviside(self, values)"
    ),
    "aten::huber_loss": _experimental(
        "huber_loss",
        "self, target, reduction=1, delta=1.0, *, out=None",
        "huber_loss(self, target, reduction, delta)",
    ),
    "aten::i0": _unary("i0"),
    "aten::im2col": _experimental(
        "im2col",
        "self, kernel_size, dilation, padding, stride, *, out=None",
        "im2col(self, kernel_size, dilation, padding, stride)",
    ),
    "aten::index": Call("self, indices, *, out=None", "flag_gems.index(self, list(indices))"),
    "aten::index_put_": Call(
        "self, indices, values, accumulate=False",
        "flag_gems.index_put_(self, list(indices), values, accumulate)",
    ),
    "aten::index_select": Call(
        "self, dim, index, *, out=None", "flag_gems.index_select(self, dim, index)"
    ),
    "aten::le": _compared("le"),
    "aten::log10": _unary("log10"),
    "aten::logaddexp2": _experimental(
        "logaddexp2", "self, other, *, out=None", "logaddexp2(self, other)"
    ),
    "aten::logit": Call("self, eps=None, *, out=None", "flag_gems.logit(self, eps)"),
    "aten::margin_ranking_loss": Call(
        "input1, input2, target, margin=0.0, reduction=1",
        "flag_gems.margin_ranking_loss(input1, input2, target, margin, reduction)",
    ),
    "aten::masked_fill_": Call("self, mask, value", "flag_gems.masked_fill_(self, mask, value)"),
    "aten::mean": Call(
        "self, dim=None, keepdim=False, *, dtype=None, out=None",
        "flag_gems.mean(self, dtype=dtype) if dim is None else "
        "flag_gems.mean_dim(self, dim, keepdim, dtype=dtype)",
    ),
    "aten::mm": Call(
        "self, mat2, *, out=None",
        "flag_gems.mm(self, mat2) if out is None else flag_gems.mm_out(self, mat2, out=out)",
    ),
    "aten::mul": Call("self, other, *, out=None", "flag_gems.mul(self, other)"),
    "aten::neg": _unary("neg"),
    "aten::ones_like": Call(
        f"self, *, {_LIKE}, memory_format=None, out=None",
        f"flag_gems.ones_like(self, {_LIKE_GIVEN}, memory_format=memory_format)",
    ),
    "aten::pow": Call(
        "self, exponent, *, out=None",
        "kernel(self, exponent)",
        before=(
            "kernel = flag_gems.pow_tensor_tensor",
            "if not isinstance(exponent, torch.Tensor):",
            "    kernel = flag_gems.pow_tensor_scalar",
            "elif not isinstance(self, torch.Tensor):",
            "    kernel = flag_gems.pow_scalar",
        ),
    ),
    "aten::prelu": Call("self, weight", "flag_gems.prelu(self, weight)"),
    "aten::resolve_conj": Call("self", "flag_gems.resolve_conj(self)"),
    "aten::resolve_neg": Call("self", "flag_gems.resolve_neg(self)"),
    "aten::rrelu_with_noise_backward": Call(
        "grad_output, self, noise, lower, upper, training, self_is_result, *, out=None",
        "flag_gems.rrelu_with_noise_backward("
        "grad_output, self, noise, lower, upper, training, self_is_result)",
    ),
    "aten::rsqrt": _unary("rsqrt"),
    "aten::scatter": Call(
        "self, dim, index, src, *, reduce=None, out=None",
        "flag_gems.scatter(self, dim, index, src, reduce)",
        before=(
            "if not isinstance(src, torch.Tensor):",
            "    raise NotImplementedError('FlagGems scatters tensors, not numbers')",
        ),
    ),
    "aten::select_backward": Call(
        "grad_output, input_sizes, dim, index, *, out=None",
        "flag_gems.select_backward(grad_output, input_sizes, dim, index)",
    ),
    "aten::sgn": _experimental("sgn", "self, *, out=None", "sgn(self)"),
    "aten::silu": _unary("silu"),
    "aten::sin": _unary("sin"),
    "aten::soft_margin_loss": Call(
        "self, target, reduction=1, *, out=None",
        "flag_gems.soft_margin_loss(self, target, reduction)",
    ),
    "aten::softmax": Call(
        "self, dim, dtype=None, *, out=None",
        "flag_gems.softmax(self if dtype is None else self.to(dtype), dim)",
    ),
    "aten::sort": Call(
        "self, dim=-1, descending=False, *, stable=None, values=None, indices=None",
        "(sorted_values, places) if values is None else "
        "(values.copy_(sorted_values), indices.copy_(places))",
        before=(
            "sorted_values, places = flag_gems.sort_stable("
            "self, stable=stable, dim=dim, descending=descending)",
        ),
    ),
    "aten::square": _unary("square"),
    "aten::stack": Call("tensors, dim=0, *, out=None", "flag_gems.stack(list(tensors), dim)"),
    "aten::sub": Call(
        "self, other, alpha=1, *, out=None", "flag_gems.sub(self, other, alpha=alpha)"
    ),
    "aten::sum": Call(
        "self, dim=None, keepdim=False, *, dtype=None, out=None",
        "flag_gems.sum(self, dtype=dtype) if dim is None else "
        "flag_gems.sum_dim(self, dim, keepdim, dtype=dtype)",
    ),
    "aten::zero_": Call("self", "flag_gems.zero_(self)"),
    "aten::zeros": Call(
        f"size, *, {_LIKE}, out=None",
        f"flag_gems.zeros(size, {_LIKE_GIVEN})",
        before=(
            "dtype = dtype if out is None else out.dtype",
            "device = device if out is None else out.device",
        ),
    ),
    "aten::zeros_like": Call(
        f"self, *, {_LIKE}, memory_format=None, out=None",
        f"flag_gems.zeros_like(self, {_LIKE_GIVEN}, memory_format=memory_format)",
    ),
    "vllm::apply_repetition_penalties_cuda": Call(
        "logits, prompt_mask, output_mask, repetition_penalties",
        "flag_gems.apply_repetition_penalties("
        "logits, prompt_mask, output_mask, repetition_penalties)",
        silent=True,
    ),
    "vllm::concat_and_cache_mla": Call(
        "kv_c, k_pe, kv_cache, slot_mapping, kv_cache_dtype, scale",
        "flag_gems.concat_and_cache_mla(kv_c, k_pe, kv_cache, slot_mapping, kv_cache_dtype, scale)",
        silent=True,
    ),
    "vllm::cutlass_scaled_mm": Call(
        "a, b, scale_a, scale_b, out_dtype, bias=None",
        "result",
        before=(
            "result = torch.empty((a.shape[0], b.shape[1]), dtype=out_dtype, device=a.device)",
            "flag_gems.cutlass_scaled_mm(result, a, b, scale_a, scale_b, bias)",
        ),
    ),
    "vllm::fused_add_rms_norm": Call(
        "input, residual, weight, epsilon",
        "flag_gems.fused_add_rms_norm(input, residual, list(weight.shape), weight, epsilon)",
        silent=True,
    ),
    "vllm::grouped_topk": Call(
        "scores, num_expert_group, topk_group, topk, renormalize, routed_scaling_factor, bias, "
        "scoring_func=0",
        "flag_gems.grouped_topk(scores, num_expert_group, topk_group, topk, renormalize, "
        "routed_scaling_factor, bias, scoring_func)",
    ),
    "vllm::moe_align_block_size": Call(
        "topk_ids, num_experts, block_size, sorted_token_ids, experts_ids, num_tokens_post_pad, "
        "expert_map=None",
        "flag_gems.moe_align_block_size_triton(topk_ids, num_experts, block_size, "
        "sorted_token_ids, experts_ids, num_tokens_post_pad)",
        before=(
            "if expert_map is not None:",
            "    raise NotImplementedError('FlagGems takes no expert map')",
        ),
        silent=True,
    ),
    "vllm::moe_sum": Call("input, output", "flag_gems.moe_sum(input, output)", silent=True),
    "vllm::reshape_and_cache": Call(
        "key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale",
        "flag_gems.reshape_and_cache(key, value, key_cache, value_cache, slot_mapping, "
        "kv_cache_dtype, k_scale, v_scale)",
        silent=True,
    ),
    "vllm::reshape_and_cache_flash": Call(
        "key, value, key_cache, value_cache, slot_mapping, kv_cache_dtype, k_scale, v_scale",
        "flag_gems.reshape_and_cache_flash(key, value, key_cache, value_cache, slot_mapping, "
        "kv_cache_dtype, k_scale, v_scale)",
        silent=True,
    ),
    "vllm::rms_norm": Call(
        "out, input, weight, epsilon",
        "out.copy_(flag_gems.rms_norm_forward(input, list(weight.shape), weight, epsilon)[0])",
        silent=True,
    ),
    "vllm::rotary_embedding": Call(
        "positions, query, key, head_size, cos_sin_cache, is_neox",
        "flag_gems.apply_rotary_pos_emb(q, k, cos, sin, places, not is_neox, True)",
        before=(
            "if key is None:",
            "    raise NotImplementedError('FlagGems rotates queries and keys together')",
            "cos, sin = cos_sin_cache.chunk(2, dim=-1)",
            "places = positions.flatten()",
            "width = cos_sin_cache.shape[-1]",
            "q = query.view(places.numel(), -1, head_size)[..., :width]",
            "k = key.view(places.numel(), -1, head_size)[..., :width]",
        ),
        silent=True,
    ),
    "vllm::topk_softmax": Call(
        "topk_weights, topk_ids, token_expert_indices, gating_output, renormalize=False",
        "flag_gems.topk_softmax("
        "topk_weights, topk_ids, token_expert_indices, gating_output, renormalize)",
        silent=True,
    ),
}


@dataclass(frozen=True)
class FlagGems:
    """Takes no option."""

    kind: ClassVar[MethodKind] = "library"
    language: ClassVar[str] = "library"
    selection: ClassVar[Selection] = "last"
    uses_model: ClassVar[bool] = False
    summary: ClassVar[str] = f"FlagGems {PACKAGE.version}: its Triton kernel, where it has one"

    def check(self) -> None:
        """Nothing can be wrong: the package is needed where candidates are graded."""

    def propose(self, task: Task, workspace: Workspace) -> Iterator[Proposal]:
        """The library's kernel for the operator."""
        yield propose_call(task, PACKAGE, CALLS)


METHOD = FlagGems
