"""What a kernel means: its IR, evaluated tile by tile, against an expression in NumPy."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
import triton
from jax.experimental import pallas as pl

import tilelang.language as hl
from tilelang.ir import every_loop

from .run import array, dump, parsed, run

same = np.testing.assert_array_equal
OFFSETS = np.array([0, 3, 3, 10, 11], np.int32)


# ---------------------------------------------------------------- carried values


def test_two_carried_values_exchange():
    def fibonacci(y):
        a, b = 0, 1
        for i in hl.grid(y.shape[0]):
            y[i] = a
            a, b = b, a + b

    y = np.zeros(10, np.int32)
    run(fibonacci, y)
    same(y, [0, 1, 1, 2, 3, 5, 8, 13, 21, 34])


@pytest.mark.parametrize("cdiv", [hl.cdiv, pl.cdiv, triton.cdiv], ids=["hl", "pl", "triton"])
def test_pages_are_counted_as_elsewhere(cdiv):
    """On the host, as a size and a block, and of what memory says."""

    def kernel(x, lengths):
        y = hl.zeros([cdiv(x.shape[0], 4)], dtype=x.dtype)
        for t in hl.tile(cdiv(x.shape[0], 4), block_size=cdiv(5, 3)):
            y[t] = y[t] * 0
        for g in hl.grid(lengths.shape[0]):
            for page in hl.grid(cdiv(lengths[g], 4)):
                y[g] += x[page]
        return y

    made = run(kernel, np.arange(20, dtype=np.int32), np.int32([0, 1, 4, 5, 20]))
    same(made, [0, 0, 0, 1, 10])


class Moments(NamedTuple):
    total: object
    square: object


def test_tuples_and_lists_are_carried():
    """What is made before the loops is a value, too; each item is a carry of its own."""

    def moments(x, offsets):
        y = hl.empty([3, x.shape[1]], dtype=x.dtype)
        state = Moments(hl.zeros([x.shape[1]]), hl.zeros([x.shape[1]]))
        for g in hl.grid(offsets.shape[0] - 1):
            parts = [state, (hl.zeros([x.shape[1]]), 1.0)]
            for t in hl.tile(offsets[g], offsets[g + 1]):
                sums, (own, one) = parts
                v = x[t, :]
                sums = Moments(sums.total + v.sum(0), sums.square + (v**2).sum(0))
                parts = [sums, (own + v.sum(0) * one, one)]
            state, (own, _) = parts
            y[0, :] = state.total
            y[1, :] = state.square
            y[2, :] = own
        return y

    x = array(11, 3)
    same(run(moments, x, OFFSETS), [x.sum(0), (x**2).sum(0), x[10]])
    carried = [
        c.user for loop in every_loop(parsed(moments, x, OFFSETS).body) for c in loop.carries
    ]
    assert carried == ["state_0", "state_1", "parts_0", "parts_1", "parts_2", "parts_3"]


def test_a_carry_goes_through_every_loop_of_a_nest():
    def total(x):
        y = hl.empty([1], dtype=x.dtype)
        for i in hl.grid(1):
            acc = 0.0
            for tm, tn in hl.tile(x.shape):
                acc = acc + x[tm, tn].sum()
            y[i] = acc
        return y

    x = array(10, 13)
    same(run(total, x), [x.sum()])


def test_a_carry_of_an_outer_loop_is_updated_in_an_inner_one():
    def rows_and_total(x):
        y = hl.empty(x.shape[:1], dtype=x.dtype)
        for i in hl.grid(1):
            total = 0.0
            for tm in hl.tile(x.shape[0]):
                rows = hl.zeros([tm])
                for tn in hl.tile(x.shape[1]):
                    rows = rows + x[tm, tn].sum(1)
                    total = total + x[tm, tn].sum()
                y[tm] = rows + total * i
        return y

    x = array(10, 13)
    same(run(rows_and_total, x), x.sum(1))


def test_a_running_position_is_carried_between_groups():
    def packed(x, offsets):
        y = hl.zeros(x.shape, dtype=x.dtype)
        place = 0
        for g in hl.grid(offsets.shape[0] - 1):
            start, count = offsets[g], offsets[g + 1] - offsets[g]
            for t in hl.tile(count):
                y[place + t.index] = x[start + t.index]
            place += count
        return y

    x = array(12)
    want = np.where(np.arange(12) < 11, x, 0)
    same(run(packed, x, OFFSETS), want)


def test_a_bool_tells_the_first_iteration():
    def first_twice(x):
        y = hl.empty_like(x)
        first = True
        for i in hl.grid(x.shape[0]):
            y[i] = x[i] * (2 if first else 1)
            first = False
        return y

    x = array(5)
    same(run(first_twice, x), x * [2, 1, 1, 1, 1])


def test_a_name_that_is_always_assigned_first_is_not_carried():
    def twice(x):
        y = hl.empty_like(x)
        block = 1.0
        for tm in hl.tile(x.shape[0]):
            block = x[tm]
            block = block + block
            y[tm] = block
        return y

    ir = parsed(twice, array(9))
    assert ir.body[0].carries == ()
    same(run(twice, array(9)), array(9) * 2)


def test_the_same_name_may_hold_another_type_in_another_loop():
    def two(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            for tk in hl.tile(x.shape[1]):
                v = x[tm, tk]
                y[tm, tk] = v
            for i in hl.static_range(2):
                v = x[tm, i].sum()
                y[tm, i] = v
        return y

    x = array(4, 6)
    want = x.copy()
    want[:, :2] = x[:, :2].sum(0)
    same(run(two, x), want)


def test_a_value_after_a_loop_that_never_runs_is_the_one_before():
    def kept(x, offsets):
        y = hl.empty([offsets.shape[0] - 1])
        for g in hl.grid(offsets.shape[0] - 1):
            last = -7.0
            for i in hl.grid(offsets[g], offsets[g + 1]):
                last = x[i]
            y[g] = last
        return y

    x = array(12)
    same(run(kept, x, OFFSETS), [x[2], -7, x[9], x[10]])


def test_a_number_takes_the_dtype_of_a_python_number():
    def counted(x):
        y = hl.empty([1], dtype=hl.int32)
        for i in hl.grid(1):
            count = 0
            for tm in hl.tile(x.shape[0]):
                count = count + (x[tm] > 0).to(hl.int32).sum()
            y[i] = count
        return y

    x = array(30)
    same(run(counted, x), [(x > 0).sum()])


def test_host_values_may_be_computed_anew_in_a_loop():
    def scaled(x):
        y = hl.empty_like(x)
        D = x.shape[0]
        for tm in hl.tile(D):
            D = x.shape[0]
            factor = D * 2
            y[tm] = x[tm] * factor
        return y

    same(run(scaled, array(6)), array(6) * 12)


# ---------------------------------------------------------------- conditions


def test_if_on_a_scalar():
    def negated(x, flags):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            for tn in hl.tile(x.shape[1]):
                v = x[i, tn]
                if flags[i] > 0:
                    v = -v
                y[i, tn] = v
        return y

    x, flags = array(5, 6), np.array([1, 0, 1, 0, 0], np.int32)
    same(run(negated, x, flags), np.where(flags[:, None] > 0, -x, x))


def test_elif_and_else():
    def steps(x):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            v = x[i]
            if v > 2:
                w = 10.0
            elif v > 0:
                w = v
            else:
                w = v * 2
            y[i] = w
        return y

    x = array(20)
    same(run(steps, x), np.where(x > 2, 10, np.where(x > 0, x, x * 2)))


def test_stores_happen_where_all_conditions_hold():
    def marked(x):
        y = hl.zeros_like(x)
        for i in hl.grid(x.shape[0]):
            if x[i] > 0:
                y[i] = 1.0
                if x[i] > 2:
                    y[i] = 2.0
                else:
                    y[i] += 0.5
        return y

    x = array(20)
    same(run(marked, x), np.where(x > 2, 2, np.where(x > 0, 1.5, 0)))


def test_a_condition_is_read_before_its_branch_changes_it():
    def once(y):
        z = hl.zeros_like(y)
        for i in hl.grid(y.shape[0]):
            if y[i] > 0:
                y[i] = 0.0
                z[i] = 1.0
            else:
                z[i] = 2.0
        return z

    y = array(9)
    same(run(once, y.copy()), np.where(y > 0, 1, 2))


def test_a_loop_under_an_if_runs_where_it_holds():
    def sums(x, flags):
        y = hl.zeros(x.shape[:1])
        for i in hl.grid(x.shape[0]):
            acc = 0.0
            if flags[i] > 0:
                for tn in hl.tile(x.shape[1]):
                    acc = acc + x[i, tn].sum()
            y[i] = acc
        return y

    x, flags = array(5, 6), np.array([1, 0, 1, 0, 0], np.int32)
    same(run(sums, x, flags), x.sum(1) * flags)
    assert "where(flags[i] > 0, acc" not in dump(sums, x, flags)  # the loop's own result will do


def test_a_loop_before_an_if_is_not_taken_for_one_inside():
    def sums(x, flags):
        y = hl.zeros(x.shape[:1])
        for i in hl.grid(x.shape[0]):
            zero = x[i, 0] * 0
            acc = zero
            for tn in hl.tile(x.shape[1]):
                acc = acc + x[i, tn].sum()
            if flags[i] > 0:
                v = acc
            else:
                v = zero
            y[i] = v
        return y

    x, flags = array(5, 6), np.array([1, 0, 1, 0, 0], np.int32)
    same(run(sums, x, flags), x.sum(1) * flags)


def test_a_loop_in_each_branch():
    def sums(x, flags):
        y = hl.zeros(x.shape[:1])
        for i in hl.grid(x.shape[0]):
            acc = 1.0
            if flags[i] > 0:
                for tn in hl.tile(x.shape[1]):
                    acc += x[i, tn].sum()
            else:
                for tn in hl.tile(2):
                    acc -= x[i, tn].sum()
            y[i] = acc
        return y

    x, flags = array(5, 6), np.array([1, 0, 1, 0, 0], np.int32)
    same(run(sums, x, flags), np.where(flags > 0, 1 + x.sum(1), 1 - x[:, :2].sum(1)))


def test_a_loop_in_a_nested_if():
    def sums(x, flags):
        y = hl.zeros(x.shape[:1])
        for i in hl.grid(x.shape[0]):
            acc = 1.0
            if flags[i] > 0:
                acc = 2.0
                if x[i, 0] > 0:
                    for k in hl.grid(x.shape[1]):
                        acc += x[i, k]
            y[i] = acc
        return y

    x, flags = array(9, 6), np.array([1, 0, 1, 0, 0, 1, 1, 1, 0], np.int32)
    want = np.where(flags > 0, np.where(x[:, 0] > 0, 2 + x.sum(1), 2), 1)
    same(run(sums, x, flags), want)


def test_a_conditional_expression():
    def clipped(x):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            y[i] = x[i] if x[i] > 0 and not x[i] > 3 else (-1.0 if x[i] < -2 or x[i] == 0 else 5)
        return y

    x = array(30)
    inner = np.where((x < -2) | (x == 0), -1, 5)
    same(run(clipped, x), np.where((x > 0) & ~(x > 3), x, inner))


def test_conditions_on_integers_compare_with_zero():
    def chosen(x, flags):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            y[i] = x[i] if flags[i] else 0.0
            if not flags[i]:
                y[i] = 9.0
        return y

    x, flags = array(4), np.array([0, 2, 0, -1], np.int32)
    same(run(chosen, x, flags), np.where(flags != 0, x, 9))


def test_what_an_if_guards_is_not_read_elsewhere():
    def kernel(x):
        y = hl.zeros_like(x)
        for i in hl.grid(x.shape[0]):
            v = x[i - 1] if i > 0 else 0.0
            if i + 1 < x.shape[0]:
                v = v + x[i + 1]
            if i > 1 and x[i - 2] > 0:
                v = v * 2
            y[i] = v
        return y

    x = array(9)
    before, after = np.append(0, x[:-1]), np.append(x[1:], 0)
    twice = np.append([0, 0], x[:-2]) > 0
    same(run(kernel, x), (before + after) * np.where(twice, 2, 1))


def test_comparisons_chain():
    def between(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            b = x[tm]
            y[tm] = hl.where((b > -3) & (b < 3), b, 0)
        for i in hl.grid(x.shape[0]):
            y[i] = 7.0 if 1 < x[i] <= 3 else y[i]
        return y

    x = array(30)
    want = np.where((x > -3) & (x < 3), x, 0)
    same(run(between, x), np.where((x > 1) & (x <= 3), 7, want))


def test_tuples_are_merged_item_by_item():
    def pairs(x):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            if x[i] > 0:
                pair = (x[i], 1.0)
            else:
                pair = (2.0, -x[i])
            y[i] = pair[0] - pair[1]
        return y

    x = array(9)
    same(run(pairs, x), np.where(x > 0, x - 1, 2 + x))


def test_a_host_value_that_is_equal_in_both_branches_stays_one():
    def same_length(x):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            n = 2
            if x[i, 0] > 0:
                n = 4 - 2
            y[i, :] = hl.full([n, 3], 1.0).reshape(6) * x[i, :]
        return y

    same(run(same_length, array(3, 6)), array(3, 6))


def test_a_launch_under_a_condition():
    def maybe(x, flags):
        y = hl.zeros_like(x)
        if flags[0] > 0:
            for tm in hl.tile(x.shape[0]):
                y[tm] = x[tm]
        return y

    x = array(9)
    same(run(maybe, x, np.int32([1])), x)
    same(run(maybe, x, np.int32([0])), x * 0)


# ---------------------------------------------------------------- Python that is unrolled


def test_static_loops_with_break_and_continue():
    def some(x, stop):
        y = hl.empty(x.shape[:1])
        for tm in hl.tile(x.shape[0]):
            acc = hl.zeros([tm])
            for k in range(x.shape[1]):
                if k == 1:
                    continue
                if k == stop:
                    break
                acc = acc + x[tm, k]
            y[tm] = acc
        return y

    x = array(7, 6)
    same(run(some, x, 4), x[:, [0, 2, 3]].sum(1))


def test_lists_zip_enumerate_and_comprehensions():
    def weighted(x, weights):
        y = hl.empty(x.shape[:1])
        for tm in hl.tile(x.shape[0]):
            columns = [x[tm, k] for k in range(x.shape[1]) if k != 2]
            parts = []
            for place, (column, weight) in enumerate(zip(columns, weights)):
                parts.append(column * weight + place)
            parts[0] = parts[0] + 1
            *most, last = parts
            y[tm] = sum(most) + last
        return y

    x = array(7, 4)
    want = x[:, 0] * 2 + 1 + x[:, 1] * 3 + 1 + x[:, 3] * 5 + 2
    same(run(weighted, x, (2, 3, 5)), want)


def test_a_list_around_a_static_loop_is_changed_in_it():
    def outputs(x):
        made = []
        for k in range(3):
            out = hl.empty_like(x)
            for tm in hl.tile(x.shape[0]):
                out[tm] = x[tm] * k
            made.append(out)
        return made

    ir = parsed(outputs, array(6))
    assert ir.structure == "list" and ir.returns == ("out", "out_1", "out_2")
    for k, y in enumerate(run(outputs, array(6))):
        same(y, array(6) * k)


def test_static_conditions_choose_code():
    def either(x, square: hl.constexpr):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            if square:
                v = x[tm] * x[tm]
            else:
                v = (x[tm], 2)
                v = v[0] * v[1]
            y[tm] = v
        return y

    same(run(either, array(6), True), array(6) ** 2)
    same(run(either, array(6), False), array(6) * 2)


def test_dicts_sets_strings_and_slices_are_host_values():
    def styled(x, style):
        scales = {"double": 2, "triple": 3}
        names = {style, "none"}
        title = f"{style!r:>10}|{x.ndim}"
        assert title.endswith("|1") and style in names and "other" not in names
        y = hl.empty(x.shape[:1])
        for tm in hl.tile(*x.shape[-1:]):
            y[tm] = x[tm] * scales[style]
        return y

    same(run(styled, array(6), "triple"), array(6) * 3)


def test_a_walrus_and_augmented_host_values():
    def shifted(x):
        n = 1
        n += (m := 2) * m
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = x[tm] + n
        return y

    same(run(shifted, array(6)), array(6) + 5)


# ---------------------------------------------------------------- functions


def double(v):
    """Twice v."""
    return v * 2


def scale_by(v, factor=3, *, plus=0):
    if factor == 1:
        return v
    result = v * factor
    return result + plus


class Affine:
    """A callable object with numbers of its own."""

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __call__(self, v):
        return self.a * v + self.b

    def only_scaled(self, v):
        return self.a * v


class Pair(NamedTuple):
    first: object
    second: object


@dataclasses.dataclass
class State:
    total: object
    count: int


def activation_kernel(activation):
    def kernel(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = activation(x[tm])
        return y

    return kernel


@jax.jit
def jitted(v):
    return jnp.maximum(v, 0) + 1


@functools.partial(jax.custom_jvp, nondiff_argnums=())
def custom(v):
    return v * 5


X = array(9)
RELU = np.maximum(X, 0)
ACTIVATIONS = [
    (double, X * 2),
    (scale_by, X * 3),
    (functools.partial(scale_by, factor=4, plus=1), X * 4 + 1),
    (functools.partial(scale_by, factor=1), X),
    (lambda v: v + 1, X + 1),
    (lambda v, *rest, k=3: v * k + len(rest), X * 3),
    (Affine(2, 3), 2 * X + 3),
    (Affine(2, 3).only_scaled, 2 * X),
    (jitted, RELU + 1),
    (custom, X * 5),
    (jax.nn.relu, RELU),
    (torch.relu, RELU),
    (torch.nn.functional.relu, RELU),
    (jax.nn.relu6, np.minimum(RELU, 6)),
    (abs, np.abs(X)),
    (hl.abs, np.abs(X)),
    (functools.partial(hl.where, X[0] > 99, 1.0), X),
]


@pytest.mark.parametrize("case", range(len(ACTIVATIONS)))
def test_a_function_passed_in(case):
    activation, want = ACTIVATIONS[case]
    same(run(activation_kernel(activation), X), want)


@pytest.mark.parametrize("case", range(len(ACTIVATIONS)))
def test_a_function_as_an_argument(case):
    activation, want = ACTIVATIONS[case]

    def kernel(x, activation):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = activation(x[tm])
        return y

    same(run(kernel, X, activation), want)


def test_nested_functions_see_variables_as_they_are_when_called():
    def late(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            factor = 1

            def scaled(v, by=factor):
                shift = v * by
                return shift * factor  # noqa: B023

            factor = 3
            y[tm] = scaled(x[tm]) + (lambda v: v * factor)(x[tm])
        return y

    same(run(late, X), X * 6)


def test_a_helper_that_uses_the_language_on_host_values_only():
    def ones_like_tile(n):
        return hl.full([n], 1.0)

    def kernel(x):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            y[i, :] = x[i, :] + ones_like_tile(x.shape[1])
        return y

    same(run(kernel, array(3, 4)), array(3, 4) + 1)


def test_a_helper_that_makes_the_output():
    def output_like(x):
        made = hl.zeros([x.shape[0]], dtype=x.dtype)
        return made

    def kernel(x):
        y = output_like(x)
        for tm in hl.tile(y.shape[0]):
            y[tm] = x[tm, 0]
        return y

    same(run(kernel, array(3, 4)), array(3, 4)[:, 0])
    assert parsed(kernel, array(3, 4)).returns == ("made",)


def test_a_helper_that_loads_and_stores():
    def move(source, target, tile):
        target[tile] = source[tile]

    def kernel(x):
        y = hl.empty_like(x)
        for tm in hl.tile(y.shape[0]):
            move(x, y, tm)
        return y

    same(run(kernel, X), X)


def test_values_in_named_tuples_and_dataclasses():
    def kernel(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            pair = Pair(x[tm], second=x[tm] + 1)
            state = State(pair.first, 3)
            y[tm] = pair.second * state.count + state.total
        return y

    same(run(kernel, X), (X + 1) * 3 + X)


def test_variables_of_a_comprehension_are_shared_as_in_python():
    def kernel(x):
        y = hl.empty_like(x)
        add = [lambda v: v + k for k in range(3)]  # noqa: B023
        for tm in hl.tile(x.shape[0]):
            y[tm] = add[0](x[tm])
        return y

    same(run(kernel, X), X + 2)


def test_a_host_helper_may_use_all_of_python():
    def next_power(n, dtype):
        power = 1 if dtype == torch.float32 else 2
        while power < n:
            power *= 2
        return power

    def kernel(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = x[tm] + next_power(x.shape[0], x.dtype)
        return y

    same(run(kernel, X), X + 16)


def test_smallest_of_a_list():
    def kernel(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = max([x[tm], x[tm] * -2, 1]) + min(x[tm], 0.0) + max(1, 2)
        return y

    same(run(kernel, X), np.maximum(np.maximum(X, -2 * X), 1) + np.minimum(X, 0) + 2)


def test_recursion_on_host_values():
    def power(v, n):
        return v if n == 1 else v * power(v, n - 1)

    def kernel(x):
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = power(x[tm], 3)
        return y

    same(run(kernel, X), X**3)


def test_host_functions_are_called():
    def kernel(x):
        n = math.isqrt(x.shape[0]) + max(1, *x.shape) + len(x) + int("3")
        assert isinstance(n, int) and callable(double)
        big = np.prod(x.shape) + torch.iinfo(torch.int8).max + jnp.finfo(x.dtype).bits
        small = torch.finfo(x.dtype).bits
        y = hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = x[tm] + n + int(big) + small
        return y

    same(run(kernel, X), X + (3 + 9 + 9 + 3) + (9 + 127 + 32) + 32)


def test_dtypes_as_functions():
    def kernel(x):
        y = hl.empty(x.shape, dtype=hl.int32)
        for tm in hl.tile(x.shape[0]):
            y[tm] = jnp.int32(x[tm]) + hl.int32(2) + int(1.9) + jnp.int32(3)
        return y

    same(run(kernel, X), X.astype(np.int32) + 6)


# ---------------------------------------------------------------- order of evaluation


def test_a_value_is_computed_where_it_is_assigned():
    def kernel(y):
        z = hl.empty_like(y)
        for i in hl.grid(y.shape[0]):
            old = (y[i], y[i] + 1)
            names = {"old": y[i]}
            y[i] = 0.0
            z[i] = old[0] + old[1] + names["old"]

        return z

    same(run(kernel, X.copy()), 3 * X + 1)


def test_arguments_are_computed_before_the_call():
    def clear(y, i, before):
        y[i] = 0.0
        return before

    def kernel(y):
        z = hl.empty_like(y)
        for i in hl.grid(y.shape[0]):
            z[i] = clear(y, i, y[i])
        return z

    same(run(kernel, X.copy()), X)


def test_launches_run_one_after_the_other():
    def kernel(x):
        y, z = hl.empty_like(x), hl.empty_like(x)
        for tm in hl.tile(x.shape[0]):
            y[tm] = x[tm] + 1
        for tn in hl.tile(x.shape[0]):
            z[tn] = y[tn] * 2
        return y, z

    y, z = run(kernel, X)
    same(y, X + 1)
    same(z, (X + 1) * 2)


# ---------------------------------------------------------------- indices


def test_moved_tiles_are_slices():
    def kernel(x, starts):
        y = hl.zeros([starts.shape[0], 5])
        for g in hl.grid(starts.shape[0]):
            start = starts[g]
            for t in hl.tile(5):
                rows = start + t.index
                y[g, t] = x[rows] + x[t + 1] + x[1 + t.index - 1] + x[t.index + start - start]
        return y

    text = dump(kernel, array(20), np.int32([0, 7, 12]))
    assert "rows(" not in text and "x[t + start]" in text and "x[t + 1]" in text
    x = array(20)
    want = [x[s : s + 5] + x[1:6] + 2 * x[:5] for s in (0, 7, 12)]
    same(run(kernel, x, np.int32([0, 7, 12])), want)


def test_rows_are_gathered():
    def kernel(x, idx):
        y = hl.empty([idx.shape[0], x.shape[1]])
        for tm in hl.tile(idx.shape[0]):
            rows = idx[tm]
            y[tm, :] = x[rows, :] + x[idx[tm] * 0, :]
        return y

    x, idx = array(6, 4), np.int32([5, 0, 2, 2, 1])
    same(run(kernel, x, idx), x[idx] + x[0])


def test_scatter():
    def kernel(x, idx):
        y = hl.zeros_like(x)
        for tm in hl.tile(x.shape[0]):
            y[idx[tm], :] = x[tm, :]
        return y

    x, idx = array(5, 4), np.int32([4, 0, 3, 2, 1])
    want = np.zeros_like(x)
    want[idx] = x
    same(run(kernel, x, idx), want)


def test_ints_slices_none_and_ellipsis():
    def kernel(x):
        y = hl.empty([x.shape[0], 3])
        for tm in hl.tile(x.shape[0]):
            a = x[tm, -1, 1:4]
            b = x[tm, ..., 0][:, None, :]
            c = x[tm, None, 0, 2:]
            y[tm, ...] = a + b[..., None].sum(3).sum(2) + c.sum(2) + x[tm, 0, :-1]
        return y

    x = array(5, 2, 4)
    want = x[:, -1, 1:4] + x[..., 0].sum(1)[:, None] + x[:, 0, 2:].sum(1)[:, None] + x[:, 0, :-1]
    same(run(kernel, x), want)


def test_masked_loads_and_stores():
    def kernel(x):
        y = hl.full(x.shape, -1.0)
        for tm in hl.tile(x.shape[0]):
            before = hl.load(x, [tm - 1], mask=tm.index > 0, other=9)
            hl.store(y, [tm], before, mask=x[tm] > 0)
        return y

    want = np.where(X > 0, np.concatenate([[9], X[:-1]]), -1)
    same(run(kernel, X), want)


def test_augmented_stores():
    def kernel(x, y):
        for tm in hl.tile(x.shape[0]):
            y[tm] += x[tm]
            y[tm] *= 2

    y = array(9, seed=1)
    want = (y + X) * 2
    run(kernel, X, y)
    same(y, want)


def test_stores_convert_and_broadcast():
    def kernel(x):
        y = hl.empty(x.shape, dtype=hl.bfloat16)
        z = hl.empty(x.shape, dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            y[tm, :] = x[tm, :].sum(1, keepdim=True)
            z[tm, :] = 1
        return y, z

    x = array(5, 4)
    y, z = run(kernel, x)
    same(y.astype(np.float32), np.repeat(x.sum(1, keepdims=True), 4, 1))
    same(z, np.ones_like(x))


def test_int64_offsets_are_read_as_int32():
    def kernel(x, offsets):
        y = hl.zeros_like(x)
        for g in hl.grid(offsets.shape[0] - 1):
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                y[tm] = x[tm] + g
        return y

    x = array(12)
    want = np.where(np.arange(12) < 11, x + np.repeat([0, 2, 3, 0], [3, 7, 1, 1]), 0)
    same(run(kernel, x, OFFSETS.astype(np.int64)), want)


# ---------------------------------------------------------------- loops


def test_tile_scalars():
    def kernel(x):
        y = hl.zeros([x.shape[0], 5], dtype=hl.int32)
        for t in hl.tile(x.shape[0] - 2):
            scalars = (t.begin, t.end, t.id, t.count, t.block_size)
            for k, scalar in enumerate(scalars):
                y[t.index, k] = t.index * 0 + scalar
        for t in hl.tile(7, x.shape[0]):
            for k, scalar in enumerate((t.begin, t.end, t.block_size)):
                y[t, k] = t.index * 0 + scalar
        return y

    want = np.zeros((9, 5), int)
    want[:4], want[4:7], want[7:, :3] = [0, 4, 0, 2, 4], [4, 7, 1, 2, 4], [7, 9, 4]
    same(run(kernel, array(9), blocks={"t": 4, "t_1": 4}), want)


def test_tiles_up_to_a_loaded_end_are_numbered():
    def kernel(lengths):
        y = hl.zeros([2, 8, 2], dtype=hl.int32)
        for g in hl.grid(2):
            for t in hl.tile(lengths[g], max_extent=8):
                y[g, t, 0] = t.index * 0 + t.id
                y[g, t, 1] = t.index * 0 + t.count
        return y

    want = np.zeros((2, 8, 2), int)
    want[0, :3], want[1, :4], want[1, 4:7] = [0, 1], [0, 2], [1, 2]
    same(run(kernel, np.int32([3, 7]), blocks={"t": 4}), want)


def test_bounds_from_an_outer_tile():
    def kernel(x, offsets):
        y = hl.zeros_like(x)
        for g in hl.grid(offsets.shape[0] - 1):
            begin, end = offsets[g], offsets[g + 1]
            for tq in hl.tile(begin, end):
                acc = hl.zeros([tq])
                for tk in hl.tile(max(begin, tq.begin - 2), min(end, tq.end)):
                    near = (tq.index[:, None] >= tk.index) & (tq.index[:, None] - tk.index <= 2)
                    acc = acc + hl.where(near, x[tk], 0.0).sum(1)
                y[tq] = acc
        return y

    x = array(12)
    want = np.zeros(12, np.float32)
    for a, b in itertools.pairwise(OFFSETS):
        for i in range(a, b):
            want[i] = x[max(a, i - 2) : i + 1].sum()
    same(run(kernel, x, OFFSETS), want)


def test_one_name_for_several_axes():
    def kernel(x):
        y = hl.empty_like(x)
        for tiles in hl.tile(x.shape):
            y[tiles] = x[tiles] + 1
        for (i,) in hl.grid([x.shape[0]]):
            y[i, 0] = 5
        return y

    x = array(5, 6)
    want = x + 1
    want[:, 0] = 5
    same(run(kernel, x), want)


def test_block_sizes():
    def kernel(x, y):
        rows = hl.register_block_size(8, 128)
        for tm in hl.tile(x.shape[0], block_size=rows):
            y[tm] = x[tm]
        for tn in hl.tile(x.shape[0], block_size=rows):
            y[tn] += 1
        for tk in hl.tile(x.shape[0], block_size=3):
            y[tk] += tk.block_size.to(hl.float32)

    ir = parsed(kernel, X, X)
    assert [a.block for a in ir.axes] == ["rows", "rows", 3]
    y = X.copy()
    run(kernel, X, y, blocks={"rows": 8})
    same(y, X + 4)


def test_bounds_read_before_the_loops():
    def kernel(x, offsets):
        y = hl.zeros_like(x)
        first, last = offsets[1], offsets[-1]
        for tm in hl.tile(first, hl.specialize(1) * last):
            y[tm] = x[tm]
        return y

    x = array(12)
    want = x.copy()
    want[:3], want[11:] = 0, 0
    same(run(kernel, x, OFFSETS), want)


def test_zero_sizes():
    def kernel(x):
        y = hl.zeros([x.shape[1]])
        for tk in hl.tile(x.shape[1]):
            acc = hl.zeros([tk])
            for tm in hl.tile(x.shape[0]):
                acc = acc + x[tm, tk].sum(0)
            y[tk] = acc
        return y

    same(run(kernel, array(0, 4)), np.zeros(4))
    same(run(kernel, array(4, 0)), np.zeros(0))


# ---------------------------------------------------------------- tensors in host code


def test_views_are_read_and_written():
    def kernel(x, z):
        M, N = x.shape
        y = hl.empty([M * N], dtype=x.dtype)
        square = y.view(M, N)
        xt = x.T
        for tn, tm in hl.tile(xt.shape):
            square[tm, tn] = xt[tn, tm].T + jnp.transpose(z)[tn, tm].T
        return y, square.reshape(-1, 1)

    x, z = array(3, 4), array(3, 4, seed=1)
    y, column = run(kernel, x, z)
    same(y, (x + z).reshape(-1))
    same(column, (x + z).reshape(-1, 1))


def test_views_are_merged():
    def kernel(x, z):
        same_one = x.reshape(2, -1).view(4, 3).contiguous().reshape(x.shape)
        turned = z.permute(1, 2, 0).transpose(0, 2)
        of_stored = x.permute(1, 2, 0).transpose(0, 2)
        for i in hl.grid(2):
            same_one[i, 0, 0] = turned[0, i, 0] + of_stored[0, i, 1]
        return x

    ir = parsed(kernel, array(2, 2, 3), array(2, 2, 3))
    assert [(t.name, t.view and t.view.how, t.mutated) for t in ir.tensors] == [
        ("x", None, True),
        ("z", None, False),
        ("turned", "permute", False),
    ]


def test_outputs_in_every_spelling():
    def kernel(x):
        a = hl.zeros([2, 3], dtype=x.dtype)
        b = torch.empty(2, 3, dtype=torch.bfloat16, device=x.device)
        c = jnp.full((2, 3), 7, jnp.int32)
        d = torch.ones_like(x)
        e = x.new_full((4,), 2.5)
        f = jnp.zeros_like(x, dtype=jnp.int8)
        g = hl.full(x.shape, True)
        return a, b, c, d, e, f, g

    ir = parsed(kernel, array(5))
    made = [(t.name, t.shape, t.dtype, t.fill) for t in ir.tensors[1:]]
    assert made == [
        ("a", (2, 3), "float32", 0.0),
        ("b", (2, 3), "bfloat16", None),
        ("c", (2, 3), "int32", 7),
        ("d", (5,), "float32", 1.0),
        ("e", (4,), "float32", 2.5),
        ("f", (5,), "int8", 0),
        ("g", (5,), "bool", True),
    ]


def test_attributes_of_tensors():
    def kernel(x):
        M, N = x.size()
        assert x.shape == (M, N) and x.size(1) == x.size(-1) == N == x.shape[1]
        assert x.ndim == x.dim() == 2 and x.numel() == M * N and len(x) == M
        assert x.dtype == torch.float32 == x.dtype and x.dtype == jnp.float32
        assert x.dtype in (torch.float32, torch.bfloat16) and x.dtype != "int32"
        assert x.dtype.itemsize == 4
        return x.mT

    ir = parsed(kernel, array(2, 3))
    assert ir.tensor(ir.returns[0]).shape == (3, 2)


def test_a_parameter_may_be_returned_and_shadowed():
    def kernel(x):
        for tm in hl.tile(x.shape[0]):
            v = x
            x_ = v[tm]
            x[tm] = x_ * 2
        return x

    x = X.copy()
    same(run(kernel, x), X * 2)


def test_unused_views_outputs_and_loops_are_left_out():
    def kernel(x):
        unused = hl.zeros_like(x)
        view = unused.reshape(3, 3)
        for tm in hl.tile(x.shape[0]):
            v = x[tm]  # noqa: F841
        for tn in hl.tile(view.shape[0]):  # noqa: B007
            pass
        return x

    ir = parsed(kernel, X)
    assert [t.name for t in ir.tensors] == ["x"] and ir.body == () and ir.axes == ()


def test_functions_that_store_are_called_in_statements_of_their_own():
    def add(y, at, v):
        y[at] += v
        return y[at]

    def kernel(y):
        z = hl.empty_like(y)
        twice = lambda at, v: add(y, at, v * 2)  # noqa: E731
        for i in hl.grid(y.shape[0]):
            new = add(y, i, 1.0)
            add(y, i, new)
            last = twice(i, 3.0)
            z[i] = last
        return z

    same(run(kernel, X.copy()), (X + 1) * 2 + 6)
