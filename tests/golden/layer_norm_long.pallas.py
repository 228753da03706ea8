"""layer_norm_long for tpu:v6e, blocks tm=256, tn=2048, tn_1=2048, tn_2=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def layer_norm_long_kernel(x_ref, weight_ref, bias_ref, out_ref):
    # tm: grid dimension, blocks of 256; parallel: each tm writes its own rows of out
    # tn: loop inside the step, blocks of 2048; ordered: carries total, a sum
    # tn_1: loop inside the step, blocks of 2048; ordered: carries squares, a sum
    # tn_2: loop inside the step, blocks of 512; parallel: each tn writes its own columns of out
    # layer_norm.py:44: for tn in hl.tile(N):
    total = jnp.zeros((256, 128), jnp.float32)
    def each_tn(tn, total):
        # layer_norm.py:45: total += torch.sum(x[tm, tn].float(), dim=-1)
        total_1 = (
            total
            + jnp.sum(x_ref[:, pl.ds(tn * 2048, 2048)].astype(jnp.float32), axis=1, keepdims=True)
        )
        return total_1

    total = jax.lax.fori_loop(0, 2, each_tn, total)
    # layer_norm.py:46: mean = (total / N)[:, None]
    mean = total / 4096.0
    # layer_norm.py:49: for tn in hl.tile(N):
    squares = jnp.zeros((256, 128), jnp.float32)
    def each_tn_1(tn_1, squares):
        # layer_norm.py:50: centred = x[tm, tn].float() - mean
        centred = x_ref[:, pl.ds(tn_1 * 2048, 2048)].astype(jnp.float32) - jnp.tile(mean, (1, 16))
        # layer_norm.py:51: squares += torch.sum(centred * centred, dim=-1)
        squares_1 = squares + jnp.sum(centred * centred, axis=1, keepdims=True)
        return squares_1

    squares = jax.lax.fori_loop(0, 2, each_tn_1, squares)
    # layer_norm.py:52: scale = torch.rsqrt(squares / N + eps)[:, None]
    scale = jax.lax.rsqrt(squares / 4096.0 + 1e-05)
    # layer_norm.py:54: for tn in hl.tile(N):
    def each_tn_2(tn_2, _):
        # layer_norm.py:55: normal = (x[tm, tn].float() - mean) * scale
        normal = (
            (x_ref[:, pl.ds(tn_2 * 512, 512)].astype(jnp.float32) - jnp.tile(mean, (1, 4)))
            * jnp.tile(scale, (1, 4))
        )
        # layer_norm.py:56: out[tm, tn] = (normal * weight[tn] + bias[tn]).to(out.dtype)
        out_ref[:, pl.ds(tn_2 * 512, 512)] = (
            normal * weight_ref[:, pl.ds(tn_2 * 512, 512)].astype(jnp.float32)
            + bias_ref[:, pl.ds(tn_2 * 512, 512)].astype(jnp.float32)
        ).astype(jnp.bfloat16)
        return 0

    jax.lax.fori_loop(0, 8, each_tn_2, 0)


def layer_norm_long(
    x: jax.Array,
    weight: jax.Array,
    bias: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """The same for long rows: three passes over tiles of columns."""
    weight_row = weight.reshape((1, 4096))
    bias_row = bias.reshape((1, 4096))
    out = pl.pallas_call(
        layer_norm_long_kernel,
        out_shape=jax.ShapeDtypeStruct((16384, 4096), jnp.bfloat16),
        grid=(64,),
        in_specs=[
            pl.BlockSpec((256, 4096), lambda tm: (tm, 0)),
            pl.BlockSpec((1, 4096), lambda tm: (0, 0)),
            pl.BlockSpec((1, 4096), lambda tm: (0, 0)),
        ],
        out_specs=pl.BlockSpec((256, 4096), lambda tm: (tm, 0)),
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x, weight_row, bias_row)
    return out
