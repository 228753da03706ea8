"""Several iterations in a step: kernels made so by the pass itself, with few rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import tilelang as tile
from tests.planted import trial
from tilelang.codegen.pallas.emit import emit
from tilelang.codegen.pallas.plan.body.beside import alone, beside
from tilelang.codegen.pallas.plan.types import Plan
from tilelang.codegen.pallas.plan.verify import verify


def planned(kernel: tile.Kernel, given: Any, config: tile.Config, count: int, size: int) -> Plan:
    """The plan of a kernel of one launch with `count` iterations, or tiles of `size`, in a step."""
    plan = kernel.lower(*given, config=config).plan
    (launch,) = plan.launches
    near = alone(launch, plan.target)
    assert near is not None
    return verify(replace(plan, launches=(beside(near, count, size),)))


def result(
    kernel: tile.Kernel, given: Any, config: tile.Config, text: str, interpret: Any = True
) -> Any:
    """What a text returns that was made for those arguments."""
    return trial.runnable(kernel.lower(*given, config=config), text, interpret)(*given)


def text_of(plan: Plan) -> str:
    return emit(plan).text
