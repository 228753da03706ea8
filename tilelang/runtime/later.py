"""later(...) -> Callable: what a later call of a specialisation runs, a flat function.

It is found by the key of the arguments, so that it looks only at what no key tells: whether what
the kernel read outside of its arguments is as it was, and what torch is doing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from ..reads import MISSING, UNCHANGING, Global, Member, Stamped, Step, stamp
from .tensors import home_of
from .written import Flat, function, listed, local

if TYPE_CHECKING:
    from .launch import Launch  # which loads the analyses

CONCRETE = frozenset(("numpy", "torch", "jax"))  # homes of values that are there


@runtime_checkable
class Flattened(Protocol):
    """A launch that says what it does as lines."""

    def flat(self, parameters: Sequence[str], values: Sequence[Any]) -> Flat: ...


@dataclass(frozen=True, eq=False)
class Filed:
    """A specialisation: its launch, what its kernel read, and later calls by types."""

    launch: Launch
    reads: Sequence[Stamped]
    later: dict[tuple[type, ...], Callable[..., Any]] = field(default_factory=dict)


def later(
    kernel: Callable[..., Any],
    names: Sequence[str],
    values: Sequence[Any],
    filed: Filed,
    otherwise: Callable[[tuple], Any],
) -> Callable[..., Any] | None:
    """The function of the arguments; what it does not know it gives `otherwise`.

    None for values that are still to come: those are traced, and nobody waits for that.
    """
    homes = {home_of(type(value)) for value in values} - {None}
    if not homes <= CONCRETE:
        return None
    types = tuple(map(type, values))
    if types not in filed.later:
        parameters = [local(name) for name in names]
        flat = flat_of(filed.launch, parameters, values)
        changed, known = unchanged(kernel, filed.reads, parameters, values)
        flat = flat.after(changed, {**known, "_otherwise": otherwise})
        filed.later[types] = function(f"later_{kernel.__name__}", parameters, flat)
    return filed.later[types]


def flat_of(launch: Launch, parameters: Sequence[str], values: Sequence[Any]) -> Flat:
    """A launch as lines: its own, or a call of it."""
    if isinstance(launch, Flattened):
        return launch.flat(parameters, values)
    return call_of(launch, parameters)


def call_of(launch: Launch, parameters: Sequence[str]) -> Flat:
    """A call of a launch as a line."""
    return Flat((), (f"return _launch({listed(parameters)})",), {"_launch": launch})


def unchanged(
    kernel: Callable[..., Any],
    reads: Sequence[Stamped],
    parameters: Sequence[str],
    values: Sequence[Any],
) -> tuple[tuple[str, ...], Mapping[str, Any]]:
    """Conditions under which a read gives another stamp than it gave; what they name."""
    texts = [_written(read.step) for read in reads]
    known: dict[str, Any] = {"_kernel": kernel, "_missing": MISSING, "_stamp": stamp}
    if any(text is None for text in texts):
        held = lambda given: holds(reads, (kernel, *given))  # noqa: E731
        return (f"not _held({listed(parameters)})",), {"_held": held}
    tests: list[str] = []
    for n, (text, read) in enumerate(zip(texts, reads, strict=True)):
        value = read.step.take([kernel, *values])
        differs = f"_stamp({text}) != _stamp_{n}"
        if type(value) in UNCHANGING:
            known[f"_was_{n}"] = value
            differs = f"{text} is not _was_{n} and {differs}"
        known[f"_stamp_{n}"] = read.stamp
        tests.append(differs)
    return tuple(tests), known


def holds(reads: Sequence[Stamped], values: Sequence[Any]) -> bool:
    """Whether every read gives what it gave; `values` are function and arguments."""
    known = list(values)
    try:
        for read in reads:
            known.append(read.step.take(known))
            if stamp(known[-1]) != read.stamp:
                return False
    except Exception:  # host code may raise anything
        return False
    return True


def _written(step: Step) -> str | None:
    """What a step takes, as an expression that cannot raise; None where there is none."""
    match step:
        case Member(0, "__code__"):
            return "_kernel.__code__"
        case Global(0, name):
            return f"_kernel.__globals__.get({name!r}, _missing)"
        case _:
            return None
