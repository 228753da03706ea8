"""smaller(program, fails) -> Program: the smallest program found that fails all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from tests.fuzzing.changes import mapped
from tests.fuzzing.program import (
    Axis,
    Chosen,
    Dot,
    If,
    Joined,
    Let,
    Load,
    Loop,
    Masked,
    Mixed,
    Number,
    Pick,
    Program,
    Reduce,
    Ref,
    Seen,
    Statement,
    Store,
    Swap,
    Tensor,
    Term,
    Update,
    Value,
    Whole,
    fitted,
    parts,
    pruned,
)
from tests.fuzzing.view import View

Fails = Callable[[Program], bool]


def smaller(program: Program, fails: Fails, trials: int = 200) -> Program:
    """Takes every step that keeps the failure, until none does or the trials are used up."""
    left = trials
    again = True
    while again:
        again = False
        for candidate in candidates(program):
            if left == 0:
                return program
            left -= 1
            if fails(candidate):
                program, again = candidate, True
                break
    return program


def candidates(program: Program) -> Iterator[Program]:
    """Programs with one thing less, larger steps first; each still means something."""
    for body in (*_without_statements(program.body), *_simpler(program.body)):
        yield from _complete(replace(program, body=body))
    for view in program.views:
        yield from _complete(_without_view(program, view))
    for place, axis in enumerate(program.axes):
        for found in _simpler_axis(axis):
            axes = (*program.axes[:place], found, *program.axes[place + 1 :])
            yield from _complete(replace(program, axes=axes))
    for place, tensor in enumerate(program.tensors):
        for found in _simpler_tensor(tensor):
            yield replace(
                program, tensors=(*program.tensors[:place], found, *program.tensors[place + 1 :])
            )


def _without_view(program: Program, view: View) -> Program:
    """What is read and stored by the view is as it lies."""

    def plain(node: Any) -> Any:
        by_view = isinstance(node, Load | Store) and node.view == view.name
        return replace(node, view="") if by_view else node

    left = tuple(v for v in program.views if v != view)
    return replace(program, body=mapped(program.body, plain), views=left)


def _simpler_axis(axis: Axis) -> Iterator[Axis]:
    """An ordinary loop in the place of one whose range is read or has a window, or a short one."""
    if axis.offsets and not axis.until:
        yield replace(axis, offsets="", of="", local=False, page=1, counts="")
    if axis.length:
        yield replace(axis, length="", of="")
    if axis.window:
        yield replace(axis, window=0)
    if axis.block:
        yield replace(axis, block=0)
    if axis.most:
        yield replace(axis, most=0)
    if axis.page != 1:
        yield replace(axis, page=1)
    if axis.order:
        yield replace(axis, order="")
    if axis.mirrored:
        yield replace(axis, mirrored=False)
    if axis.measured:
        yield replace(axis, measured=False)
    if not axis.offsets and axis.kind != "full":
        for size in (2, axis.size // 2):
            if 1 < size < axis.size:
                yield replace(axis, size=size)


def _simpler_tensor(tensor: Tensor) -> Iterator[Tensor]:
    if tensor.role in ("input", "output", "changed") and tensor.dtype not in ("float32", "bool"):
        yield replace(tensor, dtype="float32")
    if tensor.role == "changed":
        yield replace(tensor, role="output", fill=0.0)
    if tensor.role == "output" and tensor.fill != 0.0:
        yield replace(tensor, fill=0.0)
    if tensor.short > 1:
        yield replace(tensor, short=1)


def _complete(program: Program) -> Iterator[Program]:
    """The program without what nothing uses, if it still stores something and names are known."""
    if _known(program.body, frozenset()) and (found := pruned(program)).results:
        yield sized(found)


def sized(program: Program) -> Program:
    """Tables as long as the axes that they are read at, arrays as they are indexed."""
    lengths = {t: a.of for a in program.axes for t in (a.length, a.counts) if t}
    lengths |= {a.offsets: a.of for a in program.axes if a.counts}
    ordered = {a.order: a for a in program.axes if a.order}
    tables = {p.through: p.axis for p in parts(program.body) if isinstance(p, Pick) and p.through}
    terms = {p.tensor: p.axis for p in parts(program.body) if isinstance(p, Term) and p.tensor}
    owner = {**lengths, **tables, **terms}
    found = []
    for tensor in program.tensors:
        if tensor.role == "index" and owner.get(tensor.name):
            tensor = replace(tensor, shape=(program.axis(owner[tensor.name]).size,))
        if tensor.name in ordered:
            size = ordered[tensor.name].size
            turns = max(size + tensor.shape[0] - tensor.limit, 1)
            tensor = replace(tensor, shape=(turns,), limit=size)
        found.append(tensor)
    return fitted(replace(program, tensors=tuple(found)))


def _known(body: tuple[Statement, ...], names: frozenset[str]) -> bool:
    """Whether every name is defined where it is used, and no loop is empty."""
    for statement in body:
        if _used(statement) - names:
            return False
        if isinstance(statement, Let):
            names |= {statement.name}
        for body in _bodies(statement):
            if not (body and _known(body, names)):
                return False
    return True


def _bodies(statement: Statement) -> tuple[tuple[Statement, ...], ...]:
    if isinstance(statement, If):
        return (statement.body, statement.other) if statement.other else (statement.body,)
    return (statement.body,) if isinstance(statement, Loop) else ()


def _used(statement: Statement) -> set[str]:
    """Names that a statement itself needs."""
    if isinstance(statement, Loop | If):
        return set()
    own = {statement.name} if isinstance(statement, Update | Swap) else set()
    own |= {statement.other} if isinstance(statement, Swap) else set()
    return own | {p.name for p in _values(statement.value) if isinstance(p, Ref)}


def _values(value: Value) -> Iterator[Any]:
    yield value
    for field in fields(value):
        inner = getattr(value, field.name)
        if isinstance(inner, Value):
            yield from _values(inner)


# ---------------------------------------------------------------- steps


def _without_statements(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """One statement less, from the last on; then one less inside a loop."""
    for place in reversed(range(len(body))):
        yield body[:place] + body[place + 1 :]
    for place, statement in enumerate(body):
        if isinstance(statement, If):
            yield (*body[:place], *statement.body, *body[place + 1 :])
            if statement.other:
                yield (*body[:place], replace(statement, other=()), *body[place + 1 :])
        if isinstance(statement, Loop | If):
            for inner in _without_statements(statement.body):
                yield (*body[:place], replace(statement, body=inner), *body[place + 1 :])


def _simpler(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """One statement simpler: its value, a plain index, a loop that is not joint."""
    for place, statement in enumerate(body):
        for found in _simpler_statement(statement):
            yield (*body[:place], found, *body[place + 1 :])


def _simpler_statement(statement: Statement) -> Iterator[Statement]:
    if isinstance(statement, Loop | If):
        if isinstance(statement, Loop) and statement.joint:
            yield replace(statement, joint=False)
        for inner in _simpler(statement.body):
            yield replace(statement, body=inner)
        return
    if isinstance(statement, Store):
        if statement.combine:
            yield replace(statement, combine="", atomic=False)
        for mask in statement.masks:
            yield replace(statement, masks=tuple(m for m in statement.masks if m != mask))
        for index in _simpler_index(statement.index):
            yield replace(statement, index=index)
    for value in _simpler_value(statement.value):
        yield replace(statement, value=value)


def _simpler_index(index: tuple[Pick, ...]) -> Iterator[tuple[Pick, ...]]:
    """One pick without what moves it, or one dimension less."""
    for place, pick in enumerate(index):
        own: list[Pick] = []
        if pick.terms and (pick.axis or len(pick.terms) > 1):
            own += [
                replace(pick, terms=pick.terms[:n] + pick.terms[n + 1 :])
                for n in range(len(pick.terms))
            ]
        own += [replace(pick, shift=n) for n in (0, 1) if abs(pick.shift) > n]
        own += [replace(pick, factor=n) for n in (1, 2) if pick.factor > n]
        own += [replace(pick, through="", derived=False)] if pick.through else []
        own += [replace(pick, derived=False)] if pick.derived else []
        own += [replace(pick, start=False, back=False)] if pick.start or pick.back else []
        for found in own:
            yield (*index[:place], found, *index[place + 1 :])


def _simpler_value(value: Any) -> Iterator[Any]:
    """A number or a part of the value in its place, or the value with a simpler part.

    Dimensions may only get fewer: values are broadcast to where they are used.  A sum stays a sum,
    because without it the result would depend on the tiles.
    """
    if isinstance(value, Load):
        for index in _simpler_index(value.index):
            yield replace(value, index=index)
    if isinstance(value, Masked) and len(value.masks) > 1:
        for mask in value.masks:
            yield replace(value, masks=tuple(m for m in value.masks if m != mask))
    summed = isinstance(value, Reduce | Dot | Seen | Mixed | Joined)
    if not summed and not isinstance(value, Number):
        yield Number(1.0)
    for field in fields(value):
        inner = getattr(value, field.name)
        if not isinstance(inner, Value):
            continue
        if not summed:
            yield inner
        for found in _simpler_value(inner):
            kept = isinstance(value, Masked | Whole | Chosen) and field.name == "load"
            if kept and not isinstance(found, Load):
                continue
            yield replace(value, **{field.name: found})
