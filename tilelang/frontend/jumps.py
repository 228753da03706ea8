"""branched(function): `continue` and early `return` behind a condition become branches.

for g in ...:                       for g in ...:
    if flag[g] == 0:                    if flag[g] == 0:
        continue            ->              pass
    y[g] = x[g]                         else:
                                            y[g] = x[g]

What follows an `if` that one branch leaves belongs to the other branch: so Python has it, and a
condition of the kernel has two branches and no jumps.  Where both branches may go on, or neither
has the jump at its end, the text stays as it is; nothing is written twice.  A `return` without a
value is what the end of a function does.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from typing import TypeVar

F = TypeVar("F", bound=ast.AST)
Jump = type[ast.Continue] | type[ast.Return]
Body = list[ast.stmt]


def branched(function: F) -> F:
    """The function with the bodies of its loops, and of functions in it, in that form."""
    for node in ast.walk(function):
        match node:
            case ast.For() | ast.While():
                node.body = _tail(node.body, ast.Continue)
            case ast.FunctionDef():
                node.body = _tail(node.body, ast.Return)
            case _:
                pass  # no body that a jump leaves
    return function


def _tail(body: Body, jump: Jump) -> Body:
    """A body behind which nothing of the loop, or of the function, is left to do."""
    for place, stmt in enumerate(body):
        if isinstance(stmt, jump):
            gives = isinstance(stmt, ast.Return) and stmt.value is not None
            return body[: place + gives] or [ast.copy_location(ast.Pass(), stmt)]
        if isinstance(stmt, ast.If) and any(_jumps([stmt], jump)):
            rest = body[place + 1 :]
            if not rest or _leaves(stmt.body, jump):
                holds, fails = stmt.body, [*stmt.orelse, *rest]
            elif _leaves(stmt.orelse, jump):
                holds, fails = [*stmt.body, *rest], stmt.orelse
            else:
                continue
            both = ast.If(stmt.test, _tail(holds, jump), _tail(fails, jump))
            return [*body[:place], ast.copy_location(both, stmt)]
    return body


def _leaves(body: Sequence[ast.stmt], jump: Jump) -> bool:
    """Whether every way through the statements ends with the jump."""
    match body[-1] if body else None:
        case ast.If(body=holds, orelse=fails):
            return _leaves(holds, jump) and _leaves(fails, jump)
        case last:
            return isinstance(last, jump)


def _jumps(body: Sequence[ast.stmt], jump: Jump) -> Iterator[ast.stmt]:
    """The jumps in branches of these statements; those of loops and functions inside are theirs."""
    for stmt in body:
        if isinstance(stmt, jump):
            yield stmt
        elif isinstance(stmt, ast.If):
            yield from _jumps([*stmt.body, *stmt.orelse], jump)
