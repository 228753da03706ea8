"""Static lanes: which dimensions of values hold the same positions, each lane made of its own.

    y[t, 0:64] = relu(dot(x[t, 0:32], w[0:32, 0:64]))

The 64 columns of y, of relu, of the product and of w go together: lane n of each is made of lane n
of the others.  The 32 that are summed are mixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from .. import ir
from ..ir import children, index_exprs, statement_exprs, statements
from ..ir.traversal import reduced
from ..language.op import kind_of
from .separate_joins import followed

FOLLOWED = ("transpose", "expand_dims", "broadcast", "dot")  # of all that change no lanes
Key = tuple[str | int, int]  # a value, by its name or its id, and one of its dimensions


class StaticLanes:
    """Static dimensions of values, and which of them have lane n made of lane n of the other.

    mixed  those of which something brings several lanes together
    """

    def __init__(self, kernel: ir.KernelIR) -> None:
        self._parent: dict[Key, Key] = {}
        self.mixed: set[Key] = set()
        self._spans: list[tuple[Key, tuple[str, int], ir.Span]] = []
        self._ranks: dict[int, tuple[ir.Expr | ir.Store, int]] = {}
        for stmt in statements(kernel.body):
            self._statement(stmt)
        self.mixed = {self._find(key) for key in self.mixed} | set(self._twice())

    def of(self, value: ir.Expr | ir.Store, dim: int) -> Key | None:
        """What a dimension goes with; None where lanes are mixed, or there are no static ones."""
        key = self._key(value, dim)
        if key not in self._parent or (root := self._find(key)) in self.mixed:
            return None
        return root

    def along(self, tensor: str, dim: int) -> list[Key]:
        """What the lanes go with that a tensor is taken in, whole or in part, mixed or not."""
        found = (self._find(key) for key, place, _ in self._spans if place == (tensor, dim))
        return list(dict.fromkeys(found))

    def over(self, expr: ir.Apply) -> set[Key]:
        """What the lanes go with that a product or a reduction brings together."""
        return {self._find(self._key(side, dim)) for side, dim in reduced(expr)}

    def spans(self, root: Key) -> set[ir.Span]:
        """Where in arrays the lanes are."""
        return {span for key, _, span in self._spans if self._find(key) == root}

    def _twice(self) -> Iterator[Key]:
        """Lanes that one value has along two dimensions: most of its elements are of two of them.

        a[:, None] * a[None, :]
        """
        for value, rank in self._ranks.values():
            keys = [key for d in range(rank) if (key := self._key(value, d)) in self._parent]
            roots = list(map(self._find, keys))
            yield from (root for root in roots if roots.count(root) > 1)

    def _key(self, value: ir.Expr | ir.Store, dim: int) -> Key:
        return (value.name if isinstance(value, ir.Var) else id(value)), dim

    def _find(self, key: Key) -> Key:
        while (above := self._parent.setdefault(key, key)) != key:
            key = above
        return key

    def _join(self, a: ir.Expr | ir.Store, i: int, b: ir.Expr, j: int) -> None:
        """Says that lanes of two dimensions are the same, unless one is repeated for the other."""
        if isinstance(b.type.shape[j], int) and b.type.shape[j] != 1:
            self._parent[self._find(self._key(a, i))] = self._find(self._key(b, j))

    def _mix(self, value: ir.Expr, *dims: int) -> None:
        for dim in dims:
            self.mixed.add(self._find(self._key(value, dim)))

    def _align(self, a: ir.Expr | ir.Store, rank: int, b: ir.Expr) -> None:
        for dim in range(b.type.rank):
            self._join(a, dim + rank - b.type.rank, b, dim)

    def _statement(self, stmt: ir.Stmt) -> None:
        for expr in statement_exprs(stmt):
            self._expr(expr)
        match stmt:
            case ir.Assign(name, value):
                self._align(ir.Var(name, value.type), value.type.rank, value)
            case ir.Loop():
                for c in stmt.carries:
                    for other in (c.init, c.next, ir.Var(c.out, c.init.type)):
                        self._align(ir.Var(c.name, c.init.type), c.init.type.rank, other)
            case ir.Store():
                self._place(stmt, stmt.index)
                rank = sum(not isinstance(e, ir.At) for e in stmt.index)
                self._ranks[id(stmt)] = stmt, rank
                for value in (stmt.value, stmt.mask):
                    if value is not None:
                        self._align(stmt, rank, value)
            case _:
                assert_never(stmt)

    def _place(self, value: ir.Load | ir.Store, index: tuple[ir.Index, ...]) -> None:
        """Lanes along a span; positions that are computed are theirs alone."""
        along = ((n, entry) for n, entry in enumerate(index) if not isinstance(entry, ir.At))
        for dim, (place, entry) in enumerate(along):
            if isinstance(entry, ir.Span):
                self._spans.append((self._key(value, dim), (value.tensor, place), entry))
        for expr in (e for entry in index for e in index_exprs(entry)):
            self._mix(expr, *range(expr.type.rank))

    def _expr(self, expr: ir.Expr) -> None:
        if id(expr) in self._ranks:
            return
        rank = expr.type.rank
        self._ranks[id(expr)] = expr, rank
        for dim, size in enumerate(expr.type.shape):
            if isinstance(size, int) and size != 1:
                self._find(self._key(expr, dim))
        for part in children(expr):
            self._expr(part)
        if isinstance(expr, ir.Load):
            self._place(expr, expr.index)
            if expr.mask is not None:
                self._align(expr, rank, expr.mask)
        elif isinstance(expr, ir.Apply):
            self._apply(expr)

    def _apply(self, expr: ir.Apply) -> None:
        if expr.op == "full" and not expr.args:
            return
        if expr.op not in FOLLOWED and kind_of(expr.op) not in ("elementwise", "reduce"):
            for value in (expr, *expr.args):
                self._mix(value, *range(value.type.rank))
            return
        for dim, size in enumerate(expr.type.shape):
            places = followed(expr, dim) if size != 1 else None
            for arg, place in zip(expr.args, places or ()):
                if place is not None:
                    self._join(expr, dim, arg, place)
        for side, along in reduced(expr):
            self._mix(side, along)
        for side, repeated in zip(expr.args, expr.attr("batch", ())):
            self._mix(side, *repeated)
