"""execute(program, chip, arrays, core) -> Execution: the scalar slots, run cycle by cycle.

All control flow, copies and waits are in the scalar slots, and every operand of theirs is in the
dump.  So trip counts, skipped copies, prologues and steps that data decide come out exactly, given
the integers that steer them.  Every line of bundles without a jump into it becomes a Python
function; vector instructions only cost time.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, assert_never

import numpy as np

from ...codegen.pallas.chips import Chip
from .memory import SIGN, UNKNOWN, WORD, CoreMemory
from .program import Allocation, Instruction, Operand, Predicate, Program, Register, Sum
from .units import IDLE, Queues, later, rows

MOST_LINES = 20_000_000  # a program that runs on after so many lines of bundles will not end


@dataclass(frozen=True)
class Execution:
    """One run of a program on one core; everything in cycles and bytes.

    cycles   from its first bundle to its last
    bundles  that were issued; with the stalls they are all cycles
    stalls   why no bundle was issued -> cycles: "units", "reads", "writes", "local copies"
    matrix   cycles of one matrix unit, all of them added up
    spills   stores of vector registers that did not fit
    notes    what could not be resolved -> how often; with any the cycles are not to be trusted
    """

    cycles: float
    bundles: int
    stalls: Mapping[str, float]
    read: int
    written: int
    matrix: float
    spills: int
    notes: Mapping[str, int]


# Instruction -> the value that it makes; H is the sign bit, M a word of ones.
SCALARS = {
    "smov": "{0}",
    "int_to_ptr": "{0}",
    "ptr_to_int": "{0}",
    "scalar_lea": "({0} + {1}) & M",
    "sadd": "({0} + {1}) & M",
    "ssub": "({0} - {1}) & M",
    "smul": "({0} * {1}) & M",
    "smulhi.u32": "({0} * {1}) >> 32",
    "sshll": "({0} << {1}) & M",
    "sshrl": "{0} >> {1}",
    "sshra": "((({0} ^ H) - H) >> {1}) & M",
    "sand": "{0} & {1}",
    "sor": "{0} | {1}",
    "sxor": "{0} ^ {1}",
    "sclz": "zeros({0})",
    "sdiv": "quotient({0}, {1})",
    "srem": "remainder({0}, {1})",
    "sld": "numbers.get({0}, U)",
    "spop": "scalars.get({0}, U)",
    "vmov": "{0}",
    "pmov": "{0}",
    "pcopy": "{0}",
    "pneg": "{0} ^ True",
    "por": "{0} | {1}",
    "pand": "{0} & {1}",
    "pxor": "{0} ^ {1}",
    "pnand": "({0} & {1}) ^ True",
    "pnor": "({0} | {1}) ^ True",
}
COMPARISONS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# These say what holds anyway, or what a check would stop at.
SILENT = ("sphi", "pphi", "vphi", "inlined_call", "shalt", "sfence", "sbr")
_WAY = re.compile(r"(vmem|hbm|smem|cmem)[_-]to[_-](vmem|hbm|smem|cmem)")


def execute(
    program: Program, chip: Chip, arrays: Mapping[int, np.ndarray] | None = None, core: int = 0
) -> Execution:
    """Runs it; `arrays` are those of its arguments that hold integers it may depend on."""
    return _Core(program, chip, arrays or {}, core).run()


class _Core:
    """One core of a chip, and the lines of the program that it runs as functions."""

    def __init__(
        self, program: Program, chip: Chip, arrays: Mapping[int, np.ndarray], core: int
    ) -> None:
        self.program, self.chip = program, chip
        self.memory = CoreMemory(chip, program.parameters, arrays)
        if program.core is not None:
            self.memory.numbers[self.memory.address(program.core)] = core
        self.queues = Queues(program, chip.units)
        self.ends = lines(program)
        self.asked = {
            begin: frozenset(self._copies(begin, end)) for begin, end in self.ends.items()
        }
        self.issued = {
            b: sum(1 + x.delay for x in program.bundles[b:e]) for b, e in self.ends.items()
        }
        self.functions = self._compiled()

    def _copies(self, begin: int, end: int) -> Iterator[int]:
        for index in range(begin, end):
            if any(_copies(i) for i in self.program.bundles[index].instructions):
                yield index

    def run(self) -> Execution:
        """From the first bundle to the last."""
        memory, at, state = self.memory, 0, IDLE
        counts: Counter[int] = Counter()
        pending: tuple[int, int] | None = None  # the end of the delay slots, and where to go then
        for _ in range(MOST_LINES):
            if at >= len(self.program.bundles):
                break
            end, begin = self.ends[at], memory.now
            counts[at] += 1
            wait, line = self.functions[at]
            if wait is not None:
                wait()
                state = later(state, memory.now - begin)
            ran = self.queues.run(at, end, state, self.asked[at])
            branch = line(memory.now, ran.starts)
            pending = pending or branch
            memory.now += ran.cycles
            memory.stalls["units"] += ran.cycles - self.issued[at]
            state = ran.state
            at = end
            if pending and pending[0] <= end:
                at, pending = pending[1], None
        else:
            memory.notes["a loop that does not end"] += 1
        return self._execution(counts)

    def _execution(self, counts: Mapping[int, int]) -> Execution:
        memory, matrix, spills = self.memory, 0.0, 0
        for begin, count in counts.items():
            for bundle in self.program.bundles[begin : self.ends[begin]]:
                for instruction in bundle.instructions:
                    if instruction.op.startswith("vmatmul"):
                        matrix += count * rows(instruction.op) / 8 * self.chip.units.multiply
                    elif instruction.op.startswith("vst") and "_spill" in instruction.text:
                        spills += count
        return Execution(
            memory.now,
            sum(count * self.issued[begin] for begin, count in counts.items()),
            {why: cycles for why, cycles in memory.stalls.items() if cycles},
            memory.read,
            memory.written,
            matrix,
            spills,
            dict(memory.notes),
        )

    # ------------------------------------------------------------ lines as functions

    def _compiled(self) -> dict[int, tuple[Callable | None, Callable]]:
        """First bundle of each line -> what it waits for first, and what it does."""
        memory = self.memory
        names: dict[str, Any] = {
            "s": [UNKNOWN] * 256, "p": [UNKNOWN] * 256, "v": [UNKNOWN] * 256, "vm": [UNKNOWN] * 256,
            "numbers": memory.numbers, "scalars": {}, "pushed": deque(), "U": UNKNOWN,
            "M": WORD, "H": SIGN, "copy": memory.copy, "wait": memory.wait, "add": memory.add,
            "put": memory.put, "store": memory.store, "sure": self._sure, "zeros": _zeros,
            "quotient": _quotient, "remainder": _remainder, "least": _least, "most": _most,
            "divided": _divided, "next_of": _next_of,
        }  # fmt: skip
        for parameter in self.program.parameters:
            if parameter.result is not None:
                names[parameter.result.bank][parameter.result.number] = memory.register(parameter)
        text = "\n".join(line for begin in self.ends for line in self._functions(begin))
        exec(compile(text, "<schedule>", "exec"), names)
        return {b: (names.get(f"wait_{b}"), names[f"line_{b}"]) for b in self.ends}

    def _functions(self, begin: int) -> Iterator[str]:
        bundles = self.program.bundles
        waits = [i for i in bundles[begin].instructions if _waits(i)]
        if waits:
            yield f"def wait_{begin}():"
            for instruction in waits:
                flag, amount = map(self._text, instruction.operands[:2])
                yield f"    {self._if(instruction.guard)}wait({flag}, {amount})"
        yield f"def line_{begin}(now, starts):"
        yield "    to = None"
        for index in range(begin, self.ends[begin]):
            yield from (f"    {line}" for line in self._bundle(index))
        yield "    return to"

    def _bundle(self, index: int) -> Iterator[str]:
        """Statements of one bundle: everything is read before any register is written."""
        bundle, targets, values = self.program.bundles[index], [], []
        for instruction in bundle.instructions:
            if instruction.op.startswith(SILENT) or _waits(instruction):
                continue
            if effect := self._effect(instruction, index, bundle.note):
                yield f"{self._if(instruction.guard)}{effect}"
            elif value := self._written(instruction):
                targets.append(self._text(instruction.result))
                values.append(value)
        if bundle.branch is not None:
            branch = next(i for i in bundle.instructions if i.op.startswith("sbr"))
            targets.append("taken")
            values.append(self._condition(branch.guard))
        if targets:
            yield f"{', '.join(targets)} = {', '.join(values)}"
        if bundle.branch is not None:
            yield f"if taken: to = to or ({index + bundle.after + 1}, {bundle.branch})"

    def _effect(self, instruction: Instruction, index: int, note: str) -> str:
        """What an instruction does beside writing a register; "" if nothing."""
        op, texts = instruction.op, [self._text(o) for o in instruction.operands]
        if _copies(instruction):
            return self._copy(instruction, index, note)
        if op.startswith("vsyncpa"):
            return f"put({texts[0]}, {texts[1]})"
        if op.startswith("vsyncadd"):
            return f"add({texts[0]}, {texts[1]})"
        if op == "sst":
            return f"store({texts[0]}, {texts[1]})"
        if op == "vpush.ccrf":
            return f"pushed.append({texts[0]})"
        if op.startswith("vpush"):
            return f"scalars[{instruction.number}] = {texts[0]}"
        if op.startswith("sdivrem"):
            return f"scalars[{instruction.number}] = divided({texts[0]}, {texts[1]})"
        if op.startswith("srest"):
            return f"scalars[{instruction.number}] = divided({texts[0]}, {texts[1]}, 1)"
        return ""

    def _copy(self, instruction: Instruction, index: int, note: str) -> str:
        found = _WAY.search(instruction.op) or _WAY.search(note)
        way = (found[1], found[2]) if found else ("hbm", "vmem")
        named = instruction.named
        size, source, target, flag, other = (
            self._text(named.get(name))
            for name in (
                "size_in_granules",
                "src" if "src" in named else way[0],
                "dst" if "dst" in named else way[1],
                "dst_syncflagno",
                "src_syncflagno",
            )
        )
        flags = f"({flag}, {other})" if "src_syncflagno" in named else f"({flag},)"
        return f"copy({way!r}, now + starts[{index}], {size}, {source}, {target}, {flags})"

    def _written(self, instruction: Instruction) -> str:
        """The new value of the register that an instruction writes; "" if it writes none."""
        if instruction.result is None or instruction.result.bank not in ("s", "p", "v"):
            return ""
        value = self._value(instruction)
        if not value or instruction.guard is None:
            return value
        old = self._text(instruction.merge or instruction.result)
        predicate = f"p[{instruction.guard.predicate}]"
        yes, no = (old, value) if instruction.guard.negated else (value, old)
        return f"U if {predicate} is U else ({yes} if {predicate} else {no})"

    def _value(self, instruction: Instruction) -> str:
        """What it computes; "" for a vector instruction, "U" for what is not known."""
        op, named = instruction.op, instruction.named
        name, _, kind = op.partition(".")
        texts = [self._text(operand) for operand in instruction.operands]
        if name == "int_to_ptr" and instruction.operands[-1] == instruction.result:
            return ""  # the same number, perhaps one that is made in this very bundle
        if name == "scalar_select":
            select, yes, no = (self._text(named[n]) for n in ("predicate", "on_true", "on_false"))
            return f"U if {select} is U else ({yes} if {select} else {no})"
        if op == "vpop.ccrf":
            return "pushed.popleft() if pushed else U"
        if "drf" in kind:
            return f"next_of(scalars.get({texts[0]}))"
        if "sfrf" in kind:
            return "0"
        if name == "vmov" and not isinstance(instruction.operands[0], int):
            return ""
        if instruction.result is not None and instruction.result.bank == "v" and name != "vmov":
            return ""
        if name == "scmp" and "f32" in kind and texts[0] == texts[1]:
            return str("ne" not in kind)  # asks for NaN: data are taken to have none
        if "f32" in kind:
            return "U"
        if name == "scmp":
            return _compared(kind, texts)
        if name in ("smin", "smax"):
            return _extreme(name, kind, texts)
        if form := SCALARS.get(op) or SCALARS.get(name):
            return form.format(*texts)
        self.memory.notes[f"an instruction that is not known: {op}"] += 1
        return "U"

    def _text(self, operand: Operand) -> str:
        match operand:
            case Register(bank, number):
                return f"{bank}[{number}]"
            case Allocation(name):
                return str(self.memory.address(name))
            case Sum(parts):
                return f"({' + '.join(map(self._text, parts))})"
            case int():
                return str(operand)
            case None:
                return "U"
            case _:
                assert_never(operand)

    def _if(self, guard: Predicate | None) -> str:
        return "" if guard is None else f"if {self._condition(guard)}: "

    def _condition(self, guard: Predicate | None) -> str:
        return "True" if guard is None else f"sure(p[{guard.predicate}], {guard.negated})"

    def _sure(self, predicate: Any, negated: bool) -> bool:
        """Whether a guard says yes; one that is not known is noted, and says no."""
        if predicate is UNKNOWN:
            self.memory.notes["a condition that is not known"] += 1
            return False
        return predicate is not negated


def lines(program: Program) -> dict[int, int]:
    """First bundle -> end of every line: nothing jumps into one, and waits stand at its begin."""
    begins = {0}
    for index, bundle in enumerate(program.bundles):
        if bundle.branch is not None:
            begins |= {bundle.branch, index + bundle.after + 1}
        if any(map(_waits, bundle.instructions)):
            begins.add(index)
    inside = sorted(b for b in begins if b < len(program.bundles))
    return dict(zip(inside, [*inside[1:], len(program.bundles)], strict=True))


def _waits(instruction: Instruction) -> bool:
    return instruction.op.startswith(("dma.done.wait", "swait"))


def _copies(instruction: Instruction) -> bool:
    return instruction.op.startswith(("dma.", "stream.")) and not _waits(instruction)


def _compared(kind: str, texts: list[str]) -> str:
    sign, first, second = COMPARISONS[kind.split(".")[0]], *texts[:2]
    if sign in ("==", "!=") or "u32" in kind:
        return f"{first} {sign} {second}"
    return f"({first} ^ H) {sign} ({second} ^ H)"  # two's complement, in the order of its values


def _extreme(name: str, kind: str, texts: list[str]) -> str:
    """Of two numbers; with the sign bit turned, signed ones have the order of unsigned ones."""
    chosen, first, second = "least" if name == "smin" else "most", *texts[:2]
    if "u32" in kind:
        return f"{chosen}({first}, {second})"
    return f"{chosen}({first} ^ H, {second} ^ H) ^ H"


def _known(*values: Any) -> bool:
    return all(value is not UNKNOWN for value in values)


def _least(first: Any, second: Any) -> Any:
    return min(first, second) if _known(first, second) else UNKNOWN


def _most(first: Any, second: Any) -> Any:
    return max(first, second) if _known(first, second) else UNKNOWN


def _zeros(value: Any) -> Any:
    return 32 - value.bit_length() if _known(value) else UNKNOWN


def _quotient(first: Any, second: Any) -> Any:
    return first // (second or 1) if _known(first, second) else UNKNOWN


def _remainder(first: Any, second: Any) -> Any:
    return first % (second or 1) if _known(first, second) else UNKNOWN


def _divided(first: Any, second: Any, begin: int = 0) -> deque[Any]:
    """Quotient and remainder in the order in which they are taken, or the remainder alone."""
    return deque((_quotient(first, second), _remainder(first, second))[begin:])


def _next_of(results: deque[Any] | None) -> Any:
    return results.popleft() if results else UNKNOWN
