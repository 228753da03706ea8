"""guarded(program, rng): a softmax whose total is kept from zero, or from being less than a number.

    y[t] = acc / total   ->   y[t] = acc / hl.maximum(total, 1e-20)

Most of what authors write changes no row that has weights; a limit of 1 and more does.
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

from tests.fuzzing.changes import swapped
from tests.fuzzing.program import Binary, Let, Number, Program, Ref, Unary, Value, parts

TOTAL = Ref("total")
LIMITS = (1e-20, 1e-20, 0.5, 1.5, 3.0)


def guarded(program: Program, rng: random.Random) -> Program:
    """The program with a divisor that is not zero; maxima begin with -inf as often as not."""
    body = program.body
    for part in list(parts(body)):
        match part:
            case Binary("/", left, divisor) if divisor == TOTAL:
                body = swapped(body, part, Binary("/", left, _kept(rng)))
            case Let("m", dims) if rng.random() < 0.5:
                body = swapped(body, part, Let("m", dims, Number(-math.inf)))
            case _:
                pass
    return replace(program, body=body)


def _kept(rng: random.Random) -> Value:
    kind = rng.choice(("max", "max", "max", "kept", "+"))
    if kind == "kept":
        return Unary("kept", TOTAL)
    return Binary(kind, TOTAL, Number(rng.choice(LIMITS) if kind == "max" else 1e-20))
