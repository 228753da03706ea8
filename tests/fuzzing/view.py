"""View: an array in another form, as data: what it holds, how it is written, how it is indexed.

v = x.T                                       x[t, c]      is  v[c, t]
v = x.reshape(x.shape[0] * x.shape[1], 8)     x[g, t, c]   is  v[g * x.shape[1] + t.index, c]
v = x.reshape(x.shape[0] // 2, 2, 8)          x[g, c]      is  v[g // 2, g % 2, c]
v = x.reshape(x.shape[0], x.shape[1] // 8, 8)     the 8 columns of x from h * 8 on are v[t, h, :]
v = x.unsqueeze(0)                            x[t, c]      is  v[0, t, c]

What a program means says nothing of views: they are how its text reads the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Literal

import numpy as np

Part = tuple[str, int]  # a dimension of a value: an axis, and 0, or which half of a split one


@dataclass(frozen=True)
class Step:
    """One thing that is done to an array.

    "permute": dimension n is the one of arg[n].  "new": one of length 1 at arg[0].
    "join": those at arg[0] and behind it are one.  "split": the one at arg[0] has rows of arg[1].
    """

    how: Literal["permute", "new", "join", "split"]
    arg: tuple[int, ...]


@dataclass(frozen=True)
class Length:
    """How long a dimension is, in numbers and as an author writes it."""

    size: int
    text: str


@dataclass(frozen=True)
class Place:
    """How one dimension is indexed.

    text   as it is written; `lanes` where numbers are computed of it, "" if none can be
    parts  the dimensions that a value has of it: none of a scalar
    whole  it is taken as a whole
    row    of positions that are one of several rows side by side; `text` is "" if they are written
           in no other way
    """

    text: str
    lanes: str
    parts: tuple[Part, ...] = ()
    whole: bool = False
    row: Row | None = None


@dataclass(frozen=True)
class Row:
    """`size` positions, or a tile of them, from a number on: heads that lie in columns.

    terms  numbers as they are written, each with its factor, and `shift`: where they begin
    inner  how the positions are indexed from there on
    """

    size: int
    terms: tuple[tuple[str, int], ...]
    shift: int
    inner: Place

    def number(self, rows: int) -> str:
        """Which row of so many positions they are; ValueError if they are none."""
        if self.size != rows or any(n % rows for n in (self.shift, *(f for _, f in self.terms))):
            raise ValueError(f"not a row of {rows}")
        first, found = self.shift // rows, ""
        for text, factor in self.terms:
            times = f" * {abs(factor // rows)}" if abs(factor) != rows else ""
            found += f" {'-' if factor < 0 else '+'} {text}{times}"
        if found.startswith(" + "):
            return found[3:] + (f" + {first}" if first else "")
        return f"{first}{found}"


@dataclass(frozen=True)
class View:
    """Another form of an array.

    returned  in the place of the array, which was stored to, or beside it
    """

    name: str
    tensor: str
    steps: tuple[Step, ...]
    returned: Literal["", "alone", "beside"] = ""

    def array(self, source: np.ndarray) -> np.ndarray:
        """The elements; ValueError if there is no such view."""
        return reduce(_turned, self.steps, source)

    def shape(self, source: tuple[int, ...]) -> tuple[int, ...]:
        return self.array(np.empty(source, bool)).shape

    def source(self, shape: tuple[int, ...]) -> str:
        """The line that makes it."""
        lengths, text = shape_of(self.tensor, shape), self.tensor
        for step in self.steps:
            lengths = _lengths(step, lengths)
            text = _written(step, lengths, text)
        return f"{self.name} = {text}"

    def index(self, places: Sequence[Place], shape: tuple[int, ...]) -> list[Place]:
        """The index of the same elements; ValueError where there is none that can be written."""
        lengths, found = shape_of(self.tensor, shape), list(places)
        for step in self.steps:
            found = _moved(step, found, lengths)
            lengths = _lengths(step, lengths)
        return found


def shape_of(name: str, shape: tuple[int, ...]) -> list[Length]:
    """The lengths of an array as an author writes them."""
    return [Length(size, f"{name}.shape[{dim}]") for dim, size in enumerate(shape)]


def _turned(array: np.ndarray, step: Step) -> np.ndarray:
    shape, place = array.shape, step.arg[0]
    match step.how:
        case "permute":
            return array.transpose(step.arg)
        case "new":
            return np.expand_dims(array, place)
        case "join":
            both = shape[place] * shape[place + 1]
            return array.reshape(*shape[:place], both, *shape[place + 2 :])
        case "split":
            rows, rest = divmod(shape[place], step.arg[1])
            if rest:
                raise ValueError(f"{shape[place]} has no rows of {step.arg[1]}")
            return array.reshape(*shape[:place], rows, step.arg[1], *shape[place + 1 :])


def _lengths(step: Step, old: list[Length]) -> list[Length]:
    place = step.arg[0]
    match step.how:
        case "permute":
            return [old[n] for n in step.arg]
        case "new":
            return [*old[:place], Length(1, "1"), *old[place:]]
        case "join":
            one, two = old[place : place + 2]
            both = Length(one.size * two.size, f"{_factor(one)} * {_factor(two)}")
            return [*old[:place], both, *old[place + 2 :]]
        case "split":
            whole, rows = old[place], step.arg[1]
            if whole.size % rows:
                raise ValueError(f"{whole.size} has no rows of {rows}")
            many = Length(whole.size // rows, f"{_factor(whole)} // {rows}")
            return [*old[:place], many, Length(rows, str(rows)), *old[place + 1 :]]


def _factor(length: Length) -> str:
    return f"({length.text})" if "//" in length.text else length.text


def _written(step: Step, lengths: list[Length], text: str) -> str:
    """The text of an array of which one step more is taken; `lengths` are those of the result."""
    match step.how:
        case "permute" if step.arg == (1, 0):
            return f"{text}.T"
        case "permute":
            return f"hl.permute({text}, {step.arg})"
        case "new":
            return f"{text}.unsqueeze({step.arg[0]})"
        case "join" | "split":
            return f"{text}.reshape({', '.join(n.text for n in lengths)})"


def _moved(step: Step, old: list[Place], lengths: list[Length]) -> list[Place]:
    place = step.arg[0]
    match step.how:
        case "permute":
            return [old[n] for n in step.arg]
        case "new":
            return [*old[:place], Place("0", "0"), *old[place:]]
        case "join":
            both = _joined(*old[place : place + 2], lengths[place + 1])
            return [*old[:place], both, *old[place + 2 :]]
        case "split":
            return [*old[:place], *_split(old[place], step.arg[1]), *old[place + 1 :]]


def _joined(outer: Place, inner: Place, length: Length) -> Place:
    """Both are whole, or one of them is a number, and the other may be a tile."""
    if outer.whole and inner.whole:
        return Place(":", "", (*outer.parts, *inner.parts), True)
    parts = (*outer.parts, *inner.parts)
    if not (outer.lanes and inner.lanes) or len(parts) > 1:
        raise ValueError("a part of rows that lie side by side")
    text = f"{_in_brackets(outer.lanes)} * {_factor(length)} + {inner.lanes}"
    return Place(text, text, parts)


def _split(place: Place, rows: int) -> tuple[Place, Place]:
    if place.whole and len(place.parts) == 1:
        ((axis, _),) = place.parts
        return Place(":", "", ((axis, 1),), True), Place(":", "", ((axis, 2),), True)
    if place.row is not None:
        number = place.row.number(rows)
        return Place(number, number), place.row.inner
    if place.parts:
        raise ValueError("a tile is no tile of rows")
    one, two = (f"{_in_brackets(place.text)} {op} {rows}" for op in ("//", "%"))
    return Place(one, one), Place(two, two)


def _in_brackets(text: str) -> str:
    return f"({text})" if " " in text else text


def merged(parts: Sequence[Part]) -> tuple[str, ...]:
    """The axes of a value with these dimensions, halves as one; ValueError if they lie apart."""
    found: list[str] = []
    for place, (axis, half) in enumerate(parts):
        if half == 2 and (not place or parts[place - 1] != (axis, 1)):
            raise ValueError(f"the halves of {axis} lie apart")
        if half == 1 and parts[place + 1 : place + 2] != ((axis, 2),):
            raise ValueError(f"the halves of {axis} lie apart")
        found += [axis] if half != 2 else []
    return tuple(found)
