"""layer_norm_long for tpu:v6e, blocks tm=256, tn=2048, tn_1=2048, tn_2=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def layer_norm_long_kernel(x, weight_row, bias_row, out, total_ref, squares_ref):
    # tm: grid dimension, blocks of 256; parallel: each tm writes its own rows of out
    # tn: pipeline inside the step, blocks of 2048; ordered: carries total, a sum
    # tn_1: pipeline inside the step, blocks of 2048; ordered: carries squares, a sum
    # tn_2: pipeline inside the step, blocks of 512; parallel: each tn writes its own columns of
    #     out
    tm = pl.program_id(0)
    # layer_norm.py:43: total = torch.zeros([tm], dtype=torch.float32)
    total_ref[...] = jnp.zeros((256, 128), jnp.float32)
    # layer_norm.py:44: for tn in hl.tile(N):

    def each_tn(x_ref):
        # layer_norm.py:45: total += torch.sum(x[tm, tn].float(), dim=-1)
        total_ref[...] += jnp.sum(x_ref[...].astype(jnp.float32), axis=1, keepdims=True)

    pltpu.emit_pipeline(
        each_tn,
        grid=(2,),
        in_specs=[pl.BlockSpec((256, 2048), lambda tn: (tm, tn))],
    )(x)
    # layer_norm.py:46: mean = (total / N)[:, None]
    mean = total_ref[...] / 4096.0
    # layer_norm.py:48: squares = torch.zeros([tm], dtype=torch.float32)
    squares_ref[...] = jnp.zeros((256, 128), jnp.float32)
    # layer_norm.py:49: for tn in hl.tile(N):

    def each_tn_1(x_1_ref):
        # layer_norm.py:50: centred = x[tm, tn].float() - mean
        centred = x_1_ref[...].astype(jnp.float32) - jnp.tile(mean, (1, 16))
        # layer_norm.py:51: squares += torch.sum(centred * centred, dim=-1)
        squares_ref[...] += jnp.sum(centred * centred, axis=1, keepdims=True)

    pltpu.emit_pipeline(
        each_tn_1,
        grid=(2,),
        in_specs=[pl.BlockSpec((256, 2048), lambda tn_1: (tm, tn_1))],
    )(x)
    # layer_norm.py:52: scale = torch.rsqrt(squares / N + eps)[:, None]
    scale = jax.lax.rsqrt(squares_ref[...] / 4096.0 + 1e-05)
    # layer_norm.py:54: for tn in hl.tile(N):

    def each_tn_2(x_2_ref, weight_ref, bias_ref, out_ref):
        # layer_norm.py:55: normal = (x[tm, tn].float() - mean) * scale
        normal = (
            (x_2_ref[...].astype(jnp.float32) - jnp.tile(mean, (1, 4))) * jnp.tile(scale, (1, 4))
        )
        # layer_norm.py:56: out[tm, tn] = (normal * weight[tn] + bias[tn]).to(out.dtype)
        out_ref[...] = (
            normal * weight_ref[...].astype(jnp.float32) + bias_ref[...].astype(jnp.float32)
        ).astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        each_tn_2,
        grid=(8,),
        in_specs=[
            pl.BlockSpec((256, 512), lambda tn_2: (tm, tn_2)),
            pl.BlockSpec((1, 512), lambda tn_2: (0, tn_2)),
            pl.BlockSpec((1, 512), lambda tn_2: (0, tn_2)),
        ],
        out_specs=[pl.BlockSpec((256, 512), lambda tn_2: (tm, tn_2))],
    )(x, weight_row, bias_row, out)


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
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
            pl.BlockSpec(memory_space=pl.ANY),
        ],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[pltpu.VMEM((256, 128), jnp.float32), pltpu.VMEM((256, 128), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel",)),
        interpret=interpret,
    )(x, weight_row, bias_row)
    return out
