"""Kernels written directly in IR, short enough to read in a test."""

from __future__ import annotations

import inspect

from tilelang.errors import Loc
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    At,
    Axis,
    Carry,
    Const,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Span,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Type,
    Var,
)

LOC = Loc("kernel.py", 1, 0, 1, "x")
INT = Type((), "int32")
F32 = Type((), "float32")


def number(value):
    return value if not isinstance(value, int) or isinstance(value, bool) else Const(value, INT)


def op(name, *args, dtype=None, shape=None, **attrs):
    args = tuple(number(a) for a in args)
    widest = max((a.type.shape for a in args), key=len, default=())
    kind = Type(widest if shape is None else shape, dtype or args[-1].type.dtype)
    return Apply(name, args, kind, tuple(attrs.items()))


def add(a, b):
    return op("add", a, b)


def sub(a, b):
    return op("sub", a, b)


def mul(a, b):
    return op("mul", a, b)


def load(tensor, *index, dtype="int32", **more):
    entries = tuple(entry(i) for i in index)
    return Load(tensor, entries, Type(tuple(d for i in entries for d in dims(i)), dtype), **more)


def floats(tensor, *index, **more):
    return load(tensor, *index, dtype="float32", **more)


def entry(index):
    match index:
        case str():
            return Along(index)
        case slice():
            return Span(index.start or 0, index.stop)
        case int() | GridIndex() | TileScalar() | Apply() | Var() | Load() | Const():
            return At(number(index))
        case _:
            return index


def dims(index):
    match index:
        case At():
            return ()
        case Along(axis):
            return (axis,)
        case Span(start, stop):
            return (stop - start,)
        case _:
            return index.expr.type.shape


def begin(axis):
    return TileScalar(axis, "begin")


def end(axis):
    return TileScalar(axis, "end")


def index(axis):
    return TileIndex(axis, Type((axis,), "int32"))


def store(tensor, *where, value=None, mask=None):
    entries = tuple(entry(i) for i in where)
    shape = tuple(d for i in entries for d in dims(i))
    value = Const(1.0, F32) if value is None else value
    assert isinstance(shape, tuple)
    return Store(tensor, entries, value, LOC, mask)


def let(name, value):
    return Assign(name, number(value), LOC, name)


def carry(name, init, after, user=None):
    return Carry(name, init, after, f"{name}_out", user or name, LOC)


def var(name, like=F32):
    return Var(name, like if isinstance(like, Type) else like.type)


class Draft:
    """Collects the axes and tensors of a kernel while its loops are written."""

    def __init__(self, **shapes):
        self.axes: list[Axis] = []
        self.tensors = [self.tensor(name, shape) for name, shape in shapes.items()]

    @staticmethod
    def tensor(name, shape, **more):
        if isinstance(shape, Tensor):
            return shape
        whole = name in ("offsets", "starts", "ends", "perm", "idx", "n", "splits", "pages")
        role = more.pop("role", "output" if name in ("y", "z", "out") else "input")
        return Tensor(name, shape, "int32" if whole else "float32", role, LOC, **more)

    def grid(self, name, first, last, *body, carries=(), **more):
        return self._loop("grid", name, first, last, body, carries, **more)

    def tile(self, name, first, last, *body, carries=(), **more):
        return self._loop("tile", name, first, last, body, carries, **more)

    def _loop(self, kind, name, first, last, body, carries, user=None):
        axis = Axis(
            name, kind, number(first), number(last), None, None, LOC, user or name.rstrip("_")
        )
        self.axes.insert(0, axis)
        return Loop(name, tuple(body), tuple(carries), LOC)

    def kernel(self, *body):
        name = inspect.stack()[1].function
        return KernelIR(
            name, (), tuple(self.tensors), tuple(self.axes), tuple(body), (), "none", LOC
        )


g = GridIndex("g")
h = GridIndex("h")
OFFSETS = load("offsets", g), load("offsets", add(g, 1))
