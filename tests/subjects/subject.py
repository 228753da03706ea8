"""What tests know of a kernel: how to call it, and what it must give."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax
import numpy as np

import tilelang as tile
from tests import xla
from tests.frameworks import from_jax
from tests.numerics import as_dtype
from tests.ragged import Layout, Space

Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Ragged:
    """How offsets cut the arguments.

    Arguments are (*arrays, *offsets, *static).  `rows` says along which dimension an array has the
    rows that are cut (argument -> dimension), `groups` which arrays have one entry per group, and
    `out` along which dimension the result has rows; None if it has one entry per group.  For
    several results it is a tuple.

    With two tensors of offsets, `second` are the arguments and `second_outs` the results that are
    cut by the second one; all others are cut by the first.

    `total` is the rows that are cut where no argument has them, but only a result.
    """

    rows: Mapping[int, int]
    groups: tuple[int, ...]
    out: int | tuple[int | None, ...] | None
    second: tuple[int, ...] = ()
    second_outs: tuple[int, ...] = ()
    total: int = 0

    @property
    def offsets(self) -> int:
        """How many tensors of offsets there are."""
        return 2 if self.second else 1

    def space(self, space: Space) -> Space:
        """What offsets are wrong for the results: those for `total` rows, if there are such."""
        return replace(space, rows=self.total or space.rows)

    def of_array(self, place: int) -> int:
        """Which tensor of offsets cuts an argument."""
        return int(place in self.second)

    def of_result(self, place: int) -> int:
        """Which tensor of offsets cuts a result."""
        return int(place in self.second_outs)

    def lengths(self, arrays: Arrays) -> tuple[int, ...]:
        """How many rows each tensor of offsets cuts."""
        if not self.rows:
            return (self.total,)
        found = {self.of_array(place): arrays[place].shape[d] for place, d in self.rows.items()}
        return tuple(found[number] for number in range(self.offsets))

    @property
    def outs(self) -> tuple[int | None, ...]:
        """`out` of every result."""
        return self.out if isinstance(self.out, tuple) else (self.out,)


@dataclass(frozen=True)
class Subject:
    """A kernel with what it must give.

    make      small arguments in float32 without offsets and statics: make(seed, rows, groups) for
              ragged kernels, make(seed) for dense ones
    cases     shapes for compile checks, as the example lists them
    blocks    block sizes so small that the small arguments have several tiles, partial ones too
    dtypes    what the kernel is tested in
    results   dtypes of its results, "" where it is that of the arguments
    within    parallel loops of which one step may run all iterations
    groups    blocks of loops over groups, where those can have any
    smallest  cuts the small arguments down to sizes of one, where not every dimension may be one
    """

    name: str
    kernel: tile.Kernel
    oracle: Callable[..., Any]
    baseline: Callable[..., Any]
    make: Callable[..., Arrays]
    cases: tuple[tuple[Any, ...], ...]
    blocks: Mapping[str, int]
    ragged: Ragged | None = None
    static: tuple[Any, ...] = ()
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    results: tuple[str, ...] = ("",)
    within: tuple[str, ...] = ()
    groups: Mapping[str, int] = field(default_factory=dict)
    smallest: Callable[[Arrays], Arrays] | None = None
    jitted: Callable[..., Any] = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        places = tuple(range(self._tensors, self._tensors + len(self.static)))
        object.__setattr__(self, "jitted", jax.jit(self.baseline, static_argnums=places))

    @property
    def _tensors(self) -> int:
        """How many arguments are tensors: those that the cases do not pass as static values."""
        return len(self.cases[0]) - len(self.static)

    @functools.cached_property
    def inside_jit(self) -> Callable[..., Any]:
        """The kernel with its small blocks under `jax.jit`, compiled as a user's call is.

        Values of offsets are not known there.  One program for every test in this process.
        """

        def call(*tensors: Any) -> Any:
            return self.kernel(*tensors, *self.static, config=self.small)

        run = jax.jit(call, compiler_options=dict(xla.FULL))
        return lambda *arguments: from_jax(run, arguments[: self._tensors])

    @property
    def small(self) -> tile.Config:
        """The config with small blocks."""
        return tile.Config(self.blocks)

    def blocks_in(self, form: str) -> Mapping[str, int]:
        """The small blocks, those of groups too in the form of that name."""
        return {**self.blocks, **self.groups} if form == "groups" else self.blocks

    def arrays(self, dtype: str, *, seed: int = 0, rows: int = 0, groups: int = 0) -> Arrays:
        """Small arguments in a dtype, without offsets and statics."""
        made = self.make(seed) if self.ragged is None else self.make(seed, rows, groups)
        return tuple(as_dtype(a, dtype) for a in made)

    def arguments(self, arrays: Arrays, layout: Layout | None = None) -> tuple[Any, ...]:
        """The complete arguments; the layout is that of a ragged kernel."""
        if self.ragged is None or layout is None:
            assert self.ragged is None and layout is None
            return (*arrays, *self.static)
        return (*arrays, *layout.tensors(self.ragged.offsets), *self.static)

    def expected(self, *arguments: Any) -> tuple[Any, Any]:
        """In float64, and as XLA computes it; the arguments are complete."""
        with np.errstate(all="ignore"):
            exact = self.oracle(*arguments)
        return exact, jax.tree.map(np.asarray, self.jitted(*arguments))

    def result_dtypes(self, dtype: str) -> tuple[str, ...]:
        """The dtypes of the results for arguments of a dtype."""
        return tuple(result or dtype for result in self.results)

    def of_size_one(self) -> Arrays:
        """Small arguments of which every dimension has length one."""
        arrays = self.arrays("float32")
        if self.smallest is not None:
            return self.smallest(arrays)
        return tuple(a[(slice(0, 1),) * a.ndim] for a in arrays)

    def __str__(self) -> str:
        return self.name


def jagged(make: Callable[..., Arrays], **sizes: Any) -> Callable[[int, int, int], Arrays]:
    """An example's make_inputs without its offsets; `rows` may have another name."""
    rows_name = sizes.pop("rows_name", "rows")

    def arrays(seed: int, rows: int, groups: int) -> Arrays:
        return make(seed, (0,) * (groups + 1), **{rows_name: rows}, **sizes)[:-1]

    return arrays
