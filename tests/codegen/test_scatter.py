"""Stores at positions that are read from memory: any block may be stored to again and again."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again

LOOP_TYPES = (None, "grid", "outer_pipeline", "fori_loop")


@tile.kernel
def scattered(x, index):
    """The last row of every index stays."""
    y = hl.zeros([20, x.shape[1]], dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        y[index[m], :] = x[m, :]
    return y


@tile.kernel
def scatter_added(x, index):
    y = hl.zeros([20, x.shape[1]], dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        y[index[m], :] += x[m, :]
    return y


@tile.kernel
def scattered_tiles(x, index):
    """A position among others, and tiles of the rows."""
    y = hl.full([20, 3, x.shape[1]], 7, dtype=x.dtype)
    for m in hl.grid(x.shape[0]):
        for t in hl.tile(x.shape[1]):
            y[index[m], 1, t] = x[m, t] * 2
    return y


@tile.kernel
def scattered_ranges(x, index, offsets):
    """Parts of rows: what another group stored to the same row stays."""
    y = hl.zeros([20, x.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[index[g], t] = x[t, :].sum(1)
    return y


@tile.kernel
def scattered_rows(x, index):
    """All rows of a tile at once: they are stored in order."""
    y = hl.full([20, x.shape[1]], 7, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[index[tm], :] = x[tm, :] * 2
    return y


@tile.kernel
def scattered_blocks(x, index):
    y = hl.full([20, x.shape[1]], 7, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[index[tm], tn] = x[tm, tn] * 2
    return y


@tile.kernel
def scattered_matrices(x, index):
    y = hl.full([20, 3, x.shape[1] // 3], 7, dtype=x.dtype)
    rows = x.view(x.shape[0], 3, x.shape[1] // 3)
    for tm in hl.tile(x.shape[0]):
        y[index[tm], :, :] = rows[tm, :, :] * 2
    return y


@tile.kernel
def added_rows(x, index):
    y = hl.full([20, x.shape[1]], 7, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        hl.atomic_add(y, [index[tm], slice(None)], x[tm, :])
    return y


@tile.kernel
def raised_rows(x, index):
    y = hl.full([20, x.shape[1]], -3, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        hl.atomic_max(y, [index[tm], slice(None)], x[tm, :])
    return y


@tile.kernel
def scattered_groups(x, index, offsets):
    """Rows of ranges only: those between the ranges go nowhere."""
    y = hl.zeros([20, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            hl.atomic_add(y, [index[tm], slice(None)], x[tm, :] * (g + 1))
    return y


@tile.kernel
def scattered_into(y, x, index):
    for tm in hl.tile(x.shape[0]):
        y[index[tm], :] = x[tm, :]


def drawn(seed: int, rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.integers(-9, 9, (rows, 300)).astype(np.float32)  # sums are exact in any order
    return x, rng.integers(0, 20, rows).astype(np.int32)


def by_hand(name: str, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    y = np.zeros((20, x.shape[1]))
    match name:
        case "scattered":
            y[index] = x  # NumPy keeps the last one, too
        case "scatter_added":
            np.add.at(y, index, x)
        case _:
            y = np.full((20, 3, x.shape[1]), 7.0)
            y[index, 1] = x * 2
    return y


@pytest.mark.parametrize("loop_type", LOOP_TYPES)
@pytest.mark.parametrize("kernel", [scattered, scatter_added, scattered_tiles], ids=str)
def test_rows(kernel: tile.Kernel, loop_type: str | None) -> None:
    for seed in range(3):
        x, index = drawn(seed)
        result = kernel(x, index, config=tile.Config(loop_type=loop_type))
        np.testing.assert_array_equal(result, by_hand(kernel.__name__, x, index))


@pytest.mark.parametrize("form", [{}, {"steps": "rectangle"}, {"loop_type": "fori_loop"}], ids=str)
def test_parts_of_rows(form: dict[str, str]) -> None:
    x, config = drawn(0)[0], tile.Config({"t": 8}, **form)
    for offsets in ([0, 7, 7, 20, 30], [0, 30, 30, 30, 30], [3, 9, 9, 9, 25]):
        for index in ([4, 4, 4, 4], [19, 0, 19, 0], [1, 2, 3, 4]):
            arguments = x, np.array(index, np.int32), np.array(offsets, np.int32)
            result = scattered_ranges(*arguments, config=config)
            np.testing.assert_array_equal(result, scattered_ranges.reference(*arguments))


TILED = (scattered_rows, scattered_blocks, scattered_matrices, added_rows, raised_rows)


def rows_by_hand(name: str, x: np.ndarray, index: np.ndarray) -> np.ndarray:
    """Rows one by one, in NumPy; rows outside of the result are dropped."""
    y = np.full((20, x.shape[1]), -3.0 if name == "raised_rows" else 7.0)
    for row, place in zip(np.asarray(x, np.float64), index, strict=True):
        if 0 <= place < 20:
            match name:
                case "added_rows":
                    y[place] += row
                case "raised_rows":
                    y[place] = np.maximum(y[place], row)
                case _:
                    y[place] = row * 2
    return y


@pytest.mark.parametrize("loop_type", LOOP_TYPES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", TILED, ids=str)
def test_rows_of_tiles(kernel: tile.Kernel, dtype: str, loop_type: str | None) -> None:
    x, index = drawn(3)
    blocks = {"tm": 8, "tn": 128} if kernel is scattered_blocks else {"tm": 8}
    config = tile.Config(blocks, loop_type=loop_type)
    result = np.asarray(kernel(jnp.asarray(x, dtype), index, config=config), np.float64)
    np.testing.assert_array_equal(result.reshape(20, 300), rows_by_hand(kernel.__name__, x, index))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("kernel", TILED, ids=str)
def test_rows_outside_of_the_result_go_nowhere(kernel: tile.Kernel, dtype: str) -> None:
    x, index = drawn(4)
    index[[0, 7, 12, 29]] = -1, 20, 2**31 - 1, -(2**31)
    run = jax.jit(lambda x, index: kernel(x, index))
    result = np.asarray(run(jnp.asarray(x, dtype), index), np.float64)
    np.testing.assert_array_equal(result.reshape(20, 300), rows_by_hand(kernel.__name__, x, index))


@pytest.mark.parametrize("form", [{}, {"steps": "rectangle"}, {"loop_type": "fori_loop"}], ids=str)
def test_rows_of_ranges(form: dict[str, str]) -> None:
    x, index = drawn(5)
    config = tile.Config({"tm": 8}, **form)
    for offsets in ([0, 7, 7, 20, 30], [0, 0, 0, 0, 0], [3, 9, 9, 9, 25]):
        wanted = np.zeros((20, 300))
        for g in range(4):
            rows = slice(offsets[g], offsets[g + 1])
            np.add.at(wanted, index[rows], x[rows] * (g + 1))
        arguments = x, index, np.array(offsets, np.int32)
        np.testing.assert_array_equal(scattered_groups(*arguments, config=config), wanted)


def test_other_rows_of_an_argument_stay() -> None:
    x, index = drawn(6)
    index = index[:6]
    y = np.arange(21 * 300, dtype=np.float32).reshape(21, 300)
    wanted = y.copy()
    for row, place in zip(x[:6], index, strict=True):
        wanted[place] = row
    scattered_into(y, x[:6], index, config=tile.Config({"tm": 4}))
    np.testing.assert_array_equal(y, wanted)


@tile.kernel
def counted(x, index):
    y = hl.zeros([20], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [index[t]], x[t])
    return y


@tile.kernel
def counted_of_heads(x, index):
    y = hl.full([3, 20], 1.0, dtype=hl.float32)
    for h in hl.grid(3):
        for t in hl.tile(x.shape[0]):
            hl.atomic_max(y, [h, index[t]], x[t] * h)
    return y


@tile.kernel
def kept_last(x, index):
    y = hl.zeros([20], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        y[index[t]] = x[t]
    return y


@tile.kernel
def seen(index, offsets):
    """Which numbers there are in each group, and how many of them in all."""
    there = hl.zeros([offsets.shape[0] - 1, 20], dtype=hl.bool_)
    total, again = hl.zeros([20], dtype=hl.int32), hl.zeros(index.shape, dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            there[g, index[t]] = True
            hl.atomic_add(total, [index[t]], 1)
    for t in hl.tile(index.shape[0]):
        again[t] = total[index[t]]
    return there, total, again


X, INDEX = np.arange(30, dtype=np.float32), np.arange(30, dtype=np.int32) * 7 % 12


def test_numbers_are_stored_as_rows_of_one() -> None:
    np.testing.assert_array_equal(counted(X, INDEX), np.bincount(INDEX, X, 20))
    last = np.zeros(20)
    last[INDEX] = X
    np.testing.assert_array_equal(kept_last(X, INDEX), last)
    most = np.ones((3, 20), np.float32)
    for h in range(3):
        np.maximum.at(most[h], INDEX, X * h)
    np.testing.assert_array_equal(counted_of_heads(X, INDEX), most)


@pytest.mark.parametrize("block", [None, 8])
def test_flags_and_counts_of_groups(block: int | None) -> None:
    offsets = np.array([2, 9, 9, 10, 27], np.int32)
    config = tile.Config({} if block is None else {"t": block})
    there, total, again = map(np.asarray, seen(INDEX, offsets, config=config))
    for g in range(4):
        own = INDEX[offsets[g] : offsets[g + 1]]
        np.testing.assert_array_equal(there[g], np.isin(np.arange(20), own))
    np.testing.assert_array_equal(total, np.bincount(INDEX[2:27], minlength=20))
    np.testing.assert_array_equal(again, total[INDEX])


@needs_libtpu
@pytest.mark.parametrize("length", [20, 200_000])
def test_the_compiler_takes_numbers_in_blocks_and_where_they_lie(length: int) -> None:
    @tile.kernel
    def tallied(index):
        y = hl.zeros([length], dtype=hl.float32)
        for t in hl.tile(index.shape[0]):
            hl.atomic_add(y, [index[t]], 1.0)
        return y

    assert compiled(tallied, tile.spec((4096,), "int32"), target="tpu:v5e").memory.code


@tile.kernel
def in_place(y, index):
    for t in hl.tile(index.shape[0]):
        hl.atomic_add(y, [index[t]], 1.0)


@tile.kernel
def columns(x, index, width: hl.constexpr = 20):
    y = hl.zeros([x.shape[0], width], dtype=hl.float32)
    for t, u in hl.tile(x.shape):
        y[t, index[u]] = x[t, u]
    return y


@tile.kernel
def one_column(x, index):
    y = hl.zeros([20, 4], dtype=hl.float32)
    for t in hl.tile(x.shape[1]):
        hl.atomic_add(y, [index[t], 2], x[0, t])
    return y


@tile.kernel
def a_part_of_the_columns(x, index):
    y = hl.zeros([20, 4], dtype=hl.float32)
    for t in hl.tile(x.shape[1]):
        hl.atomic_add(y, [index[t], slice(2, 3)], x[0, t][:, None])
    return y


@tile.kernel
def ragged_columns(x, index):
    y = hl.zeros([20, 4], dtype=hl.float32)
    for t in hl.tile(x.shape[1]):
        for u in hl.tile(index[0], index[1], max_extent=4):
            y[index[t], u] = x[u, t].T
    return y


@tile.kernel
def columns_one_by_one(x, index):
    y = hl.zeros([4, 20], dtype=hl.float32)
    for i in hl.grid(index[0], index[1], max_extent=4):
        for t in hl.tile(x.shape[1]):
            y[i, index[t]] = x[i, t]
    return y.T


HINTS = {
    columns: "let the dimension of y that is picked be its first one, store v.T, and return the "
    "transposition",
    one_column: "store a part of the rows: hl.atomic_add(y, [ids[t], slice(2, 3)], v[:, None])",
    ragged_columns: "loop over the other dimension with hl.grid, let it be the first one, as in "
    "y[i, ids[t]] = v, and return the transposition",
}


@pytest.mark.parametrize("kernel", HINTS, ids=lambda k: k.__name__)
def test_what_is_no_row_says_how_it_is_one(kernel: tile.Kernel) -> None:
    width = (1 << 21,) if kernel is columns else ()  # few are selected
    with pytest.raises(tile.PlanError) as caught:
        kernel.source(np.zeros((4, 30), np.float32), INDEX, *width)
    assert caught.value.what == (
        "rows of y can be stored to where an index array picks them along the first of two or more "
        "dimensions, and the others are whole or tiles of a static range"
    )
    assert caught.value.hint == HINTS[kernel]


def test_what_the_hints_say() -> None:
    x, index = np.arange(120, dtype=np.float32).reshape(4, 30), np.array([1, 3, *INDEX[2:]])
    wanted = np.zeros((20, 4))
    wanted[:, 2] = np.bincount(index, x[0], 20)
    np.testing.assert_array_equal(a_part_of_the_columns(x, index), wanted)
    wanted = np.zeros((20, 4))
    wanted[index, 1:3] = x[1:3].T
    np.testing.assert_array_equal(again(columns_one_by_one)(x, index), wanted)


def test_numbers_of_an_argument_that_changes() -> None:
    y = np.arange(20, dtype=np.float32)
    again(in_place)(y, INDEX)
    np.testing.assert_array_equal(y, np.arange(20) + np.bincount(INDEX, minlength=20))


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
def test_the_compiler_takes_numbers_of_an_argument(target: str) -> None:
    for length in (20, 200_000):
        given = tile.spec((length,), "float32"), tile.spec((30,), "int32")
        assert compiled(in_place, *given, target=target).memory.code


@tile.kernel
def flagged(y, index):
    for t in hl.tile(index.shape[0]):
        y[index[t]] = True


@tile.kernel
def at_two_places(index):
    y, z = hl.zeros([3, 20], dtype=hl.float32), hl.zeros([20], dtype=hl.float32)
    for t in hl.tile(index.shape[0]):
        hl.atomic_add(y, [2, index[t]], 1.0)
        z[index[t]] = y[1, index[t]]
    return y, z


def test_arguments_of_bools_and_other_places_say_what_to_do() -> None:
    with pytest.raises(tile.PlanError) as caught:
        flagged.source(np.zeros(20, bool), INDEX)
    assert (caught.value.what, caught.value.hint) == (
        "y is bool, and a TPU stores no single rows of bools to an argument",
        "pass y as int8, or return a new array",
    )
    with pytest.raises(tile.PlanError) as caught:
        at_two_places.source(INDEX)
    assert (caught.value.what, caught.value.hint) == (
        "rows of y are stored where an index array picks them, and y is also used at another place "
        "in the same loop nest",
        "use it in a top-level loop of its own",
    )


@tile.kernel
def picked_and_moved(x, index):
    """A tile lies at one position of the index, and at another of an output: lanes are those."""
    y, z = hl.zeros([20, 3], dtype=hl.float32), hl.zeros([14, 3], dtype=hl.float32)
    for t in hl.tile(10):
        y[index[t], :] = x[t.index, :]
        z[t + 2, :] = x[index[t], :]
    return y, z


def test_an_index_lies_elsewhere_than_the_tile() -> None:
    """Random kernel 2511298 took the index of two lanes before, and of no lane twice."""
    x = np.random.default_rng(0).standard_normal((30, 3)).astype(np.float32)
    index = np.random.default_rng(1).permutation(20).astype(np.int32)[:10]
    y, z = again(picked_and_moved)(x, index)
    wanted = np.zeros((20, 3)), np.zeros((14, 3))
    wanted[0][index], wanted[1][2:12] = x[:10], x[index]
    np.testing.assert_array_equal(y, wanted[0])
    np.testing.assert_array_equal(z, wanted[1])
