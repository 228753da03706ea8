"""What a call says of a moved tile that tensors send out of its array, x[t - 1], and where."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl

HINT = (
    "  hint: leave out what lies outside by a mask: "
    "hl.load(..., mask=..., other=0), hl.store(..., mask=...)"
)


@tile.kernel
def before(x, offsets):
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t, :] = hl.where((t.index > offsets[g])[:, None], x[t - 1, :], 0.0)
    return y


@tile.kernel
def before_masked(x, offsets):
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            inside = (t.index > offsets[g])[:, None]
            y[t, :] = hl.load(x, [t - 1, slice(None)], mask=inside, other=0)
    return y


@tile.kernel
def behind(x, offsets):
    y = hl.zeros_like(x)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t + 2, :] = x[t, :]
    return y


@tile.kernel
def total(x):
    y = hl.zeros([], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        hl.atomic_add(y, [()], x[t, :].sum())
        hl.atomic_add(y, [], x[t, :].sum())
    return y


X = np.arange(60, dtype=np.float32).reshape(20, 3)


def said(kernel: tile.Kernel, *offsets: int) -> list[str]:
    """The lines of the error, without that of the file's name."""
    with pytest.raises(ValueError) as error:
        kernel(X, np.array(offsets, np.int32))
    what, _, *rest = str(error.value).splitlines()
    return [what, *rest]


def test_a_row_before_the_first():
    assert said(before, 0, 7, 20) == [
        "-1 + offsets[0] = -1 is before the 20 rows of x",
        "    y[t, :] = hl.where((t.index > offsets[g])[:, None], x[t - 1, :], 0.0)",
        "                                                        ^^^^^^^^^^^",
        HINT,
    ]


def test_a_row_behind_the_last():
    assert said(behind, 1, 7, 19) == [
        "2 + offsets[2] = 21 is past the 20 rows of y",
        "    y[t + 2, :] = x[t, :]",
        "    ^^^^^^^^^^^^^^^^^^^^^",
        HINT,
    ]


def test_offsets_themselves_are_shown_at_the_loop():
    what, line, *_ = said(before, 1, 7, 21)
    assert what == "offsets[2] = 21 is past the 20 rows of y"
    assert line.strip().startswith("for t in hl.tile(")


def test_what_the_hint_says_is_taken():
    y = np.asarray(before_masked(X, np.array([0, 7, 20], np.int32)))
    wanted = np.concatenate([0 * X[:1], X[:6], 0 * X[:1], X[7:19]])
    np.testing.assert_array_equal(y, wanted)


def test_the_one_place_of_a_number():
    assert np.asarray(total(X)) == 2 * X.sum()
