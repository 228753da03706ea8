"""Choices: the specialisations of a kernel, found by reading again what each of them read.

Parsing is a function of what it reads.  So two specialisations that have read the same so far read
the same thing next, and all of them are a tree: a step, and for each stamp that it gave what
follows.  To find one is to take its steps once.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..reads import Stamped, Step, stamp

T = TypeVar("T")


@dataclass(frozen=True)
class _Chosen(Generic[T]):
    result: T


@dataclass(frozen=True)
class _Following(Generic[T]):
    """What follows a step, for each stamp that it gave."""

    step: Step
    branches: dict[Hashable, _Following[T] | _Chosen[T]] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices(Generic[T]):
    """Results by the key of a call and, behind that, by what is read."""

    roots: dict[Hashable, _Following[T] | _Chosen[T]] = field(default_factory=dict)

    def find(self, key: Hashable, values: Sequence[Any]) -> T | None:
        """The result whose reads still give what they gave; `values` are function and arguments.

        None too if a read fails: specialising says why.
        """
        node = self.roots.get(key)
        if type(node) is _Following:
            node = _follow(node, list(values))
        return node.result if isinstance(node, _Chosen) else None

    def add(self, key: Hashable, reads: Sequence[Stamped], result: T) -> None:
        """Files a result under its reads; not safe without a lock around it."""
        branches, place = self.roots, key
        for read in reads:
            node = branches.get(place)
            if not isinstance(node, _Following) or node.step != read.step:
                node = branches[place] = _Following(read.step)
            branches, place = node.branches, read.stamp
        branches[place] = _Chosen(result)


def _follow(node: _Following[T], values: list[Any]) -> _Following[T] | _Chosen[T] | None:
    found: _Following[T] | _Chosen[T] | None = node
    try:
        while type(found) is _Following:
            value = found.step.take(values)
            values.append(value)
            found = found.branches.get(stamp(value))
    except Exception:  # host code may raise anything
        return None
    return found
