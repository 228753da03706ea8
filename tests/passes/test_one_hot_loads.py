"""one_hot_loads: loads at computed places are picked from whole dimensions, exactly."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.derivatives import parsed
from tests.passes.becomes import again, becomes, floats, stays
from tilelang.codegen.pallas.passes.one_hot_loads import one_hot_loads
from tilelang.codegen.pallas.target import TARGETS
from tilelang.ir import KernelIR

RNG = np.random.default_rng(8)


def run(ir: KernelIR) -> KernelIR:
    return one_hot_loads(ir, TARGETS["tpu:v5e"])


@tile.kernel
def nearest(x, book):
    """Vector quantisation: the row of the book that is nearest to each row, and which one it is."""
    y = hl.empty(x.shape, dtype=book.dtype)
    code = hl.empty([x.shape[0]], dtype=hl.int32)
    for t in hl.tile(x.shape[0]):
        far = (book[:, :] * book[:, :]).sum(1)[None, :] - 2.0 * hl.dot(x[t, :], book[:, :].T)
        c = far.argmin(1)
        code[t] = c
        y[t, :] = book[c, :]
    return y, code


@tile.kernel
def looked_up(x, rows, columns, numbers, blocks):
    """At places of which some lie before and behind the arrays: those are clamped."""
    n = x.shape[0]
    of_rows = hl.empty([n, rows.shape[1]], dtype=rows.dtype)
    of_columns = hl.empty([columns.shape[0], n], dtype=columns.dtype)
    of_numbers = hl.empty([n], dtype=numbers.dtype)
    of_blocks = hl.empty([n, blocks.shape[1], blocks.shape[2]], dtype=blocks.dtype)
    for t in hl.tile(n):
        at = x[t, :].argmax(1) * 2 - 3
        of_rows[t, :] = rows[at, :]
        of_columns[:, t] = columns[:, at]
        of_numbers[t] = numbers[at]
        of_blocks[t, :, :] = blocks[at, :, :]
    return of_rows, of_columns, of_numbers, of_blocks


@tile.kernel
def masked(x, table):
    y = hl.empty([x.shape[0], table.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        at = x[t, :].argmax(1)
        for d in hl.tile(table.shape[1]):
            y[t, d] = hl.load(table, [at, d], mask=(at > 3)[:, None], other=-5.0)
    return y


@tile.kernel
def permuted(x, order):
    """Columns in the order that memory says."""
    y = hl.empty([x.shape[0], order.shape[0]], dtype=x.dtype)
    for r, t in hl.tile(y.shape):
        y[r, t] = x[r, order[t]]
    return y


@tile.kernel
def of_pairs(x, table, order):
    """One place for each row: of two dimensions, and where memory says for what is computed."""
    y = hl.empty([x.shape[0]], dtype=hl.float32)
    z = hl.empty([x.shape[0], table.shape[1]], dtype=hl.float32)
    for g in hl.grid(x.shape[0]):
        y[g] = table[x[g, :].argmax(0), x[g, 0:4].argmin(0)]
        z[g, :] = table[order[x[g, :].argmax(0)], :]
    return y, z


@tile.kernel
def farthest(points, count: hl.constexpr):
    """Points, each the farthest one from all before it."""
    picked = hl.empty([count], dtype=hl.int32)
    near = hl.full([points.shape[0]], 3.0e38, dtype=hl.float32)
    at = 0
    for g in hl.grid(count):
        picked[g] = at
        near = hl.minimum(near, ((points[:, :] - points[at, :][None, :]) ** 2).sum(1))
        at = near.argmax(0)
    return picked


def test_rows_are_multiplied() -> None:
    becomes(
        parsed(nearest, (tile.spec((32, 8), "float32"), tile.spec((5, 8), "float32")))[0],
        run,
        """
        for t in tile(32):
            far: float32[t, 5] = expand_dims(sum(book[0:5, 0:8] * book[0:5, 0:8], axis=1), axis=0) - 2.0 * dot(x[t, 0:8], transpose(book[0:5, 0:8], perm=(1, 0)), contract=(1, 0))
            c: int32[t] = argmin(far, axis=1)
            code[t] = c
            book_rows: float32[t, 8] = book[rows(c), 0:8]
            y[t, 0:8] = book_rows
        """,
        """
        for t in tile(32):
            far: float32[t, 5] = expand_dims(sum(book[0:5, 0:8] * book[0:5, 0:8], axis=1), axis=0) - 2.0 * dot(x[t, 0:8], transpose(book[0:5, 0:8], perm=(1, 0)), contract=(1, 0))
            c: int32[t] = argmin(far, axis=1)
            code[t] = c
            book_rows: float32[t, 8] = group_sum(expand_dims(minimum(maximum(c, 0), 4), axis=1) == expand_dims(arange(5), axis=0), book[0:5, 0:8])
            y[t, 0:8] = book_rows
        """,
    )


def test_what_is_placed_once_is_selected() -> None:
    becomes(
        parsed(farthest, (tile.spec((20, 3), "float32"), 4))[0],
        run,
        """
        for g in grid(4) carrying near_1 = full([20], float32, value=3e+38), at = 0:
            picked[g] = at
            near_2: float32[20] = minimum(near_1, sum(pow(points[0:20, 0:3] - expand_dims(points[at, 0:3], axis=0), 2), axis=1))
            at_1: int32[] = argmax(near_2, axis=0)
            next near_1 = near_2
            next at = at_1
        after near_3 = near_1
        after at_2 = at
        """,
        """
        for g in grid(4) carrying near_1 = full([20], float32, value=3e+38), at = 0:
            picked[g] = at
            near_2: float32[20] = minimum(near_1, sum(pow(points[0:20, 0:3] - expand_dims(sum(where(expand_dims(minimum(maximum(at, 0), 19) == arange(20), axis=1), points[0:20, 0:3], 0), axis=0), axis=0), 2), axis=1))
            at_1: int32[] = argmax(near_2, axis=0)
            next near_1 = near_2
            next at = at_1
        after near_3 = near_1
        after at_2 = at
        """,
    )


def test_large_tables_stay() -> None:
    stays(
        parsed(nearest, (tile.spec((32, 256), "float32"), tile.spec((32768, 256), "float32")))[0],
        run,
    )


TABLES = [
    ("float32", "float32", "int8", "float32"),
    ("bfloat16", "bool", "float32", "int32"),
    ("int32", "bfloat16", "bool", "bfloat16"),
    ("uint32", "int32", "int16", "int8"),
    ("int8", "uint8", "uint32", "bool"),
]


def numbers(dtype: str, *shape: int) -> jnp.ndarray:
    """Any numbers of a type; of floats some are not finite."""
    if jnp.issubdtype(jnp.dtype(dtype), jnp.floating):
        found = floats(*shape)
        found.flat[::17], found.flat[8::17] = np.nan, np.inf
        return jnp.asarray(found, dtype)
    if dtype == "bool":
        return jnp.asarray(RNG.random(shape) < 0.5)
    ends = jnp.iinfo(dtype)
    return jnp.asarray(RNG.integers(ends.min, ends.max, shape, endpoint=True), dtype)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
@pytest.mark.parametrize("dtypes", TABLES)
def test_every_type(target, dtypes) -> None:
    """Exactly, whatever the other rows hold."""
    x, shapes = floats(37, 8), ((11, 16), (9, 11), (11,), (11, 3, 5))
    tables = [numbers(dtype, *shape) for dtype, shape in zip(dtypes, shapes, strict=True)]
    at = np.clip(x.argmax(1) * 2 - 3, 0, 10)
    rows, columns, single, blocks = (np.asarray(table) for table in tables)
    wanted = rows[at], columns[:, at], single[at], blocks[at]
    for one, right in zip(again(looked_up)(x, *tables, target=target), wanted, strict=True):
        assert one.dtype == right.dtype
        np.testing.assert_array_equal(*(np.asarray(a, np.float64) for a in (one, right)))


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_values(target) -> None:
    x, book = floats(37, 8), floats(5, 8)
    y, code = again(nearest)(x, book, target=target)
    best = ((x[:, None] - book) ** 2).sum(2).argmin(1)
    np.testing.assert_array_equal(code, best)
    np.testing.assert_array_equal(y, book[best])
    table, at = floats(8, 20), x.argmax(1)
    right = np.where((at > 3)[:, None], table[at], -5.0)
    np.testing.assert_array_equal(again(masked)(x, table, target=target), right)
    order = RNG.permutation(8).astype(np.int32)
    y, z = again(of_pairs)(x, table, order, target=target)
    np.testing.assert_array_equal(y, table[at, x[:, :4].argmin(1)])
    np.testing.assert_array_equal(z, table[order[at]])


@pytest.mark.parametrize(
    ("target", "config"),
    [(None, None), (None, tile.Config(blocks={"r": 8, "t": 8})), ("tpu:v5e", None)],
)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32", "int8"])
def test_columns_that_memory_says(target, config, dtype) -> None:
    x, order = numbers(dtype, 19, 30), RNG.integers(0, 30, 37).astype(np.int32)
    found = again(permuted)(x, order, target=target, config=config)
    pair = (np.asarray(a, np.float64) for a in (found, np.asarray(x)[:, order]))
    np.testing.assert_array_equal(*pair)


@pytest.mark.parametrize("target", [None, "tpu:v5e"])
def test_places_that_a_loop_carries(target) -> None:
    points, picked = floats(40, 3), [0]
    while len(picked) < 9:
        far = ((points[:, None] - points[picked]) ** 2).sum(2).min(1)
        picked.append(int(far.argmax()))
    np.testing.assert_array_equal(again(farthest)(points, 9, target=target), picked)


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
def test_they_compile(target) -> None:
    x = tile.spec((4096, 128), "float32")
    compiled(nearest, x, tile.spec((512, 128), "float32"), target=target)
    small = tile.spec((64, 8), "float32")
    for rows, columns, single, blocks in TABLES:
        tables = (tile.spec((11, 16), rows), tile.spec((9, 11), columns), tile.spec((11,), single))
        compiled(looked_up, small, *tables, tile.spec((11, 3, 5), blocks), target=target)
    compiled(masked, small, tile.spec((8, 256), "float32"), target=target)
    compiled(
        of_pairs, small, tile.spec((8, 20), "float32"), tile.spec((8,), "int32"), target=target
    )
    compiled(permuted, x, tile.spec((128,), "int32"), target=target)
    compiled(farthest, tile.spec((4096, 3), "float32"), 64, target=target)
