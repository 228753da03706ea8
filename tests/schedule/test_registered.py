"""Block sizes that the author registered: bounds hold for defaults, configs and the oracle."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.pallas.plan import defaults
from tilelang.errors import CallError, InternalError, ParseError, PlanError

TARGETS = ("cpu", "tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e")
ROWS = (5, 100, 5000)


@tile.kernel
def parts(x):
    """Which part of 128 each element lies in."""
    out = hl.empty(x.shape, dtype=hl.float32)
    block = hl.register_block_size(16, 128)
    for t in hl.tile(x.shape[0], block_size=block):
        out[t] = x[t] * 0 + t.index // 128
    return out


@tile.kernel
def shared(x, w, offsets):
    """One block for rows of two arrays and for the ranges of a third, one for all columns."""
    a, b, c = hl.empty_like(x), hl.empty_like(w), hl.zeros_like(x)
    rows, columns = hl.register_block_size(16, 128), hl.register_block_size(256)
    for t, n in hl.tile(x.shape, block_size=[rows, columns]):
        a[t, n] = x[t, n]
    for t in hl.tile(w.shape[0], block_size=rows):
        b[t, :] = w[t, :]
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=rows):
            for n in hl.tile(x.shape[1], block_size=columns):
                c[t, n] = x[t, n]
    return a, b, c


@tile.kernel
def without_bounds(x, w):
    a, b = hl.empty_like(x), hl.empty_like(w)
    rows = hl.register_block_size()
    for t in hl.tile(x.shape[0], block_size=rows):
        a[t, :] = x[t, :]
    for t in hl.tile(w.shape[0], block_size=rows):
        b[t, :] = w[t, :]
    return a, b


@tile.kernel
def product(x, w):
    """The default would take the contracted dimension whole."""
    y = hl.zeros([x.shape[0], w.shape[1]], dtype=hl.float32)
    inner = hl.register_block_size(256)
    for tm, tn in hl.tile(y.shape):
        acc = hl.zeros([tm, tn], dtype=hl.float32)
        for tk in hl.tile(x.shape[1], block_size=inner):
            acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        y[tm, tn] = acc
    return y


def blocks(kernel, *arguments, target, **options):
    return dict(kernel.lower(*arguments, target=target, **options).plan.blocks)


def test_a_default_lies_within_the_bounds():
    x = np.zeros(512, np.float32)
    np.testing.assert_array_equal(np.asarray(parts(x)), np.arange(512) // 128)
    np.testing.assert_array_equal(parts.reference(x), np.arange(512) // 128)


@pytest.mark.parametrize("target", TARGETS)
def test_loops_that_share_a_block_have_one(target):
    for rows in ROWS:
        for others in (5, 3000):
            arguments = (np.zeros((rows, 2000), np.float32), np.zeros((others, 40), np.float32))
            found = blocks(shared, *arguments, np.array([0, rows]), target=target)
            chosen = {found[n] for n in ("t", "t_1", "t_2") if found[n] not in (rows, others)}
            assert len(chosen) <= 1 and all(16 <= b <= 128 for b in chosen)
            assert found["t"] <= 128 and found["t_1"] <= 128 and found["t_2"] <= 128
            assert found["n"] == found["n_1"] == 256
            free = blocks(without_bounds, *arguments, target=target)
            assert len({b for n, b in free.items() if b not in (rows, others)}) <= 1


@pytest.mark.parametrize("target", TARGETS)
def test_a_contracted_dimension_is_not_taken_whole(target):
    x, w = np.zeros((300, 4096), np.float32), np.zeros((4096, 300), np.float32)
    assert blocks(product, x, w, target=target)["tk"] == 256


@pytest.mark.parametrize("rows", [5, 40, 1000])
def test_a_default_config_can_be_given_back(rows):
    arguments = (
        np.ones((rows, 300), np.float32),
        np.ones((20, 9), np.float32),
        np.array([0, rows]),
    )
    config = shared.default_config(*arguments)
    chosen = dict(config.blocks)
    assert 16 <= chosen["rows"] <= 128 and chosen["columns"] == 256
    assert blocks(shared, *arguments, target="cpu", config=config) == blocks(
        shared, *arguments, target="cpu"
    )
    assert "block rows: 16 to 128\nblock columns: 1 to 256\n" in shared.explain(*arguments)


@pytest.mark.parametrize("block", [8, 15, 129, 256])
def test_a_config_outside_of_the_bounds_is_refused(block):
    x = np.zeros(512, np.float32)
    what = f"a block of {block} for block, which goes from 16 to 128"
    for config in (tile.Config({"block": block}), tile.Config(block_sizes=[block])):
        with pytest.raises(PlanError) as caught:
            parts(x, config=config)
        assert caught.value.what == what
        assert caught.value.loc.text.strip() == "block = hl.register_block_size(16, 128)"
        hint = "choose one within the bounds, or change what hl.register_block_size is given"
        assert caught.value.hint == hint
    with pytest.raises(CallError) as refused:
        parts.reference(x, blocks={"block": block})
    assert refused.value.what == what and refused.value.loc == caught.value.loc


def test_bounds_that_no_target_can_honour():
    @tile.kernel
    def narrow(x):
        out = hl.empty_like(x)
        block = hl.register_block_size(64)
        for t in hl.tile(x.shape[1], block_size=block):
            out[:, t] = x[:, t]
        return out

    x = np.zeros((8, 2000), np.float32)
    assert blocks(narrow, x, target="cpu") == {"t": 64}
    with pytest.raises(PlanError) as caught:
        blocks(narrow, x, target="tpu:v6e")
    assert caught.value.what == "a block of 64 for t cannot be cut from a dimension of 2000"
    assert caught.value.hint == "on tpu:v6e it is a multiple of 128: raise the bound of block"
    assert blocks(narrow, x[:, :50], target="tpu:v6e") == {"t": 50}


@pytest.mark.parametrize("bounds", [(0,), (0, 8), (64, 16), (-4, -2)])
def test_bounds_that_hold_nothing(bounds):
    @tile.kernel
    def kernel(x):
        out = hl.empty_like(x)
        block = hl.register_block_size(*bounds)
        for t in hl.tile(x.shape[0], block_size=block):
            out[t] = x[t]
        return out

    with pytest.raises(ParseError) as caught:
        kernel.source(np.zeros(8, np.float32))
    shown = ", ".join(map(str, bounds))
    assert caught.value.what == f"hl.register_block_size({shown}) leaves no block size"
    assert caught.value.hint == "the least is 1 or more, and the most no less than it"


def test_more_than_two_bounds():
    @tile.kernel
    def kernel(x):
        out = hl.empty_like(x)
        for t in hl.tile(x.shape[0], block_size=hl.register_block_size(1, 2, 3)):
            out[t] = x[t]
        return out

    with pytest.raises(ParseError) as caught:
        kernel.source(np.zeros(8, np.float32))
    assert caught.value.what == "hl.register_block_size with 3 bounds"
    hint = "hl.register_block_size(most) or hl.register_block_size(least, most)"
    assert caught.value.hint == hint


# ---------------------------------------------------------------- block_size is a number


@tile.kernel
def scaled_parts(x, w, scale, offsets):
    """Weights have a scale for every 128 of the contracted dimension: `.id` counts them."""
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], w.shape[2]]):
            acc = hl.zeros([tm, tn], dtype=hl.float32)
            for tk in hl.tile(w.shape[1], block_size=128):
                part = hl.dot(x[tm, tk], w[g, tk, tn].to(x.dtype))
                acc = acc + part * scale[g, tk.id, tn][None, :]
            y[tm, tn] = acc
    return y


def of_parts(rows, inner, columns):
    return (
        tile.spec((rows, inner), "float32"),
        tile.spec((3, inner, columns), "int8"),
        tile.spec((3, -(-inner // 128), columns), "float32"),
        tile.spec((4,), "int32"),
    )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("sizes", [(24, 512, 16), (5000, 4096, 8192)])
def test_a_fixed_block_is_not_taken_whole_and_does_not_shrink(target, sizes):
    plan = scaled_parts.lower(*of_parts(*sizes), target=target).plan
    assert dict(plan.blocks)["tk"] == 128


def test_a_product_with_a_scale_for_every_fixed_block():
    rng = np.random.default_rng(0)
    x, scale = rng.standard_normal((24, 512), np.float32), rng.random((3, 4, 16), np.float32)
    w, cuts = rng.integers(-8, 8, (3, 512, 16)).astype(np.int8), np.array([2, 9, 9, 21], np.int32)
    exact = np.zeros((24, 16))
    for g, (begin, end) in enumerate(itertools.pairwise(cuts)):
        exact[begin:end] = x[begin:end].astype(float) @ (w[g] * np.repeat(scale[g], 128, 0))
    np.testing.assert_allclose(scaled_parts(x, w, scale, cuts), exact, atol=1e-3)


def test_a_fixed_block_that_the_defaults_take_whole_is_an_error(monkeypatch):
    """As long as dimensions are taken whole without asking, numbers of tiles are wrong."""
    monkeypatch.setattr(defaults, "_open", lambda problem, name: True)
    with pytest.raises(InternalError, match="blocks of 512, not of 128"):
        tile.kernel(scaled_parts.__wrapped__).lower(*of_parts(24, 512, 16))
