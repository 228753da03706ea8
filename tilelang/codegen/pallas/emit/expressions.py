"""Expressions: physical expressions -> nodes of text."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial, reduce

from tilelang.codegen.pallas.plan.types import (
    All,
    AxisPlan,
    InRange,
    Iota,
    Keep,
    Kept,
    Launch,
    Number,
    Part,
    PExpr,
    Read,
    Row,
    ScalarRead,
    Select,
    Step,
    TakeRows,
)
from tilelang.codegen.writer import TIGHT, Atom, Call, Group, Keyword, Node, flat, infix, level
from tilelang.ir import (
    Apply,
    Const,
    Dim,
    GridIndex,
    Load,
    TileIndex,
    TileScalar,
    Var,
    integers,
)

from . import ops
from .names import Names


@dataclass
class Printer:
    """Prints expressions of one launch; `pending` collects the index and mask lines they need.

    `locals` maps unique names to printed ones; `made` remembers the axis lines of the scope.
    """

    launch: Launch
    names: Names
    locals: dict[str, str] = field(default_factory=dict)
    made: dict[tuple[str, str, tuple[int, ...]], str] = field(default_factory=dict)
    pending: list[tuple[str, Node]] = field(default_factory=list)
    lane: str = ""  # the lane of which an index is printed

    def scope(self) -> Printer:
        """A nested scope: sees the lines made so far, keeps its own to itself."""
        return Printer(self.launch, self.names, dict(self.locals), dict(self.made), lane=self.lane)

    def shape(self, dims: tuple[Dim, ...]) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.launch.axis(d).block or 1 for d in dims)

    def node(self, expr: PExpr) -> Node:
        """The text of an expression."""
        match expr:
            case Const(value):
                return ops.number(value, expr.type.dtype)
            case Var(name):
                return Atom(self.locals[name])
            case GridIndex(axis):
                return Atom(self.names.axes[axis])
            case TileScalar(axis, what):
                return self.node(self.launch.axis(axis).tile.scalar(what))
            case TileIndex(axis):
                return self.axis_line(axis, "index", self.shape(expr.type.shape))
            case Kept():
                ref = Atom(self.kept(expr))
                return infix("!=", ref, Atom("0")) if expr.type.dtype == "bool" else ref
            case ScalarRead(array, index):
                inner = ", ".join(self.text(i) for i in index) or "0"
                return Atom(f"{array}[{inner}]")
            case Read(ref, select):
                return Atom(f"{self.block(ref, expr.turned)}[{self.select(select)}]")
            case Load(tensor, index):  # a bound of a loop, read from scalar memory
                inner = ", ".join(self.text(i.expr) for i in index)  # type: ignore[union-attr]
                return Atom(f"{tensor}[{inner or '0'}]")
            case InRange(mask):
                return self.axis_line(mask.axis, "mask", self.shape(expr.type.shape))
            case Iota(dim):
                return ops.iota(self.shape(expr.type.shape), dim)
            case TakeRows():
                raise AssertionError("gathers are printed as statements")
            case Apply():
                return self.apply(expr)

    def text(self, expr: PExpr) -> str:
        return flat(self.node(expr))

    def number(self, number: Number) -> Node:
        """Which block of a dimension is shown."""
        node = self.node(number.expr)
        return node if number.rows == 1 else Call("jax.lax.div", (node, Atom(str(number.rows))))

    # ------------------------------------------------------------ positions

    def runs(self, axis: AxisPlan) -> Node:
        """The tile holds a position of the range; for an index, it lies in the range."""
        return self.node(axis.tile.runs)

    def positions(self, axis: AxisPlan, shape: tuple[int, ...]) -> Node:
        along = next((d for d, e in enumerate(shape) if e != 1), len(shape) - 1)
        iota = ops.iota(shape, along)
        origin = self.node(axis.tile.origin)
        return iota if origin == Atom("0") else infix("+", origin, iota)

    def axis_line(self, axis_name: str, kind: str, shape: tuple[int, ...]) -> Node:
        """The name of an axis' positions or mask, which a line before the statement defines."""
        key = (axis_name, kind, shape)
        if key in self.made:
            return Atom(self.made[key])
        axis = self.launch.axis(axis_name)
        match kind:
            case "mask":
                value = self.mask_value(axis, shape)
            case "position":
                value = self.positions(axis, shape)
            case _:
                value = self.index_value(axis, shape)
        name = f"{self.names.axes[axis_name]}_{kind}"
        taken = set(self.made.values()) | set(self.locals.values())
        number = 0
        unique = name
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        self.made[key] = unique
        self.pending.append((unique, value))
        return Atom(unique)

    def index_value(self, axis: AxisPlan, shape: tuple[int, ...]) -> Node:
        if axis.shift is None:
            return self.positions(axis, shape)
        position = self.axis_line(axis.name, "position", shape)
        return infix("-", position, self.node(axis.shift))

    def mask_value(self, axis: AxisPlan, shape: tuple[int, ...]) -> Node:
        """Which lanes lie in [begin, end)."""
        position = self.axis_line(axis.name, "index" if axis.shift is None else "position", shape)
        sides = [infix(side.op, position, self.node(side.bound)) for side in axis.tile.sides]
        return reduce(partial(infix, "&"), sides)

    # ------------------------------------------------------------ blocks

    def kept(self, value: Kept | Keep) -> str:
        """The scratch memory that holds a value, as it is read and written."""
        at = ", ".join(self.text(e) for e in value.at)
        return f"{self.names.scratch[value.name]}[{at or '...'}]"

    def block(self, ref: str, turned: bool) -> str:
        """The name of a block, or of its copy that is turned."""
        window = self.launch.window(ref).turned if turned else None
        return self.names.scratch[window.name] if window is not None else ref

    def select(self, select: tuple[Select, ...]) -> str:
        if all(isinstance(s, All) for s in select):
            return "..."
        parts = [self._part(s) for s in select]
        while parts[-1] == ":":
            parts.pop()
        return ", ".join(parts)

    def _part(self, select: Select) -> str:
        match select:
            case All():
                return ":"
            case Part(start, stop):
                return f"{start}:{stop}"
            case Row(expr):
                return self.text(expr)
            case Step(_, block, number) if number is not None:
                start = infix("*", self.node(number), Atom(str(block)))
                return f"pl.ds({flat(start)}, {block})"
            case Step(axis, block):
                return f"pl.ds({self.names.axes[axis]} * {block}, {block})"

    # ------------------------------------------------------------ operations

    def apply(self, expr: Apply) -> Node:
        op, shape = expr.op, self.shape(expr.type.shape)
        if op == "arange":
            return self._arange(expr, shape)
        if op == "lane_position":
            return self._lane_position(expr)
        label = expr.attr("label")
        if label is not None:
            return self._labelled(str(label), expr)
        args = tuple(self.node(a) for a in expr.args)
        match op:
            case "cast":
                return ops.cast(args[0], expr.type.dtype, len(shape))
            case "full":
                return self._full(expr, shape, args)
            case "broadcast":
                return self._broadcast(expr, shape, args[0])
            case "reshape":
                return Call("reshape", (ops.shape(shape),), of=args[0])
            case "expand_dims":
                return Call("jnp.expand_dims", (args[0], Atom(str(expr.attr("axis")))))
            case "squeeze":
                return Call("jnp.squeeze", (args[0], Atom(str(expr.attr("axis")))))
            case "transpose":
                return self._transpose(expr, args[0])
            case "concat":
                axis = Keyword("axis", Atom(str(expr.attr("axis"))))
                return Call("jnp.concatenate", (Group(args, "[]"), axis))
            case "head":
                dim = int(expr.attr("axis"))
                return Atom(f"{_method(args[0])}[{':, ' * dim}:{shape[dim]}]")
            case "roll":
                return Call("pltpu.roll", (*args, Atom(str(expr.attr("axis")))))
            case "tiles":  # of a position that is not negative
                return Call("jax.lax.div", (*args, Atom(str(expr.attr("block")))))
            case "dot":
                return self._dot(expr, args)
            case _ if op in ops.REDUCE:
                axis, keep = expr.attr("axis"), bool(expr.attr("keepdim"))
                return ops.reduce(op, args[0], int(axis), keep)
            case "minimum" | "maximum" if not shape:
                return self._extreme(op, expr)
            case "mod" if not shape:
                plain = ops.ELEMENTWISE[op](*args)
                return Call("jax.lax.rem", args) if self._counts(expr) else plain
            case _:
                return self._typed(expr, ops.ELEMENTWISE[op](*args))

    def _lane_position(self, expr: Apply) -> Node:
        """Where a lane is along its axis."""
        axis, lane = expr.attr("axis"), Atom(self.lane)
        if axis is None:
            return lane
        origin = self.node(self.launch.axis(str(axis)).tile.origin)
        return lane if origin == Atom("0") else infix("+", origin, lane)

    def _labelled(self, label: str, expr: Apply) -> Node:
        """A value that gets a line and a name of its own before the statement."""
        key = (label, flat(self.node(_unlabelled(expr))), ())
        if key not in self.made:
            value = self.node(_unlabelled(expr))
            taken = self.names.taken | set(self.made.values()) | set(self.locals.values())
            name = next(
                n for n in (label, *(f"{label}_{i}" for i in range(1, 99))) if n not in taken
            )
            self.made[key] = name
            self.pending.append((name, value))
        return Atom(self.made[key])

    def _extreme(self, op: str, expr: Apply) -> Node:
        """Nested minima (or maxima) of scalars, each term once; one of each is a clip."""
        match expr:
            case Apply("minimum", (Apply("maximum", (value, Const(low))), Const(high))):
                if low <= high:
                    return Call("jnp.clip", (self.node(value), Atom(str(low)), Atom(str(high))))
        terms = dict.fromkeys(self._terms(op, expr))
        numbers = [t.value for t in terms if isinstance(t, Const)]
        printed = [self.node(t) for t in terms if not isinstance(t, Const)]
        nodes: dict[str, Node] = {flat(node): node for node in printed}
        if numbers:  # of several numbers only one can matter
            best = Atom(str(min(numbers) if op == "minimum" else max(numbers)))
            nodes[best.text] = best
        first, *rest = nodes.values()
        for term in rest:
            first = Call(f"jnp.{op}", (first, term))
        return first

    def _terms(self, op: str, expr: PExpr) -> list[PExpr]:
        if isinstance(expr, TileScalar):
            expr = self.launch.axis(expr.axis).tile.scalar(expr.what)
        if isinstance(expr, Apply) and expr.op == op:
            return [t for a in expr.args for t in self._terms(op, a)]
        return [expr]

    def _counts(self, expr: Apply) -> bool:
        """Whether the dividend is an index, which is never negative."""
        index, divisor = expr.args
        if not (isinstance(index, GridIndex) and isinstance(divisor, Const)):
            return False
        low = integers.value_of(self.launch.axis(index.axis).begin)
        return low is not None and low >= 0 and divisor.value > 0

    def _typed(self, expr: Apply, node: Node) -> Node:
        """Numbers alone take JAX's default type; give them the one they have here."""
        numbers = all(isinstance(a, Const) for a in expr.args if a.type.dtype != "bool")
        if expr.op == "where" and numbers and expr.type.dtype not in ("float32", "int32", "bool"):
            return ops.cast(node, expr.type.dtype, 1)
        return node

    def _full(self, expr: Apply, shape: tuple[int, ...], args: tuple[Node, ...]) -> Node:
        if args:
            return ops.full(shape, args[0], expr.type.dtype, zero=False)
        value = expr.attr("value")
        node = ops.number(value, expr.type.dtype)
        if not shape:
            return node
        return ops.full(shape, node, expr.type.dtype, zero=value == 0)

    def _broadcast(self, expr: Apply, shape: tuple[int, ...], value: Node) -> Node:
        (arg,) = expr.args
        if self.shape(arg.type.shape) == shape:
            return value
        if isinstance(arg, Const):
            return ops.full(shape, value, expr.type.dtype, zero=arg.value == 0)
        if not arg.type.shape:
            return ops.full(shape, value, expr.type.dtype, zero=False)
        return Call("jnp.broadcast_to", (value, ops.shape(shape)))

    def _arange(self, expr: Apply, shape: tuple[int, ...]) -> Node:
        start, step = expr.attr("start", 0), expr.attr("step", 1)
        along = next((d for d, e in enumerate(shape) if e != 1), len(shape) - 1)
        node: Node = ops.iota(shape, along)
        if step != 1:
            node = infix("*", node, ops.number(step, expr.type.dtype))
        if start != 0:
            node = infix("+", ops.number(start, expr.type.dtype), node)
        return node if expr.type.dtype == "int32" else ops.cast(node, expr.type.dtype, 1)

    def _transpose(self, expr: Apply, value: Node) -> Node:
        perm: tuple[int, ...] = expr.attr("perm")
        if perm == (1, 0):
            return Atom(f"{_method(value)}.T")
        return Call("jnp.transpose", (value, ops.shape(perm)))

    def _dot(self, expr: Apply, args: tuple[Node, ...]) -> Node:
        contract: tuple[int, int] = expr.attr("contract")
        batch: tuple[tuple, tuple] = expr.attr("batch", ((), ()))
        ranks = (len(expr.args[0].type.shape), len(expr.args[1].type.shape))
        return ops.dot(args[0], args[1], contract, batch, ranks, expr.type.dtype)


def _unlabelled(expr: Apply) -> Apply:
    return replace(expr, attrs=tuple(a for a in expr.attrs if a[0] != "label"))


def _method(node: Node) -> str:
    return flat(node) if level(node) >= TIGHT else f"({flat(node)})"
