"""shown(total) -> Show: says how each trial ended, while others run; by rich where it can."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from .trials import Trial, row

Show = Callable[[Trial], None]


@contextmanager
def shown(total: int | None, wanted: bool | None) -> Iterator[Show]:
    """`wanted` None: if somebody looks at a terminal; `total` None: it is not known."""
    terminal = sys.stderr.isatty()
    if wanted is False or (wanted is None and not terminal):
        yield lambda trial: None
    elif terminal and importlib.util.find_spec("rich") is not None:
        with _rich(total) as show:
            yield show
    else:
        yield _plain(total)


def _plain(total: int | None) -> Show:
    done = [0]
    of = "" if total is None else f"/{total}"

    def show(trial: Trial) -> None:
        done[0] += 1
        print(f"[{done[0]}{of}] {row(trial)}", file=sys.stderr, flush=True)

    return show


@contextmanager
def _rich(total: int | None) -> Iterator[Show]:
    progress: Any = importlib.import_module("rich.progress")
    console: Any = importlib.import_module("rich.console").Console(stderr=True)
    with progress.Progress(console=console, transient=True) as bar:
        task = bar.add_task("configs", total=total)

        def show(trial: Trial) -> None:
            bar.console.print(row(trial), markup=False, highlight=False)
            bar.advance(task)

        yield show
