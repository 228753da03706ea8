"""copies(text), kernels(text), transfers(text): what an optimised HLO module does around its
kernels.

Reads the text that JAX prints; no JAX is needed for it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# What moves or rewrites an array without computing anything.
MOVES = frozenset(
    (
        "copy",
        "copy-start",
        "transpose",
        "pad",
        "convert",
        "reshape",
        "concatenate",
        "slice",
        "reverse",
    )
)
ENDS = frozenset(("copy-done", "slice-done"))  # of what XLA moves while other instructions run
# What a fusion or a loop may hold besides and still be nothing but a move.
FREE = frozenset(
    (
        "parameter",
        "constant",
        "bitcast",
        "broadcast",
        "tuple",
        "get-tuple-element",
        "dynamic-slice",
        "dynamic-update-slice",
    )
)

_INSTRUCTION = re.compile(
    r"^\s*(?:ROOT )?%?(?P<name>[\w.<>-]+) = "
    r"\(*(?P<dtype>\w+)\[(?P<shape>[\d,]*)\](?:\{(?P<layout>[^}]*)\})?"
    r".*?\s(?P<op>[a-z][a-z-]*)\([^%)]*(?:%(?P<operand>[\w.<>-]+))?"
)
_COMPUTATION = re.compile(r"^(?P<entry>ENTRY )?%?(?P<name>[\w.<>-]+) \(.*\{\s*$")
_MEMORY = re.compile(r"S\(\d+\)")
_ARRAY = re.compile(r"(\w+)\[([\d,]*)\]")
_CALLS = re.compile(r"\b(?:calls|body)=%?([\w.<>-]+)")
_LAUNCH = re.compile(
    r"^\s*(?:ROOT )?%?([\w.<>-]+) = .*custom_call_target=\"tpu_custom_call\"", re.MULTILINE
)


@dataclass(frozen=True)
class HloLine:
    """One line of a computation.

    dtype, shape    of the result; of the largest array if it is a loop's tuple
    layout          order of dimensions and tiling, without the memory: "1,0:T(8,128)"
    memory          "S(1)" for vector memory, "" for device memory
    operand         the first one's name, "" if there is none
    calls           the computation of a fusion, the body of a loop, else ""
    """

    name: str
    op: str
    dtype: str
    shape: tuple[int, ...]
    layout: str
    memory: str
    operand: str
    calls: str

    @property
    def bytes(self) -> int:
        """Of the result: the digits of a dtype's name are its bits, and "pred" has eight."""
        bits = re.search(r"\d+", self.dtype)
        return math.prod(self.shape) * int(bits[0] if bits else 8) // 8


def copies(text: str) -> list[tuple[str, str, str, tuple[int, ...]]]:
    """(op, name, dtype, shape) of every array that the entry computation rewrites as a whole.

    Fetching a small operand into vector memory as it is does not count.
    """
    entry, inner = _computations(text)
    known = {instruction.name: instruction for instruction in entry}
    found = []
    for instruction in entry:
        op = _moved(instruction, inner, known)
        if op and instruction.shape and not _fetched(instruction, known):
            found.append((op, instruction.name, instruction.dtype, instruction.shape))
    return found


def kernels(text: str) -> list[str]:
    """Names of the instructions that launch a Pallas kernel."""
    return _LAUNCH.findall(text)


@dataclass(frozen=True)
class Transfer:
    """An array, or a part of one, that XLA moves between HBM and vector memory, in `bytes`.

    beside  the instructions that run meanwhile: between its start and where it must be done
    """

    bytes: int
    beside: tuple[str, ...]


def transfers(text: str) -> list[Transfer]:
    """Those of the entry computation, of which XLA has fixed the order, first started first."""
    entry, _ = _computations(text)
    known = {instruction.name: instruction for instruction in entry}
    place = {instruction.name: at for at, instruction in enumerate(entry)}
    found: list[tuple[int, Transfer]] = []
    for at, ends in enumerate(entry):
        begins = known.get(ends.operand) if ends.op in ENDS else ends
        if begins is None or ends.op not in (*ENDS, "copy") or not ends.shape:
            continue
        if _elsewhere(known.get(begins.operand), ends):
            start = place[begins.name]
            beside = tuple(each.name for each in entry[start + 1 : at])
            found.append((start, Transfer(ends.bytes, beside)))
    return [transfer for _, transfer in sorted(found, key=lambda each: each[0])]


def _fetched(instruction: HloLine, known: Mapping[str, HloLine]) -> bool:
    """Whether it fetches an array as it is."""
    copy = instruction.op in ("copy", "copy-start")
    return copy and _elsewhere(known.get(instruction.operand), instruction)


def _elsewhere(origin: HloLine | None, copied: HloLine) -> bool:
    """Whether a copy lies in another memory, and nothing else changed."""
    return origin is not None and origin.layout == copied.layout and origin.memory != copied.memory


def _moved(
    instruction: HloLine, inner: Mapping[str, list[HloLine]], known: Mapping[str, HloLine]
) -> str:
    """The move that an instruction is, "" if it computes; those of a fusion or a loop in order.

    XLA writes some changes of shape as a reduction of a dimension of length 1, and large ones as a
    loop that runs once.
    """
    if instruction.op in MOVES:
        return instruction.op.removesuffix("-start")
    if instruction.op == "reduce":
        origin = known.get(instruction.operand)
        same = origin is not None and math.prod(origin.shape) == math.prod(instruction.shape)
        return "reshape" if same else ""
    ops = list(dict.fromkeys(_inside(instruction.calls, inner)))
    moves = [op for op in ops if op in MOVES]
    return "+".join(moves) if moves and set(ops) <= MOVES | FREE else ""


def _inside(name: str, inner: Mapping[str, list[HloLine]]) -> Iterator[str]:
    """What a computation does to arrays, fusions opened; numbers are left out."""
    for instruction in inner.get(name, ()):
        if instruction.calls:
            yield from _inside(instruction.calls, inner)
        elif instruction.shape:
            yield instruction.op


def _computations(text: str) -> tuple[list[HloLine], dict[str, list[HloLine]]]:
    """The entry computation, and the others by name."""
    entry: list[HloLine] = []
    inner: dict[str, list[HloLine]] = {}
    current = entry
    for line in text.splitlines():
        if head := _COMPUTATION.match(line):
            current = entry if head["entry"] else inner.setdefault(head["name"], [])
        elif match := _INSTRUCTION.match(line):
            current.append(_instruction(match, line))
    return entry, inner


def _instruction(match: re.Match[str], line: str) -> HloLine:
    calls = _CALLS.search(line)
    dtype, shape = match["dtype"], _sizes(match["shape"])
    if match["op"] == "while":
        arrays = [(d, _sizes(s)) for d, s in _ARRAY.findall(line[: match.start("op")])]
        dtype, shape = max(arrays, key=lambda array: math.prod(array[1]))
    layout = match["layout"] or ""
    memory = _MEMORY.search(layout)
    return HloLine(
        name=match["name"],
        op=match["op"],
        dtype=dtype,
        shape=shape,
        layout=_MEMORY.sub("", layout),
        memory=memory.group() if memory else "",
        operand=match["operand"] or "",
        calls=calls[1] if calls else "",
    )


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(int(size) for size in text.split(",") if size)
