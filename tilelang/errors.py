"""Loc and TileError: what is wrong, where in the user's file, and what to do."""

from __future__ import annotations

import difflib
import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Loc:
    """A place in the user's source; `line` is 1-based, `col` and `end_col` are 0-based."""

    filename: str
    line: int
    col: int
    end_col: int
    text: str  # the whole source line, so that a message needs no file access

    def caret(self) -> str:
        """The source line with the range underlined."""
        stripped = self.text.lstrip()
        indent = len(self.text) - len(stripped)
        start = max(self.col - indent, 0)
        width = max(min(self.end_col, len(self.text)) - self.col, 1)
        return f"    {stripped.rstrip()}\n    {' ' * start}{'^' * width}"

    def comment(self, room: int) -> str:
        """`# file.py:12: <source>`, in so many columns."""
        name = posixpath.basename(self.filename.replace("\\", "/"))
        text = f"# {name}:{self.line}: {self.text.strip()}"
        return text if len(text) <= room else text[: room - 3] + "..."


class TileError(Exception):
    """A kernel or a call that the language does not allow.

    `what` says what is wrong, `loc` where, `hint` what to write instead.
    """

    def __init__(self, what: str, loc: Loc | None = None, hint: str = "") -> None:
        self.what, self.loc, self.hint = what, loc, hint
        lines = [what]
        if loc is not None:
            lines += [f'  File "{loc.filename}", line {loc.line}', loc.caret()]
        if hint:
            lines.append(f"  hint: {hint}")
        super().__init__("\n".join(lines))


class ParseError(TileError):
    """The function uses something that is not in the language."""


class TypingError(TileError):
    """Shapes, axes or dtypes that do not fit together."""


class PlanError(TileError):
    """A config or a kernel that cannot be planned for the target, with the reason."""


class CompileError(TileError):
    """The TPU compiler refused a kernel, died of it, or took too long; `raw` is what it said."""

    def __init__(self, what: str, loc: Loc | None = None, hint: str = "", raw: str = "") -> None:
        self.raw = raw
        super().__init__(what, loc, hint)


class CallError(TileError, TypeError):
    """A call whose arguments do not fit the kernel."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The one of those known that may be meant; "" if none is alike."""
    return next(iter(difflib.get_close_matches(name, known, 1)), "")


def unknown_target(target: object, known: Iterable[str], called: Mapping[str, str]) -> PlanError:
    """The error for a target that is none, with the one that is meant: `called` is what else
    targets are called, by which name each.
    """
    names = {**{_letters(name): name for name in known}, **{_letters(n): called[n] for n in called}}
    given = _letters(str(target))
    alike = {names[n] for n in names if given and (given in n or n in given)}
    same = [n for n in names if _digits(n) and _digits(n) == _digits(given)]
    meant = names.get(given) or (min(alike) if len(alike) == 1 else names.get(nearest(given, same)))
    hint = f"use one of {', '.join(map(repr, known))}"
    hint = f"did you mean {meant!r}? {hint}" if meant else hint
    return PlanError(f"unknown target {target!r}", hint=hint)


def _letters(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


def stored_to_jax(name: str, loc: Loc | None) -> CallError:
    """A store to an argument that is a JAX array, whether the parser finds it or a later call."""
    return CallError(
        f"{name} is stored to, and JAX arrays cannot be changed",
        loc,
        f"store to a new output, hl.empty_like({name}), and return it",
    )


class RaggedValueError(TileError, ValueError):
    """Offsets or lengths whose values are out of range."""


class GradientError(TileError):
    """A kernel whose gradient cannot be derived; the hint names `@kernel.vjp`.

    `of` says what has none: the author's kernel, or what was derived of it.
    """

    def __init__(self, what: str, loc: Loc | None = None, hint: str = "", of: str = "") -> None:
        self.of = of
        super().__init__(what, loc, hint)


class InternalError(TileError):
    """A fault of the compiler that it found before it could do harm."""
