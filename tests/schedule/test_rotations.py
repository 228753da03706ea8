"""What reads and writes cost that begin in the middle of the lanes, and the defaults that follow.

SEEN is how many microseconds libtpu 0.0.42.1's final schedules work for, executed; no TPU was used.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.rope import CASES, rope
from tilelang.codegen.pallas.plan.estimate import rank, rotations, seconds, work
from tilelang.codegen.pallas.plan.types import Plan
from tilelang.errors import TileError

ROWS, BLOCKS = 16384, tile.Config({"t": 1024})


@tile.kernel
def shifted(x):
    rows, width = x.shape
    y = hl.empty([rows, width - 64], dtype=x.dtype)
    for t in hl.tile(rows):
        y[t, :] = x[t, 64:] * 2.0
    return y


@tile.kernel
def gated(x):
    rows, width = x.shape
    half = width // 2
    y = hl.empty([rows, half], dtype=x.dtype)
    for t in hl.tile(rows):
        y[t, :] = x[t, :half] * x[t, half:]
    return y


@tile.kernel
def doubled(x):
    rows, half = x.shape
    y = hl.empty([rows, half * 2], dtype=x.dtype)
    for t in hl.tile(rows):
        y[t, :half] = x[t, :]
        y[t, half:] = x[t, :] * 2.0
    return y


@tile.kernel
def swapped(x):
    rows, width = x.shape
    half = width // 2
    y = hl.empty([rows, width], dtype=x.dtype)
    for t in hl.tile(rows):
        y[t, :half] = x[t, half:]
        y[t, half:] = x[t, :half]
    return y


@tile.kernel
def in_place(x):
    rows, width = x.shape
    y = hl.empty([rows, width], dtype=x.dtype)
    for t in hl.tile(rows):
        y[t, :32] = x[t, 32:64] * 2.0
        y[t, 32:] = x[t, 32:] * 2.0
    return y


@tile.kernel
def gated_twice(x):
    rows, width = x.shape
    half = width // 2
    y = hl.empty([rows, half], dtype=x.dtype)
    for t in hl.tile(rows):
        a, b = x[t, :half], x[t, half:]
        y[t, :] = a * b + hl.maximum(a, b)
    return y


@tile.kernel
def joined(x, z):
    rows, width = x.shape
    y = hl.empty([rows, 2 * width], dtype=x.dtype)
    for t in hl.tile(rows):
        y[t, :] = hl.cat([x[t, :] * 2.0, z[t, :]], axis=1)
    return y


@dataclass(frozen=True)
class Seen:
    """Microseconds that the steps of a kernel work for."""

    kernel: tile.Kernel
    arguments: tuple[object, ...]
    chip: str
    us: float
    config: tile.Config = BLOCKS

    def ratio(self) -> float:
        target = f"tpu:{self.chip}"
        plan = self.kernel.lower(*self.arguments, target=target, config=self.config).plan
        assert isinstance(plan, Plan)
        guess, _ = rank.judged(plan)
        assert guess is not None
        return guess.compute * 1e6 / self.us


def rows(width: int, dtype: str = "float32") -> tuple[object, ...]:
    return (tile.spec((ROWS, width), dtype),)


HALF = "bfloat16"
PRODUCTION = CASES[4]
SEEN = {
    "float32, 2 registers": Seen(shifted, rows(256), "v6e", 6.97),
    "float32, 4 registers": Seen(shifted, rows(512), "v6e", 12.21),
    "bfloat16, 4 registers": Seen(shifted, rows(512, HALF), "v6e", 6.99),
    "v5e": Seen(shifted, rows(512), "v5e", 20.10),
    "halves meet": Seen(gated, rows(384), "v6e", 6.97),
    "halves of a register meet": Seen(gated, rows(128, HALF), "v6e", 4.36),
    "what two uses need": Seen(gated_twice, rows(384), "v6e", 6.99),
    "written": Seen(doubled, rows(192), "v6e", 6.92),
    "narrow ones written": Seen(doubled, rows(192, HALF), "v6e", 4.42),
    "read and written": Seen(swapped, rows(384), "v6e", 12.37),
    "read and written, v5e": Seen(swapped, rows(384), "v5e", 20.03),
    "written where it was read": Seen(in_place, rows(128), "v6e", 4.56),
    "joined": Seen(joined, (*rows(192), *rows(192)), "v6e", 6.90),
    "rope": Seen(rope, PRODUCTION, "v6e", 230.32, tile.Config({"t": 512}, within=())),
    "all heads of rope": Seen(
        rope, PRODUCTION, "v6e", 88.51, tile.Config({"t": 512}, within=["h"])
    ),
}


@pytest.mark.parametrize("case", SEEN)
def test_lanes_that_meet_cost_what_schedules_say(case):
    assert 0.88 < SEEN[case].ratio() < 1.12


# ---------------------------------------------------------------- planted bugs


def _with(change: Callable[[rotations._Begins], None]) -> Callable[..., object]:
    """`rotations` of which something is changed before it looks at a body."""

    class Changed(rotations._Begins):
        def __init__(self) -> None:
            super().__init__()
            change(self)

    return Changed


class _Never(set):
    def add(self, item: object) -> None:
        """Nothing is remembered."""


def _forgets(lanes: rotations._Begins) -> None:
    lanes.moved = _Never()


class _Nowhere(dict):
    def get(self, key: object, default: object = None) -> object:
        return default


def _in_the_loop(lanes: rotations._Begins) -> None:
    lanes.makers = _Nowhere()


PLANTED = {
    "nothing is moved": (work, "rotations", lambda body: dict.fromkeys(map(id, body), ())),
    "what two uses need is moved twice": (rotations, "_Begins", _with(_forgets)),
    "what all heads need is moved for each": (rotations, "_Begins", _with(_in_the_loop)),
    "a block begins in lane 0": (rotations, "_lane", lambda select: 0),
    "a register is 64 lanes": (rotations, "LANES", 64),
    "a value fills what it does without its lane": (
        work, "_rotated", lambda value, core: core.registers(value.type),
    ),
    "narrow ones of one register a row are packed": (
        work, "_rotated", lambda value, core: work.registers(
            (*core.shape(value.type)[:-1], value.lane + core.shape(value.type)[-1]),
            value.type.dtype,
        ),
    ),
    "they cost what sums over lanes do": (
        seconds, "COSTS", {
            name: seconds.replace(c, rotated=c.lanes) for name, c in seconds.COSTS.items()
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_a_wrong_rule_is_found(what, monkeypatch):
    monkeypatch.setattr(*PLANTED[what])
    assert not all(0.88 < case.ratio() < 1.12 for case in SEEN.values())


@tile.kernel
def numbered(x):
    y = hl.empty([2, x.shape[0], 8], dtype=x.dtype)
    for a in hl.grid(2):
        for t in hl.tile(x.shape[0]):
            y[a, t, :] = x[t, 1:9] - (a * 0.5)
    return y


def test_numbers_are_in_no_lane(monkeypatch) -> None:
    """They move nowhere to meet a block; planted: they begin in the first lane."""
    x = np.zeros((64, 12), np.float32)
    assert _moved(numbered, x) == [(2, 1)]
    monkeypatch.setattr(rotations._Begins, "begin", rotations._Begins._first_lane)
    with pytest.raises((TileError, AssertionError)):
        assert _moved(numbered, x) == [(2, 1)]


def _moved(kernel: tile.Kernel, x: np.ndarray) -> list[tuple[int, int]]:
    """Rank and lane of what statements move, in a step of the default."""
    (launch,) = kernel.lower(x, target="tpu:v6e").plan.launches
    found = [m for s in launch.sections for ms in rotations.rotations(s.body).values() for m in ms]
    return [(len(moved.type.shape), moved.lane) for moved in found]
