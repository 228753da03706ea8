"""Bugs of moved tiles that are cut from their arrays: which rows come, and where they are put."""

from __future__ import annotations

from functools import partial

from tests.planted.bug import Bug, bug

_BOXES = partial(bug, "jagged_to_padded", "cut")
_ROWS = partial(bug, "padded_to_jagged", "cut")
_FIRST = "x_first = jnp.clip(jnp.maximum(t * 16, 0) + offsets[b], 0, 71) // 8"
_LAST = "jnp.minimum(jnp.minimum(offsets[b + 1] - offsets[b], t * 16 + 16), 45)\n"
_PLACE = "t * 16 + offsets[b] - x_first_of[n] * 8"
_SHIFTED = "t * 16 - offsets[b] - d_first_of[n] * 8"
_HELD = "held[part, rows // each : (rows + source.shape[0]) // each, :width]"

CUT: tuple[Bug, ...] = (
    _BOXES("rows from the next register tile on", _FIRST, _FIRST + " + 1"),
    _BOXES("rows of the first tile for all", _FIRST, _FIRST.replace("t * 16", "0 * t")),
    _BOXES("the last rows do not come", "            + 7\n", "            + 0\n"),
    _BOXES("a range's end is forgotten", _LAST, _LAST.replace("t * 16 + 16", "t * 16 + 8")),
    _BOXES("one row late", _PLACE, _PLACE + " + 1"),
    _BOXES("as if the block began at its first row", _PLACE, "t * 16 + offsets[b]"),
    _BOXES("rows are not where they are read", "far = start + rows", "far = start"),
    _BOXES("the block is put a row late", _HELD, _HELD.replace("(rows", "1 + (rows", 1).replace(
        "rows // each :", "1 + rows // each :")),
    _BOXES("rows behind the sequence", "t_mask, x_moved", "True, x_moved"),
    _ROWS("where the range begins is forgotten", "jnp.maximum(offsets[b], t * 16) - offsets[b]",
          "jnp.maximum(offsets[b], t * 16)"),
    _ROWS("moved the other way", _SHIFTED, _SHIFTED.replace("- offsets", "+ offsets")),
    _ROWS("tiles that begin before the range are put at it", "-16, 8)", "0, 8)"),
    _ROWS("rows of another box", "lambda n: (b_of[n], pl.ds", "lambda n: (t_of[n] % 5, pl.ds"),
    _ROWS("one row late", _SHIFTED, _SHIFTED + " + 1"),
)  # fmt: skip

_UNCLAMPED = "jnp.clip(jnp.maximum(t * 16, 0) + offsets[b], 0, 71)"

# What only an access outside of an array shows, and the offsets that bring it about.
OUTSIDE: tuple[tuple[Bug, str], ...] = (
    (_BOXES("first row not clamped", _UNCLAMPED, "(jnp.maximum(t * 16, 0) + offsets[b])"),
     "all past the end"),
    (_BOXES("more rows than the block has", "            1,\n            3,\n",
            "            1,\n            30,\n"), "anything"),
    (_BOXES("place not clamped", "jnp.clip(" + _PLACE + ", -16, 8)", _PLACE), "all past the end"),
)  # fmt: skip
