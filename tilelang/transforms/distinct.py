"""distinct(...) -> bool: does the analyzer prove that a nest stores to no place twice?

It is asked about a kernel that does nothing else, so that there is one proof, and it is the one
that the plan of any kernel rests on.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..analysis import stored_once
from ..ir import At, Const, Gather, Index, KernelIR, Load, Span, Tensor
from ..ir.names import unique
from ..language.shapes import full
from .graph import Graph, Stored
from .kernels import kernel_of
from .place import placed


def distinct(
    kernel: KernelIR, graph: Graph, chain: Sequence[str], places: Sequence[Load], tensor: str
) -> bool:
    """Whether all iterations of the loops `chain` store to places of their own."""
    if any(isinstance(i, Gather) for p in places for i in p.index):
        return False
    name = unique(kernel, tensor, "probe")
    own = kernel.tensor(tensor)
    probe = Tensor(name, own.shape, "float32", "output", own.loc, 0.0)
    zeros = [graph.add(full(p.type.shape, 0.0, "float32", p.loc)) for p in places]
    targets = [
        Stored(name, p.index, p.type, zero, p.mask, False, p.loc or own.loc)
        for p, zero in zip(places, zeros, strict=True)
    ]
    nest = placed(graph, chain, targets, {}, {t.name for t in kernel.tensors}, own.loc)
    return stored_once(kernel_of(kernel, name, nest, [probe], kernel.tensor), name)


def apart(indices: Sequence[tuple[Index, ...]]) -> bool:
    """Whether no two of these indices pick one element in one iteration."""
    pairs = ((a, b) for n, a in enumerate(indices) for b in indices[n + 1 :])
    return all(any(map(_never_meet, a, b)) for a, b in pairs)


def _never_meet(one: Index, other: Index) -> bool:
    match one, other:
        case Span(), Span():
            return one.stop <= other.start or other.stop <= one.start
        case At(Const(a)), At(Const(b)):
            return a != b
        case _:
            return False
