"""sooner(plan, guess, ...) -> Config | None: the config with which blocks do not come too late.

While a step computes, the block of the next one comes; a step that is shorter than a copy's latency
waits for it.  With more blocks in flight it was asked for several steps before.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.schedule.config import Config

from .estimate.seconds import Estimate
from .types import Plan

COUNT = 4  # blocks of an input in flight
# Without them steps must take that much longer: where a grid becomes a pipeline, and where nothing
# but the number of blocks is another.  By v6e's schedules jagged_dense_add's steps of 128 rows take
# 640 us with two blocks and 594 with four, estimated at 686 and 551; those of grouped_gemm 1108 and
# 979.
WORTH_FORM, WORTH_COUNT = 1.3, 1.2
MANY = 64  # steps: how few begin and end, and that is not known well enough


def sooner(alone: Plan, guess: Estimate, config: Config, chosen: Config) -> Config | None:
    """What to ask for instead of `chosen`, which `config` led to; None where that gains nothing.

    A grid has two blocks in flight, and becomes a pipeline where the config leaves that open.
    """
    if guess.steps < MANY or alone.groups or config.buffers is not None:
        return None
    grid = _grid(alone)
    waits = guess.seconds >= worth_more(alone) * max(guess.traffic, guess.compute)
    if not waits or (grid and config.loop_type is not None):
        return None
    form = "outer_pipeline" if grid else chosen.loop_type
    asked = replace(config, blocks=chosen.blocks, within=chosen.within)
    return replace(asked, loop_type=form, buffers=COUNT)


def worth_more(alone: Plan) -> float:
    """How much longer than with more blocks in flight its steps must be estimated to take."""
    return WORTH_FORM if _grid(alone) else WORTH_COUNT


def _grid(alone: Plan) -> bool:
    return any(launch.form == "grid" for launch in alone.launches)
