"""read(text of a lowered custom call): what the launch record in it says, apart from our writer.

And `arrays_of(module)`: which array each argument of each launch is, followed through StableHLO.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxlib.mlir.dialects import stablehlo as hlo

FIELDS = {1: "kernel_name", 2: "num_warps", 3: "shared_mem_bytes", 4: "ptx",
          6: "compute_capability", 10: "num_ctas"}  # fmt: skip
LAUNCHER = "triton_kernel_call_ffi"


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a protobuf message, as its wire format has them."""
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        tag = varint()
        if tag & 7 == 0:
            yield tag >> 3, varint()
        else:
            assert tag & 7 == 2
            size = varint()
            at += size
            yield tag >> 3, message[at - size : at]


@dataclass(frozen=True)
class Record:
    """One launch as jaxlib reads it."""

    name: str
    kernel: Mapping[str, Any]
    grid: tuple[int, ...]
    alignments: tuple[int, ...]


def read(opaque: bytes) -> Record:
    """The record of one custom call."""
    outer = dict(fields(zlib.decompress(opaque)))
    call = list(fields(outer[1]))
    once = dict(call)
    kernel = {FIELDS[number]: value for number, value in fields(once[1])}
    arrays = [dict(fields(value))[1] for number, value in call if number == 5]
    return Record(
        outer[4].decode(),
        {k: v.decode() if isinstance(v, bytes) else v for k, v in kernel.items()},
        tuple(once[n] for n in (2, 3, 4)),
        tuple(dict(fields(a))[2] for a in arrays),
    )


@dataclass(frozen=True)
class Call:
    """A launch in a module: its record, and the array that each argument of the program is."""

    record: Record
    arguments: tuple[str, ...]
    returned: tuple[str, ...]


def calls(module: Any, inputs: Sequence[str], launches: Sequence[Any]) -> tuple[list[Call], list]:
    """Every launch of a lowered function, and the names of what it returns.

    Arrays are named by where they come from: an input by its place, a fill by its value, a result
    that nothing is put into by the argument of the plan that stands where its pointer goes.
    """
    (main,) = (f for f in module.body if f.attributes["sym_name"].value == "main")
    block = main.regions[0].blocks[0]
    names = {_key(a): name for a, name in zip(block.arguments, inputs, strict=True)}
    waiting, found = list(launches), []
    for op in block.operations:
        match op.operation.name:
            case "stablehlo.custom_call" if op.attributes["call_target_name"].value == LAUNCHER:
                found.append(_launch(op, names, waiting.pop(0)))
            case "stablehlo.custom_call":
                assert op.attributes["call_target_name"].value == "AllocateBuffer"
                names[_key(op.results[0])] = "empty"
            case "stablehlo.constant":
                names[_key(op.results[0])] = f"filled with {_constant(op)}"
            case "func.return":
                return found, [names[_key(o)] for o in op.operands]
            case _:  # a view, or a fill in the shape of the array
                names[_key(op.results[0])] = names[_key(op.operands[0])]
    raise AssertionError("a function returns")


def _launch(op: Any, names: dict[Any, str], launch: Any) -> Call:
    """The launch; its results are named from here on."""
    config = op.attributes["mhlo.backend_config"]
    record = read(config["opaque"].value_bytes)
    given = [names[_key(o)] for o in op.operands]
    aliases = {}
    for alias in map(hlo.OutputOperandAlias, op.attributes["output_operand_aliases"]):
        where = alias.output_tuple_indices or [0]  # of a single result nothing is said
        aliases[where[0]] = alias.operand_index
    made = []
    for number, _ in enumerate(op.results):
        if number in aliases:
            made.append(launch.arguments[aliases[number]])
        else:
            made.append(launch.arguments[len(given) + number])
    pointers = [*given, *made][: len(record.alignments)]
    for result, name in zip(op.results, made, strict=True):
        names[_key(result)] = name
    return Call(record, tuple(pointers), tuple(made))


def _constant(op: Any) -> float:
    return op.attributes["value"].get_splat_value().value


def _key(value: Any) -> str:
    return value.get_name()
