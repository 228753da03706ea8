"""RULES: what the TPU compiler says -> the broken rule in plain words, and what to change.

The first rule whose pattern is found in the raw text holds.  `{1}` is the pattern's first group,
`{vmem}` and `{physical}` are the plan's sum and the chip's vector memory.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class KnownMessage:
    """One known message."""

    pattern: str
    what: str
    hint: str


BLOCKS = "use smaller blocks: config=tile.Config(blocks={...})"
PAIR = "install a pair that was released together: pip install -U 'jax[tpu]'"
FAULT = "generated code must not do this: please report it with the kernel"

RULES = (
    KnownMessage(
        r"space=smem|memory space smem|ScopedSmemOom|exceed\w* smem",
        "the step table and the offsets do not fit into scalar memory",
        "use larger blocks along the ragged axis, or a smaller max_extent",
    ),
    KnownMessage(
        r"ScopedVmemOom|Scoped allocation with size|space=vmem|memory space vmem|exceed\w* vmem",
        "its blocks do not fit into vector memory: {vmem:,} bytes by the plan's sum, "
        "the chip has {physical:,}",
        BLOCKS,
    ),
    KnownMessage(
        r"memory space hbm|space=hbm|RESOURCE_EXHAUSTED",
        "its arrays do not fit into the memory of one chip",
        "split the work over several calls or chips",
    ),
    KnownMessage(
        r"MemoryError",
        "the compiler ran out of memory on this machine",
        "use smaller blocks, or compile on a machine with more memory",
    ),
    KnownMessage(
        r"(?:\d|[^b\w])x?f16\b|vector<[\dx]*xf16>",
        "float16 cannot be computed on a TPU",
        "use bfloat16 or float32",
    ),
    KnownMessage(
        r"64-bit types are not supported|X64 rewrit|[\dx]x(?:i64|f64)>",
        "64-bit values do not exist in TPU kernels",
        "use int32 or float32",
    ),
    KnownMessage(
        r"Only vector<i16> and vector<i32> are supported, but got 'i8'|xi8>\) -> vector<[\dx]*xi8>",
        "8-bit integers can be stored and multiplied in a dot, but have no arithmetic on a TPU",
        "compute in int32 or float32: x.to(hl.int32)",
    ),
    KnownMessage(
        r"failed to legalize operation '(?:arith|math)\.(\w+)'[^\n]*bf16",
        "the chip has no {1} in bfloat16",
        "compute it in float32: x.to(hl.float32)",
    ),
    KnownMessage(
        r"failed to legalize operation '(?:arith|math|vector)\.(\w+)'",
        "the chip has no {1} for this dtype",
        "compute it in float32 or int32 and cast the result back",
    ),
    KnownMessage(
        r"Operation not supported: kVector(\w+?)[SU](?:8|16)\b",
        "the chip has no {1} of 8- or 16-bit integers",
        "compute in int32: x.to(hl.int32)",
    ),
    KnownMessage(
        r"Unimplemented primitive in Pallas TPU lowering for \w+: ([\w-]+)",
        "{1} does not exist inside of TPU kernels",
        "write it with operations of hl, or do it outside of the kernel",
    ),
    KnownMessage(
        r"Expected matmul acc to be 32-bit",
        "a product must be summed in 32 bits",
        "keep the sum in float32 (int32 for integers): hl.dot(a, b, acc=acc)",
    ),
    KnownMessage(
        r"Up to 1 batch dim supported",
        "a product may have one batch dimension",
        "loop over the others with hl.grid",
    ),
    KnownMessage(
        r"contracting dims must be of size 1",
        "a product may sum over one dimension",
        "loop over the others, or reshape the arrays outside of the kernel",
    ),
    KnownMessage(
        r"Unsupported dot precision|Bad [lr]hs type|Unsupported .*matmul",
        "the chip has no product of these dtypes",
        "multiply bfloat16, float32, int8 or fp8 values; both operands of one dtype",
    ),
    KnownMessage(
        r"last two dimensions of your block shape|Block size must divide tiling|"
        r"multiple of the tiling",
        "a block does not fill whole register tiles: 8 rows by 128 lanes (16 rows of 16-bit, 32 of "
        "8-bit values)",
        "choose blocks that are multiples of these, or the whole dimension",
    ),
    KnownMessage(
        r"along tiled dimensions must be aligned|UnprovenMemoryAccessAlignment|"
        r"cannot statically prove that index|Couldn't prove that tiling",
        "a slice begins or ends inside of a register tile",
        "take rows with hl.tile, whose windows are aligned and masked",
    ),
    KnownMessage(
        r"unsupported shape cast|infer-vector-layout|Unsupported (?:reshape|broadcast)|"
        r"unsupported packed type",
        "a value changes shape in a way that registers cannot follow",
        "see arrays in that shape before the loops, as in v = x.reshape(...); keep other values "
        "two-dimensional, and cast bool and 16-bit values to 32 bits first",
    ),
    KnownMessage(
        r"masked (?:swap|load|store) with non-32-bit",
        "only 32-bit values can be stored under a mask",
        FAULT,
    ),
    KnownMessage(
        r"Buffer count >2 not supported|double \(2\) buffering|Lookahead is not supported",
        "more buffers than this form of pipeline has",
        "use buffers=2, which is the default",
    ),
    KnownMessage(
        r"captures constants",
        "the kernel uses an array that is not one of its arguments",
        "pass it as an argument",
    ),
    KnownMessage(r"Out-of-bounds|out of bounds", "an access outside of an array", FAULT),
    KnownMessage(
        r"unknown attribute code|Failed to parse the Mosaic module",
        "libtpu is older than jaxlib and cannot read what it wrote",
        PAIR,
    ),
    KnownMessage(
        r"libtpu version|requires libtpu|No module named 'libtpu'",
        "jaxlib does not work with this libtpu",
        PAIR,
    ),
    KnownMessage(
        r"lockfile",
        "another process holds libtpu",
        "wait for it, or remove libtpu_lockfile from the folder of temporary files",
    ),
    KnownMessage(
        r"No module named '(jax\w*)'", "{1} is not installed", "pip install 'raggedtile[tpu]'"
    ),
)


def rule_of(raw: str) -> tuple[KnownMessage, re.Match[str]] | None:
    """The rule that a message is about; None if it is not known."""
    for rule in RULES:
        if match := re.search(rule.pattern, raw):
            return rule, match
    return None
