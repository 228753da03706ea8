"""smaller(program, fails) -> Program: the smallest program found that fails all the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from typing import Any

from tests.fuzzing.program import (
    Dot,
    Let,
    Loop,
    Number,
    Program,
    Reduce,
    Ref,
    Seen,
    Statement,
    Update,
    Value,
    pruned,
)

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
    for tensor in program.tensors:
        if tensor.role in ("input", "output") and tensor.dtype != "float32":
            tensors = tuple(
                replace(t, dtype="float32") if t == tensor else t for t in program.tensors
            )
            yield replace(program, tensors=tensors)


def _complete(program: Program) -> Iterator[Program]:
    """The program without what nothing uses, if it still stores something and names are known."""
    if _known(program.body, frozenset()) and (found := pruned(program)).outputs:
        yield found


def _known(body: tuple[Statement, ...], names: frozenset[str]) -> bool:
    """Whether every name is defined where it is used, and no loop is empty."""
    for statement in body:
        if _used(statement) - names:
            return False
        if isinstance(statement, Let):
            names |= {statement.name}
        if isinstance(statement, Loop) and not (statement.body and _known(statement.body, names)):
            return False
    return True


def _used(statement: Statement) -> set[str]:
    """Names that a statement itself needs."""
    if isinstance(statement, Loop):
        return set()
    own = {statement.name} if isinstance(statement, Update) else set()
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
        if isinstance(statement, Loop):
            for inner in _without_statements(statement.body):
                yield (*body[:place], replace(statement, body=inner), *body[place + 1 :])


def _simpler(body: tuple[Statement, ...]) -> Iterator[tuple[Statement, ...]]:
    """One statement simpler: its value, a plain index, a loop that is not joint."""
    for place, statement in enumerate(body):
        for found in _simpler_statement(statement):
            yield (*body[:place], found, *body[place + 1 :])


def _simpler_statement(statement: Statement) -> Iterator[Statement]:
    if isinstance(statement, Loop):
        if statement.joint:
            yield replace(statement, joint=False)
        for inner in _simpler(statement.body):
            yield replace(statement, body=inner)
        return
    for value in _simpler_value(statement.value):
        yield replace(statement, value=value)


def _simpler_value(value: Any) -> Iterator[Any]:
    """A number or a part of the value in its place, or the value with a simpler part.

    Dimensions may only get fewer: values are broadcast to where they are used.  A sum stays a sum,
    because without it the result would depend on the tiles.
    """
    summed = isinstance(value, Reduce | Dot | Seen)
    if not summed and not isinstance(value, Number):
        yield Number(1.0)
    for field in fields(value):
        inner = getattr(value, field.name)
        if not isinstance(inner, Value):
            continue
        if not summed:
            yield inner
        for found in _simpler_value(inner):
            yield replace(value, **{field.name: found})
