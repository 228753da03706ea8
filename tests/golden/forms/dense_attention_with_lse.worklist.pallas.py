"""attention_with_lse for tpu:v6e, blocks tk=512, tq=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def expand(first: jax.Array, count: jax.Array, rows: int) -> tuple[jax.Array, ...]:
    """For each row its entry and its tile; entry i has count[i] rows.  And how many rows."""
    first, count = jnp.broadcast_arrays(first, count)
    ends = jnp.cumsum(count)
    row = jnp.arange(rows)
    entry = jnp.searchsorted(ends, row, side="right").astype(jnp.int32)
    entry = jnp.minimum(entry, len(count) - 1)
    return entry, first[entry] + row - (ends - count)[entry], jnp.minimum(ends[-1], rows)


def attention_with_lse_steps() -> tuple[jax.Array, ...]:
    """The work list: rows (tq, tk), and how many there are."""
    tq = jnp.arange(8, dtype=jnp.int32)
    steps = jnp.int32(8)
    # every range of tk, and the rows that its tiles are
    tk_end = tq * 512 + 512
    tk_live = tk_end > 0
    tk_entry, tk, steps = expand(
        0, jnp.where(tk_live, jnp.clip(jax.lax.div(tk_end + 511, 512), 0, 8), 0), 64
    )
    tq = tq[tk_entry]
    return tq, tk, steps.reshape((1,))


def attention_with_lse_kernel(
    tq_of, tk_of, steps_of, q_ref, k_ref, v_ref, out_ref, lse_ref, total_ref, acc_ref, m_ref,
):
    # b: grid dimension; parallel: each b writes its own rows of out and lse
    # h: grid dimension; parallel: each h writes its own slices of out and lse
    # tq: column of the step table, blocks of 512; parallel: each tq writes its own slices of out
    #     and lse
    # tk: column of the step table, blocks of 512; ordered: carries total, acc, m
    n = pl.program_id(2)
    steps = steps_of[0]
    tq, tk = tq_of[n], tk_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (tq_of[before] != tq))
    def _():
        # attention_backward.py:40: acc = hl.zeros([tq, D], dtype=hl.float32)
        acc_ref[...] = jnp.zeros((512, 128), jnp.float32)
        # attention_backward.py:38: m = hl.full([tq], -math.inf, dtype=hl.float32)
        m_ref[...] = jnp.full((512, 128), -jnp.inf, jnp.float32)
        # attention_backward.py:39: total = hl.zeros([tq], dtype=hl.float32)
        total_ref[...] = jnp.zeros((512, 128), jnp.float32)

    # attention_backward.py:42: scores = hl.dot(q[b, h, tq, :], k[b, h, tk, :].T) * D**-0.5
    scores = (
        jax.lax.dot_general(
            q_ref[...],
            k_ref[...],
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        * 0.08838834764831845
    )
    # attention_backward.py:43: scores = hl.where(tk.index[None, :] <= tq.index[:, None], scores,...
    tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
    tq_index = tq * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
    scores = jnp.where(tk_index <= tq_index, scores, -jnp.inf)
    m = m_ref[...]
    # attention_backward.py:44: m_new = hl.maximum(m, scores.amax(-1))
    m_new = jnp.maximum(m, jnp.max(scores, axis=1, keepdims=True))
    # attention_backward.py:45: alpha = hl.exp(m - m_new)
    alpha = jnp.exp(m - m_new)
    # attention_backward.py:46: p = hl.exp(scores - m_new[:, None])
    p = jnp.exp(scores - jnp.tile(m_new, (1, 4)))
    # attention_backward.py:47: total = total * alpha + p.sum(-1)
    total_ref[...] = total_ref[...] * alpha + jnp.sum(p, axis=1, keepdims=True)
    # attention_backward.py:48: acc = hl.dot(p.to(v.dtype), v[b, h, tk, :], acc=acc * alpha[:, No...
    acc_ref[...] = (
        acc_ref[...] * alpha
        + jnp.dot(p.astype(jnp.bfloat16), v_ref[...], preferred_element_type=jnp.float32)
    )
    # attention_backward.py:49: m = m_new
    m_ref[...] = m_new

    @pl.when((n == steps - 1) | (tq_of[after] != tq))
    def _():
        total = total_ref[...]
        # attention_backward.py:50: out[b, h, tq, :] = (acc / total[:, None]).to(out.dtype)
        out_ref[...] = (acc_ref[...] / total).astype(jnp.bfloat16)
        # attention_backward.py:51: lse[b, h, tq] = m + hl.log(total)
        lse_ref[...] = (m_ref[...] + jnp.log(total))[:, :1].T


def attention_with_lse(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    *,
    interpret: bool = False,
) -> tuple[jax.Array, jax.Array]:
    """Causal attention: q, k, v [B, H, T, D]; out [B, H, T, D] in v's dtype, lse [B, H, T]."""
    tq_of, tk_of, steps_of = attention_with_lse_steps()
    out, lse_rows = pl.pallas_call(
        attention_with_lse_kernel,
        out_shape=[
            jax.ShapeDtypeStruct((4, 16, 4096, 128), jnp.bfloat16),
            jax.ShapeDtypeStruct((4, 16, 1, 4096), jnp.float32),
        ],
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=(4, 16, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (None, None, 512, 128),
                    lambda b, h, n, tq_of, tk_of, steps_of: (b, h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, None, 512, 128),
                    lambda b, h, n, tq_of, tk_of, steps_of: (b, h, tk_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, None, 512, 128),
                    lambda b, h, n, tq_of, tk_of, steps_of: (b, h, tk_of[n], 0),
                ),
            ],
            out_specs=[
                pl.BlockSpec(
                    (None, None, 512, 128),
                    lambda b, h, n, tq_of, tk_of, steps_of: (b, h, tq_of[n], 0),
                ),
                pl.BlockSpec(
                    (None, None, 1, 512),
                    lambda b, h, n, tq_of, tk_of, steps_of: (b, h, 0, tq_of[n]),
                ),
            ],
            scratch_shapes=[
                pltpu.VMEM((512, 128), jnp.float32),
                pltpu.VMEM((512, 128), jnp.float32),
                pltpu.VMEM((512, 128), jnp.float32),
            ],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
        ),
        interpret=interpret,
    )(tq_of, tk_of, steps_of, q, k, v)
    lse = lse_rows.reshape((4, 16, 4096))
    return out, lse
