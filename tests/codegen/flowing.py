"""Rows that come and go in pieces: layouts, the strict interpreter, and bugs that it sees."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import numpy as np
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
from tests.planted import trial
from tests.planted.bug import Bug

ROWS = 48
# No rows, all rows, more rows than a piece has, ends at pieces, gaps in front and behind.
LAYOUTS = (
    (0, 5, 5, 20, 40), (0, 16, 32, 32, 48), (0, 0, 48, 48, 48), (3, 3, 4, 47, 47),
    (17, 18, 30, 31, 33),
)  # fmt: skip
WILD = ((48, 0, 10, 90, 5), (-9, 40, 20, 30, 99), (47, 46, 45, 1, 0), (40, 48, 0, 20, 30))


def laid(x: np.ndarray, offsets: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """The rows, of which those that are in no group hold NaN, and where groups begin."""
    mine = np.zeros(ROWS, bool)
    for begin, end in pairwise(offsets):
        mine[max(begin, 0) : max(end, 0)] = True
    return np.where(mine[:, None], x, np.float32(np.nan)), np.array(offsets, np.int32)


def strict(copies: Literal["on_wait", "eager"] = "on_wait") -> pltpu.InterpretParams:
    return pltpu.InterpretParams(
        detect_races=True, dma_execution_mode=copies, out_of_bounds_reads="raise",
        uninitialized_memory="nan",
    )  # fmt: skip


def noticed(
    kernel: tile.Kernel, planted: Bug, given: Any, flowing: tile.Config, at_once: tile.Config
) -> bool:
    """Whether a bug shows: copies may be made as they start, or when somebody waits for them."""
    lowered = kernel.lower(*given, config=flowing)
    wanted = kernel(*given, config=at_once)
    text = planted.plant(lowered.source.text)
    calls = [trial.runnable(lowered, text, strict(when)) for when in ("on_wait", "eager")]
    return any(_shows(call, given, wanted) for call in calls)


def _shows(call: Any, given: Any, wanted: np.ndarray) -> bool:
    """Whether a text is caught: the newest JAX raises a race, others give what memory held."""
    try:
        return not np.array_equal(np.asarray(call(*given)), wanted)
    except Exception as error:
        if "RACE DETECTED" not in str(error):
            raise
        pltpu.reset_tpu_interpret_mode_state()
        return True
