"""Separate parts: a part of what was loaded is a load of that part.

    v = x[t, 0:16]
    y[t, 0:8] = v[:, 0:8] * v[:, 8:16]     ->   y[t, 0:8] = x[t, 0:8] * x[t, 8:16]
    (v + 1)[:, 8:16]                       ->   x[t, 8:16] + 1
    cat(a[t, 8], b[t, 8])[:, 8:16]         ->   b[t, 8]

Nothing is moved for it.  A part of a product, of a sum, or of what a loop carries stays one, and so
does that of what costs much to compute: who reads all of it needs it as well.
"""

from __future__ import annotations

from dataclasses import replace

from ..ir import Apply, At, Expr, KernelIR, Load, Span, Var, every_expr
from ..ir.names import names_in
from ..ir.traversal import definitions, rebuild_body
from ..language.op import OPS
from .separate_joins import Separating, followed


def separate_parts(ir: KernelIR) -> KernelIR:
    """The kernel with loads of parts in place of parts of loads; itself if it has no parts."""
    every = every_expr(ir.body, ir.axes)
    if not any(isinstance(e, Apply) and e.op == "narrow" for e in every):
        return ir
    run = Separating(ir, definitions(ir.body), names_in(ir))

    def change(expr: Expr) -> Expr | None:
        return _loaded(expr, run) if isinstance(expr, Apply) else None

    return run.kernel(rebuild_body(ir.body, change))


def _loaded(expr: Apply, run: Separating) -> Expr | None:
    """What a part is of the loads that it is made of; None where it stays a part."""
    if expr.op != "narrow":
        return None
    (value,), dim = expr.args, expr.attr("axis")
    if not _is_separable(value, dim, run):
        return None
    start, stop = expr.attr("start"), expr.attr("stop")
    ends = tuple(sorted({start, stop, *run.ends(value, dim)} - {0}))
    if (found := run.cut(value, dim, ends)) is None:
        return None
    parts = tuple(p for p, end in zip(found, ends, strict=True) if start < end <= stop)
    joined = replace(expr, op="concat", args=parts, attrs=(("axis", dim),))
    return parts[0] if len(parts) == 1 else joined


def _is_separable(expr: Expr, dim: int, run: Separating) -> bool:
    """Whether memory has each part of a value, but for what is computed again at little cost."""
    match expr:
        case Var(name):
            return name in run.values and _is_separable(run.values[name], dim, run)
        case Load():
            entry = [i for i in expr.index if not isinstance(i, At)][dim]
            return isinstance(entry, Span) and expr.mask is None
        case Apply("narrow" | "concat", args) if expr.attr("axis") == dim:
            return all(_is_separable(a, dim, run) for a in args)
        case Apply("arange" | "full"):
            return True
        case Apply(op, args) if op in OPS and OPS[op].cost != "costly":
            dims = followed(expr, dim) or (dim,) * len(args)
            pairs = zip(args, dims, strict=True)
            known = followed(expr, dim) is not None
            return known and all(d is None or _is_separable(a, d, run) for a, d in pairs)
        case _:
            return False
