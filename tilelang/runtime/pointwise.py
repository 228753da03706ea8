"""term(expr, scope) -> Term | None: an integer expression as a NumPy function of the tensors.

A term is evaluated at many points at once; a point says where every axis stands (`hl.grid` index or
position in a tile's range), and a value is one number per point or one number for all of them.
None stands for what cannot be known before the launch: floats, carried values, data that the kernel
writes, and the begin and end of tiles, which depend on the blocks, except of `Scope.ends`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ..ir import (
    Along,
    Apply,
    Assign,
    At,
    Const,
    Expr,
    Gather,
    GridIndex,
    Index,
    KernelIR,
    Load,
    TileIndex,
    TileScalar,
    Var,
    map_children,
    statements,
)
from ..language.op import OPS as LANGUAGE

Arrays = Mapping[str, np.ndarray]
Points = Mapping[str, Any]  # axis -> one int per point, or one int for all
Run = Callable[[Arrays, Points], Any]

WIDE = np.int64  # sums of int32 offsets are exact in it


def _exact(op: str) -> Callable[..., Any]:
    """What the language means by an operation, in 64 bits; what is divided by 0 is unspecified."""
    meaning = LANGUAGE[op].reference
    match op:
        case "add" | "sub" | "mul" | "neg" | "abs":
            return lambda a, *rest: meaning(np.asarray(a, WIDE), *rest)
        case "floordiv" | "mod":
            return lambda a, b: meaning(a, np.where(b == 0, 1, b))
        case _:
            return meaning


WHOLE = """
    add sub mul neg abs floordiv mod minimum maximum where eq ne lt le gt ge logical_and logical_or
    logical_xor logical_not bitwise_and bitwise_or bitwise_xor shift_left shift_right
"""
OPS = {op: _exact(op) for op in WHOLE.split()}
INTEGERS = ("int64", "int32", "int16", "int8", "uint32", "uint8")


@dataclass(frozen=True)
class Term:
    """A compiled expression.

    constant  its value when that needs no tensor
    bound     "exact"; "most" if the true value is that or less, "least" if that or more, because an
              arm of a minimum or maximum could not be known
    """

    run: Run
    constant: Any = None
    bound: Literal["exact", "most", "least"] = "exact"


@dataclass(frozen=True)
class Scope:
    """What names mean: `points` holds the axes whose points are known before the call.

    ends  tile axes whose points are tiles of one position: their begin and end are known
    """

    ir: KernelIR
    definitions: Mapping[str, Expr]
    written: frozenset[str]
    points: Points
    ends: frozenset[str] = frozenset()


def scope(ir: KernelIR) -> Scope:
    """The scope of a kernel with no points known."""
    definitions = {s.name: s.value for s in statements(ir.body) if isinstance(s, Assign)}
    written = frozenset(t.name for t in ir.tensors if t.mutated or t.role == "output")
    return Scope(ir, definitions, written, {})


def resolve(expr: Expr, definitions: Mapping[str, Expr]) -> Expr:
    """The expression with named values replaced by what they were assigned."""
    if isinstance(expr, Var):
        value = definitions.get(expr.name)
        return expr if value is None else resolve(value, definitions)
    return map_children(expr, lambda e: resolve(e, definitions))


def term(expr: Expr, known: Scope) -> Term | None:
    """The expression as a function of tensors and points; None if it cannot be known."""
    match expr:
        case Const(value):
            return None if isinstance(value, float) else constant(value)
        case Var(name):
            value = known.definitions.get(name)
            return None if value is None else term(value, known)
        case GridIndex(axis) | TileIndex(axis):
            return _position(axis, known)
        case TileScalar(axis, "begin") if axis in known.ends:
            return _position(axis, known)
        case TileScalar(axis, "end") if axis in known.ends:
            return _joined(OPS["add"], [_position(axis, known), constant(1)])
        case Load():
            return _load(expr, known)
        case Apply():
            return _apply(expr, known)
        case _:
            return None


def constant(value: Any) -> Term:
    """A term that needs no tensor."""
    return Term(lambda arrays, points: value, value)


def _position(axis: str, known: Scope) -> Term:
    if axis in known.points:
        return constant(known.points[axis])
    return Term(lambda arrays, points: points[axis])


def _apply(expr: Apply, known: Scope) -> Term | None:
    args = [term(a, known) for a in expr.args]
    if expr.op in ("minimum", "maximum") and None in args:
        return _one_arm(expr.op, args)
    exact = [a for a in args if a is not None and a.bound == "exact"]
    if expr.op == "cast" and len(exact) == 1 and expr.type.dtype in INTEGERS:
        return exact[0]
    if expr.op not in OPS or len(exact) != len(args):
        return None
    return _joined(OPS[expr.op], exact)


def _joined(fn: Callable[..., Any], parts: list[Term]) -> Term:
    """fn of the parts, computed now when all of them are constants."""
    if all(p.constant is not None for p in parts):
        return constant(fn(*(p.constant for p in parts)))
    runs = tuple(p.run for p in parts)
    if len(runs) == 2:
        first, second = runs
        return Term(lambda arrays, points: fn(first(arrays, points), second(arrays, points)))
    return Term(lambda arrays, points: fn(*[run(arrays, points) for run in runs]))


def _one_arm(op: str, args: list[Term | None]) -> Term | None:
    """min(known, unknown) is at most `known`; max(known, unknown) at least."""
    bound = "most" if op == "minimum" else "least"
    known = [a for a in args if a is not None and a.bound in ("exact", bound)]
    return Term(known[0].run, known[0].constant, bound) if len(known) == 1 else None


def _load(load: Load, known: Scope) -> Term | None:
    source = array(load.tensor, known)
    if source is None or load.type.dtype not in (*INTEGERS, "bool"):
        return None
    indices = [position(i, known) for i in load.index]
    exact = [i for i in indices if i is not None and i.bound == "exact"]
    if len(exact) != len(indices):
        return None
    value = _picked(source, exact, known.ir.tensor(load.tensor).shape)
    if load.mask is None:
        return value
    mask = term(load.mask, known)
    return None if mask is None else _joined(np.where, [mask, value, constant(load.other)])


def _picked(source: Callable[[Arrays], np.ndarray], indices: list[Term], shape: tuple) -> Term:
    """source[indices], each index clipped to the dimension: `checks` says if one was outside."""
    if 0 in shape:
        return constant(0)
    if len(indices) == 1:
        (index,) = indices
        if index.constant is not None:
            where = _as_slice(np.clip(index.constant, 0, shape[0] - 1))
            return Term(lambda arrays, points: source(arrays)[where])
        run = index.run
        return Term(lambda arrays, points: source(arrays).take(run(arrays, points), mode="clip"))
    runs = [i.run for i in indices]

    def pick(arrays: Arrays, points: Points) -> Any:
        at = [np.clip(run(arrays, points), 0, n - 1) for run, n in zip(runs, shape, strict=True)]
        return source(arrays)[tuple(at)]

    return Term(pick)


def _as_slice(where: np.ndarray) -> Any:
    """Indices that count up by one as a slice, which makes a view."""
    if where.ndim == 1 and len(where) and (np.diff(where) == 1).all():
        return slice(int(where[0]), int(where[-1]) + 1)
    return where


def position(index: Index, known: Scope) -> Term | None:
    """The position that one entry of an index picks at each point."""
    match index:
        case At(expr) | Gather(expr):
            return term(expr, known)
        case Along(axis, offset) if offset is not None:
            moved = term(offset, known)
            if moved is None or moved.bound != "exact":
                return None
            return _joined(OPS["add"], [_position(axis, known), moved])
        case Along(axis):
            return _position(axis, known)
        case _:
            return None


def array(name: str, known: Scope) -> Callable[[Arrays], np.ndarray] | None:
    """How to get a tensor from the arguments; None if the kernel may write it."""
    tensor = known.ir.tensor(name)
    if name in known.written:
        return None
    if tensor.view is None:
        return lambda arrays: arrays[name]
    source, how, arg = array(tensor.view.source, known), tensor.view.how, tensor.view.arg
    if source is None:
        return None
    if how == "reshape":
        return lambda arrays: source(arrays).reshape(arg)
    return lambda arrays: source(arrays).transpose(arg)
