"""Products of matrices in their spellings, each one `dot` and the shape ops around it.

    op(loc, a, b, ...) -> Expr

Products of float32 are float32 products: a `precision=` can ask for no more, and is accepted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..errors import TypingError
from ..ir import Expr
from . import build, shapes
from .build import binary, cast, reduce
from .dtypes import is_float
from .reduction import Batch
from .shapes import transpose
from .values import Site, Value, as_expr, called, common

Pairs = tuple[tuple[int, ...], tuple[int, ...]]


def dot(loc: Site, x: Value, y: Value, acc: Value | None = None, out_dtype: object = None) -> Expr:
    """x @ y in float32 (int32 of integers), plus `acc` in acc's dtype.

    >>> hl.dot(np.float32([[1, 2]]), np.float32([[3], [4]]), acc=np.float32([[0.5]]))
    array([[11.5]], dtype=float32)
    """
    product = _matmul(loc, as_expr(x, loc), as_expr(y, loc), "dot")
    if out_dtype is not None:
        product = cast(product, out_dtype, loc)
    return product if acc is None else _added(loc, as_expr(acc, loc), product)


def _added(loc: Site, acc: Expr, product: Expr) -> Expr:
    if acc.type.rank > product.type.rank:
        what = f"dot: {called(product)} is added to {called(acc)}"
        raise TypingError(what, loc, "acc has the dimensions of the product")
    if is_float(product.type.dtype) and not is_float(acc.type.dtype):
        what = f"dot: {called(product)} is added to {called(acc)}, which has no fractions"
        raise TypingError(what, loc, "give acc a dtype of floats: dtype=hl.float32")
    return binary("add", acc, cast(product, acc.type.dtype, loc), loc)


def matmul(
    loc: Site, x: Value, y: Value, precision: object = None, preferred_element_type: object = None
) -> Expr:
    """x @ y, in the operands' dtype or the preferred one; leading dimensions are a batch.

    >>> hl.matmul(np.float32([[1, 2]]), np.float32([[3], [4]]))
    array([[11.]], dtype=float32)
    """
    a, b = as_expr(x, loc), as_expr(y, loc)
    return _result(loc, _matmul(loc, a, b, "matmul"), a, b, preferred_element_type)


def _result(loc: Site, product: Expr, a: Expr, b: Expr, dtype: object) -> Expr:
    """The product in the dtype that is preferred, or that of the operands."""
    if dtype is not None:
        return cast(product, dtype, loc)
    same = a.type.dtype == b.type.dtype
    return cast(product, a.type.dtype if same else common((a, b), loc), loc)


def _matmul(loc: Site, a: Expr, b: Expr, name: str) -> Expr:
    for value in (a, b):
        if value.type.rank == 0:
            hint = "use * to scale by a number"
            raise TypingError(f"{name}: {called(value)} is a scalar", loc, hint)
    if b.type.rank <= 2:
        return build.dot(a, b, loc, (-1, max(b.type.rank - 2, 0)), name=name)
    if a.type.rank == 1:  # the stack's own dimensions stay in front
        return build.dot(b, a, loc, (-2, 0), name=name)
    return _batched(loc, a, b, name)


def _batched(loc: Site, a: Expr, b: Expr, name: str) -> Expr:
    rank = max(a.type.rank, b.type.rank)
    if a.type.rank == 2 and b.type.rank > 2:
        product = build.dot(b, a, loc, (-2, 1), name=name)  # batch, columns, rows
        return transpose(product, (*range(rank - 2), rank - 1, rank - 2), loc)
    if a.type.rank != b.type.rank:
        what = f"{name}: {called(a)} and {called(b)} have different numbers of dimensions"
        raise TypingError(what, loc, "add the missing batch dimensions with [None]")
    a, b = _one_batch(loc, a, b), _one_batch(loc, b, a)
    many = tuple(range(rank - 2))
    return build.dot(a, b, loc, (-1, -2), (many, many), name=name)


def _one_batch(loc: Site, a: Expr, b: Expr) -> Expr:
    """a with its batch dimensions of length 1 repeated to those of b."""
    *many, rows, columns = a.type.shape
    repeated = (there if own == 1 else own for own, there in zip(many, b.type.shape))
    return shapes.broadcast(a, (*repeated, rows, columns), loc)


def _rank(x: Value, rank: int, name: str, loc: Site) -> Expr:
    value = as_expr(x, loc)
    if value.type.rank != rank:
        what = f"{name} needs values of {rank} dimensions, not {called(value)}"
        raise TypingError(what, loc, "matmul or @ takes any number of dimensions")
    return value


def mm(loc: Site, x: Value, y: Value, out_dtype: object = None) -> Expr:
    """The product of two matrices, in their dtype.

    >>> hl.mm(np.float32([[1, 2]]), np.float32([[3], [4]]))
    array([[11.]], dtype=float32)
    """
    a, b = (_rank(v, 2, "mm", loc) for v in (x, y))
    return matmul(loc, a, b, preferred_element_type=out_dtype)


def bmm(loc: Site, x: Value, y: Value, out_dtype: object = None) -> Expr:
    """The products of two stacks of matrices, in their dtype.

    >>> hl.bmm(np.ones((2, 1, 3), np.float32), np.ones((2, 3, 1), np.float32)).shape
    (2, 1, 1)
    """
    a, b = (_rank(v, 3, "bmm", loc) for v in (x, y))
    return matmul(loc, a, b, preferred_element_type=out_dtype)


def addmm(loc: Site, acc: Value, x: Value, y: Value, beta: Value = 1, alpha: Value = 1) -> Expr:
    """beta * acc + alpha * (x @ y), in acc's dtype.

    >>> hl.addmm(np.float32([[0.5]]), np.float32([[1, 2]]), np.float32([[3], [4]]))
    array([[11.5]], dtype=float32)
    """
    a, b = (_rank(v, 2, "addmm", loc) for v in (x, y))
    return _weighted_sum(loc, as_expr(acc, loc), _matmul(loc, a, b, "addmm"), beta, alpha)


def baddbmm(loc: Site, acc: Value, x: Value, y: Value, beta: Value = 1, alpha: Value = 1) -> Expr:
    """beta * acc + alpha * (x @ y) for stacks of matrices, in acc's dtype.

    >>> ones = np.ones((2, 1, 1), np.float32)
    >>> hl.baddbmm(ones, ones, ones).ravel()
    array([2., 2.], dtype=float32)
    """
    a, b = (_rank(v, 3, "baddbmm", loc) for v in (x, y))
    return _weighted_sum(loc, as_expr(acc, loc), _matmul(loc, a, b, "baddbmm"), beta, alpha)


def _weighted_sum(loc: Site, acc: Expr, product: Expr, beta: Value, alpha: Value) -> Expr:
    one = (isinstance(v, int | float) and v == 1 for v in (beta, alpha))
    acc = acc if next(one) else binary("mul", acc, beta, loc)
    product = product if next(one) else binary("mul", product, alpha, loc)
    return _added(loc, acc, product)


def linear(loc: Site, x: Value, weight: Value, bias: Value | None = None) -> Expr:
    """x @ weight.T + bias, in x's dtype.

    >>> hl.linear(np.float32([[1, 2]]), np.float32([[3, 4]]), np.float32([0.5]))
    array([[11.5]], dtype=float32)
    """
    a, b = as_expr(x, loc), _rank(weight, 2, "linear", loc)
    product = _result(loc, build.dot(a, b, loc, (-1, 1), name="linear"), a, b, None)
    return product if bias is None else binary("add", product, bias, loc)


def outer(loc: Site, x: Value, y: Value) -> Expr:
    """x[i] * y[j].

    >>> hl.outer(np.float32([1, 2]), np.float32([3, 4]))
    array([[3., 4.],
           [6., 8.]], dtype=float32)
    """
    a, b = (_rank(v, 1, "outer", loc) for v in (x, y))
    return binary("mul", shapes.expand_dims(a, 1, loc), shapes.expand_dims(b, 0, loc), loc)


def jnp_dot(
    loc: Site, x: Value, y: Value, precision: object = None, preferred_element_type: object = None
) -> Expr:
    """numpy.dot: the last dimension of x with the second to last of y; no batch."""
    a, b = as_expr(x, loc), as_expr(y, loc)
    if 0 in (a.type.rank, b.type.rank):
        return binary("mul", a, b, loc)
    product = build.dot(a, b, loc, (-1, max(b.type.rank - 2, 0)))
    return _result(loc, product, a, b, preferred_element_type)


# ---------------------------------------------------------------- any contraction


def dot_general(
    loc: Site,
    x: Value,
    y: Value,
    dimension_numbers: object,
    precision: object = None,
    preferred_element_type: object = None,
) -> Expr:
    """jax.lax.dot_general: ((contracting of x, of y), (batch of x, of y)).

    >>> hl.dot_general(np.float32([[1, 2]]), np.float32([[3, 4]]), (((1,), (1,)), ((), ())))
    array([[11.]], dtype=float32)
    """
    a, b = as_expr(x, loc), as_expr(y, loc)
    contract, batch = _dimension_numbers(dimension_numbers, a, b, loc)
    product = contraction(loc, a, b, contract, batch, "dot_general")
    return _result(loc, product, a, b, preferred_element_type)


def _dimension_numbers(given: Any, a: Expr, b: Expr, loc: Site) -> tuple[Pairs, Pairs]:
    try:
        (left, right), (batch_left, batch_right) = given
        groups = tuple(tuple(int(d) for d in g) for g in (left, right, batch_left, batch_right))
    except (TypeError, ValueError):
        hint = "write (((1,), (0,)), ((), ())): contracting dimensions, then batch dimensions"
        raise TypingError(f"dot_general: dimension numbers {given!r}", loc, hint) from None
    for value, dims in ((a, groups[0] + groups[2]), (b, groups[1] + groups[3])):
        if len(set(dims)) != len(dims) or not all(0 <= d < value.type.rank for d in dims):
            what = f"dot_general: dimensions {list(dims)} of {called(value)}"
            raise TypingError(what, loc, "each is named once, from 0")
    if len(groups[0]) != len(groups[1]) or len(groups[2]) != len(groups[3]):
        raise TypingError("dot_general: both operands need as many dimensions", loc)
    return (groups[0], groups[1]), (groups[2], groups[3])


def contraction(loc: Site, a: Expr, b: Expr, contract: Pairs, batch: Pairs, name: str) -> Expr:
    """Sums products over any number of dimension pairs.

    One pair is the dot's own; the others are batch dimensions of the dot, summed afterwards.
    """
    if not contract[0]:
        return _products(loc, a, b, batch)
    first = (contract[0][0], contract[1][0])
    others: Batch = (contract[0][1:] + batch[0], contract[1][1:] + batch[1])
    product = build.dot(a, b, loc, first, others, name=name)
    extra = len(contract[0]) - 1
    return reduce("sum", product, tuple(range(extra)), False, loc) if extra else product


def _products(loc: Site, a: Expr, b: Expr, batch: Pairs) -> Expr:
    """No dimension is summed over: batch dimensions, then free ones of a, then of b."""
    free_a = tuple(d for d in range(a.type.rank) if d not in batch[0])
    free_b = tuple(d for d in range(b.type.rank) if d not in batch[1])
    left, right = transpose(a, batch[0] + free_a, loc), transpose(b, batch[1] + free_b, loc)
    for _ in free_b:
        left = shapes.expand_dims(left, -1, loc)
    for _ in free_a:
        right = shapes.expand_dims(right, len(batch[1]), loc)
    return binary("mul", left, right, loc)


def einsum(
    loc: Site,
    subscripts: object,
    *operands: Value,
    precision: object = None,
    preferred_element_type: object = None,
) -> Expr:
    """The sum of products that `subscripts` says, of two operands: "mk,kn->mn".

    >>> hl.einsum("k,nk->n", np.float32([1, 2]), np.float32([[3, 4]]))
    array([11.], dtype=float32)
    """
    if len(operands) != 2:
        hint = "combine two at a time; one value alone is summed and permuted"
        raise TypingError(f"einsum of {len(operands)} operands", loc, hint)
    a, b = (as_expr(v, loc) for v in operands)
    left, right, out = _labels(subscripts, a, b, loc)
    left, a = _summed_alone(loc, a, left, right + out)
    right, b = _summed_alone(loc, b, right, left + out)
    shared = [c for c in left if c in right]
    batch = [c for c in shared if c in out]
    gone = [c for c in shared if c not in out]
    product = contraction(
        loc, a, b, _places(gone, left, right), _places(batch, left, right), "einsum"
    )
    order = "".join(batch) + "".join(c for c in left + right if c not in shared)
    product = transpose(product, [order.index(c) for c in out], loc)
    return _result(loc, product, a, b, preferred_element_type)


def _places(labels: Sequence[str], left: str, right: str) -> Pairs:
    return tuple(left.index(c) for c in labels), tuple(right.index(c) for c in labels)


def _summed_alone(loc: Site, value: Expr, labels: str, others: str) -> tuple[str, Expr]:
    """Without the dimensions that only this operand has."""
    alone = tuple(i for i, c in enumerate(labels) if c not in others)
    kept = "".join(c for c in labels if c in others)
    return (kept, reduce("sum", value, alone, False, loc)) if alone else (kept, value)


def _labels(subscripts: object, a: Expr, b: Expr, loc: Site) -> tuple[str, str, str]:
    """The labels of both operands and the result, checked."""
    text = subscripts.replace(" ", "") if isinstance(subscripts, str) else ""
    inputs, arrow, out = text.partition("->")
    left, comma, right = inputs.partition(",")
    if not comma or not (left + right + out).isalpha():
        hint = 'write one letter per dimension: "mk,kn->mn"'
        raise TypingError(f"einsum: subscripts {subscripts!r}", loc, hint)
    for labels, value in ((left, a), (right, b)):
        if len(labels) != value.type.rank:
            what = f"einsum: {labels!r} names {len(labels)} dimensions of {called(value)}"
            raise TypingError(what, loc)
    if not arrow:
        out = "".join(sorted(c for c in left + right if (left + right).count(c) == 1))
    for labels in (left, right, out):
        if len(set(labels)) != len(labels):
            raise TypingError(f"einsum: {labels!r} repeats a label", loc)
    if not set(out) <= set(left + right):
        raise TypingError(f"einsum: {out!r} has a label that no operand has", loc)
    return left, right, out
