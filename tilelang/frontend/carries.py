"""Values that a loop changes: what they are on entry, what the body makes of them, and after it.

acc = hl.zeros([tm])                  acc
for tk in hl.tile(K):                 Loop tk, Carry(name="acc_1", init=acc, next=acc_2,
    acc = acc + x[tm, tk].sum(1)                     out="acc_3"):  acc_2 = acc_1 + ...
y[tm] = acc                           y[tm] = acc_3
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

import numpy as np

from ..errors import Loc, ParseError, TypingError
from ..ir import Carry, Const, Expr, Type, Var, every_store
from ..language.build import full
from ..language.dtypes import is_float
from ..language.handles import TensorHandle
from ..language.values import as_expr, const, number_of
from .containers import own
from .hosting import counted, is_value, kind_of
from .scope import Bound, Here, Missing


@dataclass(frozen=True)
class Entering:
    """A carried value on entry of a loop.

    user    what it is called: the variable, or `state_1` of a tuple or list `state`
    said    what the author calls it: `state[1]`
    number  it was a Python number before
    """

    user: str
    said: str
    name: str
    init: Expr
    number: bool


@dataclass(frozen=True)
class Variable:
    """A carried variable: what it was before the loop, and each value that it holds."""

    user: str
    before: object
    parts: tuple[Entering, ...]


def carried(here: Here, node: ast.For) -> tuple[str, ...]:
    """The variables that the body assigns and that a later iteration, or code after, reads."""
    live = here.frame.live
    return tuple(n for n in live.assigned[node] if n in live.again[node])


def fill_in(here: Here, users: Sequence[str]) -> None:
    """acc = hl.zeros([D]) before the loops is a tensor; where a loop assigns to acc, a value.

    What was stored to is a tensor for good, and one that is empty has no value to begin with.
    """
    stored = {s.tensor for s in every_store(tuple(here.into))}
    for user in users if not here.loops else ():
        bound = here.frame.names.get(user)
        if isinstance(bound, Bound):
            filled = (_filled(v, stored, bound.loc) for v in values_in(bound.value))
            here.frame.names[user] = replace(bound, value=alike(here, bound.value, filled))


def _filled(value: object, stored: set[str], loc: Loc) -> object:
    made = value.tensor if isinstance(value, TensorHandle) else None
    if made is None or made.role != "output" or made.fill is None or made.name in stored:
        return value
    return full(made.shape, made.fill, made.dtype, loc)


def values_in(value: object) -> list[object]:
    """The values that a variable holds: itself, or those of a tuple or a list, one by one."""
    return [v for item in value for v in values_in(item)] if _is_sequence(value) else [value]


def _is_sequence(value: object) -> TypeGuard[tuple | list]:
    return isinstance(value, tuple | list)


def alike(here: Here, value: object, left: Iterator[object]) -> object:
    """The same tuples and lists of other values; a list is one that was made here."""
    if not _is_sequence(value):
        return next(left)
    items = [alike(here, item, left) for item in value]
    if isinstance(value, list):
        return own(here, items)
    named: Callable[..., object] | None = getattr(type(value), "_make", None)
    return named(items) if named else tuple(items)


def refused(here: Here, users: Sequence[str], line: int) -> dict[str, Missing]:
    """Of those variables the ones that no loop can carry: what they are instead of a value."""
    bound = {u: b for u in users if isinstance(b := here.frame.names.get(u), Bound)}
    return {u: _uncarried(u, b.value, line) for u, b in bound.items() if not _is_carried(b)}


def _is_carried(bound: Bound) -> bool:
    return all(_is_one(value, bound.loc) for value in values_in(bound.value))


def _is_one(value: object, loc: Loc) -> bool:
    return _is_number(value) or is_value(number_of(value, loc))


def enter(here: Here, users: Sequence[str]) -> list[Variable]:
    """Gives each variable its value inside the loop; those that have none before are left."""
    found = []
    for user in users:
        bound = here.frame.names.get(user)
        if not isinstance(bound, Bound):
            continue
        values = values_in(bound.value)
        places = [""] if not _is_sequence(bound.value) else map(str, range(len(values)))
        parts = tuple(_entering(here, user, p, v, bound.loc) for p, v in zip(places, values))
        inside = alike(here, bound.value, (Var(p.name, p.init.type) for p in parts))
        here.frame.names[user] = Bound(inside, bound.loc)
        found.append(Variable(user, bound.value, parts))
    return found


def _entering(here: Here, user: str, place: str, value: object, loc: Loc) -> Entering:
    init = as_expr(value, loc)
    if isinstance(init, Const):  # no weak number: its dtype is that of the carry
        init = Const(init.value, init.type)
    name, said = (f"{user}_{place}", f"{user}[{place}]") if place else (user, user)
    return Entering(name, said, here.draft.unique(name), init, _is_number(value))


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float | np.generic)


def _uncarried(user: str, value: object, line: int) -> Missing:
    hint = f"begin with a number or a value, such as {user} = hl.zeros([...])"
    if _is_sequence(value):
        hint = "carry what is a value in a variable of its own: not all of it is"
    if isinstance(value, TensorHandle):
        hint = f"a tensor is changed by a store: {value.tensor.name}[index] = value"
        if value.tensor.role == "output" and value.tensor.fill is None:
            hint += f"; a value begins as {user} = hl.zeros([...])"
    what = f"{user} is {kind_of(value)} before the loop of line {line}, which changes it"
    return Missing(what, hint)


def leave(here: Here, variables: Sequence[Variable], loc: Loc) -> tuple[Carry, ...]:
    """The loop's carries; the variables now have their values after it."""
    made = []
    for variable in variables:
        bound = here.frame.names[variable.user]
        if isinstance(bound, Missing):
            raise ParseError(bound.what, loc, bound.hint)
        outs = []
        for entry, left in zip(variable.parts, _left(variable, bound), strict=True):
            kept = _next(entry, Bound(left, bound.loc))
            out = here.draft.unique(entry.user)
            made.append(Carry(entry.name, entry.init, kept, out, entry.user, bound.loc, entry.said))
            here.draft.inits[out] = entry.init, here.condition
            outs.append(Var(out, entry.init.type))
        after = alike(here, variable.before, iter(outs))
        here.frame.names[variable.user] = Bound(after, bound.loc)
    return tuple(made)


def _left(variable: Variable, bound: Bound) -> list[object]:
    """What the body leaves in the places of what was there before."""
    before, after = variable.before, bound.value
    if not _is_sequence(before):
        return [after]
    if form(before) != form(after):
        what = f"carried value {variable.user} changes from {_shown(before)} to {_shown(after)}"
        hint = "it must stay as many values, in the same tuples or lists"
        raise TypingError(what, bound.loc, hint)
    return values_in(after)


def _shown(value: object) -> str:
    held = f" of {counted(len(values_in(value)), 'value')}" if _is_sequence(value) else ""
    return kind_of(value) + held


def form(value: object) -> object:
    """How the tuples and lists lie in each other."""
    return (type(value), *map(form, value)) if _is_sequence(value) else None


def _next(entry: Entering, bound: Bound) -> Expr:
    """What the body leaves; its type is what it was."""
    kind = entry.init.type
    if not _is_one(bound.value, bound.loc):
        what = f"carried value {entry.said} changes from {kind} to {kind_of(bound.value)}"
        raise TypingError(what, bound.loc, "it must stay a value of one shape and dtype")
    after = as_expr(bound.value, bound.loc)
    if isinstance(after, Const) and after.weak and not kind.rank and _fits(after, kind.dtype):
        return Const(const(after.value, like=kind.dtype).value, kind)
    if after.type != kind:
        what = f"carried value {entry.said} changes from {kind} to {after.type}"
        raise TypingError(what, bound.loc, _hint(entry, after.type))
    return after


def _fits(number: Const, dtype: str) -> bool:
    if number.type.dtype == "bool" or dtype == "bool":
        return number.type.dtype == dtype
    return is_float(dtype) or not is_float(number.type.dtype)


def _hint(entry: Entering, after: Type) -> str:
    user, kind = entry.said, entry.init.type
    value = entry.init.value if isinstance(entry.init, Const) else 0
    if entry.number and after.rank:
        shape = ", ".join(map(str, after.shape))
        shown = f"float('{value}')" if value in (np.inf, -np.inf) else value
        return f"begin with its shape: {user} = hl.full([{shape}], {shown}, dtype=hl.{after.dtype})"
    if entry.number and is_float(after.dtype):
        return f"begin with a float: {user} = {float(value)}"
    if after.shape == kind.shape:
        return f"keep the dtype: {user} = (...).to(hl.{kind.dtype})"
    kept = "a carried value keeps its shape"
    pairs = list(zip(kind.shape, after.shape, strict=False))
    if after.rank == kind.rank and all(a == b or isinstance(b, str) for a, b in pairs):
        part = ", ".join(":" if a == b else str(b) for a, b in pairs)
        return f"{kept}; what a tile has is stored: {user}[{part}] = ..."
    return kept


def forget(here: Here, node: ast.For, targets: Sequence[str], kept: Sequence[str]) -> None:
    """After a loop its own variables are gone; a launch leaves none at all.

    `kept` are the variables that the loop carries.
    """
    line, names = node.lineno, here.frame.names
    stored = "store it to an output in the loop: a launch leaves nothing but tensors"
    for user in here.frame.live.assigned[node]:
        if user not in kept:
            names[user] = Missing(
                f"{user} is first assigned in the loop of line {line}, and is read after it",
                f"give {user} a value before the loop" if here.loops else stored,
            )
        elif not here.loops:
            names[user] = Missing(
                f"{user} is computed by the loop of line {line}, and is read outside of it", stored
            )
    for user in targets:
        names[user] = Missing(
            f"{user} belongs to the loop of line {line}, and is read after it",
            "a tile or an index has no value outside of its loop",
        )
