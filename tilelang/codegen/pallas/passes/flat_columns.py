"""Flat columns: the last two dimensions of values of rows, of known lengths, become one.

    p[te, :, None] * values[te, :, :]      [te, 8, 64]
 -> repeated(p[te, :]) * columns[te, :]    [te, 512]: every number of p for 64 columns
    (a[te, :, :] * b[te, :, :]).sum(2)     [te, 8]
 -> the sums of every 64 columns

Rows of one dimension can be summed by products, and fill lanes and memory: [8, 64] takes twice its
size.  Arrays are seen in the other shape, and outputs come back in their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import assert_never

from tilelang import ir
from tilelang.ir import Apply, Dim, Expr, Span, Type
from tilelang.ir.lanes import expanded, squeezed
from tilelang.ir.names import unique
from tilelang.ir.traversal import picked
from tilelang.language.op import COMBINED_BY, ELEMENTWISE

MOST = 32  # parts of columns that are put side by side, or summed one by one


class NotFlat(Exception):
    """Something that is not known of one dimension instead of two."""


def flat_columns(kernel: ir.KernelIR) -> ir.KernelIR:
    """The kernel with columns in one dimension; as it was where that is not possible."""
    every = (e for e in ir.every_expr(kernel.body) if isinstance(e, ir.Load))
    if not any(e.type.rank > 2 and is_flat(e.type) for e in every):
        return kernel
    try:
        return _Flat(kernel).made()
    except NotFlat:
        return kernel


def is_flat(kind: Type) -> bool:
    """Whether a value has two dimensions of known length at last: columns, in its new form."""
    last = kind.shape[-2:]
    known = len(last) == 2 and all(isinstance(d, int) for d in last)
    return known and (kind.rank > 2 or last[0] != 1)


def flat(kind: Type) -> Type:
    *before, first, second = kind.shape
    return replace(kind, shape=(*before, _static(first) * _static(second)))


@dataclass(frozen=True)
class _Flat:
    """One run over a kernel.

    views  of arrays, by the array, as it reads them now
    """

    kernel: ir.KernelIR
    views: dict[str, ir.Tensor] = field(default_factory=dict)

    def made(self) -> ir.KernelIR:
        kernel = self.kernel
        body = self.body(kernel.body)
        stored = {s.tensor for s in ir.every_store(kernel.body)}
        outputs = {name: view for name, view in self.views.items() if name in stored}
        tensors = tuple(t for own in kernel.tensors for t in self._tensors(own, outputs))
        returns = tuple(outputs[n].name if n in outputs else n for n in kernel.returns)
        reads = tuple(view for name, view in self.views.items() if name not in outputs)
        return replace(kernel, tensors=(*tensors, *reads), body=body, returns=returns)

    def _tensors(self, tensor: ir.Tensor, outputs: dict[str, ir.Tensor]) -> Iterator[ir.Tensor]:
        """An output in its new shape, and as the author knows it; other arrays as they are."""
        if tensor.name not in outputs:
            yield tensor
            return
        yield replace(tensor, shape=_joined(tensor.shape))
        if tensor.name in self.kernel.returns:
            yield outputs[tensor.name]

    # ------------------------------------------------------------ arrays

    def place(
        self, tensor: str, index: tuple[ir.Index, ...], written: bool
    ) -> tuple[str, tuple[ir.Index, ...]]:
        """Where columns stand in the array that is read or stored to instead."""
        match index:
            case (*before, Span(first, stop), Span(0, width)) if (
                width == self.kernel.tensor(tensor).shape[-1]
            ):
                pass
            case _:
                raise NotFlat
        name = self._view(tensor, written).name if not written else self._output(tensor)
        return name, (*before, Span(first * width, stop * width))

    def _output(self, name: str) -> str:
        """An output that is stored to as columns alone; views of it go by its elements."""
        views = [t.view for t in self.kernel.tensors if t.view is not None]
        made = {v.how for v in views if v.source == name}
        if self.kernel.tensor(name).role != "output" or made - {"reshape"}:
            raise NotFlat
        self._view(name, written=True)
        return name

    def _view(self, name: str, written: bool) -> ir.Tensor:
        kernel = self.kernel
        if name in self.views:
            return self.views[name]
        own = kernel.tensor(name)
        if not written and kernel.root(name) in kernel.stored():
            raise NotFlat
        known = replace(kernel, tensors=(*kernel.tensors, *self.views.values()))
        shape = own.shape if written else _joined(own.shape)
        suffix = "heads" if written else "columns"
        view = own.seen(unique(known, name, suffix), ir.View(name, "reshape", shape), shape)
        self.views[name] = view
        return view

    # ------------------------------------------------------------ statements

    def body(self, stmts: ir.Body) -> ir.Body:
        return tuple(self.statement(s) for s in stmts)

    def statement(self, stmt: ir.Stmt) -> ir.Stmt:
        match stmt:
            case ir.Assign():
                return replace(stmt, value=self.value(stmt.value))
            case ir.Store():
                return self.store(stmt)
            case ir.Loop():
                carries = tuple(
                    replace(c, init=self.value(c.init), next=self.value(c.next))
                    for c in stmt.carries
                )
                return replace(stmt, body=self.body(stmt.body), carries=carries)
            case _:
                assert_never(stmt)

    def store(self, store: ir.Store) -> ir.Store:
        dims = picked(store.index)
        if not is_flat(Type(dims, store.value.type.dtype)):
            if store.tensor in self.views or is_flat(store.value.type):
                raise NotFlat
            mask = None if store.mask is None else self.value(store.mask)
            return replace(store, value=self.value(store.value), mask=mask)
        if store.mask is not None or store.combine is not None:
            raise NotFlat
        tensor, index = self.place(store.tensor, store.index, written=True)
        value = self.operand(store.value, _static(dims[-2]), _static(dims[-1]))
        return replace(store, tensor=tensor, index=index, value=value)

    # ------------------------------------------------------------ values

    def value(self, expr: Expr) -> Expr:
        """The value: columns, where it has two dimensions at last."""
        columns = is_flat(expr.type)
        match expr:
            case ir.Var() if columns:
                return replace(expr, type=flat(expr.type))
            case ir.Load() if columns:
                if expr.mask is not None:
                    raise NotFlat
                tensor, index = self.place(expr.tensor, expr.index, written=False)
                return replace(expr, tensor=tensor, index=index, type=flat(expr.type))
            case ir.Load() if self.kernel.root(expr.tensor) in self.kernel.stored():
                if len(expr.index) > 1:  # an output that is read: of what shape is not asked
                    raise NotFlat
                return expr
            case Apply("expand_dims", (arg,)):
                return self.expand(expr, arg)
            case Apply("squeeze", (arg,)) if is_flat(arg.type):
                return self.squeeze(expr, arg)
            case Apply("sum" | "max" | "min", (arg,)) if is_flat(arg.type):
                return self.reduced(expr, arg)
            case Apply(op) if columns and (op in ELEMENTWISE or op in ("broadcast", "full")):
                a, b = map(_static, expr.type.shape[-2:])
                args = tuple(self.operand(arg, a, b) for arg in expr.args)
                return replace(expr, args=args, type=flat(expr.type))
            case Apply(args=args) if columns or any(is_flat(a.type) for a in args):
                raise NotFlat
            case _:
                return ir.map_children(expr, self.value)

    def operand(self, expr: Expr, a: int, b: int) -> Expr:
        """A value that meets others of [a, b] columns, with as many or one."""
        kind, value = expr.type, self.value(expr)
        if not kind.rank:
            return value
        if is_flat(kind):
            p, q = map(_static, kind.shape[-2:])
            return _spread(value, p, q, a, b)
        if kind.rank == 2 and kind.shape[0] == 1:
            value = squeezed(value, 0)
        elif kind.rank > 1:
            raise NotFlat
        return _spread(value, 1, _static(kind.shape[-1]), a, b)

    def expand(self, expr: Apply, arg: Expr) -> Expr:
        """A dimension of one in front of columns; one beside the only column is none of its own."""
        axis, value = int(expr.attr("axis")), self.value(arg)
        if not is_flat(expr.type):
            return replace(expr, args=(value,))
        if not is_flat(arg.type):
            return value
        if axis > arg.type.rank - 2:
            raise NotFlat
        return expanded(value, axis)

    def squeeze(self, expr: Apply, arg: Expr) -> Expr:
        axis, value = int(expr.attr("axis")), self.value(arg)
        if axis >= arg.type.rank - 2:
            if is_flat(expr.type):
                raise NotFlat
            return value
        return _declared(squeezed(value, axis), expr.type)

    def reduced(self, expr: Apply, arg: Expr) -> Expr:
        """Of rows, of the columns of each part, or of the parts."""
        axis, rank, value = int(expr.attr("axis")), arg.type.rank, self.value(arg)
        a, b = map(_static, arg.type.shape[-2:])
        if axis < rank - 2:
            kind = replace(value.type, shape=_without(value.type.shape, axis, expr))
            return _declared(replace(expr, args=(value,), type=kind), expr.type)
        if is_flat(expr.type) and not expr.attr("keepdim"):
            raise NotFlat
        parts = _parts(value, a, b)
        if axis == rank - 2:
            kind = replace(value.type, shape=parts[0].type.shape)
            found = reduce(lambda x, y: Apply(COMBINED_BY[expr.op], (x, y), kind), parts)
            return _declared(found, expr.type)
        kind = replace(value.type, shape=(*value.type.shape[:-1], 1))
        attrs = (("axis", value.type.rank - 1), ("keepdim", True))
        sums = tuple(replace(expr, args=(p,), type=kind, attrs=attrs) for p in parts)
        return _declared(_beside(sums), expr.type)


def _declared(value: Expr, kind: Type) -> Expr:
    """A value of that type, of columns: a row of them has a dimension of one in front again."""
    return expanded(value, 0) if not is_flat(kind) and value.type.rank < kind.rank else value


def _without(shape: tuple[Dim, ...], axis: int, expr: Apply) -> tuple[Dim, ...]:
    one = (1,) if expr.attr("keepdim") else ()
    return (*shape[:axis], *one, *shape[axis + 1 :])


def _spread(value: Expr, p: int, q: int, a: int, b: int) -> Expr:
    """[..., p * q] -> [..., a * b], where p or q is 1; a single number stays one."""
    if (p, q) in ((a, b), (1, 1)):
        return value
    if p == 1:
        return _beside((value,) * a)
    wide = replace(value.type, shape=(*value.type.shape[:-1], b))
    return _beside(tuple(Apply("broadcast", (part,), wide) for part in _parts(value, a, 1)))


def _parts(value: Expr, count: int, width: int) -> tuple[Expr, ...]:
    """Every `width` columns."""
    if count > MOST:
        raise NotFlat
    if count == 1:
        return (value,)
    at = value.type.rank - 1
    kind = replace(value.type, shape=(*value.type.shape[:-1], width))
    return tuple(
        Apply("narrow", (value,), kind, (("axis", at), ("start", n), ("stop", n + width)))
        for n in range(0, count * width, width)
    )


def _beside(parts: tuple[Expr, ...]) -> Expr:
    if len(parts) == 1:
        return parts[0]
    if len(parts) > MOST:
        raise NotFlat
    kind, at = parts[0].type, parts[0].type.rank - 1
    width = sum(_static(p.type.shape[-1]) for p in parts)
    return Apply("concat", parts, replace(kind, shape=(*kind.shape[:-1], width)), (("axis", at),))


def _joined(shape: tuple[int, ...]) -> tuple[int, ...]:
    return (*shape[:-2], shape[-2] * shape[-1])


def _static(dim: Dim) -> int:
    if not isinstance(dim, int):
        raise NotFlat
    return dim
