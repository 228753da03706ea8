"""vector_add for tpu:v6e, blocks ti=65536."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def vector_add_kernel(x_row, y_row, out_row):
    # ti: grid dimension, blocks of 65536; parallel: each ti writes its own elements of out
    def step(x_ref, y_ref, out_ref):
        # vector_add.py:23: out[ti] = x[ti] + y[ti]
        out_ref[...] = x_ref[...] + y_ref[...]

    pltpu.emit_pipeline(
        step,
        grid=(256,),
        in_specs=[
            pl.BlockSpec((1, 65536), lambda ti: (0, ti)),
            pl.BlockSpec((1, 65536), lambda ti: (0, ti)),
        ],
        out_specs=[pl.BlockSpec((1, 65536), lambda ti: (0, ti))],
        dimension_semantics=(pltpu.PARALLEL,),
    )(x_row, y_row, out_row)


def vector_add(x: jax.Array, y: jax.Array, *, interpret: bool = False) -> jax.Array:
    """out[i] = x[i] + y[i]."""
    x_row = x.reshape((1, 16777216))
    y_row = y.reshape((1, 16777216))
    out_row = pl.pallas_call(
        vector_add_kernel,
        out_shape=jax.ShapeDtypeStruct((1, 16777216), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(x_row, y_row)
    out = out_row.reshape((16777216,))
    return out
