"""layer_norm for tpu:v6e, blocks tm=256."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def layer_norm_kernel(x, weight_row, bias_row, out):
    # tm: grid dimension, blocks of 256; parallel: each tm writes its own rows of out
    def step(x_ref, weight_ref, bias_ref, out_ref):
        # layer_norm.py:29: rows = x[tm, :].to(torch.float32)
        rows = x_ref[...].astype(jnp.float32)
        # layer_norm.py:30: centred = rows - torch.mean(rows, dim=-1, keepdim=True)
        centred = rows - jnp.sum(rows, axis=1, keepdims=True) / 4096.0
        # layer_norm.py:31: variance = torch.mean(centred * centred, dim=-1, keepdim=True)
        variance = jnp.sum(centred * centred, axis=1, keepdims=True) / 4096.0
        # layer_norm.py:32: normal = centred * torch.rsqrt(variance + eps)
        normal = centred * jax.lax.rsqrt(variance + 1e-05)
        # layer_norm.py:33: out[tm, :] = (normal * weight[:] + bias[:]).to(out.dtype)
        out_ref[...] = (
            normal * weight_ref[...].astype(jnp.float32) + bias_ref[...].astype(jnp.float32)
        ).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(64,),
        in_specs=[
            pl.BlockSpec((256, 4096), lambda tm: (tm, 0)),
            pl.BlockSpec((1, 4096), lambda tm: (0, 0)),
            pl.BlockSpec((1, 4096), lambda tm: (0, 0)),
        ],
        out_specs=[pl.BlockSpec((256, 4096), lambda tm: (tm, 0))],
        dimension_semantics=(pltpu.PARALLEL,),
    )(x, weight_row, bias_row, out)


def layer_norm(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """out[i] = (x[i] - mean) * rsqrt(variance + eps) * weight + bias, over each whole row."""
    weight_row = weight.reshape((1, 4096))
    bias_row = bias.reshape((1, 4096))
    out = pl.pallas_call(
        layer_norm_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 4096), jnp.bfloat16),
        in_specs=[
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        interpret=interpret,
    )(x, weight_row, bias_row)
    return out
