"""transposed_matmul for tpu:v6e, blocks tk=2048, tm=512, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def transposed_matmul_kernel(x, w, y_ref, acc_ref):
    # tm: grid dimension, blocks of 512; parallel: each tm writes its own rows of y
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own columns of y
    # tk: pipeline inside the step, blocks of 2048; ordered: carries acc, a sum
    tm = pl.program_id(0)
    tn = pl.program_id(1)
    # transposed_matmul.py:29: acc = jnp.zeros([tm, tn], dtype=jnp.float32)
    acc_ref[...] = jnp.zeros((512, 512), jnp.float32)
    # transposed_matmul.py:30: for tk in hl.tile(K):

    def each_tk(x_ref, w_ref):
        # transposed_matmul.py:31: product = jnp.dot(x[tk, tm].T, w[tn, tk].T, preferred_element_...
        product = jax.lax.dot_general(
            x_ref[...],
            w_ref[...],
            (((0,), (1,)), ((), ())),
            preferred_element_type=jnp.float32,
        )
        # transposed_matmul.py:32: acc = acc + product
        acc_ref[...] += product

    pltpu.emit_pipeline(
        each_tk,
        grid=(2,),
        in_specs=[
            pl.BlockSpec((2048, 512), lambda tk: (tk, tm)),
            pl.BlockSpec((512, 2048), lambda tk: (tn, tk)),
        ],
    )(x, w)
    # transposed_matmul.py:33: y[tm, tn] = acc.astype(y.dtype)
    y_ref[...] = acc_ref[...].astype(jnp.bfloat16)


def transposed_matmul(w: jax.Array, x: jax.Array, *, interpret: bool = False) -> jax.Array:
    """y = x.T @ w.T: w [N, K], x [K, M]; y [M, N] in x's dtype."""
    y = pl.pallas_call(
        transposed_matmul_kernel,
        out_shape=jax.ShapeDtypeStruct((8192, 4096), jnp.bfloat16),
        grid=(16, 8),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec((512, 512), lambda tm, tn: (tm, tn)),
        scratch_shapes=[pltpu.VMEM((512, 512), jnp.float32)],
        compiler_params=pltpu.CompilerParams(dimension_semantics=("parallel", "parallel")),
        interpret=interpret,
    )(x, w)
    return y
