"""Stores to picked rows of outputs that are too large for vector memory: they stay in HBM.

The meaning is that of NumPy: rows are stored in order, and those outside of the result nowhere.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.tiers import share

ROWS, WIDTH = 12001, 384  # an output that is far too large for a block
NEAR = 30  # indices are drawn below this: rows repeat, and lie in one register tile
LANES = 61
FORMS = (None, "grid", "outer_pipeline", "fori_loop")
DTYPES = ("float32", "bfloat16", "int8")

races = pytest.importorskip(
    "jax._src.pallas.mosaic.interpret.interpret_pallas_call",
    reason="this JAX keeps the races that it found somewhere else",
)


@tile.kernel
def stored(x, index):
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[index[tm], :] = x[tm, :]
    return y


@tile.kernel
def stored_blocks(x, index):
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[index[tm], tn] = x[tm, tn]
    return y


@tile.kernel
def stored_matrices(x, index):
    y = hl.full([ROWS, 3, x.shape[1] // 3], 7, dtype=x.dtype)
    rows = x.view(x.shape[0], 3, x.shape[1] // 3)
    for tm in hl.tile(x.shape[0]):
        y[index[tm], :, :] = rows[tm, :, :]
    return y


@tile.kernel
def stored_and_masked(x, index):
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        hl.store(y, [index[tm], slice(None)], x[tm, :], mask=(tm.index % 3 > 0)[:, None])
    return y


@tile.kernel
def added(x, index):
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        hl.atomic_add(y, [index[tm], slice(None)], x[tm, :])
    return y


@tile.kernel
def added_matrices(x, index):
    y = hl.full([ROWS, 3, x.shape[1] // 3], 7, dtype=x.dtype)
    rows = x.view(x.shape[0], 3, x.shape[1] // 3)
    for tm in hl.tile(x.shape[0]):
        hl.atomic_add(y, [index[tm], slice(None), slice(None)], rows[tm, :, :])
    return y


@tile.kernel
def raised(x, index):
    y = hl.full([ROWS, x.shape[1]], 1, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        hl.atomic_max(y, [index[tm], slice(None)], x[tm, :])
    return y


@tile.kernel
def read_and_stored(x, index):
    """All rows of a tile are read before the first one is stored."""
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for tm in hl.tile(x.shape[0], block_size=16):
        y[index[tm], :] = y[index[tm], :] + x[tm, :]
    return y


@tile.kernel
def of_groups(x, index, offsets):
    """Rows of ranges only: those between the ranges go nowhere."""
    y = hl.zeros([ROWS, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            hl.atomic_add(y, [index[tm], slice(None)], x[tm, :] * (g + 1))
    return y


@tile.kernel
def of_layers(x, layer, index):
    """The layer is read from memory, too."""
    y = hl.zeros([4, ROWS, x.shape[1]], dtype=x.dtype)
    for m in hl.grid(layer.shape[0]):
        for tm in hl.tile(x.shape[0]):
            y[layer[m], index[tm], :] = x[tm, :] * (m + 1)
    return y


@tile.kernel
def into(y, x, index):
    for tm in hl.tile(x.shape[0]):
        y[index[tm], :] = x[tm, :]


@tile.kernel
def twice(x, index):
    """The second nest adds to what the first one stored."""
    y = hl.empty([ROWS, x.shape[1]], dtype=x.dtype)
    for ty in hl.tile(ROWS):
        y[ty, :] = hl.full([ty, x.shape[1]], 3, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        hl.atomic_add(y, [index[tm], slice(None)], x[tm, :])
    return y


@tile.kernel
def one_row(x, index):
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        y[index[m], :] = x[m, :]
    return y


@tile.kernel
def odd_and_even_rows(x, index):
    y = hl.full([ROWS, x.shape[1]], 7, dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        if index[m] % 2 == 0:
            y[index[m], :] += x[m, :]
        else:
            y[index[m], :] = x[m, :]
    return y


@tile.kernel
def one_row_added(x, index):
    """A position among others, and tiles of the rows."""
    y = hl.full([ROWS, 2, x.shape[1]], 7, dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        for t in hl.tile(x.shape[1], block_size=128):
            hl.atomic_add(y, [index[m], 1, t], x[m, t])
    return y


def drawn(seed: int, lanes: int = LANES) -> tuple[np.ndarray, np.ndarray]:
    """Small integers, whose sums are exact in every dtype, and rows with repeats."""
    rng = np.random.default_rng(seed)
    x = rng.integers(-2, 3, (lanes, WIDTH)).astype(np.float32)
    index = rng.integers(0, NEAR, lanes).astype(np.int32)
    index[5], index[40] = ROWS - 1, ROWS - 2
    return x, index


def by_hand(name: str, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows one by one, in NumPy."""
    y = np.full((ROWS, WIDTH), {"raised": 1.0, "twice": 3.0}.get(name, 7.0))
    for lane, (row, place) in enumerate(zip(x, index, strict=True)):
        if not 0 <= place < ROWS or (name == "stored_and_masked" and lane % 3 == 0):
            continue
        if name.startswith(("added", "twice")):
            y[place] += row
        else:
            y[place] = np.maximum(y[place], row) if name == "raised" else row
    return y


def same(result: object, wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(np.asarray(result, np.float64).reshape(wanted.shape), wanted)


ALL = (
    stored, stored_blocks, stored_matrices, stored_and_masked, added, added_matrices, raised, twice,
)  # fmt: skip
each = pytest.mark.parametrize("kernel", ALL, ids=lambda k: k.__name__)


@each
@pytest.mark.parametrize("dtype", share(DTYPES, 3))
def test_rows(kernel: tile.Kernel, dtype: str) -> None:
    x, index = drawn(1)
    index[[0, 7, 12, 29]] = -1, ROWS, 2**31 - 1, -(2**31)
    blocks = {"tm": 32, **({"tn": 128} if kernel is stored_blocks else {})}
    blocks |= {"ty": 4096} if kernel is twice else {}
    config = tile.Config(blocks)
    result = jax.jit(lambda x, index: kernel(x, index, config=config))(jnp.asarray(x, dtype), index)
    same(result, by_hand(kernel.__name__, x, index))


@pytest.mark.parametrize("form", share(FORMS, 4))
@pytest.mark.parametrize("kernel", [stored, stored_blocks, added], ids=lambda k: k.__name__)
def test_forms(kernel: tile.Kernel, form: str | None) -> None:
    x, index = drawn(2)
    blocks = {"tm": 32, "tn": 128} if kernel is stored_blocks else {"tm": 32}
    config = tile.Config(blocks, loop_type=form)
    same(
        kernel(jnp.asarray(x, "bfloat16"), index, config=config),
        by_hand(str(kernel.__name__), x, index),
    )


@pytest.mark.parametrize("lanes", [1, 2, 16, 17, 40])
def test_tiles_of_any_length(lanes: int) -> None:
    x, index = drawn(3, 61)
    x, index = x[:lanes], index[:lanes] % 3
    for kernel in (stored, added):
        for dtype in ("float32", "bfloat16"):
            same(kernel(jnp.asarray(x, dtype), index), by_hand(kernel.__name__, x, index))


def test_all_rows_of_a_tile_go_to_one_place() -> None:
    x, index = drawn(4)
    for kernel in (stored, added, added_matrices):
        for dtype in ("float32", "bfloat16"):
            result = kernel(jnp.asarray(x, dtype), index * 0 + 17)
            same(result, by_hand(kernel.__name__, x, index * 0 + 17))


@pytest.mark.parametrize("form", [{}, {"steps": "rectangle"}, {"loop_type": "fori_loop"}], ids=str)
def test_rows_of_ranges(form: dict[str, str]) -> None:
    x, index = drawn(5)
    config = tile.Config({"tm": 16}, **form)
    for offsets in ([0, 7, 7, 20, 61], [0, 0, 0, 0, 0], [3, 9, 9, 9, 25]):
        wanted = np.zeros((ROWS, WIDTH))
        for g in range(4):
            rows = slice(offsets[g], offsets[g + 1])
            np.add.at(wanted, index[rows], x[rows] * (g + 1))
        same(of_groups(x, index, np.array(offsets, np.int32), config=config), wanted)


def test_a_position_before_the_picked_dimension() -> None:
    x, index = drawn(6)
    layer = np.array([2, 0, 2, -1, 4], np.int32)
    wanted = np.zeros((4, ROWS, WIDTH))
    for m, place in enumerate(layer):
        for row, to in zip(x, index, strict=True):
            if 0 <= place < 4:
                wanted[place, to] = row * (m + 1)
    run = jax.jit(lambda *a: of_layers(*a, config=tile.Config({"tm": 32})))
    same(run(x, layer, index), wanted)


def test_other_rows_of_an_argument_stay() -> None:
    x, index = drawn(7)
    y = np.arange(ROWS * WIDTH, dtype=np.float32).reshape(ROWS, WIDTH)
    wanted = y.copy()
    for row, place in zip(x, index, strict=True):
        wanted[place] = row
    into(y, x, index, config=tile.Config({"tm": 32}))
    same(y, wanted)


def test_rows_that_are_read_first() -> None:
    x, index = drawn(8)
    for dtype in ("float32", "bfloat16"):
        wanted = np.full((ROWS, WIDTH), 7.0)
        for start in range(0, LANES, 16):
            rows = slice(start, start + 16)
            wanted[index[rows]] = wanted[index[rows]] + x[rows]  # of several, the last one stays
        same(read_and_stored(jnp.asarray(x, dtype), index), wanted)


@pytest.mark.parametrize(
    ("dtype", "form"),
    [
        ("float32", None),
        pytest.param("bfloat16", "fori_loop", marks=pytest.mark.slow),
        *(
            pytest.param(dtype, form, marks=pytest.mark.thorough)
            for dtype, form in (
                ("float32", "fori_loop"),
                ("float32", "outer_pipeline"),
                ("bfloat16", None),
                ("bfloat16", "outer_pipeline"),
            )
        ),
    ],
)
def test_single_positions(dtype: str, form: str | None) -> None:
    x, index = drawn(11)
    index[[0, 7, 12, 29]] = -1, ROWS, 2**31 - 1, -(2**31)
    for kernel in (one_row, odd_and_even_rows, one_row_added):
        shape = (ROWS, 2, WIDTH) if kernel is one_row_added else (ROWS, WIDTH)
        wanted = np.full(shape, 7.0)
        for row, place in zip(x, index, strict=True):
            if not 0 <= place < ROWS:
                continue
            if kernel is one_row:
                wanted[place] = row
            elif kernel is one_row_added:
                wanted[place, 1] += row
            else:
                wanted[place] = row + (wanted[place] if place % 2 == 0 else 0)
        config = tile.Config(loop_type=form)
        run = jax.jit(lambda x, index, k=kernel, c=config: k(x, index, config=c))
        same(run(jnp.asarray(x, dtype), index), wanted)


def test_columns_cannot_be_masked() -> None:
    @tile.kernel
    def columns(x, index):
        y = hl.zeros([ROWS, x.shape[1]], dtype=x.dtype)
        for tm, tn in hl.tile(x.shape):
            mask = (tn.index < 5)[None, :]
            hl.store(y, [index[tm], tn], x[tm, tn], mask=mask)
        return y

    with pytest.raises(tile.PlanError, match="which rows are stored, and not which columns"):
        columns(*drawn(12))


def test_outputs_stay_in_hbm() -> None:
    index = tile.spec((2048,), "int32")
    for dtype, rows in (("float32", 1), ("bfloat16", 8), ("int8", 32)):
        text = added.source(tile.spec((2048, WIDTH), dtype), index, target="tpu:v5e")
        assert f"pltpu.VMEM((16, {rows}, {WIDTH})" in text
        assert "out_specs=pl.BlockSpec(memory_space=pl.ANY)" in text
        assert "input_output_aliases={2: 0}" in text


def test_names_of_the_author() -> None:
    @tile.kernel
    def awkward(lane, row, stored, place_of):
        first = hl.zeros([ROWS, lane.shape[1]], dtype=lane.dtype)
        for stop in hl.tile(lane.shape[0]):
            slot = lane[stop, :] + row[stop, :]
            hl.atomic_add(first, [stored[stop] + place_of[stop], slice(None)], slot)
        return first

    x, index = drawn(9)
    wanted = np.zeros((ROWS, WIDTH))
    np.add.at(wanted, index, x * 2)
    same(awkward(x, x, index, index * 0), wanted)


@pytest.mark.slow
@pytest.mark.parametrize(
    "kernel", [stored, stored_matrices, added, raised], ids=lambda k: k.__name__
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_copies_do_not_race(kernel: tile.Kernel, dtype: str) -> None:
    strict = pltpu.InterpretParams(detect_races=True, dma_execution_mode="on_wait")
    run = tile.kernel(kernel.__wrapped__, interpret=strict, checks=False)
    x, index = drawn(10)
    index[[0, 7]] = -1, ROWS
    try:
        result = run(jnp.asarray(x, dtype), index, config=tile.Config({"tm": 32}))
        same(result, by_hand(kernel.__name__, x, index))
        assert not races.races.races_found
    finally:
        pltpu.reset_tpu_interpret_mode_state()


@tile.kernel
def cached(rows, pages, slots):
    """Rows in place, each in the page and at the place that its slot says; -1: nowhere."""
    B = pages.shape[1]
    for t in hl.grid(rows.shape[0]):
        slot = slots[t]
        if slot < 0:
            continue
        pages[slot // B, slot % B, :] = rows[t, :]


@tile.kernel
def cached_heads(rows, pages, slots):
    B = pages.shape[1]
    for t in hl.grid(rows.shape[0]):
        if slots[t] >= 0:
            pages[slots[t] // B, slots[t] % B, :, :] = rows[t, :, :]


def kept_rows(pages, rows, slots):
    want = pages.reshape(-1, *rows.shape[1:]).copy()
    for row, slot in zip(rows, slots, strict=True):
        if slot >= 0:
            want[slot] = row
    return want.reshape(pages.shape)


@pytest.mark.parametrize("block", [16, 32])
@pytest.mark.parametrize("kernel, inner", [(cached, (384,)), (cached_heads, (3, 128))])
def test_rows_of_pages(kernel, inner, block):
    """A key cache of serving: two positions that memory says, of pages that no memory holds."""
    rng = np.random.default_rng(block)
    pages = rng.standard_normal((ROWS // block, block, *inner)).astype(np.float32)
    rows = rng.standard_normal((LANES, *inner)).astype(np.float32)
    slots = rng.integers(-1, NEAR, LANES).astype(np.int32)
    slots[:2] = len(pages) * block - 1, len(pages) * block // 2
    assert "make_async_copy" in str(kernel.source(rows, pages, slots, target="tpu:v5e"))
    for target in ("cpu", "tpu:v5e"):
        given = pages.copy()
        tile.kernel(kernel.__wrapped__)(rows, given, slots, target=target)
        np.testing.assert_array_equal(given, kept_rows(pages, rows, slots))


def test_rows_of_short_pages_are_refused_with_what_to_pass():
    pages, rows = np.zeros((ROWS // 8, 8, WIDTH), np.float32), np.zeros((LANES, WIDTH), np.float32)
    with pytest.raises(tile.PlanError, match="two positions of pages are read") as caught:
        cached.lower(rows, pages, np.zeros(LANES, np.int32), target="tpu:v5e")
    assert "pages.reshape(P * B, ...)" in caught.value.hint
