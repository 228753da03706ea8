"""Flat scalars: loads from scalar memory -> positions in the array, matrices without padding.

slot[t, k]          ->   slot_flat[t * K + k]           a row of a matrix takes 512 bytes or more
count[ids[b], p]    ->   count[clip(ids[b], 0, 7), p]   memory may hold any number
bias[h, ids[t]]     ->   bias_flat[h * N + ids[t]]      numbers that are picked lie there, too,
el[ids[t]]          ->   cast(el_wide[ids[t]], bf16)    and it holds those of 32 bits
tile(0, n[g])       ->   tile(0, n_flat[g])             also those of which blocks are read, n[t],
x[n[g] + t.index]   ->   x[n_flat[g] + t.index]         where ranges and positions are made of them
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import assert_never

from tilelang import ir
from tilelang.analysis.uses import picks, reads_memory
from tilelang.codegen.pallas.row_loads import read_in_blocks
from tilelang.codegen.pallas.target import Target, scalar_bytes
from tilelang.ir import (
    edges_of,
    every_expr,
    every_loop,
    exprs_of,
    index_exprs,
    map_children,
    map_index,
    statement_exprs,
    statements,
)
from tilelang.ir.integers import INT
from tilelang.ir.lanes import arange
from tilelang.ir.names import unique
from tilelang.ir.traversal import map_body, map_range, map_stmt
from tilelang.language.dtypes import itemsize, wide_of

# A matrix that takes more than this part of scalar memory is made flat: padded rows of smaller ones
# keep no table out.  A guess: kernels with many such matrices were not measured.
WORTH = 16


@dataclass(frozen=True)
class ScalarNest:
    """A loop nest, the tensors of which it reads single numbers only, and views of others.

    flat    in one dimension
    wide    with numbers of 32 bits, of which index arrays pick some
    beside  in one dimension: of what is read in blocks, too, for ranges and positions
    """

    kernel: ir.KernelIR
    alone: frozenset[str]
    flat: Mapping[str, str]
    wide: Mapping[str, str]
    beside: Mapping[str, str]

    @property
    def places(self) -> ScalarNest:
        """What ranges and positions are made of is read by single numbers, whatever else is."""
        if not self.beside:
            return self
        own = self.alone.union(self.beside)
        return replace(self, alone=own, flat={**self.flat, **self.beside})


def flat_scalars(kernel: ir.KernelIR, target: Target) -> ir.KernelIR:
    """The kernel with every load from scalar memory inside of its array."""
    every = every_expr(kernel.body)
    picked = {e.tensor for e in every if isinstance(e, ir.Load) and _picks_numbers(e)}
    able = [t for t in kernel.tensors if t.name in picked and _given(kernel, t)]
    flat = {
        t.name: unique(kernel, t.name, "flat") for t in kernel.tensors if _wastes(kernel, t, target)
    }
    flat |= {t.name: unique(kernel, t.name, "flat") for t in able if len(t.shape) > 1}
    wide = {t.name: unique(kernel, t.name, "wide") for t in able if itemsize(t.dtype) < 4}
    axes = {a.name: a for a in kernel.axes}
    body: list[ir.Stmt] = []
    used: set[str] = set()
    views = dict(flat)
    for loop in kernel.body:
        alone = _alone(kernel, loop)
        places = _beside(kernel, loop)
        alone -= read_in_blocks(kernel, alone - places, target)
        beside = {n: flat.get(n) or unique(kernel, n, "flat") for n in places - alone}
        nest = ScalarNest(kernel, alone, flat, wide, beside)
        views |= beside
        own = [s.axis for s in every_loop((loop,))]
        for name in own:
            axes[name] = map_range(axes[name], partial(_read, nest.places))
        changed = map_body((loop,), partial(_statement, nest))
        body += changed
        used |= {e.tensor for e in _loads(exprs_of(changed, (axes[name] for name in own)))}
    tensors = (*kernel.tensors, *_views(kernel, views, wide, used))
    return replace(kernel, tensors=tensors, axes=tuple(axes.values()), body=tuple(body))


def _wastes(kernel: ir.KernelIR, tensor: ir.Tensor, target: Target) -> bool:
    """Whether scalar memory would be padded by much, and the array is one that stays as it is."""
    root, held = kernel.tensor(kernel.root(tensor.name)), scalar_bytes(tensor.shape)
    padded = held > scalar_bytes((prod(tensor.shape),))
    return padded and held > target.smem // WORTH and not root.mutated and 0 not in tensor.shape


def _given(kernel: ir.KernelIR, tensor: ir.Tensor) -> bool:
    """Whether an array is an argument that nothing changes, or a view of one."""
    root = kernel.tensor(kernel.root(tensor.name))
    return root.role == "input" and not root.mutated and 0 not in tensor.shape


def _picks_numbers(load: ir.Load) -> bool:
    """Whether an index array picks single numbers, of one row."""
    *rows, last = load.index or (None,)
    one = isinstance(last, ir.Gather) and last.expr.type.rank == 1
    return one and all(isinstance(entry, ir.At) for entry in rows)


def _views(
    kernel: ir.KernelIR, flat: Mapping[str, str], wide: Mapping[str, str], used: Collection[str]
) -> Iterator[ir.Tensor]:
    """Those that are read, and what they are views of."""
    needed = {flat[n] for n, view in wide.items() if view in used and n in flat}
    for name, view in flat.items():
        if view in needed.union(used):
            shape = (prod(kernel.tensor(name).shape),)
            yield kernel.tensor(name).seen(view, ir.View(name, "reshape", shape), shape)
    for name, view in wide.items():
        if view in used:
            tensor = kernel.tensor(name)
            of, dtype = ir.View(flat.get(name, name), "cast", ()), wide_of(tensor.dtype)
            yield tensor.seen(view, of, (prod(tensor.shape),), dtype)


# ---------------------------------------------------------------- where numbers are read


def _loads(exprs: Iterable[ir.Expr], asked: bool = True) -> Iterator[ir.Load]:
    """All loads; without `asked` those that no index array of a gather is made of."""
    for expr in exprs:
        if isinstance(expr, ir.Load):
            yield expr
            for entry in expr.index:
                if asked or not isinstance(entry, ir.Gather):
                    yield from _loads(index_exprs(entry), asked)
            yield from _loads(() if expr.mask is None else (expr.mask,), asked)
        elif isinstance(expr, ir.Apply):
            yield from _loads(expr.args, asked)


def _alone(kernel: ir.KernelIR, nest: ir.Loop) -> frozenset[str]:
    """Tensors of which single numbers are read, and nothing but those, except to pick rows."""
    names: set[str] = set()
    others: set[str] = set()
    for stmt in statements((nest,)):
        ranges = (kernel.axis(stmt.axis),) if isinstance(stmt, ir.Loop) else ()
        exprs = (*statement_exprs(stmt), *edges_of(ranges))
        if isinstance(stmt, ir.Store):
            others.add(stmt.tensor)
            exprs = tuple(e for e in exprs if e not in picks(stmt))
        for load in _loads(exprs, asked=False):
            single = all(isinstance(entry, ir.At) for entry in load.index)
            (names if single else others).add(load.tensor)
    return frozenset(names - others)


def _beside(kernel: ir.KernelIR, nest: ir.Loop) -> frozenset[str]:
    """Tensors that stay as they are, of whose numbers ranges and positions are made."""
    axes = [kernel.axis(s.axis) for s in every_loop((nest,))]
    stores = [s for s in statements((nest,)) if isinstance(s, ir.Store)]
    loads = [e for e in every_expr((nest,), axes) if isinstance(e, ir.Load)]
    places = (e for part in (*stores, *loads) for e in part.index if not isinstance(e, ir.Gather))
    made = (e for entry in places for e in index_exprs(entry))
    names = {load.tensor for load in _loads((*edges_of(axes), *made))}
    stored = {kernel.root(s.tensor) for s in stores}
    stays = (n for n in names if kernel.root(n) not in stored)
    return frozenset(n for n in stays if 0 not in kernel.tensor(n).shape)


# ---------------------------------------------------------------- the rewriting


def _statement(nest: ScalarNest, stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    changed = map_stmt(stmt, partial(_read, nest), partial(_entry, nest))
    if isinstance(stmt, ir.Store) and stmt.mask in picks(stmt):
        changed = replace(changed, mask=_read(nest, stmt.mask, asked=True))
    return (changed,)


def _entry(nest: ScalarNest, entry: ir.Index, asked: bool = False) -> ir.Index:
    if isinstance(entry, ir.Gather):
        return map_index(entry, lambda e: _read(nest, e, asked=True))
    return map_index(entry, lambda e: _read(nest.places, e, asked))


def _read(nest: ScalarNest, expr: ir.Expr, asked: bool = False) -> ir.Expr:
    """`asked`: for each row that is picked by itself, so that it is read from scalar memory"""
    if not isinstance(expr, ir.Load):
        return map_children(expr, lambda e: _read(nest, e, asked))
    index = tuple(_entry(nest, entry, asked) for entry in expr.index)
    mask = None if expr.mask is None else _read(nest, expr.mask, asked)
    load = replace(expr, index=index, mask=mask)
    name, numbers = expr.tensor, _picks_numbers(expr)
    if asked or name in nest.alone or (numbers and name in nest.flat):
        load = _one_by_one(nest, load)
    if not numbers or name not in nest.wide:
        return load
    kind = replace(load.type, dtype=wide_of(load.type.dtype))
    return ir.Apply("cast", (replace(load, tensor=nest.wide[name], type=kind),), load.type)


def _one_by_one(nest: ScalarNest, load: ir.Load) -> ir.Load:
    """The load of single numbers inside of its array, or of the flat view."""
    shape = nest.kernel.tensor(load.tensor).shape
    pairs = zip(load.index, shape, strict=True)
    index = tuple(
        replace(entry, expr=_inside(entry.expr, n)) if isinstance(entry, ir.Gather) else entry
        for entry, n in pairs
    )
    if load.tensor not in nest.flat:
        return replace(load, index=index)
    place = _flat_place(index, shape, load.type)
    entry = ir.Gather(place) if load.type.shape else ir.At(place)
    return replace(load, tensor=nest.flat[load.tensor], index=(entry,))


def _inside(expr: ir.Expr, size: int) -> ir.Expr:
    """Positions as they are, unless they were read from memory."""
    if not reads_memory(expr):
        return expr
    low = ir.Apply("maximum", (expr, ir.Const(0, INT)), expr.type)
    return ir.Apply("minimum", (low, ir.Const(size - 1, INT)), expr.type)


def _flat_place(index: tuple[ir.Index, ...], shape: tuple[int, ...], value: ir.Type) -> ir.Expr:
    """The position in the flat array: dimensions times strides, constants together."""
    known, stride = 0, prod(shape)
    terms: list[ir.Expr] = []
    for entry, size in zip(index, shape, strict=True):
        stride //= size
        place = _position(entry, value)
        if isinstance(place, ir.Const):
            known += int(place.value) * stride
            continue
        by = ir.Const(stride, INT)
        terms.append(place if stride == 1 else ir.Apply("mul", (place, by), place.type))
    if known or not terms:
        terms.append(ir.Const(known, INT))
    total = terms[0]
    for term in terms[1:]:
        total = ir.Apply(
            "add", (total, term), ir.Type(total.type.shape or term.type.shape, "int32")
        )
    return total


def _position(entry: ir.Index, value: ir.Type) -> ir.Expr:
    """The positions that an index entry names, as a value."""
    lanes = ir.Type(value.shape, "int32")
    match entry:
        case ir.At(expr) | ir.Gather(expr):
            return expr
        case ir.Along(axis, offset):
            place = ir.TileIndex(axis, lanes)
            return place if offset is None else ir.Apply("add", (place, offset), lanes)
        case ir.Span(start):
            return arange(lanes.shape[0], start)
        case _:
            assert_never(entry)
