"""Outputs whose heads are returned side by side are stored as columns of what is returned."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen.flowing import LAYOUTS, ROWS, laid, strict
from tests.codegen.test_columns import drawn
from tests.planted import trial
from tests.planted.bug import Bug, bug

Offsets = tuple[int, ...]


@tile.kernel
def doubled(x, offsets, H: hl.constexpr):
    """Twice each head of a row, the heads in the other order; other rows are 0."""
    M, D = x.shape[0], x.shape[1] // H
    heads = x.reshape(M, H, D)
    out = hl.zeros([M, H, D], dtype=x.dtype)
    for g, h in hl.grid([offsets.shape[0] - 1, H]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            out[t, H - 1 - h, :] = heads[t, h, :] * 2
    return out.reshape(M, H * D)


@tile.kernel
def rotated(x, offsets):
    """The sum and the difference of the halves of a row, side by side."""
    M, D = x.shape[0], x.shape[1] // 2
    halves = x.reshape(M, 2, D)
    out = hl.zeros([M, 2, D], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            out[t, 0, :] = halves[t, 0, :] + halves[t, 1, :]
            out[t, 1, :] = halves[t, 0, :] - halves[t, 1, :]
    return out.reshape(M, 2 * D)


@tile.kernel
def in_two_loops(x, offsets, H: hl.constexpr):
    """Heads that two loops store, and one that nobody does."""
    M, D = x.shape[0], x.shape[1] // H
    heads = x.reshape(M, H, D)
    out = hl.full([M, H, D], 7, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            for h in hl.grid(H - 2):
                out[t, h, :] = heads[t, h, :]
    for t in hl.tile(M):
        out[t, H - 1, :] = heads[t, 0, :]
    return out.reshape(M, H * D)


@tile.kernel
def to_rows(p, offsets, M: hl.constexpr, H: hl.constexpr):
    """Padded rows of heads, back in the rows of their groups."""
    G, L, D = p.shape[0], p.shape[1], p.shape[2] // H
    heads = p.reshape(G, L, H, D)
    out = hl.zeros([M, H, D], dtype=p.dtype)
    for g, h in hl.grid([G, H]):
        n = hl.minimum(offsets[g + 1] - offsets[g], L)
        for t in hl.tile(n, max_extent=L):
            out[offsets[g] + t.index, h, :] = heads[g, t, h, :]
    return out.reshape(M, H * D)


@tile.kernel
def swapped(qkv, H: hl.constexpr):
    """Rows that hold q, k and v of all heads: v for q, k and the sum of q and v."""
    M, D = qkv.shape[0], qkv.shape[1] // (3 * H)
    parts = qkv.reshape(M, 3, H, D)
    out = hl.empty([M, 3, H, D], dtype=qkv.dtype)
    for h in hl.grid(H):
        for t in hl.tile(M):
            out[t, 0, h, :] = parts[t, 2, h, :]
            out[t, 1, h, :] = parts[t, 1, h, :]
            out[t, 2, h, :] = parts[t, 0, h, :] + parts[t, 2, h, :]
    return out.reshape(M, 3 * H * D)


@tile.kernel
def in_both_shapes(x, H: hl.constexpr):
    M, D = x.shape[0], x.shape[1] // H
    heads = x.reshape(M, H, D)
    out = hl.empty([M, H, D], dtype=x.dtype)
    for h in hl.grid(H):
        for t in hl.tile(M):
            out[t, h, :] = heads[t, h, :]
    return out.reshape(M, H * D), out


@tile.kernel
def read_again(x, H: hl.constexpr):
    M, D = x.shape[0], x.shape[1] // H
    heads = x.reshape(M, H, D)
    out = hl.empty([M, H, D], dtype=x.dtype)
    sums = hl.empty([M], dtype=x.dtype)
    for h in hl.grid(H):
        for t in hl.tile(M):
            out[t, h, :] = heads[t, h, :]
    for t in hl.tile(M):
        sums[t] = out[t, 0, :].sum(1)
    return out.reshape(M, H * D), sums


@pytest.fixture(autouse=True)
def anew():
    yield
    pltpu.reset_tpu_interpret_mode_state()


def within_groups(offsets: Offsets) -> np.ndarray:
    inside = np.zeros((ROWS, 1), bool)
    for begin, end in pairwise(offsets):
        inside[begin:end] = True
    return inside


def in_columns(kernel: tile.Kernel, *given: object, config: tile.Config | None = None) -> bool:
    """Whether an output is made as the rows that are returned."""
    lowered = kernel.lower(*given, target="tpu:v6e", config=config)
    return "out_columns = pl.pallas_call" in lowered.source.text


CONFIGS = (None, tile.Config({"t": 16}, within=()), tile.Config({"t": 24}, within=("h",)))


@pytest.mark.parametrize("config", CONFIGS, ids=str)
@pytest.mark.parametrize(("size", "dtype"), [(128, "float32"), (32, "bfloat16")])
@pytest.mark.parametrize("offsets", LAYOUTS[:2])
def test_heads_of_a_step(offsets, size, dtype, config):
    x = drawn(ROWS, 4 * size, dtype=dtype)
    given, cuts = laid(x, offsets)
    wanted = (x * 2).reshape(ROWS, 4, size)[:, ::-1].reshape(ROWS, 4 * size)
    found = doubled(given, cuts, 4, config=config)
    assert np.array_equal(found, np.where(within_groups(offsets), wanted, 0))
    if config is not None:  # of 32 columns they are parts of a block
        fits = size == 128 or bool(config.within)
        assert in_columns(doubled, given, cuts, 4, config=config) == fits


@pytest.mark.parametrize("offsets", LAYOUTS[:2])
def test_constant_heads_are_parts_of_one_block(offsets):
    x = drawn(ROWS, 2 * 128)
    given, cuts = laid(x, offsets)
    wanted = np.concatenate([x[:, :128] + x[:, 128:], x[:, :128] - x[:, 128:]], axis=1)
    found = rotated(given, cuts, config=tile.Config({"t": 16}))
    assert np.array_equal(found, np.where(within_groups(offsets), wanted, 0))
    assert "out_ref[:, 128:256]" in rotated.source(given, cuts, config=tile.Config({"t": 16}))


@pytest.mark.parametrize("size", [128, 32])
@pytest.mark.parametrize("within", [("h",), ()])
def test_rows_of_several_dimensions(size, within):
    x, config = drawn(ROWS, 3 * 2 * size), tile.Config({"t": 16}, within=within)
    q, k, v = np.split(x, 3, axis=1)
    assert np.array_equal(swapped(x, 2, config=config), np.concatenate([v, k, q + v], axis=1))
    fits = size == 128 or bool(within)
    assert in_columns(swapped, x, 2, config=config) == fits
    assert ("qkv.reshape" in swapped.source(x, 2, target="tpu:v6e", config=config)) != fits


@pytest.mark.parametrize("within", [("h",), ()])
def test_what_several_loops_store(within):
    x = drawn(ROWS, 4 * 128)
    given, cuts = laid(x, LAYOUTS[0])
    inside = within_groups(LAYOUTS[0])
    heads = [x[:, h * 128 : (h + 1) * 128] for h in (0, 1)]
    last = np.nan_to_num(given[:, :128])
    wanted = [*(np.where(inside, head, 7) for head in heads), np.full((ROWS, 128), 7), last]
    found = in_two_loops(np.nan_to_num(given), cuts, 4, config=tile.Config(within=within))
    assert np.array_equal(found, np.concatenate(wanted, axis=1))


@pytest.mark.parametrize("within", [("h",), ()])
def test_moved_stores(within):
    offsets = (0, 5, 5, 21, 40)
    padded = drawn(4, 24, 2 * 128)
    wanted = np.zeros((ROWS, 2 * 128), np.float32)
    for g, (begin, end) in enumerate(pairwise(offsets)):
        wanted[begin:end] = padded[g, : end - begin]
    config = tile.Config({"t": 8}, within=within)
    assert np.array_equal(to_rows(padded, np.array(offsets), ROWS, 2, config=config), wanted)


def test_memory_that_no_one_wrote_and_offsets_beyond_the_array():
    call = tile.kernel(doubled.__wrapped__, interpret=strict(), checks=False)
    x, cuts = laid(drawn(ROWS, 4 * 32), LAYOUTS[0])
    config = tile.Config({"t": 16}, within=("h",))
    assert np.array_equal(call(x, cuts, 4, config=config), doubled(x, cuts, 4, config=config))
    wild = np.where(np.arange(len(cuts)) % 3 == 1, 2**30, cuts).astype(np.int32)
    assert call(x, wild, 4, config=config).shape == (ROWS, 4 * 32)


def test_what_is_seen_otherwise_keeps_its_shape():
    """Returned as it is, or read by another loop: rows of heads are then wanted too."""
    x = drawn(ROWS, 2 * 128)
    rows, heads = in_both_shapes(x, 2)
    assert np.array_equal(rows, x) and np.array_equal(heads, x.reshape(ROWS, 2, 128))
    assert not in_columns(in_both_shapes, x, 2)
    rows, sums = read_again(x, 2)
    assert np.array_equal(rows, x) and np.array_equal(sums, x[:, :128].sum(1))
    assert not in_columns(read_again, x, 2)


@needs_libtpu
@pytest.mark.parametrize("size", [128, 64])
def test_heads_in_columns_compile(size):
    given = tile.spec((4096, 4 * size), "bfloat16"), tile.spec((65,), "int32"), 4
    config = tile.Config({"t": 128}, within=("h",))
    assert compiled(doubled, *given, target="tpu:v5e", config=config)
    assert compiled(in_two_loops, *given, target="tpu:v6e")


_DOUBLED = partial(bug, "doubled", "columns")
BUGS: tuple[Bug, ...] = (
    _DOUBLED("every head goes to the columns of the first one",
             "out_ref[:, pl.ds((3 - h) * 32, 32)] =", "out_ref[:, pl.ds(0, 32)] ="),
    _DOUBLED("rows of others get what other columns held",
             ", out_ref[:, pl.ds((3 - h) * 32, 32)]", ", out_ref[:, pl.ds(h * 32, 32)]"),
)  # fmt: skip


@pytest.mark.parametrize("planted", BUGS, ids=str)
def test_a_planted_bug_in_merged_outputs_is_noticed(planted):
    x, cuts = laid(drawn(ROWS, 4 * 32), LAYOUTS[0])
    config = tile.Config({"t": 16}, within=("h",))
    lowered = doubled.lower(x, cuts, 4, config=config)
    call = trial.runnable(lowered, planted.plant(lowered.source.text), strict())
    assert not np.array_equal(np.asarray(call(x, cuts)[0]), doubled(x, cuts, 4, config=config))
