"""embedding for tpu:v6e, blocks td=128, tm=128."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def embedding_kernel(ids, table_ref, y_ref):
    # tm: grid dimension, blocks of 128; parallel: each tm writes its own rows of y
    # td: grid dimension, blocks of 128; parallel: each td writes its own columns of y
    tm = pl.program_id(0)
    # embedding.py:28: y[tm, td] = table[ids[tm], td]
    table_rows_at = [jnp.clip(ids[jnp.minimum(tm * 128 + i, 8191)], 0, 128255) for i in range(128)]
    table_rows = jnp.concatenate([table_ref[pl.ds(place, 1), :] for place in table_rows_at], axis=0)
    y_ref[...] = table_rows


def embedding(ids: jax.Array, table: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y[r] = table[ids[r]]: ids [M] integers in 0 .. V - 1, table [V, D]; y [M, D]."""
    y = pl.pallas_call(
        embedding_kernel,
        out_shape=jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16),
        grid=(64, 32),
        in_specs=[
            pl.BlockSpec(memory_space=pltpu.SMEM),
            pl.BlockSpec((128256, 128), lambda tm, td: (0, td)),
        ],
        out_specs=pl.BlockSpec((128, 128), lambda tm, td: (tm, td)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel"),
            vmem_limit_bytes=82837504,
        ),
        interpret=interpret,
    )(ids, table)
    return y
