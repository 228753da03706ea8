"""verify(ir): what every stage may count on; a broken rule is a fault of the pass before.

every name is assigned once, and before it is read; a loop's carries keep their type
every index has one entry for each dimension, at scalar positions, along tiles in scope
every value has the type that its parts give it: loads that of the array, stores too
every axis is declared once, run once, and its bounds read nothing that a loop changes
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import assert_never

from ..errors import Loc
from . import types
from .kernel import KernelIR
from .traversal import children, index_exprs, statements

# Inputs of 64 bits are checked to fit 32, and read as those.
NARROWED = MappingProxyType({"int64": "int32"})
# What passes put together themselves, without the types that the language gives it.
COMBINED = frozenset({"where", "logical_and", "logical_or", "add", "sub", "mul"})


class BrokenIR(AssertionError):
    """A rule of the IR does not hold: what, and where in the author's file."""

    def __init__(self, what: str, loc: Loc | None) -> None:
        where = "" if loc is None else f" ({loc.filename}:{loc.line})"
        super().__init__(f"{what}{where}")


@dataclass(frozen=True)
class Visible:
    """What may be read at one place: values with their types, and axes of the loops around."""

    ir: KernelIR
    axes: frozenset[str] = frozenset()
    names: Mapping[str, types.Type] = field(default_factory=dict)

    def with_name(self, name: str, type: types.Type, loc: Loc) -> Visible:
        """The same and one name more."""
        if name in self.names:
            raise BrokenIR(f"{name} is assigned twice", loc)
        return replace(self, names={**self.names, name: type})


def verify(ir: KernelIR) -> KernelIR:
    """The kernel itself; raises BrokenIR for the first rule that does not hold."""
    _once([t.name for t in ir.tensors], "tensor", ir.loc)
    _once([a.name for a in ir.axes], "axis", ir.loc)
    run = [s.axis for s in statements(ir.body) if isinstance(s, types.Loop)]
    _once(run, "the loop over", ir.loc)
    unknown = set(run) - {a.name for a in ir.axes}
    if unknown:
        raise BrokenIR(f"axis {min(unknown)} is not declared", ir.loc)
    for name in (*ir.returns, *(p.tensor for p in ir.params if p.tensor)):
        if name not in {t.name for t in ir.tensors}:
            raise BrokenIR(f"tensor {name} is not declared", ir.loc)
    _body(Visible(ir), ir.body)
    return ir


def _once(names: list[str], what: str, loc: Loc) -> None:
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise BrokenIR(f"{what} {twice[0]} is there twice", loc)


def _body(visible: Visible, body: types.Body) -> Visible:
    for stmt in body:
        match stmt:
            case types.Assign(name, value, loc):
                _expr(visible, value, loc)
                visible = visible.with_name(name, value.type, loc)
            case types.Store():
                _store(visible, stmt)
            case types.Loop():
                visible = _loop(visible, stmt)
            case _:
                assert_never(stmt)
    return visible


def _loop(visible: Visible, loop: types.Loop) -> Visible:
    """What is visible after the loop: the ends of what it carries, and no name of its body."""
    axis = visible.ir.axis(loop.axis)
    for bound in (axis.begin, axis.end):
        _expr(visible, bound, axis.loc)
        _scalar(bound, "a bound", axis.loc)
    inside = replace(visible, axes=visible.axes | {loop.axis})
    for carry in loop.carries:
        _expr(visible, carry.init, carry.loc)
        inside = inside.with_name(carry.name, carry.init.type, carry.loc)
    inside = _body(inside, loop.body)
    for carry in loop.carries:
        _expr(inside, carry.next, carry.loc)
        if carry.init.type != carry.next.type:
            what = f"{carry.name} begins as {carry.init.type} and becomes {carry.next.type}"
            raise BrokenIR(what, carry.loc)
        visible = visible.with_name(carry.out, carry.init.type, carry.loc)
    return visible


def _store(visible: Visible, store: types.Store) -> None:
    for part in (store.value, *((store.mask,) if store.mask is not None else ())):
        _expr(visible, part, store.loc)
    shape = _indexed(visible, store.tensor, store.index, store.loc)
    tensor = visible.ir.tensor(store.tensor)
    if store.value.type.dtype != tensor.dtype:
        what = f"{store.value.type.dtype} is stored to {store.tensor}, which is {tensor.dtype}"
        raise BrokenIR(what, store.loc)
    if not _broadcasts(store.value.type.shape, shape):
        what = f"{store.value.type} is stored to {store.tensor} at {list(shape)}"
        raise BrokenIR(what, store.loc)


def _broadcasts(value: tuple[types.Dim, ...], place: tuple[types.Dim, ...]) -> bool:
    pairs = zip(reversed(value), reversed(place), strict=False)
    return len(value) <= len(place) and all(v in (p, 1) for v, p in pairs)


def _expr(visible: Visible, expr: types.Expr, loc: Loc | None) -> None:
    for child in children(expr):
        _expr(visible, child, loc)
    match expr:
        case types.Var(name, type):
            if name not in visible.names:
                raise BrokenIR(f"{name} is read before it is assigned", loc)
            if visible.names[name] != type:
                raise BrokenIR(f"{name} is {visible.names[name]} and read as {type}", loc)
        case types.GridIndex(axis) | types.TileIndex(axis) | types.TileScalar(axis):
            if axis not in visible.axes:
                raise BrokenIR(f"an index of {axis} is read outside of its loop", loc)
        case types.Load():
            shape = _indexed(visible, expr.tensor, expr.index, expr.loc or loc)
            dtype = visible.ir.tensor(expr.tensor).dtype
            found = types.Type(shape, NARROWED.get(dtype, dtype))
            if found != expr.type:
                raise BrokenIR(f"a load of {expr.tensor} is {found} and typed {expr.type}", loc)
        case types.Apply():
            missing = {d for d in expr.type.shape if isinstance(d, str)} - visible.axes
            if missing:
                what = f"{expr.op} makes a value along {min(missing)} outside of its loop"
                raise BrokenIR(what, expr.loc or loc)
            _elementwise(expr, loc)
        case _:
            pass


def _elementwise(expr: types.Apply, loc: Loc | None) -> None:
    """Every operand spreads to the result."""
    fits = all(_broadcasts(arg.type.shape, expr.type.shape) for arg in expr.args)
    if expr.op in COMBINED and not fits:
        operands = " and ".join(str(arg.type) for arg in expr.args)
        raise BrokenIR(f"{expr.op} of {operands} is typed {expr.type}", expr.loc or loc)


def _indexed(
    visible: Visible, tensor: str, index: tuple[types.Index, ...], loc: Loc | None
) -> tuple[types.Dim, ...]:
    """The shape of a reference."""
    if tensor not in {t.name for t in visible.ir.tensors}:
        raise BrokenIR(f"tensor {tensor} is not declared", loc)
    sizes = visible.ir.tensor(tensor).shape
    if len(index) != len(sizes):
        raise BrokenIR(f"{tensor} has {len(sizes)} dimensions, the index {len(index)}", loc)
    shape: list[types.Dim] = []
    for entry, size in zip(index, sizes, strict=True):
        for expr in index_exprs(entry):
            _expr(visible, expr, loc)
        match entry:
            case types.At(expr):
                _scalar(expr, f"a position in {tensor}", loc)
                _position(expr, tensor, loc)
            case types.Along(axis, offset):
                if axis not in visible.axes or visible.ir.axis(axis).kind != "tile":
                    raise BrokenIR(f"{tensor} is indexed along {axis} outside of its loop", loc)
                if offset is not None:
                    _scalar(offset, f"an offset in {tensor}", loc)
                shape.append(axis)
            case types.Span(start, stop):
                if not 0 <= start <= stop <= size:
                    raise BrokenIR(f"{start}:{stop} leaves {tensor} of length {size}", loc)
                shape.append(stop - start)
            case types.Gather(expr):
                _position(expr, tensor, loc)
                shape += expr.type.shape
            case _:
                assert_never(entry)
    return tuple(shape)


def _position(expr: types.Expr, tensor: str, loc: Loc | None) -> None:
    """Positions are int32, whatever holds them: devices compute in no narrower integers."""
    if expr.type.dtype != "int32":
        raise BrokenIR(f"a position in {tensor} is {expr.type.dtype}, not int32", loc)


def _scalar(expr: types.Expr, what: str, loc: Loc | None) -> None:
    if expr.type.shape or not expr.type.dtype.startswith(("int", "uint")):
        raise BrokenIR(f"{what} is {expr.type}, not one integer", loc)
