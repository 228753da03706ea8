"""gdpa_jagged_kv for tpu:v6e, blocks tk=512, tq=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def gdpa_jagged_kv_kernel(q_offsets, kv_offsets, q, k, v, out_in, out, acc_ref, scores_ref):
    # b: column of the step table; parallel: out slices of different b are disjoint because
    #     q_offsets is sorted
    # tq: column of the step table, blocks of 256; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 512; ordered: carries acc, a sum
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # Rectangle of steps (b, tq, tk), 128 x 64 x 128; dead steps move no data.
    def at(n):
        b = jax.lax.div(n, 8192)
        tq_step = jax.lax.rem(jax.lax.div(n, 128), 64)
        tq_begin = jnp.maximum(q_offsets[b], 0)
        tq_end = jnp.minimum(q_offsets[b + 1], 16384)
        tq_first = jax.lax.div(tq_begin, 256)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 255, 256), tq_first)
        tq_live = tq_step < tq_stop - tq_first
        tq = jnp.minimum(jnp.minimum(tq_first + tq_step, jnp.maximum(tq_stop - 1, tq_first)), 63)
        tk_step = jax.lax.rem(n, 128)
        tk_begin = jnp.maximum(kv_offsets[b], 0)
        tk_end = jnp.minimum(kv_offsets[b + 1], 65536)
        tk_first = jax.lax.div(tk_begin, 512)
        tk_first = jnp.minimum(tk_first, 127)
        tk_stop = jnp.maximum(
            jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 511, 512), tk_first), tk_first + 1
        )
        tk_step = jnp.where(tq_live, tk_step, 127)
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
            # gdpa_jagged_kv.py:47: acc = jnp.zeros([tq, width], dtype=jnp.float32)
            acc_ref[...] = jnp.zeros((8, 256, 128), jnp.float32)

        @pl.when(
            live
            & (jnp.maximum(kv_offsets[b], tk * 512)
            < jnp.minimum(kv_offsets[b + 1], tk * 512 + 512)),
        )
        def _():
            # gdpa_jagged_kv.py:45: for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
            for h in range(8):
                # gdpa_jagged_kv.py:49: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_el...
                scores_ref[h] = jax.lax.dot_general(
                    q_ref[h],
                    k_ref[h],
                    (((1,), (1,)), ((), ())),
                    preferred_element_type=jnp.float32,
                )
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tk_mask = (tk_index >= kv_offsets[b]) & (tk_index < kv_offsets[b + 1])
            tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_mask_1 = (tk_index_1 >= kv_offsets[b]) & (tk_index_1 < kv_offsets[b + 1])
            for h in range(8):
                # gdpa_jagged_kv.py:50: weights = activation(scores * D**-0.5).astype(v.dtype)
                weights = jnp.where(
                    tk_mask,
                    jax.nn.gelu(scores_ref[h] * 0.08838834764831845).astype(jnp.bfloat16),
                    0.0,
                )
                # gdpa_jagged_kv.py:51: acc += jnp.dot(weights, v[h, tk, :], preferred_element_ty...
                acc_ref[h] += jnp.dot(
                    weights,
                    jnp.where(tk_mask_1, v_ref[h], 0.0),
                    preferred_element_type=jnp.float32,
                )

        @pl.when(live & (tk == tk_stop - 1))
        def _():
            # gdpa_jagged_kv.py:45: for h, b in hl.grid([H, q_offsets.shape[0] - 1]):
            tq_index = tq * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
            tq_mask = (tq_index >= q_offsets[b]) & (tq_index < q_offsets[b + 1])
            for h in range(8):
                # gdpa_jagged_kv.py:52: out[h, tq, :] = acc.astype(out.dtype)
                out_ref[h] = jnp.where(tq_mask, acc_ref[h].astype(jnp.bfloat16), out_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(1048576,),
        in_specs=[
            pl.BlockSpec((8, 256, 128), lambda n: (0, at(n)[1][1], 0)),
            pl.BlockSpec((8, 512, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((8, 512, 128), lambda n: (0, at(n)[1][2], 0)),
            pl.BlockSpec((8, 256, 128), lambda n: (0, at(n)[1][1], 0)),
        ],
        out_specs=[pl.BlockSpec((8, 256, 128), lambda n: (0, at(n)[1][1], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out_in, out)


def gdpa_jagged_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    q_offsets: jax.Array,
    kv_offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = sum of activation(q[:, r] k[:, s] / sqrt(D)) v[:, s] over keys s of r."""
    out_in = jnp.zeros((8, 16384, 128), jnp.bfloat16)
    out = pl.pallas_call(
        gdpa_jagged_kv_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16384, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((8, 256, 128), jnp.float32), pltpu.VMEM((8, 256, 512), jnp.float32)
        ],
        input_output_aliases={5: 0},
        interpret=interpret,
    )(q_offsets, kv_offsets, q, k, v, out_in)
    return out
