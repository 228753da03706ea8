"""Sections: groups of statements -> sections with the condition under which each runs.

A pipeline has one body.  What stands before a loop runs at the loop's first step, what stands after
it at its last.  A value that is made in one section and read in another is computed again if it is
cheap, moved if only the other section reads it, and kept in scratch memory otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

from tilelang.codegen.pallas.plan.physical import (
    exprs_of,
    map_physical,
    names_made,
    names_read,
    walk_physical,
)
from tilelang.codegen.pallas.plan.types import (
    Bind,
    Inner,
    InnerCarry,
    Keep,
    Kept,
    PExpr,
    PStmt,
    Read,
    Row,
    Write,
)
from tilelang.ir import Type, Var

from .lower import KeptValue, is_costly
from .statements import Groups
from .walk import replace_physical


@dataclass(frozen=True)
class Key:
    """Which group: around the loops below a level, innermost, or of loop `phase` in a row."""

    kind: Literal["before", "leaf", "enter", "phase", "after"]
    level: int
    phase: int = 0


@dataclass(frozen=True)
class Split:
    """Statements of every group, each needing only names of its own group, and what is kept."""

    groups: tuple[tuple[Key, tuple[PStmt, ...]], ...]
    kept: tuple[KeptValue, ...]


def split(groups: Groups, outputs: frozenset[str]) -> Split:
    """Makes every group self-contained.  `outputs` are the windows that the step writes."""
    order = _ordered(groups)
    kept = list(groups.kept)
    while True:
        crossing = _first_crossing(order)
        if crossing is None:
            break
        order = _resolve(order, crossing, outputs, kept)
    order = [(key, tidy(stmts)) for key, stmts in order]
    return Split(tuple((k, s) for k, s in order if s), tuple(kept))


def _ordered(groups: Groups) -> list[tuple[Key, tuple[PStmt, ...]]]:
    count = len(groups.before)
    before = [(Key("before", i), groups.before[i]) for i in range(count)]
    after = [(Key("after", i), groups.after[i]) for i in reversed(range(count))]
    inside: list[tuple[Key, tuple[PStmt, ...]]] = []
    for number, phase in enumerate(groups.phases):
        inside.append((Key("enter", count - 1, number), phase.before))
        inside.append((Key("phase", count, number), phase.body))
    return [*before, *(inside or [(Key("leaf", count - 1), groups.leaf)]), *after]


def _first_crossing(order: list[tuple[Key, tuple[PStmt, ...]]]) -> tuple[str, Key] | None:
    """A name made in one group and read in another, latest definition first."""
    where = {n: key for key, stmts in order for s in stmts for n in names_made(s)}
    for name, key in reversed(list(where.items())):
        for other, stmts in order:
            if other == key:
                continue
            made = {n for s in stmts for n in names_made(s)}
            if name not in made and any(name in names_read(s) for s in stmts):
                return name, key
    return None


def _resolve(
    order: list[tuple[Key, tuple[PStmt, ...]]],
    crossing: tuple[str, Key],
    outputs: frozenset[str],
    kept: list[KeptValue],
) -> list[tuple[Key, tuple[PStmt, ...]]]:
    name, home = crossing
    source = next(s for k, stmts in order if k == home for s in stmts if name in names_made(s))
    readers = [
        k
        for k, stmts in order
        if k != home
        and any(name in names_read(s) for s in stmts)
        and name not in {n for s in stmts for n in names_made(s)}
    ]
    if isinstance(source, Bind) and _repeatable(source, home, readers, outputs):
        return [(k, _copied(stmts, source) if k in readers else stmts) for k, stmts in order]
    user = source.user if isinstance(source, Bind) else name
    value_type = _type_of(source, name)
    kept.append(KeptValue(name, value_type, user))
    return [
        (k, _read_kept(stmts, name, value_type) if k != home else _write_kept(stmts, source, name))
        for k, stmts in order
    ]


def _repeatable(source: Bind, home: Key, readers: list[Key], outputs: frozenset[str]) -> bool:
    reads_output = any(
        isinstance(e, Read) and e.ref in outputs for e in walk_physical(source.value)
    )
    if reads_output:
        return False
    if not source.value.type.shape:
        return True  # a number: there is no scratch memory for one
    once = all(k.level == home.level and k.kind not in ("leaf", "phase") for k in readers)
    return not is_costly(source.value) or (once and len(readers) == 1)


def _copied(stmts: tuple[PStmt, ...], source: Bind) -> tuple[PStmt, ...]:
    first = next(i for i, s in enumerate(stmts) if source.name in names_read(s))
    return (*stmts[:first], source, *stmts[first:])


def _type_of(source: PStmt, name: str) -> Type:
    if isinstance(source, Bind):
        return source.value.type
    assert isinstance(source, Inner)
    return next(c.next.type for c in source.carries if c.out == name)


def _read_kept(stmts: tuple[PStmt, ...], name: str, value_type: Type) -> tuple[PStmt, ...]:
    return tuple(replace_in(s, {name: Kept(name, value_type)}) for s in stmts)


def _write_kept(stmts: tuple[PStmt, ...], source: PStmt, name: str) -> tuple[PStmt, ...]:
    at = stmts.index(source)
    loc = source.loc
    keep = Keep(name, Var(name, _type_of(source, name)), loc)
    return (*stmts[: at + 1], keep, *stmts[at + 1 :])


def replace_in(stmt: PStmt, values: dict[str, PExpr]) -> PStmt:
    """The statement with names replaced."""
    match stmt:
        case Bind() | Keep():
            return replace(stmt, value=replace_physical(stmt.value, values))
        case Write():
            select = tuple(
                Row(replace_physical(s.expr, values)) if isinstance(s, Row) else s
                for s in stmt.select
            )
            return replace(stmt, select=select, value=replace_physical(stmt.value, values))
        case Inner():
            carries = tuple(_replace_carry(c, values) for c in stmt.carries)
            body = tuple(replace_in(s, values) for s in stmt.body)
            return replace(stmt, carries=carries, body=body)


def _replace_carry(carry: InnerCarry, values: dict[str, PExpr]) -> InnerCarry:
    return replace(
        carry,
        init=replace_physical(carry.init, values),
        next=replace_physical(carry.next, values),
    )


# ---------------------------------------------------------------- tidying one group


def tidy(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """Drops what nothing reads, and reads and writes scratch the way a person would."""
    return _name_kept(_direct_keeps(_tidy_pipelines(_drop_dead(stmts))))


def _tidy_pipelines(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """A pipeline inside the step is a body of its own."""
    return tuple(
        replace(s, body=tidy(s.body)) if isinstance(s, Inner) and s.form == "pipeline" else s
        for s in stmts
    )


def kept_in(stmt: PStmt) -> set[str]:
    """Scratch values that a statement writes."""
    match stmt:
        case Keep(name):
            return {name}
        case Inner():
            return {n for s in stmt.body for n in kept_in(s)}
        case _:
            return set()


def _drop_dead(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    out: list[PStmt] = []
    needed: set[str] = set()
    for stmt in reversed(stmts):
        if isinstance(stmt, Bind) and stmt.name not in needed:
            continue
        if isinstance(stmt, Inner):
            stmt = replace(stmt, body=_drop_dead_inner(stmt))
        needed |= names_read(stmt)
        out.insert(0, stmt)
    return tuple(out)


def _drop_dead_inner(stmt: Inner) -> tuple[PStmt, ...]:
    ends = tuple(Keep("", c.next, None) for c in stmt.carries)
    return _drop_dead((*stmt.body, *ends))[: -len(ends) or None]


def _direct_keeps(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """`acc_2 = acc + x; keep acc_2` becomes `keep acc + x` where the statement stands."""
    out = list(stmts)
    for keep in [s for s in stmts if isinstance(s, Keep) and isinstance(s.value, Var)]:
        name = keep.value.name  # type: ignore[union-attr]
        readers = [s for s in out if name in names_read(s)]
        source = next((s for s in out if isinstance(s, Bind) and s.name == name), None)
        if source is None or readers != [keep] or _total_reads(keep, name) != 1:
            continue
        at = out.index(source)
        later = out[at + 1 : out.index(keep)]
        if any(_reads_kept(s, keep.name) for s in later):
            continue
        out[at] = Keep(keep.name, source.value, source.loc)
        out.remove(keep)
    return tuple(out)


def _total_reads(stmt: PStmt, name: str) -> int:
    return sum(
        isinstance(e, Var) and e.name == name for x in exprs_of(stmt) for e in walk_physical(x)
    )


def _kept_reads(stmt: PStmt) -> list[Kept]:
    return [e for x in exprs_of(stmt) for e in walk_physical(x) if isinstance(e, Kept)]


def _reads_kept(stmt: PStmt, name: str) -> bool:
    return any(k.name == name for k in _kept_reads(stmt))


def _name_kept(stmts: tuple[PStmt, ...]) -> tuple[PStmt, ...]:
    """A scratch value that is read more than once is read into a local first."""
    counts: dict[str, int] = {}
    types: dict[str, Kept] = {}
    for stmt in stmts:
        for read in _kept_reads(stmt):
            counts[read.name] = counts.get(read.name, 0) + 1
            types[read.name] = read
    out = list(stmts)
    for name, count in counts.items():
        if count < 2:
            continue
        written = [i for i, s in enumerate(out) if name in kept_in(s)]
        first = next(i for i, s in enumerate(out) if _reads_kept(s, name))
        if written and written[0] < first:
            continue
        stop = len(out)
        if written:  # a loop that writes the value reads its own
            stop = written[0] + (0 if isinstance(out[written[0]], Inner) else 1)
        if sum(k.name == name for s in out[first:stop] for k in _kept_reads(s)) < 2:
            continue
        local = Var(name, types[name].type)
        swapped = [_swap_kept(s, name, local) for s in out[first:stop]]
        out[first:stop] = [Bind(name, types[name], None, ""), *swapped]
    return tuple(out)


def _swap_kept(stmt: PStmt, name: str, local: Var) -> PStmt:
    def swap(expr: PExpr) -> PExpr:
        return local if isinstance(expr, Kept) and expr.name == name else expr

    return map_values(stmt, swap)


def map_values(
    stmt: PStmt,
    change: Callable[[PExpr], PExpr],
    each: Callable[[PStmt], PStmt] = lambda stmt: stmt,
) -> PStmt:
    """The statement with `change` applied to every operand of its values, and `each` to itself.

    Statements of loops inside count too.
    """

    def visit(expr: PExpr) -> PExpr:
        operation = map_physical(expr, visit)
        return change(expr) if operation is expr else operation

    match stmt:
        case Bind() | Keep() | Write():
            return each(replace(stmt, value=visit(stmt.value)))
        case Inner():
            ends = tuple(replace(c, init=visit(c.init), next=visit(c.next)) for c in stmt.carries)
            body = tuple(map_values(s, change, each) for s in stmt.body)
            return replace(stmt, carries=ends, body=body)
