"""Numbers that a loop stores and reads: as values they are right, as places they are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import again

LARGE = np.zeros((200_000, 128), np.float32)  # of smaller arrays rows are picked in vector memory
X = np.arange(16 * 8, dtype=np.float32).reshape(16, 8)


@tile.kernel
def as_range(x):
    n = hl.zeros([], dtype=hl.int32)
    y = hl.zeros([4, 8], dtype=x.dtype)
    for g in hl.grid(4):
        n[()] = g + 1
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(n[()], max_extent=16):
            acc = acc + x[t, :].sum(0)
        y[g, :] = acc
    return y, n


@tile.kernel
def as_block(x):
    n = hl.zeros([4], dtype=hl.int32)
    y = hl.zeros([4, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(4):
        n[g] = g + 1
        y[g, :] = x[n[g], :]
    return y, n


@tile.kernel
def as_rows(ids, x):
    y = hl.zeros([4, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(4):
        ids[g] = g + 2
        for t in hl.tile(4):
            hl.atomic_add(y, [t, slice(None)], x[ids[t], :])
    return y


@tile.kernel
def as_values(x):
    """What the hints say: the value itself where a range is meant; numbers in conditions."""
    n = hl.zeros([], dtype=hl.int32)
    y = hl.zeros([4, 8], dtype=x.dtype)
    z = hl.zeros([4, 8], dtype=x.dtype)
    for g in hl.grid(4):
        many = g + 1
        n[()] = many
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(many, max_extent=16):
            acc = acc + x[t, :].sum(0)
        y[g, :] = acc
        if n[()] > 2:
            z[g, :] = x[g, :] * n[()]
    return y, z, n


@tile.kernel
def in_two_loops(x):
    n = hl.zeros([], dtype=hl.int32)
    y = hl.zeros([4, 8], dtype=x.dtype)
    for g in hl.grid(4):
        n[()] = g + 1
    for g in hl.grid(4):
        acc = hl.zeros([8], dtype=hl.float32)
        for t in hl.tile(n[()], max_extent=16):
            acc = acc + x[t, :].sum(0)
        y[g, :] = acc
    return y, n


STORED = "is stored to in the same loop: TPUs know that before they run a step"
REFUSED = (
    (as_range, (X,), "the range of t is read from n", "n", "hl.tile(n[()], max"),
    (
        as_block,
        (LARGE,),
        "which block of x is meant is read from n",
        "n",
        "y[g, :] = x[n[g], :]",
    ),
    (
        as_rows,
        (np.zeros(4, np.int32), LARGE),
        "which rows of x are meant is read from ids",
        "ids",
        "x[ids[t], :])",
    ),
)


@pytest.mark.parametrize(
    "kernel, arguments, what, name, line", REFUSED, ids=("range", "block", "rows")
)
def test_places_that_a_step_changes_are_refused(
    kernel: Any, arguments: tuple[Any, ...], what: str, name: str, line: str
) -> None:
    """All were an internal error."""
    with pytest.raises(tile.PlanError) as found:
        again(kernel)(*arguments)
    text = str(found.value)
    assert text.startswith(f"{what}, which {STORED}\n") and line in text
    assert text.endswith(
        f"hint: use the value that is stored to {name}, or store to it in a top-level loop before"
    )


@pytest.mark.parametrize("kernel", (as_values, in_two_loops), ids=lambda k: k.__name__)
def test_what_to_write_instead(kernel: Any) -> None:
    for found, wanted in zip(kernel(X), kernel.reference(X), strict=True):
        np.testing.assert_array_equal(found, wanted)
    sums = np.cumsum(X, 0)[:4] if kernel is as_values else np.tile(X[:4].sum(0), (4, 1))
    np.testing.assert_array_equal(kernel(X)[0], sums)


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])
def test_rows_of_what_vector_memory_holds_are_picked(target: str) -> None:
    y, n = again(as_block)(X, target=target)
    np.testing.assert_array_equal(y, X[1:5])
    np.testing.assert_array_equal(n, [1, 2, 3, 4])
