"""Expressions: what a plan computes -> nodes of text."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.codegen.triton.plan.types import Access, Launch
from tilelang.codegen.writer import Atom, Attribute, Call, Keyword, Node, Subscript, flat, infix
from tilelang.ir import Apply, Const, Expr, Var, children
from tilelang.language.dtypes import is_float, is_float8, itemsize

from . import ops

NUMBER_TYPES = ("float32", "int32", "bool")  # what Triton makes of numbers


@dataclass(frozen=True)
class Printer:
    """Prints expressions of one launch; `functions` collects the functions that they call."""

    launch: Launch
    functions: set[str] = field(default_factory=set)

    def extents(self, expr: Expr) -> tuple[int, ...]:
        return tuple(self.launch.width(d) for d in expr.type.shape)

    def node(self, expr: Expr) -> Node:
        """The text of an expression."""
        match expr:
            case Const(value):
                made = ops.number(value, expr.type.dtype)
                eight = is_float8(expr.type.dtype) and value != 0
                return ops.full((), made, expr.type.dtype) if eight else made
            case Var(name):
                return Atom(name)
            case Apply():
                made = self.apply(expr)
                self._note(made)
                return made
            case _:
                raise AssertionError(f"a plan holds no {type(expr).__name__}")

    def text(self, expr: Expr) -> str:
        return flat(self.node(expr))

    def pointer(self, access: Access) -> Node:
        """Where the elements of an access are."""
        base = Atom(f"{access.tensor}_ptr")
        if access.offset is None:
            return base
        terms = _terms(access.offset)
        node: Node = base
        for term in terms:
            node = infix("+", node, self.node(term))
        return node

    def _note(self, node: Node) -> None:
        if isinstance(node, Call):
            if node.fn.startswith("_"):
                self.functions.add(node.fn)
            combine = [a.value for a in node.args if isinstance(a, Keyword)]
            self.functions.update(
                v.text for v in combine if isinstance(v, Atom) and v.text[0] == "_"
            )

    def apply(self, expr: Apply) -> Node:
        op = expr.op
        match op:
            case "expand_dims":
                return self._subscript(expr)
            case "program":
                return Call("tl.program_id", (Atom("0"),))
            case "arange":
                return self._arange(expr)
            case "full":
                return self._full(expr)
            case "broadcast":
                return self._broadcast(expr)
            case "squeeze":
                return self._squeeze(expr)
            case _:
                pass  # an operation of its operands, as they are
        args = [self.node(a) for a in expr.args]
        match op:
            case "cast":
                return Call("to", (ops.dtype(expr.type.dtype),), of=args[0])
            case "reshape":
                return Call("tl.reshape", (args[0], ops.shape(self.extents(expr))))
            case "take":
                return Call("tl.gather", (*args, Atom(str(expr.attr("axis")))))
            case "transpose":
                return self._transpose(expr, args[0])
            case "multiply":
                acc = args[2] if len(args) > 2 else None
                left, precision = expr.args[0], self.launch.precision
                summed = self.extents(left)[-1]
                return ops.product(args[0], args[1], acc, left.type.dtype, precision, summed)
            case "cumsum":
                return Call("tl.cumsum", (*args, Keyword("axis", Atom("0"))))
            case "find":
                return self._find(expr)
            case "sum" | "max" | "min" | "argmax" | "argmin":
                floats = is_float(expr.args[0].type.dtype)
                axis, keep = expr.attr("axis"), bool(expr.attr("keepdim"))
                assert isinstance(axis, int)
                if op.startswith("arg") and floats:
                    lanes = self._lanes(expr.args[0], axis)
                    return ops.position(op, args[0], lanes, axis, keep)
                return ops.reduce(op, args[0], axis, keep, floats)
            case "power":
                return Call("_power", (*args, Atom(str(expr.attr("bits")))))
            case "minimum" | "maximum":
                return ops.extreme(op, args, is_float(expr.type.dtype))
            case _ if op in ops.ROUNDING and not is_float(expr.type.dtype):
                return args[0]
            case _:
                return self._typed(expr, ops.ELEMENTWISE[op](*args))

    def _typed(self, expr: Apply, node: Node) -> Node:
        """A choice of numbers has the type that Triton gives them; give it the one it has here."""
        numbers = all(isinstance(a, Const) for a in expr.args[1:])
        if expr.op == "where" and numbers and expr.type.dtype not in NUMBER_TYPES:
            return Call("to", (ops.dtype(expr.type.dtype),), of=node)
        return node

    def _subscript(self, expr: Apply) -> Node:
        """x[:, None]: new dimensions of one, all of them in one subscript."""
        axes: list[int] = []
        base: Expr = expr
        while isinstance(base, Apply) and base.op == "expand_dims":
            axis = base.attr("axis")
            assert isinstance(axis, int)
            axes.append(axis)
            base = base.args[0]
        if not base.type.shape:
            return Call(
                "tl.full",
                (ops.shape(self.extents(expr)), self.node(base), ops.dtype(expr.type.dtype)),
            )
        places = [":"] * len(base.type.shape)
        for axis in reversed(axes):
            places.insert(axis, "None")
        return Subscript(self.node(base), ", ".join(places))

    def _arange(self, expr: Apply) -> Node:
        if not expr.args:
            return Call("tl.arange", (Atom("0"), Atom(str(self.extents(expr)[0]))))
        node = self.node(expr.args[0])
        start, step = expr.attr("start", 0), expr.attr("step", 1)
        if step != 1:
            node = infix("*", node, ops.number(step, expr.type.dtype))
        if start != 0:
            node = infix("+", ops.number(start, expr.type.dtype), node)
        plain = expr.type.dtype == "int32"
        return node if plain else Call("to", (ops.dtype(expr.type.dtype),), of=node)

    def _lanes(self, value: Expr, axis: int) -> Node:
        """The number of each element's lane along one dimension."""
        extents = self.extents(value)
        lanes = Call("tl.arange", (Atom("0"), Atom(str(extents[axis]))))
        if len(extents) == 1:
            return lanes
        places = [":" if d == axis else "None" for d in range(len(extents))]
        node = Subscript(lanes, ", ".join(places))
        return Call("tl.broadcast_to", (node, ops.shape(extents)))

    def _full(self, expr: Apply) -> Node:
        value = expr.attr("value")
        node = self.node(expr.args[0]) if expr.args else ops.number(value, expr.type.dtype)
        return ops.full(self.extents(expr), node, expr.type.dtype)

    def _broadcast(self, expr: Apply) -> Node:
        (value,) = expr.args
        before, after = self.extents(value), self.extents(expr)
        node = self.node(value)
        if before == after:
            return node
        if not before:
            return ops.full(after, node, expr.type.dtype)
        if len(before) < len(after):
            new = [*["None"] * (len(after) - len(before)), *[":"] * len(before)]
            node = Subscript(node, ", ".join(new))
        return Call("tl.broadcast_to", (node, ops.shape(after)))

    def _squeeze(self, expr: Apply) -> Node:
        """Without a dimension of one; a scalar is the sum of its only element."""
        (value,) = expr.args
        node, dtype = self.node(value), expr.type.dtype
        if expr.type.shape:
            return Call("tl.reshape", (node, ops.shape(self.extents(expr))))
        if dtype == "bool":
            number = Call("to", (Atom("tl.int32"),), of=node)
            return infix("!=", ops.reduce("sum", number, 0, False, False), Atom("0"))
        if itemsize(dtype) == 4:
            return ops.reduce("sum", node, 0, False, False)
        wide = Call("to", (ops.dtype("float32" if is_float(dtype) else "int32"),), of=node)
        return Call("to", (ops.dtype(dtype),), of=ops.reduce("sum", wide, 0, False, False))

    def _transpose(self, expr: Apply, value: Node) -> Node:
        order = expr.attr("perm")
        assert isinstance(order, tuple)
        if order == (1, 0):
            return Attribute(value, "T")
        return Call("tl.permute", (value, ops.shape(order)))

    def _find(self, expr: Apply) -> Node:
        ends, item = expr.args
        assert isinstance(ends, Var)
        groups = expr.attr("groups")
        assert isinstance(groups, int)
        numbers = (Atom(str(groups)), Atom(str(groups.bit_length())))
        return Call("_find", (Atom(f"{ends.name}_ptr"), self.node(item), *numbers))


def _terms(offset: Expr) -> tuple[Expr, ...]:
    """The terms of a sum, outermost dimension first."""
    if isinstance(offset, Apply) and offset.op == "add" and offset.type.dtype in ("int32", "int64"):
        left, right = children(offset)
        return (*_terms(left), right)
    return (offset,)
