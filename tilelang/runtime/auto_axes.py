"""over_auto_axes(...) -> a call on whole arrays that JAX's partitioner splits over Auto mesh axes.

The partitioner propagates shardings by the kernel's rule, and then asks what each device runs: the
part that an explicit mesh would run, by the same factors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from jax.sharding import NamedSharding

from ..analysis.facts import Facts
from ..ir import KernelIR
from ..transforms.partition import Factor
from ..transforms.whole import splittable
from .jax_compat import as_itself, axes_of
from .sharding import Run, Splits, settled


def over_auto_axes(
    ir: KernelIR,
    facts: Facts,
    operands: Sequence[str],
    results: Sequence[str],
    whole: Run,
    local: Callable[[Splits], Sequence[Run]],
) -> Callable[..., tuple[Any, ...]]:
    """The call; `whole` runs the kernel, and `local` gives what runs that of one device."""

    def partition(mesh: Any, given: Any, made: Any) -> Any:
        """What each device runs, and how its arguments and results are sharded for that."""
        with as_itself():
            split = settled(ir, facts, _specs(operands, given), _specs(results, made), mesh.shape)
        one = split.on_device(local(split))
        shardings = [_sharding(split, mesh, names) for names in (results, operands)]
        return mesh, one, *shardings

    def call(*arrays: Any) -> tuple[Any, ...]:
        return tuple(whole(arrays))

    call.__name__ = ir.name
    run = custom_partitioning(call)
    run.def_partition(
        partition, sharding_rule=rule_of(ir, splittable(ir, facts), operands, results)
    )
    return run


def _specs(names: Sequence[str], arrays: Any) -> dict[str, Any]:
    pairs = zip(names, jax.tree.leaves(arrays), strict=True)
    return {name: axes_of(a.sharding, len(a.shape)) for name, a in pairs}


def _sharding(split: Splits, mesh: Any, names: Sequence[str]) -> tuple[NamedSharding, ...]:
    return tuple(NamedSharding(mesh, split.spec(name)) for name in names)


def rule_of(
    ir: KernelIR, every: Sequence[Factor], operands: Sequence[str], results: Sequence[str]
) -> SdyShardingRule:
    """Dimensions that are split together have one name; all others have one of their own.

    What no results have is summed over, and arrives as it is sharded: the split says no to it, if
    it cannot be added up.  Of positions that stay together a name stands for all.
    """
    known = {place: (n, f) for n, f in enumerate(every) for place in f.dims}
    inner = dict[str, int]()

    def mapped(name: str, dim: int, size: int, role: str) -> str | CompoundFactor:
        if (name, dim) not in known:
            return f"{role}{name}_{dim}"
        n, factor = known[name, dim]
        places = factor.size // factor.together
        many = size // places if places else 1
        if many > 1:
            inner[f"f{n}_in_{many}"] = many
        return CompoundFactor(f"f{n}", f"f{n}_in_{many}") if many > 1 else f"f{n}"

    def mapping(name: str, role: str) -> ArrayMapping:
        shape = ir.tensor(name).shape
        return ArrayMapping(*[mapped(name, dim, size, role) for dim, size in enumerate(shape)])

    given = tuple(mapping(name, "of_") for name in operands)
    made = tuple(mapping(name, "to_") for name in results)
    kept = set(_names(made))
    seen = dict.fromkeys(_names(given))
    split = {f"f{n}" for n, _ in known.values()}
    summed = tuple(f for f in seen if f in split and f not in kept)
    whole = {f"f{n}": factor.size // factor.together for n, factor in known.values()}
    alone = {name for each in (*given, *made) for name in each if isinstance(name, str)}
    sizes: dict[str, Any] = inner | {
        f: whole[f] for f in whole if f in {*seen, *kept} and f not in alone
    }
    held = tuple(f for f in dict.fromkeys((*seen, *_names(made))) if f in inner)
    return SdyShardingRule(
        given, made, reduction_factors=summed, need_replication_factors=held, **sizes
    )


def _names(mappings: Sequence[ArrayMapping]) -> Iterator[str]:
    for each in mappings:
        for dim in each:
            yield from (dim,) if isinstance(dim, str) else dim
