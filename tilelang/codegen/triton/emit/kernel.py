"""Kernel: one launch -> the lines of its @triton.jit function."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field, replace
from typing import assert_never

from tilelang.codegen.triton.plan import types as plan
from tilelang.codegen.writer import (
    Atom,
    Call,
    Group,
    Keyword,
    Node,
    Tuple,
    flat,
    signature,
    statement,
)
from tilelang.errors import Loc
from tilelang.ir import Const, read_by

from . import ops
from .expressions import Printer

ATOMIC = {"add": "tl.atomic_add", "maximum": "tl.atomic_max", "minimum": "tl.atomic_min"}
WIDTH = 100


@dataclass(frozen=True)
class Block:
    """The lines of a kernel while they are written, at one indentation."""

    printer: Printer
    indent: int
    lines: list[str]
    quoted: list[Loc] = field(default_factory=list)  # the last source line that was quoted

    def inner(self) -> Block:
        return replace(self, indent=self.indent + 4)

    def raw(self, text: str) -> None:
        self.lines.append(" " * self.indent + text)

    def put(self, target: str, node: Node) -> None:
        self.lines.extend(statement(target, node, self.indent))

    def comment(self, text: str) -> None:
        """A comment, over as many lines as it needs."""
        room = WIDTH - self.indent - 2
        for line in textwrap.wrap(text, room, break_long_words=False, break_on_hyphens=False):
            self.raw(f"# {line}")

    def quote(self, loc: Loc | None) -> None:
        """`# file.py:12: <source>`, once for consecutive statements of one line."""
        if loc is None or any(
            (loc.filename, loc.line) == (q.filename, q.line) for q in self.quoted
        ):
            return
        self.quoted[:] = [loc]
        self.raw(loc.comment(WIDTH - self.indent))


def print_kernel(launch: plan.Launch, functions: set[str]) -> list[str]:
    """The lines of the function; the functions that it calls are added to `functions`."""
    block = Block(Printer(launch, functions), 4, [])
    print_steps(block, launch.body)
    pointers = [f"{name}_ptr" for name in launch.arguments]
    return ["@triton.jit", *signature(launch.name, pointers), *block.lines]


def print_steps(block: Block, steps: tuple[plan.Step, ...]) -> None:
    """The lines of the steps."""
    printer = block.printer
    for step in steps:
        match step:
            case plan.Let(name, value, loc):
                block.quote(loc)
                block.put(name, printer.node(value))
            case plan.Read():
                _read(block, step)
            case plan.Write():
                _write(block, step)
            case plan.For():
                _loop(block, step)
            case plan.Guard(condition, body):
                block.raw(f"if {printer.text(condition)}:")
                print_steps(block.inner(), body)
            case plan.Note(text, loc):
                block.quote(loc)
                block.comment(text)
            case plan.Descriptor():
                _descriptor(block, step)
            case plan.Fetch():
                _fetch(block, step)
            case plan.Barrier():
                block.raw("tl.debug_barrier()  # threads pass values through memory")
            case _:
                assert_never(step)


def _masked(printer: Printer, access: plan.Access) -> tuple[Node, ...]:
    return () if access.mask is None else (Keyword("mask", printer.node(access.mask)),)


def _read(block: Block, step: plan.Read) -> None:
    block.quote(step.loc)
    printer, mask = block.printer, _masked(block.printer, step.access)
    other = (Keyword("other", ops.number(step.other, step.access.dtype)),) if mask else ()
    block.put(step.name, Call("tl.load", (printer.pointer(step.access), *mask, *other)))


def _descriptor(block: Block, step: plan.Descriptor) -> None:
    block.quote(step.loc)
    block.comment(f"{step.tensor}, {step.why}")
    shape = Group(tuple(map(block.printer.node, step.shape)), "[]")
    sizes = (shape, ops.shape(step.strides), ops.shape(step.box))
    block.put(step.name, Call("tl.make_tensor_descriptor", (Atom(f"{step.tensor}_ptr"), *sizes)))


def _fetch(block: Block, step: plan.Fetch) -> None:
    block.quote(step.loc)
    start = Group(tuple(map(block.printer.node, step.start)), "[]")
    node: Node = Call("load", (start,), of=Atom(step.descriptor))
    if len(step.start) > len(step.type.shape):
        extents = tuple(block.printer.launch.width(d) for d in step.type.shape)
        node = Call("tl.reshape", (node, ops.shape(extents)))
    block.put(step.name, node)


def _write(block: Block, step: plan.Write) -> None:
    block.quote(step.loc)
    printer, mask = block.printer, _masked(block.printer, step.access)
    fn, order = "tl.store", ()
    if step.combine is not None:
        fn, order = ATOMIC[step.combine], (Keyword("sem", Atom('"relaxed"')),)
    pointer, value = printer.pointer(step.access), printer.node(step.value)
    block.put("", Call(fn, (pointer, value, *mask, *order)))


def _loop(block: Block, step: plan.For) -> None:
    printer = block.printer
    block.quote(step.loc)
    for text in step.says:
        block.comment(text)
    for carry in step.carries:
        if carry.init is not None:
            block.put(carry.name, printer.node(carry.init))
    bounds: list[Node] = [printer.node(step.begin), printer.node(step.end)]
    if not (isinstance(step.by, Const) and step.by.value == 1):
        bounds.append(printer.node(step.by))
    if step.stages is not None:
        bounds.append(Keyword("num_stages", Atom(str(step.stages))))
    if step.flat:
        bounds.append(Keyword("flatten", Atom("True")))
    if step.specialized:
        bounds.append(Keyword("warp_specialize", Atom("True")))
    block.raw(f"for {step.name} in {flat(Call('tl.range', tuple(bounds)))}:")
    inner = block.inner()
    print_steps(inner, step.body)
    _advance(inner, step)


def _advance(block: Block, step: plan.For) -> None:
    """Sets what the loop carries: all at once where one reads what another one was."""
    moved = [(c.name, c.next) for c in step.carries if c.next is not None]
    names = {name for name, _ in moved}
    reads = [{*read_by((value,))} & names - {name} for name, value in moved]
    nodes = [block.printer.node(value) for _, value in moved]
    if len(moved) > 1 and any(reads):
        block.put(", ".join(name for name, _ in moved), Tuple(tuple(nodes)))
        return
    for (name, _), node in zip(moved, nodes, strict=True):
        block.put(name, node)
