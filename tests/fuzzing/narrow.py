"""narrowed(program, rng): every array has a dtype of its own, and some meet as they are.

    x1[t] + x2[t]   ->   (x1[t] + x2[t]).to(hl.float32), of bfloat16 and int32
    x1[t].sum(0)    ->   x1[t].sum(0).to(hl.float32), of bfloat16

Where all inputs are small whole numbers, that is exact in any of these dtypes; so are outputs that
are integers then.
"""

from __future__ import annotations

import random
from dataclasses import fields, replace
from typing import Any

from tests.fuzzing.program import (
    Binary,
    Chosen,
    Dot,
    Load,
    Masked,
    Native,
    Number,
    Position,
    Program,
    Reduce,
    Scalar,
    Statement,
    Store,
    Tensor,
    TileNumber,
    Unary,
    Update,
    Value,
    Whole,
    parts,
)

INPUTS = ("int8", "int16", "uint8", "bfloat16", "bfloat16", "float16", "int32", "bool", "float32")
INPUTS += ("float8_e4m3fn", "float8_e5m2")
# What arithmetic of small numbers, some below 0, takes as it is.
MIXED = ("bfloat16", "int32", "float32", "float16", "int8", "int16")
FLOATS = ("float32", "bfloat16", "bfloat16", "float16", "float8_e4m3fn")
PRODUCTS = ("int8", "float8_e4m3fn", "float8_e5m2", "float16", "bfloat16")
PAIRED = 0.5  # of the products of two arrays are of one dtype
WHOLE = 0.7  # of the programs
NATIVE = 0.5  # of the places for it
PARTS = ("tanh", "exp", "log")  # what makes fractions


def narrowed(program: Program, rng: random.Random) -> Program:
    """The program with other dtypes; integers of `Whole` and bools of `Chosen` are kept."""
    whole = rng.random() < WHOLE
    kept = {p.load.tensor for p in parts(program.body) if isinstance(p, Whole | Chosen)}
    inputs = [t for t in program.tensors if t.role == "input" and t.name not in kept]
    new = {t.name: _input(t, whole, rng) for t in inputs}
    for pair in _multiplied(program):
        if new.keys() >= pair and rng.random() < PAIRED:
            dtype = rng.choice(PRODUCTS)
            new |= {name: replace(new[name], dtype=dtype) for name in sorted(pair)}
    program = replace(program, tensors=tuple(new.get(t.name, t) for t in program.tensors))
    if whole:
        program = replace(program, body=_met(program, program.body, rng))
    outputs = {t.name: _output(program, t, rng) for t in program.outputs}
    return replace(program, tensors=tuple(outputs.get(t.name, t) for t in program.tensors))


def _input(tensor: Tensor, whole: bool, rng: random.Random) -> Tensor:
    return replace(tensor, dtype=rng.choice(INPUTS), whole=whole)


def _multiplied(program: Program) -> list[frozenset[str]]:
    """The arrays of every product that is of them as they are."""
    products = (p for p in parts(program.body) if isinstance(p, Dot))
    pairs = ((p.left, p.right) for p in products)
    return [
        frozenset((one.tensor, two.tensor))
        for one, two in pairs
        if isinstance(one, Load) and isinstance(two, Load)
    ]


def _met(program: Program, node: Any, rng: random.Random) -> Any:
    """Some arithmetic and some sums of whole numbers in the dtypes that they have."""
    if isinstance(node, tuple):
        return tuple(_met(program, entry, rng) for entry in node)
    if not isinstance(node, Statement | Value):
        return node
    inside = {f.name: _met(program, getattr(node, f.name), rng) for f in fields(node)}
    made = replace(node, **inside)
    new = _native(program, made) if rng.random() < NATIVE else None
    return made if new is None else new


def _native(program: Program, part: Any) -> Value | None:
    match part:
        case Binary("+" | "-" | "*" | "max" as op, Load() as left, Load() as right):
            able = _mixes(program, left) and _mixes(program, right)
            return Native(op, left, right) if able else None
        case Reduce("sum" | "max" | "min", _, Load() as load) if _mixes(program, load):
            return replace(part, native=True)
        case _:
            return None


def _mixes(program: Program, load: Load) -> bool:
    tensor = program.tensor(load.tensor)
    return tensor.role == "input" and tensor.dtype in MIXED


def _output(program: Program, tensor: Tensor, rng: random.Random) -> Tensor:
    """The dtype of what is copied, or one that holds what is made."""
    stores = [p for p in parts(program.body) if isinstance(p, Store) and p.tensor == tensor.name]
    read = any(isinstance(p, Load) and p.tensor == tensor.name for p in parts(program.body))
    if read or any(s.combine for s in stores):
        return tensor
    copied = {program.tensor(s.value.tensor).dtype for s in stores if isinstance(s.value, Load)}
    if len(copied) == 1 and all(isinstance(s.value, Load) for s in stores):
        return _filled(tensor, rng.choice((*copied, "float32")))
    return _filled(tensor, rng.choice((*FLOATS, "int32", "bool") if _exact(program) else FLOATS))


def _filled(tensor: Tensor, dtype: str) -> Tensor:
    """With a fill that the dtype holds."""
    fill = tensor.fill
    if fill is not None and not dtype.startswith(("float", "bfloat")):
        fill = float(bool(fill)) if dtype == "bool" else float(abs(int(fill)))
    return replace(tensor, dtype=dtype, fill=fill)


def _exact(program: Program) -> bool:
    """Whether all that is computed are whole numbers."""
    inputs = (t for t in program.tensors if t.role in ("input", "changed"))
    return all(t.whole or t.dtype in ("int32", "bool") for t in inputs) and not any(
        map(_fraction, parts(program.body))
    )


def _fraction(part: Any) -> bool:
    match part:
        case Unary(op):
            return op in PARTS
        case Binary(op):
            return op == "/"
        case Reduce(op):
            return op in ("mean", "var")
        case Update(op="decay" | "blend") | Position() | TileNumber() | Scalar():
            return True
        case Number(value):
            return not float(value).is_integer()  # what no integer holds, infinity too
        case Masked(other=other):
            return not float(other).is_integer()
        case _:
            return False
