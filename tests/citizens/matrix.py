"""rows(subjects, cells) -> Row...: every cell is right, refused with words, or without a question.

`python -m tests.citizens` prints the matrix; tests ask for a share of its cells.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from tests.citizens import of_jax, of_torch
from tests.citizens.question import Question, question
from tests.subjects import Subject
from tilelang.errors import TileError

Verdict = Literal["right", "refused", "none", "WRONG"]
Ask = Callable[[Question], str]
NEEDS_GRADIENTS = frozenset(
    {
        "jax grad", "jax checkpoint", "jax vjp", "jax jvp", "jax vmap(grad)", "jax grad(vmap)",
        "torch backward", "torch func.grad",
    }
)  # fmt: skip
CELLS: Mapping[str, Ask] = {
    **{f"jax {name}": ask for name, ask in of_jax.CELLS.items()},
    **{f"torch {name}": ask for name, ask in of_torch.CELLS.items()},
}


@dataclass(frozen=True)
class Cell:
    """What became of one question; `words` are those of a refusal, or what is wrong."""

    name: str
    verdict: Verdict
    words: str = ""
    seconds: float = 0.0


@dataclass(frozen=True)
class Row:
    """An example, and what became of everything that was asked of it."""

    example: str
    cells: tuple[Cell, ...]


def answered(name: str, asked: Question) -> Cell:
    """One cell."""
    if name in NEEDS_GRADIENTS and not asked.floats:
        return Cell(name, "none", "no argument has a gradient")
    start = time.process_time()
    verdict, words = _verdict(CELLS[name], asked)
    return Cell(name, verdict, words, time.process_time() - start)


def _verdict(ask: Ask, asked: Question) -> tuple[Verdict, str]:
    try:
        wrong = ask(asked)
    except TileError as refusal:
        return _said(str(refusal))
    except Exception as error:  # whatever it is: it is no word of ours
        return _of_foreign(error)
    return ("WRONG", wrong) if wrong else ("right", "")


def _said(words: str) -> tuple[Verdict, str]:
    """A refusal says what to do; a fault of the compiler is none."""
    return ("WRONG" if words.startswith("internal error") else "refused"), words


def _of_foreign(error: Exception) -> tuple[Verdict, str]:
    """An error of the framework: a refusal of ours may be inside of it."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, TileError):
            return _said(str(inner))
        inner = inner.__cause__
    found = str(error).partition("CallError: ")[2]  # as XLA reports what a callback of ours raised
    if found:
        return _said(found)
    last = traceback.extract_tb(error.__traceback__)[-1]
    text = (str(error).splitlines() or [""])[0]
    return "WRONG", f"{type(error).__name__}: {text[:300]} ({last.filename}:{last.lineno})"


def row(subject: Subject, names: Sequence[str]) -> Row:
    """The cells of one example."""
    asked = question(subject)
    return Row(subject.name, tuple(answered(name, asked) for name in names))


def wrong(rows: Iterable[Row]) -> list[str]:
    """What is neither right nor refused."""
    return [
        f"{row.example}, {cell.name}: {cell.words}"
        for row in rows
        for cell in row.cells
        if cell.verdict == "WRONG"
    ]
