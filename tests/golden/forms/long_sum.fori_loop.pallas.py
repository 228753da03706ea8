"""long_sum for tpu:v6e, blocks tm=16, tn=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def long_sum_kernel(x_ref, y_ref):
    # tm: grid dimension, blocks of 16; parallel: each tm writes its own rows of y
    # tn: loop inside the step, blocks of 128; ordered: carries total, a sum
    # long_sum.py:24: for tn in hl.tile(N):
    total = jnp.zeros((16, 128), jnp.float32)
    def each_tn(tn, total):
        # long_sum.py:25: total += x[tm, tn].to(hl.float32).sum(-1)
        total_1 = (
            total
            + jnp.sum(x_ref[:, pl.ds(tn * 128, 128)].astype(jnp.float32), axis=1, keepdims=True)
        )
        return total_1

    total = jax.lax.fori_loop(0, 8192, each_tn, total)
    # long_sum.py:26: y[tm] = total.to(y.dtype)
    y_ref[...] = total[:, :1].astype(jnp.bfloat16)


def long_sum(x: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[i] = the sum of x[i]."""
    y = pl.pallas_call(
        long_sum_kernel,
        out_shape=jax.ShapeDtypeStruct((256, 1), jnp.bfloat16),
        grid=(16,),
        in_specs=[pl.BlockSpec((16, 1048576), lambda tm: (tm, 0))],
        out_specs=pl.BlockSpec((16, 1), lambda tm: (tm, 0)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",),
            vmem_limit_bytes=84934656,
        ),
        interpret=interpret,
    )(x)
    y_numbers = y.reshape((256,))
    return y_numbers
