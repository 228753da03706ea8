"""with_others(steps): lanes that a mask leaves out hold what is wanted of them as they are read.

x = load(x_ptr, mask=inside, other=0.0)        x = load(x_ptr, mask=inside, other=-inf)
rows = where(inside, x.to(float32), -inf)  ->  rows = x.to(float32)
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from tilelang.ir import Apply, Const, Expr, Scalar, Var, walk
from tilelang.ir.traversal import rebuilding
from tilelang.language.dtypes import is_float, to_numpy

from .steps import every_step, exprs, map_exprs
from .types import For, Guard, Read, Step

Choice = tuple[str, Scalar]  # the name of what is read, and the number of the other lanes


def with_others(steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """The steps without choices between what is read and a number, where nothing else reads it."""
    reads = {s.name: s for s in every_step(steps) if isinstance(s, Read) and s.access.mask}
    every = [e for step in every_step(steps) for x in exprs(step) for e in walk(x)]
    chosen = Counter(c for e in every if (c := _choice(e, reads)))
    uses = Counter(e.name for e in every if isinstance(e, Var))
    found = {name: value for (name, value), n in chosen.items() if n == uses[name]}
    if not found:
        return steps

    def plain(expr: Expr) -> Expr | None:
        name, value = _choice(expr, reads) or ("", 0)
        return expr.args[1] if isinstance(expr, Apply) and found.get(name) == value else None

    return tuple(_changed(s, found) for s in (map_exprs(s, rebuilding(plain)) for s in steps))


def _choice(expr: Expr, reads: dict[str, Read]) -> Choice | None:
    """What is read, by the mask that it is read by: the other lanes hold a number of its dtype."""
    match expr:
        case Apply("where", (mask, Var(name) | Apply("cast", (Var(name),)), Const(value))):
            pass
        case _:
            return None
    read = reads.get(name)
    if read is None or read.access.mask != mask or not _holds(read.type.dtype, value):
        return None
    return name, value


def _holds(dtype: str, value: Scalar) -> bool:
    """Whether a float dtype holds a number as it is."""
    return is_float(dtype) and float(to_numpy(dtype).type(value)) == value


def _changed(step: Step, others: dict[str, Scalar]) -> Step:
    """The step with the numbers of its reads."""
    if isinstance(step, For | Guard):
        return replace(step, body=tuple(_changed(s, others) for s in step.body))
    if isinstance(step, Read) and step.name in others:
        return replace(step, other=others[step.name])
    return step
