"""stay_together(loop, op, ir, defined) -> how many positions of a folded loop stay on one device.

    acc = acc + x[t, :].sum(0)                  1: each position gives something of its own
    acc = acc + (upto @ x[t, :]).sum(0)         16: by which others are in its tile, block_size=16

None where tiles begin with ranges, which are cut anew in parts.  Of tiles whose block is open it
was shown that no result goes by them.
"""

from __future__ import annotations

from collections.abc import Collection

from ..analysis.carries import Definitions
from ..analysis.folds import PARTS, Folded, folded, scaled
from ..analysis.stores import is_free, mentions, sources
from ..ir import Apply, Expr, KernelIR, Loop
from ..ir.traversal import reduced
from ..language.dtypes import is_float
from ..language.op import OPS, SAME

SHAPED = SAME - {"reshape"}  # keep elements apart
KEPT = SAME | {"cast"}  # the greatest is the greatest of what is made of each


def stay_together(loop: Loop, op: str, ir: KernelIR, defined: Definitions) -> int | None:
    axis = ir.axis(loop.axis)
    terms = [term for carry in loop.carries for term in folded(carry, ir, defined)]
    if axis.kind != "tile" or is_free(axis.name, ir):
        return 1
    if terms and all(_of_each(term, axis.name, op, ir, defined) for term in terms):
        return 1
    return None if axis.static is None else axis.fixed


def _of_each(term: Folded, axis: str, op: str, ir: KernelIR, defined: Definitions) -> bool:
    """Whether a term is one fold along the axis, of values that no other position is in."""

    def goes_by(expr: Expr) -> bool:
        return any(mentions(e, axis) for e in sources((expr,), ir, defined))

    *path, core = scaled(term.value, goes_by, defined)
    if term.op != op or any(map(goes_by, term.under)) or not isinstance(core, Apply):
        return False
    kept = op == "sum" or not any(isinstance(e, Apply) and e.op not in KEPT for e in path)
    rounded = is_float(core.type.dtype) > all(is_float(e.type.dtype) for e in path)
    over = [arg.type.shape[dim] for arg, dim in reduced(core)]
    parts = [e for e in sources(core.args, ir, defined) if isinstance(e, Apply)]
    alone = core.op in PARTS[op] and axis in over and all(keeps(e, {axis}) for e in parts)
    return alone and kept and not rounded


def keeps(part: Apply, axes: Collection[str]) -> bool:
    """Whether an operation brings no two elements along the axes together."""
    shapes = [arg.type.shape for arg in part.args]
    if not any(d in axes for shape in shapes for d in shape):
        return True
    gone = any(arg.type.shape[dim] in axes for arg, dim in reduced(part))
    pairs = any(part.type.shape.count(axis) > 1 for axis in axes)
    apart = OPS[part.op].kind in ("elementwise", "reduce", "contract") or part.op in SHAPED
    return apart and not gone and not pairs
