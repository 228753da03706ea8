"""is_multiple(expr, sums, varies) -> whether a value is a sum times numbers that stay.

    total / count.to(float32) * 0.5

Parts of the sum may be multiplied one by one, and added up then: a mean of parts is the mean.  The
numbers must be neither 0 nor infinite: 0 / 0 of an empty part is not what 5 / 0 of the whole is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Sequence

from ml_dtypes import finfo, iinfo

from ..analysis.carries import Definitions
from ..analysis.folds import PARTS, scaled
from ..analysis.stores import mentions, sources
from ..ir import Apply, Const, Expr, KernelIR, Var, every_store, walk
from ..language.dtypes import is_float, to_numpy

_Sizes = tuple[float, float]


def uncast(expr: Expr) -> Expr:
    """What a value is before it is rounded last."""
    return expr.args[0] if isinstance(expr, Apply) and expr.op == "cast" else expr


def turned_back(expr: Expr) -> Expr:
    """A value as it was before its dimensions changed places, or some of length 1 came or went."""
    match expr:
        case Apply("transpose" | "expand_dims" | "squeeze", (value,)):
            return turned_back(value)
        case _:
            return expr


def is_multiple(expr: Expr, sums: Collection[str], varies: Callable[[Expr], bool]) -> bool:
    """Whether `expr` is one of the sums, by name, times numbers that do not vary."""
    match turned_back(expr):
        case Var(name):
            return name in sums
        case Apply("mul" | "div" as op, (x, y)):
            if op == "mul" and not varies(x):
                x, y = y, x
            return not varies(y) and _is_finite(y) and is_multiple(x, sums, varies)
        case _:
            return False


def _is_finite(factor: Expr) -> bool:
    """Whether a number is proved to be neither 0 nor infinite."""
    return _size(factor) is not None


def _size(factor: Expr) -> _Sizes | None:
    """The least and the largest absolute value of a number proved to be neither 0 nor infinite.

    1e30 * 1e30 is infinite in float32, and its inverse 0.  Numbers that are not normal count as 0:
    TPUs compute with 0 for them.
    """
    match factor:
        case Const(value):
            sizes = (abs(value), abs(value))
        case Apply("maximum", args) if "int" in factor.type.dtype:
            least = max((arg.value for arg in args if isinstance(arg, Const)), default=0)
            sizes = (least, iinfo(to_numpy(factor.type.dtype)).max)
        case Apply("cast" | "broadcast" | "expand_dims" | "full", (x, *_)):
            sizes = _size(x)
        case Apply("full"):
            sizes = _size(Const(factor.attr("value"), factor.type))
        case Apply("mul" | "div" as op, (x, y)) if is_float(factor.type.dtype):
            sizes = _combined(op, _size(x), _size(y))
        case _:
            sizes = None
    return sizes if sizes and _is_held(sizes, factor.type.dtype) else None


def _combined(op: str, x: _Sizes | None, y: _Sizes | None) -> _Sizes | None:
    if x is None or y is None:
        return None
    return (x[0] * y[0], x[1] * y[1]) if op == "mul" else (x[0] / y[1], x[1] / y[0])


def _is_held(sizes: _Sizes, dtype: str) -> bool:
    """Whether a dtype has all numbers of these sizes, neither as 0 nor as infinity."""
    if is_float(dtype):
        limits = finfo(to_numpy(dtype))
        return float(limits.smallest_normal) <= sizes[0] and sizes[1] <= float(limits.max)
    return dtype != "bool" and sizes[0] >= 1 and sizes[1] <= iinfo(to_numpy(dtype)).max


def is_zero(expr: Expr) -> bool:
    """Whether all of a value is written as 0."""
    match expr:
        case Const(value):
            return value == 0
        case Apply("cast" | "broadcast" | "expand_dims" | "full", (arg, *_)):
            return is_zero(arg)
        case Apply("full"):
            return expr.attr("value") == 0
        case _:
            return False


def added_alone(
    ir: KernelIR, axes: Collection[str], exprs: Sequence[Expr], defined: Definitions
) -> frozenset[int]:
    """The sums, by identity, that nothing is done with but adding multiples of them to arrays.

        hl.atomic_add(y, [tn], x[tm, tn].sum(0) * 0.5)

    Sums of parts are added alike, if the factors are the same in all of them.
    """

    def varies(expr: Expr) -> bool:
        return any(mentions(e, axis) for e in sources((expr,), ir, defined) for axis in axes)

    def key(expr: Expr) -> Hashable:
        return expr.name if isinstance(expr, Var) else id(expr)

    added = (s.value for s in every_store(ir.body) if s.combine == "add")
    values = [value.args[1] for value in added if isinstance(value, Apply)]
    paths = [list(scaled(value, varies, defined)) for value in values]
    seen = Counter(key(part) for expr in exprs for part in walk(expr))
    passed = Counter(key(e) for path in paths for e in path if isinstance(e, Var))
    return frozenset(
        id(path[-1])
        for path in paths
        if isinstance(path[-1], Apply) and path[-1].op in PARTS["sum"]
        and all(seen[key(e)] == passed.get(key(e), 1) for e in path)
        and is_float(path[-1].type.dtype) <= all(is_float(e.type.dtype) for e in path)
    )  # fmt: skip
