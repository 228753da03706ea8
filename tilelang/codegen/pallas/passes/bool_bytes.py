"""Bool bytes: tiles of bool arrays -> tiles of bytes; Mosaic copies no bools.

    where(keep[t, :], x, 0)           ->   where(cast(keep_bytes[t, :], int32) != 0, x, 0)
    y[t, :] = x[t, :] > 0; return y   ->   y[t, :] = cast(x[t, :] > 0, int8); return y != 0

Single numbers that are given stay: they lie in scalar memory.  So do arrays that the kernel changes
in place.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilelang import ir
from tilelang.ir import map_children, statement_exprs, statements, walk
from tilelang.ir.names import unique
from tilelang.ir.traversal import map_body, map_stmt

BYTE, INT = "int8", "int32"


def bool_bytes(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel without tiles of bools, but of arrays that it changes."""
    tiled = set(_tiled(kernel))
    found = {
        t.name: kernel.tensor(kernel.root(t.name)) for t in kernel.tensors if t.dtype == "bool"
    }
    roots = {source.name for name, source in found.items() if name in tiled}
    made_here = {n for n, s in found.items() if s.name in roots and s.role == "output"}
    read = [n for n, s in found.items() if n in tiled and s.role == "input" and not s.mutated]
    if not made_here and not read:
        return kernel
    given = {name: unique(kernel, name, "bytes") for name in read}
    returned = {name: unique(kernel, name, "bools") for name in kernel.returns if name in made_here}

    def change(expr: ir.Expr) -> ir.Expr:
        expr = map_children(expr, change)
        if isinstance(expr, ir.Load) and expr.tensor in made_here:
            return _bools(expr, expr.tensor)
        if isinstance(expr, ir.Load) and expr.tensor in given and expr.type.shape:
            return _bools(expr, given[expr.tensor])
        return expr

    def statement(stmt: ir.Stmt) -> tuple[ir.Stmt, ...]:
        made = map_stmt(stmt, change)
        if isinstance(made, ir.Store) and made.tensor in made_here:
            value = ir.Apply("cast", (made.value,), ir.Type(made.value.type.shape, BYTE))
            made = replace(made, value=value)
        return (made,)

    tensors = tuple(_bytes(t) if t.name in made_here else t for t in kernel.tensors)
    both = [(n, made, BYTE) for n, made in given.items()]
    both += [(n, made, "bool") for n, made in returned.items()]
    views = (
        kernel.tensor(n).seen(made, ir.View(n, "cast", ()), dtype=dtype) for n, made, dtype in both
    )
    returns = tuple(returned.get(name, name) for name in kernel.returns)
    body = map_body(kernel.body, statement)
    return replace(kernel, tensors=(*tensors, *views), returns=returns, body=body)


def _tiled(kernel: ir.KernelIR) -> Iterator[str]:
    """Tensors of which tiles are read or stored."""
    for stmt in statements(kernel.body):
        if isinstance(stmt, ir.Store):
            yield stmt.tensor
        for expr in statement_exprs(stmt):
            for e in walk(expr):
                if isinstance(e, ir.Load) and e.type.shape:
                    yield e.tensor


def _bytes(tensor: ir.Tensor) -> ir.Tensor:
    fill = None if tensor.fill is None else int(bool(tensor.fill))
    return replace(tensor, dtype=BYTE, fill=fill)


def _bools(load: ir.Load, name: str) -> ir.Expr:
    """The same bools, of bytes: v5e compares no narrower numbers than of 32 bits."""
    shape = load.type.shape
    read = replace(load, tensor=name, type=ir.Type(shape, BYTE))
    wide = ir.Apply("cast", (read,), ir.Type(shape, INT))
    return ir.Apply("ne", (wide, ir.Const(0, ir.Type((), INT))), ir.Type(shape, "bool"))
