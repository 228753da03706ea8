"""Expressions: physical expressions -> nodes of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, assert_never

from tilelang import ir
from tilelang.codegen.pallas.plan import types as plan
from tilelang.codegen.pallas.plan.reads import sources
from tilelang.codegen.pallas.plan.steps.names import ROWS
from tilelang.codegen.writer import (
    TIGHT,
    Atom,
    Attribute,
    Call,
    Group,
    Keyword,
    Node,
    flat,
    infix,
    level,
)
from tilelang.ir.names import fresh

from . import ops
from .names import Names

ZERO, ONE = Atom("0"), Atom("1")


@dataclass
class Printer:
    """Prints expressions of one launch; `pending` collects the index and mask lines they need.

    `locals` maps unique names to printed ones; `made` remembers the axis lines of the scope, and
    values with a name: of what they read, and how often that was `written` before.
    """

    launch: plan.Launch
    names: Names
    locals: dict[str, str] = field(default_factory=dict)
    made: dict[tuple[str, str, tuple[Any, ...]], str] = field(default_factory=dict)
    pending: list[tuple[str, Node]] = field(default_factory=list)
    lane: str = ""  # the lane of which an index is printed
    written: Counter[str] = field(default_factory=Counter)

    def scope(self, axes: dict[str, str] | None = None) -> Printer:
        """A nested scope: sees the lines made so far, keeps its own to itself.

        axes  what some axes are called in it
        """
        names = self.names if axes is None else self.names.renamed(axes)
        known = dict(self.locals), dict(self.made), []
        return Printer(self.launch, names, *known, self.lane, Counter(self.written))

    def free(self, wish: str) -> str:
        """The wished name, or the first one with a number that nothing in scope has."""
        return fresh(wish, self.names.taken | {*self.locals.values(), *self.made.values()})

    def shape(self, dims: tuple[ir.Dim, ...]) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.launch.axis(d).block or 1 for d in dims)

    def text(self, expr: plan.PExpr) -> str:
        return flat(self.node(expr))

    def node(self, expr: plan.PExpr) -> Node:
        """The text of an expression."""
        match expr:
            case ir.Const(value):
                return ops.number(value, expr.type.dtype)
            case ir.Var(name):
                return Atom(self.locals[name])
            case ir.GridIndex(axis):
                return Atom(self.names.axes[axis])
            case ir.TileScalar(axis, what):
                return self.node(self.launch.axis(axis).tile.scalar(what))
            case ir.TileIndex(axis):
                return self.axis_line(axis, "index", self.shape(expr.type.shape))
            case ir.Load(tensor):  # a bound of a loop, read from scalar memory
                return Atom(f"{tensor}[{', '.join(map(self.text, ir.children(expr))) or '0'}]")
            case plan.ScalarRead(array, index):
                return Atom(f"{array}[{', '.join(map(self.text, index)) or '0'}]")
            case plan.Kept():
                return Atom(self.kept(expr))
            case plan.Read(ref, select):
                return Atom(f"{self.block(ref, expr.turned)}[{self.select(select)}]")
            case plan.InRange(mask):
                return self.axis_line(mask.axis, "mask", self.shape(expr.type.shape))
            case plan.Iota(dim):
                return ops.iota(self.shape(expr.type.shape), dim)
            case plan.Lane(axis):
                start = ZERO if axis is None else self.node(self.launch.axis(axis).tile.origin)
                return Atom(self.lane) if start == ZERO else infix("+", start, Atom(self.lane))
            case plan.Tiles(position, block):
                return Call("jax.lax.div", (self.node(position), Atom(str(block))))
            case plan.Rest(position, block):
                return Call("jax.lax.rem", (self.node(position), Atom(str(block))))
            case plan.Recorded(column, row):
                return Atom(f"{self.names.columns[column]}[{self.text(row)}]")
            case plan.OverRows(what, value):
                return self._over_rows(what, self.node(value))
            case plan.Roll(value, by, dim):
                return Call("pltpu.roll", (self.node(value), self.node(by), Atom(str(dim))))
            case plan.RowsFrom():
                return self._rows_from(expr)
            case plan.Head(value, dim):
                several = 1 if isinstance(value, plan.Kept) and value.together else 0
                part = f"{':, ' * (dim - several)}:{self.shape(expr.type.shape)[dim]}"
                if isinstance(value, plan.Kept):
                    return Atom(self.kept(value, part))
                return Atom(f"{_method(self.node(value))}[{part}]")
            case plan.Repeat(value):
                times = self.shape(expr.type.shape)[-1] // self.shape(value.type.shape)[-1]
                many = (1,) * (expr.type.rank - 1) + (times,)
                return Call("jnp.tile", (self.node(value), ops.shape(many)))
            case plan.GroupSum() | plan.Diagonals() | plan.LaneGather():
                return self._called(expr)
            case plan.Named(value, name):
                return self._named(name, value)
            case plan.TakeRows() | plan.MovedRows():
                raise AssertionError("rows are moved by statements")
            case ir.Apply():
                return self._apply(expr)
            case _:
                assert_never(expr)

    def number(self, number: plan.Number) -> Node:
        """Which block of a dimension is shown."""
        node = self.node(number.expr)
        return node if number.rows == 1 else Call("jax.lax.div", (node, Atom(str(number.rows))))

    def _over_rows(self, what: str, value: Node) -> Node:
        """Numbers of all rows of a work list; `locals` know the shape of those."""
        match what:
            case "running":
                return Call("jax.lax.cummax", (value,))
            case "before":
                zero, rest = Atom("jnp.zeros(1, jnp.int32)"), Atom(f"{flat(value)}[:-1]")
                return Call("jnp.concatenate", (Group((zero, rest), "[]"),))
            case "largest":
                return Call("jnp.max", (value,))
            case "alone":
                return Call("jnp.reshape", (value, Atom("(1,)")))
            case "nowhere":
                return Call("jnp.full_like", (value, Atom("-1")))
            case "alike":
                return Call("jnp.broadcast_to", (value, Atom(self.locals[ROWS.name])))
            case _:
                return Call("jnp.full", (Atom(self.locals[ROWS.name]), value, Atom("jnp.int32")))

    # ------------------------------------------------------------ lines of their own

    def axis_line(self, axis_name: str, kind: str, shape: tuple[int, ...]) -> Node:
        """The name of an axis' positions or mask, which a line before the statement defines."""
        key = (axis_name, kind, shape)
        if key in self.made:
            return Atom(self.made[key])
        axis = self.launch.axis(axis_name)
        whole = "index" if axis.shift is None else "position"
        if kind == "mask":  # which lanes lie in [begin, end)
            position = self.axis_line(axis_name, whole, shape)
            sides = [infix(side.op, position, self.node(side.bound)) for side in axis.tile.sides]
            value = all_of(sides)
        elif kind == whole:
            iota, origin = ops.iota(shape, _along(shape)), self._origin(axis)
            value = iota if origin == ZERO else infix("+", origin, iota)
        else:
            assert axis.shift is not None
            position = self.axis_line(axis_name, whole, shape)
            value = infix("-", position, self.node(axis.shift))
        wish = f"{self.names.axes[axis_name]}_{kind}"
        self.made[key] = fresh(wish, {*self.made.values(), *self.locals.values()})
        self.pending.append((self.made[key], value))
        return Atom(self.made[key])

    def _origin(self, axis: plan.AxisPlan) -> Node:
        """The first position of a tile; of one near its range, a line that says what it is of."""
        origin = self.node(axis.tile.origin)
        if axis.near is None:
            return origin
        key = (axis.name, "row", ())
        if key not in self.made:
            self.made[key] = self.free(f"{self.names.axes[axis.name]}_row")
            aligned = Call("pl.multiple_of", (origin, Atom(str(axis.near))))
            self.pending.append((self.made[key], aligned if axis.near > 1 else origin))
        return Atom(self.made[key])

    def _named(self, wish: str, expr: plan.PExpr) -> Node:
        """A value that gets a line and a name of its own before the statement.

        The name is used again until what the value reads is written.
        """
        value = self.node(expr)
        key = (wish, flat(value), tuple((s, self.written[s]) for s in sorted(sources(expr))))
        if key not in self.made:
            self.made[key] = self.free(wish)
            self.pending.append((self.made[key], value))
        return Atom(self.made[key])

    # ------------------------------------------------------------ blocks

    def kept(self, value: plan.Kept | plan.Keep, part: str = "") -> str:
        """The scratch memory that holds a value, or part of it, as it is read and written."""
        places = [self._run(e, 0) for e in value.at[:-1]]
        places += [self._run(e, value.together) for e in value.at[-1:]]
        if value.part is not None:
            rows = self._part(plan.Step(value.part.axis, value.part.block))
            part = rows + part.removeprefix(":")
        at = ", ".join([*places, *([part] if part else [])])
        return f"{self.names.scratch[value.name]}[{at or '...'}]"

    def block(self, ref: str, turned: bool) -> str:
        """The name of a block, or of its copy that is turned."""
        window = self.launch.window(ref).turned if turned else None
        return self.names.scratch[window.name] if window is not None else ref

    def _called(self, value: plan.GroupSum | plan.Diagonals | plan.LaneGather) -> Node:
        """What a function of the module makes."""
        match value:
            case plan.GroupSum(member, rows):
                return Call("group_sums", (self.node(member), self.node(rows)))
            case plan.LaneGather(table, place):
                return Call("lane_gather", (self.node(table), self.node(place)))
            case plan.Diagonals(line, first):
                sizes = ops.shape(self.shape(value.type.shape))
                return Call("diagonals", (self.node(line), self.node(first), sizes))
            case _:
                assert_never(value)

    def _rows_from(self, moved: plan.RowsFrom) -> Node:
        ref, part = moved.source.ref, self.select(moved.source.select)
        block = Atom(ref if part == "..." else f"{ref}.at[{part}]")
        rows = Atom(str(self.shape(moved.type.shape)[0]))
        args = (block, Atom(self.names.scratch[moved.name]), self.node(moved.start), rows)
        return Call("rows_from", args)

    def select(self, select: tuple[plan.Select, ...]) -> str:
        if all(isinstance(s, plan.All) for s in select):
            return "..."
        parts = [self._part(s) for s in select]
        while parts[-1] == ":":
            parts.pop()
        return ", ".join(parts)

    def _part(self, select: plan.Select) -> str:
        match select:
            case plan.All():
                return ":"
            case plan.Part(start, stop):
                return f"{start}:{stop}"
            case plan.Row(expr, together):
                return self._run(expr, together)
            case plan.Step(axis, block, number):
                if axis and (near := self.launch.axis(axis)).near is not None:
                    return f"pl.ds({flat(self._origin(near))}, {near.size})"
                tile = Atom(self.names.axes[axis]) if number is None else self.node(number)
                place = infix("*", tile, Atom(str(block))) if block > 1 else tile
                return f"pl.ds({flat(place)}, {block})"
            case _:
                assert_never(select)

    def _run(self, expr: plan.PExpr, together: int) -> str:
        """A position, or so many from there on."""
        text = self.text(expr)
        return f"{text} : {text} + {together}" if together else text

    # ------------------------------------------------------------ operations

    def _apply(self, expr: ir.Apply) -> Node:
        op, shape, attrs = expr.op, self.shape(expr.type.shape), dict[str, Any](expr.attrs)
        if op in ("minimum", "maximum") and not shape:
            return self._extreme(op, expr)
        args = tuple(self.node(a) for a in expr.args)
        match op:
            case "arange":
                return self._arange(expr, shape)
            case "cast":
                return ops.cast(args[0], expr.type.dtype, len(shape))
            case "full":
                return self._full(expr, shape, args)
            case "broadcast":
                return self._broadcast(expr, shape, args[0])
            case "reshape":
                return Call("reshape", (ops.shape(shape),), of=args[0])
            case "expand_dims" | "squeeze":
                return Call(f"jnp.{op}", (args[0], Atom(str(attrs["axis"]))))
            case "transpose" if attrs["perm"] == (1, 0):
                return Attribute(args[0], "T")
            case "transpose":
                return Call("jnp.transpose", (args[0], ops.shape(attrs["perm"])))
            case "concat":
                axis = Keyword("axis", Atom(str(attrs["axis"])))
                return Call("jnp.concatenate", (Group(args, "[]"), axis))
            case "narrow":
                return ops.narrow(args[0], attrs["axis"], attrs["start"], attrs["stop"])
            case "dot":
                ranks = (len(expr.args[0].type.shape), len(expr.args[1].type.shape))
                batch = attrs.get("batch", ((), ()))
                return ops.dot(args[0], args[1], attrs["contract"], batch, ranks, expr.type.dtype)
            case _ if op in ops.REDUCE:
                return ops.reduce(op, args[0], attrs["axis"], bool(attrs["keepdim"]))
            case _:
                return _typed(expr, ops.ELEMENTWISE[op](*args))

    def _extreme(self, op: str, expr: ir.Apply) -> Node:
        """Nested minima (or maxima) of scalars, each term once; one of each is a clip."""
        match expr:
            case ir.Apply(
                "minimum", (ir.Apply("maximum", (value, ir.Const() as low)), ir.Const() as high)
            ) if low.value <= high.value:
                return Call("jnp.clip", tuple(map(self.node, (value, low, high))))
            case _:
                terms = dict.fromkeys(self._terms(op, expr))
                numbers = [t for t in terms if isinstance(t, ir.Const)]
                printed = [self.node(t) for t in terms if not isinstance(t, ir.Const)]
                if numbers:  # of several numbers only one can matter
                    most = (min if op == "minimum" else max)(numbers, key=lambda n: n.value)
                    printed.append(self.node(most))
                distinct = {flat(node): node for node in printed}.values()
                return reduce(lambda a, b: Call(f"jnp.{op}", (a, b)), distinct)

    def _terms(self, op: str, expr: plan.PExpr) -> list[plan.PExpr]:
        if isinstance(expr, ir.TileScalar):
            expr = self.launch.axis(expr.axis).tile.scalar(expr.what)
        if isinstance(expr, ir.Apply) and expr.op == op:
            return [t for a in expr.args for t in self._terms(op, a)]
        return [expr]

    def _full(self, expr: ir.Apply, shape: tuple[int, ...], args: tuple[Node, ...]) -> Node:
        if args:
            return ops.full(shape, args[0], expr.type.dtype)
        value: Any = expr.attr("value")
        node = ops.number(value, expr.type.dtype)
        return ops.full(shape, node, expr.type.dtype, zero=value == 0) if shape else node

    def _broadcast(self, expr: ir.Apply, shape: tuple[int, ...], value: Node) -> Node:
        (arg,) = expr.args
        if self.shape(arg.type.shape) == shape:
            return value
        if arg.type.shape:
            return Call("jnp.broadcast_to", (value, ops.shape(shape)))
        return ops.full(shape, value, expr.type.dtype, isinstance(arg, ir.Const) and arg.value == 0)

    def _arange(self, expr: ir.Apply, shape: tuple[int, ...]) -> Node:
        attrs, dtype = dict[str, Any](expr.attrs), expr.type.dtype
        node: Node = ops.iota(shape, _along(shape))
        if attrs.get("step", 1) != 1:
            node = infix("*", node, ops.number(attrs["step"], dtype))
        if attrs.get("start", 0) != 0:
            node = infix("+", ops.number(attrs["start"], dtype), node)
        return node if dtype == "int32" else ops.cast(node, dtype, 1)


def all_of(tests: Sequence[Node]) -> Node:
    """Every test holds."""
    return reduce(partial(infix, "&"), tests)


def any_of(tests: Sequence[Node]) -> Node:
    """One of the tests holds."""
    return reduce(partial(infix, "|"), tests)


def _along(shape: tuple[int, ...]) -> int:
    """The dimension that a vector runs along."""
    return next((d for d, e in enumerate(shape) if e != 1), len(shape) - 1)


def _typed(expr: ir.Apply, node: Node) -> Node:
    """Numbers alone take JAX's default type; give them the one they have here."""
    numbers = all(isinstance(a, ir.Const) for a in expr.args if a.type.dtype != "bool")
    if expr.op == "where" and numbers and expr.type.dtype not in ("float32", "int32", "bool"):
        return ops.cast(node, expr.type.dtype, 1)
    return node


def _method(node: Node) -> str:
    return flat(node) if level(node) >= TIGHT else f"({flat(node)})"
