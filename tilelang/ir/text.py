"""The parts of a kernel as text, readable; the names are the IR's own.

y: float32[100], output, empty

for t in tile(100):
    y[t] = x[t] * 2.0
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import assert_never

from . import types

INFIX = {
    "add": ("+", 5),
    "sub": ("-", 5),
    "mul": ("*", 6),
    "div": ("/", 6),
    "floordiv": ("//", 6),
    "mod": ("%", 6),
    "eq": ("==", 4),
    "ne": ("!=", 4),
    "lt": ("<", 4),
    "le": ("<=", 4),
    "gt": (">", 4),
    "ge": (">=", 4),
    "logical_and": ("and", 2),
    "logical_or": ("or", 1),
}
ATOM = 9


def declaration(tensor: types.Tensor) -> str:
    """What a tensor is."""
    text = f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    if tensor.view is not None:
        given = (tensor.view.index, *map(str, tensor.view.arg))
        arg = ", ".join(filter(None, given))
        return f"{text} = {tensor.view.source}.{tensor.view.how}({arg})"
    if tensor.role == "output":
        return f"{text}, output, {'empty' if tensor.fill is None else f'filled with {tensor.fill}'}"
    return f"{text}, mutated" if tensor.mutated else text


# ---------------------------------------------------------------- statements


def statement(stmt: types.Stmt, ranges: Mapping[str, str], indent: str = "") -> Iterator[str]:
    """The lines of a statement; `ranges` says what the axes of its loops run over."""
    match stmt:
        case types.Assign(name, value):
            yield f"{indent}{name}: {value.type} = {expression(value)}"
        case types.Store(tensor, index, value, _, mask):
            guard = "" if mask is None else f" where {expression(mask)}"
            yield f"{indent}{tensor}[{position(index)}] = {expression(value)}{guard}"
        case types.Loop():
            yield from _loop(stmt, ranges, indent)
        case _:
            assert_never(stmt)


def _loop(loop: types.Loop, ranges: Mapping[str, str], indent: str) -> Iterator[str]:
    carried = ", ".join(f"{c.name} = {expression(c.init)}" for c in loop.carries)
    carrying = f" carrying {carried}" if carried else ""
    yield f"{indent}for {loop.axis} in {ranges[loop.axis]}{carrying}:"
    inner = f"{indent}    "
    for stmt in loop.body:
        yield from statement(stmt, ranges, inner)
    for carry in loop.carries:
        yield f"{inner}next {carry.name} = {expression(carry.next)}"
    for carry in loop.carries:
        yield f"{indent}after {carry.out} = {carry.name}"
    if not loop.body and not loop.carries:
        yield f"{inner}pass"


def range_of(axis: types.Axis, registered: types.BlockSize | None) -> str:
    """What an axis runs over, as the author would write it."""
    bounds = [expression(axis.begin), expression(axis.end)]
    if axis.static is not None and axis.static[0] == 0:
        bounds = bounds[1:]
    options = [] if axis.static is not None else [f"max_extent={axis.max_extent}"]
    if axis.kind == "tile" and axis.block != axis.name:
        shown = "" if registered is None else f" ({registered})"
        options.append(f"block={axis.block}{shown}")
    return f"{axis.kind}({', '.join([*bounds, *options])})"


# ---------------------------------------------------------------- expressions


def expression(expr: types.Expr) -> str:
    """An expression as Python would write it; ops without an operator are calls."""
    return _shown(expr)[0]


def _shown(expr: types.Expr) -> tuple[str, int]:
    """The text and how tightly it binds."""
    match expr:
        case types.Const(value):
            return str(value), ATOM if not str(value).startswith("-") else 7
        case types.Var(name) | types.GridIndex(name):
            return name, ATOM
        case types.TileIndex(axis):
            return f"{axis}.index", ATOM
        case types.TileScalar(axis, what):
            return f"{axis}.{what}", ATOM
        case types.Load():
            return _load(expr), ATOM
        case types.Apply(op, args) if op in INFIX and len(args) == 2:
            return _infix(op, args)
        case types.Apply("neg", (arg,)):
            return f"-{_wrapped(arg, 7)}", 7
        case types.Apply("logical_not", (arg,)):
            return f"not {_wrapped(arg, 3)}", 3
        case types.Apply("arange", _, types.Type((int(),), "int32")):
            return f"arange({', '.join(map(str, _positions(expr)))})", ATOM
        case types.Apply():
            return _call(expr), ATOM
        case _:
            assert_never(expr)


def _infix(op: str, args: tuple[types.Expr, ...]) -> tuple[str, int]:
    if op == "add" and isinstance(args[1], types.Const) and str(args[1].value).startswith("-"):
        op, args = "sub", (args[0], replace(args[1], value=-args[1].value))
    symbol, level = INFIX[op]
    left = _wrapped(args[0], level + (level == 4))
    return f"{left} {symbol} {_wrapped(args[1], level + 1)}", level


def _wrapped(expr: types.Expr, level: int) -> str:
    text, own = _shown(expr)
    return text if own >= level else f"({text})"


def _positions(expr: types.Apply) -> tuple[int, ...]:
    """The arguments of a range in Python."""
    start, step, (count,) = expr.attr("start"), expr.attr("step"), expr.type.shape
    stop = start + step * count
    return (start, stop, step) if step != 1 else (start, stop) if start else (stop,)


def _call(expr: types.Apply) -> str:
    args = [expression(a) for a in expr.args]
    if expr.op in ("reshape", "broadcast", "full"):
        args.append(f"[{', '.join(map(str, expr.type.shape))}]")
    if expr.op in ("cast", "full", "arange"):
        args.append(expr.type.dtype)
    usual = (("keepdim", False), ("batch", ((), ())))
    args += [f"{name}={value}" for name, value in expr.attrs if (name, value) not in usual]
    return f"{expr.op}({', '.join(args)})"


def _load(load: types.Load) -> str:
    text = f"{load.tensor}[{position(load.index)}]"
    if load.mask is None:
        return text
    return f"load({text}, mask={expression(load.mask)}, other={load.other})"


def position(index: tuple[types.Index, ...]) -> str:
    """What stands between the brackets."""
    return ", ".join(_entry(i) for i in index)


def _entry(entry: types.Index) -> str:
    match entry:
        case types.At(expr):
            return expression(expr)
        case types.Along(axis, None):
            return axis
        case types.Along(axis, offset):
            assert offset is not None
            return _infix("add", (types.Var(axis, offset.type), offset))[0]
        case types.Span(start, stop):
            return f"{start}:{stop}"
        case types.Gather(expr):
            return f"rows({expression(expr)})"
        case _:
            assert_never(entry)
