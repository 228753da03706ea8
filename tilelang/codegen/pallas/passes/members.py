"""Members: what rows have <-> what groups have one of, by which row is whose.

    member     [tm, g]: begin[g] <= tm < end[g]
    to groups  of one number a row, sum(where(member, v[tm, None], 0), axis=0), or the product
               group_sum(member.T, v[tm, f]); the largest of a few columns one by one
    to rows    of one number a group, sum(where(member, v[None, g], 0), axis=1), or the product
               group_sum(member, v[g, f])

Of the sum to a row one addend at most is not 0: it is exact, and a row of no group gets 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tilelang import ir
from tilelang.ir import Apply, Expr, Type
from tilelang.ir.lanes import expanded, squeezed
from tilelang.language.dtypes import wide_of
from tilelang.language.op import neutral

# (member [groups, rows], values [rows, columns]) -> float32 [groups, columns], or the other way
SUM = "group_sum"


@dataclass(frozen=True)
class Members:
    """Which rows are whose: the axes of groups and of rows, and where rows of groups begin and end.

    begin, end  [groups]
    flat        whether rows are numbers alone, which lie along lanes: groups have those below them
    """

    groups: str
    rows: str
    begin: ir.Load
    end: ir.Load
    flat: bool = False

    def by_rows(self) -> Expr:
        """[rows, groups]: whether a row is one of a group."""
        return self._member((self.rows, self.groups), 1)

    def by_groups(self) -> Expr:
        """The same [groups, rows]."""
        return self._member((self.groups, self.rows), 0)

    def _member(self, both: tuple[str, str], at: int) -> Expr:
        index = ir.TileIndex(self.rows, Type((self.rows,), "int32"))
        row = expanded(index, at)
        tests = (
            Apply(op, (row, expanded(bound, 1 - at)), Type(both, "bool"))
            for op, bound in (("ge", self.begin), ("lt", self.end))
        )
        return Apply("logical_and", tuple(tests), Type(both, "bool"))

    def present(self) -> Expr:
        """[groups]: whether a tile holds rows of a group."""
        kind = Type((self.groups,), "bool")
        first, stop = (ir.TileScalar(self.rows, what) for what in ("begin", "end"))
        pairs = (self.begin, stop), (first, self.end), (self.begin, self.end)
        one, two, three = (Apply("lt", pair, kind) for pair in pairs)
        return Apply("logical_and", (Apply("logical_and", (one, two), kind), three), kind)

    def live(self) -> Expr:
        """[rows]: whether a row is one of any group, which offsets that are not sorted decide."""
        one = ir.Const(1.0, Type((), "float32"), weak=True)
        count = self.picked(Apply("broadcast", (one,), Type((self.groups,), "float32")))
        zero = ir.Const(0.0, Type((), "float32"), weak=True)
        return Apply("gt", (count, zero), Type((self.rows,), "bool"))

    def reduced(self, op: str, values: Expr) -> Expr:
        """[rows] -> [groups]: the sums of their rows, or the largest or least of them."""
        own = self._selected(values, 1, neutral(op, values.type.dtype))
        attrs = (("axis", int(self.flat)), ("keepdim", False))
        return Apply(op, (own,), Type((self.groups,), values.type.dtype), attrs)

    def by_column(self, op: str, values: Expr, width: int) -> Expr:
        """[rows, width] -> [groups, width]: what each column of their rows is reduced to."""
        parts = tuple(expanded(self.reduced(op, column(values, at)), 1) for at in range(width))
        kind = Type((self.groups, width), values.type.dtype)
        return parts[0] if width == 1 else Apply("concat", parts, kind, (("axis", 1),))

    def product(self, values: Expr) -> Expr:
        """[rows, columns] -> float32 [groups, columns]: the sums of their rows."""
        kind = Type((self.groups, *values.type.shape[1:]), "float32")
        return Apply(SUM, (self.by_groups(), values), kind)

    def picked(self, values: Expr) -> Expr:
        """[groups] -> [rows]: what the group of every row has."""
        dtype = values.type.dtype
        if dtype not in ("float32", "int32"):
            wide = "int32" if dtype == "bool" else wide_of(dtype)
            held = Apply("cast", (values,), Type(values.type.shape, wide))
            return Apply("cast", (self.picked(held),), Type((self.rows,), dtype))
        attrs = (("axis", int(not self.flat)), ("keepdim", False))
        return Apply(
            "sum",
            (self._selected(values, 0, neutral("sum", dtype)),),
            Type((self.rows,), dtype),
            attrs,
        )

    def looked_up(self, values: Expr) -> Expr:
        """[groups, columns] -> float32 [rows, columns]: what the group of every row has.

        Groups that have no rows in a tile may hold what is not finite yet: no product is told.
        """
        kind = Type((self.rows, *values.type.shape[1:]), "float32")
        zero = ir.Const(0.0, Type((), values.type.dtype), weak=True)
        held = Apply("where", (expanded(self.present(), 1), values, zero), values.type)
        return Apply(SUM, (self.by_rows(), held), kind)

    def _selected(self, values: Expr, at: int, other: float) -> Expr:
        """[rows, groups]: values of rows, or groups, where they are members, and else another.

        [groups, rows] where rows lie along lanes.
        """
        member = self.by_groups() if self.flat else self.by_rows()
        rest = ir.Const(other, Type((), values.type.dtype), weak=True)
        kind = Type(member.type.shape, values.type.dtype)
        lanes = (member, expanded(values, 1 - at if self.flat else at), rest)
        return Apply("where", lanes, kind, masks=(("group", self.groups),))


def column(values: Expr, at: int) -> Expr:
    """[rows, columns] -> [rows]: one of the columns."""
    kind = replace(values.type, shape=(values.type.shape[0], 1))
    attrs = (("axis", 1), ("start", at), ("stop", at + 1))
    return squeezed(Apply("narrow", (values,), kind, attrs), 1)


def aligned(expr: Expr, rank: int, wanted: int) -> Expr:
    """A value of many, each of `rank`, that meets others of rank `wanted`: they stay in front."""
    for _ in range(wanted - rank):
        expr = expanded(expr, 1)
    return expr
