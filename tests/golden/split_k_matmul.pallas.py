"""split_k_matmul for tpu:v6e, blocks tk=512, tm=256, tm_1=256, tn=512, tn_1=512, ts=16384."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def split_k_matmul_1_kernel(x, w, partial, acc_ref, ts_of, tk_of):
    # ts: column of the step table, blocks of 16384; parallel: each ts writes its own rows of
    #     partial
    # tk: column of the step table, blocks of 512; ordered: carries acc, a sum
    # tm: one tile, blocks of 256; parallel: each tm writes its own slices of partial
    # tn: one tile, blocks of 512; parallel: each tn writes its own slices of partial
    # Step table: one row for every live (ts, tk), in the order of the loops.
    def add_tk(ts, tk, n):
        ts_of[n] = ts
        tk_of[n] = tk
        return n + 1

    def add_ts(ts, n):
        tk_begin = jnp.maximum(ts * 16384, 0)
        tk_end = jnp.minimum(ts * 16384 + 16384, 65536)
        tk_first = jax.lax.div(tk_begin, 512)
        tk_stop = jax.lax.div(tk_end + 511, 512)
        return jax.lax.fori_loop(tk_first, tk_stop, lambda tk, n: add_tk(ts, tk, n), n)

    steps = jax.lax.fori_loop(0, 4, add_ts, jnp.int32(0))

    def step(x_ref, w_ref, partial_ref):
        n = pl.program_id(0)
        ts = ts_of[n]
        before = jnp.maximum(n - 1, 0)
        after = jnp.minimum(n + 1, steps - 1)

        @pl.when((n == 0) | (ts_of[before] != ts))
        def _():
            # split_k_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
            acc_ref[...] = jnp.zeros((256, 512), jnp.float32)

        # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        acc_ref[...] += jnp.dot(x_ref[...], w_ref[...], preferred_element_type=jnp.float32)

        @pl.when((n == steps - 1) | (ts_of[after] != ts))
        def _():
            # split_k_matmul.py:36: partial[ts.id, tm, tn] = acc
            partial_ref[...] = acc_ref[...]

    pltpu.emit_pipeline(
        step,
        grid=(steps,),
        in_specs=[
            pl.BlockSpec((256, 512), lambda n: (0, tk_of[n])),
            pl.BlockSpec((512, 512), lambda n: (tk_of[n], 0)),
        ],
        out_specs=[pl.BlockSpec((None, 256, 512), lambda n: (ts_of[n], 0, 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, w, partial)


def split_k_matmul_2_kernel(partial_ref, y_ref):
    # tm_1: one tile, blocks of 256; parallel: each tm writes its own rows of y
    # tn_1: one tile, blocks of 512; parallel: each tn writes its own columns of y
    # split_k_matmul.py:38: y[tm, tn] = partial[:, tm, tn].sum(0).to(y.dtype)
    y_ref[...] = jnp.sum(partial_ref[...], axis=0).astype(jnp.bfloat16)


def split_k_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """x [M, K] times w [K, N] as the sum of at most `splits` products; [M, N] in x's dtype."""
    partial = pl.pallas_call(
        split_k_matmul_1_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 256, 512), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((256, 512), jnp.float32),
            pltpu.SMEM((512,), jnp.int32),
            pltpu.SMEM((512,), jnp.int32),
        ],
        interpret=interpret,
    )(x, w)
    y = pl.pallas_call(
        split_k_matmul_2_kernel,
        out_shape=jax.ShapeDtypeStruct((256, 512), jnp.bfloat16),
        in_specs=[pl.BlockSpec((4, 256, 512), lambda: (0, 0, 0))],
        out_specs=pl.BlockSpec((256, 512), lambda: (0, 0)),
        interpret=interpret,
    )(partial)
    return y
