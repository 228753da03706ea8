"""Specialized warps: some warps of a program copy boxes while the others multiply.

Triton does so for loops of one form only.  With other loads or fewer rows it fails to compile, and
with more warps or under a `while` it silently leaves it out (seen in cubins of Triton 3.6: 12 warps
where 4 were asked for, or none).  So what is asked for is either of that form, or refused.
"""

from __future__ import annotations

from dataclasses import replace

from tilelang.ir import Apply, KernelIR, walk
from tilelang.schedule.refusal import Refused, Rule

from .problem import Prepared
from .steps import every_step, exprs
from .types import Fetch, For, Guard, Read, Step

WARPS = 4  # of a program, as it is asked for; the compiler adds 8 that copy and issue
ROWS = 128  # of a product: two groups of warps take 64 each


def specialized(
    kernel: Prepared, steps: tuple[Step, ...]
) -> tuple[tuple[Step, ...], tuple[str, ...]]:
    """The steps with every loop of that form marked, and why other loops of products are not."""
    out: list[Step] = []
    reasons: list[str] = []
    for step in steps:
        if isinstance(step, For | Guard):
            body, more = specialized(kernel, step.body)
            reasons += more
            step = replace(step, body=body)
        if isinstance(step, For) and step.stages is not None:
            why = _unfit(kernel, step)
            reasons += [why] if why else []
            step = replace(step, specialized=not why)
        out.append(step)
    return tuple(out), tuple(reasons)


def _unfit(kernel: Prepared, loop: For) -> str:
    """Why a loop of products is not of the form; empty if it is."""
    inside = tuple(every_step(loop.body))
    if any(isinstance(s, For) for s in inside):
        return f"the loop over {loop.name} has another one in it"
    if any(isinstance(s, Read) and s.type.shape for s in inside):
        return f"the loop over {loop.name} loads values lane by lane"
    if not any(isinstance(s, Fetch) for s in inside):
        return f"the loop over {loop.name} copies no boxes"
    every = [e for s in (loop, *inside) for x in exprs(s) for e in walk(x)]
    for product in (e for e in every if isinstance(e, Apply) and e.op == "multiply"):
        rows = kernel.width(product.type.shape[-2])
        if rows < ROWS:
            return f"a product in the loop over {loop.name} has {rows} rows, fewer than {ROWS}"
    return ""


def refuse_unspecialized(ir: KernelIR, reasons: list[str]) -> None:
    """Refused where specialized warps are asked for and no loop could have them."""
    why = "; ".join(dict.fromkeys(reasons)) or "no loop of it has a product"
    raise Refused(
        Rule.CONFIG,
        f"warp_specialize=True, but {ir.name} has no loop whose warps could share the work: {why}",
        ir.loc,
        f"leave warp_specialize out, or give blocks with products of {ROWS} rows and operands that "
        "are copied as boxes",
    )
