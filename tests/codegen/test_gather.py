"""Gathers by index tensors: values from small tables in vector memory and large ones in HBM."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu

SMALL, LARGE = 30, 4099  # rows of a block in vector memory, and of an array that stays in HBM
WIDTH = 640  # elements of a row
FORMS = (None, "outer_pipeline", "fori_loop")
PLACES = ("ahead", "inside")
DTYPES = ("float32", "bfloat16", "int8")


@tile.kernel
def rows_of(x, index):
    y = hl.zeros([index.shape[0], x.shape[1]], dtype=x.dtype)
    for tm in hl.tile(index.shape[0]):
        y[tm, :] = x[index[tm], :]
    return y


@tile.kernel
def combined(x, slot):
    """Tiles of rows, picked by a matrix of flat slots."""
    y = hl.zeros([slot.shape[0], x.shape[1]], dtype=x.dtype)
    for tm, tn in hl.tile([slot.shape[0], x.shape[1]]):
        total = hl.zeros([tm, tn], dtype=hl.float32)
        for k in hl.static_range(slot.shape[1]):
            total = total + x[slot[tm, k] // 2, tn].to(hl.float32)
        y[tm, tn] = total.to(x.dtype)
    return y


@tile.kernel
def doubled(x, slot):
    """Twice the rows that one column of a matrix picks."""
    y = hl.zeros([slot.shape[0], x.shape[1]], dtype=x.dtype)
    for tm, tn in hl.tile([slot.shape[0], x.shape[1]]):
        y[tm, tn] = x[slot[tm, 1], tn] * 2
    return y


@tile.kernel
def grouped(x, index, offsets, w):
    """Rows of a group, wherever they are, times the group's weights."""
    y = hl.zeros([index.shape[0], w.shape[2]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            for tn in hl.tile(w.shape[2]):
                total = hl.zeros([tm, tn], dtype=hl.float32)
                for tk in hl.tile(x.shape[1]):
                    total = total + hl.dot(x[index[tm], tk], w[g, tk, tn])
                y[tm, tn] = total.to(x.dtype)
    return y


@tile.kernel
def matrices_of(x, index):
    y = hl.zeros([index.shape[0], *x.shape[1:]], dtype=x.dtype)
    for tm in hl.tile(index.shape[0]):
        y[tm, :, :] = x[index[tm], :, :]
    return y


@tile.kernel
def of_a_layer(x, index):
    """Rows of one matrix of several."""
    y = hl.zeros([x.shape[0], index.shape[0], x.shape[2]], dtype=x.dtype)
    for h in hl.grid(x.shape[0]):
        for tm in hl.tile(index.shape[0]):
            y[h, tm, :] = x[h, index[tm], :]
    return y


@tile.kernel
def numbers_of(x, index):
    """Numbers of a vector; the index is a value, too."""
    y = hl.zeros([index.shape[0]], dtype=x.dtype)
    for tm in hl.tile(index.shape[0]):
        y[tm] = x[index[tm]] * 2 + index[tm].to(x.dtype)
    return y


@tile.kernel
def moved(x, index):
    """The index array is read at another place than the output is written."""
    y = hl.zeros([x.shape[0], x.shape[1]], dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[(index[tm.index + 7] + 1) % x.shape[0], :]
    return y


@tile.kernel
def masked(x, index):
    y = hl.zeros([index.shape[0], x.shape[1]], dtype=x.dtype)
    for tm in hl.tile(index.shape[0]):
        mask = (tm.index > 5)[:, None]
        y[tm, :] = hl.load(x, [index[tm], slice(None)], mask=mask, other=3)
    return y


@tile.kernel
def parts_of(x, index):
    """Columns of the rows: those of whole register tiles, and others."""
    y = hl.zeros([index.shape[0], 128], dtype=x.dtype)
    z = hl.zeros([index.shape[0], 200], dtype=x.dtype)
    for tm in hl.tile(index.shape[0]):
        y[tm, :] = x[index[tm], 128:256]
        z[tm, :] = x[index[tm], 150:350]
    return y, z


@tile.kernel
def columns_of(x, index, place):
    """One position of every row: a constant one, one that is read, and one beside a mask."""
    y = hl.zeros([3, index.shape[0]], dtype=x.dtype)
    for tm in hl.tile(index.shape[0]):
        y[0, tm] = x[index[tm], 300]
        y[1, tm] = x[index[tm], place[0]]
        y[2, tm] = hl.load(x, [index[tm], 7], mask=tm.index > 5, other=3)
    return y


@tile.kernel
def nested(x, first, second):
    """The rows that the numbers of an array name, which other numbers name."""
    y = hl.zeros([first.shape[0], x.shape[1]], dtype=x.dtype)
    for m in hl.grid(first.shape[0]):
        y[m, :] = x[second[first[m]], :] + first[m].to(x.dtype)
    return y


@tile.kernel
def by_matrix(x, slot, order):
    """Positions in a matrix of indices, in all their spellings."""
    y = hl.zeros([slot.shape[0], x.shape[1]], dtype=x.dtype)
    z = hl.zeros([slot.shape[0], x.shape[1]], dtype=x.dtype)
    for tm in hl.tile(slot.shape[0]):
        y[tm, :] = x[slot[tm, 1], :] + x[slot[order[tm], 2], :]
    for m in hl.grid(slot.shape[0]):
        z[m, :] = x[slot[m, 0], :] + x[slot[order[m], 2], :]
    return y, z


def table(rows: int, dtype: str, seed: int = 0, columns: int = WIDTH) -> jax.Array:
    """Small integers: exact in every dtype, and so are their sums."""
    return jnp.asarray(np.random.default_rng(seed).integers(-4, 5, (rows, columns)), dtype)


def picks(rows: int, *shape: int, seed: int = 1) -> np.ndarray:
    """Rows with repeats, the first and the last one among them."""
    index = np.random.default_rng(seed).integers(0, rows, shape).astype(np.int32)
    index.flat[0], index.flat[1] = rows - 1, 0
    return index


def same(result: object, wanted: object) -> None:
    np.testing.assert_array_equal(np.asarray(result, np.float64), np.asarray(wanted, np.float64))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_rows(rows: int, dtype: str, form: str | None) -> None:
    x, index = table(rows, dtype), picks(rows, 61)
    config = tile.Config({"tm": 32}, loop_type=form)
    same(rows_of(x, index, config=config), np.asarray(x)[index])


@pytest.mark.parametrize("gathers", PLACES)
@pytest.mark.parametrize("dtype", DTYPES[:2])
def test_rows_are_put_together_where_the_config_says(dtype: str, gathers: str) -> None:
    """Positions that are no row pick the nearest one in either place."""
    x, slot = table(LARGE, dtype), picks(LARGE, 61, 3)
    slot[7, 1], slot[8, 1] = LARGE + 5, -3
    config = tile.Config({"tm": 32, "tn": 128}, gathers=gathers)
    clipped = slot.clip(0, LARGE - 1)
    unchecked = tile.kernel(doubled.__wrapped__, checks=False)
    found = unchecked(x, slot, config=config)
    same(found, np.asarray(x, np.float32)[clipped[:, 1]] * 2)
    index, w = picks(LARGE, 61), table(3 * WIDTH, dtype, 2, 128).reshape(3, WIDTH, 128)
    offsets, wanted = np.array([5, 20, 20, 50], np.int32), np.zeros((61, 128), np.float32)
    poisoned = x.at[index[3]].set(np.nan) if index[3] not in index[5:] else x
    for g in range(3):
        group = slice(offsets[g], offsets[g + 1])
        wanted[group] = np.asarray(x, np.float32)[index[group]] @ np.asarray(w[g], np.float32)
    found = grouped(poisoned, index, offsets, w, config=tile.Config({"tm": 16}, gathers=gathers))
    same(found, jnp.asarray(wanted, dtype))


def test_nothing_is_picked_ahead_where_no_index_array_is() -> None:
    index = tile.spec((9,), "int32")
    with pytest.raises(tile.PlanError) as caught:
        nested.source(
            tile.spec((LARGE, WIDTH), "float32"), index, index, config=tile.Config(gathers="ahead")
        )
    said, _, hint = str(caught.value).partition("\n")
    assert said == (
        "gathers='ahead', but nested picks no rows by tiles of an index array, or it changes what "
        "it picks them from or by"
    )
    assert "leave gathers out" in hint


@pytest.mark.parametrize("dtype", DTYPES)
def test_large_tables_stay_in_hbm(dtype: str) -> None:
    index = tile.spec((61,), "int32")
    for rows, far in ((SMALL, False), (LARGE, True)):
        text = rows_of.source(tile.spec((rows, WIDTH), dtype), index, target="tpu:v5e")
        assert ("make_async_copy" in text) == ("pl.ANY" in text) == far


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_tiles_of_rows_by_a_matrix(rows: int, dtype: str, form: str | None) -> None:
    x, slot = table(rows, dtype), picks(rows, 61, 3)
    config = tile.Config({"tm": 32, "tn": 128}, loop_type=form)
    same(combined(x, slot * 2 + 1, config=config), np.asarray(x, np.float32)[slot].sum(1))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_rows_of_groups(rows: int, form: str | None) -> None:
    x, index = table(rows, "float32"), picks(rows, 61)
    w = table(3 * WIDTH, "float32", 2, 128).reshape(3, WIDTH, 128)
    config = tile.Config({"tm": 16, "tn": 128, "tk": 128}, loop_type=form)
    for offsets in ([0, 20, 20, 50], [0, 0, 0, 0], [0, 61, 61, 61]):
        wanted = np.zeros((61, 128))
        for g in range(3):
            group = slice(offsets[g], offsets[g + 1])
            wanted[group] = np.asarray(x)[index[group]] @ np.asarray(w[g])
        same(grouped(x, index, np.array(offsets, np.int32), w, config=config), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_matrices(rows: int, dtype: str) -> None:
    x, index = table(rows, dtype).reshape(rows, 5, 128), picks(rows, 61)
    same(matrices_of(x, index, config=tile.Config({"tm": 32})), np.asarray(x)[index])


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_a_matrix_of_several(rows: int, dtype: str) -> None:
    x, index = table(3 * rows, dtype).reshape(3, rows, WIDTH), picks(rows, 61)
    same(of_a_layer(x, index, config=tile.Config({"tm": 32})), np.asarray(x)[:, index])


def test_numbers() -> None:
    x, index = np.asarray(table(1, "float32"))[0], picks(WIDTH, 61)
    same(numbers_of(x, index, config=tile.Config({"tm": 32})), x[index] * 2 + index)


@pytest.mark.parametrize("rows", [90, LARGE])
def test_an_index_that_is_computed(rows: int) -> None:
    x, index = table(rows, "float32"), picks(rows, rows + 7)
    wanted = np.asarray(x)[(index[7:] + 1) % rows]
    same(moved(x, index, config=tile.Config({"tm": 32})), wanted)


@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_masked_rows(rows: int) -> None:
    x, index = table(rows, "float32"), picks(rows, 61)
    wanted = np.asarray(x)[index]
    wanted[:6] = 3
    same(masked(x, index, config=tile.Config({"tm": 32})), wanted)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_rows_outside_of_the_table(rows: int, dtype: str) -> None:
    """Without checks the nearest row is read, never anything outside."""
    x, index = table(rows, dtype), picks(rows, 61)
    index[3], index[40], index[60] = -1, rows, 2**31 - 1
    result = jax.jit(lambda x, index: rows_of(x, index))(x, index)
    same(result, np.asarray(x)[np.clip(index, 0, rows - 1)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_parts_of_rows(rows: int, dtype: str) -> None:
    x, index = table(rows, dtype), picks(rows, 61)
    y, z = parts_of(x, index, config=tile.Config({"tm": 32}))
    same(y, np.asarray(x)[index, 128:256])
    same(z, np.asarray(x)[index, 150:350])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_one_position_of_a_row(rows: int, dtype: str) -> None:
    x, index = table(rows, dtype), picks(rows, 61)
    if dtype != "int8":  # what lies beside the position does not matter
        x = x.at[:, 301:].set(jnp.nan).at[:, 12].set(3)
    wanted = np.stack([np.asarray(x)[index, c] for c in (300, 12, 7)])
    wanted[2, :6] = 3
    run = jax.jit(lambda *a: columns_of(*a, config=tile.Config({"tm": 32})))
    same(run(x, index, np.array([12], np.int32)), wanted)
    wanted[1] = np.asarray(x)[index, 0]
    same(run(x, index, np.array([-5], np.int32)), wanted)


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_tables_that_are_worth_a_copy(dtype: str) -> None:
    """A row of 32 bits moves alone; of a narrow type, with all rows of its register tile."""
    x, index = table(9001, dtype, columns=256), picks(9001, 9000)
    inside = tile.Config(gathers="inside")
    same(rows_of(x, index, config=inside), np.asarray(x)[index])
    text = rows_of.source(x, index, target="tpu:v5e", config=inside)
    wide = {"bfloat16": "float32", "int8": "int32"}[dtype]
    assert f"x_wide = x.astype(jnp.{wide})" in text and "x_wide.at[pl.ds(row, 1), :]" in text
    assert "x_wide" not in rows_of.source(x, index[:100], target="tpu:v5e", config=inside)


def test_nested_positions_are_never_outside() -> None:
    x, second = table(SMALL, "float32"), picks(SMALL, 9)
    first = np.array([3, -1, 9, 2**31 - 1, -(2**31), 0, 8], np.int32)
    second[[0, 8]] = -7, 2**31 - 1
    rows = np.clip(second[np.clip(first, 0, 8)], 0, SMALL - 1)
    wanted = np.asarray(x)[rows] + first[:, None].astype(np.float32)
    same(jax.jit(lambda *a: nested(*a))(x, first, second), wanted)
    text = nested.source(x, first, second, target="tpu:v5e")
    assert "second[jnp.clip(first[m], 0, 8)]" in text


@pytest.mark.parametrize("rows", [10, 400])
def test_matrices_of_indices(rows: int) -> None:
    """Large ones are made flat, because scalar memory fills rows up to 128 numbers."""
    x, slot, order = table(SMALL, "float32"), picks(SMALL, rows, 3), picks(rows, rows)
    order[5], order[7] = -3, rows
    near = np.clip(order, 0, rows - 1)
    y, z = jax.jit(lambda *a: by_matrix(*a))(x, slot, order)
    same(y, np.asarray(x)[slot[:, 1]] + np.asarray(x)[slot[near, 2]])
    same(z, np.asarray(x)[slot[:, 0]] + np.asarray(x)[slot[near, 2]])
    text = by_matrix.source(x, slot, order, target="tpu:v5e")
    assert (f"slot_flat = slot.reshape(({3 * rows},))" in text) == (rows == 400)


def test_rows_of_a_later_dimension() -> None:
    """Columns are picked where vector memory holds the array, and by XLA where it does not."""

    @tile.kernel
    def moved_columns(x, index):
        y = hl.zeros([x.shape[0], index.shape[0]], dtype=x.dtype)
        for tm, tn in hl.tile([x.shape[0], index.shape[0]]):
            y[tm, tn] = x[tm, index[tn]]
        return y

    x, index = table(SMALL, "float32"), picks(WIDTH, 61)
    same(moved_columns(x, index), np.asarray(x)[:, index])
    large, inside = tile.spec((300, 100_000), "float32"), tile.Config(gathers="inside")
    assert "jnp.take" in moved_columns.source(large, index, target="tpu:v5e")
    with pytest.raises(tile.PlanError, match="picked along one dimension"):
        moved_columns.source(large, index, target="tpu:v5e", config=inside)
    asked = tile.Config(gathers="ahead")
    assert "jnp.take" in moved_columns.source(x, index, target="tpu:v5e", config=asked)


@tile.kernel
def highest(v):
    """y[2 i] is raised to v[i]: the same numbers are picked and stored."""
    y = hl.zeros([2 * v.shape[0]], dtype=hl.float32)
    for t in hl.tile(v.shape[0]):
        y[2 * t.index] = hl.maximum(y[2 * t.index], v[t])
    return y


@tile.kernel
def raised(y, v):
    for t in hl.tile(v.shape[0]):
        y[2 * t.index] = hl.maximum(y[2 * t.index], v[t])


def test_numbers_that_are_picked_and_stored() -> None:
    """Scalar memory holds what nothing changes; what is stored to are rows of one number."""
    v = np.arange(5, dtype=np.float32) - 2
    found = np.asarray(highest(v))
    np.testing.assert_array_equal(found[::2], np.maximum(v, 0))
    assert (found[1::2] == 0).all()
    y = np.zeros(10, np.float32)
    raised(y, v)
    np.testing.assert_array_equal(y, found)


@tile.kernel
def numbers_of_rows(table, index, weight):
    """y[h, t] = table[h, index[t]] * weight[t]"""
    y = hl.zeros([table.shape[0], index.shape[0]], dtype=hl.float32)
    for h in hl.grid(table.shape[0]):
        for t in hl.tile(index.shape[0]):
            y[h, t] = table[h, index[t]].to(hl.float32) * weight[t]
    return y


@tile.kernel
def numbers_alone(table, index, weight):
    y = hl.zeros([index.shape[0]], dtype=hl.float32)
    for t in hl.tile(index.shape[0]):
        y[t] = table[index[t]].to(hl.float32) * weight[t]
    return y


NARROW = ["bfloat16", "float8_e4m3fn", "int8", "int16", "uint8", "bool"]
PICKED = np.random.default_rng(3).integers(0, 20, 30)


def table_of(dtype: str) -> np.ndarray:
    drawn = np.random.default_rng(4).integers(0, 5, (3, 20))
    return drawn.astype(getattr(ml_dtypes, dtype, dtype))


@pytest.mark.parametrize("dtype", ["float32", *NARROW])
@pytest.mark.parametrize("indices", ["int32", "int16", "uint8"])
def test_numbers_of_narrow_tables_by_narrow_indices(dtype: str, indices: str) -> None:
    table, index = table_of(dtype), PICKED.astype(indices)
    weight = np.arange(30, dtype=np.float32)
    wanted = table.astype(np.float32)[:, PICKED] * weight
    np.testing.assert_array_equal(numbers_of_rows(table, index, weight), wanted)
    np.testing.assert_array_equal(numbers_alone(table[1], index, weight), wanted[1])


@needs_libtpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool"])
def test_the_compiler_takes_them(dtype: str) -> None:
    index, weight = tile.spec((30,), "int16"), tile.spec((30,), "float32")
    several, alone = tile.spec((3, 20), dtype), tile.spec((20,), dtype)
    for kernel, table in ((numbers_of_rows, several), (numbers_alone, alone)):
        assert compiled(kernel, table, index, weight, target="tpu:v5e").memory.code


@needs_libtpu
def test_the_compiler_takes_rows_by_narrow_indices() -> None:
    @tile.kernel
    def rows(table, index):
        y = hl.zeros([index.shape[0], table.shape[1]], dtype=table.dtype)
        for i in hl.grid(index.shape[0]):
            y[i, :] = table[index[i], :]
        return y

    arguments = tile.spec((40, 128), "float32"), tile.spec((30,), "int16")
    assert compiled(rows, *arguments, target="tpu:v6e").memory.code


def test_numbers_of_a_table_that_has_no_room_in_scalar_memory() -> None:
    table, weight = np.arange(1 << 19, dtype=np.float32), np.arange(30, dtype=np.float32)
    index = np.random.default_rng(5).integers(0, 1 << 19, 30).astype(np.int32)
    source = str(numbers_alone.source(table, index, weight, target="tpu:v6e"))
    assert "jnp.take(table, index" in source
    found = np.asarray(numbers_alone(table, index, weight))
    np.testing.assert_array_equal(found, table[index] * weight)


@tile.kernel
def where_known(table, index, offsets):
    """y[t] = table[index[t]], and 2 where that is negative: the index is a value, too."""
    y = hl.zeros([index.shape[0]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = hl.load(table, [index[t]], mask=index[t] >= 0, other=2)
    return y


def test_a_narrow_index_that_is_a_value_too() -> None:
    offsets, index = np.array([0, 3, 3, 25], np.int32), PICKED.astype(np.int16)
    index[::4] = -1
    table = np.arange(20, dtype=np.float32)
    wanted = np.where(index >= 0, table[index], 2) * (np.arange(30) < 25)
    np.testing.assert_array_equal(where_known(table, index, offsets), wanted)


@needs_libtpu
@pytest.mark.parametrize("dtype", ["int16", "int8"])
def test_the_compiler_takes_such_an_index(dtype: str) -> None:
    arguments = tile.spec((20,), "float32"), tile.spec((30,), dtype), tile.spec((4,), "int32")
    assert compiled(where_known, *arguments, target="tpu:v5e").memory.code
