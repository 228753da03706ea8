"""wider(parsed, given, parse) -> Parsed: a kernel for more rows, which serves all that are fewer.

The rows of a ragged kernel are those that ranges read from tensors cut: what no range covers is
never read, and keeps what a result was made with.  So arguments may end in rows that are dead, and
the results are cut.  A kernel that computes with how many rows there are has another program for
more of them, and is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from ..errors import CallError
from ..ir import Along, KernelIR, Load, Store, Tensor, exprs_of, statements, walk
from .given import Given
from .parsed import Remembered

Shape = tuple[int, ...]
LEAST = 64  # rows: fewer are one bucket
STEPS = 4  # buckets from one power of two to the next: at most a fifth of the rows is dead


def bucket(rows: int) -> int:
    """The rows that a program for so many is made for."""
    if rows <= LEAST:
        return LEAST
    step = (1 << (rows - 1).bit_length()) // (2 * STEPS)
    return -(-rows // step) * step


def wider(parsed: Remembered, given: Given, parse: Callable[[Given], Remembered]) -> Remembered:
    """The kernel for the bucket; CallError where more rows make another kernel."""
    ir, rows = parsed.ir, ragged_rows(parsed.ir)
    if not any(rows.get(p.tensor) for p in ir.params):
        raise CallError(
            f"kernel {ir.name} has no rows to pad: no dimension of an argument is indexed only by "
            "tiles over ranges that are read from tensors",
            hint='leave rows="bucket" out',
        )
    tensors = dict(given.tensors)
    for param in ir.params:
        if param.tensor is not None:
            own, spec = tensors[param.name], tensors[param.name].spec
            shape = _bucketed(spec.shape, rows[param.tensor])
            tensors[param.name] = replace(own, spec=replace(spec, shape=shape))
    wide = parse(Given(given.values, tensors))
    if not same_but_for_rows(ir, wide.ir):
        raise CallError(
            f"kernel {ir.name} computes with how many rows there are, and padding changes that",
            hint='leave rows="bucket" out, or pass the number as a tensor',
        )
    return wide


def _bucketed(shape: Shape, dims: frozenset[int]) -> Shape:
    return tuple(bucket(size) if dim in dims else size for dim, size in enumerate(shape))


def ragged_rows(ir: KernelIR) -> dict[str | None, frozenset[int]]:
    """Of every tensor the dimensions that only tiles over ragged ranges index, unmoved."""
    ragged = {axis.name for axis in ir.axes if axis.static is None and axis.kind == "tile"}
    seen = {t.name: set(range(len(t.shape))) for t in ir.tensors}
    for name, index in _references(ir):
        for dim, entry in enumerate(index):
            if not (isinstance(entry, Along) and entry.axis in ragged and entry.offset is None):
                seen[name].discard(dim)
    used = {name for name, _ in _references(ir)}
    views = {n for t in ir.tensors if t.view is not None for n in (t.name, t.view.source)}
    return {n: frozenset(d if n in used - views else ()) for n, d in seen.items()}


def _references(ir: KernelIR) -> Iterator[tuple[str, Sequence[Any]]]:
    for stmt in statements(ir.body):
        if isinstance(stmt, Store):
            yield stmt.tensor, stmt.index
    for expr in exprs_of(ir.body, ir.axes):
        yield from ((part.tensor, part.index) for part in walk(expr) if isinstance(part, Load))


def same_but_for_rows(one: KernelIR, other: KernelIR) -> bool:
    """Whether two kernels, of one function, differ only in how many rows there are."""
    rows = ragged_rows(one)
    return _without_rows(one, rows) == _without_rows(other, rows)


def _without_rows(ir: KernelIR, rows: dict[str | None, frozenset[int]]) -> KernelIR:
    """The kernel, whatever its rows: everything else has to be the same for more of them."""

    def cut(tensor: Tensor) -> Tensor:
        dims = enumerate(tensor.shape)
        return replace(tensor, shape=tuple(0 if d in rows[tensor.name] else n for d, n in dims))

    axes = (a if a.static is not None else replace(a, max_extent=None) for a in ir.axes)
    return replace(ir, tensors=tuple(map(cut, ir.tensors)), axes=tuple(axes))


def fitted(
    run: Callable[..., Any], given: Sequence[tuple[Shape, Shape]], made: Sequence[Shape]
) -> Callable[..., Any]:
    """`run`, which takes more rows, for fewer: `given` are own and wider shapes of arguments."""
    ends = [[(0, more - few) for few, more in zip(*pair, strict=True)] for pair in given]
    cuts = [tuple(map(slice, shape)) for shape in made]

    def call(*arrays: Any) -> Any:
        padded = [jnp.pad(a, end) if any(map(any, end)) else a for a, end in zip(arrays, ends)]
        results = run(*padded)
        if len(cuts) == 1:
            return results[cuts[0]]
        return tuple(result[cut] for result, cut in zip(results, cuts, strict=True))

    return call
