"""entry_for(...) -> Entry: how a call with arguments of some types is found again.

What a specialisation is found by is written once, as text, from what `tensors.FIELDS` says of each
home: `Entry.key` and `Entry.call` are made of that text, so that a later call cannot be found by
less than what the specialisation was made for.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from ..reads import stamp
from .tensors import FIELDS, home_of, shape_key
from .written import Flat, function, listed, local

Types = tuple[type, ...]
Key = tuple[Hashable, ...]
Call = Callable[[tuple, Any, Any], Any]  # values, config, target
CHOSEN = ("_config", "_target", "_token()")  # what is part of a key besides the arguments
KNOWN = {"_stamp": stamp, "_shape": shape_key}


@dataclass(frozen=True, eq=False)
class Entry:
    """Calls whose arguments have some types.

    key    (values, config, target) -> what a specialisation is found by
    later  key -> what a later call runs, a function of the arguments
    call   a call: by `later`, or else in full; what has other types is none of this entry's
    """

    key: Callable[[tuple, Any, Any], Key]
    later: dict[Key, Callable[..., Any]]
    call: Call


def entry_for(
    kernel: str,
    names: Sequence[str],
    types: Types,
    token: Callable[[], str],
    in_full: Call,
    by_types: Call,
) -> Entry:
    """The entry; `token` is part of the key, and `in_full` finds or makes what is not known."""
    parameters = [local(name) for name in names]
    unpacked = f"{listed(parameters)} = _values"
    whole = f"({', '.join((*CHOSEN, *_parts(parameters, types)))},)"
    names_of = {**KNOWN, **_kinds(types), "_token": token, "_type": type}
    given, later = ("_values", "_config", "_target"), dict[Key, Callable[..., Any]]()
    finds = {**names_of, "_later": later, "_in_full": in_full, "_by_types": by_types}
    alike = " and ".join(f"_type({p}) is _kind_{n}" for n, p in enumerate(parameters)) or "True"
    lines = (
        unpacked,
        f"if not ({alike}):",
        "    return _by_types(_values, _config, _target)",
        "try:",
        f"    _call = _later.get({whole})",
        "except Exception:",  # what no key is made of: in full says which
        "    _call = None",
        "if _call is not None:",
        f"    return _call({', '.join(parameters)})",
        "return _in_full(_values, _config, _target)",
    )
    return Entry(
        function(f"key_of_{kernel}", given, Flat((), (unpacked, f"return {whole}"), names_of)),
        later,
        function(f"call_{kernel}", given, Flat((), lines, finds)),
    )


@cache
def key_of(types: Types) -> Callable[..., Key]:
    """What is found by arguments alone: a function of arguments of these types."""
    parameters = [f"x{n}" for n in range(len(types))]
    lines = (f"return ({', '.join(_parts(parameters, types))},)",)
    return function("key_of_arguments", parameters, Flat((), lines, {**KNOWN, **_kinds(types)}))


def _parts(parameters: Sequence[str], types: Types) -> Iterator[str]:
    for n, (parameter, kind) in enumerate(zip(parameters, types, strict=True)):
        home = home_of(kind)
        yield from _alike(n, kind)
        fields = ("_stamp({0})",) if home is None else FIELDS[home]
        yield from (field.format(parameter) for field in fields)


def _alike(n: int, kind: type) -> Iterator[str]:
    """What types have in common that are specialised alike."""
    home = home_of(kind)
    if home == "numpy" and kind is not np.ndarray:
        yield f"_kind_{n}"  # a masked array is none that kernels take
    elif home is not None:
        yield repr(home)


def _kinds(types: Types) -> dict[str, Any]:
    return {f"_kind_{n}": kind for n, kind in enumerate(types)}
