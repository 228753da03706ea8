"""Loops that need one array in different forms get one of each, and launches the one they mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.codegen.pallas.plan import verify
from tilelang.codegen.pallas.plan.windows import hosts
from tilelang.errors import InternalError

X = np.arange(50 * 4 * 2 * 3, dtype=np.float32).reshape(50, 4, 2, 3)


@tile.kernel
def read_twice(x):
    """y = z = x[..., 1]: by the row with both positions in front, and by tiles with one."""
    y = hl.empty([50, 4, 2], dtype=x.dtype)
    z = hl.empty([50, 4, 2], dtype=x.dtype)
    for i in hl.grid(50):
        y[i, :, :] = x[i, :, :, 1]
    for s in hl.tile(50):
        z[s, :, :] = x[s, :, :, 1]
    return y, z


@tile.kernel
def stored_and_read(x):
    """z[i] = x[..., 1][i], by an array that one loop stores to and the other reads."""
    y = hl.empty([50, 4, 2, 3], dtype=x.dtype)
    z = hl.empty([50, 4, 2], dtype=x.dtype)
    for s in hl.tile(50):
        for j in hl.static_range(3):
            y[s, :, :, j] = x[s, :, :, j]
    for i in hl.grid(50):
        z[i, :, :] = y[i, :, :, 1]
    return y, z


def check(kernel: tile.Kernel) -> None:
    y, z = kernel(X)
    np.testing.assert_array_equal(y, X if y.ndim == 4 else X[..., 1])
    np.testing.assert_array_equal(z, X[..., 1])


@pytest.mark.parametrize("kernel", [read_twice, stored_and_read], ids=["read", "stored"])
def test_every_loop_gets_the_form_that_it_means(kernel) -> None:
    check(kernel)


def test_forms_have_names_of_their_own() -> None:
    names = [a.name for a in read_twice.lower(X).plan.arrays if a.source == "x"]
    assert names == ["x_moved_0_3", "x_moved_3"]


def test_two_forms_of_one_name_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all forms are called alike, so that the second takes the place of the first."""
    named = hosts.unique
    monkeypatch.setattr(hosts, "unique", lambda ir, name, form: named(ir, name, form[:5]))
    with pytest.raises(InternalError) as caught:
        tile.kernel(read_twice.__wrapped__).lower(X)
    assert caught.value.what == "internal error: array x_moved has two forms"


def test_plans_say_so_too() -> None:
    plan = read_twice.lower(X).plan
    first, *rest = plan.arrays
    with pytest.raises(InternalError):
        verify.verify(replace(plan, arrays=(first, replace(rest[0], name=first.name), *rest[1:])))
