"""strides(ir, tensor) -> where the elements of a tensor, or of a view of one, lie.

A dimension of an array has one distance between neighbours.  A dimension of a view that was put
together from dimensions which do not lie in a row has several parts, each with its own:

    x of [30, 40, 8], x.permute(1, 0, 2).reshape(40, 240):  dimension 1 is 30 parts, 320 elements
    apart, of 8 elements side by side
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import gcd, prod

from tilelang.ir import KernelIR
from tilelang.schedule.refusal import Refused, Rule

Run = tuple[int, int]  # how many there are, and how far apart neighbours lie
Runs = tuple[Run, ...]  # of one dimension, from the outermost to the innermost; never none


def strides(ir: KernelIR, name: str) -> tuple[Runs, ...]:
    """The runs of every dimension of a tensor or view; arrays are contiguous.

    Refused for a view whose dimensions cut runs where they do not end.
    """
    tensor = ir.tensor(name)
    if tensor.view is None:
        return contiguous(tensor.shape)
    source = strides(ir, tensor.view.source)
    if tensor.view.how == "permute":
        return tuple(source[p] for p in tensor.view.arg)
    if prod(tensor.shape) == 0:  # of no element anybody asks
        return contiguous(tensor.shape)
    found = regrouped([run for runs in source for run in runs], tensor.shape)
    if found is None:
        raise Refused(
            Rule.KERNEL,
            f"{name} is a reshaped view of a permuted one, which cuts rows into parts of unequal "
            "length",
            tensor.loc,
            "reshape before the dimensions are permuted",
        )
    return found


def single(runs: Sequence[Runs]) -> tuple[int, ...] | None:
    """One distance for each dimension; None if one has several."""
    return tuple(own[0][1] for own in runs) if all(len(own) == 1 for own in runs) else None


def contiguous(shape: tuple[int, ...]) -> tuple[Runs, ...]:
    """The runs of an array in row-major order."""
    return tuple(((size, prod(shape[d + 1 :])),) for d, size in enumerate(shape))


def regrouped(runs: Sequence[Run], shape: Sequence[int]) -> tuple[Runs, ...] | None:
    """The same elements, in the same order, as dimensions of other lengths; None if runs are cut.

    >>> regrouped([(30, 320), (8, 1)], [60, 4])
    (((30, 320), (2, 4)), ((4, 1),))
    """
    left = list(_merged([run for run in runs if run[0] != 1]))
    found: list[Runs] = []
    for size in reversed(shape):
        own: list[Run] = []
        while size != 1:
            count, apart = left.pop()
            taken = gcd(count, size)
            if taken != min(count, size):
                return None
            own.insert(0, (taken, apart))
            if taken < count:
                left.append((count // taken, apart * taken))
            size //= taken
        count, apart = found[0][0] if found else (1, 1)
        found.insert(0, _merged(own) or ((1, count * apart),))
    return tuple(found)


def _merged(runs: Sequence[Run]) -> Runs:
    """Without the limits between runs that lie in a row."""
    ends = [n for n, (a, b) in enumerate(pairwise(runs), 1) if a[1] != b[0] * b[1]]
    starts = [0, *ends]
    return tuple(
        (prod(count for count, _ in own), own[-1][1])
        for own in (runs[a:b] for a, b in zip(starts, [*ends, len(runs)], strict=True))
        if own
    )
