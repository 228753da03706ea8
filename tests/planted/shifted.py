"""Bugs of stores at an offset or a factor: what is asked of a loop instead of the block it moves.

The subjects are those of `tests.codegen.shifted`, which no example is.
"""

from __future__ import annotations

from functools import partial

from tests.planted.bug import Bug, bug

_NEXT = partial(bug, "next_row", "default")
_ODD = partial(bug, "odd_rows", "default")
_BACK = partial(bug, "backwards", "default")
_GROUPS = partial(bug, "group_sums", "table")
_FIRST = "(jax.lax.rem(i + 1, 8) == 0) | (i == 0)"
_ODD_FIRST = "jax.lax.div(2 * (i - 1) + 1, 8) != jax.lax.div(2 * i + 1, 8)"
_ROW_BEFORE = "jax.lax.div(g_of[before] + 1, 8) != jax.lax.div(g + 1, 8)"

SHIFTED: tuple[Bug, ...] = (
    _NEXT("first visit of the axis, not of the block", _FIRST, "jax.lax.rem(i, 8) == 0"),
    _NEXT("every step is a first visit", _FIRST, "i >= 0"),
    _NEXT("offset of the block dropped", "jax.lax.div(i + 1, 8)", "jax.lax.div(i, 8)"),
    _NEXT("offset of the row dropped", "(i + 1) % 8", "i % 8"),
    _ODD("factor of the block dropped", "jax.lax.div(2 * i + 1, 8)", "jax.lax.div(i + 1, 8)"),
    _ODD("first visit of every position", _ODD_FIRST, "2 * (i - 1) + 1 != 2 * i + 1"),
    _BACK("first visit as if rows rose", "jax.lax.div(69 - (i - 1), 8) != jax.lax.div(69 - i, 8)",
          "jax.lax.rem(69 - i, 8) == 0"),
    _GROUPS("first visit of the group, not of the block", _ROW_BEFORE,
            "jax.lax.div(g_of[before], 8) != jax.lax.div(g, 8)"),
    _GROUPS("first visit at every group", _ROW_BEFORE, "g_of[before] != g"),
    _GROUPS("last visit one group early", "g_of[after] != g", "g_of[after] != g + 1"),
    bug("group_sums", "rectangle", "first visit of the group, not of the block",
        "jax.lax.div(before[0] + 1, 8) != jax.lax.div(g + 1, 8)",
        "jax.lax.div(before[0], 8) != jax.lax.div(g, 8)"),
    bug("sums_of_two", "default", "first visit of every position",
        "jax.lax.div((i - 1) // 2, 8) != jax.lax.div(i // 2, 8)", "(i - 1) // 2 != i // 2"),
)  # fmt: skip
