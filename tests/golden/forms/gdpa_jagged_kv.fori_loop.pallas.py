"""gdpa_jagged_kv for tpu:v6e, blocks tk=512, tq=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def gdpa_jagged_kv_kernel(q_offsets, kv_offsets, q_ref, k_ref, v_ref, out_ref):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: grid dimension; parallel: out slices of different b are disjoint because q_offsets is
    #     sorted
    # tk: loop inside the step, blocks of 512; ordered: carries acc, a sum
    # tq: loop inside the step, blocks of 128; parallel: each tq writes its own slices of out
    b = pl.program_id(1)

    @pl.when(b == 0)
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    # gdpa_jagged_kv.py:46: for tq in hl.tile(q_offsets[b], q_offsets[b + 1]):
    tq_begin = jnp.maximum(q_offsets[b], 0)
    tq_end = jnp.minimum(q_offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 128)
    tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), tq_first)
    def each_tq(tq, _):
        # gdpa_jagged_kv.py:47: acc = jnp.zeros([tq, width], dtype=jnp.float32)
        acc = jnp.zeros((128, 128), jnp.float32)
        # gdpa_jagged_kv.py:48: for tk in hl.tile(kv_offsets[b], kv_offsets[b + 1]):
        tk_begin = jnp.maximum(kv_offsets[b], 0)
        tk_end = jnp.minimum(kv_offsets[b + 1], 65536)
        tk_first = jax.lax.div(tk_begin, 512)
        tk_stop = jnp.where(tk_end > tk_begin, jax.lax.div(tk_end + 511, 512), tk_first)
        acc_1 = acc
        def each_tk(tk, acc_1):
            # gdpa_jagged_kv.py:49: scores = jnp.dot(q[h, tq, :], k[h, tk, :].T, preferred_elemen...
            scores = jax.lax.dot_general(
                q_ref[pl.ds(tq * 128, 128)],
                k_ref[pl.ds(tk * 512, 512)],
                (((1,), (1,)), ((), ())),
                preferred_element_type=jnp.float32,
            )
            # gdpa_jagged_kv.py:50: weights = activation(scores * D**-0.5).astype(v.dtype)
            tk_index = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (1, 512), 1)
            tk_mask = (tk_index >= kv_offsets[b]) & (tk_index < kv_offsets[b + 1])
            weights = jnp.where(
                tk_mask, jax.nn.gelu(scores * 0.08838834764831845).astype(jnp.bfloat16), 0.0
            )
            # gdpa_jagged_kv.py:51: acc += jnp.dot(weights, v[h, tk, :], preferred_element_type=j...
            tk_index_1 = tk * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
            tk_mask_1 = (tk_index_1 >= kv_offsets[b]) & (tk_index_1 < kv_offsets[b + 1])
            acc_2 = (
                acc_1
                + jnp.dot(
                    weights,
                    jnp.where(tk_mask_1, v_ref[pl.ds(tk * 512, 512)], 0.0),
                    preferred_element_type=jnp.float32,
                )
            )
            return acc_2

        acc_1 = jax.lax.fori_loop(tk_first, tk_stop, each_tk, acc_1)
        # gdpa_jagged_kv.py:52: out[h, tq, :] = acc.astype(out.dtype)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tq_mask = (tq_index >= q_offsets[b]) & (tq_index < q_offsets[b + 1])
        out_ref[pl.ds(tq * 128, 128)] = jnp.where(
            tq_mask, acc_1.astype(jnp.bfloat16), out_ref[pl.ds(tq * 128, 128)]
        )
        return 0

    jax.lax.fori_loop(tq_first, tq_stop, each_tq, 0)


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
    out = pl.pallas_call(
        gdpa_jagged_kv_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16384, 128), jnp.bfloat16),
        grid=(8, 128),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 65536, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, 65536, 128), lambda h, b: (h, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "arbitrary"),
            vmem_limit_bytes=105906176,
        ),
        interpret=interpret,
    )(q_offsets, kv_offsets, q, k, v)
    return out
