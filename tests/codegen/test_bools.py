"""Bools in every memory that the plan has: blocks, turned copies, values that are carried."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu

X = np.random.default_rng(0).standard_normal((20, 4, 16)).astype(np.float32)
SHOWN = X > 0.3


@tile.kernel
def picked(shown, x):
    """Bools of heads between tokens and width: every head reads some and stores some."""
    T, H, D = x.shape
    y = hl.empty([T, H, D], dtype=hl.float32)
    more = hl.empty([T, H, D], dtype=hl.bool)
    for t in hl.tile(T):
        for h in hl.grid(H):
            own = shown[t, h, :]
            y[t, h, :] = hl.where(own, x[t, h, :], -1.0)
            more[t, h, :] = own & (x[t, h, :] > 0)
    return y, more


@tile.kernel
def marked(flags, x):
    """Bools of heads that are stored in place: those stay bools."""
    for t in hl.tile(flags.shape[0]):
        for h in hl.grid(flags.shape[1]):
            flags[t, h, :] = x[t, h, :] > 0.3


@tile.kernel
def permuted(x):
    """A condition of three dimensions that is turned."""
    T, H, D = x.shape
    y = hl.empty([H, T, D], dtype=hl.float32)
    for t in hl.tile(T):
        shown = hl.permute(x[t, :, :] > 0.3, (1, 0, 2))
        y[:, t, :] = hl.where(shown, 1.0, hl.permute(x[t, :, :], (1, 0, 2)))
    return y


@tile.kernel
def seen(x):
    """y[t] = whether a row up to t has a number above 2: a bool that steps hand on."""
    T, H, D = x.shape
    y = hl.empty([H, T, D], dtype=hl.float32)
    for h in hl.grid(H):
        found = hl.zeros([D], dtype=hl.bool)
        for t in hl.grid(T):
            found = found | (x[t, h, :] > 1.0)
            y[h, t, :] = hl.where(found, 1.0, 0.0)
    return y


WAYS = (None, tile.Config(within=["h"]), tile.Config({"t": 8}, within=["h"]))


@pytest.mark.parametrize("config", WAYS, ids=str)
def test_bools_of_heads(config):
    y, more = picked(SHOWN, X, config=config)
    np.testing.assert_array_equal(y, np.where(SHOWN, X, -1))
    np.testing.assert_array_equal(more, SHOWN & (X > 0))


def test_copies_that_are_turned_hold_numbers():
    text = picked.source(SHOWN, X, config=WAYS[1])
    held = text.partition("scratch_shapes")[2].partition("interpret=")[0]
    assert "jnp.int8" in held and "jnp.bool_" not in held
    assert "shown_bytes_by_h_ref[h].astype(jnp.int32) != 0" in text


def test_copies_of_bools_that_are_changed_hold_numbers():
    flags = ~SHOWN
    marked(flags, X, config=WAYS[1])
    np.testing.assert_array_equal(flags, SHOWN)
    text = marked.source(flags, X, config=WAYS[1])
    assert "jnp.bool_" not in text.partition("scratch_shapes")[2].partition("interpret=")[0]


def test_conditions_that_are_permuted():
    expected = np.where(SHOWN, 1, X).transpose(1, 0, 2)
    np.testing.assert_array_equal(permuted(X), expected)


def test_bools_that_steps_hand_on():
    expected = np.logical_or.accumulate(X > 1, axis=0).transpose(1, 0, 2)
    np.testing.assert_array_equal(seen(X), expected)


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("kernel", [picked, permuted, seen], ids=["picked", "permuted", "seen"])
def test_the_tpu_compiler_takes_them(kernel):
    arrays = (SHOWN, X) if kernel is picked else (X,)
    compiled(kernel, *arrays, target="tpu:v6e")
