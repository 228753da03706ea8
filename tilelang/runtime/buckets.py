"""wider(parsed, given, parse) -> Parsed: a kernel for more rows, which serves all that are fewer.

The rows of a ragged kernel are those that ranges read from tensors cut: what no range covers is
never read, and keeps what a result was made with.  So arguments may end in rows that are dead, and
the results are cut; offsets past the rows that there are end where these do, as they do without
buckets: nobody checks offsets inside of the user's own `jax.jit`.  A kernel that computes with how
many rows there are has another program for more of them, and is refused.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import jax.numpy as jnp

from ..errors import CallError
from ..ir import Along, Apply, Expr, Index, KernelIR, Load, Store, Tensor, every_access, every_expr
from .given import Given
from .parsed import Remembered

Shape = tuple[int, ...]
Rows = dict[str | None, frozenset[int]]  # of a tensor
Place = tuple[str, int]  # a tensor and one of its dimensions
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
    ir = parsed.ir
    either = [ragged_rows(ir, moved) for moved in (True, False)]
    every = [rows for rows in either if any(rows.get(p.tensor) for p in ir.params)]
    if not every:
        raise CallError(
            f"kernel {ir.name} has no rows to pad: no dimension of an argument is indexed only by "
            "tiles over ranges that are read from tensors",
            hint='leave rows="bucket" out',
        )
    for rows in every:
        tensors = dict(given.tensors)
        for param in ir.params:
            if param.tensor is not None:
                own, spec = tensors[param.name], tensors[param.name].spec
                shape = _bucketed(spec.shape, rows[param.tensor])
                tensors[param.name] = replace(own, spec=replace(spec, shape=shape))
        wide = parse(Given(given.values, tensors))
        if same_but_for_rows(ir, wide.ir):
            return wide
    raise CallError(
        f"kernel {ir.name} computes with how many rows there are, and padding changes that",
        hint='leave rows="bucket" out, or pass the number as a tensor',
    )


def _bucketed(shape: Shape, dims: frozenset[int]) -> Shape:
    return tuple(bucket(size) if dim in dims else size for dim, size in enumerate(shape))


def ragged_rows(ir: KernelIR, moved: bool = True, other: KernelIR | None = None) -> Rows:
    """Of every tensor the dimensions that only tiles over ragged ranges index, or moved tiles.

    Of `place < L` and `table[place]` a kernel computes with L: without `moved` it stays.
    So do they in every form of the array, such as x.reshape(rows, heads, width).
    In `other`, which has more rows, too: of one row other dimensions of a form may look like it.
    """
    wide = other or ir
    ragged = {axis.name for axis in ir.axes if axis.static is None and axis.kind == "tile"}
    seen = {t.name: set(range(len(t.shape))) for t in ir.tensors}
    for site in every_access(ir.body, ir.axes):
        for dim, entry in enumerate(site.index):
            if not _ends_nowhere(site, entry, ragged, moved):
                seen[site.tensor].discard(dim)
    used = {site.tensor for site in every_access(ir.body, ir.axes)}
    rows: dict[str | None, set[int]] = {t.name: set() for t in ir.tensors}
    for root in (t for t in ir.tensors if t.view is None):
        forms = [t for t in ir.tensors if ir.root(t.name) == root.name]
        indexed = [t for t in forms if t.name in used]
        for dim in range(len(root.shape)):
            found = {t.name: _same_rows(ir, t, dim) for t in forms}
            found = {n: s & _same_rows(wide, wide.tensor(n), dim) for n, s in found.items()}
            found |= {t.name: found[t.name] & seen[t.name] for t in indexed}
            if indexed and all(found[t.name] for t in indexed):
                for name, dims in found.items():
                    rows[name] |= {min(dims)} if dims else set()
    return {name: frozenset(dims) for name, dims in rows.items()}


def _ends_nowhere(site: Load | Store, entry: Index, ragged: Collection[str], moved: bool) -> bool:
    """Whether dead rows behind an array change nothing that an access has to do with.

    What lies outside of the array is 0 to a moved tile, as dead rows are, and is not stored to.
    """
    if not isinstance(entry, Along):
        return False
    if entry.offset is None:
        return entry.axis in ragged
    return moved and (isinstance(site, Store) or site.other == 0)


def _same_rows(ir: KernelIR, tensor: Tensor, dim: int) -> set[int]:
    """The dimensions of a form that are one of its array, for any number of rows of that.

    As many elements are before and behind a row.  Of one row several dimensions may be it.
    """
    view = tensor.view
    if view is None:
        return {dim}
    source = ir.tensor(view.source)
    found = _same_rows(ir, source, dim)
    if view.how == "permute":
        return {mine for mine, theirs in enumerate(view.arg) if theirs in found}
    own = {_strides(source.shape, theirs) for theirs in found}
    return {mine for mine in range(len(tensor.shape)) if _strides(tensor.shape, mine) in own}


def _strides(shape: Shape, dim: int) -> tuple[int, int, int]:
    return math.prod(shape[:dim]), shape[dim], math.prod(shape[dim + 1 :])


def ends(ir: KernelIR) -> dict[str, tuple[Place, ...]]:
    """Offsets that say only where tiles over rows begin and end, and the rows they are of.

    Every one of their numbers that is read is a bound of such a range, wherever else it is read.
    Rows are those of arrays that end a range; what is read or stored under a mask does not
    (mask_outside).
    """
    rows, found = ragged_rows(ir), dict[Load, set[Place]]()
    held: dict[str, set[Place]] = {}
    for site in filter(_ends_ranges, every_access(ir.body, ir.axes)):
        name = site.tensor
        for dim, entry in enumerate(site.index):
            if isinstance(entry, Along) and entry.offset is None and dim in rows[name]:
                held.setdefault(entry.axis, set()).add((ir.root(name), _of_array(ir, name, dim)))
    for axis in ir.axes:
        for load in (*_bounds(axis.begin), *_bounds(axis.end)):
            found.setdefault(load, set()).update(held.get(axis.name, ()))
    made: dict[str, tuple[Place, ...]] = {}
    every = [e for e in every_expr(ir.body, ir.axes) if isinstance(e, Load)]
    for name in {load.tensor for load in found}:
        read = {load.index for load in every if load.tensor == name}
        own = {load: places for load, places in found.items() if load.tensor == name}
        if all(own.values()) and read <= {load.index for load in own}:
            made[name] = tuple(sorted(set[Place]().union(*own.values())))
    return made


def _ends_ranges(site: Load | Store) -> bool:
    return site.mask is None


def _of_array(ir: KernelIR, name: str, dim: int) -> int:
    """The dimension of an array that is a row of a form of it."""
    tensor, root = ir.tensor(name), ir.tensor(ir.root(name))
    return next(d for d in range(len(root.shape)) if dim in _same_rows(ir, tensor, d))


def _bounds(expr: Expr) -> Iterator[Load]:
    """What is read for a bound that is it, or the least or the most of it and others."""
    match expr:
        case Load(mask=None):
            yield expr
        case Apply("minimum" | "maximum" | "cast", args):
            yield from (load for arg in args for load in _bounds(arg))
        case _:
            return


def same_but_for_rows(one: KernelIR, other: KernelIR) -> bool:
    """Whether two kernels, of one function, differ only in how many rows there are."""
    if [t.name for t in one.tensors] != [t.name for t in other.tensors]:
        return False
    rows = ragged_rows(one, other=other)
    return _without_rows(one, rows) == _without_rows(other, rows)


def _without_rows(ir: KernelIR, rows: Rows) -> KernelIR:
    """The kernel, whatever its rows: everything else has to be the same for more of them."""

    def cut(tensor: Tensor) -> Tensor:
        dims, view = enumerate(tensor.shape), tensor.view
        shape = tuple(0 if d in rows[tensor.name] else n for d, n in dims)
        view = replace(view, arg=shape) if view is not None and view.how == "reshape" else view
        return replace(tensor, shape=shape, view=view)

    axes = (a if a.static is not None else replace(a, max_extent=None) for a in ir.axes)
    return replace(ir, tensors=tuple(map(cut, ir.tensors)), axes=tuple(axes))


def ending(offsets: Any, rows: Any) -> Any:
    """Offsets that end where the rows do."""
    if isinstance(rows, int):
        return jnp.minimum(offsets, min(rows, jnp.iinfo(offsets.dtype).max))
    return jnp.minimum(offsets, jnp.asarray(rows).astype(offsets.dtype))  # a symbol


def fitted(
    run: Callable[..., Any],
    given: Sequence[tuple[Shape, Shape]],
    made: Sequence[Shape],
    most: Sequence[int | None],
) -> Callable[..., Any]:
    """`run`, which takes more rows, for fewer: `given` are own and wider shapes of arguments.

    most  of offsets the rows that there are, None of other arguments
    """
    dead = [[(0, more - few) for few, more in zip(*pair, strict=True)] for pair in given]
    cuts = [tuple(map(slice, shape)) for shape in made]

    def call(*arrays: Any) -> Any:
        known = [a if n is None else ending(a, n) for a, n in zip(arrays, most, strict=True)]
        padded = [jnp.pad(a, end) if any(map(any, end)) else a for a, end in zip(known, dead)]
        results = run(*padded)
        if len(cuts) == 1:
            return results[cuts[0]]
        return tuple(result[cut] for result, cut in zip(results, cuts, strict=True))

    return call
