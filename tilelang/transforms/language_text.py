"""text(kernel) -> str: a kernel as its author would write it; parsing it gives the kernel again.

@tile.kernel
def double(x):
    y = hl.empty([100], dtype=hl.float32)
    for t in hl.tile(100):
        y[t] = x[t] * 2.0
    return (y,)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from .. import ir
from ..ir import every_loop, exprs_of, index_exprs, successor, walk
from ..ir.text import ATOM, INFIX

SYMBOLS = {**INFIX, "logical_and": ("&", 4.3), "logical_or": ("|", 4.1), "pow": ("**", 8)}
COMPARES = 4
HEAD = "import tilelang as tile\nimport tilelang.language as hl\n"
OTHERWISE = {"gelu_tanh": ("hl.gelu", ", approximate=True"), "gelu_erf": ("hl.gelu", ", False")}


def module(kernels: Iterable[ir.KernelIR]) -> str:
    """Several kernels as a module that can be imported."""
    return "\n\n".join([HEAD, *(text(k) for k in kernels)])


def text(kernel: ir.KernelIR) -> str:
    """One kernel: a function, decorated."""
    names = _names(kernel)
    params = ", ".join(p.name for p in kernel.params if p.tensor is not None)
    lines = ["@tile.kernel", f"def {kernel.name}({params}):"]
    lines += [f'    """{kernel.doc.splitlines()[0]}"""'] if kernel.doc else []
    lines += [f"    {_declared(t)}" for t in kernel.tensors if t.role == "output"]
    views = {t.name: f"    {_viewed(t)}" for t in kernel.tensors if t.view is not None}
    lines += [line for name, line in views.items() if name not in kernel.returns]
    printer = _Printer(kernel, names)
    lines += [line for loop in kernel.body for line in printer.body((loop,), "    ")]
    lines += [line for name, line in views.items() if name in kernel.returns]
    returned = ", ".join(kernel.returns)
    tuple_ = kernel.structure == "tuple"
    lines.append(f"    return ({returned}{',' if len(kernel.returns) == 1 else ''})" if tuple_ else
                 f"    return {returned}")  # fmt: skip
    return "\n".join(lines) + "\n"


def _declared(tensor: ir.Tensor) -> str:
    shape, dtype = f"[{', '.join(map(str, tensor.shape))}]", f"dtype=hl.{tensor.dtype}"
    if tensor.fill is None:
        return f"{tensor.name} = hl.empty({shape}, {dtype})"
    return f"{tensor.name} = {_filled(shape, tensor.fill, dtype)}"


def _viewed(tensor: ir.Tensor) -> str:
    assert tensor.view is not None
    arg = ", ".join(map(str, tensor.view.arg))
    given = f"[{arg}]" if tensor.view.how == "reshape" else arg
    return f"{tensor.name} = {tensor.view.source}.{tensor.view.how}({given})"


def _filled(shape: str, value: ir.Scalar, dtype: str) -> str:
    return (
        f"hl.zeros({shape}, {dtype})"
        if value == 0
        else f"hl.full({shape}, {_number(value)}, {dtype})"
    )


def _number(value: ir.Scalar) -> str:
    if isinstance(value, float) and value in (float("inf"), -float("inf")):
        return f'float("{value}")'
    return repr(value)


# ---------------------------------------------------------------- names


def _names(kernel: ir.KernelIR) -> Mapping[str, str]:
    """What a value is called: a carry, what it begins as and what becomes of it have one name.

    As far as the first and the next value have no other use; others are assigned to it.
    """
    uses = Counter(e.name for e in _expressions(kernel) if isinstance(e, ir.Var))
    names: dict[str, str] = {}
    made: dict[str, str] = {}
    for loop in every_loop(kernel.body):
        for carry in loop.carries:
            own = carry.name
            if isinstance(carry.init, ir.Var) and uses[carry.init.name] == 1:
                own = names.get(carry.init.name, carry.init.name)
            names |= {carry.name: own, carry.out: own}
            after = successor(loop, carry)
            if after is not None and uses[after] == 1:
                made[after] = own
    for name, own in made.items():
        names.setdefault(name, own)
    return names


def _expressions(kernel: ir.KernelIR) -> Iterator[ir.Expr]:
    for root in exprs_of(kernel.body, kernel.axes):
        yield from walk(root)


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class _Printer:
    """Prints the statements of one kernel; `names` are values that are called otherwise."""

    kernel: ir.KernelIR
    names: Mapping[str, str]
    levels: Mapping[str, tuple[str, float]] = field(default_factory=lambda: SYMBOLS)

    def body(self, body: ir.Body, indent: str) -> Iterator[str]:
        for stmt in body:
            match stmt:
                case ir.Assign(name, value):
                    yield f"{indent}{self.names.get(name, name)} = {self.value(value)}"
                case ir.Store():
                    yield f"{indent}{self.store(stmt)}"
                case ir.Loop():
                    yield from self.loop(stmt, indent)
                case _:
                    assert_never(stmt)
        if not body:
            yield f"{indent}pass"

    def loop(self, loop: ir.Loop, indent: str) -> Iterator[str]:
        for carry in loop.carries:
            yield from self.become(carry, carry.init, indent)
        yield f"{indent}for {loop.axis} in {self.range(self.kernel.axis(loop.axis))}:"
        yield from self.body(loop.body, indent + "    ")
        for carry in loop.carries:
            yield from self.become(carry, carry.next, indent + "    ")

    def become(self, carry: ir.Carry, value: ir.Expr, indent: str) -> Iterator[str]:
        own, new = self.names[carry.name], self.value(value)
        if own != new:
            yield f"{indent}{own} = {new}"

    def range(self, axis: ir.Axis) -> str:
        bounds = [self.value(axis.begin), self.value(axis.end)]
        if axis.static is not None and axis.static[0] == 0:
            bounds = bounds[1:]
        if axis.static is None:
            bounds.append(f"max_extent={axis.max_extent}")
        if axis.fixed is not None:
            bounds.append(f"block_size={axis.fixed}")
        return f"hl.{axis.kind}({', '.join(bounds)})"

    def store(self, store: ir.Store) -> str:
        value = store.value
        if store.combine is not None:
            assert isinstance(value, ir.Apply)
            op = {"add": "add", "maximum": "max", "minimum": "min"}[store.combine]
            where = self.inside(store.tensor, store.index)
            mask = "" if store.mask is None else f", mask={self.value(store.mask)}"
            return f"hl.atomic_{op}({store.tensor}, [{where}], {self.value(value.args[1])}{mask})"
        if store.mask is not None:
            where, mask = self.inside(store.tensor, store.index), self.value(store.mask)
            return f"hl.store({store.tensor}, [{where}], {self.value(value)}, mask={mask})"
        return f"{store.tensor}[{self.place(store.tensor, store.index)}] = {self.value(value)}"

    # ------------------------------------------------------------ places

    def place(self, tensor: str, index: tuple[ir.Index, ...]) -> str:
        """What stands between the brackets of an array."""
        sizes = self.kernel.tensor(tensor).shape
        entries = zip(index, sizes, strict=True)
        return ", ".join(
            self.span(i, n) if isinstance(i, ir.Span) else self.entry(i) for i, n in entries
        )

    def inside(self, tensor: str, index: tuple[ir.Index, ...]) -> str:
        """The same in a list."""
        return ", ".join(
            f"slice({i.start}, {i.stop})" if isinstance(i, ir.Span) else self.entry(i)
            for i in index
        )

    def span(self, span: ir.Span, size: int) -> str:
        first = "" if span.start == 0 else str(span.start)
        return f"{first}:{'' if span.stop == size else span.stop}"

    def entry(self, entry: ir.Index) -> str:
        match entry:
            case ir.At(expr) | ir.Gather(expr):
                return self.value(expr)
            case ir.Along(axis, None):
                return axis
            case ir.Along(axis, ir.Apply("neg", (offset,))):
                return f"{axis} - {self.wrapped(offset, 6)}"
            case ir.Along(axis):
                (offset,) = index_exprs(entry)
                return f"{axis} + {self.wrapped(offset, 6)}"
            case ir.Span():
                return f"{entry.start}:{entry.stop}"
            case _:
                assert_never(entry)

    # ------------------------------------------------------------ values

    def value(self, expr: ir.Expr) -> str:
        return self.shown(expr)[0]

    def wrapped(self, expr: ir.Expr, level: float) -> str:
        shown, own = self.shown(expr)
        return shown if own >= level else f"({shown})"

    def shown(self, expr: ir.Expr) -> tuple[str, float]:
        """The text and how tightly it binds."""
        match expr:
            case ir.Const(value):
                return _number(value), ATOM if value >= 0 else 7
            case ir.Var(name):
                return self.names.get(name, name), ATOM
            case ir.GridIndex(axis):
                return axis, ATOM
            case ir.TileIndex(axis):
                return f"{axis}.index", ATOM
            case ir.TileScalar(axis, what):
                return f"{axis}.{what}", ATOM
            case ir.Load():
                return self.load(expr), ATOM
            case ir.Apply(op, (x, y)) if op in self.levels:
                symbol, level = self.levels[op]
                left = self.wrapped(x, level + (level == COMPARES or op == "pow"))
                return f"{left} {symbol} {self.wrapped(y, level + (op != 'pow'))}", level
            case ir.Apply("neg", (x,)):
                return f"-{self.wrapped(x, 7)}", 7
            case ir.Apply("logical_not", (x,)):
                return f"~{self.wrapped(x, 7)}", 7
            case ir.Apply():
                return self.call(expr), ATOM
            case _:
                assert_never(expr)

    def load(self, load: ir.Load) -> str:
        if load.mask is None:
            return f"{load.tensor}[{self.place(load.tensor, load.index)}]"
        where, mask = self.inside(load.tensor, load.index), self.value(load.mask)
        other = _number(load.other)
        return f"hl.load({load.tensor}, [{where}], mask={mask}, other={other})"

    def call(self, term: ir.Apply) -> str:
        args = [self.value(a) for a in term.args]
        listed = ", ".join(args)
        shape = self.shape(term.type.shape)
        match term.op:
            case "cast":
                return f"{self.wrapped(term.args[0], ATOM)}.to(hl.{term.type.dtype})"
            case "transpose" if term.attr("perm") == (1, 0):
                return f"{self.wrapped(term.args[0], ATOM)}.T"
            case "transpose":
                return f"hl.permute({listed}, {term.attr('perm')})"
            case "expand_dims" | "squeeze":
                return f"hl.{term.op}({listed}, {term.attr('axis')})"
            case "broadcast" | "reshape":
                name = "broadcast_to" if term.op == "broadcast" else "reshape"
                return f"hl.{name}({listed}, {shape})"
            case "concat":
                return f"hl.cat([{listed}], {term.attr('axis')})"
            case "narrow":
                start, stop = term.attr("start"), term.attr("stop")
                return f"hl.narrow({listed}, {term.attr('axis')}, {start}, {stop - start})"
            case "full":
                dtype = f"dtype=hl.{term.type.dtype}"
                if term.args:
                    return f"hl.full({shape}, {listed}, {dtype})"
                return _filled(shape, term.attr("value"), dtype)
            case "arange":
                start, step = term.attr("start"), term.attr("step")
                (count,) = term.type.shape
                assert isinstance(count, int)
                stop = start + count * step
                return f"hl.arange({start}, {stop}, {step}, dtype=hl.{term.type.dtype})"
            case "dot":
                return self.dot(term, listed)
            case "sum" | "max" | "min" | "argmax" | "argmin" | "any" | "all":
                kept = ", True" if term.attr("keepdim") else ""
                return f"hl.{term.op}({listed}, {term.attr('axis')}{kept})"
            case _:
                name, more = OTHERWISE.get(term.op, (f"hl.{term.op}", ""))
                return f"{name}({listed}{more})"

    def dot(self, term: ir.Apply, listed: str) -> str:
        (left, right), batch = term.attr("contract"), term.attr("batch", ((), ()))
        matrices = all(a.type.rank == 2 for a in term.args)
        if matrices and (left, right) == (1, 0) and batch == ((), ()):
            return f"hl.dot({listed})"
        return f"hl.dot_general({listed}, ((({left},), ({right},)), {batch}))"

    def shape(self, dims: tuple[ir.Dim, ...]) -> str:
        return f"[{', '.join(map(str, dims))}]"
