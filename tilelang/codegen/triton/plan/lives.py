"""most_alive(kernel) -> how many blocks a loop's body has at once between its products.

    s = dot(q, k.T)                     s
    p = sigmoid(s)                      s, p
    g = p * (1.0 + s * (1.0 - p))       s, p, g
    d_s = dot(d_o, v.T) * g             g, d_s      what registers hold beside results: 3

Blocks are values of two tile axes; a condition takes no registers of its own.
"""

from __future__ import annotations

from tilelang.ir import Assign, Expr, KernelIR, Stmt, every_loop, read_by, statement_exprs


def most_alive(kernel: KernelIR) -> int:
    """Of the loop that has most."""
    return max((_alive(loop.body) for loop in every_loop(kernel.body)), default=0)


def _alive(body: tuple[Stmt, ...]) -> int:
    """The most blocks that one statement reads, makes, or leaves alone for a later one."""
    made = {s.name: n for n, s in enumerate(body) if isinstance(s, Assign) and _block(s.value)}
    reads = ((name, n) for n, s in enumerate(body) for name in read_by(statement_exprs(s)))
    last = {name: n for name, n in reads if name in made}
    lives = [range(n, last[name] + 1) for name, n in made.items() if name in last]
    return max((sum(n in live for live in lives) for n in range(len(body))), default=0)


def _block(value: Expr) -> bool:
    kind = value.type
    return sum(isinstance(d, str) for d in kind.shape) > 1 and kind.dtype != "bool"
