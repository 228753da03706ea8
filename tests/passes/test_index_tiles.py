"""index_tiles: a loop over rows, one by one, becomes one over tiles of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.interpreter import races_found, strictly
from tests.passes.becomes import again, becomes, floats
from tilelang.codegen.pallas.passes.index_tiles import index_tiles, picks_rows
from tilelang.schedule.problem import Problem

BLOCK = tile.Config({"g": 8})
NUMBERS = np.array([8, 0, 3, 3, 7, 1, 0, 5, 6, 8, 2, 4, 8, 8, 1, 3, 6, 0, 2, 5], np.int32)
ROWS = "x[n, t, g, 0:40]"
BEFORE = """
for n in grid(2):
    for g in grid(20):
        total: float32[40] = full([40], float32, value=0.0)
        most: float32[1, 40] = full([1, 40], float32, value=-1e+30)
        for t in tile(11) carrying total_1 = total, most_1 = most:
            total_2: float32[40] = total_1 + sum(ROWS, axis=0)
            most_2: float32[1, 40] = maximum(most_1, expand_dims(max(ROWS, axis=0), axis=0))
            next total_1 = total_2
            next most_1 = most_2
        after total_3 = total_1
        after most_3 = most_1
        mean: float32[] = sum(total_3, axis=0) / 440.0
        for t_1 in tile(11):
            y[n, t_1, g, 0:40] = minimum(x[n, t_1, g, 0:40] - mean, most_3)
""".replace("ROWS", ROWS)
AFTER = (
    """
    for n in grid(2):
        for g in tile(20, block=8):
            total: float32[40] = full([40], float32, value=0.0)
            most: float32[1, 40] = full([1, 40], float32, value=-1e+30)
            for t in tile(11) carrying total_1 = TOTAL, most_1 = MOST:
                total_2: float32[g, 40] = total_1 + sum(ROWS, axis=0)
                most_2: float32[1, g, 40] = maximum(most_1, expand_dims(max(ROWS, axis=0), axis=0))
                next total_1 = total_2
                next most_1 = most_2
            after total_3 = total_1
            after most_3 = most_1
            mean: float32[g] = sum(total_3, axis=1) / 440.0
            for t_1 in tile(11):
                y[n, t_1, g, 0:40] = minimum(x[n, t_1, g, 0:40] - expand_dims(mean, axis=1), most_3)
    """.replace("ROWS", ROWS)
    .replace("TOTAL", "broadcast(total, [g, 40])")
    .replace("MOST", "broadcast(expand_dims(most, axis=1), [1, g, 40])")
)


@tile.kernel
def norm(x, weight):
    """Every x[n, g] less its mean, by the root of the mean of its squares, times its weights."""
    N, G, C = x.shape
    y = hl.empty(x.shape, dtype=x.dtype)
    for n, g in hl.grid([N, G]):
        rows = x[n, g, :] - x[n, g, :].sum(-1) / C
        y[n, g, :] = rows * hl.rsqrt((rows * rows).sum(-1) / C + 1e-5) * weight[g, :]
    return y


def norm_by_hand(x, weight):
    rows = x - x.mean(-1, keepdims=True)
    return rows / np.sqrt((rows * rows).mean(-1, keepdims=True) + 1e-5) * weight


@tile.kernel
def heads(x, weight, cos):
    """Every row of a head over its length, and that length: [T, H, D] as a model has it."""
    T, H, _ = x.shape
    y, length = hl.empty(x.shape, dtype=x.dtype), hl.empty([T, H], dtype=hl.float32)
    for g in hl.grid(H):
        for t in hl.tile(T):
            rows = x[t, g, :]
            found = hl.sqrt((rows * rows).sum(-1))
            length[t, g] = found
            y[t, g, :] = rows / found[:, None] * weight[:] + cos[t, :]
    return y, length


def heads_by_hand(x, weight, cos):
    length = np.sqrt((x * x).sum(-1))
    return x / length[..., None] * weight + cos[:, None], length


@tile.kernel
def slopes(x, by):
    """Softmax of scores to which distances are added, times a number of the head, and its index."""
    B, H, K = x.shape
    y = hl.empty(x.shape, dtype=x.dtype)
    for b in hl.grid(B):
        for g in hl.grid(H):
            row = x[b, g, :] + by[g] * hl.arange(K) + g.to(hl.float32)
            e = hl.exp(row - row.amax(-1))
            y[b, g, :] = e / e.sum(-1)
    return y


def slopes_by_hand(x, by):
    row = x + by[:, None] * np.arange(x.shape[-1])
    e = np.exp(row - row.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@tile.kernel
def planes(x):
    """Every x[n, :, g] less the mean of all its positions, by loops over these."""
    N, L, G, W = x.shape
    y = hl.empty(x.shape, dtype=x.dtype)
    for n, g in hl.grid([N, G]):
        total = hl.zeros([W], dtype=hl.float32)
        most = hl.full([1, W], -1e30, dtype=hl.float32)
        for t in hl.tile(L):
            total = total + x[n, t, g, :].sum(0)
            most = hl.maximum(most, x[n, t, g, :].amax(0)[None, :])
        mean = total.sum(0) / (L * W)
        for t in hl.tile(L):
            y[n, t, g, :] = hl.minimum(x[n, t, g, :] - mean, most)
    return y


def planes_by_hand(x):
    return np.minimum(x - x.mean((1, 3), keepdims=True), x.max(1, keepdims=True))


@tile.kernel
def columns(x, weight):
    """Rows of channels: y[n, g] has a mean of 0 over both of its dimensions, then weights."""
    N, G, W, L = x.shape
    y = hl.empty(x.shape, dtype=x.dtype)
    for n, g in hl.grid([N, G]):
        block = x[n, g, :, :]
        kept = block - block.sum(-1, keepdim=True).sum(0, keepdim=True) / (L * W)
        y[n, g, :, :] = kept * weight[g, :][:, None]
    return y


def columns_by_hand(x, weight):
    return (x - x.mean((2, 3), keepdims=True)) * weight[:, :, None]


@tile.kernel
def picked(table, ids, by):
    """Rows that numbers pick, each times one: y[g] = table[ids[g]] * by[g], and the row behind."""
    G = ids.shape[0]
    y = hl.empty([G, table.shape[1]], dtype=table.dtype)
    for g in hl.grid(G):
        which = ids[g]
        y[g, :] = table[which, :] * by[g] + table[ids[g] + 1, :]
    return y


def picked_by_hand(table, ids, by):
    return table[ids] * by[:, None] + table[ids + 1]


def cases(rows: int) -> list[tuple[tile.Kernel, Callable[..., object], tuple[np.ndarray, ...]]]:
    return [
        (norm, norm_by_hand, (floats(2, rows, 40), floats(rows, 40))),
        (heads, heads_by_hand, (floats(11, rows, 40), floats(40), floats(11, 40))),
        (slopes, slopes_by_hand, (floats(2, rows, 40), floats(rows) * 0.1)),
        (planes, planes_by_hand, (floats(2, 11, rows, 40),)),
        (columns, columns_by_hand, (floats(2, rows, 3, 40), floats(rows, 3))),
        (picked, picked_by_hand, (floats(10, 40), NUMBERS[:rows], floats(rows))),
    ]


def differences(found: object, exact: object) -> float:
    pairs = zip(*((e if isinstance(e, tuple) else (e,)) for e in (found, exact)), strict=True)
    return max(float(np.abs(np.asarray(f) - e).max()) for f, e in pairs)


@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("rows", [20, *(pytest.param(n, marks=pytest.mark.slow) for n in (8, 5))])
def test_values_are_those_of_rows_one_by_one(number, rows):
    """Where the last tile is cut; slow: where all are whole, and where one is longer than all."""
    kernel, oracle, given = cases(rows)[number]
    lowered = again(kernel).lower(*given, config=BLOCK)
    assert dict(lowered.config.blocks)["g"] == 8
    assert differences(again(kernel)(*given, config=BLOCK), oracle(*given)) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("number", range(6))
def test_memory_that_no_one_wrote_reaches_nothing(number):
    """The last tile of 20 rows has 4 of them."""
    kernel, oracle, given = cases(20)[number]
    assert differences(strictly(again(kernel), 0)(*given, config=BLOCK), oracle(*given)) < 1e-5
    assert not races_found()


def test_a_value_has_the_new_dimension_where_its_array_has_it():
    lowered = again(planes).lower(tile.spec((2, 11, 20, 40), "float32"))
    problem = Problem(lowered.ir, lowered.facts)
    becomes(lowered.ir, lambda _: index_tiles(problem, "g", 8).ir, BEFORE, AFTER)
    assert picks_rows(problem, "g") and not picks_rows(problem, "n")


# ---------------------------------------------------------------- the default


def test_rows_one_by_one_are_tiles_by_default():
    """Where that is less work; and the config says so, and is the same again."""
    x, weight = tile.spec((8, 32, 2048), "bfloat16"), tile.spec((32, 2048), "bfloat16")
    lowered = again(norm).lower(x, weight, target="tpu:v6e")
    assert dict(lowered.config.blocks)["g"] in (16, 32)
    same = again(norm).lower(x, weight, target="tpu:v6e", config=lowered.config)
    assert same.source.text == lowered.source.text
    text = norm.explain(x, weight, target="tpu:v6e")
    assert "a step has all rows of its tiles at once" in text and "g one by one: " in text


@tile.kernel
def gated(x, gate):
    """Every row times what its gate lets through."""
    out = hl.empty(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        out[i, :] = hl.sigmoid(gate[i]) * x[i, :]
    return out


def test_rows_whose_numbers_have_no_room_in_scalar_memory_are_tiles():
    """300,000 gates, of which a loop over single rows has the block of each in every step."""
    given = tile.spec((300_000, 128), "bfloat16"), tile.spec((300_000,), "float32")
    one = tile.Config(loop_type="grid")
    single = again(gated).lower(*given, target="tpu:v6e", config=one)
    assert "SMEM" not in single.source.text and "grid=(300000,)" in single.source.text
    lowered = again(gated).lower(*given, target="tpu:v6e")
    assert dict(lowered.config.blocks)["i"] >= 512
    same = again(gated).lower(*given, target="tpu:v6e", config=lowered.config)
    assert same.source.text == lowered.source.text


# ---------------------------------------------------------------- what is refused


@tile.kernel
def turned(x):
    """y[g] = the transpose of x[g] times it."""
    y = hl.empty([x.shape[0], x.shape[2], x.shape[2]], dtype=x.dtype)
    for g in hl.grid(x.shape[0]):
        y[g, :, :] = hl.dot(x[g, :, :].T, x[g, :, :])
    return y


@tile.kernel
def other(x):
    """y[g] = the row of another."""
    y = hl.empty(x.shape, dtype=x.dtype)
    for g in hl.grid(x.shape[0]):
        y[g, :] = x[x.shape[0] - 1 - g, :]
    return y


@tile.kernel
def sums(x, offsets):
    """y[i, g] = the sum of rows of group i, of column block g: groups have blocks, too."""
    G, H = offsets.shape[0] - 1, x.shape[1]
    y = hl.zeros([G, *x.shape[1:]], dtype=hl.float32)
    for i, g in hl.grid([G, H]):
        acc = hl.zeros([x.shape[2]], dtype=hl.float32)
        for t in hl.tile(offsets[i], offsets[i + 1]):
            acc += x[t, g, :].sum(0)
        y[i, g, :] = acc
    return y


def test_rows_of_groups_that_have_blocks_are_taken_one_by_one():
    """What sums the rows of many groups is no operation of the language."""
    given = tile.spec((8192, 8, 128), "bfloat16"), tile.spec((17,), "int32")
    config = again(sums).default_config(*given, target="tpu:v6e")
    again(sums).lower(*given, target="tpu:v6e", config=config)
    x, offsets = floats(40, 8, 16), np.array([0, 3, 3, 30, 40], np.int32)
    found = sums(x, offsets, config=tile.Config({"g": 8, "t": 16}))
    exact = np.array([x[b:e].sum(0) for b, e in itertools.pairwise(offsets)])
    np.testing.assert_allclose(found, exact, 1e-5, 1e-5)


@tile.kernel
def some(x):
    """y[g] = x[g], of the first three positions."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(x.shape[0]):
        for t in hl.tile(x.shape[1]):
            hl.store(y, [g, t], x[g, t], mask=t.index < 3)
    return y


@tile.kernel
def placed(x, at):
    """y[at[g]] = x[g]: of rows for one place the last one stays."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(x.shape[0]):
        y[at[g], :] = x[g, :] + g.to(hl.float32)
    return y


def test_rows_that_go_where_they_are_told_go_one_by_one():
    """Two of a tile may go to one place."""
    given, config = (floats(20, 40), NUMBERS), again(placed).default_config
    assert dict(config(*given, target="tpu:v6e").blocks) == {}
    found = np.asarray(placed(*given))
    last = {int(n): row for row, n in enumerate(NUMBERS)}
    assert all(np.array_equal(found[n], given[0][row] + row) for n, row in last.items())


@pytest.mark.parametrize(
    ("kernel", "shape", "why"),
    [
        (turned, (4, 8, 8), "dot of one row is not possible for many"),
        (other, (16, 40), "x is not indexed by it in one of its dimensions, as it is"),
        (some, (16, 40), "a store in it has a mask, or adds to what is there"),
    ],
    ids=lambda v: getattr(v, "name", None),
)
def test_what_has_no_tiles(kernel, shape, why):
    with pytest.raises(tile.PlanError) as refusal:
        again(kernel).lower(floats(*shape), config=BLOCK)
    assert refusal.value.what == f"g cannot have a block: {why}"
    assert "whose iterations compute alike with rows of their own" in refusal.value.hint
