"""show(rows): the table of a check, by rich where it is installed; failures in full below it."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Sequence
from typing import Any

from ..aot import Compiled, CudaCompiled
from ..errors import TileError
from .check import CheckRow

HEAD = ("kernel", "case")


def show(rows: Sequence[CheckRow]) -> None:
    """Prints the table and what went wrong."""
    head, body = table(rows)
    if importlib.util.find_spec("rich") is None:
        print(plain(head, body))
    else:
        _rich(head, body)
    for text in failures(rows):
        print(f"\n{text}")


def table(rows: Sequence[CheckRow]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """The head, and for each case a line: kernel, arguments, a cell per target."""
    targets = tuple(dict.fromkeys(row.target for row in rows))
    count = len(rows) // max(len(targets), 1)
    lines = []
    for number in range(count):
        same = rows[number::count]
        case = same[0].case
        lines.append((case.name, str(case), *(cell(row.result) for row in same)))
    return (*HEAD, *targets), lines


def cell(result: Compiled | CudaCompiled | TileError) -> str:
    """Seconds and, if there are any, device memory and moved arrays around the kernel; of a GPU the
    most registers, the stack if there is one, and the most shared memory of a launch."""
    if isinstance(result, TileError):
        return f"FAILED {reason(result)}"
    if isinstance(result, CudaCompiled):
        registers = max((p.registers for p in result.programs), default=0)
        stack = max((p.stack for p in result.programs), default=0)
        shared = max((p.shared for p in result.programs), default=0)
        spilled = f", stack {stack}" if stack else ""
        return f"ok {registers} registers{spilled}, {shared / 1024:.0f} KiB"
    parts = [f"ok {result.seconds:.2f} s"]
    if result.memory.temporaries:
        parts.append(f"{result.memory.temporaries / 1e6:.2f} MB")
    if result.copies:
        parts.append(f"{len(result.copies)} moved")
    return ", ".join(parts)


def reason(error: TileError) -> str:
    """The first line of an error, short enough for a table."""
    first = error.what.splitlines()[0] if error.what else type(error).__name__
    said = first.partition("does not compile: ")[2] or first
    return said if len(said) <= 60 else f"{said[:57]}..."


def failures(rows: Sequence[CheckRow]) -> list[str]:
    """Every error in full, once, with the cases that it was raised for."""
    cases: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row.result, TileError):
            text = f"{type(row.result).__name__}: {row.result}"
            cases.setdefault(text, []).append(f"{row.target}: {row.case}")
    return [f"{text}\n  " + "\n  ".join(where) for text, where in cases.items()]


def plain(head: Sequence[str], body: Sequence[Sequence[str]]) -> str:
    """Columns of text, as wide as their longest entry."""
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    lines = [head, ["-" * width for width in widths], *body]
    padded = ("  ".join(t.ljust(w) for t, w in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in padded)


def _rich(head: Sequence[str], body: Sequence[Sequence[str]]) -> None:
    """The same by rich, which is optional: it wraps to the width of the terminal."""
    console: Any = importlib.import_module("rich.console").Console()
    if not console.is_terminal:  # a file or a pipe has no width to wrap to
        print(plain(head, body))
        return
    markup: Any = importlib.import_module("rich.text").Text
    shown: Any = importlib.import_module("rich.table").Table()
    for name in head:
        shown.add_column(name, overflow="fold")
    for line in body:
        style = "red" if any(t.startswith("FAILED") for t in line) else ""
        shown.add_row(*map(markup, line), style=style)
    console.print(shown)
