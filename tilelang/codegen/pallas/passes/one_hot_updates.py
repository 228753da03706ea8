"""One-hot updates: updates at places that are computed -> updates of the whole dimension.

    atomic_add(y, [argmax(s, 1)], v)       ->  y[0:E] += sum(where(hit, v[:, None], 0), 0)
    atomic_add(y, [argmax(s, 1), d], v)    ->  y[0:E, d] += group_sum(hit.T, v)
    where hit = argmax(s, 1)[:, None] == arange(E)[None, :]

TPUs address rows by numbers of scalar memory, where nothing is computed from vectors.  A row that
is not picked gets what changes nothing, whatever the others hold; a place outside of the array
picks no row.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache

from tilelang import ir
from tilelang.analysis import again
from tilelang.analysis.uses import picks
from tilelang.codegen.pallas.target import SHARE, Target, padded_bytes, stays
from tilelang.ir import Apply, Expr, Type, every_expr, every_store, loads
from tilelang.ir.lanes import arange, expanded
from tilelang.ir.traversal import definitions, inlined, map_body
from tilelang.language.build import binary, cast, reduce, where
from tilelang.language.dtypes import is_float
from tilelang.language.op import ELEMENTWISE, REDUCED_BY, neutral
from tilelang.language.shapes import broadcast
from tilelang.schedule.problem import Problem

from .members import SUM

# what a row of scalar memory can be computed by
OF_LANES = ELEMENTWISE | {"in_range", "arange", "broadcast", "expand_dims"}


@lru_cache(8)  # of one kernel many forms are planned, and many configs
def one_hot_updates(problem: Problem, target: Target) -> Problem:
    """The kernel without updates of small arrays at places that scalar memory cannot hold."""
    made = _updated(problem.ir, target)
    return problem if made is problem.ir else Problem(made, again(made, problem.facts))


def _updated(kernel: ir.KernelIR, target: Target) -> ir.KernelIR:
    values = definitions(kernel.body)
    far = frozenset(_held(kernel, values))
    found = {
        id(store): update
        for store in every_store(kernel.body)
        if (update := _update(kernel, store, target)) is not None
        and any(_computed(inlined(e, values), far) for e in picks(store))
    }
    if not found:
        return kernel

    def change(stmt: ir.Stmt) -> ir.Body:
        return (found[id(stmt)].made() if id(stmt) in found else stmt,)

    return replace(kernel, body=map_body(kernel.body, change))


def _held(kernel: ir.KernelIR, values: Mapping[str, Expr]) -> Iterator[str]:
    """The tensors whose numbers are asked for as blocks, or change: no scalar memory holds them."""
    yield from (store.tensor for store in every_store(kernel.body))
    for expr in every_expr(kernel.body):
        yield from (e.tensor for e in loads(expr) if e.type.rank > 1)
    yield from (t.name for t in kernel.tensors if is_float(t.dtype))


def _computed(expr: Expr, far: frozenset[str]) -> bool:
    """Whether a number of each row is made of more than what lies in scalar memory."""
    for part in ir.walk(expr):
        match part:
            case Apply("full", ()):
                pass
            case Apply(op) if op not in OF_LANES:
                return True
            case ir.Load(tensor) if tensor in far:
                return True
            case ir.Var():  # a loop carries it
                return True
            case _:
                pass
    return False


def _update(kernel: ir.KernelIR, store: ir.Store, target: Target) -> _Update | None:
    """An update of rows of one dimension, where vector memory holds all of the array."""
    picked = [d for d, entry in enumerate(store.index) if isinstance(entry, ir.Gather)]
    tensor = kernel.tensor(store.tensor)
    if store.combine is None or len(picked) != 1 or tensor.dtype == "bool":
        return None
    (at,) = picked
    found = _Update(store, at, tensor.shape[at])
    if 0 in tensor.shape or not found.simple:
        return None
    rows = 1 if found.multiplied else target.rows(4)
    spread = rows * padded_bytes((1, *tensor.shape)[-2:], "float32", target)
    fits = spread <= target.vmem_default // SHARE
    return found if fits and stays(tensor.shape, tensor.dtype, target, stored=True) else None


@dataclass(frozen=True)
class _Update:
    """An update whose dimension `at`, of so many rows, is picked."""

    store: ir.Store
    at: int
    size: int

    @property
    def _old(self) -> ir.Load:
        old, _ = self.store.operands
        assert isinstance(old, ir.Load)
        return old

    @property
    def _place(self) -> Expr:
        entry = self.store.index[self.at]
        assert isinstance(entry, ir.Gather)
        return entry.expr

    @property
    def _dim(self) -> int:
        """The dimension of the value that goes by the places."""
        return sum(not isinstance(entry, ir.At) for entry in self.store.index[: self.at])

    @property
    def simple(self) -> bool:
        """Whether every row has a value of its own, and none goes by its place twice."""
        shape, place = self._old.type.shape, self._place.type.shape
        again = isinstance(place[0], str) and shape.count(place[0]) > 1
        return shape[self._dim : self._dim + 1] == place and not again

    @property
    def multiplied(self) -> bool:
        """Whether rows of numbers are added, which matrix units do."""
        kind = self._old.type
        return (
            self.store.combine == "add"
            and self._dim == 0
            and kind.rank == 2
            and is_float(kind.dtype)
        )

    def made(self) -> ir.Store:
        """The update of the whole dimension."""
        store, at, old = self.store, self.at, self._old
        index = (*store.index[:at], ir.Span(0, self.size), *store.index[at + 1 :])
        shape = (*old.type.shape[: self._dim], self.size, *old.type.shape[self._dim + 1 :])
        mask = store.mask if store.mask is None or not store.mask.type.shape else None
        whole = replace(old, index=index, type=replace(old.type, shape=shape), mask=mask)
        assert store.combine is not None
        value = binary(store.combine, whole, self._reduced(store.combine), store.loc)
        return replace(store, index=index, value=value, mask=mask)

    def _reduced(self, combine: str) -> Expr:
        """[rows of the array, ...]: what the values of each are together."""
        loc, dim, dtype = self.store.loc, self._dim, self._old.type.dtype
        value = self._value(combine)
        if self.multiplied:
            kind = Type((self.size, self._old.type.shape[1]), "float32")
            wide = value if value.type.dtype == "bfloat16" else cast(value, "float32", loc)
            return cast(Apply(SUM, (self._hit(0), wide), kind, (), loc), dtype, loc)
        rest = value.type.rank - dim - 1
        hit = self._hit(1)
        for _ in range(rest):
            hit = expanded(hit, 2)
        spread = expanded(value, dim + 1)
        if isinstance(value, Apply) and value.op == "full" and not value.args:
            spread = ir.Const(value.attr("value"), Type((), dtype))
        op = REDUCED_BY[combine]
        own = where(hit, spread, self._nothing(combine), loc)
        return cast(reduce(op, own, dim, False, loc), dtype, loc)

    def _hit(self, axis: int) -> Expr:
        """[place, row], or [row, place] with `axis` 0: which row a place picks."""
        place = cast(self._place, "int32", self.store.loc)
        rows = expanded(arange(self.size), 1 - axis)
        return binary("eq", expanded(place, axis), rows, self.store.loc)

    def _value(self, combine: str) -> Expr:
        """What every row is combined with; that changes nothing where a mask leaves it out."""
        store, shape = self.store, self._old.type.shape
        value = broadcast(store.operands[1], shape, store.loc)
        if store.mask is None or not store.mask.type.shape:
            return value
        return where(store.mask, value, self._nothing(combine), store.loc)

    def _nothing(self, combine: str) -> ir.Const:
        dtype = self._old.type.dtype
        return ir.Const(neutral(REDUCED_BY[combine], dtype), Type((), dtype))
