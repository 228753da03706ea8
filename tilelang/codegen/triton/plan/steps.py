"""Steps: what they read, which of them nobody needs, and where threads wait for each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import assert_never

from tilelang.ir import Expr, read_by

from .types import (
    Access,
    Barrier,
    Descriptor,
    Fetch,
    For,
    Guard,
    Let,
    Note,
    Read,
    Step,
    Write,
)  # fmt: skip


def every_step(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Every step, loops before their bodies."""
    for step in steps:
        yield step
        if isinstance(step, For | Guard):
            yield from every_step(step.body)


def exprs(step: Step) -> Iterator[Expr]:
    """What a step computes itself."""
    match step:
        case Let(_, value):
            yield value
        case Read():
            yield from _access(step.access)
        case Write(found, value):
            yield from (*_access(found), value)
        case For(_, begin, end, by, carries):
            yield from (begin, end, by)
            yield from (e for c in carries for e in (c.init, c.next) if e is not None)
        case Guard(condition):
            yield condition
        case Descriptor():
            yield from step.shape
        case Fetch():
            yield from step.start
        case Barrier() | Note():
            pass
        case _:
            assert_never(step)


def _access(found: Access) -> Iterator[Expr]:
    return (e for e in (found.offset, found.mask) if e is not None)


def map_exprs(step: Step, change: Callable[[Expr], Expr]) -> Step:
    """The step with everything that it computes changed, in its body too."""

    def maybe(expr: Expr | None) -> Expr | None:
        return None if expr is None else change(expr)

    def moved(found: Access) -> Access:
        return replace(found, offset=maybe(found.offset), mask=maybe(found.mask))

    match step:
        case Let():
            return replace(step, value=change(step.value))
        case Read():
            return replace(step, access=moved(step.access))
        case Write():
            return replace(step, access=moved(step.access), value=change(step.value))
        case For():
            carries = (replace(c, init=maybe(c.init), next=maybe(c.next)) for c in step.carries)
            begin, end, by = map(change, (step.begin, step.end, step.by))
            body = tuple(map_exprs(s, change) for s in step.body)
            return replace(step, begin=begin, end=end, by=by, carries=tuple(carries), body=body)
        case Guard():
            body = tuple(map_exprs(s, change) for s in step.body)
            return Guard(change(step.condition), body)
        case Descriptor():
            return replace(step, shape=tuple(map(change, step.shape)))
        case Fetch():
            return replace(step, start=tuple(map(change, step.start)))
        case Barrier() | Note():
            return step
        case _:
            assert_never(step)


def names_read(steps: tuple[Step, ...]) -> set[str]:
    """Names that the steps read."""
    fetched = {s.descriptor for s in every_step(steps) if isinstance(s, Fetch)}
    return fetched.union(read_by(x for step in every_step(steps) for x in exprs(step)))


def without_unused(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps without values that nobody reads."""
    while True:
        left = _kept(steps, names_read(steps) | _carried(steps))
        if left == steps:
            return steps
        steps = left


def _carried(steps: tuple[Step, ...]) -> set[str]:
    return {c.name for s in every_step(steps) if isinstance(s, For) for c in s.carries}


def _kept(steps: tuple[Step, ...], used: set[str]) -> tuple[Step, ...]:
    out: list[Step] = []
    for step in steps:
        if isinstance(step, Let | Read | Descriptor | Fetch) and step.name not in used:
            continue
        if isinstance(step, For | Guard):
            step = replace(step, body=_kept(step.body, used))
            carries = isinstance(step, For) and step.carries
            if not carries and all(isinstance(s, Note) for s in step.body):
                continue
        out.append(step)
    return tuple(out)


# ---------------------------------------------------------------- barriers


@dataclass
class _Since:
    """What was read, written and updated since all threads last waited for each other."""

    read: set[Access] = field(default_factory=set)
    written: set[Access] = field(default_factory=set)
    updated: set[Access] = field(default_factory=set)

    def clear(self) -> None:
        for places in (self.read, self.written, self.updated):
            places.clear()

    def copy(self) -> _Since:
        return _Since(set(self.read), set(self.written), set(self.updated))

    def add(self, other: _Since) -> None:
        self.read |= other.read
        self.written |= other.written
        self.updated |= other.updated

    def waits(self, step: Read | Write) -> bool:
        """Whether threads must wait for each other before a step.

        Only three things need no order: what meets in no element, stores to one place, of which
        each thread does its own, and updates.  A store to what was just read does: a value that is
        smaller than the program has threads is read by several of them, and stored by one.
        """
        own = step.access
        match step:
            case Read():
                before = self.written | self.updated
            case Write(combine=None):
                others = {
                    w for w in self.written if (w.tensor, w.offset) != (own.tensor, own.offset)
                }
                before = self.read | self.updated | others
            case Write():
                before = self.read | self.written
            case _:
                assert_never(step)
        return any(own.meets(one) for one in before)

    def note(self, step: Read | Write) -> None:
        """Adds what a step does."""
        places = self.read
        if isinstance(step, Write):
            places = self.written if step.combine is None else self.updated
        places.add(step.access)


def with_barriers(steps: tuple[Step, ...], ordered: frozenset[str]) -> tuple[Step, ...]:
    """The steps with a barrier wherever threads of a program pass values through memory.

    A thread may hold other elements where it loads than where it stores.  `ordered` are the loops
    whose iterations may store to the same elements.
    """
    return _guarded(steps, ordered, _Since())


def _guarded(steps: tuple[Step, ...], ordered: frozenset[str], since: _Since) -> tuple[Step, ...]:
    out: list[Step] = []
    for step in steps:
        match step:
            case Read() | Write():
                if since.waits(step):
                    out.append(Barrier())
                    since.clear()
                since.note(step)
            case For():
                step = _loop(step, ordered, since)
            case Guard():
                before = since.copy()
                step = replace(step, body=_guarded(step.body, ordered, since))
                since.add(before)
            case _:
                pass
        out.append(step)
    return tuple(out)


def _loop(step: For, ordered: frozenset[str], since: _Since) -> For:
    """The loop, with a barrier behind each iteration that the next one may have to see."""
    own = _Since()
    for inner in every_step(step.body):
        if isinstance(inner, Read | Write):
            own.note(inner)
    read, written, updated = (
        {one.tensor for one in places} for places in (own.read, own.written, own.updated)
    )
    before = since.copy()
    body = _guarded(step.body, ordered, since)
    if (read | updated) & written or read & updated or (written and step.name in ordered):
        since.clear()
        body = (*body, Barrier())
    since.add(before)  # there may be no iteration
    return replace(step, body=body)
