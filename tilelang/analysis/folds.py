"""fold_facts(...) -> FoldFact...: what a loop over tiles folds, though it is no fold of positions.

for tm in hl.tile(M):
    acc += x[tm, :].sum(0)         every position counts once, however the loop is cut
    acc += s[g]                    counts once for every tile
    acc += x[tm, :].amax(0)        adds the greatest of every tile
    m = hl.maximum(m, s[g])        the same once or often
    sign = -sign                   changes once for every tile
    last = x[tm, :].sum(0)         is what the last tile made
    acc = (p * v).sum(0)           so is this, though p goes by what another carry is by then
    acc = acc * decay + ...        asked in numbers (cuts.py): online softmax looks like it
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from ..ir import (
    Along,
    Apply,
    Carry,
    Expr,
    KernelIR,
    Load,
    Loop,
    Store,
    Var,
    index_exprs,
)
from ..language.op import OPS, kind_of
from .carries import OPS as CARRIED
from .carries import Definitions, depends_on
from .facts import FoldFact
from .placed import Place, loops, placed
from .stores import is_free, mentions, of_lanes, sources
from .written import Changed

FOLDS = {**CARRIED, "bitwise_xor": "xor", "logical_xor": "xor"}
ONCE = ("sum", "product", "xor")  # in which a value that comes again counts again
TAKEN = {"sub": "sum", "div": "product"}  # folds of what is taken off
PARTS = {  # reductions whose fold over parts is that of the whole
    "sum": ("sum", "dot"),
    "max": ("max", "any"),
    "min": ("min", "all"),
    "and": ("all", "min"),
    "or": ("any", "max"),
}


@dataclass(frozen=True)
class Folded:
    """A value that is folded by `op`, and what decides whether and how often it is."""

    op: str
    value: Expr
    under: tuple[Expr, ...] = ()


@dataclass(frozen=True)
class _Folds:
    """What is folded into a carry, or into an array; `place` is where it is stored."""

    ir: KernelIR
    defined: Definitions
    names: frozenset[str]
    place: Store | None = None

    def holds(self, expr: Expr) -> bool:
        """Whether a value is computed from what was there before."""
        if depends_on(expr, self.names, self.defined):
            return True
        return self.place is not None and any(
            isinstance(e, Load) and (e.tensor, e.index) == (self.place.tensor, self.place.index)
            for e in sources((expr,), self.ir, self.defined)
        )

    def terms(self, expr: Expr) -> Iterator[Folded]:
        """The values that `expr` folds into what was there before; none if it does otherwise.

        A value that is computed from nothing of that takes its place: "last".
        """
        if self.place is None and not self.holds(expr):
            yield Folded("last", expr)
            return
        match expr:
            case Var(name) if name in self.names:
                return
            case Var(name) if name in self.defined.values:
                yield from self.terms(self.defined.values[name])
            case Var(name) if name in self.defined.outs:
                carry = self.defined.outs[name]
                inner = replace(self, names=self.names | {carry.name})
                yield from self.terms(carry.init)
                loop = next(k for k, v in loops(self.ir).items() if carry in v[0].carries)
                bounds = (self.ir.axis(loop).begin, self.ir.axis(loop).end)
                found = inner.terms(carry.next)
                yield from (replace(t, under=(*t.under, *bounds)) for t in found)
            case Apply("where", (condition, a, b)) if not self.holds(condition):
                for found in (*self.terms(a), *self.terms(b)):
                    yield replace(found, under=(*found.under, condition))
            case Apply(op, (a, b)) if op in FOLDS and self.holds(a) != self.holds(b):
                old, new = (a, b) if self.holds(a) else (b, a)
                yield Folded(FOLDS[op], new)
                yield from self.terms(old)
            case Apply(op, (old, new)) if op in TAKEN and self.holds(old) > self.holds(new):
                yield Folded(TAKEN[op], new)
                yield from self.terms(old)
            case Apply("cast", (value,)):
                yield from self.terms(value)
            case _:
                return


def folded(carry: Carry, ir: KernelIR, defined: Definitions) -> tuple[Folded, ...]:
    """What a loop folds into a carry, one by one."""
    return tuple(_Folds(ir, defined, frozenset({carry.name})).terms(carry.next))


def fold_facts(
    ir: KernelIR, defined: Definitions, changed: Mapping[str, Changed]
) -> tuple[FoldFact, ...]:
    """One fact for each value that makes a result depend on how a loop over tiles is cut."""
    return (*_of_carries(ir, defined, changed), *_of_stores(ir, defined))


def _of_carries(
    ir: KernelIR, defined: Definitions, changed: Mapping[str, Changed]
) -> Iterator[FoldFact]:
    for name, seen_in_numbers in changed.items():
        loop = loops(ir)[name][0]
        causes = _causes(loop, seen_in_numbers.carries, defined)
        for carry in loop.carries:
            terms = folded(carry, ir, defined)
            others = frozenset(c.name for c in loop.carries if c != carry)
            mixed = depends_on(carry.next, others, defined)  # then only numbers say what it means
            seen = [(t.op, "" if mixed else _wrong(t, name, ir, defined)) for t in terms]
            wrong = [(op, what) for op, what in seen if what]
            if not wrong and carry in causes:
                last = "last" if [op for op, _ in seen] == ["last"] else "change"
                wrong = [("tie" if carry.name in seen_in_numbers.ties else last, "value")]
            yield from (FoldFact(carry.called, name, op, what, carry.loc) for op, what in wrong)


def _causes(loop: Loop, names: frozenset[str], defined: Definitions) -> list[Carry]:
    """Of carries that go by the tiles, those that do not because another one does."""
    found = [c for c in loop.carries if c.name in names]
    first = [c for c in found if not depends_on(c.next, names - {c.name}, defined)]
    return first or found[:1]


def _of_stores(ir: KernelIR, defined: Definitions) -> Iterator[FoldFact]:
    stores = ((s, around) for s, around in placed(ir.body) if isinstance(s, Store))
    for stmt, around in stores:
        search = _Folds(ir, defined, frozenset(), stmt)
        under = tuple(e for entry in stmt.index for e in index_exprs(entry))
        under += () if stmt.mask is None else (stmt.mask,)
        own = {entry.axis for entry in stmt.index if isinstance(entry, Along)}
        for term in search.terms(stmt.value):
            for axis, inner in _cut(around, own, ir):
                whole = replace(term, under=(*term.under, *under, *inner))
                if what := _wrong(whole, axis, ir, defined):
                    yield FoldFact(stmt.tensor, axis, term.op, what, stmt.loc)


def _cut(around: Place, own: set[str], ir: KernelIR) -> Iterator[tuple[str, tuple[Expr, ...]]]:
    """The loops around a store that a config cuts, with the bounds of those inside of them."""
    for at, name in enumerate(around):
        if name not in own and is_free(name, ir):
            inner = [ir.axis(a) for a in around[at + 1 :]]
            yield name, tuple(e for a in inner for e in (a.begin, a.end))


def _wrong(term: Folded, axis: str, ir: KernelIR, defined: Definitions) -> str:
    """What of every tile is folded, which is none of its positions' fold; "" if that is unknown."""

    def goes_by(expr: Expr) -> bool:
        return any(mentions(e, axis) for e in sources((expr,), ir, defined))

    if term.op == "last":
        made = any(axis in of_lanes(e) for e in sources((term.value,), ir, defined))
        return "value" if made and not any(map(goes_by, term.under)) else ""
    if not goes_by(term.value):
        free = term.op in ONCE and not any(map(goes_by, term.under))
        return "value" if free else ""
    *_, core = scaled(term.value, goes_by, defined)
    if not isinstance(core, Apply) or term.op not in PARTS:
        return ""
    if kind_of(core.op) not in ("reduce", "contract"):
        return ""
    gone = {d for a in core.args for d in a.type.shape} - {*core.type.shape}
    return core.op if axis in gone and core.op not in PARTS[term.op] else ""


def scaled(expr: Expr, goes_by: Callable[[Expr], bool], defined: Definitions) -> Iterator[Expr]:
    """The value, and step by step without what scales, shapes or names what is folded."""
    yield expr
    match expr:
        case Var(name) if name in defined.values:
            yield from scaled(defined.values[name], goes_by, defined)
        case Apply(op, (value,)) if op in OPS and OPS[op].scales:
            yield from scaled(value, goes_by, defined)
        case Apply("mul" | "div", (value, by)) if not goes_by(by):
            yield from scaled(value, goes_by, defined)
        case Apply("mul", (by, value)) if not goes_by(by):
            yield from scaled(value, goes_by, defined)
        case _:
            return
