"""hstu_attention for tpu:v6e, blocks tk=256, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def hstu_attention_kernel(offsets, q, k, v, out, acc_ref, scores_ref, b_of, tq_of, tk_of):
    # b: column of the step table; parallel: out slices of different b are disjoint because offsets
    #     is sorted
    # tq: column of the step table, blocks of 128; parallel: each tq writes its own slices of out
    # tk: column of the step table, blocks of 256; ordered: carries acc, a sum
    # h: every step runs all of them; parallel: each h writes its own rows of out
    # Step table: one row for every (b, tq, tk), in the order of the loops.
    # A tq of no range gets one too, so that its outputs are defined;
    # every tq below `seen` has a row already.
    def add_tk(b, tq, tk, n):
        b_of[n] = b
        tq_of[n] = tq
        tk_of[n] = tk
        return n + 1

    def add_tq(b, tq, n):
        tk_begin = jnp.maximum(offsets[b], 0)
        tk_end = jnp.minimum(offsets[b + 1], tq * 128 + 128)
        tk_first = jax.lax.div(tk_begin, 256)
        tq_runs = jnp.maximum(offsets[b], tq * 128) < jnp.minimum(offsets[b + 1], tq * 128 + 128)
        tk_first = jnp.where(
            (n == 0) | tq_runs, jnp.minimum(tk_first, 255), tk_of[jnp.maximum(n - 1, 0)]
        )
        tk_stop = jnp.minimum(
            jnp.maximum(
                jnp.where((tk_end > tk_begin) & tq_runs, jax.lax.div(tk_end + 255, 256), tk_first),
                tk_first + 1,
            ),
            tk_first + (13039 - n),
        )
        return jax.lax.fori_loop(tk_first, tk_stop, lambda tk, n: add_tk(b, tq, tk, n), n)

    def add_b(b, state):
        n, seen = state
        tq_begin = jnp.maximum(offsets[b], 0)
        tq_end = jnp.minimum(offsets[b + 1], 65536)
        tq_first = jax.lax.div(tq_begin, 128)
        tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), seen)
        tq_start = jnp.where((tq_end > tq_begin) & (tq_first < seen), seen - 1, seen)
        n = jax.lax.fori_loop(tq_start, tq_stop, lambda tq, n: add_tq(b, tq, n), n)
        return n, jnp.maximum(seen, tq_stop)

    steps, seen = jax.lax.fori_loop(0, 256, add_b, (jnp.int32(0), jnp.int32(0)))
    steps = jax.lax.fori_loop(seen, 512, lambda tq, n: add_tq(255, tq, n), steps)

    def step(q_ref, k_ref, v_ref, out_ref):
        n = pl.program_id(0)
        b, tq, tk = b_of[n], tq_of[n], tk_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (tq_of[before] != tq))
        def _():
            # first step at this block of out: rows of no range keep 0.0
            out_ref[...] = jnp.zeros((16, 128, 128), jnp.bfloat16)

        @pl.when((n == 0) | (b_of[before] != b) | (tq_of[before] != tq))
        def _():
            # hstu_attention.py:44: acc = jnp.zeros([tq, width], dtype=jnp.float32)
            acc_ref[...] = jnp.zeros((16, 128, 128), jnp.float32)

        # hstu_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
        for h in range(16):
            # hstu_attention.py:47: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            scores_ref[h] = jax.lax.dot_general(
                q_ref[h],
                k_ref[h],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
        tk_index = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (1, 256), 1)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tk_mask = (
            (tk_index >= offsets[b]) & (tk_index < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        )
        tk_index_1 = tk * 256 + jax.lax.broadcasted_iota(jnp.int32, (256, 1), 0)
        tk_mask_1 = (
            (tk_index_1 >= offsets[b]) & (tk_index_1 < jnp.minimum(offsets[b + 1], tq * 128 + 128))
        )
        for h in range(16):
            # hstu_attention.py:48: weights = jax.nn.silu(scores * D**-0.5) / longest
            weights = jax.nn.silu(scores_ref[h] * 0.08838834764831845) / 4096.0
            # hstu_attention.py:50: weights = jnp.where(tk.index[None, :] <= tq.index[:, None], w...
            weights = jnp.where((tk_index <= tq_index) & tk_mask, weights, 0.0)
            # hstu_attention.py:51: acc += jnp.dot(
            acc_ref[h] += jnp.dot(
                weights.astype(jnp.bfloat16),
                jnp.where(tk_mask_1, v_ref[h], 0.0),
                preferred_element_type=jnp.float32,
            )

        @pl.when((n == steps - 1) | (b_of[after] != b) | (tq_of[after] != tq))
        def _():
            # hstu_attention.py:41: for h, b in hl.grid([H, offsets.shape[0] - 1]):
            tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
            tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
            for h in range(16):
                # hstu_attention.py:54: out[h, tq, :] = acc.astype(out.dtype)
                out_ref[h] = jnp.where(tq_mask, acc_ref[h].astype(jnp.bfloat16), out_ref[h])

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((16, 128, 128), lambda n: (0, tq_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((16, 256, 128), lambda n: (0, tk_of[n], 0), pipeline_mode=pl.Buffered(4)),
        ],
        out_specs=[pl.BlockSpec((16, 128, 128), lambda n: (0, tq_of[n], 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(q, k, v, out)


def hstu_attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = sum of silu(q[:, r] k[:, s] / sqrt(D)) v[:, s] / longest over s in r's se..."""
    out = pl.pallas_call(
        hstu_attention_kernel,
        out_shape=jax.ShapeDtypeStruct((16, 65536, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((16, 128, 128), jnp.float32),
            pltpu.VMEM((16, 128, 256), jnp.float32),
            pltpu.SMEM((13039,), jnp.int32),
            pltpu.SMEM((13039,), jnp.int32),
            pltpu.SMEM((13039,), jnp.int32),
        ],
        interpret=interpret,
    )(offsets, q, k, v)
    return out
