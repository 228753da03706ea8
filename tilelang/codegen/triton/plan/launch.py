"""Launch: one top-level loop as one function, its programs and the steps of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from tilelang.codegen.triton.passes.explicit_casts import apply
from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.codegen.triton.target import Target
from tilelang.ir import (
    Apply,
    Assign,
    Expr,
    Load,
    Loop,
    Var,
    every_loop,
    exprs_of,
    integers,
    read_by,
    walk,
)
from tilelang.ir.integers import INT
from tilelang.ir.traversal import inlined
from tilelang.schedule.config import Config

from .access import compare, quotient
from .body import axis_bounds, lower_body, lower_shared, multiplies, start_axis
from .descriptors import operands, outside
from .interior import with_interiors
from .legality import MODULE_NAMES
from .others import with_others
from .placement import Nest, place
from .problem import Prepared
from .scope import Scope, Shared
from .specialized import specialized
from .steps import every_step, exprs, with_barriers, without_unused
from .types import (
    Access,
    AxisPlan,
    Buffer,
    Descriptor,
    Fetch,
    For,
    Guard,
    Launch,
    Note,
    Read,
    Step,
    Write,
)  # fmt: skip
from .width import Width
from .worklist import ends_name, open_search, searched, table_launch, tabled, with_groups

RESERVED = MODULE_NAMES | {"tr", "math", "range", "float"}
BAND = 8  # tiles along the slower axis whose programs run close together
WAVES = 4  # programs per processor of a persistent launch


@dataclass(frozen=True)
class Planned:
    """The launches of one loop, and the scratch that they pass values in.

    pointers   tensor -> why some operands of it do not go through descriptors
    unfit      why loops have no specialized warps, where those are asked for
    """

    launches: tuple[Launch, ...]
    scratch: tuple[Buffer, ...]
    pointers: tuple[tuple[str, str], ...] = ()
    unfit: tuple[str, ...] = ()


def plan_launch(
    kernel: Prepared, loop: Loop, name: str, config: Config, target: Target, width: Width,
    boxes: bool, needed: int, others: tuple[Loop, ...] = (),
) -> Planned:  # fmt: skip
    """Everything that runs for one top-level loop.

    needed   bytes of shared memory; the table of its tiles takes none
    others   loops of tiles that store nothing that the loop stores or loads: its programs share
             them, before anything that they would keep in registers is there
    """
    form = "table" if config.warp_specialize else config.worklist
    nest = place(kernel, loop, form)
    work = nest.worklist
    own = kernel
    if work is not None and work.form == "search":
        own = with_groups(kernel, work.groups, power_of_two(work.groups))
    taken = frozenset(
        (*RESERVED, name, kernel.ir.name, *(f"{t.name}_ptr" for t in kernel.ir.tensors))
    )
    boxed = operands(kernel) if boxes else frozenset()
    shared = _shared(own, (loop, *others), taken, target.reads_before, boxed)
    scope = Scope(shared)
    ends = ends_name(shared, work) if work is not None and work.form == "table" else None
    pid = scope.let("pid", apply("program", (), "int32", ()))
    ahead = scope.inner()  # what others share stands before all that the loop reads
    programs = _open(scope, nest, config, target, width, pid, ends)
    apart = [s for one in others for s in lower_shared(ahead, one, width, pid, programs)]
    first, *rest = scope.steps  # the program's number
    steps = without_unused(outside((*shared.tops, first, *apart, *rest)))
    if width.interiors:
        steps = with_interiors(own, steps, shared.taken, kept=target.columns > 0)
    steps = with_others(steps)
    steps = _waiting(steps, {_index(s) for s in apart}, _ordered(kernel, steps), width.flat)
    multiplied = any(map(multiplies, every_loop((loop,))))
    unfit: tuple[str, ...] = ()
    if config.warp_specialize:
        steps, unfit = specialized(own, steps)
    launch = Launch(
        name,
        _arguments(kernel, steps, ends),
        programs,
        width.warps,
        width.stages,
        config.max_registers or (width.registers if multiplied else None),
        tuple(_axis(kernel, nest, a) for one in (loop, *others) for a in _axes(one)),
        work,
        tuple((d, own.width(d)) for d in sorted(_dims(steps))),
        steps,
        needed,
        width.precision,
        tuple(s for s in every_step(steps) if isinstance(s, Descriptor)),
    )
    if work is None or ends is None:
        return Planned((launch,), (), tuple(shared.pointers.items()), unfit)
    table = table_launch(kernel, work, ends, f"{name}_items", {*taken, ends})
    scratch = Buffer(ends, (work.groups,), "int32", None, scratch=True)
    return Planned((table, launch), (scratch,), tuple(shared.pointers.items()), unfit)


def _shared(
    kernel: Prepared, loops: tuple[Loop, ...], taken: frozenset[str], before: bool,
    boxed: frozenset[Load],
) -> Shared:  # fmt: skip
    """What all bodies of a launch have in common."""
    stored = frozenset(kernel.ir.stored(loops))
    uses = Counter(read_by(exprs_of(loops, kernel.ir.axes)))
    carries = (c for loop in every_loop(loops) for c in loop.carries)
    inits = frozenset(c.init.name for c in carries if isinstance(c.init, Var))
    return Shared(kernel, set(taken), stored, uses, inits, before, boxed)


def _waiting(
    steps: tuple[Step, ...], apart: set[str | None], ordered: frozenset[str], flat: bool
) -> tuple[Step, ...]:
    """The steps with barriers; of loops apart no element is one that the others wait for."""
    last = max(
        (n for n, s in enumerate(steps) if isinstance(s, For) and s.name in apart), default=-1
    )
    before = (with_barriers((s,), ordered) for s in steps[: last + 1])
    own = with_barriers(steps[last + 1 :], ordered)
    return (*(s for one in before for s in one), *(map(_flattened, own) if flat else own))


def _axes(loop: Loop) -> tuple[str, ...]:
    return tuple(one.axis for one in every_loop((loop,)))


def _axis(kernel: Prepared, nest: Nest, name: str) -> AxisPlan:
    axis, fact = kernel.ir.axis(name), kernel.facts.axis(name)
    begin, end = (inlined(bound, kernel.defined) for bound in kernel.range(name))
    item = nest.worklist is not None and name in (nest.worklist.group, nest.worklist.axis)
    where = "item" if item else "program" if name in nest.programs else "loop"
    tile = axis.kind == "tile"
    return AxisPlan(
        name, axis.user, fact.kind, fact.why, where, tile, kernel.step(name),
        kernel.lanes(name) if tile else 1, begin, end, kernel.trips(name),
    )  # fmt: skip


def _ordered(kernel: Prepared, steps: tuple[Step, ...]) -> frozenset[str]:
    """Loops whose iterations may store to the same elements, by the name of their index."""
    ordered = {a.name for a in kernel.facts.axes if a.meets}
    names = {n for a in ordered for n in (a, f"{a}_start")}
    loops = {s.name for s in every_step(steps) if isinstance(s, For)}
    return frozenset(n for n in loops if n in names or n.rpartition("_")[0] in names)


def _dims(steps: tuple[Step, ...]) -> set[str]:
    """The named dimensions of all values."""
    found = {d for s in every_step(steps) if isinstance(s, Read | Fetch) for d in s.type.shape}
    found |= {d for s in every_step(steps) for x in exprs(s) for e in walk(x) for d in e.type.shape}
    return {d for d in found if isinstance(d, str)}


def _arguments(kernel: Prepared, steps: tuple[Step, ...], ends: str | None) -> tuple[str, ...]:
    """The tensors that the steps access, in the order of their declaration, then scratch."""
    used = {s.access.tensor for s in every_step(steps) if isinstance(s, Read | Write)}
    used |= {s.tensor for s in every_step(steps) if isinstance(s, Descriptor)}
    tensors = tuple(t.name for t in kernel.ir.tensors if t.name in used)
    return tensors if ends is None else (*tensors, ends)


# ---------------------------------------------------------------- program ids


def _open(
    scope: Scope, nest: Nest, config: Config, target: Target, width: Width, pid: Var,
    ends: str | None,
) -> int:  # fmt: skip
    """The steps of a program from its number on; the result is how many programs there are."""
    kernel, work = scope.kernel, nest.worklist
    flat = [a for a in nest.programs if work is None or a not in (work.group, work.axis)]
    counts = {a: kernel.trips(a) or 0 for a in flat}
    if work is None:
        total = prod(counts.values())
        numbers = _numbers(scope, flat, counts, pid, config, width.products)
        programs = _persistent(config, target, total, width.resident)
        if programs == total:
            _enter(scope, nest, numbers, {}, width)
            return total
        step = Var(scope.shared.fresh("step"), INT)
        inner = scope.inner()
        numbers = _numbers(inner, flat, counts, step, config, width.products)
        _enter(inner, nest, numbers, {}, width)
        scope.steps = [scope.steps[0]]
        scope.steps.append(_stride(step, pid, integers.const(total), programs, inner, False))
        return programs
    if work.form == "search":
        found = open_search(scope, work)
        count: Expr = found[2]
    else:
        assert ends is not None
        last = Access(ends, "int32", integers.const(work.groups - 1))
        read = Read(scope.shared.fresh("item_count"), INT, last)
        scope.steps.append(read)
        found, count = None, Var(read.name, INT)
    return _items(scope, nest, config, target, width, pid, ends, found, count)


def _items(
    scope: Scope, nest: Nest, config: Config, target: Target, width: Width, pid: Var,
    ends: str | None, found: tuple[Expr, Expr, Expr] | None, count: Expr,
) -> int:  # fmt: skip
    """A program takes every so many-th step: an item, and a tile of each axis around and in it."""
    work = nest.worklist
    assert work is not None
    place = nest.programs.index(work.axis)
    outer = [a for a in nest.programs[:place] if a != work.group]
    inner_axes = list(nest.programs[place + 1 :])
    counts = {a: scope.kernel.trips(a) or 0 for a in (*outer, *inner_axes)}
    many, few = prod(counts[a] for a in outer), prod(counts[a] for a in inner_axes)
    total = work.bound * many * few
    programs = _persistent(config, target, total, width.resident)
    steps = integers.mul(count, many * few)
    step = Var(scope.shared.fresh("step"), INT)
    inner = scope.inner()
    item: Expr = step
    if few > 1:
        item = inner.let("turn" if many > 1 else "item", quotient(step, few))
    numbers = _decoded(inner_axes, counts, _rest(step, few))
    if many > 1:
        wish = outer[0] if len(outer) == 1 and scope.kernel.step(outer[0]) == 1 else "turn"
        turn = inner.let(wish, Apply("quotient", (item, count), INT))
        numbers |= _decoded(outer, counts, turn)
        item = inner.let("item", Apply("remainder", (item, count), INT))
    else:
        numbers |= {a: integers.const(0) for a in outer}
    if found is not None:
        group, tile = searched(inner, work, found[:2], item)
    else:
        assert ends is not None
        group, tile = tabled(inner, work, ends, item)
    _enter(inner, nest, numbers | {work.axis: tile}, {work.group: group}, width)
    scope.steps.append(_stride(step, pid, steps, programs, inner, programs == total))
    return programs


def _stride(step: Var, pid: Var, total: Expr, programs: int, inner: Scope, once: bool) -> For:
    """The loop over a program's items.

    once  each has one at most: the compiler, which does not know, would keep the operands of
          another one if the loop multiplies itself, and there may be no memory for them
    """
    body = tuple(inner.steps)
    values = (e for s in _own(body) for x in exprs(s) for e in walk(x))
    alone = once and any(isinstance(e, Apply) and e.op == "multiply" for e in values)
    by = integers.const(programs)
    return For(step.name, pid, total, by, (), body, stages=1 if alone else None)


def _own(steps: tuple[Step, ...]) -> Iterator[Step]:
    """What a loop does itself, in a loop of one step too: the compiler makes none of that."""
    for step in steps:
        if not isinstance(step, For):
            yield step
            continue
        length = integers.value_of(integers.sub(step.end, step.begin))
        if length is not None and length <= (integers.value_of(step.by) or 0):
            yield from _own(step.body)


def _persistent(config: Config, target: Target, total: int, resident: int) -> int:
    """How many programs run: one per tile, or those that the GPU holds at once."""
    if resident:
        return min(total, target.processors * resident)
    if config.persistent is None or config.persistent is False:
        return total
    most = target.processors * WAVES if config.persistent is True else config.persistent
    return min(total, most)


def _index(step: Step) -> str | None:
    """The index of a loop."""
    return step.name if isinstance(step, For) else None


def _flattened(step: Step) -> Step:
    """A loop over results as one with the only loop in it, which runs at least once."""
    if not isinstance(step, For):
        return step
    inside = tuple(every_step(step.body))
    loops = [s for s in inside if isinstance(s, For)]
    branches = any(isinstance(s, Guard) for s in inside)
    return replace(step, flat=len(loops) == 1 and loops[0] in step.body and not branches)


def _rest(a: Expr, by: int) -> Expr:
    return integers.const(0) if by == 1 else Apply("remainder", (a, integers.const(by)), INT)


def _decoded(axes: list[str], counts: dict[str, int], number: Expr) -> dict:
    """The tile of every axis, the last one fastest."""
    found: dict[str, Expr] = {}
    below, whole = 1, prod(counts[a] for a in axes)
    for axis in reversed(axes):
        value = quotient(number, below)
        below *= counts[axis]
        if below < whole:
            value = _rest(value, counts[axis])
        found[axis] = value if counts[axis] > 1 else integers.const(0)
    return found


def _numbers(
    scope: Scope, axes: list[str], counts: dict[str, int], number: Expr, config: Config,
    products: bool,
) -> dict[str, Expr]:  # fmt: skip
    """The same for a launch of tiles alone; products share the blocks that they read.

    Bands of tiles along the slower axis are walked across, so that programs that run at one time
    read few rows and few columns.
    """
    wide = [a for a in axes if counts[a] > 1]
    band = config.l2_group or (BAND if products else 1)
    if len(wide) < 2 or band == 1 or axes[-2:] != wide[-2:]:
        return _decoded(axes, counts, number)
    rows, columns = wide[-2:]
    high, across = counts[rows], counts[columns]
    numbers = _decoded(axes[:-2], counts, quotient(number, high * across))
    place, first = number, integers.const(0)
    size: Expr = integers.const(min(band, high))
    if len(axes) > 2:
        place = scope.let("tile" if band < high else "place", _rest(number, high * across))
    if band < high:
        first = scope.let("band", integers.mul(quotient(place, band * across), band))
        place = scope.let("place", _rest(place, band * across))
    if band < high and high % band:
        size = scope.let(
            "band_rows", integers.minimum(integers.sub(integers.const(high), first), band)
        )
    numbers[rows] = integers.add(first, Apply("remainder", (place, size), INT))
    numbers[columns] = Apply("quotient", (place, size), INT)
    return numbers


# ---------------------------------------------------------------- entering


def _enter(
    scope: Scope, nest: Nest, numbers: dict[str, Expr], indices: dict[str, Expr], width: Width
) -> None:
    """The loops that programs run one iteration of, then the body."""
    guards: list[tuple[Expr, Scope]] = []
    for stmt in nest.outer:
        if isinstance(stmt, Assign):
            lower_body(scope, (stmt,), width)
            continue
        condition = _start(scope, nest, stmt, numbers, indices)
        if condition is not None:
            inner = scope.inner()
            guards.append((condition, scope))
            scope = inner
    lower_body(scope, nest.body, width)
    while guards:
        condition, around = guards.pop()
        around.steps.append(Guard(condition, tuple(scope.steps)))
        scope = around


def _start(
    scope: Scope, nest: Nest, loop: Loop, numbers: dict[str, Expr], indices: dict[str, Expr]
) -> Expr | None:
    """The lines of an axis that a program is at; a condition if it may be past the range."""
    axis, kernel = loop.axis, scope.kernel
    found, fact = kernel.ir.axis(axis), kernel.facts.axis(axis)
    scope.steps.append(Note(f"{found.user} is {fact.kind}: {fact.why}", loop.loc))
    begin, end = axis_bounds(scope, axis, loop.loc)
    if axis in indices:
        start_axis(scope, axis, begin, end, indices[axis], loop.loc)
        return None
    first = integers.add(begin, integers.mul(numbers[axis], kernel.step(axis)))
    if not isinstance(first, Var) and integers.value_of(first) is None:
        first = scope.let(axis if found.kind == "grid" else f"{axis}_start", first, loop.loc)
    start_axis(scope, axis, begin, end, first, loop.loc)
    work = nest.worklist
    if found.static is not None or (work is not None and axis == work.axis):
        return None
    return compare("lt", first, end)
