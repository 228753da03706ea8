"""gdpa_dense_kv for tpu:v6e, blocks tq=128, ts=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def gdpa_dense_kv_kernel(offsets, k_ref, q_ref, v_ref, out_ref):
    # h: grid dimension; parallel: each h writes its own rows of out
    # b: grid dimension; parallel: out slices of different b are disjoint because offsets is sorted
    # tq: loop inside the step, blocks of 128; parallel: each tq writes its own slices of out
    # ts: one tile, blocks of 512; ordered: carries acc, a sum
    b = pl.program_id(1)

    @pl.when(b == 0)
    def _():
        # first step at this block of out: rows of no range keep 0.0
        out_ref[...] = jnp.zeros((16384, 128), jnp.bfloat16)

    # gdpa_dense_kv.py:46: for tq in hl.tile(offsets[b], offsets[b + 1], max_extent=T):
    tq_begin = jnp.maximum(offsets[b], 0)
    tq_end = jnp.minimum(offsets[b + 1], 16384)
    tq_first = jax.lax.div(tq_begin, 128)
    tq_stop = jnp.where(tq_end > tq_begin, jax.lax.div(tq_end + 127, 128), tq_first)
    def each_tq(tq, _):
        # gdpa_dense_kv.py:47: acc = jnp.zeros([tq, D], dtype=jnp.float32)
        acc = jnp.zeros((128, 128), jnp.float32)
        # gdpa_dense_kv.py:49: keys = k[b, h, ts, :]
        keys = k_ref[...]
        # gdpa_dense_kv.py:50: scores = jnp.dot(q[h, tq, :], keys.T, preferred_element_type=jnp.f...
        scores = jax.lax.dot_general(
            q_ref[pl.ds(tq * 128, 128)],
            keys,
            (((1,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # gdpa_dense_kv.py:51: weights = activation(scores * D**-0.5).astype(v.dtype)
        weights = jax.nn.gelu(scores * 0.08838834764831845).astype(jnp.bfloat16)
        # gdpa_dense_kv.py:52: acc += jnp.dot(weights, v[b, h, ts, :], preferred_element_type=jnp...
        acc = acc + jnp.dot(weights, v_ref[...], preferred_element_type=jnp.float32)
        # gdpa_dense_kv.py:53: out[h, tq, :] = acc.astype(out.dtype)
        tq_index = tq * 128 + jax.lax.broadcasted_iota(jnp.int32, (128, 1), 0)
        tq_mask = (tq_index >= offsets[b]) & (tq_index < offsets[b + 1])
        out_ref[pl.ds(tq * 128, 128)] = jnp.where(
            tq_mask, acc.astype(jnp.bfloat16), out_ref[pl.ds(tq * 128, 128)]
        )
        return 0

    jax.lax.fori_loop(tq_first, tq_stop, each_tq, 0)


def gdpa_dense_kv(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[:, r] = activation(q[:, r] k[b]^T / sqrt(D)) v[b] for r in group b, else zero."""
    out = pl.pallas_call(
        gdpa_dense_kv_kernel,
        out_shape=jax.ShapeDtypeStruct((8, 16384, 128), jnp.bfloat16),
        grid=(8, 64),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((None, None, 512, 128), lambda h, b: (b, h, 0, 0)),
            pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
            pl.BlockSpec((None, None, 512, 128), lambda h, b: (b, h, 0, 0)),
        ],
        out_specs=pl.BlockSpec((None, 16384, 128), lambda h, b: (h, 0, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "arbitrary")),
        interpret=interpret,
    )(offsets, k, q, v)
    return out
