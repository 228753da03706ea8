"""choose(launched, roots, ...) -> what the backward launches read rather than compute again.

A value without a loop of the forward kernel is computed again from its arguments.  Of others the
kernel's own results are read where they hold them, and what else is needed is saved by the forward
kernel: of a formula over sums the sums, or itself, whichever has fewer bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ..analysis.facts import Facts
from ..ir import (
    Along,
    Assign,
    At,
    Expr,
    GridIndex,
    Index,
    KernelIR,
    Load,
    Loop,
    Span,
    Stmt,
    Store,
    Tensor,
    Type,
    Var,
)
from ..language.dtypes import itemsize
from .forward import Launched
from .graph import Over


@dataclass(frozen=True)
class Saved:
    """A value of the forward kernel in an array of its own; `index` is in axes of the graph."""

    tensor: Tensor
    index: tuple[Index, ...]
    written: str  # what the author's kernel calls the value


@dataclass
class Residuals:
    """Collects what is read: value -> the load, and the arrays that the forward kernel adds."""

    kernel: KernelIR
    facts: Facts
    launched: Launched
    name: Callable[[str], str]
    loads: dict[str, Expr] = field(default_factory=dict)
    added: list[Saved] = field(default_factory=list)

    def choose(self, roots: Iterable[Expr], forward: Collection[str]) -> None:
        """Decides for all that the roots are computed from; `forward` are the kernel's own."""
        graph = self.launched.graph
        loops = self._with_loops(forward)
        stored = self._stored()
        stack, seen = list(roots), set[str]()
        while stack:
            expr = stack.pop()
            if not isinstance(expr, Var) or expr.name not in graph.values or expr.name in seen:
                continue
            seen.add(expr.name)
            if expr.name not in loops:
                stack += graph.parts(expr)
            elif expr.name in stored:
                self.loads[expr.name] = stored[expr.name]
            elif not (self._is_cheapest(expr, loops, stored) and self._save(expr)):
                stack += graph.parts(expr)

    def _with_loops(self, forward: Collection[str]) -> set[str]:
        """The values of the forward kernel that a loop of its has to run for."""
        graph, found = self.launched.graph, set[str]()
        for name, term in graph.values.items():
            if name not in forward:
                continue
            parts = graph.parts(Var(name, term.type))
            below = any(isinstance(p, Var) and p.name in found for p in parts)
            if isinstance(term, Over) or below:
                found.add(name)
        return found

    def _stored(self) -> dict[str, Expr]:
        """Values that an output holds as they are."""
        found: dict[str, Expr] = {}
        graph = self.launched.graph
        for store in self.launched.stores:
            value = store.value
            whole = store.mask is None and not store.adds and value.type == store.type
            if isinstance(value, Var) and whole:
                load = graph.add(Load(store.tensor, store.index, store.type, loc=store.loc))
                if graph.scope(load) <= graph.scope(value):
                    found.setdefault(value.name, load)
        return found

    # ------------------------------------------------------------ what has fewest bytes

    def _is_cheapest(self, expr: Var, loops: Collection[str], stored: Mapping[str, Expr]) -> bool:
        """Whether a value has no more bytes than the sums that it is computed from."""
        graph = self.launched.graph
        if isinstance(graph.term(expr), Over):
            return True
        below: set[str] = set()
        stack = list(graph.parts(expr))
        while stack:
            part = stack.pop()
            if not isinstance(part, Var) or part.name not in loops or part.name in stored:
                continue
            if isinstance(graph.term(part), Over):
                below.add(part.name)
            else:
                stack += graph.parts(part)
        sums = sum(self._bytes(Var(n, graph.values[n].type)) for n in below - {*self.loads})
        return 0 < self._bytes(expr) <= sums

    def _bytes(self, expr: Var) -> int:
        index = self._index(expr)
        return 0 if index is None else math.prod(n for _, n in index) * itemsize(expr.type.dtype)

    def _index(self, expr: Var) -> list[tuple[Index, int]] | None:
        """Where an array holds the value, with the array's lengths; None if no array can."""
        graph = self.launched.graph
        own = [d for d in expr.type.shape if isinstance(d, str)]
        same = self.launched.same
        apart = {same[o] for d in own for o in self.facts.axis(d).rises}
        found: list[tuple[Index, int]] = []
        for axis in graph.ordered(graph.scope(expr)):
            if axis in own or axis in apart:
                continue
            size = self._size(axis)
            if graph.ranges[axis].axis.kind == "tile" or size is None:
                return None
            found.append((At(GridIndex(axis)), size))
        for dim in expr.type.shape:
            size = self._size(dim) if isinstance(dim, str) else dim
            if size is None:
                return None
            found.append((Along(dim) if isinstance(dim, str) else Span(0, dim), size))
        return found

    def _size(self, axis: str) -> int | None:
        """A length that holds every position of an axis: of a dimension that it indexes."""
        static = self.launched.graph.ranges[axis].axis.static
        if static is not None:
            return static[1]
        for tensor, index in self._accesses():
            for size, entry in zip(self.kernel.tensor(tensor).shape, index, strict=True):
                if entry in (Along(axis), At(GridIndex(axis))):
                    return size
        return None

    def _accesses(self) -> Iterator[tuple[str, tuple[Index, ...]]]:
        own = {t.name for t in self.kernel.tensors}
        for store in self.launched.stores:
            yield store.tensor, store.index
        for term in self.launched.graph.values.values():
            if isinstance(term, Load) and term.tensor in own:
                yield term.tensor, term.index

    def _save(self, expr: Var) -> bool:
        """Adds an array for a value that the author's kernel computes; False if it cannot."""
        written, places = self.launched.written.get(expr.name), self._index(expr)
        if written is None or places is None:
            return False
        name = self.name(f"saved_{self.launched.graph.hints.get(expr.name, 'value')}")
        shape = tuple(size for _, size in places)
        index = tuple(entry for entry, _ in places)
        tensor = Tensor(name, shape, expr.type.dtype, "output", self.kernel.loc, 0)
        self.added.append(Saved(tensor, index, written))
        load = Load(name, index, expr.type, loc=self.kernel.loc)
        self.loads[expr.name] = self.launched.graph.add(load)
        return True


def storing(
    loop: Loop, saved: Collection[Saved], same: Mapping[str, str], around: tuple[str, ...] = ()
) -> Loop:
    """The launch that also stores what is saved, right where it is computed."""
    opened = (*around, loop.axis)
    body: list[Stmt] = []
    for stmt in loop.body:
        values: list[tuple[str, Type]] = []
        match stmt:
            case Assign(name, value):
                values = [(name, value.type)]
            case Loop():
                values = [(c.out, c.init.type) for c in stmt.carries]
                stmt = storing(stmt, saved, same, opened)
            case Store():
                pass
        body.append(stmt)
        axes = {same[a]: a for a in opened}
        for one in saved:
            for name, kind in values:
                if one.written == name:
                    index = tuple(_renamed(entry, axes) for entry in one.index)
                    body.append(Store(one.tensor.name, index, Var(name, kind), stmt.loc))
    return replace(loop, body=tuple(body))


def _renamed(entry: Index, axes: Mapping[str, str]) -> Index:
    """The entry along the axes that are open there."""
    match entry:
        case Along(axis):
            return Along(axes[axis])
        case At(GridIndex(axis)):
            return At(GridIndex(axes[axis]))
        case _:
            return entry
