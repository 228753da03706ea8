"""rope for tpu:v6e, blocks t=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def rope_kernel(x_ref, cos_ref, sin_ref, y_ref):
    # t: grid dimension, blocks of 512; parallel: each t writes its own slices of y
    # h: every step runs all of them; parallel: each h writes its own rows of y
    # rope.py:32: c, s = cos[t, :], sin[t, :]
    c = cos_ref[...]
    s = sin_ref[...]
    # rope.py:29: for h in hl.grid(H):
    for h in range(32):
        # rope.py:31: a, b = x[h, t, :half].to(hl.float32), x[h, t, half:].to(hl.float32)
        a = x_ref[h, :, 0:64].astype(jnp.float32)
        b = x_ref[h, :, 64:128].astype(jnp.float32)
        # rope.py:33: y[h, t, :half] = (a * c - b * s).to(y.dtype)
        y_ref[h, :, 0:64] = (a * c - b * s).astype(jnp.bfloat16)
        # rope.py:34: y[h, t, half:] = (b * c + a * s).to(y.dtype)
        y_ref[h, :, 64:128] = (b * c + a * s).astype(jnp.bfloat16)


def rope(x: jax.Array, cos: jax.Array, sin: jax.Array, *, interpret: bool = False) -> jax.Array:
    """Turns the pairs (x[h, t, d], x[h, t, d + D / 2]) by the angles of position t."""
    y = pl.pallas_call(
        rope_kernel,
        out_shape=jax.ShapeDtypeStruct((32, 8192, 128), jnp.bfloat16),
        grid=(16,),
        in_specs=[
            pl.BlockSpec((32, 512, 128), lambda t: (0, t, 0)),
            pl.BlockSpec((512, 64), lambda t: (t, 0)),
            pl.BlockSpec((512, 64), lambda t: (t, 0)),
        ],
        out_specs=pl.BlockSpec((32, 512, 128), lambda t: (0, t, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x, cos, sin)
    return y
