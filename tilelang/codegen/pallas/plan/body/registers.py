"""Registers: what Mosaic cannot lay out of a body, in operations that it can.

    where(mask, x, 0), of a bfloat16 sum   ->   cast(where(mask, cast(x, float32), 0), bfloat16)
    cast(max(n) > 0, int32)                ->   where(max(n) > 0, 1, 0)
    expand_dims(x, -1), of bfloat16        ->   transpose(expand_dims(x, -2))
    reshape(x, (n, 1, 1)), of bfloat16     ->   cast(reshape(cast(x, float32), (n, 1, 1)), bfloat16)

A reduction leaves one register for many, or copies beside each other.  Masks are of 32 bits, since
comparisons are: they are halved, and extended to numbers, in whole registers and in no others.
Memory is read into whole registers, matrix units fill them, and so does an operation that meets a
larger value.

A new last dimension makes rows of lanes.  There Mosaic follows values of 32 bits that begin at the
first lane of a register, for v6e and 7x those of 16 bits, too; it has transpositions of all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from tilelang.codegen.pallas.passes.wide_operands import cast
from tilelang.codegen.pallas.plan.physical import Bind, PExpr, flat, physical_children
from tilelang.codegen.pallas.plan.rewriting import map_physical, rewrite
from tilelang.ir import Apply, Const, Type, Var
from tilelang.language.dtypes import itemsize, wide_of
from tilelang.language.op import REDUCTIONS, kind_of

from .layouts import apply, permuted
from .statements import Groups

CUTS = ("narrow", "concat", "reshape")  # their results may begin at any lane
Values = Mapping[str, PExpr]


def in_registers(groups: Groups) -> Groups:
    """The statements in operations that the compiler of TPUs lays out."""
    values = {s.name: s.value for s in flat(groups.all) if isinstance(s, Bind)}
    done: dict[int, tuple[PExpr, PExpr]] = {}  # with what has the id, so that it lives

    def visit(expr: PExpr) -> PExpr:
        if id(expr) not in done:
            made = _laid_out(map_physical(expr, visit), values)
            done[id(expr)] = expr, made
            done[id(made)] = made, made
        return done[id(expr)][1]

    parts = ((key, tuple(rewrite(stmt, visit) for stmt in stmts)) for key, stmts in groups.parts)
    return replace(groups, parts=tuple(parts))


def _laid_out(expr: PExpr, values: Values) -> PExpr:
    match expr:
        case Apply("where", (_, *chosen)) if expr.type.dtype == "bfloat16" and expr.type.rank > 1:
            row = expr.type.shape[-2] == 1  # whose mask is a row
            spread = all(value.type.shape != expr.type.shape for value in chosen)
            return _wide(expr) if row or spread or _reduced(expr, values) else expr
        case Apply("cast", (mask,)) if mask.type.dtype == "bool" and _reduced(mask, values):
            numbers = (Const(number, Type((), expr.type.dtype)) for number in (1, 0))
            return replace(expr, op="where", args=(mask, *numbers), attrs=())
        case Apply("expand_dims" | "reshape", (value,)) if _makes_rows(expr):
            narrow = itemsize(value.type.dtype) < 4
            if narrow and expr.type.shape[-2] == 1:
                return _reshaped_wide(expr, value)
            return _turned(expr) if narrow or _cut(value, values) else expr
        case _:
            return expr


def _parts(expr: PExpr, values: Values, *, spread: bool) -> Iterator[Apply]:
    """Operations that a value is made of, as far back as registers were whole.

    spread  those of another shape too, of which an elementwise operation makes whole registers
    """
    waiting, seen = [expr], set[str]()
    while waiting:
        part = waiting.pop()
        match part:
            case Var(name) if name in values and name not in seen:
                waiting.append(values[name])
                seen.add(name)
            case Apply(op) if op != "dot":
                yield part
                parts = physical_children(part)
                flat = spread or kind_of(op) == "shape"
                waiting += (p for p in parts if flat or p.type.shape == part.type.shape)
            case _:
                pass


# ---------------------------------------------------------------- masks


def _reduced(expr: PExpr, values: Values) -> bool:
    """Whether registers may hold an operand as a reduction left it."""
    return any(part.op in REDUCTIONS for part in _parts(expr, values, spread=False))


def _wide(expr: Apply) -> PExpr:
    """A choice, made in 32 bits."""
    mask, *chosen = expr.args
    args = (mask, *(cast(value, "float32") for value in chosen))
    wide = replace(expr, args=args, type=replace(expr.type, dtype="float32"))
    return cast(wide, expr.type.dtype)


# ---------------------------------------------------------------- rows of lanes


def _makes_rows(expr: Apply) -> bool:
    return expr.type.rank > 1 and expr.type.shape[-1] == 1 and _has_lanes(expr.args[0])


def _has_lanes(value: PExpr) -> bool:
    return value.type.shape[-1:] not in ((), (1,))


def _cut(expr: PExpr, values: Values) -> bool:
    """Whether the value may begin at another lane than the first."""
    return any(p.op in CUTS and _has_lanes(p) for p in _parts(expr, values, spread=True))


def _reshaped_wide(expr: Apply, value: PExpr) -> PExpr:
    """Lanes in front of rows, of 32 bits: each is a register of its own."""
    dtype = wide_of(value.type.dtype)
    wide = apply("cast", (value,), value.type.shape, dtype)
    made = replace(expr, args=(wide,), type=replace(expr.type, dtype=dtype))
    return cast(made, expr.type.dtype)


def _turned(expr: Apply) -> PExpr:
    """Lanes in rows: rows of their own, each turned."""
    *lead, lanes, _ = expr.type.shape
    rank, kind = len(lead) + 2, expr.type.dtype
    row = apply("reshape", expr.args, (*lead, 1, lanes), kind, (), expr.loc)
    return permuted(row, (*range(rank - 2), rank - 1, rank - 2))
