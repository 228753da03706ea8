"""Planted bugs of lanes outside of arrays, looked-up tables, and carries of the outermost loop.

Each is a wrong text of a kernel of tests/codegen; what the kernel must give is known exactly.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import tilelang as tile
from tests.codegen import (
    test_all_lanes,
    test_by_phases,
    test_lookup,
    test_outer_carry,
    test_outside,
    test_pieces,
    test_planes,
    test_stacked,
)

ROWS = np.arange(33 * 8, dtype=np.float32).reshape(33, 8) % 13
STARTS = np.array([-3, 0, 30, 33], np.int32)
SPLIT = np.array([0, 10, 33], np.int32)
QUERIES = np.arange(40 * 8, dtype=np.float32).reshape(40, 8) % 5
TABLE = np.arange(10, dtype=np.float32).reshape(2, 5) ** 2
PAIR = np.array([0, 7, 40], np.int32)
PLANES = np.arange(45 * 21, dtype=np.float32).reshape(45, 21) % 11
OFFSETS = test_outer_carry.OFFSETS.astype(np.int32)


@dataclass(frozen=True)
class Case:
    """A kernel with arguments, a config, and the exact results."""

    kernel: Any
    arguments: tuple[Any, ...]
    config: tile.Config
    exact: Callable[[], tuple[np.ndarray, ...]]


def _sums() -> tuple[np.ndarray, ...]:
    return (np.concatenate([ROWS[:10].cumsum(0), ROWS[10:].cumsum(0)]),)


CASES = {
    "causal": Case(test_outside.causal, (ROWS, SPLIT, 32), tile.Config({"tq": 8, "tk": 8}), _sums),
    "windows": Case(
        test_outside.windows,
        (ROWS, STARTS, 20),
        tile.Config({"t": 16}),
        lambda: test_outside.rows_of(ROWS, STARTS, 20),
    ),
    "biased": Case(
        test_lookup.biased,
        (QUERIES, TABLE, PAIR),
        tile.Config({"tq": 16, "tk": 8}),
        lambda: (test_lookup.biased_exact(QUERIES, TABLE, PAIR),),
    ),
    "planes": Case(
        test_planes.between,
        (PLANES, np.array(test_planes.LAYOUTS[1], np.int32)),
        tile.Config({"t": 16}),
        lambda: (test_planes.by_hand("between", PLANES, test_planes.LAYOUTS[1]),),
    ),
    "running": Case(
        test_outer_carry.running,
        (test_outer_carry.X, OFFSETS),
        tile.Config({"t": 16}),
        test_outer_carry.exact,
    ),
    "recurrent": Case(
        test_by_phases.recurrent,
        (test_by_phases.X, test_by_phases.W, test_by_phases.CUTS),
        tile.Config({"tm": 16}, within=["a", "b"]),
        test_by_phases.result,
    ),
    "shared": Case(
        test_stacked.shared,
        (test_stacked.X, test_stacked.W, test_stacked.CUTS, 0, 2),
        test_stacked.TOGETHER,
        lambda: (
            test_stacked.shared_by_hand(test_stacked.X, test_stacked.W, test_stacked.CUTS, share=2),
        ),
    ),
    "walked": Case(
        test_pieces.walked,
        (test_pieces.X, test_pieces.KEYS, test_pieces.VALUES, test_pieces.CUTS, "plain"),
        test_pieces.config(8),
        lambda: (test_pieces.walked_by_hand(test_pieces.CUTS),),
    ),
    "prefixes": Case(
        test_all_lanes.prefixes,
        (test_all_lanes.X, test_all_lanes.Z, test_all_lanes.CUTS),
        tile.Config({"tm": 16}),
        test_all_lanes.prefixed,
    ),
}

_INSIDE = "tk_index_1 + start < 33"
_BEHIND = "t_index + starts[g] < 33"

BUGS = (
    ("causal", "lanes behind the array are read", f"({_INSIDE}) & tk_mask_1", "tk_mask_1"),
    ("causal", "one row behind the array is read", _INSIDE, _INSIDE.replace("33", "34")),
    ("windows", "a mask by a product: 0 * NaN", _BEHIND, _BEHIND.replace("33", "99")),
    ("windows", "the last row is taken for one behind", _BEHIND, _BEHIND.replace("33", "32")),
    ("biased", "an entry is left out", "rel >= 3", "rel >= 4"),
    ("biased", "entries of the first head", "bias[h, 2]", "bias[0, 2]"),
    ("planes", "one row of the block for two planes", "y_ref[3] = ", "y_ref[1] = "),
    ("planes", "a plane keeps what another one holds", "* 2.0, y_ref[3]", "* 2.0, y_ref[1]"),
    ("planes", "a fill of one plane only", "y_ref[...] = jnp.zeros((4, 16, 21), jnp.float32)",
     "y_ref[1] = jnp.zeros((16, 21), jnp.float32)"),
    ("running", "the carry begins anew in every group", "acc_ref_1[...] = acc_ref[...]",
     "acc_ref_1[...] = jnp.zeros((1, 12), jnp.float32)"),
    ("recurrent", "the state of the first iteration for all", "state = state_ref[a, b]",
     "state = state_ref[0, b]"),
    ("recurrent", "products of two iterations in one place", "mixed_ref[a, b] = ",
     "mixed_ref[a, 0] = "),
    ("recurrent", "the product of the last iteration for all", "jnp.sum(mixed_ref[a, b]",
     "jnp.sum(mixed_ref[a, 1]"),
    ("shared", "rows of the first heads for all", "x_ref[h : h + 2]", "x_ref[0:2]"),
    ("shared", "the weights of the next heads", "w_ref[h // 2]", "w_ref[(h // 2 + 1) % 4]"),
    ("shared", "every second group of heads is left out", "range(0, 8, 2)", "range(0, 8, 4)"),
    ("shared", "rows come back in another order", ".reshape((2, 16, 16))",
     ".reshape((16, 2, 16)).transpose(1, 0, 2)"),
    ("walked", "every piece has the products of the first one",
     "tm_piece_products(tm_piece + 1)", "tm_piece_products(0)"),
    ("walked", "products come back one piece later", "scores = tm_piece_ahead",
     "scores = tm_piece_products(min(tm_piece + 1, 1))"),
    ("walked", "rows of the next piece are masked by those of the first one",
     "tm * 16 + tm_piece * 8", "tm * 16"),
    ("walked", "every piece scales the sums of the first one",
     "m = m_ref[pl.ds(tm_piece * 8, 8)]", "m = m_ref[pl.ds(0, 8)]"),
    ("prefixes", "only the first lane is summed", "jnp.sum(x_ref[...], axis=1, keepdims=True)",
     "jnp.pad(jnp.sum(x_ref[...], axis=1, keepdims=True), ((0, 0), (0, 127)))"),
    ("prefixes", "lanes begin apart", "jnp.zeros((16, 128), jnp.float32)",
     "jnp.ones((16, 128)).at[:, 0].set(0)"),
    ("prefixes", "the second half meets the column of before", "jnp.tile(total, (1, 2))",
     "jnp.concatenate([total, total_ref[...]], 1)"),
    ("running", "the carry is not handed on", "            acc_ref[...] = acc\n", ""),
)  # fmt: skip
