"""split_k_matmul for tpu:v6e, blocks tk=128, tm=16, tm_1=16, tn=128, tn_1=128, ts=16384."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def split_k_matmul_1_kernel(x_ref, w_ref, partial_ref):
    # tn: grid dimension, blocks of 128; parallel: each tn writes its own slices of partial
    # tm: grid dimension, blocks of 16; parallel: each tm writes its own slices of partial
    # ts: grid dimension, blocks of 16384; parallel: each ts writes its own rows of partial
    # tk: loop inside the step, blocks of 128; ordered: carries acc, a sum
    ts = pl.program_id(2)
    # split_k_matmul.py:33: acc = hl.zeros([tm, tn], dtype=hl.float32)
    acc = jnp.zeros((16, 128), jnp.float32)
    # split_k_matmul.py:34: for tk in hl.tile(ts.begin, ts.end):
    acc_1 = acc
    for tk_step in range(128):
        tk = ts * 128 + tk_step
        # split_k_matmul.py:35: acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        acc_2 = (
            acc_1
            + jnp.dot(
                x_ref[:, pl.ds(tk * 128, 128)],
                w_ref[pl.ds(tk * 128, 128)],
                preferred_element_type=jnp.float32,
            )
        )
        acc_1 = acc_2
    # split_k_matmul.py:36: partial[ts.id, tm, tn] = acc
    partial_ref[...] = acc_1


def split_k_matmul_2_kernel(partial_ref, y_ref):
    # tm_1: grid dimension, blocks of 16; parallel: each tm writes its own rows of y
    # tn_1: grid dimension, blocks of 128; parallel: each tn writes its own columns of y
    # split_k_matmul.py:38: y[tm, tn] = partial[:, tm, tn].sum(0).to(y.dtype)
    y_ref[...] = jnp.sum(partial_ref[...], axis=0).astype(jnp.bfloat16)


def split_k_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """x [M, K] times w [K, N] as the sum of at most `splits` products; [M, N] in x's dtype."""
    partial = pl.pallas_call(
        split_k_matmul_1_kernel,
        out_shape=jax.ShapeDtypeStruct((4, 256, 512), jnp.float32),
        grid=(4, 16, 4),
        in_specs=[
            pl.BlockSpec((16, 65536), lambda tn, tm, ts: (tm, 0)),
            pl.BlockSpec((65536, 128), lambda tn, tm, ts: (0, tn)),
        ],
        out_specs=pl.BlockSpec((None, 16, 128), lambda tn, tm, ts: (ts, tm, tn)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
            vmem_limit_bytes=48234496,
        ),
        interpret=interpret,
    )(x, w)
    y = pl.pallas_call(
        split_k_matmul_2_kernel,
        out_shape=jax.ShapeDtypeStruct((256, 512), jnp.bfloat16),
        grid=(16, 4),
        in_specs=[pl.BlockSpec((4, 16, 128), lambda tm_1, tn_1: (0, tm_1, tn_1))],
        out_specs=pl.BlockSpec((16, 128), lambda tm_1, tn_1: (tm_1, tn_1)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(partial)
    return y
