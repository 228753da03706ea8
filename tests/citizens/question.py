"""question(subject) -> Question: two calls of an example, their results and their gradients.

The results are those of its NumPy expression, the gradients those of an independent expression in
JAX; neither knows of tiles.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tests import checks
from tests.ragged import Layout, Space
from tests.subjects import Subject
from tests.transforms.test_gradients import INDEPENDENT, MULTIPLIED

Arrays = tuple[np.ndarray, ...]
SPACE = Space(rows=24, groups=3, block=16)
LAYOUTS = (
    Layout("an empty group", np.int32([0, 7, 7, 22]), np.int32([0, 30, 33, 33])),
    Layout("one row alone", np.int32([3, 4, 20, 24]), np.int32([1, 1, 9, 32])),
)
CLOSE = 2e-5  # of the largest element


@dataclass(frozen=True, eq=False)
class Question:
    """What is asked of a kernel.

    calls       tensor arguments of two calls
    static      the arguments behind them
    floats      which of the tensors have gradients
    results     what each call gives
    cotangents  of the results of each call, and the gradients that they make
    """

    kernel: Any
    calls: tuple[Arrays, Arrays]
    static: tuple[Any, ...]
    floats: tuple[int, ...]
    results: tuple[Arrays, Arrays]
    cotangents: tuple[Arrays, Arrays]
    gradients: tuple[Arrays, Arrays]

    def call(self, *tensors: Any) -> tuple[Any, ...]:
        """The kernel's results, also where there is one."""
        return checks.parts(self.kernel(*tensors, *self.static))

    @functools.cached_property
    def stacked(self) -> Arrays:
        """The arguments of both calls in one array each."""
        return both(*self.calls)

    @functools.cached_property
    def stacked_cotangents(self) -> Arrays:
        return both(*self.cotangents)


def both(one: Sequence[Any], other: Sequence[Any]) -> Arrays:
    """Elements of a batch of two."""
    return tuple(np.stack(pair) for pair in zip(one, other, strict=True))


def question(subject: Subject) -> Question:
    """The question about an example, with its answers."""
    one, other = (_arguments(subject, n) for n in range(2))
    floats = tuple(n for n, a in enumerate(one) if a.dtype == np.float32)
    made = [_answers(subject, each, floats) for each in (one, other)]
    results, cotangents, gradients = zip(*made, strict=True)
    return Question(
        subject.kernel, (one, other), subject.static, floats, results, cotangents, gradients
    )


def _arguments(subject: Subject, seed: int) -> Arrays:
    if subject.ragged is None:
        return subject.arrays("float32", seed=seed)
    arrays = list(subject.arrays("float32", seed=seed, rows=SPACE.rows, groups=SPACE.groups))
    for place in MULTIPLIED.get(subject.name, ()):
        arrays[place] = np.nan_to_num(arrays[place], posinf=0.0, neginf=0.0)
    return (*arrays, *LAYOUTS[seed].tensors(subject.ragged.offsets))


def _answers(
    subject: Subject, tensors: Arrays, floats: Sequence[int]
) -> tuple[Arrays, Arrays, Arrays]:
    """Results, cotangents and gradients of one call."""
    exact = checks.parts(subject.oracle(*tensors, *subject.static))
    function = INDEPENDENT.get(subject.name, subject.baseline)

    def call(*moved: Any) -> tuple[Any, ...]:
        own = list(tensors)
        for place, value in zip(floats, moved, strict=True):
            own[place] = value
        return checks.parts(function(*own, *subject.static))

    results, pull = jax.vjp(call, *(jnp.asarray(tensors[n]) for n in floats))
    rng = np.random.default_rng(7)
    cotangents = tuple(rng.standard_normal(r.shape).astype(r.dtype) for r in results)
    gradients = pull(tuple(map(jnp.asarray, cotangents)))
    return exact, cotangents, tuple(np.asarray(g) for g in gradients)


def unlike(found: Sequence[Any], wanted: Sequence[Any]) -> str:
    """Where arrays are not what is wanted; "" if nowhere."""
    for place, (one, other) in enumerate(zip(found, wanted, strict=True)):
        mine, right = np.asarray(one, np.float64), np.asarray(other, np.float64)
        if mine.shape != right.shape:
            return f"{place}: shape {mine.shape}, wanted {right.shape}"
        most = CLOSE * (np.abs(right).max(initial=0) + 1e-6)
        error = np.abs(mine - right).max(initial=0)
        if not error <= most:
            return f"{place}: error {error:.1e}, allowed {most:.1e}"
    return ""
