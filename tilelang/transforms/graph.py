"""Graph: the values of one launch as formulas over its loads, each value with one name.

acc = 0; for tk: acc = acc + dot(x[tm, tk], w[tk, tn])      %2 = dot(%0, %1)   %3 = sum %2 over tk

A value is an operation on names and numbers, so that equal ones are one, and a walk sees each once.
Its *scope* is the axes that must be open for it to mean something.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, assert_never

from .. import ir
from ..errors import Loc
from ..ir import children, index_exprs, map_children
from .simplify import simplified

How = Literal["sum", "max", "min"]


@dataclass(frozen=True)
class Over:
    """What a loop over `axis` makes of a value: its sum, or its largest or smallest."""

    axis: str
    value: ir.Expr
    how: How
    type: ir.Type
    loc: Loc | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Stored:
    """`tensor[index] = value` where `mask` holds, or an atomic addition; in the loops `around`."""

    tensor: str
    index: tuple[ir.Index, ...]
    type: ir.Type
    value: ir.Expr
    mask: ir.Expr | None
    adds: bool
    loc: Loc
    around: tuple[str, ...] = ()

    @property
    def exprs(self) -> tuple[ir.Expr, ...]:
        """All that it is computed from."""
        inner = (e for i in self.index for e in index_exprs(i))
        return (self.value, *inner, *(() if self.mask is None else (self.mask,)))


@dataclass(frozen=True)
class Near:
    """`axis` runs only where its index is at least other's + low and at most other's + high."""

    other: str
    low: int | None
    high: int | None


@dataclass(frozen=True)
class AxisRange:
    """What an axis runs over, whatever tile of other axes is open.

    axis     as the author declared it, with bounds in names of the graph
    begin, end   the hull of its range over all tiles of the axes in `near`
    near     the bounds that it has relative to the tiles of others
    extent   most positions between begin and end
    """

    axis: ir.Axis
    begin: ir.Expr
    end: ir.Expr
    near: tuple[Near, ...]
    extent: int | None


@dataclass(frozen=True)
class Scan:
    """What a loop over `axis` carries: `first`, and after each iteration factor * it + value.

    whole    what is left of it after the loop; else what an iteration meets
    back     the last iteration comes first
    factor   None is 1
    """

    axis: str
    value: ir.Expr
    factor: ir.Expr | None
    first: ir.Expr
    type: ir.Type
    whole: bool = False
    back: bool = False
    loc: Loc | None = field(default=None, compare=False)

    @property
    def parts(self) -> tuple[ir.Expr, ...]:
        """What it is computed from at once."""
        own = (self.value, self.first)
        return own if self.factor is None else (*own, self.factor)


Term = ir.Apply | ir.Load | Over | Scan


@dataclass
class Graph:
    """Grows while a launch is read and differentiated; a name's value never changes."""

    ranges: dict[str, AxisRange] = field(default_factory=dict)
    values: dict[str, Term] = field(default_factory=dict)
    hints: dict[str, str] = field(default_factory=dict)
    _names: dict[Term, ir.Expr] = field(default_factory=dict)
    _scopes: dict[str, frozenset[str]] = field(default_factory=dict)

    # ------------------------------------------------------------ making

    def add(self, expr: ir.Expr, hint: str = "") -> ir.Expr:
        """The name, number or index that stands for an expression."""
        if not isinstance(expr, ir.Apply | ir.Load):
            return expr
        term = simplified(map_children(expr, self.add), self.term)
        if isinstance(term, ir.Apply | ir.Load) and children(term) != children(expr):
            term = map_children(term, self.add)  # what simplifying made may be new
        return self.named(term, hint) if isinstance(term, ir.Apply | ir.Load) else term

    def named(self, term: Term, hint: str = "") -> ir.Expr:
        """The name of a value whose parts have names."""
        found = self._names.get(term)
        if found is None:
            name = f"%{len(self.values)}"
            self.values[name] = term
            found = self._names[term] = ir.Var(name, term.type)
        if hint and isinstance(found, ir.Var):
            self.hints.setdefault(found.name, hint)
        return found

    def over(self, axis: str, value: ir.Expr, how: How, loc: Loc | None) -> ir.Expr:
        """The sum, the largest or the smallest of a value over an axis.

        The largest of what an axis says nothing about is that itself, and nothing is compared with
        what a loop makes of it: two loops may round one product differently.
        """
        if how != "sum" and axis not in self.scope(value) and self._runs(axis):
            return value
        return self.named(Over(axis, value, how, value.type, loc))

    def _runs(self, axis: str) -> bool:
        """Whether a range is known, and has a position."""
        static = self.ranges[axis].axis.static
        return static is not None and static[0] < static[1]

    def set_range(self, axis: str, range: AxisRange) -> None:
        """Another range for an axis: what must be open for its values may be other axes then."""
        self.ranges[axis] = range
        self._scopes.clear()

    # ------------------------------------------------------------ asking

    def term(self, expr: ir.Expr) -> Term | ir.Expr:
        """What a name stands for; other expressions stand for themselves."""
        return self.values.get(expr.name, expr) if isinstance(expr, ir.Var) else expr

    def parts(self, expr: ir.Expr) -> tuple[ir.Expr, ...]:
        """What a value is computed from at once."""
        match self.term(expr):
            case Over(_, value):
                return (value,)
            case Scan() as term:
                return term.parts
            case ir.Apply() | ir.Load() as term:
                return children(term)
            case _:
                return ()

    def reached(self, roots: Iterable[ir.Expr], until: Collection[str] = ()) -> dict[str, Term]:
        """Every value that the roots are computed from, themselves too: parts first.

        Values in `until` are reached, and not what they are computed from.
        """
        found: dict[str, Term] = {}
        stack = [(e, False) for e in roots]
        seen: set[str] = set()
        while stack:
            expr, done = stack.pop()
            if not isinstance(expr, ir.Var) or expr.name not in self.values:
                continue
            if done:
                found[expr.name] = self.values[expr.name]
            elif expr.name not in seen:
                seen.add(expr.name)
                stack.append((expr, True))
                if expr.name not in until:
                    stack += [(e, False) for e in self.parts(expr)]
        return found

    def operands(self, expr: ir.Expr, op: str) -> tuple[ir.Expr, ...]:
        """The values that an operation which may be regrouped puts together."""
        term = self.term(expr)
        if isinstance(term, ir.Apply) and term.op == op:
            return tuple(p for a in term.args for p in self.operands(a, op))
        return (expr,)

    def leaves(self, roots: Iterable[ir.Expr]) -> Iterator[ir.Expr]:
        """Every index, number and carried name that the roots are computed from."""
        roots = tuple(roots)
        for expr in (*roots, *(p for t in self.reached(roots).values() for p in parts_of(t))):
            if not isinstance(expr, ir.Var) or expr.name not in self.values:
                yield expr

    def uses(self, expr: ir.Expr, names: Collection[str]) -> bool:
        """Whether a value is computed from one of the names."""
        if isinstance(expr, ir.Var) and expr.name in names:
            return True
        reached = self.reached((expr,)).values()
        return any(isinstance(e, ir.Var) and e.name in names for t in reached for e in parts_of(t))

    def replaced(self, expr: ir.Expr, values: Mapping[str, ir.Expr]) -> ir.Expr:
        """The value with other values in the place of names."""
        made: dict[str, ir.Expr] = dict(values)

        def of(part: ir.Expr) -> ir.Expr:
            return made.get(part.name, part) if isinstance(part, ir.Var) else part

        for name, term in self.reached((expr,), until=frozenset(values)).items():
            if name in made:
                continue
            if isinstance(term, Over):
                moved = of(term.value)
                made[name] = self.named(replace(term, value=moved, type=moved.type))
            elif isinstance(term, Scan):
                factor = None if term.factor is None else of(term.factor)
                moved = replace(term, value=of(term.value), factor=factor, first=of(term.first))
                made[name] = self.named(moved)
            else:
                made[name] = self.add(map_children(term, of), self.hints.get(name, ""))
        return of(expr)

    # ------------------------------------------------------------ scopes

    def scope(self, expr: ir.Expr) -> frozenset[str]:
        """The axes that must be open for a value to mean something."""
        if isinstance(expr, ir.Var) and expr.name in self.values:
            if expr.name not in self._scopes:
                for name, term in self.reached((expr,), until=self._scopes).items():
                    self._scopes.setdefault(name, self._scope(term))
            return self._scopes[expr.name]
        match expr:
            case ir.GridIndex(axis) | ir.TileIndex(axis) | ir.TileScalar(axis):
                return self.closed((axis,))
            case _:
                return self._along(expr.type.shape)

    def _scope(self, term: Term) -> frozenset[str]:
        inner = frozenset[str]().union(*map(self.scope, parts_of(term)))
        match term:
            case Over(axis) | Scan(axis, whole=True):
                return (inner - {axis}) | self.bounds(axis)
            case Scan(axis):
                return inner | self.closed((axis,))
            case _:
                pass
        axes = (
            [i.axis for i in term.index if isinstance(i, ir.Along)]
            if isinstance(term, ir.Load)
            else ()
        )
        return inner | self.closed(axes) | self._along(term.type.shape)

    def _along(self, shape: Iterable[ir.Dim]) -> frozenset[str]:
        return self.closed(d for d in shape if isinstance(d, str))

    def bounds(self, axis: str) -> frozenset[str]:
        """The axes that the range of an axis depends on."""
        known = self.ranges.get(axis)
        return frozenset() if known is None else self.scope(known.begin) | self.scope(known.end)

    def closed(self, axes: Iterable[str]) -> frozenset[str]:
        """The axes and those that their ranges depend on."""
        axes = tuple(axes)
        return frozenset(axes).union(*map(self.bounds, axes))

    def ordered(self, axes: Collection[str]) -> tuple[str, ...]:
        """The axes from the outermost in."""
        return tuple(a for a in self.ranges if a in axes)


def parts_of(term: Term) -> tuple[ir.Expr, ...]:
    """What a value is computed from at once."""
    match term:
        case Over(_, value):
            return (value,)
        case Scan():
            return term.parts
        case ir.Apply():
            return term.args
        case ir.Load():
            inner = tuple(e for i in term.index for e in index_exprs(i))
            return inner if term.mask is None else (*inner, term.mask)
        case _:
            assert_never(term)


def number(term: Term | ir.Expr) -> float | int | None:
    """The number that a value is everywhere, if it is one."""
    match term:
        case ir.Const(value):
            return value
        case ir.Apply("full", ()):
            return term.attr("value")
        case ir.Apply("broadcast" | "cast" | "expand_dims", (ir.Const(value),)):
            return value
        case _:
            return None
