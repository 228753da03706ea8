"""most_alive(kernel) -> how many blocks a loop's body has at once between its products.

    s = dot(q, k.T)                     s
    p = sigmoid(s)                      s, p
    g = p * (1.0 + s * (1.0 - p))       s, p, g
    d_s = dot(d_o, v.T) * g             g, d_s      what registers hold beside results: 3

    b = bias[far]                       far, and of each number an address, which takes two

Blocks are values of two tile axes, or of whole rows; a condition takes no registers of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tilelang import ir
from tilelang.ir import every_expr, every_loop, read_by, statement_exprs, walk
from tilelang.language.op import ELEMENTWISE

Is = Callable[[ir.Expr], bool]


def most_alive(kernel: ir.KernelIR) -> int:
    """Of the loop that has most."""
    return max((_alive(loop.body, _block) for loop in every_loop(kernel.body)), default=0)


def rows_alive(kernel: ir.KernelIR, axis: str) -> int:
    """Of whole rows of one tile: the most in the loop over it."""

    def rows(value: ir.Expr) -> bool:
        shape = value.type.shape
        return axis in shape and value.type.rank > 1 and 1 not in shape and not _is_mask(value)

    loops = (loop for loop in every_loop(kernel.body) if loop.axis == axis)
    return max((_alive(loop.body, rows) for loop in loops), default=0)


def _alive(body: tuple[ir.Stmt, ...], block: Is) -> int:
    """The most blocks that one statement reads, makes, or leaves alone for a later one."""
    made = {s.name: n for n, s in enumerate(body) if isinstance(s, ir.Assign) and block(s.value)}
    reads = ((name, n) for n, s in enumerate(body) for name in read_by(statement_exprs(s)))
    last = {name: n for name, n in reads if name in made}
    lives = [range(n, last[name] + 1) for name, n in made.items() if name in last]
    every = (sum(n in live for live in lives) + _addresses(s) for n, s in enumerate(body))
    return max(every, default=0)


def _addresses(stmt: ir.Stmt) -> int:
    """Registers of addresses for each number of a block that is picked number by number."""
    values = (
        () if isinstance(stmt, ir.Loop) else (e for x in statement_exprs(stmt) for e in walk(x))
    )
    loads = (e for e in values if isinstance(e, ir.Load) and _block(e))
    return sum(
        2 for e in loads if any(isinstance(i, ir.Gather) and _block(i.expr) for i in e.index)
    )


def computed_blocks(kernel: ir.KernelIR) -> int:
    """How many different blocks are computed number by number, wherever they are."""
    found = {e for e in every_expr(kernel.body) if isinstance(e, ir.Apply) and _block(e)}
    return sum(e.op in ELEMENTWISE for e in found)


def _block(value: ir.Expr) -> bool:
    return sum(isinstance(d, str) for d in value.type.shape) > 1 and not _is_mask(value)


def _is_mask(value: ir.Expr) -> bool:
    return value.type.dtype == "bool"
