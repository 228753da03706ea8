"""Ragged layouts that break kernels, and rows that must never be seen.

A layout is int32 offsets [groups + 1]; group g owns the rows offsets[g] to offsets[g + 1] - 1.
Layouts of the same numbers of rows and groups have the same shapes, so that one compiled kernel
serves all of them.

A kernel may have several tensors of offsets, each of which cuts arrays of another length into as
many groups.  So a layout holds several, drawn independently; a kernel takes as many as it has.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np


@dataclass(frozen=True)
class Space:
    """What layouts are drawn for, groups >= 1; `block` is the tile whose edges are to be hit."""

    rows: int
    groups: int
    block: int

    @property
    def second(self) -> Space:
        """The same for the second tensor of offsets."""
        return replace(self, rows=second_rows(self.rows))


def second_rows(rows: int) -> int:
    """The rows that the second tensor of offsets cuts: more than the first one's, no multiple."""
    return rows + rows // 3 + 1 if rows else 0


@dataclass(frozen=True)
class Layout:
    """Offsets, and the stratum that they are from; `second` is for kernels that have two."""

    stratum: str
    offsets: np.ndarray
    second: np.ndarray | None = None

    def tensors(self, count: int) -> tuple[np.ndarray, ...]:
        """The offsets that a kernel with `count` tensors of offsets takes; count is 1 or 2."""
        if count == 1:
            return (self.offsets,)
        assert count == 2 and self.second is not None, f"{self} has no {count} tensors of offsets"
        return self.offsets, self.second

    def __str__(self) -> str:
        second = "" if self.second is None else f", then {self.second.tolist()}"
        return f"{self.stratum} {self.offsets.tolist()}{second}"


Draw = Callable[[np.random.Generator, Space], np.ndarray]


def offsets_of(sizes: np.ndarray, space: Space, first: int = 0) -> np.ndarray:
    """Groups of these sizes from row `first` on; what would be past the last row is cut off."""
    ends = first + np.cumsum(np.concatenate([[0], sizes]))
    return np.minimum(ends, space.rows).astype(np.int32)


def cut(rng: np.random.Generator, rows: int, groups: int) -> np.ndarray:
    """Sizes of `groups` groups that have `rows` rows together."""
    if groups == 0:
        return np.zeros(0, np.int64)
    inner = np.sort(rng.integers(0, rows + 1, groups - 1))
    return np.diff(np.concatenate([[0], inner, [rows]]))


def _with_empty(where: Callable[[np.random.Generator, int], slice]) -> Draw:
    """All rows in groups, except that the groups in one place are empty."""

    def draw(rng: np.random.Generator, space: Space) -> np.ndarray:
        sizes = np.zeros(space.groups, np.int64)
        filled = np.ones(space.groups, bool)
        filled[where(rng, space.groups)] = False
        sizes[filled] = cut(rng, space.rows, int(filled.sum()))
        return offsets_of(sizes, space)

    return draw


def _middle(rng: np.random.Generator, groups: int) -> slice:
    begin = int(rng.integers(1, max(groups - 1, 2)))
    return slice(begin, max(groups - 1, begin) if rng.random() < 0.3 else begin + 1)


def _all_empty(rng: np.random.Generator, space: Space) -> np.ndarray:
    at = rng.choice([0, int(rng.integers(0, space.rows + 1)), space.rows])
    return np.full(space.groups + 1, at, np.int32)


def _one_giant(rng: np.random.Generator, space: Space) -> np.ndarray:
    sizes = np.zeros(space.groups, np.int64)
    sizes[rng.integers(0, space.groups)] = space.rows
    return offsets_of(sizes, space)


def _ones(rng: np.random.Generator, space: Space) -> np.ndarray:
    last = max(space.rows - space.groups, 0)
    return offsets_of(np.ones(space.groups, np.int64), space, int(rng.integers(0, last + 1)))


def _sizes_from(*deltas: int, zeros: bool = False) -> Draw:
    """Sizes near the block, from the first row or from one near a block's edge."""

    def draw(rng: np.random.Generator, space: Space) -> np.ndarray:
        near = [max(space.block + d, 0) for d in deltas]
        sizes = rng.choice([*near, 0, 1, 2] if zeros else near, space.groups)
        first = int(rng.choice([0, 0, 1, max(space.block - 1, 0), space.block]))
        return offsets_of(sizes, space, min(first, space.rows))

    return draw


def _aligned(rng: np.random.Generator, space: Space) -> np.ndarray:
    tiles = cut(rng, max(space.rows // space.block, 1), space.groups)
    return offsets_of(tiles * space.block, space)


def _gap(before: bool, after: bool) -> Draw:
    """Groups that leave rows free at the beginning, at the end, or at both."""

    def draw(rng: np.random.Generator, space: Space) -> np.ndarray:
        room = max(space.rows - 1, 0)
        first = int(rng.integers(1, max(room // 2, 1) + 1)) if before else 0
        tail = int(rng.integers(1, max(room // 2, 1) + 1)) if after else 0
        first, rows = min(first, space.rows), max(space.rows - first - tail, 0)
        return offsets_of(cut(rng, rows, space.groups), space, first)

    return draw


def _crowded(rng: np.random.Generator, space: Space) -> np.ndarray:
    """Every group within one tile."""
    tile = int(rng.integers(0, max(space.rows // space.block, 1))) * space.block
    inside = np.sort(rng.integers(0, space.block + 1, space.groups + 1))
    return np.minimum(tile + inside, space.rows).astype(np.int32)


def _anything(rng: np.random.Generator, space: Space) -> np.ndarray:
    return np.sort(rng.integers(0, space.rows + 1, space.groups + 1)).astype(np.int32)


def _covering(rng: np.random.Generator, space: Space) -> np.ndarray:
    return offsets_of(cut(rng, space.rows, space.groups), space)


STRATA: Mapping[str, Draw] = {
    "empty first": _with_empty(lambda rng, n: slice(0, int(rng.integers(1, 3)))),
    "empty middle": _with_empty(_middle),
    "empty last": _with_empty(lambda rng, n: slice(max(n - int(rng.integers(1, 3)), 0), n)),
    "all empty": _all_empty,
    "one giant": _one_giant,
    "all of size 1": _ones,
    "block - 1, block, block + 1": _sizes_from(-1, 0, 1),
    "edges and empties": _sizes_from(-1, 0, 1, zeros=True),
    "aligned": _aligned,
    "gap before": _gap(True, False),
    "gap after": _gap(False, True),
    "gaps on both sides": _gap(True, True),
    "crowded": _crowded,
    "anything sorted": _anything,
    "every row in a group": _covering,
}


def every_stratum(space: Space, seed: int = 0) -> list[Layout]:
    """One layout of each stratum."""
    return list(_drawn(STRATA, space, seed))


def draw_layouts(space: Space, count: int, seed: int) -> Iterator[Layout]:
    """`count` random layouts, from the strata in turn."""
    yield from _drawn(itertools.islice(itertools.cycle(STRATA), count), space, seed)


def _drawn(strata: Iterable[str], space: Space, seed: int) -> Iterator[Layout]:
    """A layout of each stratum; the second offsets are of any, and do not change the first."""
    first, second = np.random.default_rng(seed), np.random.default_rng([seed, 2])
    for name in strata:
        other = STRATA[str(second.choice(list(STRATA)))]
        yield Layout(name, STRATA[name](first, space), other(second, space.second))


def wrong_offsets(space: Space) -> dict[str, np.ndarray]:
    """Offsets that a call must refuse."""
    fair = np.linspace(0, space.rows, space.groups + 1).astype(np.int32)
    decreasing, negative, too_large = fair.copy(), fair.copy(), fair.copy()
    decreasing[1] = fair[2] + 1
    negative[0] = -1
    too_large[-1] = space.rows + 1
    return {"decreasing": decreasing, "negative": negative, "too large": too_large}


def wrong_layouts(space: Space, tensors: int) -> list[Layout]:
    """Layouts that a call must refuse: in each tensor of offsets in turn, the others are fair."""
    fair = every_stratum(space)[-1]
    wrong = [replace(fair, stratum=n, offsets=o) for n, o in wrong_offsets(space).items()]
    if tensors == 2:
        second = wrong_offsets(space.second).items()
        wrong += [replace(fair, stratum=f"second {n}", second=o) for n, o in second]
    return wrong


def wild_offsets(space: Space) -> dict[str, np.ndarray]:
    """Offsets with at least one range that is none, for calls that are not checked."""
    fair = np.linspace(0, space.rows, space.groups + 1).astype(np.int64)
    limits = np.iinfo(np.int32)
    wild = {
        **wrong_offsets(space),
        "huge": np.concatenate([fair[:-1], [limits.max]]),
        "very negative": np.concatenate([[limits.min], fair[1:]]),
        "reversed": fair[::-1],
        "falling": np.concatenate([fair[-1:], fair[1:]]),  # from the end to the first group's
        "back to the start": np.concatenate([fair[:-1], fair[:1]]),
        "all past the end": fair + space.rows + 1,
        "all negative": fair - space.rows - 1,
        "to and fro": np.resize([0, space.rows], space.groups + 1),
        "anything": np.resize([12, limits.max, limits.min, limits.max, -5, 17], space.groups + 1),
    }
    return {name: offsets.astype(np.int32) for name, offsets in wild.items()}


def legal_groups(offsets: np.ndarray, rows: int) -> list[int]:
    """The groups whose range lies within the rows and shares none with another range."""
    ranges = [(int(b), int(e)) for b, e in itertools.pairwise(offsets)]
    return [
        g
        for g, (b, e) in enumerate(ranges)
        if 0 <= b <= e <= rows
        and not any(max(b, c) < min(e, f) for h, (c, f) in enumerate(ranges) if h != g)
    ]


# ---------------------------------------------------------------- rows that must not be seen


def covered(offsets: np.ndarray, rows: int) -> np.ndarray:
    """Which rows belong to a group, of offsets of any kind."""
    position = np.arange(rows)
    begins, ends = offsets[:-1, None], offsets[1:, None]
    return ((begins <= position) & (position < ends)).any(0)


def members(offsets: np.ndarray, rows: int, group: int) -> np.ndarray:
    """Which rows belong to one group."""
    position = np.arange(rows)
    return (offsets[group] <= position) & (position < offsets[group + 1])


def poison(x: np.ndarray, seen: np.ndarray, axis: int = 0) -> np.ndarray:
    """A copy of x in which everything not `seen` along `axis` is NaN, Inf and -Inf in turn.

    Integers become the largest there are.
    """
    if x.dtype.kind == "i":
        bad = np.full_like(x, np.iinfo(x.dtype).max)
    else:
        bad = np.resize([np.nan, np.inf, -np.inf, np.nan], x.shape).astype(x.dtype)
    shape = [1] * x.ndim
    shape[axis] = len(seen)
    return np.where(seen.reshape(shape), x, bad)
