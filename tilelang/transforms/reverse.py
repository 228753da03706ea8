"""derive(kernel, facts, wanted) -> Derivative: a kernel's gradient, as kernels.

read        each launch as formulas: what it stores, over what it loads   (forward, sums, gauge)
adjoints    from the last launch to the first: one formula per load       (adjoints)
choose      what the backward reads rather than computes again            (saved)
placed      the formulas as loops over the places that are stored         (place)

A gradient is stored plainly where the analyzer proves that no two iterations store to one place,
and added atomically otherwise, as for rows that are gathered.  An array that is read at several
places gets a part for each, and a launch that adds them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from .. import ir
from ..analysis import analyze
from ..analysis.facts import Facts
from ..ir import children
from ..ir.names import fresh, take
from ..language.build import binary, cast
from ..language.dtypes import is_float
from ..passes.separate_joins import separate_joins
from ..passes.separate_parts import separate_parts
from .adjoints import AdjointSite, adjoints
from .asked_once import asked_once
from .distinct import apart, distinct
from .forward import Launched, read
from .graph import Scan, Stored
from .guard import guarded
from .kernels import kernel_of
from .left_out import masked
from .legal import check, refuse_changed_arguments
from .place import AxisNest, carried, placed
from .refuse import Underivable
from .saved import Residuals, Saved, storing
from .scans import numbered
from .types import Derivative, GradientLaunch
from .unit_gauge import in_unit_gauge
from .views import returning, several_names, to_root, turned_back, with_views


def derive(
    kernel: ir.KernelIR, facts: Facts, wanted: frozenset[str], author: str = ""
) -> Derivative:
    """The gradients of the wanted arguments; GradientError where they cannot be derived.

    `author` is the name of the author's kernel, where this one was derived of it.
    """
    refuse_changed_arguments(kernel)
    separate = separate_joins(separate_parts(kernel))
    if separate is not kernel:
        kernel, facts = separate, analyze(separate)
    try:
        return _derived(kernel, facts, wanted)
    except Underivable as no:
        raise no.said_of(kernel, author) from None


def _derived(kernel: ir.KernelIR, facts: Facts, wanted: frozenset[str]) -> Derivative:
    floats = {t.name for t in kernel.tensors if is_float(t.dtype)}
    inputs = {p.tensor for p in kernel.params if p.tensor} & floats & wanted
    launches = [read(kernel, facts, loop) for loop in kernel.body]
    check(kernel, launches)
    launches = list(map(masked, launches))
    program = _Program(kernel, facts, {t.name for t in kernel.tensors} | {kernel.name})
    program.shared = several_names(kernel, map(_read, launches))
    active = _active(launches, with_views(kernel, inputs)) & floats
    cotangents = tuple(program.name(f"d_{name}") for name in kernel.returns)
    for name, cotangent in zip(kernel.returns, cotangents, strict=True):
        if kernel.root(name) in active:
            program.given(name, program.declared(cotangent, name))
    for launched in reversed(launches):
        _reverse(program, launched, active)
    _views(program)
    gradients = tuple((n, program.gradient(n)) for n in sorted(inputs) if n in program.parts)
    saved = program.saved()
    forward = _forward(kernel, launches, program) if saved else kernel
    zeros = tuple(sorted(inputs - {n for n, _ in gradients}))
    return Derivative(forward, saved, tuple(program.launches), gradients, cotangents, zeros)


def _read(launched: Launched) -> set[str]:
    return {t.tensor for t in launched.graph.values.values() if isinstance(t, ir.Load)}


def _active(launches: Sequence[Launched], inputs: Collection[str]) -> set[str]:
    """The arrays that something wanted passes through."""
    active = set(inputs)
    for launched in launches:
        for store in launched.stores:
            reached = launched.graph.reached((store.value,)).values()
            if any(isinstance(t, ir.Load) and t.tensor in active for t in reached):
                active.add(store.tensor)
    return active


# ---------------------------------------------------------------- the program


@dataclass
class _Program:
    """Collects the launches; `parts` are the arrays whose sum is the gradient of an array."""

    kernel: ir.KernelIR
    facts: Facts
    taken: set[str]
    arrays: dict[str, ir.Tensor] = field(default_factory=dict)
    parts: dict[str, list[str]] = field(default_factory=dict)
    launches: list[GradientLaunch] = field(default_factory=list)
    shared: frozenset[str] = frozenset()  # read by several launches or as several views: in parts
    residuals: list[tuple[Launched, list[Saved]]] = field(default_factory=list)
    wholes: dict[str, str] = field(default_factory=dict)

    def name(self, wish: str) -> str:
        return take(wish, self.taken)

    def tensor(self, name: str) -> ir.Tensor:
        return self.arrays[name] if name in self.arrays else self.kernel.tensor(name)

    def declared(self, name: str, like: str, dtype: str | None = None) -> str:
        """An array of the backward program, of the shape of one of the kernel's."""
        own = self.kernel.tensor(like)
        made = dtype or own.dtype
        self.arrays[name] = ir.Tensor(name, own.shape, made, "input", own.loc, of=like)
        return name

    def given(self, result: str, cotangent: str) -> None:
        """The cotangent of a result; where that is a view, of what it is a view of."""
        name = result
        for view, source in to_root(self.kernel, result):
            turned = turned_back(view, cotangent, source.shape)
            name, cotangent = source.name, self.declared(self.name(f"d_{source.name}"), source.name)
            self.arrays[cotangent] = replace(self.arrays[cotangent], role="view", view=turned)
        self.parts.setdefault(name, []).append(cotangent)

    def part(self, tensor: str, dtype: str) -> str:
        """A new array that a launch makes: the gradient of a tensor, or a part of it."""
        name = self.declared(self.name(f"d_{tensor}"), tensor, dtype)
        self.parts.setdefault(tensor, []).append(name)
        return name

    def whole(self, tensor: str) -> str:
        """The gradient of a tensor, in its dtype; adds its parts if there are several."""
        if tensor not in self.wholes:
            parts = self.parts[tensor]
            dtype = self.kernel.tensor(tensor).dtype
            alone = len(parts) == 1 and self.arrays[parts[0]].dtype == dtype
            self.wholes[tensor] = parts[0] if alone else self.added(tensor, parts)
        return self.wholes[tensor]

    def gradient(self, tensor: str) -> str:
        """The same as an array: of an argument that is only returned the whole may be a view."""
        whole = self.whole(tensor)
        return whole if self.arrays[whole].view is None else self.added(tensor, [whole])

    def added(self, tensor: str, parts: Sequence[str]) -> str:
        """The sum of parts; adds its launch."""
        name = self.declared(self.name(f"d_{tensor}"), tensor)
        self.launches.append(_added(self, parts, name))
        return name

    def saved(self) -> tuple[str, ...]:
        """What the forward kernel returns further: saved values, and arrays between launches."""
        made = {r for launch in self.launches for r in launch.results}
        read = {o for launch in self.launches for o in launch.operands} - made
        own = [t.name for t in self.kernel.tensors if t.role == "output"]
        new = [s.tensor.name for _, several in self.residuals for s in several]
        return tuple(n for n in (*own, *new) if n in read and n not in self.kernel.returns)


def _reverse(program: _Program, launched: Launched, active: Collection[str]) -> None:
    """Adds the launches that take the gradients of one launch's results to those of its loads."""
    stored = dict.fromkeys(s.tensor for s in launched.stores)
    cotangents = {n: program.whole(n) for n in stored if n in program.parts and n in active}
    if not cotangents:
        return
    graph = launched.graph
    forward = frozenset(graph.values)
    gauged = in_unit_gauge(launched, adjoints(launched, cotangents, active), cotangents)
    sites = gauged.sites
    residuals = Residuals(program.kernel, program.facts, launched, program.name, gauged.made)
    residuals.choose([s.adjoint for s in sites], forward)
    program.residuals.append((launched, residuals.added))
    for saved in residuals.added:
        program.arrays[saved.tensor.name] = replace(saved.tensor, role="input")
    _carry(program, launched, residuals, [e for s in sites for e in (s.adjoint, *children(s.load))])
    groups: dict[_Cut, list[Stored]] = {}
    for tensor in dict.fromkeys(s.load.tensor for s in sites):
        for chain, targets in _targets(program, launched, tensor, sites):
            if any(t.adds for t in targets):
                program.launches.append(_launch(program, launched, chain, targets, residuals.loads))
            else:
                groups.setdefault(_cut(chain, targets), []).extend(targets)
    for (chain, _), targets in groups.items():
        program.launches.append(_launch(program, launched, chain, targets, residuals.loads))


def _carry(
    program: _Program, launched: Launched, residuals: Residuals, roots: Sequence[ir.Expr]
) -> None:
    """Adds launches for what loops carry and no memory has: they store all that iterations meet.

    Of tiles the parts are stored, and then carried from one to the next by number.
    """
    graph, loads = launched.graph, residuals.loads
    kept = partial(_kept, program, launched, residuals)
    for name, scan in graph.reached(roots, until=loads).items():
        if not isinstance(scan, Scan) or name in loads:
            continue
        if graph.ranges[scan.axis].axis.kind == "grid":
            loads[name] = kept(ir.Var(name, scan.type))
            continue
        numbers = program.name(f"{scan.axis}_number")
        residuals.number(scan.axis, numbers)
        value, factor = (
            numbered(graph, kept(part, fill), scan.axis, numbers)
            if isinstance(part, ir.Var) and scan.axis in graph.scope(part)
            else part
            for part, fill in ((scan.value, 0.0), (scan.factor, 1.0))  # of no tile: nothing changes
        )
        assert value is not None
        whole = graph.named(replace(scan, axis=numbers, value=value, factor=factor))
        assert isinstance(whole, ir.Var)
        graph.hints.setdefault(whole.name, graph.hints.get(name, "carried"))
        loads[name] = numbered(graph, kept(whole), scan.axis, numbers, back=True)


def _kept(
    program: _Program, launched: Launched, residuals: Residuals, value: ir.Expr, fill: float = 0.0
) -> ir.Expr:
    """Adds a launch that stores a value; how it is read."""
    graph, scan = launched.graph, launched.graph.term(value)
    assert isinstance(value, ir.Var)
    loc = getattr(scan, "loc", None) or launched.loop.loc
    places = residuals.index_of(value, numbers=True)
    if places is None:
        what = "no array holds what its iterations meet, or what arrives at it"
        raise Underivable(
            f"the loop changes {graph.hints.get(value.name, 'a value')}, and {what}", loc
        )
    shape, index = tuple(p.size for p in places), tuple(p.read for p in places)
    own = program.name(f"d_{graph.hints.get(value.name, 'of_tiles')}")
    array = ir.Tensor(own, shape, value.type.dtype, "output", loc, fill)
    program.arrays[own] = replace(array, role="input")
    target = Stored(own, index, value.type, value, None, False, loc)
    given = (residuals.loads, program.taken, loc)
    if isinstance(scan, Scan) and value.name not in residuals.loads:
        nest = carried(graph, target, *given)
    else:
        nest = placed(graph, graph.ordered(graph.scope(value)), [target], *given)
    name = f"{program.kernel.name}_{own}"
    made = kernel_of(program.kernel, name, nest, [array], program.tensor)
    program.launches.append(GradientLaunch(made))
    return graph.add(ir.Load(own, index, value.type, loc=loc))


def _views(program: _Program) -> None:
    """Gradients of views become parts of those of what they are views of."""
    arrays = Counter(program.kernel.root(name) for name in program.parts)
    for tensor in reversed(program.kernel.tensors):  # a view comes after what it is of
        if tensor.view is not None and tensor.name in program.parts:
            alone = arrays[program.kernel.root(tensor.name)] == 1
            made = [program.whole(tensor.name)] if alone else program.parts[tensor.name]
            _viewed(program, made, tensor.view)


def _viewed(program: _Program, own: Iterable[str], view: ir.View) -> None:
    for made in own:
        part = program.part(view.source, program.arrays[made].dtype)
        turned = turned_back(view, made, program.arrays[part].shape)
        seen = replace(program.arrays[part], role="view", view=turned)
        program.launches = [returning(launch, made, seen) for launch in program.launches]


# ---------------------------------------------------------------- what is stored, and where

_Cut = tuple[tuple[str, ...], frozenset[ir.Index]]


def _cut(chain: tuple[str, ...], targets: Sequence[Stored]) -> _Cut:
    """What stores of one kernel share: its loops, and where their tiles are cut."""
    moved = (i for t in targets for i in t.index if isinstance(i, ir.Along))
    return chain, frozenset(i for i in moved if i.offset is not None)


def _targets(
    program: _Program, launched: Launched, tensor: str, sites: Sequence[AdjointSite]
) -> Iterator[tuple[tuple[str, ...], list[Stored]]]:
    """The stores of one gradient, by the loops that they stand in."""
    graph = launched.graph
    own = [s for s in sites if s.load.tensor == tensor]
    chains = [graph.ordered(graph.scope(graph.named(s.load))) for s in own]
    alone = len(own) == 1 or (len(set(chains)) == 1 and apart([s.load.index for s in own]))
    whole = alone and tensor not in program.shared  # parts are rounded when they are added
    kept = program.kernel.tensor(tensor).dtype if whole else "float32"
    for group in [own] if alone else [[s] for s in own]:
        chain = chains[own.index(group[0])]
        places = [_place(s) for s in group]
        if distinct(program.kernel, graph, chain, places, tensor):
            name = program.part(tensor, kept)
            yield chain, [_target(launched, name, s, kept) for s in group]
        else:
            name = program.part(tensor, "float32")
            found = [_target(launched, name, s, "float32") for s in group]
            yield chain, [replace(t, adds=True) for t in found]


def _place(site: AdjointSite) -> ir.Load:
    """Where the store of an adjoint goes: what is read there."""
    index = (replace(i, loose=False) if isinstance(i, ir.Along) else i for i in site.load.index)
    return replace(site.load, index=tuple(index))


def _target(launched: Launched, name: str, site: AdjointSite, dtype: str) -> Stored:
    """The store of an adjoint, in the dtype of its array."""
    place = _place(site)
    graph, loc = launched.graph, place.loc or launched.loop.loc
    value = guarded(launched, site)
    return Stored(
        tensor=name,
        index=place.index,
        type=ir.Type(place.type.shape, dtype),
        value=graph.add(cast(value, dtype, loc)),
        mask=place.mask,
        adds=False,
        loc=loc,
    )


# ---------------------------------------------------------------- kernels


def _launch(
    program: _Program,
    launched: Launched,
    chain: Sequence[str],
    targets: Sequence[Stored],
    loaded: Mapping[str, ir.Expr],
) -> GradientLaunch:
    """The kernel that stores the targets."""
    loc = launched.loop.loc
    values = asked_once(launched.graph, [t.value for t in targets], loaded)
    targets = [replace(t, value=v) for t, v in zip(targets, values, strict=True)]
    nest = placed(launched.graph, chain, targets, loaded, program.taken, loc)
    outputs = [
        replace(program.arrays[name], role="output", fill=0.0)
        for name in dict.fromkeys(t.tensor for t in targets)
    ]
    name = "_".join([program.kernel.name, *(o.name for o in outputs)])
    return GradientLaunch(kernel_of(program.kernel, name, nest, outputs, program.tensor))


def _added(program: _Program, parts: Sequence[str], name: str) -> GradientLaunch:
    """The launch that adds the parts of a gradient, element by element."""
    own = program.tensor(name)
    axes, index, shape = _whole_of(program, own)
    loc = own.loc
    total: ir.Expr | None = None
    for part in parts:
        dtype = program.arrays[part].dtype
        block = cast(ir.Load(part, index, ir.Type(shape, dtype), loc=loc), "float32", loc)
        total = block if total is None else binary("add", total, block, loc)
    assert total is not None
    stmt: ir.Loop | ir.Store = ir.Store(name, index, cast(total, own.dtype, loc), loc)
    for axis in reversed(axes):
        stmt = ir.Loop(axis.name, (stmt,), (), loc)
    assert isinstance(stmt, ir.Loop)
    output = replace(own, role="output", fill=None)
    kernel = f"{program.kernel.name}_{name}"
    nest = AxisNest(stmt, axes)
    return GradientLaunch(kernel_of(program.kernel, kernel, nest, [output], program.tensor))


def _whole_of(
    program: _Program, tensor: ir.Tensor
) -> tuple[tuple[ir.Axis, ...], tuple[ir.Index, ...], tuple[int | str, ...]]:
    """Loops over all of a tensor: tiles of its last two dimensions, indices of the others."""
    axes: list[ir.Axis] = []
    index: list[ir.Index] = []
    shape: list[int | str] = []
    zero = ir.Const(0, ir.Type((), "int32"))
    for place, size in enumerate(tensor.shape):
        tiled = place >= len(tensor.shape) - 2
        name = fresh(("t" if tiled else "i") + str(place), program.taken)
        end = ir.Const(size, ir.Type((), "int32"))
        kind, block = ("tile", name) if tiled else ("grid", None)
        axes.append(ir.Axis(name, kind, zero, end, size, block, tensor.loc, name))
        index.append(ir.Along(name) if tiled else ir.At(ir.GridIndex(name)))
        shape += [name] if tiled else []
    return tuple(axes), tuple(index), tuple(shape)


# ---------------------------------------------------------------- the forward kernel


def _forward(kernel: ir.KernelIR, launches: Iterable[Launched], program: _Program) -> ir.KernelIR:
    """The kernel that also returns what is saved."""
    names = program.saved()
    by_loop = {launched.loop.axis: several for launched, several in program.residuals}
    body = []
    new: list[ir.Tensor] = []
    for launched in launches:
        several = [s for s in by_loop.get(launched.loop.axis, ()) if s.tensor.name in names]
        new += [s.tensor for s in several]
        body.append(storing(launched.loop, several, launched.same))
    return replace(
        kernel,
        tensors=(*kernel.tensors, *new),
        body=tuple(body),
        returns=(*kernel.returns, *names),
        structure="tuple",
    )
