"""Second gradients of examples, by JAX and torch, are JAX's of independent expressions of them.

Arguments are those of the tests of first gradients: groups without rows, gaps, rows in no group.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from tests import checks
from tests.frameworks import needs_examples_in_torch
from tests.subjects import SUBJECTS, Subject
from tests.transforms.test_gradients import HARD, INDEPENDENT, arguments_of

# Forward saves what is neither argument nor result for the last two.
NAMES = ("softmax", "rms_norm", "segment_sum", "jagged_mean", "jagged_softmax", "jagged_layer_norm")
SLOW = ("layer_norm", "swiglu", "grouped_gemm", "jagged_attention")
RNG = np.random.default_rng(0)


class _Asked:
    """An example, the places of its float arguments, and weights for what is differentiated."""

    def __init__(self, subject: Subject) -> None:
        self.kernel = subject.kernel
        self.expected = INDEPENDENT.get(subject.name, subject.baseline)
        self.arguments = arguments_of(subject, HARD[0] if subject.ragged is not None else None)
        floats = [getattr(a, "dtype", None) == np.float32 for a in self.arguments]
        self.places = [n for n, is_float in enumerate(floats) if is_float]
        self.floats = [np.nan_to_num(self.arguments[n]) for n in self.places]
        results = self.results(self.expected, self.floats, jnp.asarray)
        self.of_results = [RNG.standard_normal(r.shape).astype(np.float32) for r in results]
        self.of_gradients = [RNG.standard_normal(f.shape).astype(np.float32) for f in self.floats]

    def results(self, function: Any, floats: Any, array: Any) -> tuple[Any, ...]:
        given = [array(a) if isinstance(a, np.ndarray) else a for a in self.arguments]
        for place, value in zip(self.places, floats, strict=True):
            given[place] = value
        return checks.parts(function(*given))

    def of_jax(self, function: Any) -> Any:
        every = tuple(range(len(self.floats)))

        def loss(*floats: Any) -> Any:
            results = self.results(function, floats, jnp.asarray)
            return sum((jnp.sin(r) * c).sum() for r, c in zip(results, self.of_results))

        def of_first(*floats: Any) -> Any:
            first = jax.grad(loss, every)(*floats)
            return sum((g * c).sum() for g, c in zip(first, self.of_gradients))

        return jax.jit(jax.grad(of_first, every))(*map(jnp.asarray, self.floats))

    def of_torch(self) -> Any:
        floats = [torch.from_numpy(f.copy()).requires_grad_() for f in self.floats]
        results = self.results(self.kernel, floats, lambda a: torch.from_numpy(a.copy()))
        pairs = zip(results, map(torch.from_numpy, self.of_results), strict=True)
        loss = sum((torch.sin(r) * c).sum() for r, c in pairs)
        first = torch.autograd.grad(loss, floats, create_graph=True)
        weighed = zip(first, map(torch.from_numpy, self.of_gradients), strict=True)
        return torch.autograd.grad(sum((g * c).sum() for g, c in weighed), floats)


@needs_examples_in_torch
@pytest.mark.parametrize("name", [*NAMES, *(pytest.param(n, marks=pytest.mark.slow) for n in SLOW)])
def test_second_gradients(name):
    asked = _Asked(next(s for s in SUBJECTS if s.name == name))
    wanted = [np.asarray(w) for w in asked.of_jax(asked.expected)]
    for found in (asked.of_jax(asked.kernel), asked.of_torch()):
        for mine, exact in zip(found, wanted, strict=True):
            scale = np.abs(exact).max() + 0.1
            assert np.abs(np.asarray(mine) - exact).max() <= 1e-5 * scale
    assert any(np.abs(w).max() > 1e-2 for w in wanted)


def test_third_gradients_and_functions():
    """By torch.func, in which gradients are always asked for as if they were differentiated."""
    asked = _Asked(next(s for s in SUBJECTS if s.name == "jagged_softmax"))
    offsets = torch.from_numpy(asked.arguments[1].copy())
    x, weight = torch.from_numpy(asked.floats[0]), torch.from_numpy(asked.of_gradients[0])

    def exact(x: Any) -> Any:
        return asked.expected(x, jnp.asarray(asked.arguments[1]))

    def third(grad: Any, function: Any, weight: Any) -> Any:
        once = grad(lambda x: (function(x) ** 2 * weight).sum())
        twice = grad(lambda x: (once(x) * weight).sum())
        return grad(lambda x: (twice(x) * weight).sum())

    found = third(torch.func.grad, lambda x: asked.kernel(x, offsets), weight)(x)
    wanted = np.asarray(third(jax.grad, exact, weight.numpy())(jnp.asarray(asked.floats[0])))
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())
