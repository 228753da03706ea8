"""transposed_grouped_gemm for tpu:v6e, blocks tk=512, tm=512, tn=512."""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu


def expand(first: jax.Array, count: jax.Array, rows: int) -> tuple[jax.Array, ...]:
    """For each row its entry and its tile; entry i has count[i] rows.  And how many rows."""
    first, count = jnp.broadcast_arrays(first, count)
    ends = jnp.cumsum(count)
    row = jnp.arange(rows)
    entry = jnp.searchsorted(ends, row, side="right").astype(jnp.int32)
    entry = jnp.minimum(entry, len(count) - 1)
    return entry, first[entry] + row - (ends - count)[entry], jnp.minimum(ends[-1], rows)


def transposed_grouped_gemm_steps(offsets: jax.Array) -> tuple[jax.Array, ...]:
    """The work list: rows (g, tm), and how many there are."""
    g = jnp.arange(64, dtype=jnp.int32)
    steps = jnp.int32(64)
    # every range of tm, and the rows that its tiles are
    tm_begin = jnp.maximum(offsets[g], 0)
    tm_end = jnp.minimum(offsets[g + 1], 16384)
    tm_first = jax.lax.div(tm_begin, 512)
    tm_live = tm_end > tm_begin
    tm_first = jnp.minimum(tm_first, 31)
    tm_entry, tm, steps = expand(
        tm_first,
        jnp.maximum(
            jnp.where(tm_live, jnp.clip(jax.lax.div(tm_end + 511, 512) - tm_first, 0, 32), 0), 1
        ),
        160,
    )
    g = g[tm_entry]
    return g, tm, steps.reshape((1,))


def transposed_grouped_gemm_kernel(offsets, g_of, tm_of, steps_of, x_ref, dy_ref, dw_ref, acc_ref):
    # tk: grid dimension, blocks of 512; parallel: each tk writes its own slices of dw
    # tn: grid dimension, blocks of 512; parallel: each tn writes its own slices of dw
    # g: column of the step table; parallel: each g writes its own rows of dw
    # tm: column of the step table, blocks of 512; ordered: carries acc, a sum
    n = pl.program_id(2)
    steps = steps_of[0]
    g, tm = g_of[n], tm_of[n]
    before = jnp.maximum(n - 1, 0)
    after = jnp.minimum(n + 1, steps - 1)

    @pl.when((n == 0) | (g_of[before] != g))
    def _():
        # transposed_grouped_gemm.py:43: acc = hl.zeros([tk, tn], dtype=hl.float32)
        acc_ref[...] = jnp.zeros((512, 512), jnp.float32)

    # transposed_grouped_gemm.py:45: acc = hl.dot(x[tm, tk].T, dy[tm, tn], acc=acc)
    tm_index = tm * 512 + jax.lax.broadcasted_iota(jnp.int32, (512, 1), 0)
    tm_mask = (tm_index >= offsets[g]) & (tm_index < offsets[g + 1])
    acc_ref[...] += jax.lax.dot_general(
        jnp.where(tm_mask, x_ref[...], 0.0),
        jnp.where(tm_mask, dy_ref[...], 0.0),
        (((0,), (0,)), ((), ())),
        preferred_element_type=jnp.float32,
    )

    @pl.when((n == steps - 1) | (g_of[after] != g))
    def _():
        # transposed_grouped_gemm.py:46: dw[g, tk, tn] = acc.to(dw.dtype)
        dw_ref[...] = acc_ref[...].astype(jnp.bfloat16)


def transposed_grouped_gemm(
    x: jax.Array,
    dy: jax.Array,
    offsets: jax.Array,
    *,
    interpret: bool = False,
) -> jax.Array:
    """dw[g] = x[rows of g].T @ dy[rows of g]."""
    g_of, tm_of, steps_of = transposed_grouped_gemm_steps(offsets)
    dw = pl.pallas_call(
        transposed_grouped_gemm_kernel,
        out_shape=jax.ShapeDtypeStruct((64, 4096, 2048), jnp.bfloat16),
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=4,
            grid=(8, 4, steps_of[0]),
            in_specs=[
                pl.BlockSpec(
                    (512, 512), lambda tk, tn, n, offsets, g_of, tm_of, steps_of: (tm_of[n], tk)
                ),
                pl.BlockSpec(
                    (512, 512), lambda tk, tn, n, offsets, g_of, tm_of, steps_of: (tm_of[n], tn)
                ),
            ],
            out_specs=pl.BlockSpec(
                (None, 512, 512),
                lambda tk, tn, n, offsets, g_of, tm_of, steps_of: (g_of[n], tk, tn),
            ),
            scratch_shapes=[pltpu.VMEM((512, 512), jnp.float32)],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("parallel", "parallel", "arbitrary"),
        ),
        interpret=interpret,
    )(offsets, g_of, tm_of, steps_of, x, dy)
    return dw
