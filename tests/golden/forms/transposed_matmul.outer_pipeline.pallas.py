"""transposed_matmul for tpu:v6e, blocks tk=4096, tm=512, tn=1024."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def transposed_matmul_kernel(x, w, y):
    # tn: grid dimension, blocks of 1024; parallel: each tn writes its own columns of y
    # tm: grid dimension, blocks of 512; parallel: each tm writes its own rows of y
    # tk: one tile, blocks of 4096; ordered: carries acc, a sum
    def step(x_ref, w_ref, y_ref):
        # transposed_matmul.py:29: acc = jnp.zeros([tm, tn], dtype=jnp.float32)
        acc = jnp.zeros((512, 1024), jnp.float32)
        # transposed_matmul.py:31: product = jnp.dot(x[tk, tm].T, w[tn, tk].T, preferred_element_...
        product = jax.lax.dot_general(
            x_ref[...],
            w_ref[...],
            (((0,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # transposed_matmul.py:32: acc = acc + product
        acc = acc + product
        # transposed_matmul.py:33: y[tm, tn] = acc.astype(y.dtype)
        y_ref[...] = acc.astype(jnp.bfloat16)

    pltpu.emit_pipeline(
        step,
        grid=(4, 16),
        in_specs=[
            pl.BlockSpec((4096, 512), lambda tn, tm: (0, tm), pipeline_mode=pl.Buffered(4)),
            pl.BlockSpec((1024, 4096), lambda tn, tm: (tn, 0), pipeline_mode=pl.Buffered(4)),
        ],
        out_specs=[pl.BlockSpec((512, 1024), lambda tn, tm: (tm, tn))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.PARALLEL),
    )(x, w, y)


def transposed_matmul(w: jax.Array, x: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y = x.T @ w.T: w [N, K], x [K, M]; y [M, N] in x's dtype."""
    y = pl.pallas_call(
        transposed_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        compiler_params=pltpu.CompilerParams(vmem_limit_bytes=70254592),
        interpret=interpret,
    )(x, w)
    return y
