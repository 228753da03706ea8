"""Tuples, lists, dicts and comprehensions: host values that may hold values of the kernel."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from ..errors import Loc, ParseError
from . import observed
from .hosting import counted, holds_value, iterated, kind_of, on_device, really, truth
from .scope import Frame, Here, Rules, bind, evaluate, variable


def items(here: Here, nodes: list[ast.expr]) -> Iterator[object]:
    """The values of a sequence of expressions, of which some may be starred."""
    for node in nodes:
        if isinstance(node, ast.Starred):
            yield from iterated(here.loc(node.value), evaluate(here, node.value))
        else:
            yield evaluate(here, node)


def tuple_(here: Here, node: ast.Tuple) -> object:
    return tuple(items(here, node.elts))


def list_(here: Here, node: ast.List) -> object:
    return own(here, list(items(here, node.elts)))


def set_(here: Here, node: ast.Set) -> object:
    return _set(here, node, list(items(here, node.elts)))


def dict_(here: Here, node: ast.Dict) -> object:
    made: dict[Any, object] = {}
    for key, value in zip(node.keys, node.values, strict=True):
        if key is None:
            made.update(mapping(here.loc(value), evaluate(here, value)))
        else:
            name = evaluate(here, key)
            check_comparable(here.loc(key), name)
            really(here.loc(key), made.__setitem__, name, evaluate(here, value))
    return own(here, made)


def mapping(loc: Loc, value: object) -> dict[Any, Any]:
    """What `**value` stands for."""
    return observed.whole(really(loc, dict, value))


def consumed(loc: Loc, owner: object, value: object) -> object:
    """What a container of the kernel's takes its items from, each of which is read."""
    if isinstance(owner, dict) and hasattr(value, "keys"):
        return mapping(loc, value)
    return observed.listed(value)


def keywords(here: Here, nodes: list[ast.keyword]) -> dict[str, Any]:
    """The values of a call's keyword arguments."""
    found: dict[str, Any] = {}
    for node in nodes:
        value = evaluate(here, node.value)
        if node.arg is None:
            found.update(mapping(here.loc(node.value), value))
        else:
            found[node.arg] = value
    return found


def slice_(here: Here, node: ast.Slice) -> object:
    parts = (node.lower, node.upper, node.step)
    return slice(*(None if part is None else evaluate(here, part) for part in parts))


# ---------------------------------------------------------------- what may change


def own(here: Here, made: Any) -> Any:
    """Remembers in which loops a list or dict was made: only there may it change."""
    here.draft.made[id(made)] = (made, (here.loops, here.condition))
    return made


def check_mutable(here: Here, value: object, loc: Loc) -> None:
    """A list that was made around a loop, or outside of the kernel, is not changed in it."""
    made, place = here.draft.made.get(id(value), (None, None))
    if made is not value:
        hint = f"copy it first: {type(value).__name__}(...)"
        raise ParseError(f"{kind_of(value)} from outside of the kernel is changed", loc, hint)
    if place != (here.loops, here.condition):
        what = f"{kind_of(value)} that was made outside of this loop or `if` is changed"
        hint = "give its name another, v = [...]: a loop carries that, and no change of a list"
        raise ParseError(what, loc, hint)


def check_comparable(loc: Loc, *values: object) -> None:
    """Containers find things by comparing them, which of values of the kernel has no answer yet."""
    if any(map(holds_value, values)):
        what = "a container compares values of the kernel, to find one of them"
        hint = "values are not known while compiling: find things by numbers or names"
        raise ParseError(what, loc, hint)


# ---------------------------------------------------------------- comprehensions


def listed(here: Here, node: ast.ListComp | ast.GeneratorExp) -> object:
    """A list; a generator is one too, since there is nothing to be lazy about."""
    return own(here, _each(here, node.generators, lambda inner: evaluate(inner, node.elt)))


def set_listed(here: Here, node: ast.SetComp) -> object:
    return _set(here, node, _each(here, node.generators, lambda h: evaluate(h, node.elt)))


def _set(here: Here, node: ast.expr, found: list[object]) -> object:
    check_comparable(here.loc(node), found)
    return own(here, really(here.loc(node), set, found))


def dict_listed(here: Here, node: ast.DictComp) -> object:
    def pair(inner: Here) -> object:
        key = evaluate(inner, node.key)
        check_comparable(here.loc(node.key), key)
        return key, evaluate(inner, node.value)

    return own(here, really(here.loc(node), dict, _each(here, node.generators, pair)))


def _each(
    here: Here, generators: list[ast.comprehension], element: Callable[[Here], object]
) -> list[object]:
    """The elements; all items share one set of variables, as in Python."""
    nodes = (n for g in generators for n in ast.walk(g.target))
    targets = frozenset(n.id for n in nodes if isinstance(n, ast.Name))
    outer = partial(variable, here.frame)
    frame = Frame(here.frame.source, {}, targets, {}, outer, here.frame.live)
    return list(_elements(here, replace(here, frame=frame), generators, element))


def _elements(
    around: Here, here: Here, generators: list[ast.comprehension], element: Callable[[Here], object]
) -> Iterator[object]:
    """The first iterable is evaluated outside of the comprehension, the others in it."""
    first, *rest = generators
    for item in iterated(here.loc(first.iter), evaluate(around, first.iter)):
        unpack(here, first.target, item)
        if all(_kept(here, test) for test in first.ifs):
            yield from _elements(here, here, rest, element) if rest else [element(here)]


def _kept(here: Here, test: ast.expr) -> bool:
    answer = truth(here.loc(test), evaluate(here, test), "a comprehension")
    if not isinstance(answer, bool):
        what = "a comprehension has a condition that is not known while compiling"
        hint = "the length of a list is known while compiling; hl.where chooses elements"
        raise ParseError(what, here.loc(test), hint)
    return answer


# ---------------------------------------------------------------- unpacking


def unpack(here: Here, target: ast.expr, value: object) -> None:
    """Assigns to a name or, item by item, to a tuple of them."""
    if isinstance(target, ast.Name):
        bind(here, target.id, value, here.loc(target))
    elif isinstance(target, ast.Tuple | ast.List):
        for place, item in spread(here, target, value):
            unpack(here, place, item)
    else:
        hint = "assign to names, or to an element of a tensor"
        raise ParseError("this cannot be assigned to", here.loc(target), hint)


def spread(
    here: Here, target: ast.Tuple | ast.List, value: object
) -> list[tuple[ast.expr, object]]:
    """Each of the targets with its value; one may be starred."""
    found = iterated(here.loc(target), value)
    places = [t.value if isinstance(t, ast.Starred) else t for t in target.elts]
    stars = [i for i, t in enumerate(target.elts) if isinstance(t, ast.Starred)]
    wanted = len(places)
    if len(found) != wanted and not (stars and len(found) >= wanted - 1):
        what = f"{counted(len(found), 'value')} for {counted(wanted, 'name')}"
        hint = "" if on_device(found) else f"what is taken apart is {tuple(found)}"
        raise ParseError(what, here.loc(target), hint)
    if stars:
        first, stop = stars[0], len(found) - (wanted - 1 - stars[0])
        found = [*found[:first], own(here, found[first:stop]), *found[stop:]]
    return list(zip(places, found, strict=True))


RULES: Rules = {
    ast.Tuple: tuple_,
    ast.List: list_,
    ast.Set: set_,
    ast.Dict: dict_,
    ast.Slice: slice_,
    ast.ListComp: listed,
    ast.GeneratorExp: listed,
    ast.SetComp: set_listed,
    ast.DictComp: dict_listed,
}
