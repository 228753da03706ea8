"""Planted bugs of ranges: a clamp that is missing, a number of another loop.

Only the strict interpreter sees an access outside of an array, so that these run there, each with
one of tests.ragged.wild_offsets.
"""

from __future__ import annotations

from functools import partial

from tests.planted.bug import Bug, bug
from tests.planted.cut import OUTSIDE

_TABLE = partial(bug, "jagged_sum", "table")
_RECTANGLE = partial(bug, "jagged_sum", "rectangle")
_LIST = partial(bug, "jagged_sum", "worklist")
_STREAM = partial(bug, "jagged_sum", "emit_pipeline")
_INSIDE = partial(bug, "jagged_sum", "fori_loop")

_BEGIN = ("jnp.maximum(offsets[g], 0)", "offsets[g]")
_END = ("jnp.minimum(offsets[g + 1], 80)", "offsets[g + 1]")
_NO_BEGIN, _NO_END = "begin of a range not clamped", "end of a range not clamped"
_STAND_IN = ("tm_first = jnp.minimum(tm_first, 4)", "pass")
_LIST_STAND_IN = ("tm_first = jnp.minimum(tm_first, 4)", "tm_first = tm_first + 0")
_STOP = ("tm_end + 15, 16", "tm_end + 31, 16")
PAST, BEFORE, LEGAL_LAST = "all past the end", "all negative", "decreasing"

# a bug -> the offsets that show it
RANGES: tuple[tuple[Bug, str], ...] = (
    (_TABLE(_NO_END, *_END), PAST),
    (_TABLE(_NO_BEGIN, *_BEGIN), BEFORE),
    (_TABLE("step of an empty range not clamped", *_STAND_IN), PAST),
    (_TABLE("stop of a column one too far", *_STOP), LEGAL_LAST),
    (_RECTANGLE(_NO_END, *_END, ("tm_first)), 4)", "tm_first)), 9)")), PAST),
    (_RECTANGLE(_NO_BEGIN, *_BEGIN), BEFORE),
    (_LIST(_NO_END, *_END), PAST),
    (_LIST(_NO_BEGIN, *_BEGIN), BEFORE),
    (_LIST("step of an empty range not clamped", *_LIST_STAND_IN), PAST),
    (_STREAM(_NO_END, *_END), PAST),
    (_STREAM(_NO_BEGIN, *_BEGIN), BEFORE),
    (_STREAM("pipeline one step too long", "tm_stop - tm_first,", "tm_stop - tm_first + 1,"),
     LEGAL_LAST),
    (_INSIDE(_NO_END, *_END), PAST),
    (_INSIDE(_NO_BEGIN, *_BEGIN), BEFORE),
    *OUTSIDE,
)  # fmt: skip
