"""Body: statements of the IR -> steps of a program."""

from __future__ import annotations

from math import prod
from typing import assert_never

from tilelang.codegen.triton.passes.explicit_casts import apply, cast
from tilelang.errors import Loc
from tilelang.ir import (
    Apply,
    Assign,
    Carry,
    Const,
    Dim,
    Expr,
    Gather,
    Load,
    Loop,
    Stmt,
    Store,
    Var,
    every_loop,
    integers,
    statements,
    successor,
)
from tilelang.ir.integers import INT
from tilelang.ir.lanes import arange, expanded, squeezed
from tilelang.ir.traversal import loads
from tilelang.schedule.refusal import Refused, Rule

from .access import access, both, compare, dims_of, in_range
from .loops import copies_ahead, own_exprs
from .scope import Running, Scope
from .types import Carried, For, Let, Step, Write
from .unmoved import unmoved
from .width import Width

THREADS = 32  # of a warp
HELD = 64  # numbers of a tile that a thread keeps while a loop runs: a quarter of its registers
ATOMIC = {
    "add": ("float32", "float16", "bfloat16", "int32", "uint32"),
    "maximum": ("float32", "int32", "uint32"),
    "minimum": ("float32", "int32", "uint32"),
}


def lower_body(scope: Scope, body: tuple[Stmt, ...], width: Width) -> None:
    """Appends the steps of a body."""
    scope.own |= {s.name for s in body if isinstance(s, Assign)}
    for stmt in body:
        match stmt:
            case Assign():
                _assign(scope, stmt)
            case Store():
                _store(scope, stmt)
            case Loop():
                _loop(scope, stmt, width)
            case _:
                assert_never(stmt)


def _assign(scope: Scope, stmt: Assign) -> None:
    forced = scope.wished.get(stmt.name)
    changes = forced is not None or stmt.name in scope.shared.inits
    if isinstance(stmt.value, Load) and stmt.value in scope.seen and not changes:
        scope.locals[stmt.name] = scope.seen[stmt.value]
        return
    if isinstance(stmt.value, Load) and stmt.value not in scope.seen:
        value = scope.read(stmt.value, forced or scope.shared.fresh(stmt.user), stmt.loc)
        if not changes and not _stored(scope, stmt.value):
            scope.seen[stmt.value] = value
    else:
        lowered = scope.lower(stmt.value, stmt.loc)
        if isinstance(lowered, Const) and not changes:
            scope.locals[stmt.name] = lowered
            return
        name = forced or scope.shared.fresh(stmt.user)
        value = Var(name, lowered.type)
        scope.steps.append(Let(name, _typed(lowered) if changes else lowered, stmt.loc))
    scope.locals[stmt.name] = value


def _stored(scope: Scope, load: Load) -> bool:
    return scope.kernel.ir.root(load.tensor) in scope.shared.stored


def _typed(expr: Expr) -> Expr:
    """A value that a loop may change: a number as a tensor of its type."""
    if isinstance(expr, Const):
        return Apply("full", (), expr.type, (("value", expr.value),))
    return expr


# ---------------------------------------------------------------- stores


def _store(scope: Scope, stmt: Store) -> None:
    index = scope.positions(stmt.tensor, stmt.index, stmt.loc)
    dims = dims_of(index, scope.kernel)
    last = [
        (_last(scope, stmt, i.expr, dims), i.expr.type.shape[0])
        for i, written in zip(index, stmt.index, strict=True)
        if stmt.combine is None and isinstance(i, Gather) and isinstance(written, Gather)
    ]
    found, _ = access(scope.kernel, stmt.tensor, index, stmt.mask, last)
    if stmt.combine is not None and found.dtype not in ATOMIC[stmt.combine]:
        raise Refused(
            Rule.KERNEL,
            f"{stmt.tensor} is {found.dtype}, of which there is no atomic {stmt.combine}",
            stmt.loc,
            f"make it one of {', '.join(ATOMIC[stmt.combine])}",
        )
    value = cast(stmt.value, found.dtype)
    if value.type.shape and value.type.shape != dims:
        value = apply("broadcast", (value,), found.dtype, dims)
    elif stmt.combine is not None and value.type.shape != dims:
        value = apply("full", (value,), found.dtype, dims)
    scope.steps.append(
        Write(scope.lowered(found, stmt.loc), scope.lower(value, stmt.loc), stmt.combine, stmt.loc)
    )


def _last(scope: Scope, stmt: Store, rows: Expr, dims: tuple[Dim, ...]) -> Expr:
    """The lanes whose row no later lane stores to: of several values the last one stays."""
    (dim,) = rows.type.shape
    live = [in_range(dim)] if isinstance(dim, str) and scope.kernel.is_partial(dim) else []
    if stmt.mask is not None:
        live.append(_along(stmt, dim, dims))
    square = (dim, dim)
    lanes = arange(dim)
    same = compare("eq", expanded(rows, 1), expanded(rows, 0))
    later = both(same, compare("gt", expanded(lanes, 0), expanded(lanes, 1)))
    for condition in live:
        later = both(later, expanded(condition, 0) if condition.type.shape else condition)
    number = apply("cast", (later,), "int32", square)
    last = compare("eq", apply("max", (number,), "int32", (dim,), axis=1, keepdim=False), 0)
    wish = f"{stmt.tensor}_last"
    return scope.own_name(scope.let(wish, scope.lower(last, stmt.loc), stmt.loc), wish)


def _along(stmt: Store, dim: Dim, dims: tuple[Dim, ...]) -> Expr:
    """The author's mask as one of the rows; refused if it is one of single elements."""
    mask = stmt.mask
    assert mask is not None
    shape = mask.type.shape
    if not [d for d in shape if d != 1]:
        for _ in shape:
            mask = squeezed(mask, 0)
        return mask
    place = dims.index(dim) - (len(dims) - len(shape))
    if [d for d in shape if d != 1] != [dim] or place < 0 or shape[place] != dim:
        raise Refused(
            Rule.KERNEL,
            "this store picks rows by an index and masks elements of them, which is not there yet "
            "for GPUs",
            stmt.loc,
            "mask whole rows, or give rows that are not meant an index outside of the array",
        )
    for axis in reversed([p for p in range(len(shape)) if p != place]):
        mask = squeezed(mask, axis)
    return mask


# ---------------------------------------------------------------- loops


def lower_shared(
    scope: Scope, loop: Loop, width: Width, number: Expr, count: int
) -> tuple[Step, ...]:
    """A parallel loop over tiles of which each of `count` programs takes every so many-th."""
    inner = scope.inner()
    begin, end = axis_bounds(inner, loop.axis, loop.loc)
    by = scope.kernel.step(loop.axis)
    first = integers.add(begin, integers.mul(number, by))
    _loop(inner, loop, width, (first, end, by * count))
    return tuple(inner.steps)


def _loop(
    scope: Scope, loop: Loop, width: Width, bounds: tuple[Expr, Expr, int] | None = None
) -> None:
    """A loop from its begin to its end, or over other bounds."""
    if bounds is None:
        bounds = (*axis_bounds(scope, loop.axis, loop.loc), scope.kernel.step(loop.axis))
    begin, end, by = bounds
    _read_before(scope, loop, width)
    inner = scope.inner()
    carried = [_enter(scope, c) for c in loop.carries]
    for carry, (name, _) in zip(loop.carries, carried, strict=True):
        inner.locals[carry.name] = Var(name, carry.init.type)
        inner.own.add(carry.name)
    inner.wished = _updates(loop, dict(zip((c.name for c in loop.carries), carried, strict=True)))
    index = start_axis(inner, loop.axis, begin, end, None, loop.loc)
    assert isinstance(index, Var)
    lower_body(inner, loop.body, width)
    carries = []
    for carry, (name, init) in zip(loop.carries, carried, strict=True):
        value = _typed(inner.lower(cast(carry.next, carry.init.type.dtype), carry.loc))
        done = isinstance(value, Var) and value.name == name
        carries.append(Carried(name, init, None if done else value))
        scope.locals[carry.out] = Var(name, carry.init.type)
        scope.own.add(carry.out)
    fact = scope.kernel.facts.axis(loop.axis)
    user = scope.kernel.ir.axis(loop.axis).user
    says = (f"{user} is {fact.kind}: {fact.why}",)
    scope.steps.append(
        For(
            index.name, begin, end, integers.const(by), tuple(carries), tuple(inner.steps),
            _stages(scope, loop, width), says, loop.loc,
        )
    )  # fmt: skip


def _read_before(scope: Scope, loop: Loop, width: Width) -> None:
    """Reads what does not move with a loop, under the names that its body has for it.

    Triton moves tiles out of loops that write nothing, and takes fewer registers if it does; rows
    and numbers are no burden.  Of a tile that no product reads, each thread holds its share until
    the loop ends.
    """
    own = {s.value: s.user for s in statements((loop,)) if isinstance(s, Assign)}
    products = any(map(multiplies, every_loop((loop,))))
    writes = any(isinstance(s, Store) for s in statements((loop,)))
    for load in unmoved(loop):
        wide = load.type.rank > 1
        lanes = prod(map(scope.kernel.width, load.type.shape))
        held = products or lanes <= HELD * THREADS * width.warps
        if wide and not ((held and writes) or (products and scope.reads_before(load))):
            continue
        if not _stored(scope, load) and load not in scope.seen:
            name = scope.shared.fresh(own[load]) if load in own and not wide else None
            scope.seen[load] = scope.read(load, name, load.loc)


def _stages(scope: Scope, loop: Loop, width: Width) -> int | None:
    """How far ahead a loop copies; None: as the compiler does, which is for products only."""
    if multiplies(loop):
        return width.stages
    if width.products or width.stages == 1:
        return None
    ahead = copies_ahead(scope.kernel.ir, loop, scope.shared.stored)
    return width.stages if ahead else None


def multiplies(loop: Loop) -> bool:
    """Whether a product is computed in the loop itself, and not in one inside of it."""
    return any(isinstance(e, Apply) and e.op == "multiply" for e in own_exprs(loop))


def _enter(scope: Scope, carry: Carry) -> tuple[str, Expr | None]:
    """The variable of a carry, and what it begins with unless it holds that already."""
    if isinstance(carry.init, Var) and carry.init.name in scope.own:
        held = scope.locals[carry.init.name]
        if scope.shared.uses[carry.init.name] == 1 and isinstance(held, Var):
            return held.name, None
    value = scope.lower(carry.init, carry.loc)
    return scope.shared.fresh(carry.user), _typed(value)


def _updates(loop: Loop, names: dict[str, tuple[str, Expr | None]]) -> dict[str, str]:
    """Assignments of the body that set a carry at once: nothing after them reads the old one."""
    found: dict[str, str] = {}
    for carry in loop.carries:
        made = successor(loop, carry)
        if made is not None and made not in found:
            found[made] = names[carry.name][0]
    return found


def axis_bounds(scope: Scope, axis: str, loc: Loc | None) -> tuple[Expr, Expr]:
    """Begin and end of an axis as numbers or names."""
    found = scope.kernel.range(axis)
    ends = []
    for expr, what in zip(found, ("begin", "end"), strict=True):
        lowered = scope.lower(expr, loc)
        if expr not in scope.ends or any(_stored(scope, e) for e in loads(expr)):
            scope.ends[expr] = scope.named(lowered, f"{axis}_{what}", loc)
        ends.append(scope.ends[expr])
    return ends[0], ends[1]


def start_axis(
    scope: Scope, axis: str, begin: Expr, end: Expr, start: Expr | None, loc: Loc | None
) -> Expr:
    """The lines of an axis where it runs: its index, or the positions of its tile and their mask.

    `start` None: a loop sets the first position.
    """
    kernel = scope.kernel
    found = kernel.ir.axis(axis)
    if found.kind == "grid":
        index = start or Var(scope.shared.fresh(axis), INT)
        scope.axes[axis] = Running(index, begin, end)
        return index
    first = start or Var(scope.shared.fresh(f"{axis}_start"), INT)
    scope.axes[axis] = Running(first, begin, end)
    shape, lanes = (axis,), arange(axis)
    moved = integers.value_of(first) != 0
    at = apply("add", (first, lanes), "int32", shape) if moved else lanes
    at = scope.let(f"{axis}_at", at, loc)
    inside = None
    if kernel.is_partial(axis):
        stop = end if kernel.step(axis) == kernel.lanes(axis) else scope.tile_end(axis)
        inside = scope.let(f"{axis}_in", apply("lt", (at, stop), "bool", shape), loc)
    scope.axes[axis] = Running(first, begin, end, at, inside)
    return first
