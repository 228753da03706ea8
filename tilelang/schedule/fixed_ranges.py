"""Fixed ranges: ranges of one fixed length behind another, such as the tiles of a tile.

    for ts in hl.tile(K, block_size=L): for tk in hl.tile(ts.begin, ts.end)
    for s in hl.grid(4): for tk in hl.tile(s * L, (s + 1) * L)

Where the block divides L and where the range begins, the tiles are those of a static loop, counted
from a tile that outer indices give.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..ir import Axis, Const, Expr, GridIndex, TileScalar, integers
from ..ir.integers import Linear
from .problem import Problem

Blocks = Mapping[str, int]


@dataclass(frozen=True)
class FixedRange:
    """The range [begin, begin + length) with a begin that is linear in outer indices.

    An index is the number of an `hl.grid`, or the id of a tile.
    """

    begin: tuple[tuple[integers.Index, int], ...]
    constant: int
    length: int

    def divisible(self, block: int) -> bool:
        """Whether tiles of this length never reach over an end of the range."""
        numbers = (self.constant, self.length, *(factor for _, factor in self.begin))
        return all(number % block == 0 for number in numbers)

    def base(self, block: int) -> Expr:
        """The number of the first tile."""
        total: Expr = integers.const(0)
        for index, factor in self.begin:
            total = integers.add(total, integers.mul(index, factor // block))
        return integers.add(total, integers.const(self.constant // block))


def fixed_range(problem: Problem, axis: Axis, blocks: Blocks) -> FixedRange | None:
    """The range of a tile axis that moves with static outer loops; None for other axes.

    `blocks` are those of the outer tile axes.
    """
    found = problem.uses(axis.name)
    offsets = {u.offset for u in found} or {None}
    shift = next(iter(offsets)) or integers.const(0)
    stays = axis.static is not None and isinstance(shift, Const)
    if axis.kind != "tile" or stays or len(offsets) > 1:
        return None
    low = _linear(problem, integers.add(shift, axis.begin), blocks)
    high = _linear(problem, integers.add(shift, axis.end), blocks)
    if low is None or high is None:
        return None
    (moved, constant), length = low, high[1] - low[1]
    if moved != high[0] or length <= 0 or constant < 0 or min(moved.values(), default=0) < 0:
        return None
    most = constant + sum(factor * _largest(problem, i, blocks) for i, factor in moved.items())
    if found and most + length > problem.extent(axis.name):
        return None  # the array ends inside of a range
    return FixedRange(tuple(moved.items()), constant, length)


def _linear(problem: Problem, expr: Expr, blocks: Blocks) -> Linear | None:
    """The expression as a sum of indices of static loops, each times a number."""

    def leaf(part: Expr) -> Linear | None:
        match part:
            case GridIndex(name):
                static = problem.axis(name).static
                return ({part: 1}, 0) if static and static[0] >= 0 else None
            case TileScalar(name, "id"):
                whole = _range(problem, name, blocks)
                return None if whole is None else _number(problem, name, blocks)
            case TileScalar(name, "begin" | "end" as edge):
                return _edge(problem, name, edge, blocks)
            case _:
                return None

    return integers.linear(expr, leaf)


def _edge(problem: Problem, name: str, what: str, blocks: Blocks) -> Linear | None:
    """Where a tile of a static range begins or ends, if no tile is cut."""
    whole, block = _range(problem, name, blocks), blocks.get(name, 0)
    if whole is None:
        return None
    start = dict(whole.begin), whole.constant + (block if what == "end" else 0)
    return integers.plus(start, _number(problem, name, blocks), block)


def _number(problem: Problem, name: str, blocks: Blocks) -> Linear:
    """The id of a tile; 0 where there is one."""
    index = TileScalar(name, "id")
    return {index: 1} if _largest(problem, index, blocks) > 0 else {}, 0


def _largest(problem: Problem, index: Expr, blocks: Blocks) -> int:
    """The last index of a static loop."""
    if isinstance(index, GridIndex):
        return (problem.axis(index.axis).static or (0, 1))[1] - 1
    assert isinstance(index, TileScalar)
    whole = _range(problem, index.axis, blocks)
    return 0 if whole is None else whole.length // blocks[index.axis] - 1


def _range(problem: Problem, name: str, blocks: Blocks) -> FixedRange | None:
    """The range of a tile axis that whole tiles fill, in positions of the author; else None."""
    axis, block = problem.axis(name), blocks.get(name)
    if block is None or any(u.offset for u in problem.uses(name)):
        return None
    found = fixed_range(problem, axis, blocks)
    if axis.static is not None and axis.static[0] >= 0:
        begin, end = axis.static
        found = FixedRange((), begin, end - begin) if end > begin else None
    return found if found is not None and found.divisible(block) else None
