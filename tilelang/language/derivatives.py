"""RULES[op](apply, adjoint, loc) -> one adjoint per operand: the derivative of each primitive.

The adjoint of a value is how much the loss changes with it: float32, of the value's shape.  An
operand's adjoint may come in the shape of the result: who asks adds it up over what was repeated.
None: nothing passes to that operand.  Kinks and ties are as in JAX: the largest of equal elements
share, `abs` has 1 at 0.  What an op computes may be used by its name, `value`, rather than again.

mul: (adjoint * y, adjoint * x)        exp: (adjoint * value,)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ..ir import Apply, Const, Expr
from .build import binary, cast, dot, reduce, unary, where
from .dtypes import is_float
from .shapes import arange, broadcast, concat, expand_dims, full, reshape, squeeze, transpose
from .values import Number, Site


@dataclass(frozen=True)
class OpUse:
    """An operation in the forward kernel; `value` stands for its result."""

    apply: Apply
    value: Expr
    adjoint: Expr

    @property
    def args(self) -> tuple[Expr, ...]:
        return self.apply.args

    @property
    def loc(self) -> Site:
        return self.apply.loc

    def mul(self, x: Expr | Number, y: Expr | Number) -> Expr:
        return binary("mul", x, y, self.loc)

    def times(self, factor: Expr | Number) -> tuple[Expr]:
        """The adjoint of an only operand, given the derivative there."""
        return (self.mul(self.adjoint, factor),)


Rule = Callable[[OpUse], tuple[Expr | None, ...]]


class NoRule(Exception):
    """A use of an op that no rule covers; the text says what about it."""


# ---------------------------------------------------------------- one operand


def _of_result(factor: Callable[[OpUse, Expr], Expr]) -> Rule:
    """A derivative that is written with the result."""
    return lambda use: use.times(factor(use, use.value))


def _of_operand(factor: Callable[[OpUse, Expr], Expr]) -> Rule:
    """A derivative that is written with the operand."""
    return lambda use: use.times(factor(use, use.args[0]))


def _abs(use: OpUse) -> tuple[Expr]:
    negative = unary("neg", use.adjoint, use.loc)
    return (where(binary("ge", use.args[0], 0.0, use.loc), use.adjoint, negative, use.loc),)


def _divided(use: OpUse, by: Expr | Number) -> tuple[Expr]:
    return (binary("div", use.adjoint, by, use.loc),)


def _rsqrt(use: OpUse, y: Expr) -> Expr:
    return use.mul(-0.5, use.mul(y, use.mul(y, y)))


def _sqrt(use: OpUse) -> tuple[Expr]:
    return _divided(use, use.mul(2.0, use.value))


def _log1p(use: OpUse) -> tuple[Expr]:
    return _divided(use, binary("add", use.args[0], 1.0, use.loc))


def _cos(use: OpUse, x: Expr) -> Expr:
    return unary("neg", unary("sin", x, use.loc), use.loc)


def _one_minus(use: OpUse, x: Expr) -> Expr:
    return binary("sub", 1.0, x, use.loc)


def _tanh(use: OpUse, y: Expr) -> Expr:
    return _one_minus(use, use.mul(y, y))


def _sigmoid(use: OpUse, y: Expr) -> Expr:
    return use.mul(y, _one_minus(use, y))


def _bell(use: OpUse, x: Expr, scale: float) -> Expr:
    """scale * exp(-x * x)"""
    return use.mul(scale, unary("exp", unary("neg", use.mul(x, x), use.loc), use.loc))


def _erf(use: OpUse, x: Expr) -> Expr:
    return _bell(use, x, 2 / math.sqrt(math.pi))


def _silu(use: OpUse, x: Expr) -> Expr:
    """s + x s (1 - s), where s is the sigmoid"""
    s = unary("sigmoid", x, use.loc)
    return use.mul(s, binary("add", 1.0, use.mul(x, _one_minus(use, s)), use.loc))


def _gelu_tanh(use: OpUse, x: Expr) -> Expr:
    """(1 + t) / 2 + x / 2 (1 - t t) u', where t = tanh(u), u = a (x + b x^3)"""
    a, b = math.sqrt(2 / math.pi), 0.044715
    square = use.mul(x, x)
    inner = use.mul(x, binary("add", a, use.mul(a * b, square), use.loc))
    t = unary("tanh", inner, use.loc)
    slope = binary("add", a, use.mul(3 * a * b, square), use.loc)
    second = use.mul(use.mul(use.mul(0.5, x), _tanh(use, t)), slope)
    return binary("add", use.mul(0.5, binary("add", 1.0, t, use.loc)), second, use.loc)


def _gelu_erf(use: OpUse, x: Expr) -> Expr:
    """(1 + erf(x / sqrt 2)) / 2 + x exp(-x x / 2) / sqrt(2 pi)"""
    small = use.mul(x, math.sqrt(0.5))
    first = use.mul(0.5, binary("add", 1.0, unary("erf", small, use.loc), use.loc))
    second = use.mul(x, _bell(use, small, 1 / math.sqrt(2 * math.pi)))
    return binary("add", first, second, use.loc)


def _relu(use: OpUse) -> tuple[Expr]:
    positive = binary("gt", use.args[0], 0.0, use.loc)
    return (where(positive, use.adjoint, 0.0, use.loc),)


# ---------------------------------------------------------------- two operands


def _sub(use: OpUse) -> tuple[Expr, Expr]:
    return use.adjoint, unary("neg", use.adjoint, use.loc)


def _mul(use: OpUse) -> tuple[Expr, Expr]:
    x, y = use.args
    return use.mul(use.adjoint, y), use.mul(use.adjoint, x)


def _div(use: OpUse) -> tuple[Expr, Expr]:
    over = binary("div", use.adjoint, use.args[1], use.loc)
    return over, unary("neg", use.mul(over, use.value), use.loc)


def _mod(use: OpUse) -> tuple[Expr, Expr]:
    """x - floor(x / y) y"""
    whole = unary("floor", binary("div", use.args[0], use.args[1], use.loc), use.loc)
    return use.adjoint, unary("neg", use.mul(use.adjoint, whole), use.loc)


def _pow(use: OpUse) -> tuple[Expr | None, Expr | None]:
    """y x^(y - 1), and x^y log x; as in JAX, log 1 for log 0, and 0 for a whole power of 0."""
    x, y = use.args
    if isinstance(y, Const):
        if y.value == 0:
            return None, None
        less = y.value - 1
        power = x if less == 1 else binary("pow", x, less, use.loc)
        return use.mul(use.adjoint, use.mul(y.value, power) if less else y.value), None
    power = binary("pow", x, binary("sub", y, 1.0, use.loc), use.loc)
    base = where(binary("eq", x, 0.0, use.loc), 1.0, x, use.loc)
    of_y = use.mul(unary("log", base, use.loc), use.value)
    return use.mul(use.adjoint, use.mul(y, power)), use.mul(use.adjoint, of_y)


def _extremum(use: OpUse) -> tuple[Expr, Expr]:
    """To the operand that the result is; half to each of two that are equal.

    The operands are compared with each other: a result that another kernel computed may be rounded
    in another way than they are here, and be neither of them.
    """
    a, b = use.args
    wins = "gt" if use.apply.op == "maximum" else "lt"
    even = where(binary("eq", a, b, use.loc), use.mul(use.adjoint, 0.5), 0.0, use.loc)

    def share(mine: Expr, other: Expr) -> Expr:
        return where(binary(wins, mine, other, use.loc), use.adjoint, even, use.loc)

    return share(a, b), share(b, a)


def _where(use: OpUse) -> tuple[None, Expr, Expr]:
    condition = use.args[0]
    yes = where(condition, use.adjoint, 0.0, use.loc)
    return None, yes, where(condition, 0.0, use.adjoint, use.loc)


def _same(use: OpUse) -> tuple[Expr, ...]:
    """To every operand what came."""
    return (use.adjoint,) * len(use.args)


# ---------------------------------------------------------------- reductions and shapes


def _kept(use: OpUse, x: Expr) -> Expr:
    """A reduced value with a dimension of length 1 where it was reduced."""
    return x if use.apply.attr("keepdim") else expand_dims(x, use.apply.attr("axis"), use.loc)


def _sum(use: OpUse) -> tuple[Expr]:
    return (broadcast(_kept(use, use.adjoint), use.args[0].type.shape, use.loc),)


def _largest(use: OpUse) -> tuple[Expr]:
    """Shared by the elements that are the largest."""
    x, axis = use.args[0], use.apply.attr("axis")
    here = binary("eq", x, _kept(use, use.value), use.loc)
    count = reduce("sum", cast(here, "float32", use.loc), axis, True, use.loc)
    share = binary("div", _kept(use, use.adjoint), count, use.loc)
    return (where(here, broadcast(share, x.type.shape, use.loc), 0.0, use.loc),)


def _expand_dims(use: OpUse) -> tuple[Expr]:
    return (squeeze(use.adjoint, use.apply.attr("axis"), use.loc),)


def _squeeze(use: OpUse) -> tuple[Expr]:
    return (expand_dims(use.adjoint, use.apply.attr("axis"), use.loc),)


def _transpose(use: OpUse) -> tuple[Expr]:
    perm: tuple[int, ...] = use.apply.attr("perm")
    return (transpose(use.adjoint, tuple(perm.index(i) for i in range(len(perm))), use.loc),)


def _reshape(use: OpUse) -> tuple[Expr]:
    return (reshape(use.adjoint, use.args[0].type.shape, use.loc),)


# ---------------------------------------------------------------- contraction


def _dot(use: OpUse) -> tuple[Expr, Expr]:
    """dx = adjoint y, dy = adjoint x, contracted over what is free in the other operand.

    Products are taken in the operands' dtype and added in float32, as those of the kernel are.
    """
    x, y = use.args
    contract, batch = use.apply.attr("contract"), use.apply.attr("batch", ((), ()))
    low = x.type.dtype if is_float(x.type.dtype) else "float32"
    adjoint = cast(use.adjoint, low, use.loc)
    count = len(batch[0])
    free = [_free(a, c, b) for a, c, b in zip((x, y), contract, batch)]
    dims = count, len(free[0])
    of_x = _contracted(use, adjoint, dims, y, contract[1], batch[1], (free[0], 0))
    of_y = _contracted(use, adjoint, dims, x, contract[0], batch[0], (free[1], 1))
    return (
        _in_place(of_x, (*batch[0], *free[0], contract[0]), use.loc),
        _in_place(of_y, (*batch[1], *free[1], contract[1]), use.loc),
    )


def _free(x: Expr, contract: int, batch: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(i for i in range(x.type.rank) if i != contract and i not in batch)


def _contracted(
    use: OpUse,
    adjoint: Expr,
    dims: tuple[int, int],
    other: Expr,
    contract: int,
    batch: tuple[int, ...],
    mine: tuple[tuple[int, ...], int],
) -> Expr:
    """The adjoint times the other operand: batch, own free dimensions, the contracted one."""
    count, left = dims
    own_free, side = mine
    other_free = _free(other, contract, batch)
    # the free dimensions of the other operand in the adjoint: behind those of the first operand
    places = range(count + left, adjoint.type.rank) if side == 0 else range(count, count + left)
    if len(other_free) > 1:
        raise NoRule("a product over two dimensions at once")
    if not other_free:
        return _outer(use, adjoint, other, contract, batch, own_free)
    if count == 0 and adjoint.type.rank == 2 and other.type.rank == 2:
        return _plain(use, adjoint, places[0], other, other_free[0])
    pairs = (tuple(range(count)), batch)
    return dot(adjoint, other, use.loc, (places[0], other_free[0]), pairs)


def _plain(use: OpUse, x: Expr, of_x: int, y: Expr, of_y: int) -> Expr:
    """A product of two matrices over one dimension of each, as one writes it: x.T @ y."""
    left = x if of_x == 1 else transpose(x, (1, 0), use.loc)
    right = y if of_y == 0 else transpose(y, (1, 0), use.loc)
    return dot(left, right, use.loc, (1, 0))


def _outer(
    use: OpUse,
    adjoint: Expr,
    other: Expr,
    contract: int,
    batch: tuple[int, ...],
    own_free: tuple[int, ...],
) -> Expr:
    """The other operand is a vector: every element of the adjoint times the whole of it."""
    wide = expand_dims(adjoint, adjoint.type.rank, use.loc)
    vector = transpose(other, (*batch, contract), use.loc)
    for _ in own_free:
        vector = expand_dims(vector, len(batch), use.loc)
    return use.mul(wide, vector)


def _in_place(x: Expr, dims: tuple[int, ...], loc: Site) -> Expr:
    """Dimension i is dimension dims[i] of the operand: put in the operand's order."""
    return transpose(x, tuple(dims.index(i) for i in range(len(dims))), loc)


def _concat(use: OpUse) -> tuple[Expr, ...]:
    """To each value what came to its own positions, picked by exact sums of one element each.

    What can be said of the values one by one is, before it is derived (passes/separate_joins.py);
    this is for what needs all of them, such as their largest element.
    """
    axis, (rank, begin) = use.apply.attr("axis"), (use.adjoint.type.rank, 0)
    spread = expand_dims(use.adjoint, axis + 1, use.loc)
    whole = expand_dims(_positions(use, axis, 0), 1, use.loc)
    made: list[Expr] = []
    for value in use.args:
        own = expand_dims(_positions(use, axis, begin, value), 0, use.loc)
        here = binary("eq", whole, own, use.loc)
        for _ in range(rank - 1 - axis):
            here = expand_dims(here, here.type.rank, use.loc)
        picked = where(here, spread, 0.0, use.loc)
        made.append(reduce("sum", picked, axis, False, use.loc))
        begin += int(value.type.shape[axis])
    return tuple(made)


def _narrow(use: OpUse) -> tuple[Expr, ...]:
    """Zeros before the part and behind it, which what is joined is separated from again."""
    (value,), axis = use.args, use.apply.attr("axis")
    shape, parts = value.type.shape, [use.adjoint]
    before = use.apply.attr("start")
    behind = int(shape[axis]) - use.apply.attr("stop")
    for count, place in ((before, 0), (behind, len(parts) + (before > 0))):
        if count:
            none = (*shape[:axis], count, *shape[axis + 1 :])
            parts.insert(place, full(none, 0.0, use.adjoint.type.dtype, use.loc))
    return (concat(parts, axis, use.loc),)


def _positions(use: OpUse, axis: int, begin: int, value: Expr | None = None) -> Expr:
    """Where the elements of a value that begins there are among all that were joined."""
    length = int((use.apply if value is None else value).type.shape[axis])
    return arange(begin, begin + length, 1, None, use.loc)


def _full(use: OpUse) -> tuple[Expr, ...]:
    """A scalar that was repeated everywhere."""
    if not use.args:
        return ()
    total = use.adjoint
    while total.type.rank:
        total = reduce("sum", total, 0, False, use.loc)
    return (total,)


RULES: Mapping[str, Rule] = {
    "neg": lambda use: (unary("neg", use.adjoint, use.loc),),
    "abs": _abs,
    "exp": _of_result(lambda use, y: y),
    "exp2": _of_result(lambda use, y: use.mul(math.log(2), y)),
    "log": lambda use: _divided(use, use.args[0]),
    "log2": lambda use: _divided(use, use.mul(math.log(2), use.args[0])),
    "log1p": _log1p,
    "sqrt": _sqrt,
    "rsqrt": _of_result(_rsqrt),
    "sin": _of_operand(lambda use, x: unary("cos", x, use.loc)),
    "cos": _of_operand(_cos),
    "tanh": _of_result(_tanh),
    "erf": _of_operand(_erf),
    "sigmoid": _of_result(_sigmoid),
    "silu": _of_operand(_silu),
    "gelu_tanh": _of_operand(_gelu_tanh),
    "gelu_erf": _of_operand(_gelu_erf),
    "relu": _relu,
    "softplus": _of_operand(lambda use, x: unary("sigmoid", x, use.loc)),
    "add": _same,
    "sub": _sub,
    "mul": _mul,
    "div": _div,
    "mod": _mod,
    "pow": _pow,
    "minimum": _extremum,
    "maximum": _extremum,
    "where": _where,
    "cast": _same,
    "sum": _sum,
    "max": _largest,
    "min": _largest,
    "dot": _dot,
    "expand_dims": _expand_dims,
    "squeeze": _squeeze,
    "transpose": _transpose,
    "reshape": _reshape,
    "broadcast": _same,
    "concat": _concat,
    "narrow": _narrow,
    "full": _full,
}

_STEPS = "it is constant between its steps"
_TRUTH = "its result is no float"
FLAT: Mapping[str, str] = {
    **dict.fromkeys(("floor", "ceil", "round", "trunc", "sign", "floordiv"), _STEPS),
    **dict.fromkeys(
        ["eq", "ne", "lt", "le", "gt", "ge", "isnan", "isfinite", "any", "all", "argmax", "argmin"],
        _TRUTH,
    ),
    **dict.fromkeys(["logical_and", "logical_or", "logical_xor", "logical_not"], _TRUTH),
    **dict.fromkeys(
        ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"], _TRUTH
    ),
    "arange": "it has no operands",
    "detach": "its author says so",
}
"""Operations through which nothing passes: their derivative is zero, and why."""
