"""named(here, user, value, loc) -> the value as a variable holds it: computed once, under a name.

v = x[tm] * 2      Assign("v", mul(x[tm], 2)) and the variable holds Var("v")
a, b = pair        each of them; a name, a number or an index needs no Assign
"""

from __future__ import annotations

from typing import Any

from ..errors import Loc
from ..ir import Assign, Const, Expr, Var
from ..language.values import EXPRS
from .scope import LEAVES, Bound, Here


def bind(here: Here, user: str, value: object, loc: Loc) -> None:
    """Gives a variable a value."""
    here.frame.names[user] = Bound(named(here, user, value, loc), loc)


def named(here: Here, user: str, value: object, loc: Loc) -> object:
    """The value with every computed part of it assigned to a name of its own."""
    if isinstance(value, EXPRS):
        return assign(here, user, value, loc)
    if type(value) is list and any(isinstance(v, EXPRS) for v in value):
        for place, item in enumerate(value):
            value[place] = named(here, f"{user}_{place}", item, loc)
    elif isinstance(value, tuple) and any(isinstance(v, EXPRS) for v in value):
        return _rebuilt(value, [named(here, f"{user}_{i}", v, loc) for i, v in enumerate(value)])
    elif type(value) is dict:
        for key, item in value.items():
            whole = f"{user}_{key}" if str(key).isidentifier() else user
            value[key] = named(here, whole, item, loc)
    return value


def _rebuilt(value: tuple, items: list[object]) -> tuple:
    make = getattr(type(value), "_make", type(value))  # a named tuple keeps its class
    return make(items)


def assign(here: Here, user: str, value: Expr, loc: Loc) -> Expr:
    """Emits `user = value`, unless the value is a name already or this is host code."""
    if isinstance(value, LEAVES) or not here.loops:
        return value
    name = here.draft.unique(user)
    here.into.append(Assign(name, value, loc, user))
    here.draft.definitions[name] = value
    return Var(name, value.type)


def settled(value: Any) -> Any:
    """What a builder made as the kernel's code sees it: a weak number is a Python number."""
    if isinstance(value, Const) and value.weak:
        return value.value
    if isinstance(value, tuple):
        return _rebuilt(value, [settled(v) for v in value])
    return value
