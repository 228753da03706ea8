"""Bodies of every operation, dtype and place compile for TPUs, and mean what they say.

Evidence: libtpu, ahead of time, and Pallas's interpreter; no TPU is used.
"""

from __future__ import annotations

import itertools
import random

import pytest

from tests.aot.written import needs_libtpu
from tests.bodies import campaign
from tests.bodies.campaign import GENERATIONS, SIZES, judged, main
from tests.bodies.campaign import campaign as ran
from tests.bodies.draw import DTYPES, MADE, PLACES, Body, Place, Value, drawn
from tests.bodies.text import text
from tests.compile_cache import TPU, shared
from tilelang.codegen.pallas.passes import wide_operands
from tilelang.codegen.pallas.plan.body import registers


def read(place: Place, dtype: str) -> Value:
    return Value("read", place, dtype)


def of(op: str, place: Place, dtype: str, *args: Value, axis: int = 0) -> Value:
    return Value(op, place, dtype, args, axis)


def compared(place: Place, dtype: str) -> Value:
    return of("gt", place, "bool", read(place, dtype), read(place, dtype))


def summed(place: Place, dtype: str) -> Value:
    return of("add", place, dtype, read(place, dtype), read(place, dtype))


COLUMN_BOOLS = of(
    "where", "block", "float32",
    of("logical_and", "column", "bool", of("any", "column", "bool", read("block", "bool"), axis=1),
       read("column", "bool")),
    read("block", "float32"), read("row", "float32"),
)  # fmt: skip
PRODUCT = Value(
    "einsum", "heads", "bfloat16", (read("side", "bfloat16"), read("block", "bfloat16")),
    summed="th,td->thd",
)  # fmt: skip
NARROW = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int16", "int8", "uint8")
# What the compiler refused once, each with its message.
KNOWN = {
    # failed to legalize operation 'scf.for'
    "bools over steps": Body("fold", compared("row", "float32"), "bool", "logical_or"),
    "bools inside": Body("steps", compared("number", "bfloat16"), "bool", "logical_and"),
    # Sublane broadcast, of masks of 16 and of 32 bits
    "a narrow mask and a wide one": Body(
        "fold", of("ge", "row", "bool", read("row", "bfloat16"), read("row", "bfloat16")),
        "bool", "logical_or",
    ),
    "a choice of a row": Body(
        "fold", of("where", "row", "bfloat16", of("any", "number", "bool", read("column", "bool")),
                   read("number", "bfloat16"), read("row", "bfloat16")), "bfloat16", "add", 64,
    ),
    # Lane broadcast, Invalid input layout
    "bools of a column that meet": Body("tile", COLUMN_BOOLS, "float32"),
    "a choice of bools": Body(
        "tile", of("where", "column", "bool", *[read("column", "bool")] * 3), "bool"
    ),
    "a number given dimensions": Body("grid", of("lifted", "row", "bfloat16", read(
        "number", "bfloat16"), read("row", "bfloat16")), "bfloat16"),
    # a value that is kept reads the value acc where nothing defines it
    "a bool given dimensions": Body("fold", of("any", "row", "bool", of(
        "logical_or", "block", "bool", read("block", "bool"), of(
            "lifted", "row", "bool", read("number", "bool"), read("row", "bool"))), axis=0),
        "bool", "logical_or"),
    "a number given dimensions that is carried": Body("steps", of(
        "lifted", "row", "float32", read("number", "float32"), read("row", "float32")),
        "float32", "maximum"),
    "a bool given dimensions that is carried": Body("steps", of(
        "lifted", "row", "bool", read("number", "bool"), read("row", "bool")),
        "bool", "logical_or"),
    # Only float32 is supported; no powf, sin; Only i1 and i32 scalars are supported
    "argmax of integers": Body(
        "gather", of("argmax", "column", "int32", read("block", "uint8"), axis=1), "int32"
    ),
    "powers of numbers": Body(
        "grid", of("pow", "number", "float32", *[read("number", "float32")] * 2), "float32"
    ),
    "a cosine of what was an integer": Body(
        "grid", of("cos", "row", "bfloat16", of("cast", "row", "bfloat16", of(
            "cast", "row", "int32", read("row", "bfloat16")))), "bfloat16"
    ),
    "bits of numbers": Body(
        "steps", of("bitwise_and", "number", "uint8", *[read("number", "uint8")] * 2),
        "uint8", "bitwise_xor",
    ),
    "a number of bfloat16 in eight bits": Body(
        "grid", of("cast", "number", "float8_e4m3fn", read("number", "bfloat16")), "float8_e4m3fn"
    ),
    "bools in parts": Body(
        "tile", of("parted", "block", "bool", compared("block", "float32")), "bool"
    ),
    # unsupported shape cast
    "every number of a row with every head": Body("heads", PRODUCT, "bfloat16"),
    # Invalid relayout: replicated in destination; Can't change bitwidth during a relayout
    "bools of heads that meet": Body("heads", of(
        "logical_not", "block", "bool", of("any", "block", "bool", read("heads", "bool"), axis=1)),
        "bool"),
    "a choice of what meets the largest": Body("weigh", of(
        "where", "block", "bfloat16", compared("block", "float32"), of(
            "add", "block", "bfloat16", of(
                "max", "block", "bfloat16", read("heads", "bfloat16"), axis=1),
            read("block", "bfloat16")), read("block", "bfloat16")), "bfloat16", "maximum"),
    # Invalid vector register cast
    "joined bools": Body("heads", of("joined", "side", "bool", *[read("side", "bool")] * 2),
                         "bool"),
    "the largest of unsigned integers": Body("scatter", read("block", "uint32"), "uint32", "max"),
    "the least of unsigned integers": Body("update", read("column", "uint32"), "uint32", "min"),
    **{f"{d} numbers": Body("grid", summed("number", d), d) for d in NARROW},
    **{f"{d} blocks": Body("tile", summed("block", d), d) for d in NARROW},
    **{f"{d} compared": Body("tile", compared("block", d), "bool") for d in NARROW},
    **{f"{d} carried": Body("steps", read("number", d), d, "maximum") for d in NARROW[:3]},
}  # fmt: skip


# Each with one generation, other ones for each body; all of them are asked before a release.
SHARE = [(name, GENERATIONS[i % len(GENERATIONS)]) for i, name in enumerate(KNOWN)]
REST = [pair for pair in itertools.product(KNOWN, GENERATIONS) if pair not in SHARE]


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "generation"),
    [*SHARE[::2], *(pytest.param(*pair, marks=pytest.mark.slow) for pair in (*SHARE[1::2], *REST))],
)
def test_what_was_refused_compiles_and_is_right(name, generation) -> None:
    found = judged(
        KNOWN[name], generation, SIZES[0], shared(TPU), values=(name, generation) in SHARE
    )
    assert (found.kind, found.detail) == ("ok", ""), found.source


@needs_libtpu
@pytest.mark.parametrize(
    ("seed", "count"),
    [
        (11, 24),
        pytest.param(13, 60, marks=pytest.mark.slow),
        pytest.param(12, 200, marks=pytest.mark.thorough),
    ],
)
def test_random_bodies_compile(seed, count) -> None:
    found = ran(seed, count, values=False)
    assert [
        f"{v.kind} {v.source}{v.detail}" for v in found if v.kind not in ("ok", "refused")
    ] == []
    assert sum(v.kind == "ok" for v in found) == count


def test_draws() -> None:
    bodies = [[drawn(rng) for _ in range(3000)] for rng in (random.Random(1), random.Random(1))]
    assert bodies[0] == bodies[1]
    parts = [p for b in bodies[0] for p in b.value.parts()]
    read_ = {(p.place, p.dtype) for p in parts if p.op == "read"}
    assert read_ == set(itertools.product(PLACES, DTYPES))
    computed = {(p.op, p.args[0].dtype) for p in parts if p.args}
    assert len(computed) > 250
    assert {b.frame for b in bodies[0]} == set(MADE)


def test_the_text() -> None:
    assert text(KNOWN["bools of a column that meet"], SIZES[0]).splitlines()[5:] == [
        "def kernel(offsets, x_bool, v_bool, x_float32, w_float32):",
        "    G, M, N = offsets.shape[0] - 1, 64, 128",
        "    y = hl.zeros([M, N], dtype=hl.float32)",
        "    for g in hl.grid(G):",
        "        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=M):",
        "            y[t, :] = hl.where((((x_bool[t, :]).any(1) & v_bool[t]))[:, None], "
        "x_float32[t, :], (w_float32[:])[None, :])",
        "    return y",
    ]


class Refusing:
    """A compiler that takes nothing."""

    alive, compiled = True, 0

    def ask(self, request, timeout):
        return {"error": "NotImplementedError: no", "line": None}

    def close(self):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *failure):
        pass


def test_a_body_that_does_not_compile_is_found(monkeypatch, capsys) -> None:
    monkeypatch.setattr(campaign, "CachedWorker", Refusing)
    assert main(["--count", "3"]) == 1
    printed = capsys.readouterr().out
    assert printed.count("UNCOMPILED") == 3 and "def kernel(offsets" in printed


@needs_libtpu
@pytest.mark.parametrize(
    ("name", "generation"),
    [
        ("every number of a row with every head", "v5e"),
        ("a choice of what meets the largest", "v6e"),
    ],
)
def test_planted_registers_are_left(monkeypatch, name, generation) -> None:
    monkeypatch.setattr(registers, "_laid_out", lambda expr, values: expr)
    assert judged(KNOWN[name], generation, SIZES[0], shared(TPU)).kind == "uncompiled"


@needs_libtpu
def test_a_wrong_value_is_found(monkeypatch) -> None:
    """Of integers that are computed as floats, large sums do not wrap."""
    monkeypatch.setattr(wide_operands, "wide_of", lambda dtype: "float32")
    found = judged(KNOWN["int8 blocks"], "v5e", SIZES[0], shared(TPU), values=True)
    assert found.kind == "wrong" and found.detail.endswith("-128.0, not 0.0")
