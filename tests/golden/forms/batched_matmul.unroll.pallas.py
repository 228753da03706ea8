"""batched_matmul for tpu:v6e, blocks tb=32, tk=128, tm=32, tn=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def batched_matmul_kernel(x_ref, w_ref, y_ref):
    # tb: grid dimension, blocks of 32; parallel: each tb writes its own rows of y
    # tn: grid dimension, blocks of 128; parallel: each tn writes its own slices of y
    # tm: grid dimension, blocks of 32; parallel: each tm writes its own slices of y
    # tk: loop inside the step, blocks of 128; ordered: carries acc, a sum
    # batched_matmul.py:25: acc = torch.zeros([tb, tm, tn], dtype=torch.float32)
    acc = jnp.zeros((32, 32, 128), jnp.float32)
    # batched_matmul.py:26: for tk in hl.tile(K):
    acc_1 = acc
    for tk in range(8):
        # batched_matmul.py:27: acc = torch.baddbmm(acc, x[tb, tm, tk], w[tb, tk, tn])
        acc_2 = (
            acc_1
            + jax.lax.dot_general(
                x_ref[:, :, pl.ds(tk * 128, 128)],
                w_ref[:, pl.ds(tk * 128, 128)],
                (((2,), (1,)), ((0,), (0,))),
                preferred_element_type=jnp.float32,
            )
        )
        acc_1 = acc_2
    # batched_matmul.py:28: y[tb, tm, tn] = acc.to(y.dtype)
    y_ref[...] = acc_1.astype(jnp.bfloat16)


def batched_matmul(x: jax.Array, w: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[b] = x[b] @ w[b]."""
    y = pl.pallas_call(
        batched_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((64, 1024, 1024), jnp.bfloat16),
        grid=(2, 8, 32),
        in_specs=[
            pl.BlockSpec((32, 32, 1024), lambda tb, tn, tm: (tb, tm, 0)),
            pl.BlockSpec((32, 1024, 128), lambda tb, tn, tm: (tb, 0, tn)),
        ],
        out_specs=pl.BlockSpec((32, 32, 128), lambda tb, tn, tm: (tb, tm, tn)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "parallel"),
        ),
        interpret=interpret,
    )(x, w)
    return y
