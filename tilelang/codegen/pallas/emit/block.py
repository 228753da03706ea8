"""Block: the lines of one scope while they are written."""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from tilelang.codegen.writer import Node, statement
from tilelang.errors import Loc

from .expressions import Printer


@dataclass
class Block:
    """Lines of one scope at one indentation, what they define, and the last source line quoted."""

    indent: int
    lines: list[str] = field(default_factory=list)
    quoted: Loc | None = None
    defined: set[str] = field(default_factory=set)

    def put(self, target: str, node: Node) -> None:
        self.defined.add(target)
        self.lines += statement(target, node, self.indent)

    def raw(self, text: str) -> None:
        self.lines.append(" " * self.indent + text if text else "")

    def part(self, lines: list[str]) -> None:
        """Lines that may begin with a function: then a blank one comes before its comment."""
        if lines and lines[0].lstrip().startswith("def "):
            place = len(self.lines)
            while place and self.lines[place - 1].lstrip().startswith("#"):
                place -= 1
            if place and self.lines[place - 1] and not self.lines[place - 1].endswith(":"):
                self.lines.insert(place, "")
        self.lines += lines

    def quote(self, loc: Loc | None) -> None:
        """`# file.py:12: <source>`, once for consecutive statements of one line."""
        if loc is None or (self.quoted is not None and _same_line(loc, self.quoted)):
            return
        self.quoted = loc
        name = posixpath.basename(loc.filename.replace("\\", "/"))
        text = f"# {name}:{loc.line}: {loc.text.strip()}"
        room = 100 - self.indent
        self.raw(text if len(text) <= room else text[: room - 3] + "...")


def _same_line(a: Loc, b: Loc) -> bool:
    return (a.filename, a.line) == (b.filename, b.line)


def flush(printer: Printer, block: Block) -> None:
    """Writes the pending axis lines."""
    for name, node in printer.pending:
        block.put(name, node)
    printer.pending.clear()
