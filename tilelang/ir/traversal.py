"""Traversal: the one way to walk and to rewrite expressions and statements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, assert_never

from . import types

Node = TypeVar("Node", bound=Any)
Change = Callable[[types.Expr], types.Expr | None]


def rewrite(expr: types.Expr, change: Change) -> types.Expr:
    """Replaces every subexpression for which `change` gives one; children of those are kept."""
    return rewriting(change)(expr)


def rewriting(change: Change) -> Callable[[types.Expr], types.Expr]:
    """`rewrite` of several expressions: what they share is rewritten once, and still shared."""
    done: dict[int, tuple[types.Expr, types.Expr]] = {}  # with what has the id, so that it lives

    def visit(expr: types.Expr) -> types.Expr:
        if id(expr) not in done:
            changed = change(expr)
            done[id(expr)] = expr, map_children(expr, visit) if changed is None else changed
        return done[id(expr)][1]

    return visit


def map_body(body: types.Body, change: Callable[[types.Stmt], types.Body]) -> types.Body:
    """What `change` makes of each statement; a loop is asked when its body is done."""
    out: list[types.Stmt] = []
    for stmt in body:
        if isinstance(stmt, types.Loop):
            stmt = replace(stmt, body=map_body(stmt.body, change))
        out += change(stmt)
    return tuple(out)


def _with(node: Node, **parts: object) -> Node:
    """The node with these parts; itself where all of them are those that it has."""
    kept = all(_is(getattr(node, name), part) for name, part in parts.items())
    return node if kept else replace(node, **parts)


def _is(old: object, new: object) -> bool:
    if isinstance(old, tuple) and isinstance(new, tuple) and len(old) == len(new):
        return all(a is b for a, b in zip(old, new, strict=True))
    return old is new


def map_stmt(
    stmt: types.Stmt,
    value: Callable[[types.Expr], types.Expr],
    index: Callable[[types.Index], types.Index] = lambda entry: entry,
) -> types.Stmt:
    """The statement with `value` applied to what it computes itself: value, mask, carries.

    `index` is applied to the entries of a store's index.
    """
    match stmt:
        case types.Assign():
            return _with(stmt, value=value(stmt.value))
        case types.Store():
            mask = None if stmt.mask is None else value(stmt.mask)
            place = tuple(map(index, stmt.index))
            return _with(stmt, index=place, value=value(stmt.value), mask=mask)
        case types.Loop():
            return _with(stmt, carries=map_carries(stmt.carries, value))
        case _:
            assert_never(stmt)


def rewrite_stmt(stmt: types.Stmt, change: Change) -> types.Stmt:
    """The statement with `rewrite` applied to its own expressions, positions of stores included."""
    visit = rewriting(change)
    return map_stmt(stmt, visit, partial(map_index, fn=visit))


def rewrite_body(body: types.Body, change: Change) -> types.Body:
    """The statements with `rewrite` applied to all of their expressions."""
    return map_body(body, lambda stmt: (rewrite_stmt(stmt, change),))


def rebuilding(change: Change) -> Callable[[types.Expr], types.Expr]:
    """Children first: `change` sees what has been made of them, once each."""
    done: dict[int, tuple[types.Expr, types.Expr]] = {}  # with what has the id, so that it lives

    def visit(expr: types.Expr) -> types.Expr:
        if id(expr) not in done:
            made = map_children(expr, visit)
            found = change(made)
            done[id(expr)] = expr, made if found is None else found
        return done[id(expr)][1]

    return visit


def rebuild_body(body: types.Body, change: Change) -> types.Body:
    """The statements with `rebuilding` applied to what they compute."""
    visit = rebuilding(change)
    return map_body(body, lambda stmt: (map_stmt(stmt, visit),))


def substitute(body: types.Body, values: Mapping[str, types.Expr]) -> types.Body:
    """Replaces names by values."""

    def change(expr: types.Expr) -> types.Expr | None:
        return values.get(expr.name) if isinstance(expr, types.Var) else None

    return rewrite_body(body, change) if values else body


def inlined(expr: types.Expr, values: Mapping[str, types.Expr]) -> types.Expr:
    """An expression with names replaced by their values, and those in these too."""
    match expr:
        case types.Var(name) if name in values:
            return inlined(values[name], values)
        case types.Apply("cast", (arg,)) if arg.type.dtype == expr.type.dtype:
            return inlined(arg, values)
        case _:
            return map_children(expr, lambda e: inlined(e, values))


def reached(
    expr: types.Expr,
    values: Mapping[str, types.Expr],
    into: Callable[[types.Expr], bool] = lambda part: True,
) -> Iterator[types.Expr]:
    """Every part of an expression and of what its names stand for, which may be long chains.

    Of each name once; a name that has no value is a part itself.
    """
    left, seen = [expr], set[str]()
    while left:
        part = left.pop()
        if not (isinstance(part, types.Var) and part.name in values):
            yield part
            left += children(part) if into(part) else ()
        elif part.name not in seen:
            seen.add(part.name)
            left.append(values[part.name])


def definitions(body: types.Body) -> dict[str, types.Expr]:
    """Assigned name -> value, in loops too."""
    return {s.name: s.value for s in statements(body) if isinstance(s, types.Assign)}


def authors(body: types.Body) -> dict[str, str]:
    """Name -> what the author calls the value, of those that are assigned and carried."""
    found = {s.name: s.user for s in statements(body) if isinstance(s, types.Assign)}
    carries = (c for s in statements(body) if isinstance(s, types.Loop) for c in s.carries)
    return found | {name: c.user for c in carries for name in (c.name, c.out)}


def loads(expr: types.Expr) -> Iterator[types.Load]:
    """Every load in an expression."""
    return (e for e in walk(expr) if isinstance(e, types.Load))


def reduced(expr: types.Expr) -> tuple[tuple[types.Expr, int], ...]:
    """The operands of a reduction or a dot, each with the dimension that it goes over."""
    match expr:
        case types.Apply(_, (arg,), _, (("axis", int(axis)), ("keepdim", _), *_)):
            return ((arg, axis),)
        case types.Apply("dot", (a, b), _, (("contract", (int(i), int(j))), *_)):
            return (a, i), (b, j)
        case _:
            return ()


def children(expr: types.Expr) -> tuple[types.Expr, ...]:
    """The direct subexpressions, indices of loads included."""
    match expr:
        case types.Apply():
            return expr.args
        case types.Load():
            inner = tuple(e for i in expr.index for e in index_exprs(i))
            return inner if expr.mask is None else (*inner, expr.mask)
        case (
            types.Const() | types.Var() | types.GridIndex() | types.TileIndex() | types.TileScalar()
        ):
            return ()
        case _:
            assert_never(expr)


def picked(index: Iterable[types.Index]) -> tuple[types.Dim, ...]:
    """The shape of what an index picks."""
    shape: list[types.Dim] = []
    for entry in index:
        match entry:
            case types.Along(axis):
                shape.append(axis)
            case types.Span(start, stop):
                shape.append(stop - start)
            case types.Gather(expr):
                shape += expr.type.shape
            case types.At():
                pass
            case _:
                assert_never(entry)
    return tuple(shape)


def index_exprs(index: types.Index) -> tuple[types.Expr, ...]:
    """The expressions inside one index entry."""
    match index:
        case types.At(expr) | types.Gather(expr):
            return (expr,)
        case types.Along(_, offset) if offset is not None:
            return (offset,)
        case types.Along() | types.Span():
            return ()
        case _:
            assert_never(index)


def axis_of(index: types.Index) -> str | None:
    """The axis whose positions, unmoved, are those of a dimension."""
    match index:
        case types.Along(axis, None) | types.At(types.GridIndex(axis)):
            return axis
        case _:
            return None


def part_of(index: types.Index) -> tuple[int, int] | None:
    """The positions of a dimension that an index is about, (first, stop), if they are known."""
    match index:
        case types.Span(start, stop):
            return start, stop
        case types.At(types.Const(value)):
            return int(value), int(value) + 1
        case _:
            return None


def read_by(exprs: Iterable[types.Expr]) -> Iterator[str]:
    """The names that expressions read, each as often as they do."""
    return (e.name for expr in exprs for e in walk(expr) if isinstance(e, types.Var))


def walk(expr: types.Expr) -> Iterator[types.Expr]:
    """Every subexpression, operands first."""
    for child in children(expr):
        yield from walk(child)
    yield expr


def map_index(index: types.Index, fn: Callable[[types.Expr], types.Expr]) -> types.Index:
    """The index entry with `fn` applied to its expressions."""
    match index:
        case types.At(expr) | types.Gather(expr):
            return _with(index, expr=fn(expr))
        case types.Along(_, offset) if offset is not None:
            return _with(index, offset=fn(offset))
        case types.Along() | types.Span():
            return index
        case _:
            assert_never(index)


def map_children(expr: types.Expr, fn: Callable[[types.Expr], types.Expr]) -> types.Expr:
    """The expression rebuilt with `fn` applied to each direct subexpression."""
    match expr:
        case types.Apply():
            return _with(expr, args=tuple(map(fn, expr.args)))
        case types.Load():
            mask = None if expr.mask is None else fn(expr.mask)
            return _with(expr, index=tuple(map_index(i, fn) for i in expr.index), mask=mask)
        case (
            types.Const() | types.Var() | types.GridIndex() | types.TileIndex() | types.TileScalar()
        ):
            return expr
        case _:
            assert_never(expr)


def map_carries(
    carries: tuple[types.Carry, ...], fn: Callable[[types.Expr], types.Expr]
) -> tuple[types.Carry, ...]:
    """The carries of a loop with `fn` applied to what they begin with and become."""
    return tuple(_with(c, init=fn(c.init), next=fn(c.next)) for c in carries)


def map_range(axis: types.Axis, fn: Callable[[types.Expr], types.Expr]) -> types.Axis:
    """The axis with `fn` applied to its bounds."""
    return _with(axis, begin=fn(axis.begin), end=fn(axis.end))


def statement_exprs(stmt: types.Stmt) -> tuple[types.Expr, ...]:
    """The expressions that a statement evaluates itself (not those in a loop's body)."""
    match stmt:
        case types.Assign():
            return (stmt.value,)
        case types.Store():
            inner = tuple(e for i in stmt.index for e in index_exprs(i))
            return (*inner, stmt.value) if stmt.mask is None else (*inner, stmt.value, stmt.mask)
        case types.Loop():
            return tuple(e for c in stmt.carries for e in (c.init, c.next))
        case _:
            assert_never(stmt)


def exprs_of(body: types.Body, axes: Iterable[types.Axis] = ()) -> Iterator[types.Expr]:
    """Where axes begin and end, and what statements evaluate, those in loops too."""
    yield from edges_of(axes)
    for stmt in statements(body):
        yield from statement_exprs(stmt)


def edges_of(axes: Iterable[types.Axis]) -> Iterator[types.Expr]:
    """Where axes begin and end."""
    return (edge for axis in axes for edge in (axis.begin, axis.end))


def every_expr(body: types.Body, axes: Iterable[types.Axis] = ()) -> Iterator[types.Expr]:
    """All of those with every subexpression of each."""
    return (part for expr in exprs_of(body, axes) for part in walk(expr))


def every_loop(body: types.Body) -> Iterator[types.Loop]:
    """Every loop, those in loops too."""
    return (s for s in statements(body) if isinstance(s, types.Loop))


def every_store(body: types.Body) -> Iterator[types.Store]:
    """Every store, those in loops too."""
    return (s for s in statements(body) if isinstance(s, types.Store))


def every_access(
    body: types.Body, axes: Iterable[types.Axis] = ()
) -> Iterator[types.Load | types.Store]:
    """Every store, and every load, of the bounds of the axes too."""
    yield from every_store(body)
    yield from (e for e in every_expr(body, axes) if isinstance(e, types.Load))


def statements(body: types.Body) -> Iterator[types.Stmt]:
    """Every statement, loops before their bodies."""
    for stmt in body:
        yield stmt
        if isinstance(stmt, types.Loop):
            yield from statements(stmt.body)


def conjuncts(mask: types.Expr) -> Iterator[types.Expr]:
    """The conditions that all must hold."""
    match mask:
        case types.Apply("logical_and", (a, b)):
            yield from (*conjuncts(a), *conjuncts(b))
        case _:
            yield mask


def meant(expr: types.Expr, values: Mapping[str, types.Expr]) -> types.Expr:
    """What a name stands for that stands for nothing but a name; anything else itself."""
    while isinstance(expr, types.Var) and expr.name in values:
        expr = values[expr.name]
    return expr


def multiplied(expr: types.Expr, values: Mapping[str, types.Expr]) -> bool:
    """Whether a product is a part of a value, names followed."""
    return any(dots(reached(expr, values)))


def dots(exprs: Iterable[object]) -> Iterator[types.Apply]:
    """The matrix products among expressions, of plans too."""
    return (e for e in exprs if isinstance(e, types.Apply) and e.op == "dot")


def successor(loop: types.Loop, carry: types.Carry) -> str | None:
    """The name of the body's own that becomes the carry, if nothing behind it reads the carry."""
    if not isinstance(carry.next, types.Var):
        return None
    names = [s.name if isinstance(s, types.Assign) else None for s in loop.body]
    if carry.next.name not in names:
        return None
    behind = statements(loop.body[names.index(carry.next.name) + 1 :])
    rest = [*(e for s in behind for e in statement_exprs(s)), *(c.next for c in loop.carries)]
    return None if carry.name in read_by(rest) else carry.next.name
