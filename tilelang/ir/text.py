"""print_ir(ir) -> str: a kernel's IR, readable; the names are the IR's own.

kernel double(x) -> y
  x: float32[100]
  y: float32[100], output, empty

for t in tile(100):
    y[t] = x[t] * 2.0
"""

from __future__ import annotations

from collections.abc import Iterator

from .types import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Carry,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Loop,
    Span,
    Stmt,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Var,
)

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


def print_ir(ir: KernelIR) -> str:
    """The whole kernel."""
    params = ", ".join(p.name if p.tensor else f"{p.name}={p.static!r}" for p in ir.params)
    lines = [f"kernel {ir.name}({params}){_returned(ir)}"]
    lines += [f"  {_declared(t)}" for t in ir.tensors]
    for loop in ir.body:
        lines += ["", *_loop(ir, loop, "")]
    return "\n".join(lines) + "\n"


def _returned(ir: KernelIR) -> str:
    names = ", ".join(ir.returns)
    match ir.structure:
        case "none":
            return ""
        case "single":
            return f" -> {names}"
        case "tuple":
            return f" -> ({names},)" if len(ir.returns) == 1 else f" -> ({names})"
        case "list":
            return f" -> [{names}]"


def _declared(tensor: Tensor) -> str:
    text = f"{tensor.name}: {tensor.dtype}[{', '.join(map(str, tensor.shape))}]"
    if tensor.view is not None:
        arg = ", ".join(map(str, tensor.view.arg))
        return f"{text} = {tensor.view.source}.{tensor.view.how}({arg})"
    if tensor.role == "output":
        return f"{text}, output, {'empty' if tensor.fill is None else f'filled with {tensor.fill}'}"
    return f"{text}, mutated" if tensor.mutated else text


# ---------------------------------------------------------------- statements


def _statement(ir: KernelIR, stmt: Stmt, indent: str) -> Iterator[str]:
    match stmt:
        case Assign(name, value):
            yield f"{indent}{name}: {value.type} = {expression(value)}"
        case Store(tensor, index, value, _, mask):
            guard = "" if mask is None else f" where {expression(mask)}"
            yield f"{indent}{tensor}[{_index(index)}] = {expression(value)}{guard}"
        case Loop():
            yield from _loop(ir, stmt, indent)


def _loop(ir: KernelIR, loop: Loop, indent: str) -> Iterator[str]:
    head = f"{indent}for {loop.axis} in {_range(ir, ir.axis(loop.axis))}"
    yield f"{head}{_carrying(loop.carries)}:"
    inner = f"{indent}    "
    for stmt in loop.body:
        yield from _statement(ir, stmt, inner)
    for carry in loop.carries:
        yield f"{inner}next {carry.name} = {expression(carry.next)}"
    for carry in loop.carries:
        yield f"{indent}after {carry.out} = {carry.name}"
    if not loop.body and not loop.carries:
        yield f"{inner}pass"


def _carrying(carries: tuple[Carry, ...]) -> str:
    shown = ", ".join(f"{c.name} = {expression(c.init)}" for c in carries)
    return f" carrying {shown}" if carries else ""


def _range(ir: KernelIR, axis: Axis) -> str:
    bounds = [expression(axis.begin), expression(axis.end)]
    if axis.static is not None and axis.static[0] == 0:
        bounds = bounds[1:]
    options = [] if axis.static is not None else [f"max_extent={axis.max_extent}"]
    if axis.kind == "tile" and axis.block != axis.name:
        registered = ir.block_size(axis)
        shown = "" if registered is None else f" ({registered})"
        options.append(f"block={axis.block}{shown}")
    return f"{axis.kind}({', '.join([*bounds, *options])})"


# ---------------------------------------------------------------- expressions


def expression(expr: Expr) -> str:
    """An expression as Python would write it; ops without an operator are calls."""
    return _shown(expr)[0]


def _shown(expr: Expr) -> tuple[str, int]:
    """The text and how tightly it binds."""
    match expr:
        case Const(value):
            return str(value), ATOM if not str(value).startswith("-") else 7
        case Var(name) | GridIndex(name):
            return name, ATOM
        case TileIndex(axis):
            return f"{axis}.index", ATOM
        case TileScalar(axis, what):
            return f"{axis}.{what}", ATOM
        case Load():
            return _load(expr), ATOM
        case Apply(op, args) if op in INFIX and len(args) == 2:
            return _infix(op, args)
        case Apply("neg", (arg,)):
            return f"-{_wrapped(arg, 7)}", 7
        case Apply("logical_not", (arg,)):
            return f"not {_wrapped(arg, 3)}", 3
        case Apply():
            return _call(expr), ATOM


def _infix(op: str, args: tuple[Expr, ...]) -> tuple[str, int]:
    symbol, level = INFIX[op]
    left = _wrapped(args[0], level + (level == 4))
    return f"{left} {symbol} {_wrapped(args[1], level + 1)}", level


def _wrapped(expr: Expr, level: int) -> str:
    text, own = _shown(expr)
    return text if own >= level else f"({text})"


def _call(expr: Apply) -> str:
    args = [expression(a) for a in expr.args]
    if expr.op in ("reshape", "broadcast", "full"):
        args.append(f"[{', '.join(map(str, expr.type.shape))}]")
    if expr.op in ("cast", "full", "arange"):
        args.append(expr.type.dtype)
    args += [f"{name}={value}" for name, value in expr.attrs if not _default(name, value)]
    return f"{expr.op}({', '.join(args)})"


def _default(name: str, value: object) -> bool:
    return (name, value) in (("keepdim", False), ("batch", ((), ())))


def _load(load: Load) -> str:
    text = f"{load.tensor}[{_index(load.index)}]"
    if load.mask is None:
        return text
    return f"load({text}, mask={expression(load.mask)}, other={load.other})"


def _index(index: tuple[Index, ...]) -> str:
    return ", ".join(_entry(i) for i in index)


def _entry(entry: Index) -> str:
    match entry:
        case At(expr):
            return expression(expr)
        case Along(axis, None):
            return axis
        case Along(axis, offset) if offset is not None:
            return f"{axis} + {_wrapped(offset, 6)}"
        case Span(start, stop):
            return f"{start}:{stop}"
        case Gather(expr):
            return f"rows({expression(expr)})"
    raise TypeError(entry)
