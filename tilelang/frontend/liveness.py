"""liveness(function) -> Live: which names are still read after each `if` and loop.

A value that a loop assigns is carried only if somebody reads it: a later iteration, or code after
the loop.  Where an `if` could go either way both ways count, so a name may be taken to be live
that is not; never the reverse.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

Names = frozenset[str]


@dataclass(frozen=True)
class Live:
    """What is read later.

    after   for an `if` or a loop: names read after it
    again   for a loop: names read after it or by its next iteration
    assigned  for an `if` or a loop: names that its body assigns, in order
    """

    after: dict[ast.stmt, Names] = field(default_factory=dict)
    again: dict[ast.stmt, Names] = field(default_factory=dict)
    assigned: dict[ast.stmt, tuple[str, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _Walk:
    """`captured` names are read by nested functions, at any time; `jump` is live at break."""

    live: Live
    captured: Names
    jump: Names


def liveness(function: ast.FunctionDef | ast.Lambda) -> Live:
    """Liveness of a function's names at its branches and loops."""
    live = Live()
    if isinstance(function, ast.FunctionDef):
        nodes = (n for s in function.body for n in ast.walk(s))
        inner = [n.body for n in nodes if isinstance(n, ast.FunctionDef | ast.Lambda)]
        captured = frozenset[str]().union(*map(reads, inner))
        _block(_Walk(live, captured, frozenset()), function.body, frozenset())
    return live


def _block(walk: _Walk, body: Sequence[ast.stmt], after: Names) -> Names:
    for stmt in reversed(body):
        after = _statement(walk, stmt, after) | walk.captured
    return after


def _statement(walk: _Walk, stmt: ast.stmt, after: Names) -> Names:
    match stmt:
        case ast.If():
            walk.live.after[stmt] = after
            walk.live.assigned[stmt] = assigned([*stmt.body, *stmt.orelse])
            branches = _block(walk, stmt.body, after) | _block(walk, stmt.orelse, after)
            return reads(stmt.test) | branches
        case ast.For() | ast.While():
            return _loop(walk, stmt, after)
        case ast.Return():
            return reads(stmt)
        case ast.Break() | ast.Continue():
            return walk.jump
        case _:
            return (after - _killed(stmt)) | reads(stmt)


def _loop(walk: _Walk, loop: ast.For | ast.While, after: Names) -> Names:
    after = _block(walk, loop.orelse, after)
    by_items = isinstance(loop, ast.For)
    target = _stored(loop.target) if by_items else frozenset[str]()
    asked = reads(loop.iter) | reads(loop.target) if by_items else reads(loop.test)
    head, grown = after if by_items else after | asked, True
    while grown:
        inside = _Walk(walk.live, walk.captured, head)
        start = _block(inside, loop.body, head) - target
        grown = not start <= head
        head |= start
    walk.live.after[loop], walk.live.again[loop] = after, head
    walk.live.assigned[loop] = assigned(loop.body)
    return head | asked


def _killed(stmt: ast.stmt) -> Names:
    """Names that the statement certainly assigns."""
    match stmt:
        case ast.Assign(targets):
            return _stored(*targets)
        case ast.AnnAssign(target, value=ast.expr()):
            return _stored(target)
        case ast.FunctionDef(name):
            return frozenset((name,))
        case _:
            return frozenset()


def _stored(*targets: ast.expr) -> Names:
    nodes = (n for target in targets for n in ast.walk(target))
    return frozenset(
        n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    )


def assigned(body: Sequence[ast.stmt]) -> tuple[str, ...]:
    """Names that a block assigns, nested blocks included, nested functions not; in order."""
    return tuple(dict.fromkeys(name for stmt in body for name in _assigned(stmt)))


def _assigned(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.FunctionDef():
            yield node.name
        case ast.Lambda() | ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return
        case ast.Name(id=name, ctx=ast.Store()):
            yield name
        case _:
            for child in ast.iter_child_nodes(node):
                yield from _assigned(child)


def loop_variables(body: Sequence[ast.stmt]) -> dict[str, int]:
    """Names that loops alone assign, with the line of the first such loop."""
    loops = [n for stmt in body for n in ast.walk(stmt) if isinstance(n, ast.For)]
    lines = {name: loop.lineno for loop in reversed(loops) for name in _stored(loop.target)}
    every = Counter(name for stmt in body for name in _assigned(stmt))
    by_loops = Counter(name for loop in loops for name in _assigned(loop.target))
    return {name: line for name, line in lines.items() if every[name] == by_loops[name]}


def reads(node: ast.AST | Sequence[ast.stmt]) -> Names:
    """Names that are read anywhere inside, without those bound by lambdas and comprehensions."""
    if isinstance(node, list):
        return frozenset[str]().union(*(reads(stmt) for stmt in node))
    assert isinstance(node, ast.AST)
    found = frozenset[str]().union(*(reads(child) for child in ast.iter_child_nodes(node)))
    match node:
        case ast.Name(id=name, ctx=ast.Load()):
            return found | {name}
        case ast.AugAssign(target=ast.Name(id=name)):
            return found | {name}
        case ast.Lambda():
            return found - {a.arg for a in ast.walk(node.args) if isinstance(a, ast.arg)}
        case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
            return found - _stored(*(g.target for g in node.generators))
        case _:
            return found
