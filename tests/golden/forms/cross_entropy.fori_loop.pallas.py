"""cross_entropy for tpu:v6e, blocks tm=128, tv=32768."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def cross_entropy_kernel(logits_ref, labels_ref, loss_ref):
    # tm: grid dimension, blocks of 128; parallel: each tm writes its own elements of loss
    # tv: loop inside the step, blocks of 32768; ordered: carries total, target, m
    # cross_entropy.py:32: for tv in hl.tile(V):
    total, target, m = (
        jnp.zeros((128, 128), jnp.float32),
        jnp.zeros((128, 128), jnp.float32),
        jnp.full((128, 128), -3.4028234663852886e+38, jnp.float32),
    )
    def each_tv(tv, carried):
        total, target, m = carried
        # cross_entropy.py:33: row = logits[tm, tv].to(hl.float32)
        tv_index = tv * 32768 + jax.lax.broadcasted_iota(jnp.int32, (1, 32768), 1)
        tv_mask = tv_index < 128256
        row = jnp.where(
            tv_mask, logits_ref[:, pl.ds(tv * 32768, 32768)].astype(jnp.float32), -jnp.inf
        )
        # cross_entropy.py:34: m_new = hl.maximum(m, row.amax(-1))
        m_new = jnp.maximum(m, jnp.max(row, axis=1, keepdims=True))
        # cross_entropy.py:35: total = total * hl.exp(m - m_new) + hl.exp(row - m_new[:, None]).s...
        total_1 = (
            total * jnp.exp(m - m_new)
            + jnp.sum(jnp.exp(row - jnp.tile(m_new, (1, 256))), axis=1, keepdims=True)
        )
        # cross_entropy.py:36: here = tv.index[None, :] == labels[tm][:, None]
        here = tv_index == labels_ref[...].T
        # cross_entropy.py:37: target = target + hl.where(here, row, 0.0).sum(-1)
        target_1 = target + jnp.sum(jnp.where(here & tv_mask, row, 0.0), axis=1, keepdims=True)
        return total_1, target_1, m_new

    total, target, m = jax.lax.fori_loop(0, 4, each_tv, (total, target, m))
    # cross_entropy.py:39: loss[tm] = hl.log(total) + (m - target)
    loss_ref[...] = (jnp.log(total) + (m - target))[:, :1].T


def cross_entropy(logits: jax.Array, labels: jax.Array, *, interpret: bool = False) -> jax.Array:
    """The loss of every row: logits [M, V], labels [M] integers in 0 .. V - 1; float32 [M]."""
    labels_row = labels.reshape((1, 8192))
    loss_row = pl.pallas_call(
        cross_entropy_kernel,
        out_shape=jax.ShapeDtypeStruct((1, 8192), jnp.float32),
        grid=(64,),
        in_specs=[
            pl.BlockSpec((128, 131072), lambda tm: (tm, 0)),
            pl.BlockSpec((1, 128), lambda tm: (0, tm)),
        ],
        out_specs=pl.BlockSpec((1, 128), lambda tm: (0, tm)),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel",),
            vmem_limit_bytes=116391936,
        ),
        interpret=interpret,
    )(logits, labels_row)
    loss = loss_row.reshape((8192,))
    return loss
