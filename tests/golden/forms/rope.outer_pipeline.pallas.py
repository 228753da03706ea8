"""rope for tpu:v6e, blocks t=8192."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def rope_kernel(x, cos, sin, y):
    # h: grid dimension; parallel: each h writes its own rows of y
    # t: one tile, blocks of 8192; parallel: each t writes its own slices of y
    def step(x_ref, cos_ref, sin_ref, y_ref):
        # rope.py:31: a, b = x[h, t, :half].to(hl.float32), x[h, t, half:].to(hl.float32)
        a = x_ref[:, 0:64].astype(jnp.float32)
        b = x_ref[:, 64:128].astype(jnp.float32)
        # rope.py:32: c, s = cos[t, :], sin[t, :]
        c = cos_ref[...]
        s = sin_ref[...]
        # rope.py:33: y[h, t, :half] = (a * c - b * s).to(y.dtype)
        y_ref[:, 0:64] = (a * c - b * s).astype(jnp.bfloat16)
        # rope.py:34: y[h, t, half:] = (b * c + a * s).to(y.dtype)
        y_ref[:, 64:128] = (b * c + a * s).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(32,),
        in_specs=[
            pl.BlockSpec((None, 8192, 128), lambda h: (h, 0, 0)),
            pl.BlockSpec((8192, 64), lambda h: (0, 0)),
            pl.BlockSpec((8192, 64), lambda h: (0, 0)),
        ],
        out_specs=[pl.BlockSpec((None, 8192, 128), lambda h: (h, 0, 0))],
        dimension_semantics=(pltpu.PARALLEL,),
    )(x, cos, sin, y)


def rope(x: jax.Array, cos: jax.Array, sin: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Turns the pairs (x[h, t, d], x[h, t, d + D / 2]) by the angles of position t."""
    y = pl.pallas_call(
        rope_kernel,
        out_shape=jax.ShapeDtypeStruct((32, 8192, 128), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=55574528),
        interpret=interpret,
    )(x, cos, sin)
    return y
