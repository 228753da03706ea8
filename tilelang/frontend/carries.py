"""Values that a loop changes: what they are on entry, what the body makes of them, and after it.

acc = hl.zeros([tm])                  acc
for tk in hl.tile(K):                 Loop tk, Carry(name="acc_1", init=acc, next=acc_2,
    acc = acc + x[tm, tk].sum(1)                     out="acc_3"):  acc_2 = acc_1 + ...
y[tm] = acc                           y[tm] = acc_3
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..errors import Loc, ParseError, TypingError
from ..ir import Carry, Const, Expr, Tensor, Type, Var, every_store
from ..language.build import full
from ..language.dtypes import is_float
from ..language.handles import TensorHandle
from ..language.values import as_expr, const, number_of
from .hosting import is_value, kind_of
from .scope import Bound, Here, Missing


@dataclass(frozen=True)
class Entering:
    """A carried variable on entry of a loop; `number`: it was a Python number before."""

    user: str
    name: str
    init: Expr
    number: bool


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
        match here.frame.names.get(user):
            case Bound(TensorHandle(Tensor(role="output", fill=fill) as made), loc):
                if fill is not None and made.name not in stored:
                    value = full(made.shape, fill, made.dtype, loc)
                    here.frame.names[user] = Bound(value, loc)
            case _:
                pass  # what has a value, or is no output


def refused(here: Here, users: Sequence[str], line: int) -> dict[str, Missing]:
    """Of those variables the ones that no loop can carry: what they are instead of a value."""
    bound = {u: b for u in users if isinstance(b := here.frame.names.get(u), Bound)}
    return {u: _uncarried(u, b.value, line) for u, b in bound.items() if not _is_carried(b)}


def _is_carried(bound: Bound) -> bool:
    return _is_number(bound.value) or is_value(number_of(bound.value, bound.loc))


def enter(here: Here, users: Sequence[str]) -> list[Entering]:
    """Gives each variable its value inside the loop; those that have none before are left."""
    found = []
    for user in users:
        bound = here.frame.names.get(user)
        if not isinstance(bound, Bound):
            continue
        init = as_expr(bound.value, bound.loc)
        if isinstance(init, Const):  # no weak number: its dtype is that of the carry
            init = Const(init.value, init.type)
        entry = Entering(user, here.draft.unique(user), init, _is_number(bound.value))
        here.frame.names[user] = Bound(Var(entry.name, init.type), bound.loc)
        found.append(entry)
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, bool | int | float | np.generic)


def _uncarried(user: str, value: object, line: int) -> Missing:
    hint = f"begin with a number or a value, such as {user} = hl.zeros([...])"
    if isinstance(value, tuple | list):
        hint = "carry its items one by one, each in a variable of its own"
    if isinstance(value, TensorHandle):
        hint = f"a tensor is changed by a store: {value.tensor.name}[index] = value"
        if value.tensor.role == "output" and value.tensor.fill is None:
            hint += f"; a value begins as {user} = hl.zeros([...])"
    what = f"{user} is {kind_of(value)} before the loop of line {line}, which changes it"
    return Missing(what, hint)


def leave(here: Here, entries: Sequence[Entering], loc: Loc) -> tuple[Carry, ...]:
    """The loop's carries; the variables now have their values after it."""
    made = []
    for entry in entries:
        bound = here.frame.names[entry.user]
        if isinstance(bound, Missing):
            raise ParseError(bound.what, loc, bound.hint)
        after = _next(entry, bound)
        out = here.draft.unique(entry.user)
        made.append(Carry(entry.name, entry.init, after, out, entry.user, bound.loc))
        here.draft.inits[out] = entry.init, here.condition
        here.frame.names[entry.user] = Bound(Var(out, entry.init.type), bound.loc)
    return tuple(made)


def _next(entry: Entering, bound: Bound) -> Expr:
    """What the body leaves; its type is what it was."""
    kind = entry.init.type
    if not _is_carried(bound):
        what = f"carried value {entry.user} changes from {kind} to {kind_of(bound.value)}"
        raise TypingError(what, bound.loc, "it must stay a value of one shape and dtype")
    after = as_expr(bound.value, bound.loc)
    if isinstance(after, Const) and after.weak and not kind.rank and _fits(after, kind.dtype):
        return Const(const(after.value, like=kind.dtype).value, kind)
    if after.type != kind:
        what = f"carried value {entry.user} changes from {kind} to {after.type}"
        raise TypingError(what, bound.loc, _hint(entry, after.type))
    return after


def _fits(number: Const, dtype: str) -> bool:
    if number.type.dtype == "bool" or dtype == "bool":
        return number.type.dtype == dtype
    return is_float(dtype) or not is_float(number.type.dtype)


def _hint(entry: Entering, after: Type) -> str:
    user, kind = entry.user, entry.init.type
    value = entry.init.value if isinstance(entry.init, Const) else 0
    if entry.number and after.rank:
        shape = ", ".join(map(str, after.shape))
        shown = f"float('{value}')" if value in (np.inf, -np.inf) else value
        return f"begin with its shape: {user} = hl.full([{shape}], {shown}, dtype=hl.{after.dtype})"
    if entry.number and is_float(after.dtype):
        return f"begin with a float: {user} = {float(value)}"
    if after.shape == kind.shape:
        return f"keep the dtype: {user} = (...).to(hl.{kind.dtype})"
    return "a carried value keeps its shape"


def forget(here: Here, node: ast.For, targets: Sequence[str], kept: Sequence[str]) -> None:
    """After a loop its own variables are gone; a launch leaves none at all.

    `kept` are the variables that the loop carries.
    """
    line, names = node.lineno, here.frame.names
    for user in here.frame.live.assigned[node]:
        if user not in kept:
            names[user] = Missing(
                f"{user} is first assigned in the loop of line {line}, and is read after it",
                f"give {user} a value before the loop",
            )
        elif not here.loops:
            names[user] = Missing(
                f"{user} is computed by the loop of line {line}, and is read outside of it",
                "store it to an output in the loop: a launch leaves nothing but tensors",
            )
    for user in targets:
        names[user] = Missing(
            f"{user} belongs to the loop of line {line}, and is read after it",
            "a tile or an index has no value outside of its loop",
        )
