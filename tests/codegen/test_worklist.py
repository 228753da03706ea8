"""loop_type="worklist": XLA builds the table of steps, and the grid prefetches it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged import grouped_gemm
from tests import checks
from tests.aot.written import compiled, needs_libtpu
from tests.frameworks import from_jax
from tests.ragged import Space, every_stratum
from tests.subjects import JAGGED, Subject

WORKLIST = tile.Config(loop_type="worklist")
SPACE = Space(rows=72, groups=5, block=16)
LAYOUTS = every_stratum(SPACE)
SIBLINGS = ("jagged_softmax", "jagged_layer_norm", "moe")  # several loops in a row, or none


def small(subject: Subject) -> tile.Config:
    return tile.Config(subject.blocks, loop_type="worklist")


@pytest.mark.slow
@pytest.mark.parametrize("subject", [s for s in JAGGED if s.name not in SIBLINGS], ids=str)
def test_every_layout(subject: Subject) -> None:
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)

    def call(*arguments):
        return from_jax(subject.kernel, arguments, config=small(subject))

    assert checks.every_layout(subject, call, arrays, LAYOUTS[::2], "float32") == []


@needs_libtpu
@pytest.mark.parametrize("generation", ["v5e", "v6e"])
@pytest.mark.parametrize("name", ["grouped_gemm", "jagged_attention_causal", "jagged_sum"])
def test_it_compiles(name: str, generation: str) -> None:
    subject = next(s for s in JAGGED if s.name == name)
    target = f"tpu:{generation}"
    found = compiled(subject.kernel, *subject.cases[-2], target=target, config=WORKLIST)
    assert found.memory.vmem > 0


def test_one_compiled_kernel_serves_a_batch() -> None:
    """Every member of the batch has offsets of its own."""
    x, w, first = grouped_gemm.make_inputs()
    second = np.array([0, 10, 20, 100, 200], np.int32)
    xs, cuts = np.stack([x, 2 * x]), np.stack([first, second])

    @jax.vmap
    def batch(x: jax.Array, offsets: jax.Array) -> jax.Array:
        return grouped_gemm.grouped_gemm(x, jnp.asarray(w), offsets, config=WORKLIST)

    results = np.asarray(batch(jnp.asarray(xs), jnp.asarray(cuts)))
    for result, rows, offsets in zip(results, xs, cuts, strict=True):
        expected = grouped_gemm.oracle(rows, w, offsets)
        np.testing.assert_allclose(result, expected, atol=1e-4)


@tile.kernel
def sums_of_pages(x, outer, inner):
    """Every range may be empty, and nothing needs a step of its own: the list may be empty, too."""
    y = hl.full([50, 8], 3.0, dtype=hl.float32)
    for a in hl.grid(outer.shape[0] - 1):
        for p in hl.grid(outer[a], outer[a + 1], max_extent=7):
            for tm in hl.tile(inner[p], inner[p + 1]):
                y[tm, :] = x[tm, :] * (a + 1) + p
    return y


@pytest.mark.parametrize("outer", [[0, 2, 2, 7], [0, 0, 0, 0], [1, 3, 5, 6], [7, 7, 7, 7]], ids=str)
def test_ranges_of_ranges(outer: list[int]) -> None:
    x = np.random.default_rng(0).standard_normal((50, 8), np.float32)
    config = tile.Config({"tm": 16}, loop_type="worklist")
    for inner in ([0, 10, 10, 20, 33, 33, 49, 50], [5] * 8, [0, 1, 2, 3, 4, 5, 6, 50]):
        arguments = x, np.array(outer, np.int32), np.array(inner, np.int32)
        wanted = sums_of_pages.reference(*arguments)
        result = sums_of_pages(*arguments, config=config)
        np.testing.assert_allclose(result, wanted, rtol=1e-5, atol=1e-5)


def test_what_has_no_list_is_refused() -> None:
    with pytest.raises(tile.TileError, match="no loop of copied that steps could be made of"):
        copied.source(grouped_gemm.make_inputs()[0], config=WORKLIST)
    rectangle = tile.Config(loop_type="worklist", steps="rectangle")
    with pytest.raises(tile.TileError, match="a work list has live steps only"):
        grouped_gemm.grouped_gemm.source(*grouped_gemm.make_inputs(), config=rectangle)


@tile.kernel
def copied(x):
    y = hl.empty_like(x)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :]
    return y
