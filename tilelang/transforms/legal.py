"""check(kernel, launches): refuses what formulas cannot say, each at the line of the author's.

An array that is changed after it was read, or stored to twice, has no one value to differentiate
by; what depends on how a loop is cut into tiles has another value in another config.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import stored_once
from ..errors import GradientError
from ..ir import Gather, KernelIR, TileScalar, every_store, index_exprs
from .forward import Launched
from .graph import Stored
from .refuse import Underivable


def refuse_changed_arguments(kernel: KernelIR) -> None:
    """GradientError for a kernel that changes an argument."""
    for tensor in kernel.tensors:
        if tensor.role != "input" or not tensor.mutated:
            continue
        stores = (s.loc for s in every_store(kernel.body) if kernel.root(s.tensor) == tensor.name)
        raise GradientError(
            f"{kernel.name} stores to its argument {tensor.name}, which has no gradient then",
            next(stores),
            f"store to a new output, hl.empty_like({tensor.name}), and return it",
        )


def check(kernel: KernelIR, launches: Sequence[Launched]) -> None:
    """Raises Underivable for the first thing that stands in the way."""
    stored: set[str] = set()
    for launched in launches:
        _check_launch(kernel, launched, stored)
        stored |= {s.tensor for s in launched.stores}


def _check_launch(kernel: KernelIR, launched: Launched, before: set[str]) -> None:
    by_name: dict[str, list[Stored]] = {}
    for store in launched.stores:
        by_name.setdefault(store.tensor, []).append(store)
        if store.tensor in before:
            raise Underivable(f"{store.tensor} is stored to by two launches", store.loc)
        _check_tiles(launched, store)
    for name, several in by_name.items():
        if not all(s.adds for s in several):
            _check_once(kernel, name, several)


def _check_once(kernel: KernelIR, name: str, several: Sequence[Stored]) -> None:
    """Every element is stored to once, so that what is stored is what the kernel returns."""
    last = several[-1]
    if any(isinstance(i, Gather) for s in several for i in s.index):
        raise Underivable(f"{name} is stored to at rows that may be the same", last.loc)
    if any(s.adds for s in several):
        raise Underivable(f"{name} is stored to at several places", last.loc)
    if not stored_once(kernel, name):
        what = f"it was not proved that every element of {name} is stored once"
        raise Underivable(what, last.loc)


def _check_tiles(launched: Launched, store: Stored) -> None:
    """Numbers of a tile, such as its begin, are the same in every config only for fixed blocks."""
    graph = launched.graph
    roots = [store.value, *(e for i in store.index for e in index_exprs(i))]
    for leaf in graph.leaves([*roots, *(() if store.mask is None else (store.mask,))]):
        if isinstance(leaf, TileScalar) and graph.ranges[leaf.axis].axis.fixed is None:
            user = graph.ranges[leaf.axis].axis.user
            what = f"what is stored depends on {user}.{leaf.what}, and so on the block size"
            raise Underivable(what, store.loc)
