"""The kernels around a mixture of experts, and attention to pages: examples/jagged."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from examples.jagged import grouped_gemm_bias_activation as epilogue
from examples.jagged import paged_attention, transposed_grouped_gemm
from examples.jagged import quantized_grouped_gemm as quantized
from tests import baselines
from tests.subjects.subject import Arrays, Ragged, Subject, jagged

try:  # spelled in torch
    from examples.jagged import moe
except ImportError:
    HAS_TORCH = False
else:
    HAS_TORCH = True

Array = Any


def _transposed(x: Array, dy: Array, offsets: Array) -> Array:
    """The rows of each group, one-hot, between the two factors."""
    group, inside = baselines.groups_of(offsets, len(x))
    own = (group[:, None] == jnp.arange(len(offsets) - 1)) & inside[:, None]
    rows = jnp.where(own.T[:, :, None], x[None], 0)  # [groups, rows, K]
    return baselines.product("grk,rn->gkn", rows, jnp.where(inside[:, None], dy, 0)).astype(x.dtype)


def _epilogue(activation: Callable[[Array], Array]) -> Callable[..., Array]:
    def run(x: Array, w: Array, bias: Array, offsets: Array) -> Array:
        group, inside = baselines.groups_of(offsets, len(x))
        y = activation(baselines.product("rk,rkn->rn", x, w[group]) + bias[group])
        return jnp.where(inside[:, None], y, 0).astype(x.dtype)

    return run


def _swiglu(x: Array, w: Array, v: Array, offsets: Array) -> Array:
    group, inside = baselines.groups_of(offsets, len(x))
    gate, value = (baselines.product("rk,rkn->rn", x, m[group]) for m in (w, v))
    return jnp.where(inside[:, None], jax.nn.silu(gate) * value, 0).astype(x.dtype)


def _weight_only(x: Array, w: Array, scale: Array, offsets: Array) -> Array:
    group, inside = baselines.groups_of(offsets, len(x))
    y = baselines.product("rk,rkn->rn", x, w[group].astype(x.dtype)) * scale[group]
    return jnp.where(inside[:, None], y, 0).astype(x.dtype)


def _quantized(x: Array, row_scale: Array, w: Array, scale: Array, offsets: Array) -> Array:
    group, inside = baselines.groups_of(offsets, len(x))
    sums = jnp.einsum("rk,rkn->rn", x, w[group], preferred_element_type=jnp.int32)
    y = sums.astype(jnp.float32) * row_scale[:, None] * scale[group]
    return jnp.where(inside[:, None], y, 0).astype(scale.dtype)


def _paged(q: Array, k: Array, v: Array, table: Array, lengths: Array, offsets: Array) -> Array:
    """All pages of each sequence side by side, then masked attention of every token to its own."""
    heads, tokens, width = q.shape
    if not len(table):
        return jnp.zeros_like(q)
    group, inside = baselines.groups_of(offsets, tokens)
    k, v = (pages[:, table].reshape(len(pages), len(table), -1, width) for pages in (k, v))
    position = jnp.arange(k.shape[2])
    v = jnp.where((position < lengths[:, None])[None, :, :, None], v, 0)
    k, v = (a.repeat(heads // len(a), 0)[:, group] for a in (k, v))  # [heads, tokens, all, width]
    scores = baselines.product("htd,htsd->hts", q, k) * width**-0.5
    asks = jnp.arange(tokens) - offsets[group + 1] + lengths[group]
    scores = jnp.where(position <= asks[:, None], scores, -jnp.inf)
    p = jnp.exp(scores - scores.max(-1, keepdims=True))
    out = baselines.product("hts,htsd->htd", p.astype(v.dtype), v) / p.sum(-1, keepdims=True)
    return jnp.where(inside[:, None], out, 0).astype(q.dtype)


def _moe(x: Array, w: Array, token: Array, slot: Array, gate: Array, offsets: Array) -> Array:
    expert, inside = baselines.groups_of(offsets, len(token))
    z = baselines.product("sd,sdn->sn", x[token], w[expert])
    z = jnp.where(inside[:, None], z, 0).astype(x.dtype)
    return baselines.product("tk,tkn->tn", gate, z[slot]).astype(x.dtype)


def _one_slot_each(seed: int, rows: int, groups: int) -> Arrays:
    """Token t has slot t: rows of the result are those of the groups, as the checks want them."""
    x, w, _, _, gate, _ = moe.make_inputs(seed, rows, max(groups, 1), 1, 136, 200)
    place = np.arange(rows, dtype=np.int32)
    return x, w[:groups], place, place[:, None], gate


SUBJECTS: tuple[Subject, ...] = (
    Subject(
        name="transposed_grouped_gemm",
        kernel=transposed_grouped_gemm.transposed_grouped_gemm,
        oracle=transposed_grouped_gemm.oracle,
        baseline=_transposed,
        make=jagged(transposed_grouped_gemm.make_inputs, k=136, n=200),
        cases=transposed_grouped_gemm.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
        ragged=Ragged({0: 0, 1: 0}, (), None),
    ),
    Subject(
        name="grouped_gemm_gelu",
        kernel=epilogue.gelu_layer,
        oracle=epilogue.oracle,
        baseline=_epilogue(jax.nn.gelu),
        make=jagged(epilogue.make_inputs, k=136, n=200),
        cases=epilogue.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
        ragged=Ragged({0: 0}, (1, 2), 0),
    ),
    Subject(
        name="grouped_gemm_swiglu",
        kernel=epilogue.swiglu_layer,
        oracle=epilogue.oracle_gated,
        baseline=_swiglu,
        make=jagged(epilogue.make_gated_inputs, k=136, n=200),
        cases=epilogue.GATED_CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
        ragged=Ragged({0: 0}, (1, 2), 0),
    ),
    Subject(
        name="weight_only_grouped_gemm",
        kernel=quantized.weight_only_grouped_gemm,
        oracle=quantized.oracle,
        baseline=_weight_only,
        make=jagged(quantized.make_inputs, k=136, n=200),
        cases=quantized.CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
        ragged=Ragged({0: 0}, (1, 2), 0),
    ),
    Subject(
        name="quantized_grouped_gemm",
        kernel=quantized.quantized_grouped_gemm,
        oracle=quantized.oracle_quantized,
        baseline=_quantized,
        make=jagged(quantized.make_quantized_inputs, k=136, n=200),
        cases=quantized.QUANTIZED_CASES,
        blocks={"tm": 16, "tn": 128, "tk": 128},
        ragged=Ragged({0: 0, 1: 0}, (2, 3), 0),
    ),
    Subject(
        name="paged_attention",
        kernel=paged_attention.paged_attention,
        oracle=paged_attention.oracle,
        baseline=_paged,
        make=jagged(paged_attention.make_inputs),
        cases=paged_attention.CASES,
        blocks={"tq": 16},
        ragged=Ragged({0: 1}, (), 1),
        within=("h",),
        groups={"p": 4},
    ),
)

if HAS_TORCH:
    SUBJECTS += (
        Subject(
            name="moe",
            kernel=moe.moe,
            oracle=moe.oracle,
            baseline=_moe,
            make=_one_slot_each,
            cases=moe.CASES,
            blocks={"ts": 16, "tn": 128, "td": 128},
            ragged=Ragged({0: 0}, (1,), 0),
        ),
    )
