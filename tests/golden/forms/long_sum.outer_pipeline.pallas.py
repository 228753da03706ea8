"""long_sum for tpu:v6e, blocks tm=256, tn=2048."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def long_sum_kernel(x, y_row, total_ref):
    # tn: grid dimension, blocks of 2048; ordered: carries total, a sum
    # tm: one tile, blocks of 256; parallel: each tm writes its own elements of y
    def step(x_ref, y_ref):
        tn = pl.program_id(0)

        @pl.when(tn == 0)
        def _():
            # long_sum.py:23: total = hl.zeros([tm], dtype=hl.float32)
            total_ref[...] = jnp.zeros((256, 128), jnp.float32)

        # long_sum.py:25: total += x[tm, tn].to(hl.float32).sum(-1)
        total_ref[...] += jnp.sum(x_ref[...].astype(jnp.float32), axis=1, keepdims=True)

        @pl.when(tn == 511)
        def _():
            # long_sum.py:26: y[tm] = total.to(y.dtype)
            y_ref[...] = total_ref[:, :1].astype(jnp.bfloat16).T

    pltpu.emit_pipeline(
        step,
        grid=(512,),
        in_specs=[pl.BlockSpec((256, 2048), lambda tn: (0, tn))],
        out_specs=[pl.BlockSpec((1, 256), lambda tn: (0, 0))],
        dimension_semantics=(pltpu.ARBITRARY,),
    )(x, y_row)


def long_sum(x: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[i] = the sum of x[i]."""
    y_row = pl.pallas_call(
        long_sum_kernel,
        out_shape=jax.ShapeDtypeStruct((1, 256), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((256, 128), jnp.float32)],
        interpret=interpret,
    )(x)
    y = y_row.reshape((256,))
    return y
