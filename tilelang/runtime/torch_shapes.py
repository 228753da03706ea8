"""Shapes of results where torch traces with sizes that are symbols.

A kernel is parsed for numbers.  What its results' sizes are for other numbers is found by parsing
it for some: each symbol in turn is one larger, and the sizes of the results follow by so many.
That is a guess, and it is tested twice: on other numbers at once, and whenever the kernel runs.
A symbol for which no such rule holds is fixed to its number, and torch compiles anew for others;
so is one that makes the kernel longer, as of a loop that is unrolled: it is another kernel.
Symbols that cannot change alone, as rows of `k.reshape(q.shape[0], ...)`, may change together, if
they stand for the same number: torch is told that they are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from ..errors import CallError, TileError

Sizes = tuple[int, ...]  # of all tensors, one after another
Shapes = tuple[tuple[int, ...], ...]
ShapesOf = Callable[[Sizes], Shapes]  # sizes of the arguments -> shapes of the results
ASSUMED = 83  # rows that are known only when a program runs; no size of blocks, or half of one
LengthOf = Callable[[Sizes], int]  # -> how much there is to the kernel


@dataclass(frozen=True)
class SizeRule:
    """Sizes of results: those at `hints`, and `step` more for each one that a symbol is more.

    symbols  places of sizes that are the same symbol, or that and a number, for each free one
    steps    for each symbol the shapes' growth
    """

    hints: Sizes
    base: Shapes
    symbols: tuple[tuple[int, ...], ...]
    steps: tuple[Shapes, ...]

    def at(self, sizes: Sequence[Any]) -> tuple[tuple[Any, ...], ...]:
        """The shapes for sizes, of which the free ones may be symbols."""
        moved = [sizes[places[0]] - self.hints[places[0]] for places in self.symbols]
        return tuple(
            tuple(self._size(place, dim, moved) for dim in range(len(shape)))
            for place, shape in enumerate(self.base)
        )

    def _size(self, place: int, dim: int, moved: Sequence[Any]) -> Any:
        size: Any = self.base[place][dim]
        for more, step in zip(moved, self.steps, strict=True):
            if step[place][dim]:
                size = size + step[place][dim] * more
        return size

    def beyond(self, by: int) -> Sizes:
        """Sizes of which the first free one is `by` larger, and each further one by more."""
        sizes = self.hints
        for n, places in enumerate(self.symbols):
            sizes = _moved(sizes, places, by + 18 * n)
        return sizes

    def holds(self, sizes: Sizes, shapes: Shapes) -> bool:
        """Whether results are what the rule says; true too of sizes that it does not speak of."""
        free = {place for places in self.symbols for place in places}
        fixed = (s == h for n, (s, h) in enumerate(zip(sizes, self.hints, strict=True)))
        same = all(f or n in free for n, f in enumerate(fixed))
        moved = [s - h for s, h in zip(sizes, self.hints, strict=True)]
        alike = all(len({moved[p] for p in places}) == 1 for places in self.symbols)
        return not (same and alike) or self.at(sizes) == shapes


def hint(size: Any) -> int:
    """The number that stands for a symbol while torch traces.

    For one that is known only when the program runs, as of `nonzero`, any number of its range does.
    """
    if isinstance(size, int):
        return size
    known = size.node.hint
    return _assumed(size.node) if known is None else int(known)


def _assumed(node: Any) -> int:
    env, assumed = node.shape_env, {}
    for n, symbol in enumerate(sorted(node.expr.free_symbols, key=str)):
        bounds, own = env.var_to_range[symbol], env.backed_var_to_val.get(symbol)
        assumed[symbol] = min(max(ASSUMED + n, bounds.lower), bounds.upper) if own is None else own
    return int(node.expr.xreplace(assumed))


def rule_for(
    sizes: Sequence[Any], shapes_of: ShapesOf, length_of: LengthOf = lambda sizes: 0
) -> SizeRule:
    """The rule for sizes of which some are symbols; those that follow none are fixed now."""
    hints = tuple(map(hint, sizes))
    base, places = shapes_of(hints), dict[str, list[int]]()
    for n, size in enumerate(sizes):
        if not isinstance(size, int):
            _, moving = size.node.expr.as_coeff_Add()  # of rows - 1 the rows
            places.setdefault(str(moving), []).append(n)
    symbols, steps = list[tuple[int, ...]](), list[Shapes]()
    step_of = partial(_step, hints, base=base, shapes_of=shapes_of, length_of=length_of)
    left = list(places.values())
    while left:
        found = left.pop(0)
        step, equal = step_of(found), list[list[int]]()
        for other in left if step is None else ():
            same = hints[other[0]] == hints[found[0]]
            if step is None and same and step_of(other) is None:
                equal.append(other)
                step = step_of([*found, *chain(*equal)])
        if step is None:
            _fix(sizes, found)
            continue
        for other in equal:
            bool(sizes[found[0]] == sizes[other[0]])  # torch notes that they are
            left.remove(other)
        symbols.append((*found, *chain(*equal)))
        steps.append(step)
    rule = SizeRule(hints, base, tuple(symbols), tuple(steps))
    if _tested(rule, shapes_of):
        return rule
    for found in symbols:
        _fix(sizes, found)
    return SizeRule(hints, base, (), ())


def _fix(sizes: Sequence[Any], places: Sequence[int]) -> None:
    for place in places:
        try:
            int(sizes[place])  # torch notes that what it traces holds for this number
        except GuardOnDataDependentSymNode as error:
            raise CallError(
                f"the size {sizes[place]} is known only when the program runs, and the kernel is "
                "another one, or its results are of other shapes, for other numbers",
                hint="pad to a size that is known, or call the kernel outside of the program",
            ) from error


def _moved(sizes: Sizes, places: Sequence[int], by: int) -> Sizes:
    return tuple(size + by if n in places else size for n, size in enumerate(sizes))


def _step(
    hints: Sizes, places: Sequence[int], base: Shapes, shapes_of: ShapesOf, length_of: LengthOf
) -> Shapes | None:
    """What one more of a symbol adds to the shapes; None if one more is refused, or unrolled."""
    moved = _moved(hints, places, 1)
    try:
        more, unrolled = shapes_of(moved), length_of(moved) != length_of(hints)
    except TileError:
        return None
    if unrolled or [len(s) for s in more] != [len(s) for s in base]:
        return None
    return tuple(
        tuple(b - a for a, b in zip(*pair, strict=True)) for pair in zip(base, more, strict=True)
    )


def _tested(rule: SizeRule, shapes_of: ShapesOf) -> bool:
    """Whether the rule holds where every symbol is larger, each by another number: far and near.

    Sizes that are refused, as more rows than there are, are refused too where a program runs.
    """
    found = list[bool]()
    for sizes in map(rule.beyond, (3, 37, 1031) if rule.symbols else ()):
        try:
            found.append(rule.at(sizes) == shapes_of(sizes))
        except TileError:
            continue
    return all(found) and bool(found or not rule.symbols)


def sizes_of(tensors: Sequence[Any]) -> tuple[Any, ...]:
    """All sizes of all tensors, one after another; they may be symbols."""
    return tuple(size for tensor in tensors for size in tensor.shape)


def known(value: Any) -> Any:
    """A number that torch traces as a symbol, fixed, in a tuple too; other values as they are."""
    match value:
        case tuple() if type(value) is tuple:
            return tuple(map(known, value))
        case torch.SymBool():
            return bool(value)
        case torch.SymInt():
            return int(value)
        case torch.SymFloat():
            return float(value)
        case _:
            return value
