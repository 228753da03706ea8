"""single_parts: a position of what parts are stored of is a part of one, and nothing else is."""

from __future__ import annotations

import tilelang as tile
import tilelang.language as hl
from tests.derivatives import parsed
from tests.passes.becomes import becomes, stays
from tilelang.codegen.pallas.passes.single_parts import single_parts

ROWS = tile.spec((40, 16), "float32")


@tile.kernel
def beside(x):
    y = hl.zeros([x.shape[0], 17])
    for t in hl.tile(x.shape[0]):
        y[t, 0:16] = x[t, :]
        y[t, 16] = x[t, 3]
    return y


@tile.kernel
def updated(x):
    y = hl.zeros([3, 17])
    for g in hl.grid(3):
        for t in hl.tile(x.shape[0]):
            y[g, 0:16] += x[t, :].sum(0)
            hl.atomic_add(y, [g, 16], x[t, :].sum())
    return y


@tile.kernel
def planes(x):
    """Of two dimensions; what is read again is as it was."""
    y = hl.zeros([3, x.shape[0], 17])
    for t in hl.tile(x.shape[0]):
        y[0, t, 0] = x[t, 0]
        y[1:3, t, 1:17] = x[t, :] * y[0, t, 0][:, None]
        y[0, t, 1:17] = x[t, :]
    return y


@tile.kernel
def apart(x):
    """Parts in a nest, and positions in another; of what is only read, both."""
    y = hl.zeros([x.shape[0], 17])
    for t in hl.tile(x.shape[0]):
        y[t, 0:16] = x[t, 0:16] * x[t, 0][:, None]
    for s in hl.tile(x.shape[0]):
        y[s, 16] = x[s, 3]
        y[s, 15] = x[s, 3]
    return y


def test_a_position_beside_a_part_is_a_part_of_one() -> None:
    becomes(
        parsed(beside, (ROWS,))[0],
        single_parts,
        """
        for t in tile(40):
            y[t, 0:16] = x[t, 0:16]
            y[t, 16] = x[t, 3]
        """,
        """
        for t in tile(40):
            y[t, 0:16] = x[t, 0:16]
            y[t, 16:17] = expand_dims(x[t, 3], axis=1)
        """,
    )


def test_an_update_is_one_of_what_is_there() -> None:
    becomes(
        parsed(updated, (ROWS,))[0],
        single_parts,
        """
        for g in grid(3):
            for t in tile(40):
                y[g, 0:16] = y[g, 0:16] + sum(x[t, 0:16], axis=0)
                y[g, 16] = y[g, 16] + sum(sum(x[t, 0:16], axis=1), axis=0)
        """,
        """
        for g in grid(3):
            for t in tile(40):
                y[g, 0:16] = y[g, 0:16] + sum(x[t, 0:16], axis=0)
                y[g, 16:17] = y[g, 16:17] + expand_dims(sum(sum(x[t, 0:16], axis=1), axis=0), axis=0)
        """,
    )


def test_positions_of_two_dimensions() -> None:
    becomes(
        parsed(planes, (ROWS,))[0],
        single_parts,
        """
        for t in tile(40):
            y[0, t, 0] = x[t, 0]
            y[1:3, t, 1:17] = broadcast(x[t, 0:16] * expand_dims(y[0, t, 0], axis=1), [2, t, 16])
            y[0, t, 1:17] = x[t, 0:16]
        """,
        """
        for t in tile(40):
            y[0:1, t, 0:1] = expand_dims(expand_dims(x[t, 0], axis=0), axis=2)
            y[1:3, t, 1:17] = broadcast(x[t, 0:16] * expand_dims(squeeze(squeeze(y[0:1, t, 0:1], axis=2), axis=0), axis=1), [2, t, 16])
            y[0:1, t, 1:17] = expand_dims(x[t, 0:16], axis=0)
        """,
    )


def test_others_stay() -> None:
    stays(parsed(apart, (ROWS,))[0], single_parts)
