"""Runs as a table: with rich where it is installed, as plain columns where it is not."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from .measure import Run

try:
    from rich.console import Console
    from rich.table import Table
except ImportError:
    Console = Table = None

HEADER = (
    "kernel",
    "from",
    "groups",
    "min / med / max",
    "unit",
    "useful",
    "computed",
    "padded batch",
    "error",
    "first call",
    "repeat",
)
LEFT = {"kernel", "from", "unit"}


def show(runs: Sequence[Run]) -> None:
    """Prints one row per run."""
    rows = [row(run) for run in runs]
    if Console is None or Table is None:
        print(plain(rows))
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in HEADER:
        table.add_column(name, justify="left" if name in LEFT else "right", no_wrap=True)
    for cells in rows:
        table.add_row(*cells)
    width = max(shutil.get_terminal_size().columns, 150)
    Console(width=width, soft_wrap=True).print(table)


def row(run: Run) -> tuple[str, ...]:
    """The cells of one run, in the order of HEADER."""
    return (
        run.task.title,
        run.framework,
        str(len(run.lengths.sizes)),
        run.lengths.summary(),
        run.task.unit,
        f"{run.useful:,}",
        f"{run.computed:,}",
        f"{run.padded:,}",
        f"{run.error:.1e}",
        f"{run.first:.2f} s",
        f"{run.repeat * 1e3:.1f} ms",
    )


def plain(rows: Sequence[Sequence[str]]) -> str:
    """The table as aligned text."""
    widths = [max(map(len, column)) for column in zip(HEADER, *rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if name in LEFT else cell.rjust(width)
            for name, cell, width in zip(HEADER, cells, widths, strict=True)
        ).rstrip()
        for cells in (HEADER, *rows)
    )
