"""split_of(ir, specs, sizes, ...) -> Splits: how a call on sharded arguments runs on a mesh.

A dimension that an argument is sharded along names a factor of the kernel; everything else that the
factor holds is sharded alike, and what it leaves to be done is done by JAX around the kernel of one
device: offsets are sliced and clipped before, results added up and cast behind.

Where a loop needs what all devices have of a group before it goes on, the kernel runs in stages
(`staged`), and each of them is split.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
from jax import numpy as jnp
from jax.sharding import PartitionSpec

from ..analysis.facts import Facts
from ..errors import CallError, Loc
from ..ir import KernelIR, Span, every_access
from ..transforms.local import local, more
from ..transforms.partition import Factor, factors
from ..transforms.stages import staged
from ..transforms.whole import looped

Names = tuple[str, ...]  # mesh axes
Spec = tuple[Names, ...]  # of each dimension of an array
Run = Callable[[Sequence[Any]], Sequence[Any]]  # the kernel of one device
TOGETHER = {"max": jax.lax.pmax, "min": jax.lax.pmin}  # other parts are added up


@dataclass(frozen=True)
class Split:
    """A kernel over a mesh: which mesh axes split each factor, and the kernel of one device."""

    ir: KernelIR
    axes: tuple[tuple[Factor, Names], ...]
    sizes: Mapping[str, int]
    local: KernelIR

    def spec(self, tensor: str) -> Spec:
        """How a tensor is spread over the mesh."""
        found = {place: names for factor, names in self.axes for place in factor.dims}
        rank = len(self.ir.tensor(tensor).shape)
        return tuple(found.get((tensor, dim), ()) for dim in range(rank))

    def given(self, name: str, array: Any, whole: bool = False) -> Any:
        """What the kernel of one device takes for an argument; `whole`: as numbers of the whole."""
        for factor, names in self.axes:
            parts, part = self._count(names), jax.lax.axis_index(names)
            own = factor.size // parts
            for tensor, dim in factor.edges:
                if tensor == name:
                    array = jax.lax.dynamic_slice_in_dim(array, part * own, own + 1, dim)
            if name in factor.clipped and not whole:
                array = jnp.clip(jnp.clip(array, 0, factor.size) - part * own, 0, own)
        return array

    def first(self, factor: Factor) -> Any:
        """Where the part of this device begins."""
        names = dict(self.axes)[factor]
        own = factor.size // self._count(names)
        return jnp.asarray(jax.lax.axis_index(names) * own, jnp.int32)[None]

    def result(self, name: str, array: Any) -> Any:
        """A result of all devices, of that of one."""
        over: dict[Any, set[str]] = {}
        for factor, names in self.axes:
            if name in dict(factor.added):
                fold = TOGETHER.get(factor.kind or "", jax.lax.psum)
                over.setdefault(fold, set()).update(names)
        for fold, axes in over.items():
            array = fold(array, tuple(sorted(axes)))
        return array.astype(self.ir.tensor(name).dtype)

    def on_device(self, known: Mapping[str, Any], run: Run) -> Mapping[str, Any]:
        """What each device makes of its shards, by the kernel of one device."""
        also = more(self.ir, [factor for factor, _ in self.axes])
        given = [self.given(name, known[name]) for name in operands_of(self.ir)]
        given += [self.given(t, known[t], whole=True) for t in also.wholes.values()]
        given += [self.first(factor) for factor in also.firsts.values()]
        made = zip(names_of(self.ir), run(given), strict=True)
        return {name: self.result(name, result) for name, result in made}

    def _count(self, names: Names) -> int:
        return _parts(self.sizes, names)


@dataclass(frozen=True)
class Splits:
    """A kernel over a mesh: as it is, or in stages, between which devices exchange what they have.

    specs  how every tensor that a stage has is spread: the same in all of them
    """

    ir: KernelIR
    stages: tuple[Split, ...]
    specs: Mapping[str, Spec]

    def spec(self, tensor: str) -> PartitionSpec:
        """How a tensor is spread over the mesh."""
        return PartitionSpec(*[names or None for names in self.specs.get(tensor, ())])

    def on_device(self, runs: Sequence[Run]) -> Callable[..., tuple[Any, ...]]:
        """What each device does with its shards; `runs` are the kernels of one device."""

        def body(*arrays: Any) -> tuple[Any, ...]:
            known = dict(zip(operands_of(self.ir), arrays, strict=True))
            for stage, run in zip(self.stages, runs, strict=True):
                known |= stage.on_device(known, run)
            return tuple(known[name] for name in names_of(self.ir))

        return body


def operands_of(ir: KernelIR) -> tuple[str, ...]:
    """The arrays that generated code takes, in order."""
    return tuple(param.tensor for param in ir.params if param.tensor)


def names_of(ir: KernelIR) -> tuple[str, ...]:
    """What generated code returns: the results, then arguments that are stored to."""
    return (*ir.returns, *(t.name for t in ir.tensors if t.mutated))


def _parts(sizes: Mapping[str, int], names: Names) -> int:
    return math.prod(sizes[name] for name in names)


def split_of(
    ir: KernelIR, facts: Facts, specs: Mapping[str, Spec], sizes: Mapping[str, int]
) -> Splits:
    """The split that the shardings of the arguments ask for; CallError where there is none."""
    return _in_stages(ir, facts, specs, sizes, _asked)


def _asked(
    ir: KernelIR, every: Sequence[Factor], specs: Mapping[str, Spec], sizes: Mapping[str, int]
) -> Split:
    chosen = dict[Factor, Names]()
    for place, names in _sharded(specs):
        factor = _factor(ir, every, place, names, EXPLICIT)
        if chosen.setdefault(factor, names) != names:
            raise _refused(
                ir, place, names,
                f"another argument splits the same loop over {_listed(chosen[factor])}", factor.loc,
            )  # fmt: skip
        if not factor.splits(_parts(sizes, names)):
            raise _refused(ir, place, names, _uneven(ir, place, factor), factor.loc)
    _once(ir, chosen)
    return _split(ir, chosen, sizes)


def _in_stages(
    ir: KernelIR,
    facts: Facts,
    specs: Mapping[str, Spec],
    sizes: Mapping[str, int],
    split: Callable[[KernelIR, Sequence[Factor], Mapping[str, Spec], Mapping[str, int]], Split],
) -> Splits:
    """The split of a kernel, or of its stages where it cannot be split as a whole."""
    ir, facts = _with_loops(ir, facts, specs)
    every = factors(ir, facts)
    try:
        return _together(ir, [split(ir, every, specs, sizes)])
    except CallError as no:
        unsplit = _unsplit(every, specs, sizes)
        stages = staged(ir, facts, unsplit)
        if not stages:
            raise
        known, made = _alike(specs, unsplit), list[Split]()
        for stage in stages:
            own = {t.name: known[t.name] for t in stage.ir.tensors if t.name in known}
            try:
                made.append(split(stage.ir, stage.factors, own, sizes))
            except CallError:
                raise no from None
            known |= {t.name: made[-1].spec(t.name) for t in stage.ir.tensors}
        if any(s.spec(t.name) != known[t.name] for s in made for t in s.ir.tensors):
            raise no from None  # what one stage has in parts another one has as a whole
        return _together(ir, made)


def _with_loops(ir: KernelIR, facts: Facts, specs: Mapping[str, Spec]) -> tuple[KernelIR, Facts]:
    """The kernel with loops over what it takes whole, by `:`, and arguments are sharded along."""
    for place, _ in _sharded(specs):
        ir, facts = looped(ir, place) or (ir, facts)
    return ir, facts


def _together(ir: KernelIR, stages: Sequence[Split]) -> Splits:
    specs = {t.name: stage.spec(t.name) for stage in stages for t in stage.ir.tensors}
    return Splits(ir, tuple(stages), specs)


def _unsplit(
    every: Sequence[Factor], specs: Mapping[str, Spec], sizes: Mapping[str, int]
) -> Mapping[Factor, Names]:
    """What arguments are sharded along, evenly, and the kernel cannot be split over."""
    asked, whole = dict(_sharded(specs)), [f for f in every if f.kind is None]
    found = {f: asked[place] for f in whole for place in sorted(f.dims & {*asked})}
    return {f: names for f, names in found.items() if f.splits(_parts(sizes, names))}


def _alike(specs: Mapping[str, Spec], split: Mapping[Factor, Names]) -> dict[str, Spec]:
    """The shardings, of all that a factor holds alike."""
    own = {place: names for factor, names in split.items() for place in factor.dims}
    return {
        name: tuple(own.get((name, dim), names) for dim, names in enumerate(spec))
        for name, spec in specs.items()
    }


def settled(
    ir: KernelIR,
    facts: Facts,
    given: Mapping[str, Spec],
    made: Mapping[str, Spec],
    sizes: Mapping[str, int],
) -> Splits:
    """The split where a compiler chose the shardings, which may contradict each other.

    What comes first is done, and the rest is sharded anew: arguments go before results.  CallError
    where an argument is sharded along what no kernel of one device could run on.
    """

    def split(
        ir: KernelIR, every: Sequence[Factor], given: Mapping[str, Spec], sizes: Mapping
    ) -> Split:
        own = {t.name: made[t.name] for t in ir.tensors if t.name in made}
        return _settled(ir, every, given, own, sizes)

    return _in_stages(ir, facts, given, sizes, split)


def _settled(
    ir: KernelIR,
    every: Sequence[Factor],
    given: Mapping[str, Spec],
    made: Mapping[str, Spec],
    sizes: Mapping[str, int],
) -> Split:
    chosen = dict[Factor, Names]()
    asked = [(_factor(ir, every, at, names, AUTO), names) for at, names in _sharded(given)]
    # nothing is added up because a result is sharded
    whole = [f for f in every if f.kind in ("parallel", "rows") and not f.added]
    for place, names in _sharded(made):
        found = next((f for f in whole if place in f.dims), None)
        asked += [] if found is None else [(found, names)]
    for factor, names in asked:
        taken = {name for other in chosen.values() for name in other}
        even = factor.splits(_parts(sizes, names))
        if factor not in chosen and even and not taken.intersection(names):
            chosen[factor] = names
    return _split(ir, chosen, sizes)


def _sharded(specs: Mapping[str, Spec]) -> Iterator[tuple[tuple[str, int], Names]]:
    """The dimensions that are split, and over which mesh axes."""
    for tensor, spec in specs.items():
        yield from (((tensor, dim), names) for dim, names in enumerate(spec) if names)


def _split(ir: KernelIR, chosen: Mapping[Factor, Names], sizes: Mapping[str, int]) -> Split:
    counts = {factor: _parts(sizes, names) for factor, names in chosen.items()}
    return Split(ir, tuple(chosen.items()), sizes, local(ir, counts))


def _factor(
    ir: KernelIR, every: Sequence[Factor], place: tuple[str, int], names: Names, how: str
) -> Factor:
    found = next((f for f in every if place in f.dims | f.edges), None)
    instead = _others(every, place[0])
    if found is None:
        why, loop = _not_along(ir, place)
        raise _refused(ir, place, names, why, ir.tensor(place[0]).loc, how, loop + instead)
    if found.kind is None:
        raise _refused(ir, place, names, found.why, found.loc, how, instead)
    if place in found.edges:
        raise _refused(ir, place, names, "offsets are needed as a whole", found.loc, how)
    return found


def _not_along(ir: KernelIR, place: tuple[str, int]) -> tuple[str, str]:
    """What is in the way of a dimension of no factor, and what the author may change."""
    if any(ir.root(t.name) == place[0] != t.name for t in ir.tensors):
        return f"{place[0]} is reshaped or transposed", ""
    tensor, dim = place
    taken = [a.index[dim] for a in every_access(ir.body, ir.axes) if a.tensor == tensor]
    if taken and all(isinstance(entry, Span) for entry in taken):
        written = ir.tensor(tensor).of is None  # the derived kernels have the author's loops
        return "it is taken whole, by `:`", "loop over it, hl.tile(...), " if written else ""
    return "no loop of the kernel runs along it alone", ""


def _others(every: Sequence[Factor], tensor: str) -> str:
    """What to say of the dimensions of a tensor that can be split."""
    dims = sorted({dim for f in every if f.kind for name, dim in f.dims if name == tensor})
    return f"shard dimension {' or '.join(map(str, dims))} instead, " if dims else ""


def _uneven(ir: KernelIR, place: tuple[str, int], factor: Factor) -> str:
    size = ir.tensor(place[0]).shape[place[1]]
    held = factor.together * size // factor.size
    if held == 1:
        return f"{size} is no multiple of the mesh's size"
    if size % held:
        return f"{held} positions stay together, as tiles do, and it has {size}"
    kept = f"{held} of its {size} positions stay together"
    return f"{kept}, and {size // held} is no multiple of the mesh's size"


def _once(ir: KernelIR, chosen: Mapping[Factor, Names]) -> None:
    seen: dict[str, Factor] = {}
    for factor, names in chosen.items():
        for name in names:
            if name in seen:
                why = f"mesh axis {name!r} splits another loop of it already"
                raise _refused(ir, min(factor.dims), names, why, factor.loc)
            seen[name] = factor


# How an array is replicated, by the type of its mesh axes.
EXPLICIT, AUTO = "jax.sharding.reshard", "jax.lax.with_sharding_constraint"


def _refused(
    ir: KernelIR,
    place: tuple[str, int],
    names: Names,
    why: str,
    loc: Loc | None,
    how: str = EXPLICIT,
    instead: str = "",
) -> CallError:
    tensor, dim = place
    of = ir.tensor(tensor).of  # a derived kernel's argument stands nowhere in the program
    whole = f"replicate {of}, of which it is the gradient" if of else "replicate it"
    return CallError(
        f"dimension {dim} of {tensor} is sharded over mesh axis {_listed(names)}, which kernel "
        f"{ir.name} cannot be split over: {why}",
        loc,
        hint=f"{whole}, {how}({of or tensor}, NamedSharding(mesh, PartitionSpec())), {instead}or "
        "call the kernel inside jax.shard_map, which gives it one shard at a time",
    )


def _listed(names: Names) -> str:
    return ", ".join(map(repr, names))


def over_mesh(
    split: Splits, mesh: Any, runs: Sequence[Run]
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """The call on whole arrays; `runs` are the kernels of one device."""
    specs = tuple(map(split.spec, operands_of(split.ir)))
    whole = jax.shard_map(
        split.on_device(runs), mesh=mesh, in_specs=specs,
        out_specs=tuple(map(split.spec, names_of(split.ir))), check_vma=False,
    )  # fmt: skip
    # the mesh is named: jax.jit of a vmap knows of none where the caller set none
    places = tuple(jax.sharding.NamedSharding(mesh, spec) for spec in specs)
    return lambda arrays: whole(*map(jax.sharding.reshard, arrays, places))
