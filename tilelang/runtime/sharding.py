"""sharded(ir, specs, sizes, ...) -> Split: how a call on sharded arguments runs on a mesh.

A dimension that an argument is sharded along names a factor of the kernel; everything else that the
factor holds is sharded alike, and what it leaves to be done is done by JAX around the kernel of one
device: offsets are sliced and clipped before, results added up and cast behind.
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
from ..ir import KernelIR
from ..transforms.local import local, more
from ..transforms.partition import Factor, factors

Names = tuple[str, ...]  # mesh axes
Spec = tuple[Names, ...]  # of each dimension of an array


@dataclass(frozen=True)
class Split:
    """A kernel over a mesh: which mesh axes split each factor, and the kernel of one device."""

    ir: KernelIR
    axes: tuple[tuple[Factor, Names], ...]
    sizes: Mapping[str, int]
    local: KernelIR

    def spec(self, tensor: str) -> PartitionSpec:
        """How a tensor is spread over the mesh."""
        found = {place: names for factor, names in self.axes for place in factor.dims}
        rank = len(self.ir.tensor(tensor).shape)
        return PartitionSpec(*[found.get((tensor, dim)) or None for dim in range(rank)])

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
        added = {n for f, names in self.axes if name in dict(f.added) for n in names}
        if added:
            array = jax.lax.psum(array, tuple(sorted(added)))
        return array.astype(self.ir.tensor(name).dtype)

    def on_device(
        self,
        operands: Sequence[str],
        results: Sequence[str],
        run: Callable[[Sequence[Any]], Sequence[Any]],
    ) -> Callable[..., tuple[Any, ...]]:
        """What each device does with its shards, by the kernel of one device."""
        also = more(self.ir, [factor for factor, _ in self.axes])

        def body(*arrays: Any) -> tuple[Any, ...]:
            known = dict(zip(operands, arrays, strict=True))
            given = [self.given(name, a) for name, a in known.items()]
            given += [self.given(t, known[t], whole=True) for t in also.wholes.values()]
            given += [self.first(factor) for factor in also.firsts.values()]
            return tuple(self.result(n, r) for n, r in zip(results, run(given), strict=True))

        return body

    def _count(self, names: Names) -> int:
        return _parts(self.sizes, names)


def _parts(sizes: Mapping[str, int], names: Names) -> int:
    return math.prod(sizes[name] for name in names)


def split_of(
    ir: KernelIR, facts: Facts, specs: Mapping[str, Spec], sizes: Mapping[str, int]
) -> Split:
    """The split that the shardings of the arguments ask for; CallError where there is none."""
    every, chosen = factors(ir, facts), dict[Factor, Names]()
    for place, names in _sharded(specs):
        factor = _factor(ir, every, place, names, EXPLICIT)
        if chosen.setdefault(factor, names) != names:
            raise _refused(
                ir, place, names,
                f"another argument splits the same loop over {_listed(chosen[factor])}", factor.loc,
            )  # fmt: skip
        if not factor.splits(_parts(sizes, names)):
            raise _refused(ir, place, names, _uneven(factor), factor.loc)
    _once(ir, chosen)
    return _split(ir, chosen, sizes)


def settled(
    ir: KernelIR,
    facts: Facts,
    given: Mapping[str, Spec],
    made: Mapping[str, Spec],
    sizes: Mapping[str, int],
) -> Split:
    """The split where a compiler chose the shardings, which may contradict each other.

    What comes first is done, and the rest is sharded anew: arguments go before results.  CallError
    where an argument is sharded along what no kernel of one device could run on.
    """
    every, chosen = factors(ir, facts), dict[Factor, Names]()
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
    if found is None:
        why = "no loop of the kernel runs along it alone"
        raise _refused(ir, place, names, why, ir.tensor(place[0]).loc, how)
    if found.kind is None:
        instead = _others(every, place[0])
        raise _refused(ir, place, names, found.why, found.loc, how, instead)
    if place in found.edges:
        raise _refused(ir, place, names, "offsets are needed as a whole", found.loc, how)
    return found


def _others(every: Sequence[Factor], tensor: str) -> str:
    """What to say of the dimensions of a tensor that can be split."""
    dims = sorted({dim for f in every if f.kind for name, dim in f.dims if name == tensor})
    return f"shard dimension {' or '.join(map(str, dims))} instead, " if dims else ""


def _uneven(factor: Factor) -> str:
    if factor.together == 1:
        return f"{factor.size} is no multiple of the mesh's size"
    held = f"{factor.together} of its {factor.size} positions stay together"
    return f"{held}, and {factor.size // factor.together} is no multiple of the mesh's size"


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
    return CallError(
        f"dimension {dim} of {tensor} is sharded over mesh axis {_listed(names)}, which kernel "
        f"{ir.name} cannot be split over: {why}",
        loc,
        hint=f"replicate it, {how}({tensor}, PartitionSpec()), {instead}or call the kernel "
        "inside jax.shard_map, which gives it one shard at a time",
    )


def _listed(names: Names) -> str:
    return ", ".join(map(repr, names))


def over_mesh(
    split: Split,
    operands: Sequence[str],
    results: Sequence[str],
    mesh: Any,
    run: Callable[[Sequence[Any]], Sequence[Any]],
) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """The call on whole arrays; `run` is the kernel of one device."""
    specs = tuple(split.spec(name) for name in operands)
    body = split.on_device(operands, results, run)
    whole = jax.shard_map(
        body, mesh=mesh, in_specs=specs, out_specs=tuple(map(split.spec, results)), check_vma=False
    )
    # the mesh is named: jax.jit of a vmap knows of none where the caller set none
    places = tuple(jax.sharding.NamedSharding(mesh, spec) for spec in specs)
    return lambda arrays: whole(*map(jax.sharding.reshard, arrays, places))
