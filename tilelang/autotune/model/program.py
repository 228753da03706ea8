"""parse(text, chip) -> Program: the dump of a kernel's final schedule as data.

A dump has one bundle of instructions after another; a bundle may be spread over several lines.

   0x18   : > { %s7_s1 = sadd.s32 1, %s3_s4  ;;  %9 = sbr.rel (!%p1_p0) target = $region137 } /* Start region 22 */

Of vector instructions only what their units need is kept: nothing but time depends on them.
"""  # noqa: E501

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from ...codegen.pallas.chips import Chip


@dataclass(frozen=True)
class Register:
    """A physical register of the scalars "s", the predicates "p", or the vectors "v"."""

    bank: str
    number: int


@dataclass(frozen=True)
class Allocation:
    """The address of an allocation."""

    name: str


@dataclass(frozen=True)
class Sum:
    """An address: a base and what is added to it."""

    parts: tuple[Operand, ...]


Operand = Register | Allocation | Sum | int | None  # None: what a scalar unit does not read


@dataclass(frozen=True)
class Predicate:
    """The instruction has its effect where the predicate is true, or false if negated."""

    predicate: int
    negated: bool


@dataclass(frozen=True)
class Instruction:
    """One instruction.

    number  by which others refer to its result in a queue: "%133 = dma.general ..."
    result  the register that it writes
    merge   what that register holds where the guard says no; None: what it held before
    named   operands with a name, as those of copies have one
    text    without comments
    """

    op: str
    number: int | None = None
    result: Register | None = None
    operands: tuple[Operand, ...] = ()
    named: Mapping[str, Operand] = field(default_factory=dict)
    guard: Predicate | None = None
    merge: Register | None = None
    text: str = ""


@dataclass(frozen=True)
class Bundle:
    """What starts in one cycle.

    branch  the bundle that one of its instructions may jump to
    after   bundles after a branch that run before it is taken
    delay   cycles beyond its own: delay slots that are not written out
    note    the comment behind the last instruction
    """

    instructions: tuple[Instruction, ...]
    branch: int | None = None
    after: int = 0
    delay: int = 0
    note: str = ""


@dataclass(frozen=True)
class Parameter:
    """An array that the kernel is called with: "s32", (8, 8), in "hbm", "vmem", ..."""

    index: int
    dtype: str
    shape: tuple[int, ...]
    output: bool
    memory: str
    result: Register | None


@dataclass(frozen=True)
class Program:
    """The bundles of a kernel, in the order of their addresses; `core` holds the core's number."""

    bundles: tuple[Bundle, ...]
    parameters: tuple[Parameter, ...]
    core: str | None


_BEGIN = re.compile(r"^\s*(?:0x[0-9a-f]+|\d+)\s+(?=(?:[A-Z]{2}\s*)*:\s)", re.MULTILINE)
_BODY = re.compile(r"^[A-Z:>\s]*\{(.*)\}", re.DOTALL)
_EMPTY = re.compile(r"^[A-Z:>\s]*\{\s*\}")
_NEW = re.compile(r"^[A-Z]{2}|Start region|Start/End")
_REGION = re.compile(r"(Start|End|Start/End empty) region (\d+)")
_CORE = re.compile(r"sld \[smem:\[#(\w+)\]\] /\* core id \*/")
_TARGET = re.compile(r"\$region(\d+)")
_NAME = re.compile(r"/\*(\w+)=\*/")
_COMMENT = re.compile(r"/\*|\*/")
_REMAINDER = re.compile(r"\bsdivrem(?=[^;{}]*/\* kRem \*/)")  # its queue has no quotient
_RESULT = re.compile(r"^(%[\w.]+(?:,\s*%[\w.]+)*)\s*=\s*(.*)$", re.DOTALL)
_OP = re.compile(r"([\w.]+(?:\[\w+\])?(?:\.\w+)*)\s*(.*)$", re.DOTALL)
_GUARD = re.compile(r"\(\s*(!?)%p\d+_p(\d+)\s*(?:,\s*(%\w+)\s*)?\)")
_REGISTER = re.compile(r"^%(vm|[spv])\d+_(?:vm|[spv])(\d+)$")
_NUMBERED = re.compile(r"^%(\d+)$")
_NAMED = re.compile(r"^(?:\[thread:\S+\]\s*)?([A-Za-z_]\w*)\s*=\s*(.*)$", re.DOTALL)
_MEMORY = re.compile(r"^(?:smem|vmem|hbm|sflag|imem|cmem|smem_any):")
_PARAMETER = re.compile(r"\[shape: (\w+)\[([\d,]*)\][^,\]]*, index: (\d+), kind: (\w+)")
# Vector instructions that hand a value to the scalar units.
_HANDS_OVER = ("vsync", "vwait", "vpush", "vpop.ccrf", "vmov", "vdelay")


def parse(text: str, chip: Chip) -> Program:
    """The program; ValueError for what is no dump of one."""
    chunks = _BEGIN.split(text)[1:]
    if not chunks:
        raise ValueError("no bundle in the dump")
    regions = _regions(chunks)
    bundles = [_bundle(chunk, regions) for chunk in chunks]
    core = _CORE.search(text)
    return Program(
        _delayed(bundles, chunks, chip),
        tuple(_parameters("".join(chunks[:4]))),
        core[1] if core else None,
    )


def _regions(chunks: list[str]) -> dict[int, int]:
    """Region -> its first bundle.

    The empty region behind a body that may be skipped is not always named: it begins where the
    body's region, whose number is one less, has ended.
    """
    begins: dict[int, int] = {}
    ends: dict[int, int] = {}
    for index, chunk in enumerate(chunks):
        for edge, number in _REGION.findall(chunk):
            if edge == "End":
                ends[int(number)] = index
            else:
                begins.setdefault(int(number), index)
    return {number + 1: end + 1 for number, end in ends.items()} | begins


def _bundle(chunk: str, regions: Mapping[int, int]) -> Bundle:
    body = _BODY.match(_plain(chunk))
    if body is None:
        raise ValueError(f"not a bundle: {chunk[:200]!r}")
    found = tuple(_instruction(part.strip()) for part in body[1].split(";;") if part.strip())
    branches = [i for i in found if i.op.startswith("sbr")]
    target = _TARGET.search(branches[0].text) if branches else None
    region = None if target is None else int(target[1])
    if region is not None and region not in regions:
        raise ValueError(f"a branch to region {region}, which is nowhere")
    note = chunk[chunk.rfind("/*", 0, chunk.rfind("}")) :] if "dma.general" in chunk else ""
    return Bundle(found, None if region is None else regions[region], note=note)


def _delayed(bundles: list[Bundle], chunks: list[str], chip: Chip) -> tuple[Bundle, ...]:
    """With the delay slots of every branch.

    On 7x one empty bundle at the end of the branch's block stands for all slots that are left.
    """
    after, delay = [0] * len(bundles), [0] * len(bundles)
    for index, bundle in enumerate(bundles):
        if bundle.branch is None:
            continue
        after[index] = chip.delay_slots
        slots = range(1, chip.delay_slots) if chip.implicit_delays else ()
        for slot in slots:
            here = index + slot
            last = here + 1 < len(bundles) and not bundles[here].instructions
            if last and _new_block(chunks[index : here + 2]):
                after[index], delay[here] = slot, chip.delay_slots - slot
                break
    return tuple(
        Bundle(b.instructions, b.branch, a, d, b.note)
        for b, a, d in zip(bundles, after, delay, strict=True)
    )


def _new_block(chunks: list[str]) -> bool:
    """Whether the last of these bundles, from a branch on, is in another block than the others:
    it has a label, begins a region, or is in another loop than the last one with instructions."""
    filled = [chunk for chunk in chunks if not _EMPTY.match(chunk)]
    depths = [chunk.partition("{")[0].count(">") for chunk in filled]
    left = filled[-1] is chunks[-1] and depths[-1] != depths[-2]
    return left or _NEW.search(chunks[-1]) is not None


def _plain(text: str) -> str:
    """Without comments, which may be nested; those that name an operand become `name=`.

    A division of which only the remainder is taken says so in a comment: it becomes `srest`.
    """
    text, found, depth, begin = _NAME.sub(r"\1=", _REMAINDER.sub("srest", text)), [], 0, 0
    for mark in _COMMENT.finditer(text):
        if mark[0] == "/*":
            if depth == 0:
                found.append(text[begin : mark.start()])
            depth += 1
        elif depth:
            depth, begin = depth - 1, mark.end()
    return "".join(found) + ("" if depth else text[begin:])


def _instruction(text: str) -> Instruction:
    number = result = guard = merge = None
    whole = text
    if assigned := _RESULT.match(text):
        first, text = assigned[1].split(",")[0].strip(), assigned[2].strip()
        numbered = _NUMBERED.match(first)
        number, result = int(numbered[1]) if numbered else None, _register(first)
    match = _OP.match(text)
    if match is None:
        raise ValueError(f"not an instruction: {whole!r}")
    op, rest = match[1], match[2]
    if op.startswith("v") and not op.startswith(_HANDS_OVER):
        return Instruction(op, number, result, text=whole)
    if guarded := _GUARD.search(rest):
        guard, merge = Predicate(int(guarded[2]), guarded[1] == "!"), _register(guarded[3] or "")
        rest = rest[: guarded.start()] + rest[guarded.end() :]
    operands, named = _operands(rest)
    return Instruction(op, number, result, operands, named, guard, merge, whole)


def _operands(text: str) -> tuple[tuple[Operand, ...], dict[str, Operand]]:
    operands: list[Operand] = []
    named: dict[str, Operand] = {}
    for part in _separated(text):
        name = _NAMED.match(part)
        operands.append(_operand(name[2] if name else part))
        if name:
            named[name[1]] = operands[-1]
    return tuple(operands), named


def _separated(text: str) -> Iterator[str]:
    """Parts between commas and behind "[address]" that are not in brackets."""
    depth, part = 0, ""
    for letter in text:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and depth == 0:
            if part.strip():
                yield part.strip()
            part = ""
            continue
        part += letter
        if letter == "]" and depth == 0 and part.strip().startswith("["):
            if "thread:" not in part and "resolvable" not in part:
                yield part.strip()
            part = ""
    if part.strip():
        yield part.strip()


def _operand(text: str) -> Operand:
    text = text.strip()
    while text.startswith("[") and text.endswith("]"):
        text = _MEMORY.sub("", text[1:-1].strip()).strip()
    if "+" in text:
        return Sum(tuple(_operand(part) for part in text.split("+")))
    if text.startswith("#"):
        return Allocation(text[1:])
    if text.startswith("%"):
        return _register(text) or _queued(text)
    try:
        return int(text.removeprefix("$"), 0) & 0xFFFFFFFF
    except ValueError:
        return None


def _queued(text: str) -> int | None:
    """The number of the instruction whose result is taken from a queue."""
    match = _NUMBERED.match(text)
    return int(match[1]) if match else None


def _register(text: str) -> Register | None:
    match = _REGISTER.match(text)
    return Register(match[1], int(match[2])) if match else None


def _parameters(text: str) -> Iterator[Parameter]:
    for part in re.split(r";;|\n|\{", text):
        if "inlined_call_operand" not in part or not (found := _PARAMETER.search(part)):
            continue
        memory = re.search(r"inlined_call_operand\.(\w+)", part)
        register = _register(part.strip().split(" ")[0])
        shape = tuple(int(size) for size in found[2].split(",") if size)
        yield Parameter(
            int(found[3]),
            found[1],
            shape,
            found[4] == "output",
            memory[1] if memory else "",
            register,
        )
