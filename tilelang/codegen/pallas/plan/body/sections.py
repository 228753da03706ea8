"""Sections: groups of statements -> sections with the condition under which each runs.

A pipeline has one body.  What stands before a loop runs at the loop's first step, what stands after
it at its last.  A value that is made in one section and read in another is computed again if it is
cheap, moved if only the other section reads it, and kept in scratch memory otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.lives import is_costly
from tilelang.codegen.pallas.plan.physical import Bind, Inner, Keep, Kept, PExpr, PStmt
from tilelang.codegen.pallas.plan.rewriting import rewrite
from tilelang.ir import Var

from .statements import Groups, Key

Parts = tuple[tuple[Key, tuple[PStmt, ...]], ...]


def split(groups: Groups, outputs: frozenset[str]) -> Groups:
    """Makes every group self-contained.  `outputs` are the windows that the step writes."""
    order, kept = groups.parts, list(groups.kept)
    while (crossing := _first_crossing(order)) is not None:
        order = _resolved(order, crossing, outputs, kept)
    tidied = ((key, tidy(stmts)) for key, stmts in order)
    return Groups(tuple((k, stmts) for k, stmts in tidied if stmts), tuple(kept))


def _first_crossing(order: Parts) -> tuple[str, Key, list[Key]] | None:
    """A name made in one group and read in others, latest definition first."""
    made = {key: {n for s in stmts for n in physical.names_made(s)} for key, stmts in order}
    read = {
        key: {n for s in stmts for n in physical.names_read(s)} - made[key] for key, stmts in order
    }
    where = {n: key for key, stmts in order for s in stmts for n in sorted(physical.names_made(s))}
    for name, home in reversed(list(where.items())):
        readers = [key for key, names in read.items() if name in names]
        if readers:
            return name, home, readers
    return None


def _resolved(
    order: Parts, crossing: tuple[str, Key, list[Key]], outputs: frozenset[str], kept: list[Kept]
) -> Parts:
    name, home, readers = crossing
    source = next(s for s in dict(order)[home] if name in physical.names_made(s))
    if isinstance(source, Bind) and _repeatable(source, home, readers, outputs):
        return tuple((k, _copied(stmts, source) if k in readers else stmts) for k, stmts in order)
    if isinstance(source, Bind):
        kind = source.value.type
    else:
        assert isinstance(source, Inner)
        kind = next(c.next.type for c in source.carries if c.out == name)
    local, value = Var(name, kind), Kept(name, kind)
    kept.append(value)
    keep = Keep(name, local, source.loc)
    return tuple(
        (k, _swapped(stmts, local, value) if k != home else _after(stmts, source, keep))
        for k, stmts in order
    )


def _repeatable(source: Bind, home: Key, readers: list[Key], outputs: frozenset[str]) -> bool:
    if any(isinstance(e, physical.Read) and e.ref in outputs for e in physical.parts_of(source)):
        return False
    if not source.value.type.shape:
        return True  # a number: there is no scratch memory for one
    once = all(k.level == home.level and k.kind not in ("leaf", "phase") for k in readers)
    return not is_costly(source.value) or (once and len(readers) == 1)


def _copied(stmts: tuple[PStmt, ...], source: Bind) -> tuple[PStmt, ...]:
    """The value computed again where it is needed, and before anything changes what it reads."""
    reads = {kept.name for kept in physical.kept_read(source)}
    first = next(
        i
        for i, s in enumerate(stmts)
        if source.name in physical.names_read(s) or reads & physical.kept_by(s)
    )
    return (*stmts[:first], source, *stmts[first:])


def _swapped(stmts: tuple[PStmt, ...], old: Var | Kept, new: Var | Kept) -> tuple[PStmt, ...]:
    """The statements with a value read from scratch memory and not from a local, or the reverse."""

    def swap(expr: PExpr) -> PExpr:
        return new if isinstance(expr, type(old)) and expr.name == old.name else expr

    return tuple(rewrite(s, swap) for s in stmts)


def _after(stmts: tuple[PStmt, ...], source: PStmt, keep: Keep) -> tuple[PStmt, ...]:
    at = stmts.index(source) + 1
    return (*stmts[:at], keep, *stmts[at:])


def tidy(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """Drops what nothing reads, and reads and writes scratch the way a person would.

    A pipeline inside the step is a body of its own.
    """
    live = tuple(
        replace(s, body=tidy(s.body)) if isinstance(s, Inner) and s.form == "pipeline" else s
        for s in without_dead(stmts)
    )
    return _name_kept(_direct_keeps(live))


def without_dead(stmts: tuple[PStmt, ...], needed: Iterable[str] = ()) -> tuple[PStmt, ...]:
    """The statements without those that make names that nothing reads; `needed` behind them."""
    out: list[PStmt] = []
    read = set(needed)
    for stmt in reversed(stmts):
        if isinstance(stmt, Bind) and stmt.name not in read:
            continue
        if isinstance(stmt, Inner):
            ends = (e for c in stmt.carries for e in physical.walk_physical(c.next))
            used = {e.name for e in ends if isinstance(e, Var)}
            stmt = _with_body(stmt, without_dead(stmt.body, used))
        read |= physical.names_read(stmt)
        out.insert(0, stmt)
    return tuple(out)


def _with_body(loop: Inner, body: tuple[PStmt, ...]) -> Inner:
    """A loop with some of its statements; those that run ahead stay its first ones."""
    ahead = sum(stmt in body for stmt in loop.body[: loop.ahead])
    read = {name for stmt in body[ahead:] for name in physical.names_read(stmt)}
    handed = tuple(name for name in loop.handed if name in read)
    return replace(loop, body=body, ahead=ahead, handed=handed)


def _direct_keeps(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """`acc_2 = acc + x; keep acc_2` becomes `keep acc + x` where the statement stands.

    Rows that are put together stay in a local: they are no expression.
    """
    out = list(stmts)
    for keep in stmts:
        if not (isinstance(keep, Keep) and isinstance(keep.value, Var)):
            continue
        name = keep.value.name
        source = next((s for s in out if isinstance(s, Bind) and s.name == name), None)
        if source is None or isinstance(source.value, physical.TakeRows):
            continue
        if [s for s in out if name in physical.names_read(s)] != [keep]:
            continue
        at = out.index(source)
        later = out[at + 1 : out.index(keep)]
        if not any(_reads_kept(s, keep.name) for s in later):
            out[at] = Keep(keep.name, source.value, source.loc)
            out.remove(keep)
    return tuple(out)


def _reads_kept(stmt: PStmt, name: str) -> bool:
    return any(k.name == name for k in physical.kept_read(stmt))


def _name_kept(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """A scratch value that is read more than once is read into a local first."""
    reads = [read for stmt in stmts for read in physical.kept_read(stmt)]
    out = list(stmts)
    for name, kept in {read.name: read for read in reads}.items():
        written = [i for i, s in enumerate(out) if name in physical.kept_by(s)]
        first = next(i for i, s in enumerate(out) if _reads_kept(s, name))
        if written and written[0] < first:
            continue
        stop = len(out)
        if written:  # a loop that writes the value reads its own
            stop = written[0] + (0 if isinstance(out[written[0]], Inner) else 1)
        if sum(k.name == name for s in out[first:stop] for k in physical.kept_read(s)) < 2:
            continue
        local = Var(name, kept.type)
        inside = _without_own(_swapped(tuple(out[first:stop]), kept, local), local)
        out[first:stop] = [Bind(name, kept, None, ""), *inside]
    return tuple(out)


def _without_own(stmts: tuple[PStmt, ...], local: Var) -> tuple[PStmt, ...]:
    """The statements, whose pipelines had a local of their own for what is now one around them.

    Another carry that takes its value next is no such local.
    """
    own = local.name, local
    theirs = (s for s in stmts if not (isinstance(s, Bind) and (s.name, s.value) == own))
    return tuple(
        replace(s, body=_without_own(s.body, local))
        if isinstance(s, Inner) and s.form == "pipeline"
        else s
        for s in theirs
    )
