"""symbolic(expr, scope(ir)) -> sympy.Expr: the integer scalars of a kernel as symbolic expressions.

    hl.grid axis g, and the position along a tile axis t     symbols  g, t
    t.begin, t.end, t.id, t.count, t.block_size              symbols  t.begin, t.end, ...
    a scalar load  offsets[g + 1]                            function offsets(g + 1)
    a named value                                            its definition
    anything else (carries, data the kernel stores, floats)  a symbol  %name  nothing is known of

Only a load from a tensor that the kernel never stores to is a function of its indices; a load from
one that it does store to may differ from one evaluation to the next.  Arithmetic in int32 is taken
as exact; `bounds` says where it may not be.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, assert_never

import sympy
from sympy.core.function import AppliedUndef
from sympy.logic.boolalg import Boolean
from sympy.printing.str import StrPrinter

from ..ir import (
    Along,
    Apply,
    Assign,
    At,
    Const,
    Expr,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Store,
    TileIndex,
    TileScalar,
    Var,
    authors,
    every_access,
)
from .placed import Place, placed

EDGES = ("begin", "end", "id", "count", "block_size")
EXACT = ("int32", "int64")
ON_BOOLEANS = ("cast", "where", "eq", "ne", "logical_and", "logical_or", "logical_not")


@dataclass(frozen=True)
class Meanings:
    """What symbols of one kernel mean.

    values   scalar Var -> its value in terms of symbols
    varies   symbol -> the axes whose iterations change it
    stored   root tensors that the kernel stores to
    users    axis name -> what the author called it
    called   the same of symbols that stand for values
    """

    ir: KernelIR
    values: Mapping[str, sympy.Basic]
    varies: Mapping[sympy.Symbol, Place]
    stored: frozenset[str]
    users: Mapping[str, str]
    called: Mapping[str, str]

    @cached_property
    def moved(self) -> frozenset[str]:
        """The tiles that lie at an offset in some array, and may be cut there."""
        index = (i for site in every_access(self.ir.body) for i in site.index)
        return frozenset(i.axis for i in index if isinstance(i, Along) and i.offset is not None)


@lru_cache(256)
def position(axis: str) -> sympy.Symbol:
    """The index of a grid axis, or a position covered by the current tile."""
    return sympy.Symbol(axis, integer=True)


@lru_cache(1024)
def edge(axis: str, what: str) -> sympy.Symbol:
    """tile.begin, tile.end, tile.id, tile.count or tile.block_size."""
    return sympy.Symbol(f"{axis}.{what}", integer=True)


def opaque(name: str) -> sympy.Symbol:
    """A named value of which nothing is known but that it is one value."""
    return sympy.Symbol(f"%{name}", integer=True)


def table(name: str) -> Callable[..., sympy.Expr]:
    """The function that a read-only integer tensor is."""
    return sympy.Function(name, integer=True)


def parts(expr: sympy.Basic) -> tuple[Any, ...]:
    """The arguments of a sympy expression, whose classes sympy leaves open."""
    return expr.args


def renamed(expr: sympy.Basic, names: Mapping[Any, sympy.Basic]) -> Any:
    """The expression with symbols replaced, all at once."""
    return expr.xreplace(dict(names))


def scope(ir: KernelIR) -> Meanings:
    """Gives every scalar value of the kernel its symbolic form, in statement order."""
    stored = frozenset(ir.root(s.tensor) for s, _ in placed(ir.body) if isinstance(s, Store))
    values: dict[str, sympy.Basic] = {}
    varies = _axis_symbols(ir)
    called = {opaque(name).name: user for name, user in authors(ir.body).items()}
    made = Meanings(ir, values, varies, stored, {a.name: a.user for a in ir.axes}, called)
    for stmt, around in placed(ir.body):
        match stmt:
            case Assign(name, value) if not value.type.shape:
                _define(made, values, varies, name, value, around)
            case Loop(axis):
                for carry in stmt.carries:
                    varies[opaque(carry.name)] = (*around, axis)
                    varies[opaque(carry.out)] = around
            case _:
                pass
    return made


def _axis_symbols(ir: KernelIR) -> dict[sympy.Symbol, Place]:
    found: dict[sympy.Symbol, Place] = {}
    for axis in ir.axes:
        found[position(axis.name)] = (axis.name,)
        for what in EDGES:
            found[edge(axis.name, what)] = () if what == "block_size" else (axis.name,)
    return found


def _define(
    made: Meanings,
    values: dict[str, sympy.Basic],
    varies: dict[sympy.Symbol, Place],
    name: str,
    value: Expr,
    around: Place,
) -> None:
    varies[opaque(name)] = around
    meaning = symbolic(value, made)
    if not meaning.atoms(sympy.Dummy):
        values[name] = meaning


def axes_of(expr: sympy.Basic, known: Meanings) -> frozenset[str]:
    """The axes whose iterations may change the value; all of them for an unnamed unknown."""
    everything = tuple(known.users)
    symbols = (s for s in expr.free_symbols if isinstance(s, sympy.Symbol))
    return frozenset(a for s in symbols for a in known.varies.get(s, everything))


def symbolic(expr: Expr, known: Meanings) -> Any:
    """A scalar expression of the kernel; booleans become sympy relations."""
    match expr:
        case Const():
            return _constant(expr)
        case GridIndex(axis) | TileIndex(axis):
            return position(axis)
        case TileScalar(axis, what):
            return edge(axis, what)
        case Var(name):
            return known.values.get(name, _as(opaque(name), expr))
        case Load():
            return _as(_loaded(expr, known), expr)
        case Apply():
            return _as(_applied(expr, known), expr)
        case _:
            assert_never(expr)


def _constant(expr: Const) -> sympy.Basic:
    if isinstance(expr.value, bool):
        return sympy.true if expr.value else sympy.false
    if isinstance(expr.value, int):
        return sympy.Integer(expr.value)
    return _unknown("number")


def _unknown(name: str) -> sympy.Dummy:
    return sympy.Dummy(f"?{name}", integer=True)


def _as(value: Any, expr: Expr) -> Any:
    """A relation where the type is bool, a number elsewhere."""
    if expr.type.dtype == "bool":
        return value if isinstance(value, Boolean) and not value.is_Symbol else sympy.Ne(value, 0)
    if value.is_Symbol or not isinstance(value, Boolean):
        return value
    return sympy.Piecewise((1, value), (0, True))


def _loaded(expr: Load, known: Meanings) -> sympy.Expr:
    pure = expr.mask is None and known.ir.root(expr.tensor) not in known.stored
    scalars = [i.expr for i in expr.index if isinstance(i, At)]
    whole = expr.type.dtype in (*EXACT, "bool")
    if not pure or not whole or expr.type.shape or len(scalars) != len(expr.index):
        return _unknown(expr.tensor)
    return table(expr.tensor)(*(symbolic(s, known) for s in scalars))


def _applied(expr: Apply, known: Meanings) -> Any:
    rule = RULES.get(expr.op)
    exact = all(a.type.dtype in (*EXACT, "bool") for a in (expr, *expr.args))
    scalar = not any(a.type.shape for a in (expr, *expr.args))
    if rule is None or not exact or not scalar or not _typed(expr):
        return _unknown(expr.op)
    result = rule(*(symbolic(a, known) for a in expr.args))
    return _unknown(expr.op) if result is None else result


def _typed(expr: Apply) -> bool:
    """Whether the op means on booleans what its rule says."""
    return expr.op in ON_BOOLEANS or all(a.type.dtype != "bool" for a in expr.args)


# ---------------------------------------------------------------- meaning of the scalar ops


CHOICES = 2  # inside of another; those of a loop inside of two ifs are as many


def floor_div(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    """floor(a / b); floor(floor(x / m) / n) is written floor(x / (m * n))."""
    if b.is_zero is not False:
        return None
    if isinstance(a, sympy.floor) and b.is_Integer and b.is_positive:
        return sympy.floor(a.args[0] / b)
    return sympy.floor(a / b)


def _mod(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    return None if b.is_zero is not False else sympy.Mod(a, b)


def _shift_left(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    return a * 2**b if b.is_Integer and b.is_nonnegative else None


def _shift_right(a: sympy.Expr, b: sympy.Expr) -> sympy.Expr | None:
    return floor_div(a, 2**b) if b.is_Integer and b.is_nonnegative else None


def _number(value: Any) -> Any:
    return value if not isinstance(value, Boolean) or value.is_Symbol else _one_or_zero(value)


def _one_or_zero(condition: Any) -> Any:
    return sympy.Piecewise((1, condition), (0, True))


def _where(condition: Any, a: Any, b: Any) -> Any:
    """Unknown where it is one of many choices, whose cases sympy would multiply out."""
    if sum(len(each.atoms(sympy.Piecewise)) for each in (condition, a, b)) > CHOICES:
        return None
    if isinstance(a, Boolean) and not a.is_Symbol:
        return sympy.Or(sympy.And(condition, a), sympy.And(sympy.Not(condition), b))
    return sympy.Piecewise((a, condition), (b, True))


def _compare(relation: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, b: relation(_number(a), _number(b))


RULES: Mapping[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
    "abs": sympy.Abs,
    "floordiv": floor_div,
    "mod": _mod,
    "shift_left": _shift_left,
    "shift_right": _shift_right,
    "minimum": lambda a, b: sympy.Min(a, b),
    "maximum": lambda a, b: sympy.Max(a, b),
    "cast": lambda a: a,
    "where": _where,
    "eq": _compare(sympy.Eq),
    "ne": _compare(sympy.Ne),
    "lt": _compare(sympy.Lt),
    "le": _compare(sympy.Le),
    "gt": _compare(sympy.Gt),
    "ge": _compare(sympy.Ge),
    "logical_and": lambda a, b: sympy.And(a, b),
    "logical_or": lambda a, b: sympy.Or(a, b),
    "logical_not": lambda a: sympy.Not(a),
}


# ---------------------------------------------------------------- as the author would write it


class _Subscripts(StrPrinter):
    """Prints offsets(g + 1) as offsets[g + 1] and Min as min."""

    def _print_Function(self, expr: Any) -> str:
        arguments = ", ".join(self._print(a) for a in expr.args)
        if isinstance(expr, AppliedUndef):
            return f"{expr.func.__name__}[{arguments}]"
        return f"{expr.func.__name__.lower()}({arguments})"

    def _print_LatticeOp(self, expr: Any) -> str:
        """Min and Max; loaded bounds first, because sympy gives no order."""
        arguments = sorted((self._print(a) for a in expr.args), key=lambda t: ("[" not in t, t))
        return f"{expr.func.__name__.lower()}({', '.join(arguments)})"

    _print_Min = _print_Max = _print_LatticeOp


def written(expr: sympy.Basic, known: Meanings) -> str:
    """The expression in the author's names: offsets[g + 1], min(n, tq.end)."""
    renamed = {s: sympy.Symbol(_user(s, known)) for s in expr.free_symbols}
    return _Subscripts().doprint(expr.xreplace(renamed))


def _user(symbol: Any, known: Meanings) -> str:
    if symbol.name in known.called:
        return known.called[symbol.name]
    axis, dot, what = symbol.name.partition(".")
    return known.users.get(axis, axis.lstrip("%?")) + dot + what
