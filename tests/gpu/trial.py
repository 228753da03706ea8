"""python -m tests.gpu.trial [NAME]: a table of the planted bugs whose names contain NAME.

A text runs on adversarial layouts, with the rows of other groups hidden, and with wrong offsets
that nobody checked, while `memory.watched` looks on and runs programs in a random order: a store
that the owner of an element mends afterwards is a race.  Tables are made in chunks of two groups.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests.gpu import interpreter  # isort: skip  (before anything imports Triton)
from tests.gpu.memory import watched  # isort: skip
import tilelang as tile
from tests import checks
from tests.gpu.fuzz import CutOff, time_limit
from tests.gpu.planted import ALONE, BEFORE, BOXES, BUGS, DENSE, SPLIT
from tests.planted.bug import Bug
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS, Arrays, Subject
from tilelang.codegen.source import Source
from tilelang.codegen.triton.plan import worklist

SPACE = Space(45, 5, 16)
SECONDS = 240  # of this process's own time, for one text
SHOWN = 110  # characters of what a check says


class Watched:
    """A text that runs while its use of memory is looked at; `faults` of the last call."""

    def __init__(self, source: Source):
        self.host, self.faults, self.calls = interpreter.host(source), [], 0

    def __call__(self, *args: Any) -> Any:
        self.calls += 1
        with watched(self.calls) as found:
            self.faults = found
            return self.host(*args)


def printed(subject: Subject, form: str, *args: Any) -> Source:
    """The text of an example with small blocks, and what the form of a bug says."""
    own = {DENSE: {}, ALONE: {}, SPLIT: {"split": 3}, BOXES: {"indexing": "descriptor"}}
    asked: dict[str, Any] = own.get(form, {"worklist": form})
    blocks = {**subject.blocks, **({"tb": 1} if form == ALONE else {})}
    config = tile.Config(blocks, **({} if form == BEFORE else asked))
    target = "cuda:sm100" if form == BEFORE else interpreter.TARGET
    with mock.patch.object(worklist, "CHUNK", 2):
        return subject.kernel.lower(*args, config=config, target=target).source


def text_of(name: str, form: str) -> Source:
    """The text of an example that bugs of this form are planted into."""
    subject, arrays = _given(name)
    return printed(subject, form, *_arguments(subject, arrays))


def _given(name: str) -> tuple[Subject, Arrays]:
    subject = next(s for s in SUBJECTS if s.name == name)
    sizes = {"rows": SPACE.rows, "groups": SPACE.groups} if subject.ragged else {}
    return subject, subject.arrays("float32", **sizes)


def verdict(name: str, form: str, planted: Bug | None = None) -> str:
    """What a check says about a text, with a bug or without; "" if none says anything."""
    subject, arrays = _given(name)
    source = text_of(name, form)
    text = planted.plant(source.text) if planted else source.text
    try:
        with time_limit(SECONDS):
            said = _said(subject, arrays, Watched(Source(text, source.entry)))
            return next((one for one in said if one), "")
    except CutOff as cut:
        return f"time: cut off {cut}"
    except Exception as error:
        return f"crash: {type(error).__name__}: {error}"


def _arguments(subject: Subject, arrays: Arrays) -> tuple[Any, ...]:
    """A complete call, on any layout."""
    if subject.ragged is None:
        return subject.arguments(arrays)
    layout = every_stratum(subject.ragged.space(SPACE))[0]
    return (*arrays, *layout.tensors(subject.ragged.offsets), *subject.static)


def _said(subject: Subject, arrays: Arrays, run: Watched) -> Iterator[str]:
    """What each check says, the quick ones first."""
    if subject.ragged is None:
        args = subject.arguments(arrays)
        yield from _both("result", [checks.right(subject, run, args, "float32")], run)
        return
    space = subject.ragged.space(SPACE)
    layouts = every_stratum(space)
    for layout in layouts:
        found = checks.every_layout(subject, run, arrays, [layout], "float32")
        yield from _both("layout", found, run)
    yield from _both("neighbours", checks.neighbours(subject, run, arrays, layouts[-2:]), run)
    for offsets in wild_offsets(space).values():
        yield from _both("wild", checks.unchecked(subject, run, arrays, offsets), run, "outside")


def _both(check: str, found: Sequence[str], run: Watched, kind: str = "") -> Iterator[str]:
    """What is wrong with results, and what with memory; ranges of wrong offsets may overlap."""
    yield from (f"{check}: {one}" for one in found if one)
    yield from (f"memory, {check}: {one}" for one in run.faults if one.startswith(kind))


def main(argv: Sequence[str]) -> int:
    """Plants every bug and prints what caught it; 1 if one was not caught."""
    warnings.filterwarnings("ignore")
    chosen = [b for b in BUGS if not argv or argv[0] in str(b)]
    start, missed = time.perf_counter(), 0
    for planted in chosen:
        said = verdict(planted.subject, planted.form, planted)
        missed += not said
        print(f"{planted!s:<75} {' '.join(said.split())[:SHOWN] or 'NOT CAUGHT'}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(chosen)} bugs, {missed} not caught; {seconds:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
