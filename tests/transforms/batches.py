"""Batches of the examples' arguments: every element with a layout of its own, and NaN around it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from tests import checks
from tests.ragged import Space, every_stratum
from tests.subjects import Subject

SPACE = Space(rows=40, groups=4, block=16)
SIZE = 3
Arguments = tuple[np.ndarray, ...]


def tensors(subject: Subject) -> tuple[str, ...]:
    """The parameters of a subject's kernel that take tensors."""
    count = len(subject.cases[0]) - len(subject.static)
    return subject.kernel.signature.names[:count]


def elements(subject: Subject, dtype: str = "float32") -> Iterator[list[Arguments]]:
    """Batches of tensor arguments; those of ragged kernels have every stratum between them."""
    if subject.ragged is None:
        yield [subject.arrays(dtype, seed=seed) for seed in range(SIZE)]
        return
    layouts, ragged = every_stratum(SPACE), subject.ragged
    for start in range(0, len(layouts), SIZE):
        batch = []
        for seed, layout in enumerate(layouts[start : start + SIZE]):
            arrays = subject.arrays(dtype, seed=seed, rows=SPACE.rows, groups=SPACE.groups)
            cuts = layout.tensors(ragged.offsets)
            batch.append((*checks.hide_free_rows(subject, arrays, cuts), *cuts))
        yield batch


def subsets(subject: Subject) -> list[tuple[str, ...]]:
    """All tensors, the first one alone and the last one, which are offsets where there are some."""
    names = tensors(subject)
    return list(dict.fromkeys([names, names[:1], names[-1:]]))


def stacked(
    subject: Subject, batch: Sequence[Arguments], names: Collection[str]
) -> tuple[list[np.ndarray], list[list[np.ndarray]]]:
    """The arguments of a batch of which these are not shared, and those of every element.

    What is shared is the first element's; rows in groups of others are then no NaN.
    """
    of, shared = tensors(subject), list(batch[0])
    if subject.ragged is not None and set(names) != set(of):
        clean = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
        shared[: len(clean)] = clean
    whole = [
        np.stack([element[place] for element in batch]) if name in names else shared[place]
        for place, name in enumerate(of)
    ]
    each = [
        [array[n] if name in names else array for name, array in zip(of, whole, strict=True)]
        for n in range(len(batch))
    ]
    return whole, each


def together(results: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """The results of the calls for every element as those of a batch."""
    return tuple(np.stack(each) for each in zip(*map(checks.parts, results), strict=True))


def unlike(
    subject: Subject,
    names: Collection[str],
    whole: Callable[..., Any],
    one: Callable[..., Any],
    batches: int | None = None,
) -> list[str]:
    """Where what `whole` makes of batches is not, bit for bit, what `one` makes of each element."""
    wrong = []
    for number, batch in enumerate(itertools.islice(elements(subject), batches)):
        arguments, each = stacked(subject, batch, names)
        found = checks.parts(whole(*arguments))
        expected = together([one(*element) for element in each])
        for place, (mine, other) in enumerate(itertools.zip_longest(found, expected)):
            if not np.array_equal(np.asarray(mine), other, equal_nan=mine.dtype.kind == "f"):
                wrong.append(f"batch {number}, result {place}, {', '.join(names)}")
    return wrong
