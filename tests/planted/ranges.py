"""Planted bugs of ranges: a clamp that is missing, a number of another loop.

Only the strict interpreter sees an access outside of an array, so that these run there, each with
one of tests.ragged.wild_offsets.
"""

from __future__ import annotations

from functools import partial

from tests.planted.bug import Bug, bug

_TABLE = partial(bug, "jagged_sum", "table")
_RECTANGLE = partial(bug, "jagged_sum", "rectangle")
_WORKLIST = partial(bug, "jagged_sum", "worklist")
_STREAM = partial(bug, "jagged_sum", "emit_pipeline")
_INSIDE = partial(bug, "jagged_sum", "fori_loop")

_BEGIN = ("jnp.maximum(offsets[g], 0)", "offsets[g]")
_END = ("jnp.minimum(offsets[g + 1], 80)", "offsets[g + 1]")
PAST, BEFORE = "one past the end", "all negative"

# bug -> the offsets that show it
RANGES: tuple[tuple[Bug, str], ...] = (
    (_TABLE("end of a range not clamped", *_END), "all past the end"),
    (_STREAM("end of a range not clamped", *_END), "all past the end"),
    (_INSIDE("end of a range not clamped", *_END), "all past the end"),
)
