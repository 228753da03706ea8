"""cross_entropy for tpu:v6e, blocks tm=256, tv=8192."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def cross_entropy_kernel(logits, labels_row, loss_row, total_ref, target_ref, m_ref):
    # tm: grid dimension, blocks of 256; parallel: each tm writes its own elements of loss
    # tv: grid dimension, blocks of 8192; ordered: carries total, target, m
    def step(logits_ref, labels_ref, loss_ref):
        tv = pl.program_id(1)

        @pl.when(tv == 0)
        def _():
            # cross_entropy.py:29: m = hl.full([tm], LOWEST, dtype=hl.float32)
            m_ref[...] = jnp.full((256, 128), -3.4028234663852886e+38, jnp.float32)
            # cross_entropy.py:30: total = hl.zeros([tm], dtype=hl.float32)
            total_ref[...] = jnp.zeros((256, 128), jnp.float32)
            # cross_entropy.py:31: target = hl.zeros([tm], dtype=hl.float32)
            target_ref[...] = jnp.zeros((256, 128), jnp.float32)

        # whole tiles, of which no lane is masked
        @pl.when(tv * 8192 + 8191 < 128256)
        def _():
            # cross_entropy.py:33: row = logits[tm, tv].to(hl.float32)
            row = logits_ref[...].astype(jnp.float32)
            m = m_ref[...]
            # cross_entropy.py:34: m_new = hl.maximum(m, row.amax(-1))
            m_new = jnp.maximum(m, jnp.max(row, axis=1, keepdims=True))
            # cross_entropy.py:35: total = total * hl.exp(m - m_new) + hl.exp(row - m_new[:, None...
            total_ref[...] = (
                total_ref[...] * jnp.exp(m - m_new)
                + jnp.sum(jnp.exp(row - jnp.tile(m_new, (1, 64))), axis=1, keepdims=True)
            )
            # cross_entropy.py:36: here = tv.index[None, :] == labels[tm][:, None]
            tv_index = tv * 8192 + jax.lax.broadcasted_iota(jnp.int32, (1, 8192), 1)
            here = tv_index == labels_ref[...].T
            # cross_entropy.py:37: target = target + hl.where(here, row, 0.0).sum(-1)
            target_ref[...] += jnp.sum(jnp.where(here, row, 0.0), axis=1, keepdims=True)
            # cross_entropy.py:38: m = m_new
            m_ref[...] = m_new

        # the tiles that a mask cuts
        @pl.when(tv * 8192 + 8191 >= 128256)
        def _():
            # cross_entropy.py:33: row = logits[tm, tv].to(hl.float32)
            tv_index = tv * 8192 + jax.lax.broadcasted_iota(jnp.int32, (1, 8192), 1)
            tv_mask = tv_index < 128256
            row = jnp.where(tv_mask, logits_ref[...].astype(jnp.float32), -jnp.inf)
            m = m_ref[...]
            # cross_entropy.py:34: m_new = hl.maximum(m, row.amax(-1))
            m_new = jnp.maximum(m, jnp.max(row, axis=1, keepdims=True))
            # cross_entropy.py:35: total = total * hl.exp(m - m_new) + hl.exp(row - m_new[:, None...
            total_ref[...] = (
                total_ref[...] * jnp.exp(m - m_new)
                + jnp.sum(jnp.exp(row - jnp.tile(m_new, (1, 64))), axis=1, keepdims=True)
            )
            # cross_entropy.py:36: here = tv.index[None, :] == labels[tm][:, None]
            here = tv_index == labels_ref[...].T
            # cross_entropy.py:37: target = target + hl.where(here, row, 0.0).sum(-1)
            target_ref[...] += jnp.sum(jnp.where(here & tv_mask, row, 0.0), axis=1, keepdims=True)
            # cross_entropy.py:38: m = m_new
            m_ref[...] = m_new

        @pl.when(tv == 15)
        def _():
            # cross_entropy.py:39: loss[tm] = hl.log(total) + (m - target)
            loss_ref[...] = (jnp.log(total_ref[...]) + (m_ref[...] - target_ref[...]))[:, :1].T

    pltpu.emit_pipeline(
        step,
        grid=(32, 16),
        in_specs=[
            pl.BlockSpec((256, 8192), lambda tm, tv: (tm, tv)),
            pl.BlockSpec((1, 256), lambda tm, tv: (0, tm)),
        ],
        out_specs=[pl.BlockSpec((1, 256), lambda tm, tv: (0, tm))],
        dimension_semantics=(pltpu.PARALLEL, pltpu.ARBITRARY),
    )(logits, labels_row, loss_row)


def cross_entropy(logits: jax.Array, labels: jax.Array, *, interpret: bool = False) -> jax.Array:
    """The loss of every row: logits [M, V], labels [M] integers in 0 .. V - 1; float32 [M]."""
    labels_row = labels.reshape((1, 8192))
    if interpret:  # whole blocks for the interpreter; what is added is never used
        logits = jnp.pad(logits, ((0, 0), (0, 2816)), constant_values=jnp.nan)
    loss_row = pl.pallas_call(
        cross_entropy_kernel,
        out_shape=jax.ShapeDtypeStruct((1, 8192), jnp.float32),
        in_specs=[pl.BlockSpec(memory_space=pl.ANY), pl.BlockSpec(memory_space=pl.ANY)],
        out_specs=pl.BlockSpec(memory_space=pl.ANY),
        scratch_shapes=[
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
            pltpu.VMEM((256, 128), jnp.float32),
        ],
        interpret=interpret,
    )(logits, labels_row)
    loss = loss_row.reshape((8192,))
    return loss
