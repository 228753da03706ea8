"""What holds for every kernel of the examples, on one set of arguments or on many layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tests.numerics import allowed, error
from tests.ragged import Layout, covered, legal_groups, members, poison
from tests.subjects import Arrays, Ragged, Subject

Call = Callable[..., Any]  # complete arguments -> the result, or a tuple of results
Cuts = tuple[np.ndarray, ...]  # the values of every tensor of offsets that a kernel has


def ragged_of(subject: Subject) -> Ragged:
    """How the offsets of a ragged subject cut its arguments."""
    assert subject.ragged is not None
    return subject.ragged


def right(subject: Subject, call: Call, arguments: tuple[Any, ...], dtype: str) -> str:
    """What is wrong with the result of a call; "" if nothing is."""
    exact, baseline = subject.expected(*arguments)
    return differences(subject, call(*arguments), exact, baseline, dtype)


def parts(results: Any) -> tuple[Any, ...]:
    """All results of a kernel that may have one."""
    return results if isinstance(results, tuple) else (results,)


def differences(subject: Subject, results: Any, exact: Any, baseline: Any, dtype: str) -> str:
    """Where any of the results breaks the error policy or its dtype; "" if nowhere."""
    every = zip(
        parts(results), parts(exact), parts(baseline), subject.result_dtypes(dtype), strict=True
    )
    found = [difference(*each) for each in every]
    return "; ".join(f"result {i}: {text}" if i else text for i, text in enumerate(found) if text)


def difference(result: np.ndarray, exact: np.ndarray, baseline: np.ndarray, dtype: str) -> str:
    """Where a result breaks the error policy or the dtype; "" if nowhere."""
    if result.dtype.name != dtype:
        return f"the result is {result.dtype.name}, expected {dtype}"
    if result.shape != exact.shape:
        return f"the result has shape {result.shape}, expected {exact.shape}"
    found, most = error(result, exact), allowed(baseline, exact, dtype)
    if found <= most:
        return ""
    worst = np.nanargmax(np.where(np.isfinite(result), np.abs(result - exact), np.inf))
    where = tuple(map(int, np.unravel_index(worst, exact.shape)))
    return f"error {found:.2e} > {most:.2e}; at {where}: {result[where]}, exact {exact[where]:.6g}"


def every_layout(
    subject: Subject, call: Call, arrays: Arrays, layouts: Iterable[Layout], dtype: str
) -> list[str]:
    """The layouts on which a kernel is wrong, and how.

    Rows in no group hold NaN and Inf when the kernel sees them, and are exactly 0 in its result.
    """
    wrong = []
    for layout in layouts:
        cuts = layout.tensors(ragged_of(subject).offsets)
        exact, baseline = subject.expected(*arrays, *cuts, *subject.static)
        seen = hide_free_rows(subject, arrays, cuts)
        result = call(*seen, *cuts, *subject.static)
        problem = differences(subject, result, exact, baseline, dtype) or free_rows(
            subject, result, cuts
        )
        if problem:
            wrong.append(f"{said(layout.stratum, cuts)}: {problem}")
    return wrong


def said(name: str, cuts: Cuts) -> str:
    """A layout in words, with the offsets that a kernel takes."""
    return f"{name} {', then '.join(str(offsets.tolist()) for offsets in cuts)}"


def hide_free_rows(subject: Subject, arrays: Arrays, cuts: Cuts) -> Arrays:
    """The arrays with NaN and Inf in all rows that belong to no group."""
    ragged, hidden = ragged_of(subject), list(arrays)
    for place, axis in ragged.rows.items():
        seen = covered(cuts[ragged.of_array(place)], arrays[place].shape[axis])
        hidden[place] = poison(arrays[place], seen, axis)
    return tuple(hidden)


def free_rows(subject: Subject, results: Any, cuts: Cuts) -> str:
    """Whether every row of the results that is in no group is exactly zero; "" if so."""
    ragged = ragged_of(subject)
    for place, (result, axis) in enumerate(zip(parts(results), ragged.outs, strict=True)):
        if axis is None:
            continue
        free = np.flatnonzero(~covered(cuts[ragged.of_result(place)], result.shape[axis]))
        if not (np.take(result, free, axis) == 0).all():
            return "a row in no group is not zero"
    return ""


def neighbours(
    subject: Subject, call: Call, arrays: Arrays, layouts: Iterable[Layout]
) -> list[str]:
    """The groups whose results change when all the others hold NaN and Inf."""
    wrong = []
    for layout in layouts:
        cuts = layout.tensors(ragged_of(subject).offsets)
        clean = call(*arrays, *cuts, *subject.static)
        for group in range(len(cuts[0]) - 1):
            hidden = hide_others(subject, arrays, cuts, group)
            result = call(*hidden, *cuts, *subject.static)
            pairs = zip(
                own(subject, clean, cuts, group), own(subject, result, cuts, group), strict=True
            )
            if not all((one == other).all() for one, other in pairs):
                wrong.append(f"{said(layout.stratum, cuts)}: group {group} sees its neighbours")
    return wrong


def unchecked(subject: Subject, call: Call, arrays: Arrays, offsets: np.ndarray) -> list[str]:
    """What is wrong after calls with wrong offsets, in each tensor of offsets in turn.

    The others are fair.  Groups that are legal in all of them are looked at, and rows in no range.
    """
    lengths = ragged_of(subject).lengths(arrays)
    fair = [np.linspace(0, n, len(offsets)).astype(np.int32) for n in lengths]
    wrong = []
    for number in range(len(lengths)):
        cuts = (*fair[:number], offsets, *fair[number + 1 :])
        wrong += _unchecked(subject, call, arrays, cuts)
    return wrong


def _unchecked(subject: Subject, call: Call, arrays: Arrays, cuts: Cuts) -> list[str]:
    """The same for given offsets.

    A group is compared with a call in which all the others are empty.
    """
    result = call(*arrays, *cuts, *subject.static)
    problem = free_rows(subject, result, cuts)
    wrong = [problem] if problem else []
    for group in _legal(cuts, ragged_of(subject).lengths(arrays)):
        alone = tuple(_only(offsets, group) for offsets in cuts)
        both = subject.expected(*arrays, *alone, *subject.static)
        exact, baseline = (own(subject, r, alone, group) for r in both)
        mine = own(subject, result, alone, group)
        found = differences(subject, mine, exact, baseline, "float32")
        wrong += [f"{said('offsets', cuts)}: group {group}: {found}"] if found else []
    return wrong


def _legal(cuts: Cuts, lengths: tuple[int, ...]) -> list[int]:
    """The groups that are legal in all tensors of offsets."""
    legal = [set(legal_groups(o, n)) for o, n in zip(cuts, lengths, strict=True)]
    return sorted(set.intersection(*legal))


def _only(offsets: np.ndarray, group: int) -> np.ndarray:
    """Offsets in which all other groups are empty."""
    begin, end = offsets[group : group + 2]
    return np.where(np.arange(len(offsets)) <= group, begin, end).astype(np.int32)


def hide_others(subject: Subject, arrays: Arrays, cuts: Cuts, group: int) -> Arrays:
    """The arrays with NaN and Inf in everything that does not belong to one group."""
    ragged, hidden = ragged_of(subject), list(arrays)
    for place, axis in ragged.rows.items():
        seen = members(cuts[ragged.of_array(place)], arrays[place].shape[axis], group)
        hidden[place] = poison(arrays[place], seen, axis)
    for place in ragged.groups:
        hidden[place] = poison(arrays[place], np.arange(len(arrays[place])) == group)
    return tuple(hidden)


def own(subject: Subject, results: Any, cuts: Cuts, group: int) -> tuple[np.ndarray, ...]:
    """The parts of the results that belong to one group."""
    ragged, found = ragged_of(subject), []
    for place, (result, axis) in enumerate(zip(parts(results), ragged.outs, strict=True)):
        if axis is None:
            found.append(result[group])
            continue
        rows = members(cuts[ragged.of_result(place)], result.shape[axis], group)
        found.append(np.take(result, np.flatnonzero(rows), axis))
    return tuple(found)
