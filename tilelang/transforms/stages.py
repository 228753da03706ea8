"""staged(kernel, facts, along) -> a kernel as several, cut where a loop along factors is done.

A device that has some rows of a group knows its part of the group's sum, and not the sum, which
what follows is computed of.  As formulas (`forward`) that is plain to see: every sum, or largest,
over them is stored by a kernel of its own, which read those before it, and results by the last.
Each is then split by the rule that every kernel is (`partition`): parts are put together between
two of them.  Those of an online softmax are its maximum, and the sums in that gauge.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from ..analysis import analyze
from ..analysis.facts import Facts
from ..ir import At, Expr, KernelIR, Load, Tensor, Var, index_exprs, integers
from ..ir.names import take
from .forward import Launched, read
from .graph import Over, Scan, Stored
from .kernels import kernel_of
from .partition import Factor, factors
from .place import placed
from .refuse import Underivable
from .saved import Residuals
from .views import Place, with_views

Group = tuple[int, str, tuple[str, ...]]  # how many come before it, how it is folded, its loops


@dataclass(frozen=True)
class Stage:
    """One of the kernels, and how it may be split."""

    ir: KernelIR
    factors: tuple[Factor, ...]


def staged(kernel: KernelIR, facts: Facts, along: Collection[Factor]) -> tuple[Stage, ...]:
    """The kernels, in order; none where a loop over the axes is more than sums and maxima.

    Every one of them can be split along what the factors are of.
    """
    if len(kernel.body) != 1:
        return ()
    try:
        launched = read(kernel, facts, kernel.body[0])
    except Underivable:
        return ()
    axes = frozenset[str]().union(*(factor.axes for factor in along))
    own = {launched.same[axis] for axis in axes if axis in launched.same}
    cut = _Cut(kernel, facts, launched, frozenset(own), {t.name for t in kernel.tensors})
    made = tuple(cut.stages()) if cut.fits else ()
    stages = tuple(Stage(ir, factors(ir, analyze(ir))) for ir in made)
    dims = frozenset[Place]().union(*(factor.dims for factor in along))
    every = (f for stage in stages for f in stage.factors if f.dims & dims)
    return stages if all(f.kind for f in every) else ()


@dataclass
class _Cut:
    """Collects the stages; `loads` are the sums that memory has by then."""

    kernel: KernelIR
    facts: Facts
    launched: Launched
    axes: frozenset[str]
    taken: set[str]
    loads: dict[str, Expr] = field(default_factory=dict)
    arrays: dict[str, Tensor] = field(default_factory=dict)

    @cached_property
    def sums(self) -> Mapping[str, Over]:
        """What loops over the axes leave, parts first."""
        reached = self.launched.graph.reached(self._roots()).items()
        return {n: t for n, t in reached if isinstance(t, Over) and t.axis in self.axes}

    def _roots(self) -> Iterator[Expr]:
        for store in self.launched.stores:
            yield store.value
            yield from (e for i in store.index for e in index_exprs(i))
            yield from (() if store.mask is None else (store.mask,))

    @property
    def fits(self) -> bool:
        """Whether memory can hold every sum, and nothing is carried: no stage stores that."""
        graph, tensors = self.launched.graph, [s.tensor for s in self.launched.stores]
        around = {s.tensor: s.around for s in self.launched.stores}
        reached = graph.reached(self._roots()).values()
        return (
            bool(self.sums)
            and not any(isinstance(t, Scan) for t in reached)
            and all(self.kernel.tensor(t).role == "output" for t in tensors)
            and all(around[s.tensor] == s.around for s in self.launched.stores)
            and {self.kernel.root(name) for name in self.kernel.returns} == {*tensors}
            and all(self._is_kept(name) for name in self.sums)
            and not any(graph.scope(Var(n, t.type)) & self.axes for n, t in self.sums.items())
        )

    def _is_kept(self, name: str) -> bool:
        """Whether an array no larger than those of the kernel has a place for each sum.

        The scores of attention, sums over parts of the width, have none.
        """
        places, most = self._places(name), max(prod(t.shape) for t in self.kernel.tensors)
        return places is not None and prod(place.size for place in places) <= most

    def _places(self, name: str) -> Sequence | None:
        residuals = Residuals(self.kernel, self.facts, self.launched, str)
        return residuals.index_of(Var(name, self.sums[name].type))

    def stages(self) -> Iterator[KernelIR]:
        """The kernels of the sums, those that need others behind these, then of the results."""
        groups: dict[Group, list[str]] = {}
        for name, term in self.sums.items():
            around = self.launched.graph.ordered(self.launched.graph.scope(Var(name, term.type)))
            groups.setdefault((self._after(name), term.how, around), []).append(name)
        for (_, _, around), names in sorted(groups.items(), key=lambda g: g[0][0]):
            targets = [self._kept(name) for name in names]
            outputs = [replace(self.arrays[t.tensor], role="output") for t in targets]
            yield self._kernel(around, targets, outputs)
            for name, target in zip(names, targets, strict=True):
                load = Load(target.tensor, target.index, target.type, loc=target.loc)
                self.loads[name] = self.launched.graph.add(load)
        for around in dict.fromkeys(s.around for s in self.launched.stores):
            stores = [s for s in self.launched.stores if s.around == around]
            names = dict.fromkeys(s.tensor for s in stores)
            made = self._kernel(around, stores, [self.kernel.tensor(n) for n in names])
            yield self._returning(made, names)

    def _after(self, name: str) -> int:
        """How many sums, one of the other, come before it."""
        inner = self.launched.graph.reached((self.sums[name].value,))
        return max((self._after(n) + 1 for n in inner if n in self.sums), default=0)

    def _kept(self, name: str) -> Stored:
        term, places = self.sums[name], self._places(name)
        assert places is not None
        own = take(f"all_{self.launched.graph.hints.get(name, term.how)}", self.taken)
        loc, shape = term.loc or self.launched.loop.loc, tuple(p.size for p in places) or (1,)
        self.arrays[own] = Tensor(own, shape, term.type.dtype, "input", loc, 0.0)
        index = tuple(p.read for p in places) or (At(integers.const(0)),)
        return Stored(own, index, term.type, Var(name, term.type), None, False, loc)

    def _kernel(
        self, around: Sequence[str], targets: Sequence[Stored], outputs: Sequence[Tensor]
    ) -> KernelIR:
        loc = self.launched.loop.loc
        nest = placed(self.launched.graph, around, targets, self.loads, self.taken, loc)
        name = "_".join((self.kernel.name, *(o.name for o in outputs)))
        made = kernel_of(self.kernel, name, nest, outputs, self._tensor)
        return replace(made, doc=f"A stage of {self.kernel.name}.")

    def _returning(self, made: KernelIR, names: Collection[str]) -> KernelIR:
        """The kernel of some results, which returns them in the shapes that the author does."""
        forms = with_views(self.kernel, names) - {*names}
        views = tuple(t for t in self.kernel.tensors if t.name in forms)
        returns = tuple(r for r in self.kernel.returns if r in forms or r in names)
        return replace(made, tensors=(*made.tensors, *views), returns=returns)

    def _tensor(self, name: str) -> Tensor:
        return self.arrays.get(name) or self.kernel.tensor(name)
