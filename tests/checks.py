"""What holds for every kernel of the examples, on one set of arguments or on many layouts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from tests.numerics import allowed, error
from tests.ragged import Layout, covered, legal_groups, members, poison
from tests.subjects import Arrays, Ragged, Subject

Call = Callable[..., Any]  # complete arguments -> the result, or a tuple of results


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
        exact, baseline = subject.expected(*arrays, layout.offsets, *subject.static)
        seen = hide_free_rows(subject, arrays, layout.offsets)
        result = call(*seen, layout.offsets, *subject.static)
        problem = differences(subject, result, exact, baseline, dtype) or free_rows(
            subject, result, layout.offsets
        )
        if problem:
            wrong.append(f"{layout}: {problem}")
    return wrong


def hide_free_rows(subject: Subject, arrays: Arrays, offsets: np.ndarray) -> Arrays:
    """The arrays with NaN and Inf in all rows that belong to no group."""
    rows = ragged_of(subject).rows
    return tuple(
        poison(a, covered(offsets, a.shape[rows[i]]), rows[i]) if i in rows else a
        for i, a in enumerate(arrays)
    )


def free_rows(subject: Subject, results: Any, offsets: np.ndarray) -> str:
    """Whether every row of the results that is in no group is exactly zero; "" if so."""
    for result, axis in zip(parts(results), ragged_of(subject).outs, strict=True):
        if axis is None:
            continue
        free = np.flatnonzero(~covered(offsets, result.shape[axis]))
        if not (np.take(result, free, axis) == 0).all():
            return "a row in no group is not zero"
    return ""


def neighbours(
    subject: Subject, call: Call, arrays: Arrays, layouts: Iterable[Layout]
) -> list[str]:
    """The groups whose results change when all the others hold NaN and Inf."""
    wrong = []
    for layout in layouts:
        offsets = layout.offsets
        clean = call(*arrays, offsets, *subject.static)
        for group in range(len(offsets) - 1):
            hidden = hide_others(subject, arrays, offsets, group)
            result = call(*hidden, offsets, *subject.static)
            pairs = zip(
                own(subject, clean, offsets, group),
                own(subject, result, offsets, group),
                strict=True,
            )
            if not all((one == other).all() for one, other in pairs):
                wrong.append(f"{layout}: group {group} sees its neighbours")
    return wrong


def unchecked(subject: Subject, call: Call, arrays: Arrays, offsets: np.ndarray) -> list[str]:
    """What is wrong after a call with wrong offsets: legal groups, and rows in no range.

    A group is compared with a call in which all the others are empty.
    """
    result = call(*arrays, offsets, *subject.static)
    problem = free_rows(subject, result, offsets)
    wrong = [problem] if problem else []
    rows = ragged_of(subject).rows
    for group in legal_groups(offsets, arrays[0].shape[rows[0]]):
        begin, end = offsets[group : group + 2]
        alone = np.where(np.arange(len(offsets)) <= group, begin, end).astype(np.int32)
        both = subject.expected(*arrays, alone, *subject.static)
        exact, baseline = (own(subject, r, alone, group) for r in both)
        mine = own(subject, result, alone, group)
        found = differences(subject, mine, exact, baseline, "float32")
        wrong += [f"group {group}: {found}"] if found else []
    return wrong


def hide_others(subject: Subject, arrays: Arrays, offsets: np.ndarray, group: int) -> Arrays:
    """The arrays with NaN and Inf in everything that does not belong to one group."""
    ragged = ragged_of(subject)
    hidden = list(arrays)
    for place, axis in ragged.rows.items():
        seen = members(offsets, arrays[place].shape[axis], group)
        hidden[place] = poison(arrays[place], seen, axis)
    for place in ragged.groups:
        hidden[place] = poison(arrays[place], np.arange(len(arrays[place])) == group)
    return tuple(hidden)


def own(subject: Subject, results: Any, offsets: np.ndarray, group: int) -> tuple[np.ndarray, ...]:
    """The parts of the results that belong to one group."""
    found = []
    for result, axis in zip(parts(results), ragged_of(subject).outs, strict=True):
        if axis is None:
            found.append(result[group])
            continue
        rows = np.flatnonzero(members(offsets, result.shape[axis], group))
        found.append(np.take(result, rows, axis))
    return tuple(found)
