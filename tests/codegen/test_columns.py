"""Rows of views that split the last dimension, read as columns of the array itself."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen.flowing import LAYOUTS, ROWS, laid, strict
from tests.passes.becomes import again
from tests.planted import trial
from tests.planted.bug import Bug, bug
from tilelang.codegen.pallas.plan.windows import columns

Offsets = tuple[int, ...]


def weighed(w, x, offsets, H: hl.constexpr):
    """The sum of the rows of a group, each times a number of its own, for each head."""
    G, D = offsets.shape[0] - 1, x.shape[1] // H
    heads = x.reshape(x.shape[0], H, D)
    out = hl.zeros([G, H, D], dtype=hl.float32)
    for g, h in hl.grid([G, H]):
        n = hl.minimum(offsets[g + 1] - offsets[g], w.shape[1])
        acc = hl.zeros([D], dtype=hl.float32)
        for t in hl.tile(n, max_extent=w.shape[1]):
            rows = heads[offsets[g] + t.index, h, :].to(hl.float32)
            acc = acc + (w[g * H + h, t][:, None] * rows).sum(0)
        out[g, h, :] = acc
    return out


def weighed_by_hand(w: np.ndarray, x: np.ndarray, offsets: Offsets, H: int) -> np.ndarray:
    x, G, D = x.astype(np.float32), len(offsets) - 1, x.shape[1] // H
    out = np.zeros((G, H, D), np.float32)
    for g, (begin, end) in enumerate(pairwise(offsets)):
        n = min(end - begin, w.shape[1])
        for h in range(H):
            out[g, h] = w[g * H + h, :n] @ x[begin : begin + n, h * D : (h + 1) * D]
    return out


@tile.kernel
def shared_keys(q, k, offsets, H: hl.constexpr, K: hl.constexpr):
    """Products of a row of each head with that of the keys that it shares with others."""
    M, D = q.shape[0], q.shape[1] // H
    queries, keys = q.view(M, H, D), k.view(M, K, D)
    out = hl.zeros([H, M], dtype=hl.float32)
    for g, h in hl.grid([offsets.shape[0] - 1, H]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            both = queries[t, h, :].to(hl.float32) * keys[t, h // (H // K), :].to(hl.float32)
            out[h, t] = both.sum(1)
    return out


@tile.kernel
def turned_round(x, offsets, H: hl.constexpr):
    """The heads in the other order, and the sums of all; the array is read itself, too."""
    M, D = x.shape[0], x.shape[1] // H
    heads = x.reshape(M, H, D)
    out, sums = hl.zeros([M, H, D], dtype=x.dtype), hl.zeros([M], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            sums[t] = x[t, :].to(hl.float32).sum(1)
            for h in hl.grid(H):
                out[t, h, :] = heads[t, H - 1 - h, :]
    return out, sums


@tile.kernel
def gated(x, offsets):
    """One half of a row through the gate that is the other."""
    M, D = x.shape[0], x.shape[1] // 2
    halves = x.reshape(M, 2, D)
    out = hl.zeros([M, D], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            out[t, :] = halves[t, 0, :] * hl.sigmoid(halves[t, 1, :])
    return out


WEIGHED = tile.kernel(weighed)
IN_A_STEP = tile.Config({"t": 16}, within=("h",))


def drawn(*shape: int, dtype: str = "float32") -> np.ndarray:
    """Numbers whose sums are exact."""
    found = np.random.default_rng(sum(shape)).integers(-4, 5, shape)
    return found.astype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype)


def of_heads(offsets: Offsets, heads: int, size: int, dtype: str = "float32") -> tuple:
    x, cuts = laid(drawn(ROWS, heads * size, dtype=dtype), offsets)
    return drawn((len(offsets) - 1) * heads, 24), x, cuts, heads


@pytest.fixture(autouse=True)
def anew():
    yield
    pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("heads", "size"), [(4, 128), (3, 32)])
@pytest.mark.parametrize("offsets", LAYOUTS[:2])
def test_heads_of_moved_rows(offsets, heads, size, dtype):
    """Of 32 columns they are parts of a block; a step for each head needs whole registers."""
    given = of_heads(offsets, heads, size, dtype)
    wanted = weighed_by_hand(given[0], given[1], offsets, heads)
    for config in (IN_A_STEP, tile.Config({"t": 16}, within=())):
        assert np.array_equal(WEIGHED(*given, config=config), wanted)
        wide = tile.Config({"t": 24}, within=config.within)
        text = WEIGHED.lower(*given, target="tpu:v6e", config=wide).source.text
        columns = size % 128 == 0 or config == IN_A_STEP
        assert ("x.reshape" not in text) == columns


def test_heads_in_memory_that_no_one_wrote():
    call, given = (
        tile.kernel(weighed, interpret=strict(), checks=False),
        of_heads(LAYOUTS[0], 2, 32),
    )
    wanted = weighed_by_hand(given[0], given[1], LAYOUTS[0], 2)
    assert np.array_equal(call(*given, config=IN_A_STEP), wanted)


@pytest.mark.parametrize("offsets", LAYOUTS[:2])
@pytest.mark.parametrize("within", [("h",), ()])
def test_heads_that_share_keys(offsets, within):
    q, k = drawn(ROWS, 4 * 128), drawn(ROWS, 2 * 128)
    result = shared_keys(q, k, np.array(offsets, np.int32), 4, 2, config=tile.Config(within=within))
    keys = np.repeat(k.reshape(ROWS, 2, 128), 2, axis=1)
    wanted = (q.reshape(ROWS, 4, 128) * keys).sum(-1).T
    inside = np.zeros(ROWS, bool)
    for begin, end in pairwise(offsets):
        inside[begin:end] = True
    assert np.array_equal(result, np.where(inside, wanted, 0))


@pytest.mark.parametrize("offsets", LAYOUTS[:2])
def test_an_array_beside_its_view(offsets):
    x = drawn(ROWS, 3 * 128)
    out, sums = turned_round(x, np.array(offsets, np.int32), 3)
    inside = np.concatenate([np.arange(a, b) for a, b in pairwise(offsets)])
    assert np.array_equal(out[inside], x.reshape(ROWS, 3, 128)[inside, ::-1])
    assert np.array_equal(sums[inside], x.sum(1)[inside])


@pytest.mark.parametrize("size", [128, 64])
def test_halves_of_rows(size):
    x, cuts = laid(drawn(ROWS, 2 * size), LAYOUTS[0])
    wanted = np.nan_to_num(x[:, :size] / (1 + np.exp(-x[:, size:])))
    np.testing.assert_allclose(gated(x, cuts), wanted, rtol=1e-5)
    text = gated.lower(x, cuts, target="tpu:v6e").source.text
    assert ("reshape" in text) == (size == 64)


@needs_libtpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("size", [128, 64, 32])
def test_columns_of_heads_compile(size, dtype):
    shapes = (tile.spec((64 * 4, 512), "float32"), tile.spec((4096, 4 * size), dtype))
    given = (*shapes, tile.spec((65,), "int32"), 4)
    assert compiled(WEIGHED, *given, target="tpu:v5e")
    assert compiled(WEIGHED, *given, target="tpu:v6e", config=tile.Config(within=("h",)))


# ---------------------------------------------------------------- rows of iterations


def test_rows_of_iterations_in_one_register_tile():
    """Eight rows hold those of all heads of a group where their number divides eight."""
    found = {}
    for heads in (1, 2, 4, 8, 3, 16):
        given = (tile.spec((64 * heads, 512), "float32"), tile.spec((4096, heads * 128), "float32"))
        call = (*given, tile.spec((65,), "int32"), heads)
        config = tile.Config({"t": 128}, within=("h",))
        windows = WEIGHED.lower(*call, target="tpu:v6e", config=config).plan.launches[0].windows
        found[heads] = next(w.block[0] for w in windows if w.array == "w")
    assert found == {1: 8, 2: 8, 4: 8, 8: 8, 3: 192, 16: 1024}


def test_of_a_row_among_many_that_one_is_loaded():
    given = (tile.spec((64 * 16, 512), "float32"), tile.spec((4096, 16 * 128), "float32"))
    config = tile.Config({"t": 128}, within=("h",))
    text = WEIGHED.source(*given, tile.spec((65,), "int32"), 16, target="tpu:v6e", config=config)
    assert "w_ref[pl.ds(g * 16 + h, 1)]" in text


@tile.kernel
def sampled(a, b, rows, cols, B: hl.constexpr = 8):
    """Some blocks of a product, as block sparse attention takes them: memory says which columns."""
    K = a.shape[1]
    blocks, columns = a.view(-1, B, K), b.view(K, -1, B)
    out = hl.empty([rows.shape[0], B, B], dtype=hl.float32)
    for i in hl.grid(rows.shape[0]):
        acc = hl.zeros([B, B], dtype=hl.float32)
        for k in hl.tile(K):
            acc = hl.dot(blocks[rows[i], :, k], columns[k, cols[i], :], acc=acc)
        out[i, :, :] = acc
    return out


ROW, COL = np.array([0, 3, 1, 3, 2], np.int32), np.array([4, 0, 2, 2, 1], np.int32)


@pytest.mark.parametrize("target", ["cpu", "tpu:v6e"])
def test_columns_that_memory_says(target):
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 129), (129, 40)))
    each = np.einsum("rik,kcj->rcij", a.reshape(4, 8, 129), b.reshape(129, 5, 8))
    found = sampled(a, b, ROW, COL, target=target)
    np.testing.assert_allclose(found, each[ROW, COL], rtol=1e-4, atol=1e-4)


SAMPLED = (
    *(tile.spec(shape, "float32") for shape in ((32, 128), (128, 40))),
    *[tile.spec(ROW.shape, "int32")] * 2,
)


def parts_of_registers():
    """Whether columns begin where memory says, inside of a register: Mosaic takes none."""
    return "columns_ref[:, pl.ds(" in str(again(sampled).source(*SAMPLED, target="tpu:v6e"))


@needs_libtpu
def test_no_slice_begins_inside_of_a_register_tile():
    assert not parts_of_registers()
    compiled(sampled, *SAMPLED, target="tpu:v6e")


def test_planted_numbers_of_turns_that_memory_says(monkeypatch):
    monkeypatch.setattr(columns, "reads_memory", lambda expr: False)
    assert parts_of_registers()


# ---------------------------------------------------------------- planted bugs

_WEIGHED = partial(bug, "weighed", "columns")
BUGS: tuple[Bug, ...] = (
    _WEIGHED("every head's columns are the first one's",
             "[:, pl.ds(h * 32, 32)]", "[:, pl.ds(0, 32)]"),
    _WEIGHED("every head's columns are those of the next one",
             "[:, pl.ds(h * 32, 32)]", "[:, pl.ds((h + 1) % 3 * 32, 32)]"),
    _WEIGHED("the row is that of another iteration", "pl.ds(g * 3 + h, 1)", "pl.ds(g * 3, 1)"),
)  # fmt: skip


@pytest.mark.parametrize("planted", BUGS, ids=str)
def test_a_planted_bug_in_columns_is_noticed(planted):
    given = of_heads((0, 5, 5, 11, 16, 30, 33, 40, 41, 42, 43, 44, 45, 46, 47, 47, 48), 3, 32)
    lowered = WEIGHED.lower(*given, config=IN_A_STEP)
    call = trial.runnable(lowered, planted.plant(lowered.source.text), strict())
    assert not np.array_equal(np.asarray(call(*given[:3])[0]), WEIGHED(*given, config=IN_A_STEP))
