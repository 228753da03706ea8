"""sooner(plan, guess, ...) -> Config | None: the config with which blocks do not come too late.

While a step computes, the block of the next one comes; a step that is shorter than a copy's latency
waits for it.  With more blocks in flight it was asked for several steps before.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.schedule.config import Config

from .estimate.rank import products
from .estimate.seconds import Estimate
from .types import Plan

COUNT = 4  # blocks of an input in flight
# Without them steps must take that much longer.  A grid becomes a pipeline, whose steps are others.
# Where nothing but the number of blocks is another, work and bytes are the same, and what is said
# to be saved is: of 29 pipelines of 11 to 1,581 steps that are estimated to gain 2 to 17 %,
# schedules of v5e and v6e gain 3 to 25 %, most of them more than that, and one loses 0.3 %.
WORTH_FORM, WORTH_COUNT = 1.3, 1.03
# Few steps of a grid begin and end, and that is not known well enough; nor are few that only move
# rows, beside which whole arrays are taken: 15 of jagged_dense_add take 6.5 us, and these 5.8.
MANY = 64


def sooner(alone: Plan, guess: Estimate, config: Config, chosen: Config) -> Config | None:
    """What to ask for instead of `chosen`, which `config` led to; None where that gains nothing.

    A grid has two blocks in flight, and becomes a pipeline where the config leaves that open.
    """
    grid = _grid(alone)
    few = guess.steps < MANY and (grid or not products(alone.launches))
    if few or alone.groups or config.buffers is not None:
        return None
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
