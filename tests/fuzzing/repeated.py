"""repeated(rng) -> Program: rows that are stored where an array says, several of them in one place.

y[rows[t], :] = x[t, :]   of rows 3, 1, 3: the last one stays, of those that masks let through
"""

from __future__ import annotations

import random
from dataclasses import replace

from tests.fuzzing.program import Axis, Load, Mask, Pick, Program, Store, Tensor, Term, fitted
from tests.fuzzing.small import COLUMNS, SIZES, nest


def repeated(rng: random.Random) -> Program:
    """Rows of groups or of an array, with up to three conditions of lanes, or of memory."""
    rows, ragged = rng.choice(SIZES), rng.random() < 0.6
    limit = rng.choice((1, 3, max(rows // 2, 1), 2 * rows))
    tensors = [
        Tensor("index1", (rows,), "int32", "index", limit=limit),
        Tensor("x1", (), rng.choice(("float32", "float32", "bfloat16")), "input"),
        Tensor("y1", (), "float32", "output", rng.choice((0.0, 3.0))),
    ]
    over, outer = Axis("t", "tile", rows), list[Axis]()
    if ragged:
        groups = rng.randint(1, 5)
        tensors.insert(0, Tensor("offsets1", (groups + 1,), "int32", "offsets", limit=rows))
        outer, over = [Axis("g", "grid", groups)], replace(over, offsets="offsets1", of="g")
    columns = (Pick("c"),) if rng.random() < 0.7 else ()
    masks = [_lanes(rows, rng) for _ in range(rng.choice((0, 1, 1, 2)))]
    if ragged and rng.random() < 0.3:
        masks.append(Mask(Pick("g"), rng.randint(0, groups), rng.choice((0, 0, 1))))
    if rng.random() < 0.3:
        tensors.append(Tensor("s1", (), "int32", "index", limit=3))
        masks.append(Mask(Pick("", terms=(Term("", "s1"),)), rng.choice((1, 2))))
    rng.shuffle(masks)
    picked = Pick("t", through="index1")
    place = (picked, *columns)
    if (
        not (columns or masks) and rng.random() < 0.5
    ):  # refused: a tile has more pairs than positions
        place = (picked, Pick("t"))
    store = Store("y1", place, Load("x1", (Pick("t"), *columns)), masks=tuple(masks))
    axes = (*outer, over, *((COLUMNS,) if columns else ()))
    return fitted(Program(axes, tuple(tensors), nest((*outer, over), (store,))))


def _lanes(rows: int, rng: random.Random) -> Mask:
    """Rows before one, perhaps from one on."""
    return Mask(Pick("t"), rng.randint(0, rows), rng.choice((0, 0, rows // 3)))
