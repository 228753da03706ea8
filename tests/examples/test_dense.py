"""The dense examples as generated Pallas on the CPU, from JAX and from torch."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tilelang as tile
from tests import checks
from tests.frameworks import NEEDS_TORCH, from_jax, from_torch, torch
from tests.subjects import DENSE, Subject
from tests.tiers import FIFTH, share

each = pytest.mark.parametrize("subject", DENSE, ids=str)
# A third of the examples each in `make test`; tests of one program share it.
first, third = (pytest.mark.parametrize("subject", share(DENSE, 3, n)) for n in (0, 2))
# What the CPU's own compiler makes of a program, or torch of its arrays, differs least by example.
second = pytest.mark.parametrize("subject", share(DENSE, 6, 1, FIFTH))
torches = pytest.mark.parametrize("subject", share(DENSE, 3, 0, "thorough"))


def _arguments(subject: Subject, dtype: str = "float32"):
    return (*subject.arrays(dtype), *subject.static)


def _jax(subject: Subject, config: tile.Config | None = None):
    return lambda *arguments: from_jax(subject.kernel, arguments, config=config)


@first
def test_small_blocks(subject):
    for dtype in subject.dtypes:
        call = _jax(subject, subject.small)
        assert checks.right(subject, call, _arguments(subject, dtype), dtype) == ""


@each
def test_default_config(subject):
    assert checks.right(subject, _jax(subject), _arguments(subject), "float32") == ""


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
@torches
def test_from_torch(subject):
    for dtype in subject.dtypes:
        call = functools.partial(_call_torch, subject)
        assert checks.right(subject, call, _arguments(subject, dtype), dtype) == ""


def _call_torch(subject: Subject, *arguments):
    return from_torch(subject.kernel, arguments, config=subject.small)


@second
def test_inside_jit(subject):
    """Compiled as a user's call is, without the cheaper options of the tests."""
    for dtype in subject.dtypes:
        call = subject.inside_jit
        assert checks.right(subject, call, _arguments(subject, dtype), dtype) == ""


@third
def test_sizes_of_one(subject):
    arguments = (*subject.of_size_one(), *subject.static)
    assert checks.right(subject, _jax(subject), arguments, "float32") == ""


@each
def test_no_rows(subject):
    arrays = subject.arrays("float32")
    empty = (arrays[0][:0], *(a[:0] if _follows(subject, a) else a for a in arrays[1:]))
    results = checks.parts(_jax(subject)(*empty, *subject.static))
    expected = checks.parts(subject.oracle(*empty, *subject.static))
    for result, want in zip(results, expected, strict=True):
        assert result.shape == want.shape and not result.any()


def _follows(subject: Subject, other: np.ndarray) -> bool:
    """Whether an argument shares its first dimension with the first one."""
    first = subject.arrays("float32")[0]
    return other.shape[0] == first.shape[0]
