"""Block: the lines of one scope while they are written."""

from __future__ import annotations

from dataclasses import dataclass, field

from tilelang.codegen.writer import Atom, Node, statement
from tilelang.errors import Loc

from .expressions import Printer


@dataclass
class Block:
    """Lines of one scope at one indentation, what they define, and the last source line quoted."""

    indent: int
    lines: list[str] = field(default_factory=list)
    quoted: Loc | None = None
    defined: set[str] = field(default_factory=set)

    def inside(self, head: str = "", quoted: Loc | None = None) -> Block:
        """The scope that `head` opens; its lines follow."""
        if head:
            self.raw(head)
        return Block(self.indent + 4, self.lines, quoted)

    def put(self, target: str, node: Node, sign: str = " = ") -> None:
        self.defined.add(target)
        self.lines += statement(target, node, self.indent, sign)

    def raw(self, text: str) -> None:
        self.lines.append(" " * self.indent + text if text else "")

    def named(self, name: str, node: Node) -> Node:
        """The node, under a name unless it is as short as one."""
        if isinstance(node, Atom):
            return node
        self.put(name, node)
        return Atom(name)

    def part(self, lines: list[str]) -> None:
        """Lines that may begin with a function: then a blank one comes before its comment."""
        if lines and lines[0].lstrip().startswith("def "):
            place = len(self.lines)
            while place and self.lines[place - 1].lstrip().startswith("#"):
                place -= 1
            if place and self.lines[place - 1] and not self.lines[place - 1].endswith(":"):
                self.lines.insert(place, "")
        self.lines += lines

    def flush(self, printer: Printer) -> None:
        """Writes the pending axis lines."""
        for name, node in printer.pending:
            self.put(name, node)
        printer.pending.clear()

    def quote(self, loc: Loc | None) -> None:
        """`# file.py:12: <source>`, once for consecutive statements of one line."""
        last = self.quoted
        if loc is None or (last and (loc.filename, loc.line) == (last.filename, last.line)):
            return
        self.quoted = loc
        self.raw(loc.comment(100 - self.indent))
