"""select_numbers: single numbers are loaded without a mask, and chosen after that."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import becomes, stays
from tests.schedule.written import Writing, mul
from tilelang.ir import Expr, KernelIR
from tilelang.language import build
from tilelang.passes.select_numbers import select_numbers

WHOLE = slice(None)
NUMBERS = np.arange(1, 7).astype(np.float32)


def scaled(mask_of, value_of=lambda k, i, number: number) -> KernelIR:
    """y[i, :] = x[i, :] * load(scale, i, mask=mask_of(i), other=7)"""
    k = Writing()
    k.input("x", 6, 128)
    k.input("scale", 6)
    k.output("y", 6, 128)
    with k.grid("i", 0, 6) as i:
        number = replace(k.load("scale", i, mask=mask_of(i)), other=7.0)
        value = mul(k.load("x", i, WHOLE), value_of(k, i, number))
        k.store("y", i, WHOLE, value=value)
    return k.ir()


def before(i: Expr) -> Expr:
    return build.binary("lt", i, 3, None)


def test_a_masked_number_is_chosen():
    becomes(
        scaled(before),
        select_numbers,
        """
        for i in grid(6):
            y[i, 0:128] = x[i, 0:128] * load(scale[i], mask=i < 3, other=7.0)
        """,
        """
        for i in grid(6):
            y[i, 0:128] = x[i, 0:128] * where(i < 3, scale[i], 7.0)
        """,
    )


def test_what_an_enclosing_choice_states_is_not_asked_again():
    becomes(
        scaled(before, lambda k, i, number: build.where(before(i), number, 1.0, None)),
        select_numbers,
        """
        for i in grid(6):
            y[i, 0:128] = x[i, 0:128] * where(i < 3, load(scale[i], mask=i < 3, other=7.0), 1.0)
        """,
        """
        for i in grid(6):
            y[i, 0:128] = x[i, 0:128] * where(i < 3, scale[i], 1.0)
        """,
    )


def test_the_other_branch_states_nothing():
    becomes(
        scaled(before, lambda k, i, number: build.where(before(i), 1.0, number, None)),
        select_numbers,
        """
        for i in grid(6):
            y[i, 0:128] = x[i, 0:128] * where(i < 3, 1.0, load(scale[i], mask=i < 3, other=7.0))
        """,
        """
        for i in grid(6):
            y[i, 0:128] = x[i, 0:128] * where(i < 3, 1.0, where(i < 3, scale[i], 7.0))
        """,
    )


def under_an_if(x, offsets, n):
    """Short ranges go where their offsets say: these are positions of blocks, under the if."""
    y = hl.zeros([50, 16], dtype=hl.float32)
    for g in hl.grid(n[0], max_extent=4):
        length = offsets[g + 1] - offsets[g]
        for t in hl.tile(length, max_extent=50):
            if length < 20:
                y[offsets[g] + t.index, :] = x[t, :]
    return y


@pytest.mark.parametrize("count", [4, 2])
def test_positions_of_stores_under_an_if(count):
    x = np.random.default_rng(0).standard_normal((50, 16)).astype(np.float32)
    offsets, wanted = np.array([0, 7, 7, 30, 45], np.int32), np.zeros((50, 16), np.float32)
    for g in range(count):
        begin, end = offsets[g : g + 2]
        if end - begin < 20:
            wanted[begin:end] = x[: end - begin]
    kernel = tile.kernel(under_an_if)
    found = kernel(x, offsets, np.array([count]), config=tile.Config({"t": 8}))
    np.testing.assert_array_equal(found, wanted)


def test_blocks_keep_their_masks():
    k = Writing()
    k.input("x", 6, 128)
    k.output("y", 6, 128)
    with k.grid("i", 0, 6) as i:
        k.store("y", i, WHOLE, value=k.load("x", i, WHOLE, mask=before(i)))
    stays(k.ir(), select_numbers)


@tile.kernel
def chosen(x, scale, n):
    """Numbers under masks: a value, a bound, a condition; and a bound under an if."""
    y, z = hl.zeros(x.shape, dtype=hl.float32), hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(x.shape[0]):
        if n[0] + g < 4:
            for t in hl.tile(n[g], max_extent=16):
                y[g, t] = x[g, t] * hl.load(scale, [g], mask=g < 3, other=7.0)
        for t in hl.tile(16):
            if hl.load(n, [g], mask=g > 1, other=-1) > 0:
                z[g, t] = hl.load(scale, [n[g]], mask=n[g] < 6, other=0.5)
    return y, z


def exact(x: np.ndarray, scale: np.ndarray, n: np.ndarray) -> tuple:
    y, z = np.zeros_like(x), np.zeros_like(x)
    for g in range(len(x)):
        if n[0] + g < 4:
            y[g, : max(n[g], 0)] = x[g, : max(n[g], 0)] * (scale[g] if g < 3 else 7)
        if g > 1 and n[g] > 0:
            z[g] = scale[n[g]] if n[g] < 6 else 0.5
    return y, z


FORMS = ({}, {"loop_type": "worklist"}, {"loop_type": "fori_loop"}, {"steps": "rectangle"})


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("n", [[2, 3, 16, 0, 9, 5], [0, 16, 1, 15, 6, -4]], ids=str)
def test_kernels_with_masked_numbers(n, form):
    x = np.random.default_rng(0).standard_normal((6, 16)).astype(np.float32)
    arguments = x, NUMBERS, np.array(n, np.int32)
    wanted = exact(*arguments)
    found = chosen(*arguments, config=tile.Config(**form))
    for results in (chosen.reference(*arguments), found):
        for result, right in zip(results, wanted, strict=True):
            np.testing.assert_allclose(result, right, rtol=1e-6)
