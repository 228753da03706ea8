"""What a later call of a kernel does: little, and nothing that its arguments do not allow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch

import tilelang as tile
from examples.jagged.grouped_gemm import grouped_gemm, make_inputs
from tests.forgotten import forget
from tests.planted.calls import PLANTED
from tests.runtime.entered import entered
from tilelang.errors import RaggedValueError
from tilelang.runtime.checks import Check, verifying

FRAMEWORKS: dict[str, Callable[[Any], Any]] = {
    "numpy": np.array,
    "jax": jnp.asarray,
    "torch": lambda array: torch.from_numpy(np.array(array)),
}
MOST = {"numpy": 32, "jax": 26, "torch": 34}  # Python functions that a call enters


def arguments(framework: str) -> tuple[Any, ...]:
    return tuple(map(FRAMEWORKS[framework], make_inputs(seed=0)))


def copying(**options: Any) -> tile.Kernel:
    """A kernel of its own, so that no other test has called it."""
    return tile.kernel(grouped_gemm.__wrapped__, **options)


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_a_second_call_enters_few_functions(framework):
    given = arguments(framework)
    for _ in range(2):
        grouped_gemm(*given)
    names = entered(lambda: grouped_gemm(*given))
    assert len(names) <= MOST[framework], "\n".join(names)


@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_offsets_that_changed_in_place_are_looked_at_again(framework):
    kernel, (x, w, offsets) = copying(), arguments(framework)
    kernel(x, w, offsets)
    last = int(offsets[-1])
    for _ in range(2):  # what is wrong once is not remembered as right
        offsets[-1] = x.shape[0] + 5
        with pytest.raises(RaggedValueError, match="is past"):
            kernel(x, w, offsets)
    offsets[-1] = last
    kernel(x, w, offsets)


def test_offsets_of_another_dtype_are_looked_at():
    kernel, (x, w, offsets) = copying(), arguments("numpy")
    kernel(x, w, offsets)
    wide = offsets.astype(np.int64)
    wide[-1] += 1 << 32  # the same number in 32 bits
    with pytest.raises(RaggedValueError, match="does not fit in int32"):
        kernel(x, w, wide)


def test_what_is_remembered_is_what_was_looked_at():
    """The caller's array changes while it is looked at, as by another thread."""
    shared, looked = np.array([1, 2], np.int32), []

    def run(arrays: Any) -> None:
        looked.append(arrays["offsets"].tolist())
        shared[0] = 9

    verify = verifying(Check(("offsets",), run), lambda _: [shared])
    for _ in range(3):
        verify(None)
    assert looked == [[1, 2], [9, 2]]


def test_an_array_without_elements_can_be_looked_at():
    seen: list[tuple[int, ...]] = []
    run = lambda arrays: seen.append(arrays["offsets"].shape)  # noqa: E731
    verify = verifying(Check(("offsets",), run), lambda _: [np.zeros((0, 3), np.int32)])
    verify(None)
    assert seen == [(0, 3)]


def test_tensors_that_share_shapes_with_earlier_ones_are_told_apart():
    """A gradient, a functionalised tensor, one with its sign behind a bit: after plain calls."""
    kernel, (x, w, offsets) = copying(), arguments("torch")
    plain = kernel(x, w, offsets)
    kernel(x, w, offsets)
    wanted = w.clone().requires_grad_()
    result = kernel(x, wanted, offsets)
    assert result.requires_grad
    result.sum().backward()
    assert wanted.grad is not None and wanted.grad.abs().sum() > 0
    with torch.no_grad():
        assert torch.equal(kernel(x, wanted, offsets), plain)
    assert torch.equal(kernel(torch._neg_view(x), w, offsets), -plain)
    fake = torch._to_functional_tensor(x)
    with pytest.raises(Exception, match=r"functional|memory"):
        kernel(fake, w, offsets)


class Answers(torch.Tensor):
    """A subclass that wants to be asked about every operation."""

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise RuntimeError(f"it was asked for {func}")


def test_a_subclass_that_answers_itself_is_not_read_as_a_plain_tensor():
    kernel, (x, w, offsets) = copying(), arguments("torch")
    kernel(x, w, offsets)
    wrapped = torch.Tensor._make_subclass(Answers, x)
    with pytest.raises(RuntimeError, match=r"asked for raggedtile\.grouped_gemm"):
        kernel(wrapped, w, offsets)


SCALE = np.array(2.0)


@tile.kernel
def scaled(x: Any) -> Any:
    y = tile.language.empty(x.shape, x.dtype)
    for t in tile.language.tile(x.shape[0]):
        y[t] = x[t] * SCALE
    return y


def test_a_number_that_changes_in_its_place_is_read_again():
    x = np.ones(16, np.float32)
    SCALE[...] = 2.0
    for number in (2.0, 2.0, 3.0, 2.0, 3.0):
        SCALE[...] = number
        assert scaled(x)[0] == number


@pytest.mark.parametrize("bug", PLANTED, ids=str)
def test_a_planted_bug_is_noticed(bug, monkeypatch):
    monkeypatch.setattr(bug.owner, bug.name, bug.value)
    forget(scaled)
    arguments_of = ("torch",) if bug.test.endswith("looked_at_again") else ()
    with pytest.raises((Exception, pytest.fail.Exception)):
        globals()[bug.test](*arguments_of)
