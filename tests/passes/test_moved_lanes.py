"""moved_lanes: joined and reshaped values in lanes of powers of two, element by element."""

from __future__ import annotations

import sys
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import loops
from tilelang.codegen.triton.passes.moved_lanes import moved_lanes, taken_from
from tilelang.codegen.triton.passes.pad_dims import Padded, PaddedIR, pad_dims
from tilelang.ir import Apply, Assign, Const, Expr, Load, Store, Var, statements

X, Z = np.zeros((40, 48), np.float32), np.zeros((40, 17), np.float32)
moved_lanes_file = sys.modules[moved_lanes.__module__]
JOINS = {"add": np.add, "sub": np.subtract, "mul": np.multiply, "quotient": np.floor_divide,
         "remainder": np.remainder, "minimum": np.minimum, "maximum": np.maximum, "lt": np.less,
         "where": np.where}  # fmt: skip


def padded(kernel, *args) -> PaddedIR:
    return pad_dims(kernel.lower(*args, target="tpu:v6e").ir)


def after(kernel, *args) -> list[str]:
    return loops(moved_lanes(padded(kernel, *args))).splitlines()


@tile.kernel
def split_heads(x):
    y = hl.empty([40, 3, 16], dtype=x.dtype)
    for t in hl.tile(40):
        y[t, :, :] = x[t, :].reshape(t, 3, 16)
    return y


def test_a_reshape_whose_first_dimension_alone_is_odd_stays():
    assert after(split_heads, X) == [
        "for t in tile(40):",
        "    y[t, 0:3, 0:16] = reshape(x[t, 0:48], [t, full3, 16])",
    ]


@tile.kernel
def interleaved(x):
    y = hl.empty([40, 16, 3], dtype=x.dtype)
    for t in hl.tile(40):
        y[t, :, :] = x[t, :].reshape(t, 16, 3)
    return y


ROW = "arange(int32, start=0, step=1)"


def test_elements_that_change_lanes_are_taken():
    assert after(interleaved, X) == [
        "for t in tile(40):",
        "    lanes: int32[64] = minimum(quotient(arange(64), 4) * 3 + remainder(arange(64), 4), 47)",
        "    y[t, 0:16, 0:3] = reshape(take(reshape(x[t, 0:48], [t, 64]), broadcast(lanes, [t, 64]),"
        " axis=1), [t, 16, full3])",
    ]


@tile.kernel
def joined(x, z):
    y = hl.empty([40, 65], dtype=x.dtype)
    for t in hl.tile(40):
        y[t, :] = hl.cat([x[t, :], z[t, :]], 1)
    return y


def test_a_join_takes_each_value_up_to_its_end():
    assert after(joined, X, Z) == [
        "for t in tile(40):",
        f"    lanes: int32[full65] = minimum(maximum({ROW} - 48, 0), 16)",
        f"    lanes_1: int32[full65] = minimum({ROW}, 47)",
        f"    y[t, 0:65] = where({ROW} < 48,"
        " take(x[t, 0:48], broadcast(lanes_1, [t, full65]), axis=1),"
        " take(z[t, 0:17], broadcast(lanes, [t, full65]), axis=1))",
    ]


@tile.kernel
def part_of_a_sum(x, z):
    y = hl.empty([40, 20], dtype=x.dtype)
    for t in hl.tile(40):
        y[t, :] = hl.exp(x[t, :])[:, 17:37]
    return y


@tile.kernel
def first_lanes(x, z):
    y = hl.empty([40, 33], dtype=x.dtype)
    for t in hl.tile(40):
        y[t, :] = hl.exp(x[t, :])[:, :33]
    return y


def test_a_part_takes_the_lanes_from_its_begin_on():
    assert after(part_of_a_sum, X, Z) == [
        "for t in tile(40):",
        "    lanes: int32[full20] = arange(int32, start=17, step=1)",
        "    y[t, 0:20] = take(exp(x[t, 0:48]), broadcast(lanes, [t, full20]), axis=1)",
    ]


def test_a_part_of_as_many_lanes_takes_none():
    assert after(first_lanes, X, Z) == [
        "for t in tile(40):",
        "    y[t, 0:33] = reshape(exp(x[t, 0:48]), [t, full33])",
    ]


# ---------------------------------------------------------------- element by element


class Lanes:
    """Values of a kernel of static dimensions, lane by lane; NaN where no element is."""

    def __init__(self, found: PaddedIR, arrays: dict[str, np.ndarray]):
        self.found, self.arrays, self.named = found, arrays, {}

    def extents(self, expr: Expr) -> tuple[int, ...]:
        return tuple(self.found.dims[d].lanes if isinstance(d, str) else d for d in expr.type.shape)

    def stored(self) -> np.ndarray:
        """What the only store is given."""
        for stmt in statements(moved_lanes(self.found).body):
            if isinstance(stmt, Assign):
                self.named[stmt.name] = self.value(stmt.value)
            if isinstance(stmt, Store):
                return self.value(stmt.value)
        raise AssertionError("nothing is stored")

    def value(self, expr: Expr) -> np.ndarray:
        match expr:
            case Const(value):
                return np.asarray(value)
            case Var(name):
                return self.named[name]
            case Load(tensor):
                made = np.full(self.extents(expr), np.nan)
                array = self.arrays[tensor]
                made[tuple(map(slice, array.shape))] = array
                return made
            case Apply("arange"):
                return np.arange(*self.extents(expr))
            case Apply("reshape", (inner,)):
                return self.value(inner).reshape(self.extents(expr))
            case Apply("broadcast", (inner,)):
                return np.broadcast_to(self.value(inner), self.extents(expr))
            case Apply("expand_dims", (inner,)):
                return np.expand_dims(self.value(inner), int(expr.attr("axis")))
            case Apply("take", (inner, index)):
                held, places = self.value(inner), self.value(index)
                return np.take_along_axis(held, places, int(expr.attr("axis")))
            case Apply(op, args):
                return JOINS[op](*map(self.value, args))
            case _:
                raise AssertionError(expr)


def reshaped(before: tuple[int, ...], after: tuple[int, ...]):
    """A kernel that stores x in another shape, and x."""

    @tile.kernel
    def kernel(x):
        y = hl.empty(after, dtype=x.dtype)
        for _ in hl.grid(1):
            y[...] = x[...].reshape(after)
        return y

    return kernel, np.arange(prod(before), dtype=np.float32).reshape(before)


def element_by_element(kernel, **arrays: np.ndarray) -> bool:
    """Whether every element is where the reference has it."""
    made = Lanes(padded(kernel, *arrays.values()), arrays).stored()
    wanted = kernel.reference(*arrays.values())
    return np.array_equal(made[tuple(map(slice, wanted.shape))], wanted)


FACTORS = st.lists(st.sampled_from([1, 2, 3, 4, 5, 6, 8]), min_size=1, max_size=4)


@st.composite
def shapes(draw) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two shapes of as many elements: runs of the same factors, each in its own order."""

    def merged(factors: list[int]) -> tuple[int, ...]:
        cuts = sorted(draw(st.sets(st.integers(1, max(len(factors) - 1, 1)))))
        ends = [0, *(c for c in cuts if c < len(factors)), len(factors)]
        return tuple(prod(factors[a:b]) for a, b in pairwise(ends))

    factors = draw(FACTORS)
    return merged(factors), merged(draw(st.permutations(factors)))


@settings(deadline=None, max_examples=60, derandomize=True)
@given(shapes())
def test_every_reshape_has_each_element_in_its_lane(pair):
    kernel, x = reshaped(*pair)
    assert element_by_element(kernel, x=x), pair


def join(axis: int, shape: list[int]):
    @tile.kernel
    def kernel(a, b, c):
        y = hl.empty(shape, dtype=a.dtype)
        for _ in hl.grid(1):
            y[...] = hl.cat([a[...], b[...], c[...]], axis)
        return y

    return kernel


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("lengths", [(16, 16, 32), (1, 3, 17), (17, 1, 1), (2, 48, 14), (8, 8, 8)])
def test_every_join_has_each_element_in_its_lane(lengths, axis):
    parts, shape = {}, [3, 4, 5]
    for name, length in zip("abc", lengths, strict=True):
        shape[axis] = length
        parts[name] = np.arange(prod(shape), dtype=np.float32).reshape(shape) + 1000 * len(parts)
    shape[axis] = sum(lengths)
    assert element_by_element(join(axis, shape), **parts)


@tile.kernel
def summed_and_turned(x, w):
    """A product sums over 8 in 16 lanes, so that the reshape cannot count on 8."""
    y, z = hl.empty([8, 32], dtype=hl.float32), hl.empty([32, 8], dtype=hl.float32)
    for _ in hl.grid(1):
        y[...] = hl.dot(w[...], x[...])
        z[...] = x[...].reshape(32, 8)
    return y, z


def test_a_dimension_with_lanes_to_spare_is_no_power_of_two():
    found = padded(summed_and_turned, np.zeros((8, 32), np.float32), np.zeros((8, 8), np.float32))
    (reshape,) = (s.value for s in statements(found.ir.body) if getattr(s, "tensor", "") == "z")
    assert found.dims["full8"].lanes == 16
    assert taken_from(reshape, found.dims)


def test_a_planted_bug_is_noticed(monkeypatch):
    """Elements counted as lanes: 16 x 4 of 48."""
    kernel, x = reshaped((48,), (16, 3))
    assert element_by_element(kernel, x=x)
    wide = moved_lanes_file._wide

    def lanes_alone(dim, dims):
        return Padded(wide(dim, dims).lanes, wide(dim, dims).lanes)

    monkeypatch.setattr(moved_lanes_file, "_wide", lanes_alone)
    assert not element_by_element(kernel, x=x)
