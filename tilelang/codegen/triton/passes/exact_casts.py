"""Exact casts: what was widened and is narrowed again is what it was before.

    v = cast(x[t, 0:64], float32)              v = cast(x[t, 0:64], float32)
    s = dot(cast(v, bfloat16), w)        ->    s = dot(x[t, 0:64], w)
    y = cast(cast(v, bfloat16), float32)       y = v

float32 holds every number of 16 bits or fewer, so that nothing is rounded on the way.  What a
product reads of memory is copied ahead of it; what registers have converted is not.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tilelang.ir import Apply, Expr, KernelIR, Load, Var, definitions, rewrite_body
from tilelang.language.dtypes import is_narrow

FLOAT = "float32"


def exact_casts(kernel: KernelIR) -> KernelIR:
    """The kernel without those; what it stores to is read where its author reads it."""
    known, stored = definitions(kernel.body), kernel.stored()
    widened = {name: value for name, value in known.items() if _widens(value)}
    if not widened:
        return kernel
    here = {
        name: made
        for name, value in widened.items()
        if (made := _before(value, kernel, stored)) is not None
    }

    def exact(expr: Expr) -> Expr | None:
        name = _twice(expr, widened)
        if name is not None:
            return Var(name, expr.type)
        return here.get(_narrowed(expr, widened) or "")

    body = rewrite_body(kernel.body, exact)
    return kernel if body == kernel.body else replace(kernel, body=body)


def _widens(value: Expr) -> bool:
    """Whether a value is float32 made of fewer bits."""
    match value:
        case Apply("cast", (source,)):
            return value.type.dtype == FLOAT and is_narrow(source.type.dtype)
        case _:
            return False


def _before(value: Expr, kernel: KernelIR, stored: Collection[str]) -> Expr | None:
    """What was widened, if it is a name or can be read again."""
    assert isinstance(value, Apply)
    match value.args[0]:
        case Var() as source:
            return source
        case Load(tensor) as source if kernel.root(tensor) not in stored:
            return source
        case _:
            return None


def _narrowed(expr: Expr, widened: Mapping[str, Expr]) -> str | None:
    """The name whose own dtype, before it was widened, it is cast to."""
    match expr:
        case Apply("cast", (Var(name),)) if name in widened:
            value = widened[name]
            assert isinstance(value, Apply)
            return name if value.args[0].type.dtype == expr.type.dtype else None
        case _:
            return None


def _twice(expr: Expr, widened: Mapping[str, Expr]) -> str | None:
    """The name that is narrowed and widened again."""
    match expr:
        case Apply("cast", (Apply("cast") as inner,)) if expr.type.dtype == FLOAT:
            return _narrowed(inner, widened)
        case _:
            return None
