"""Numbers as rows: arrays in which index arrays pick numbers that change -> arrays of rows of one.

    hl.atomic_add(out, [ids[t]], v)   ->   hl.atomic_add(out, [ids[t], 0:1], v[:, None])
    return out                        ->   return out.reshape(n)

TPUs address rows of memory, and no lanes within one; scalar memory holds what nothing changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import replace
from functools import partial

from tilelang import ir
from tilelang.ir import loads, map_children, map_index, statement_exprs, statements
from tilelang.ir.integers import INT
from tilelang.ir.lanes import expanded, squeezed
from tilelang.ir.names import unique
from tilelang.ir.traversal import map_body, map_range, map_stmt


def numbers_as_rows(kernel: ir.KernelIR, others: Set[str] = frozenset()) -> ir.KernelIR:
    """The kernel with a last dimension of one in arrays of which numbers are picked and change,
    and in these others.

    The facts know them by their names: those stay with what is stored to.
    """
    rows = frozenset(_picked(kernel)) | others
    if not rows:
        return kernel
    seen = {t.view.source for t in kernel.tensors if t.view is not None and t.view.how != "reshape"}
    needed = [
        t.name for t in kernel.tensors if t.name in rows and t.name in {*kernel.returns, *seen}
    ]
    back = {name: unique(kernel, name, "numbers") for name in needed}
    return replace(
        kernel,
        tensors=tuple(new for tensor in kernel.tensors for new in _tensors(tensor, rows, back)),
        axes=tuple(map_range(axis, partial(_read, rows)) for axis in kernel.axes),
        body=map_body(kernel.body, partial(_statement, rows)),
        returns=tuple(back.get(name, name) for name in kernel.returns),
    )


def _tensors(tensor: ir.Tensor, rows: Set[str], back: Mapping[str, str]) -> Iterator[ir.Tensor]:
    """An array of rows, and as the author knows it; views go by elements, or are of the latter."""
    view = tensor.view
    if view is not None and view.source in back and view.how != "reshape":
        yield replace(tensor, view=replace(view, source=back[view.source]))
    elif tensor.name not in rows:
        yield tensor
    else:
        yield _with_one(tensor)
        if tensor.name in back:
            yield tensor.seen(back[tensor.name], ir.View(tensor.name, "reshape", tensor.shape))


def _with_one(tensor: ir.Tensor) -> ir.Tensor:
    given = tensor.shape if tensor.role == "input" else None
    return replace(tensor, shape=(*tensor.shape, 1), given=given)


def _picked(kernel: ir.KernelIR) -> Iterator[str]:
    """Arrays that a nest stores to, and picks numbers of, in either way."""
    able = {t.name for t in kernel.tensors if t.role == "output" or t.mutated}
    for loop in kernel.body:
        own = tuple(statements((loop,)))
        stored = {s.tensor for s in own if isinstance(s, ir.Store)} & able
        for stmt in own:
            found = [load for expr in statement_exprs(stmt) for load in loads(expr)]
            picked = {
                e.tensor for e in found if len(e.index) == 1 and isinstance(e.index[0], ir.Gather)
            }
            if isinstance(stmt, ir.Store) and stmt.index and isinstance(stmt.index[-1], ir.Gather):
                picked.add(stmt.tensor)
            yield from picked & stored


def _statement(rows: Set[str], stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
    if not (isinstance(stmt, ir.Store) and stmt.tensor in rows):
        return (map_stmt(stmt, partial(_read, rows), partial(_entry, rows)),)
    place = _with_row(tuple(_entry(rows, entry) for entry in stmt.index))
    mask = None if stmt.mask is None else _row(rows, stmt.mask)
    return (replace(stmt, index=place, value=_value(rows, stmt), mask=mask),)


def _value(rows: Set[str], store: ir.Store) -> ir.Expr:
    """What is stored, an update with what is there among its operands."""
    value = store.value
    if store.combine is None:
        return _row(rows, value)
    old, new = (_row(rows, arg) for arg in store.operands)
    return replace(value, args=(old, new), type=_longer(value.type))


def _entry(rows: Set[str], entry: ir.Index) -> ir.Index:
    return map_index(entry, partial(_read, rows))


def _read(rows: Set[str], expr: ir.Expr) -> ir.Expr:
    """A value as it was, of loads of rows."""
    if not (isinstance(expr, ir.Load) and expr.tensor in rows):
        return map_children(expr, partial(_read, rows))
    row = _row(rows, expr)
    return squeezed(row, expr.type.rank) if expr.type.shape else row


def _row(rows: Set[str], expr: ir.Expr) -> ir.Expr:
    """A value with a dimension of one behind its own; a single number is broadcast."""
    if not (isinstance(expr, ir.Load) and expr.tensor in rows):
        made = _read(rows, expr)
        return expanded(made, made.type.rank) if made.type.shape else made
    place = _with_row(tuple(_entry(rows, entry) for entry in expr.index))
    mask = None if expr.mask is None else _row(rows, expr.mask)
    kind = _longer(expr.type)
    return replace(expr, index=place, mask=mask, type=kind)


def _longer(kind: ir.Type) -> ir.Type:
    return replace(kind, shape=(*kind.shape, 1)) if kind.shape else kind


def _with_row(index: tuple[ir.Index, ...]) -> tuple[ir.Index, ...]:
    single = all(isinstance(entry, ir.At) for entry in index)
    return (*index, ir.At(ir.Const(0, INT)) if single else ir.Span(0, 1))
