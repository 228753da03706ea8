"""hstu_attention for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def hstu_attention_kernel(offsets, q, k, v, out_in, out, acc_ref, scores_ref):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 512; ordered: carries acc, a sum
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # Rectangle of steps (b, tq, tk), 256 x 17 x 9; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 153)
        tq_step = jax.lax.rem(jax.lax.div(n, 9), 17)
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 65536)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), tq_first)
        tq_live = tq_step < tq_stop - tq_first
        tq = jnp.minimum(jnp.minimum(tq_first + tq_step, jnp.maximum(tq_stop - 1, tq_first)), 255)
        tk_step = jax.lax.rem(n, 9)
        tk_end = jnp.minimum(offsets[b + 1], tq * 256 + 256)
        tk_first = jax.lax.div(tq_begin, 512)
        tk_stop = jax.lax.div(tk_end + 511, 512)
        tk_step = jnp.where(tq_live, tk_step, 8)
        tk_live = tk_step < tk_stop - tk_first
        tk = jnp.minimum(jnp.minimum(tk_first + tk_step, jnp.maximum(tk_stop - 1, tk_first)), 127)
        live = tq_live & tk_live
        return live, (b, tq, tk), (tk_first, tk_stop)

    def step(q_ref, k_ref, v_ref, out_in_ref, out_ref):
        n = pl.program_id(0)
        live, (b, tq, tk), (tk_first, tk_stop) = at(n)
        _, before, _ = at(jnp.maximum(n - 1, 0))

        @pl.when((n == 0) | (before[1] != tq))
        def _():
            # first step at this block of out: start from what the array holds
            out_ref[...] = out_in_ref[...]

        @pl.when(live & (tk == tk_first))
        def _():
            # hstu_attention.py:44: acc = jnp.zeros([tq, width], dtype=jnp.float32)
            acc_ref[...] = jnp.zeros((16, 256, 128), jnp.float32)

        @pl.when(live)
        def _():
            # hstu_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
            for h in range(16):
                # hstu_attention.py:47: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_el...
                scores_ref[h] = jax.lax.dot_general(
                    q_ref[h],
                    k_ref[h],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tk_mask = (
                (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 256 + 256))
            )
            tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_mask_1 = (
                (tk_index_1 >= offsets[b])
                & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 256 + 256))
            )
            for h in range(16):
                # hstu_attention.py:48: weights = jax.nn.silu(scores * D**-0.5) / longest
                weights = jax.nn.silu(scores_ref[h] * 0.08838834764831845) / 4096.0
                # hstu_attention.py:50: weights = jnp.where(tk.index[None, :] <= tq.index[:, None...
                weights = jnp.where((tk_index <= tq_index) & tk_mask, weights, 0.0)
                # hstu_attention.py:51: acc += jnp.dot(
                acc_ref[h] += jnp.dot(
                    weights.astype(jnp.bfloat16),
                    jnp.where(tk_mask_1, v_ref[h], 0.0),
                    preferred_element_type=jnp.float32,
                )

        @pl.when(live & (tk == tk_stop - 1))
        def _():
            # hstu_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # hstu_attention.py:54: out[h, tq, :] = acc.astype(out.dtype)
                out_ref[h] = jnp.where(tq_mask, acc_ref[h].astype(jnp.bfloat16), out_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(39168,),
        in_specs=[
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((16, 512, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 512, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((16, 256, 128), lambda n: (0, at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out_in, out)


def hstu_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = sum of silu(q[:, r] k[:, s] / sqrt(D)) v[:, s] / longest over s in r's se..."""
    out_in = jnp.zeros((16, 65536, 128), jnp.bfloat16)
    out = pl.pallas_call(
        hstu_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 65536, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((16, 256, 128), jnp.float32), pltpu.VMEM((16, 256, 512), jnp.float32)
        ],
        input_output_aliases={4: 0},
        interpret=interpret,
    )(offsets, q, k, v, out_in)
    return out
