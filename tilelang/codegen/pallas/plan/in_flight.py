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
WAITS = 1.3  # steps take that much longer than their work and their copies alone
MANY = 64  # steps: how few begin and end, and that is not known well enough


def sooner(alone: Plan, guess: Estimate, config: Config, chosen: Config) -> Config | None:
    """What to ask for instead of `chosen`, which `config` led to; None where that gains nothing.

    A grid has two blocks in flight, and becomes a pipeline where the config leaves that open.
    """
    if guess.steps < MANY or alone.groups or config.buffers is not None:
        return None
    grid = any(launch.form == "grid" for launch in alone.launches)
    waits = guess.seconds >= WAITS * max(guess.traffic, guess.compute)
    if not waits or (grid and config.loop_type is not None):
        return None
    form = "outer_pipeline" if grid else chosen.loop_type
    asked = replace(config, blocks=chosen.blocks, within=chosen.within)
    return replace(asked, loop_type=form, buffers=COUNT)
