"""Ways to forget a read, planted in the compiler: each must fail one of the cases."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from tilelang import reads
from tilelang.frontend import calls, inlining, observed, source
from tilelang.runtime import choices


@dataclass(frozen=True)
class Planted:
    """A wrong compiler: `value` instead of `owner.name`; `case` and `place` notice it."""

    what: str
    owner: Any
    name: str
    value: Any
    case: str
    place: str = "kernel"

    def __str__(self) -> str:
        return self.what


def _forget(kind: type) -> Callable[..., Any]:
    """Steps of a kind are given a stamp that always fits, so that nothing they give counts."""
    real = observed.Log.add

    def add(self: observed.Log, step: reads.Step, value: Any) -> Any:
        return value if isinstance(step, kind) else real(self, step, value)

    return add


def _unaliased(self: observed.Log, read: reads.Stamped) -> int:
    alias = isinstance(read.step, reads.Identical)
    self.reads.append(replace(read, step=reads.Identical(0, 0)) if alias else read)
    return self.roots + len(self.reads) - 1


def _by_type(value: Any) -> Any:
    made = reads.stamp(value)
    return value.__class__ if isinstance(value, float | int) else made


_LOG = observed.Log
BUGS = (
    Planted("attributes are read unseen", observed, "attribute", getattr, "property"),
    Planted("items are read unseen", observed, "item", operator.getitem, "item of a dict"),
    Planted("calls are computed once", observed, "call", lambda fn, *a, **k: fn(*a, **k),
            "torch tensor"),
    Planted("globals are not written down", _LOG, "add", _forget(reads.Global), "global", "helper"),
    Planted("cells are not written down", _LOG, "add", _forget(reads.Cell), "inlined closure"),
    Planted("a loop over a list is not written down", _LOG, "add", _forget(reads.Items),
            "items of a list"),
    Planted("two names of one object stay one", _LOG, "_append", _unaliased,
            "one object by two names"),
    Planted("defaults of decoration time", inlining, "_defaults",
            lambda fn, node: {"v": 1, "w": 2, "k": 2}, "inlined defaults"),
    Planted("classes of lists are taken as they are", observed, "plain", observed.whole,
            "inlined shape of a class of lists"),
    Planted("items that a list takes over are not read", calls, "consumed",
            lambda loc, owner, value: value, "list that is extended by one"),
    Planted("numbers count by their type", choices, "stamp", _by_type, "attribute"),
)  # fmt: skip

UNVERIFIED = Planted("any text is taken for the function's", source, "is_of",
                     lambda fn, node: True, "")  # fmt: skip
