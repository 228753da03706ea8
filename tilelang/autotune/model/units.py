"""Queues(program, units).run(...): cycles of straight lines of bundles, waits for units included.

A bundle takes one cycle, unless it takes a result that a unit has not made yet: matrix products,
reductions and permutations over lanes, transposes and special functions stand behind queues, and
the hardware waits for them.  What is under way when a line begins is its entry state.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass

from ...codegen.pallas.chips import Units
from .program import Instruction, Program

ENTRIES = 60  # entry states in which a line is looked at before it is taken as entered idle

# What is under way: key -> cycle at which it is ready or free, or those of a queue.  Cycles count
# from where the next line begins.
State = tuple[tuple[Hashable, float | tuple[float, ...]], ...]
IDLE: State = ()


@dataclass(frozen=True)
class Start:
    """An instruction that keeps a unit busy.

    busy       cycles until the unit can begin the next one
    latency    from its begin to its first result
    results    keys of results that are taken by name, one every `spacing` cycles
    queue      where results are taken in order, and how many
    after      what must be ready before it begins
    """

    unit: Hashable
    busy: float
    latency: float
    results: tuple[Hashable, ...] = ()
    queue: tuple[Hashable, int] | None = None
    spacing: float = 0
    after: Hashable = None


@dataclass(frozen=True)
class Take:
    """An instruction that takes a result, by name or the next of a queue."""

    key: Hashable
    queue: bool


Event = Start | Take


@dataclass(frozen=True)
class LineRun:
    """One run over a line: its cycles, in which of them bundles start, and what is under way."""

    cycles: float
    starts: Mapping[int, float]
    state: State


_MATRIX = re.compile(r"mxu(\d)")
_NAMED = re.compile(r"mrb\[(\d+)\]")
_LANES = re.compile(r"xlu(\d)")
_LAST = re.compile(r"%(\d+)\s*$")
_SPECIAL = re.compile(r"v(?:pow2|rcp|rsqrt|log2|tanh|exp|sqrt|sin|cos|erf|log|sigmoid)\b")
_ROWS = (
    (".f32", 8),
    ("bf16", 16),
    (".f16", 16),
    ("s8", 32),
    ("u8", 32),
    ("f8", 32),
    (".s4", 64),
    (".u4", 64),
)


def rows(op: str) -> int:
    """Rows that one multiplication takes: a register of its dtype."""
    return next((count for mark, count in _ROWS if mark in op), 8)


def event(instruction: Instruction, units: Units) -> Event | None:
    """What an instruction means for the units; None for most."""
    op, text = instruction.op, instruction.text
    if op[:1] != "v":
        return None
    if op.startswith("vmatmul"):
        return _multiply(op, text, units)
    if op.startswith(("vmatpush", "vmatprep.subr")):
        return Start(("weights", _number(_MATRIX, text)), units.push, 0)
    if op.startswith("vpop"):
        return _take(op, text)
    number = instruction.number
    if number is None:
        return None
    if lanes := _LANES.search(op):
        return _lanes(op, int(lanes[1]), number, units)
    if _SPECIAL.match(op):
        return Start("special", 1, units.special, (number,))
    return None


def _multiply(op: str, text: str, units: Units) -> Start:
    matrix, named = _number(_MATRIX, text), _NAMED.search(text)
    count = rows(op) // 8 * units.results
    key = ("product", matrix)
    results = tuple((*key, int(named[1]) + j) for j in range(count)) if named else ()
    return Start(
        ("matrix", matrix),
        rows(op) / 8 * units.multiply,
        units.product,
        results,
        None if named else (key, count),
        units.spacing,
        ("weights", matrix) if "vlgmr" in op or "dwg" in op else None,
    )


def _lanes(op: str, unit: int, number: int, units: Units) -> Start:
    key = ("lanes", unit)
    if op.startswith("vxpose"):
        queue = (("transposed", unit), 16) if ".end" in op else None
        return Start(key, units.crosslane, units.transpose, (number,), queue, 1)
    latency = units.reduce if "xlane" in op else units.permute
    return Start(key, units.crosslane, latency, (number,))


def _take(op: str, text: str) -> Take | None:
    if "mrf" in op or "mrb" in op:
        named, key = _NAMED.search(text), ("product", _number(_MATRIX, text))
        return Take((*key, int(named[1])), False) if named else Take(key, True)
    if number := _LAST.search(text.strip()):
        return Take(int(number[1]), False)
    unit = _LANES.search(text)
    return Take(("transposed", int(unit[1])), True) if unit else None


def _number(pattern: re.Pattern[str], text: str) -> int:
    found = pattern.search(text)
    return int(found[1]) if found else 0


class Queues:
    """The units of one core while it runs a program."""

    def __init__(self, program: Program, units: Units) -> None:
        self._events = [tuple(_events(b.instructions, units)) for b in program.bundles]
        self._delays = [bundle.delay for bundle in program.bundles]
        self._lines: dict[Hashable, LineRun] = {}
        self._entries: dict[int, int] = {}

    def run(self, begin: int, end: int, state: State, asked: Collection[int]) -> LineRun:
        """Runs bundles [begin, end); `asked` are bundles whose cycle is needed."""
        known = self._lines.get((begin, state))
        if known is not None:
            return known
        self._entries[begin] = self._entries.get(begin, 0) + 1
        if self._entries[begin] > ENTRIES and state != IDLE:
            return self.run(begin, end, IDLE, asked)
        line = self._run(begin, end, state, asked)
        self._lines[begin, state] = line
        return line

    def _run(self, begin: int, end: int, state: State, asked: Collection[int]) -> LineRun:
        ready, queues = _split(state)
        now, starts = -1.0, {}
        for index in range(begin, end):
            now += 1
            for each in self._events[index]:
                if isinstance(each, Start):
                    _begin(each, now, ready, queues)
                elif not each.queue:
                    now = max(now, ready.get(each.key, now))
                elif queue := queues.get(each.key):
                    now = max(now, queue.popleft())
            if index in asked:
                starts[index] = now
            now += self._delays[index]
        return LineRun(now + 1, starts, _left(now + 1, ready, queues))


def _events(instructions: tuple[Instruction, ...], units: Units) -> Iterator[Event]:
    """Of one bundle: it takes results before it starts anything."""
    found = [e for i in instructions if (e := event(i, units)) is not None]
    yield from (e for e in found if isinstance(e, Take))
    yield from (e for e in found if isinstance(e, Start))


def _begin(
    start: Start, now: float, ready: dict[Hashable, float], queues: dict[Hashable, deque[float]]
) -> None:
    at = max(now, ready.get(start.unit, now), ready.get(start.after, now))
    ready[start.unit] = at + start.busy
    for place, key in enumerate(start.results):
        ready[key] = at + start.latency + place * start.spacing
    if start.queue is not None:
        key, count = start.queue
        queue = queues.setdefault(key, deque())
        queue.extend(at + start.latency + place * start.spacing for place in range(count))


def _left(
    now: float, ready: Mapping[Hashable, float], queues: Mapping[Hashable, deque[float]]
) -> State:
    """What is still under way, counted from now on."""
    late = [(key, at - now) for key, at in ready.items() if at > now]
    full = [(key, tuple(max(at - now, 0.0) for at in q)) for key, q in queues.items() if q]
    return tuple(sorted([*late, *full], key=str))


def later(state: State, cycles: float) -> State:
    """What is under way after so many cycles of waiting for something else."""
    if not state or cycles <= 0:
        return state
    return _left(cycles, *_split(state))


def _split(state: State) -> tuple[dict[Hashable, float], dict[Hashable, deque[float]]]:
    """What is ready when, and what queues hold."""
    ready: dict[Hashable, float] = {k: at for k, at in state if not isinstance(at, tuple)}
    return ready, {key: deque(at) for key, at in state if isinstance(at, tuple)}
