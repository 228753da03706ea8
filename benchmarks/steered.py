"""values_of(subject, case): numbers for the integers of an example's case, of which only shapes are
known: groups whose lengths differ up to twenty times, and everything else drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from benchmarks.production import skewed
from tests.subjects import Subject

Given = Mapping[str, Any]
Values = dict[str, np.ndarray]


def values_of(subject: Subject, case: tuple[Any, ...]) -> Values:
    """Integer argument -> values."""
    given = dict(zip(subject.kernel.signature.names, case, strict=False))
    integers = [n for n, a in given.items() if str(getattr(a, "dtype", "")) == "int32"]
    found = offsets_of(subject, case, given)
    for name in integers:
        if name not in found:
            found[name] = (
                OTHERS[name](given) if name in OTHERS else np.zeros(given[name].shape, int)
            )
    return found


def offsets_of(subject: Subject, case: tuple[Any, ...], given: Given) -> Values:
    """Offsets of groups that share all rows."""
    if subject.ragged is None:
        return {}
    names = [name for name in given if name.endswith("offsets")]
    rows = {subject.ragged.of_array(p): case[p].shape[d] for p, d in subject.ragged.rows.items()}
    if "token" in given:  # rows that are picked from others
        rows = {0: given["token"].shape[0]}
    total = next((a for a in case if type(a) is int), 0)  # no argument has them, only a result
    return {
        name: skewed(rows.get(number, total), given[name].shape[0] - 1)["offsets"]
        for number, name in enumerate(names)
    }


def _table(given: Given) -> np.ndarray:
    """Pages in no order, each once."""
    shape = given["table"].shape
    return np.random.default_rng(0).permutation(int(np.prod(shape))).reshape(shape)


def _lengths(given: Given) -> np.ndarray:
    """Sequences that end somewhere in the second half of what the table has room for."""
    most = given["table"].shape[1] * given["k_pages"].shape[2]
    return np.random.default_rng(0).integers(most // 2, most + 1, given["lengths"].shape)


def _picked(name: str, among: Callable[[Given], int]) -> Callable[[Given], np.ndarray]:
    return lambda given: np.random.default_rng(0).integers(0, among(given), given[name].shape)


def _ids(given: Given) -> np.ndarray:
    """Segments in order where a number of them is given, else rows of a table."""
    if "table" in given:
        return _picked("ids", lambda g: g["table"].shape[0])(given)
    segments = next(value for value in given.values() if type(value) is int)
    return np.sort(_picked("ids", lambda _: segments)(given))


OTHERS: Mapping[str, Callable[[Given], np.ndarray]] = {
    "table": _table,
    "lengths": _lengths,
    "ids": _ids,
    "token": _picked("token", lambda given: given["x"].shape[0]),
    "slot": _picked("slot", lambda given: given["token"].shape[0]),
    "labels": _picked("labels", lambda given: next(iter(given.values())).shape[-1]),
}
