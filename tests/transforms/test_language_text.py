"""Derived kernels are ordinary kernels: printed in the language and parsed, they are the same."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import tilelang as tile
from tests.derivatives import parsed
from tests.subjects import SUBJECTS
from tests.tiers import share
from tests.transforms.test_gradients import LAYOUTS, _derivative
from tilelang import ir
from tilelang.ir import KernelIR
from tilelang.transforms.language_text import module, text

assert LAYOUTS


class _Meaning:
    """What a kernel says, without names of values and axes, and without places in files."""

    def __init__(self, kernel: KernelIR) -> None:
        self.kernel, self.axes = kernel, dict[str, str]()
        self.lines: list[Any] = []
        self.body(kernel.body, {})

    def expr(self, expr: ir.Expr, values: dict[str, Any]) -> Any:
        shape = tuple(self.axes[d] if isinstance(d, str) else d for d in expr.type.shape)
        kind = (shape, expr.type.dtype)
        match expr:
            case ir.Var(name):
                return values[name]
            case ir.Const(value):
                return value, kind
            case ir.GridIndex(axis) | ir.TileIndex(axis):
                return type(expr).__name__, self.axes[axis]
            case ir.TileScalar(axis, what):
                return what, self.axes[axis]
            case ir.Load(tensor, index, _, mask, other):
                where = tuple(self.entry(i, values) for i in index)
                guard = None if mask is None else self.expr(mask, values)
                return tensor, where, guard, other if mask is not None else 0, kind
            case ir.Apply(op, args, _, attrs):
                return op, tuple(self.expr(a, values) for a in args), attrs, kind

    def entry(self, entry: ir.Index, values: dict[str, Any]) -> Any:
        inner = tuple(self.expr(e, values) for e in ir.index_exprs(entry))
        match entry:
            case ir.Along(axis):
                return "along", self.axes[axis], inner
            case ir.Span(start, stop):
                return start, stop
            case _:
                return type(entry).__name__, inner

    def body(self, body: ir.Body, values: dict[str, Any]) -> None:
        for stmt in body:
            match stmt:
                case ir.Assign(name, value):
                    values[name] = self.expr(value, values)
                case ir.Store(tensor, index, value, _, mask, combine):
                    where = tuple(self.entry(i, values) for i in index)
                    guard = None if mask is None else self.expr(mask, values)
                    self.lines.append((tensor, where, self.expr(value, values), guard, combine))
                case ir.Loop():
                    self.loop(stmt, values)

    def loop(self, loop: ir.Loop, values: dict[str, Any]) -> None:
        axis = self.kernel.axis(loop.axis)
        bounds = tuple(self.expr(b, values) for b in (axis.begin, axis.end))
        fixed = axis.block if isinstance(axis.block, int) else None
        self.axes[axis.name] = own = f"a{len(self.axes)}"
        self.lines.append((own, axis.kind, bounds, axis.max_extent, fixed))
        first = {c.name: self.expr(c.init, values) for c in loop.carries}
        tie = {c.name: ("carry", own, str(first[c.name])) for c in loop.carries}
        inner = {**values, **tie}
        self.body(loop.body, inner)
        after = {c.name: self.expr(c.next, inner) for c in loop.carries}
        self.lines.append(sorted(str((first[n], after[n])) for n in first))
        for c in loop.carries:
            values[c.out] = ("out", own, str(after[c.name]))


def said(kernel: KernelIR) -> tuple[Any, ...]:
    """All that the text of a kernel must bring back."""
    arrays = {(t.name, t.shape, t.dtype, t.role, t.fill) for t in kernel.tensors}
    return kernel.returns, arrays, _Meaning(kernel).lines


def again(kernels: list[KernelIR], folder: Path) -> list[KernelIR]:
    """The kernels printed as one module, imported and parsed."""
    path = folder / "printed.py"
    path.write_text(module(kernels))
    spec = importlib.util.spec_from_file_location(f"printed_{folder.name}", path)
    assert spec is not None and spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return [_parsed(getattr(made, k.name), k) for k in kernels]


def _parsed(kernel: tile.Kernel, like: KernelIR) -> KernelIR:
    shapes = {t.name: tile.spec(t.shape, t.dtype) for t in like.tensors}
    return parsed(kernel, [shapes[p.tensor] for p in like.params if p.tensor])[0]


def round_trip(name: str, folder: Path) -> None:
    """Asserts that every kernel of a derivative comes back."""
    _, made = _derivative(name)
    forward = replace(made.forward, name=f"{made.forward.name}_saving")
    forward = replace(forward, params=tuple(p for p in forward.params if p.tensor))
    kernels = [*([forward] if made.saved else []), *(launch.kernel for launch in made.launches)]
    for one, other in zip(kernels, again(kernels, folder), strict=True):
        assert said(one) == said(other)


@pytest.mark.parametrize("name", share([s.name for s in SUBJECTS], 8, 1))
def test_a_printed_kernel_is_the_kernel(name, tmp_path):
    round_trip(name, tmp_path)


def test_the_text_of_a_gradient():
    (launch,) = _derivative("jagged_mean")[1].launches
    assert (
        text(launch.kernel)
        == '''\
@tile.kernel
def jagged_mean_d_x(offsets, d_y):
    """Part of the gradient of jagged_mean."""
    d_x = hl.zeros([40, 200], dtype=hl.float32)
    for g in hl.grid(4):
        begin = offsets[g]
        end = offsets[g + 1]
        value = hl.maximum(end - begin, 1).to(hl.float32)
        for tf in hl.tile(200):
            value_1 = hl.expand_dims(d_y[g, tf] / value, 0)
            for tm in hl.tile(begin, end, max_extent=40):
                d_x[tm, tf] = hl.broadcast_to(value_1, [tm, tf])
    return (d_x,)
'''
    )
