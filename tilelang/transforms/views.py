"""Arrays that a kernel reads or returns in another shape, their gradients, and their parts.

xv = x.reshape(...)     the gradient of xv in the shape of x is a part of the gradient of x
return y.T              the cotangent of y is that of y.T, turned back
x.reshape(M, H, D)      halves of x along its columns are those of the heads
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from ..ir import KernelIR, Tensor, View
from .types import GradientLaunch

Place = tuple[str, int]  # a tensor and one of its dimensions


def with_views(kernel: KernelIR, names: Collection[str]) -> set[str]:
    """The tensors that are, or are views of, one of these arrays."""
    return {t.name for t in kernel.tensors if kernel.root(t.name) in names}


def several_names(kernel: KernelIR, read: Iterable[Collection[str]]) -> frozenset[str]:
    """The tensors whose array is read by several launches, or in several shapes."""
    each = [(name, kernel.root(name)) for names in read for name in names]
    arrays = [array for _, array in each]
    return frozenset(name for name, array in each if arrays.count(array) > 1)


def turned_back(view: View, name: str, shape: tuple[int, ...]) -> View:
    """What `name`, of the shape of a view, is as its source, which has that shape."""
    if view.how == "permute":
        return View(name, "permute", tuple(int(d) for d in np.argsort(view.arg)))
    return View(name, "reshape", shape)


def alike(ir: KernelIR) -> Mapping[Place, frozenset[Place]]:
    """The dimensions of views, and of what they are views of, that are cut alike."""
    found: dict[Place, frozenset[Place]] = {}
    for view in (t for t in ir.tensors if t.view is not None):  # after what it is of
        assert view.view is not None
        for mine, theirs in cut_alike(view, ir.tensor(view.view.source)):
            source = (view.view.source, theirs)
            every = found.get(source, frozenset({source})) | {(view.name, mine)}
            found |= dict.fromkeys(every, every)
    return found


def cut_alike(view: Tensor, source: Tensor) -> Iterator[tuple[int, int]]:
    """Dimensions of a view and of what it is a view of: equal parts of one are those of the other.

    Where dimensions are merged or split they are the outermost ones: [24, 5] and [6, 4, 5] are cut
    alike in two, in three and in six.
    """
    assert view.view is not None
    if view.view.how == "permute":
        yield from enumerate(view.view.arg)
        return
    mine, theirs = (_products(t.shape) for t in (view, source))
    for product in mine.keys() & theirs.keys():
        yield mine[product], theirs[product]


def _products(shape: Sequence[int]) -> dict[int, int]:
    """Of how many elements before it each dimension begins; of none, and 1, nothing does."""
    long = [dim for dim, size in enumerate(shape) if size != 1]
    return {math.prod(shape[:dim]): dim for dim in long} if 0 not in shape else {}


def to_root(kernel: KernelIR, name: str) -> Iterator[tuple[View, Tensor]]:
    """Each view on the way from a tensor to its array, and what it is a view of."""
    view = kernel.tensor(name).view
    if view is not None:
        yield view, kernel.tensor(view.source)
        yield from to_root(kernel, view.source)


def returning(launch: GradientLaunch, result: str, view: Tensor) -> GradientLaunch:
    """The launch with a view of a result in its place; others are as they are."""
    if result not in launch.results:
        return launch
    returns = tuple(view.name if name == result else name for name in launch.results)
    tensors = (*launch.kernel.tensors, view)
    return GradientLaunch(replace(launch.kernel, tensors=tensors, returns=returns))
