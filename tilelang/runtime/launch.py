"""launch(...) -> Callable: one specialisation of a kernel as a function of the argument values.

    read operands -> check them -> run -> hand results out

All decisions are taken here once; a call only does what its arguments need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..analysis.facts import Facts
from ..errors import CallError, stored_to_jax
from ..ir import KernelIR, Store, every_store
from . import bridge
from .checks import Check, compile_checks, verifying
from .dynamo import keep_out
from .given import Given
from .results import structured
from .tensors import Described, Framework

Values = Sequence[Any]
Launch = Callable[[Values], Any]


@dataclass(frozen=True)
class TensorArgument:
    """A tensor argument: its place among the parameters, its name and what is known of it."""

    place: int
    name: str
    described: Described


def operands_of(given: Given) -> list[TensorArgument]:
    """The tensors among the arguments of a call."""
    names = enumerate(given.values)
    return [
        TensorArgument(n, name, given.tensors[name]) for n, name in names if name in given.tensors
    ]


def framework_of(kernel: str, operands: Sequence[TensorArgument]) -> Framework:
    """The framework of the results; CallError if torch and JAX arguments are mixed."""
    first = {o.described.spec.framework: o.name for o in reversed(operands)}
    if "torch" in first and "jax" in first:
        raise CallError(
            f"{first['torch']} is a torch tensor and {first['jax']} is a JAX array: "
            f"{kernel} takes one or the other",
            hint="NumPy arrays go with both",
        )
    return "torch" if "torch" in first else "jax" if "jax" in first else "numpy"


def refuse_shape(kernel: str, operand: TensorArgument) -> None:
    """CallError for an argument without data."""
    if operand.described.home == "shape":
        raise CallError(
            f"{operand.name} is a shape without data, and calling {kernel} needs the data",
            hint=f"{kernel}.source, .lower and .explain take shapes",
        )


def refuse_others(ir: KernelIR, operands: Sequence[TensorArgument]) -> None:
    """CallError where a program that torch traced is given arrays of other sizes than it holds."""
    for operand in operands:
        own, spec = ir.tensor(operand.name), operand.described.spec
        if (tuple(own.shape), own.dtype) != (tuple(spec.shape), spec.dtype):
            raise CallError(
                f"this program calls {ir.name} for {operand.name} of {own.dtype}"
                f"{list(own.shape)}, and gives it {spec.dtype}{list(spec.shape)}",
                hint="trace it again for these, or with sizes that are symbols: "
                "torch.compile, or make_fx with tracing_mode='symbolic'",
            )


def check_of(
    ir: KernelIR,
    facts: Facts,
    operands: Sequence[TensorArgument],
    checks: bool | None,
    blocks: Mapping[str, int],
) -> Check | None:
    """What a call looks at before it runs; None if it cannot, or must not.

    blocks  of the plan, as far as there is one
    """
    check = None if checks is False else compile_checks(ir, facts, blocks)
    if check is None:
        return None
    read = [o.described for o in operands if o.name in check.reads]
    return check if all(_readable(d, checks) for d in read) else None


def _readable(described: Described, checks: bool | None) -> bool:
    """Whether values can be looked at: on the host, or anywhere if that was asked for."""
    if described.home in ("traced", "shape"):
        return False
    return checks is True or described.device == "cpu"


def launch(
    ir: KernelIR,
    operands: Sequence[TensorArgument],
    run: Callable[..., Any],
    check: Check | None,
    framework: Framework,
) -> Launch:
    """The function that a call of this specialisation runs."""
    for operand in operands:
        _refuse_mutation(ir, operand)
    _refuse_late_stores(ir, operands)
    read = _reading(operands, framework)
    finish = _finishing(ir, operands, framework)
    verify = None if check is None else _verifying(check, operands)

    def call(values: Values) -> Any:
        arrays = read(values)
        if verify is not None:
            verify(arrays)
        try:
            results = run(*arrays)
        except ValueError:
            _refuse_apart(ir.name, operands, values)
            raise
        return finish(results, values)

    keep_out(call)
    return call


def _reading(
    operands: Sequence[TensorArgument], framework: Framework
) -> Callable[[Values], Sequence]:
    copy = framework == "jax"
    found = [bridge.reader(o.name, o.described.spec, o.described.home, copy) for o in operands]
    places = tuple(o.place for o in operands)
    if not any(found):
        return lambda values: [values[place] for place in places]
    readers = [(place, read or _as_is) for place, read in zip(places, found, strict=True)]
    return lambda values: [read(values[place]) for place, read in readers]


def _verifying(check: Check, operands: Sequence[TensorArgument]) -> Callable[[Sequence], None]:
    names = [o.name for o in operands]
    wanted = [names.index(name) for name in check.reads]
    asarray = np.asarray
    return verifying(check, lambda arrays: [asarray(arrays[place]) for place in wanted])


def _refuse_mutation(ir: KernelIR, operand: TensorArgument) -> None:
    if operand.described.spec.framework != "jax" or not ir.tensor(operand.name).mutated:
        return
    stored = next((s for s in every_store(ir.body) if _names(ir, s, operand)), None)
    raise stored_to_jax(operand.name, None if stored is None else stored.loc)


def _refuse_apart(kernel: str, operands: Sequence[TensorArgument], values: Values) -> None:
    """CallError for JAX arrays that were put on different devices, of which JAX says less."""
    arrays = [(o.name, values[o.place]) for o in operands if o.described.home == "jax"]
    put = [(name, array.sharding) for name, array in arrays if array.committed]
    for name, sharding in put:
        first, over = max(put, key=lambda each: len(each[1].device_set))
        if sharding.device_set != over.device_set:
            there = f"{first}.sharding"
            if len(over.device_set) > 1:
                there = f"NamedSharding({there}.mesh, PartitionSpec())"
            raise CallError(
                f"{first} is on {_devices(over)} and {name} on {_devices(sharding)}: {kernel} "
                "runs where all of its arguments are",
                hint=f"jax.device_put({name}, {there})",
            ) from None


def _devices(sharding: Any) -> str:
    found = sorted(sharding.device_set, key=lambda device: device.id)
    return str(found[0]) if len(found) == 1 else f"{len(found)} devices from {found[0]} on"


def _refuse_late_stores(ir: KernelIR, operands: Sequence[TensorArgument]) -> None:
    """A value that JAX is tracing comes after the call; memory of the host is stored to in it."""
    traced = next((o.name for o in operands if o.described.home == "traced"), None)
    mutated = next((o.name for o in operands if ir.tensor(o.name).mutated), None)
    if traced is not None and mutated is not None:
        raise CallError(
            f"{ir.name} stores to {mutated}, a NumPy array, and {traced} is traced by JAX: "
            "what to store is not known yet",
            hint=f"store to a new output, hl.empty({mutated}.shape, ...), and return it",
        )


def _names(ir: KernelIR, store: Store, operand: TensorArgument) -> bool:
    return ir.root(store.tensor) == operand.name


# ---------------------------------------------------------------- results


def _finishing(
    ir: KernelIR, operands: Sequence[TensorArgument], framework: Framework
) -> Callable[[Any, Values], Any]:
    """Results in the author's structure; arguments that the kernel stores to are updated."""
    exports = [bridge.exporter(framework, ir.tensor(name)) or _as_is for name in ir.returns]
    places = {o.name: o.place for o in operands}
    mutated = [o for o in operands if ir.tensor(o.name).mutated]
    own = [places.get(name) for name in ir.returns]  # a returned parameter is the caller's object
    if ir.structure == "single" and not mutated and own == [None]:
        (only,) = exports
        return lambda result, values: only(result)
    writes = [(o, bridge.writer(o.described.spec.framework)) for o in mutated]
    bare = len(ir.returns) + len(mutated) == 1

    def finish(result: Any, values: Values) -> Any:
        results = (result,) if bare else result
        for (operand, write), array in zip(writes, results[len(own) :], strict=True):
            write(operand.name, values[operand.place], array)
        returned = [
            export(array) if place is None else values[place]
            for place, export, array in zip(own, exports, results, strict=False)
        ]
        return structured(ir.structure, returned)

    return finish


def _as_is(array: Any) -> Any:
    return array
