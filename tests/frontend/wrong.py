"""Kernels that are refused; the docstring of each is the message that it gets.

The arguments are those of ARGUMENTS by the names of the parameters.
"""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import torch

import tilelang.language as hl
from tilelang.ir import TensorSpec

ARGUMENTS = {
    "x": TensorSpec((40, 64), "float32", "torch"),
    "w": TensorSpec((64, 96), "float32", "torch"),
    "v": TensorSpec((40,), "float32", "torch"),
    "h": TensorSpec((40, 64), "bfloat16", "torch"),
    "cube": TensorSpec((4, 40, 64), "float32", "torch"),
    "offsets": TensorSpec((5,), "int32", "torch"),
    "long": TensorSpec((40,), "int64", "torch"),
    "flags": TensorSpec((40,), "int32", "torch"),
    "idx": TensorSpec((40,), "int32", "torch"),
    "jx": TensorSpec((40, 64), "float32", "jax"),
    "double": TensorSpec((40,), "float64", "numpy"),
    "n": 3,
}
TABLE = np.arange(40)


# ---------------------------------------------------------------- statements


def while_loop(x):
    for tm in hl.tile(x.shape[0]):
        b = x[tm, :]
        while b.sum() > 1:
            b = b / 2
    return x


def try_statement(x):
    try:
        M = x.shape[0]
    except IndexError:
        M = 1
    return x


def with_statement(x):
    with torch.no_grad():
        y = hl.empty_like(x)
    return y


def global_statement(x):
    global TABLE
    return x


def delete(x):
    y = hl.empty_like(x)
    del y
    return x


def class_statement(x):
    class Scale:
        pass

    return x


def match_statement(x, n):
    match n:
        case 3:
            pass
    return x


def import_statement(x):
    import math

    return x


def yields(x):
    yield x


def loop_else(x):
    for tm in hl.tile(40):
        x[tm, :] = 0.0
    else:
        pass
    return x


def break_in_tile_loop(x, v):
    for i in hl.grid(40):
        v[i] = 1.0
        break
    return x


def continue_under_condition(x, v, flags):
    for i in hl.grid(40):
        if flags[i] > 0:
            continue
        v[i] = 1.0


def return_in_loop(x, v):
    for i in hl.grid(40):
        v[i] = 1.0
        return v


def return_under_condition(x, flags):
    if flags[0] > 0:
        return x
    return flags


def attribute_assigned(x):
    x.scale = 2.0
    return x


def decorated_inside(x):
    @functools.cache
    def double(b):
        return b * 2

    return x


# ---------------------------------------------------------------- names


def unknown_name(x):
    y = hl.empty_like(x)
    return z


def misspelled_name(x):
    output = hl.empty_like(x)
    return ouput


def read_before_assigned(x):
    M = rows
    rows = x.shape[0]
    return x


def tile_after_loop(x, v):
    for tm in hl.tile(40):
        v[tm] = 0.0
    for tn in hl.tile(tm.end):
        v[tn] = 1.0
    return v


def first_assigned_in_loop(x, v):
    for tm in hl.tile(40):
        for tk in hl.tile(64):
            block = x[tm, tk]
        v[tm] = block.sum(1)
    return v


def first_assigned_in_branch(x, v, flags):
    for i in hl.grid(40):
        if flags[i] > 0:
            scale = 2.0
        v[i] = v[i] * scale
    return v


def launch_result(x, v):
    total = 0.0
    for tm in hl.tile(40):
        total = total + v[tm].sum()
    for tn in hl.tile(40):
        v[tn] = v[tn] / total
    return v


# ---------------------------------------------------------------- host code


def failing_assert(x, w):
    assert x.shape == w.shape, f"x is {x.shape}, w is {w.shape}"
    return x


def failing_assert_without_message(x, w):
    assert x.shape[0] == w.shape[0]
    return x


def raised(x):
    if x.shape[0] % 128:
        raise ValueError("rows must be a multiple of 128")
    return x


def assert_on_data(x, offsets):
    assert offsets[0] == 0
    return x


def division_by_zero(x):
    n = x.shape[0] // (x.ndim - 2)
    return x


def no_such_attribute(x):
    return x.shapes


def no_such_module_attribute(x):
    y = torch.zeros_lik(x)
    return y


def host_index_error(x):
    M, N, K = x.shape[0], x.shape[1], x.shape[2]
    return x


def unpacking(x):
    M, N, K = x.shape
    return x


def printing(x):
    print(x.shape)
    return x


def list_from_outside_changed(x):
    SIZES.append(x.shape[0])
    return x


SIZES = []


def list_around_loop_changed(x, v):
    parts = []
    for tm in hl.tile(40):
        parts.append(x[tm, :])
        v[tm] = parts[-1].sum(1)
    return v


def item_of_list_around_loop(x, v):
    sums = [0.0, 0.0]
    for tm in hl.tile(40):
        sums[0] = sums[0] + v[tm].sum()
        v[tm] = v[tm] * 2
    return v


def iterates_tensor(x, v):
    for row in v:
        pass
    return x


def whole_tensor_op(x):
    y = torch.exp(x)
    return y


def whole_tensor_arithmetic(x):
    y = x * 2
    return y


def whole_tensor_copy(x):
    y = x.clone()
    return y


def computed_outside(x, v):
    row = x[0, :]
    for tk in hl.tile(64):
        v[0] = row[tk].sum()
    return v


def stored_outside(x, v):
    v[0] = 1.0
    return v


def data_dependent_shape(x, offsets):
    y = hl.zeros([offsets[4], x.shape[1]])
    return y


def float64_output(x):
    y = hl.zeros(x.shape, dtype=torch.float64)
    return y


def float_length(x):
    y = hl.zeros([x.shape[0] / 2])
    return y


def string_dtype(x):
    y = hl.zeros(x.shape, dtype="float33")
    return y


def bad_view(x):
    y = x.view(3, -1)
    return y


def float64_argument(double):
    return double


def array_from_outside(x, v):
    for i in hl.grid(40):
        v[i] = TABLE[i]
    return v


# ---------------------------------------------------------------- loops


def tile_as_bound(x, v):
    for tm in hl.tile(40):
        for tk in hl.tile(tm):
            v[tm] = 0.0
    return v


def tensor_as_bound(x, v, offsets):
    for tm in hl.tile(offsets):
        v[tm] = 0.0
    return v


def float_bound(x, v):
    for tm in hl.tile(v[0]):
        v[tm] = 0.0
    return v


def missing_max_extent(x, v, offsets):
    for g in hl.grid(4):
        total = 0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total = total + tm.index.sum()
        v[g] = total.to(hl.float32)
    return v


def wrong_number_of_names(x):
    for tm in hl.tile([40, 64]):
        x[tm] = 0.0
    for tm, tk, tn in hl.tile([40, 64]):
        x[tm, tk] = 0.0
    return x


def wrong_number_of_bounds(x):
    for tm, tk in hl.tile([0, 0], [40]):
        x[tm, tk] = 0.0
    return x


def three_bounds(x, v):
    for tm in hl.tile(0, 40, 8):
        v[tm] = 0.0
    return v


def unknown_option(x, v):
    for tm in hl.tile(40, step=8):
        v[tm] = 0.0
    return v


def block_of_zero(x, v):
    for tm in hl.tile(40, block_size=0):
        v[tm] = 0.0
    return v


def decreasing_range(x, v):
    for tm in hl.tile(40, 8):
        v[tm] = 0.0
    return v


def too_small_max_extent(x, v):
    for tm in hl.tile(40, max_extent=8):
        v[tm] = 0.0
    return v


def tile_outside_of_for(x):
    tiles = hl.tile(40)
    return x


def range_of_data(x, v, offsets):
    for g in hl.grid(4):
        for i in range(offsets[g]):
            v[i] = 0.0
    return v


def huge_unrolling(x, v):
    for i in range(100000):
        pass
    return v


def static_range_of_data(x, v, offsets):
    for g in hl.grid(4):
        for i in hl.static_range(offsets[g]):
            v[i] = 0.0
    return v


# ---------------------------------------------------------------- indices


def too_many_indices(x, v):
    for tm in hl.tile(40):
        v[tm, :] = 0.0
    return v


def too_few_indices(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm].sum(1)
    return v


def tile_of_another_dimension(x, w, v):
    for tm in hl.tile(40):
        acc = hl.zeros([tm, 96])
        for tk in hl.tile(64):
            acc = hl.dot(x[tm, tk], w[tk, :], acc=acc)
        v[tm] = acc.sum(1) + x[tm, tm].sum(1)
    return v


def tile_too_long(x, v):
    for tk in hl.tile(64):
        v[tk] = x[0, tk]
    return v


def moved_tile_too_long(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm + 1, 0]
    return v


def grid_too_long(x, v):
    for i in hl.grid(64):
        v[i] = 0.0
    return v


def constant_index_out_of_range(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm, 64]
    return v


def float_index(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm, 1.5]
    return v


def float_value_index(x, v):
    for tm in hl.tile(40):
        v[tm] = x[v[tm], 0]
    return v


def mask_index(x, v):
    for tm in hl.tile(40):
        v[tm] = v[v[tm] > 0]
    return v


def list_index(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm, [0, 2]].sum(1)
    return v


def string_index(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm, "a"]
    return v


def whole_tensor_index(x, v, idx):
    for tm in hl.tile(40):
        v[tm] = x[idx, 0]
    return v


def two_gathers(x, v, idx):
    for tm in hl.tile(40):
        v[tm] = x[idx[tm], idx[tm]].sum(1)
    return v


def negative_step(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm, ::-1].sum(1)
    return v


def slice_of_tile(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm.begin : tm.end, 0]
    return v


def two_ellipses(x, v):
    for tm in hl.tile(40):
        v[tm] = x[..., tm, ...]
    return v


def value_indexed(x, v):
    for tm in hl.tile(40):
        block = x[tm, :]
        v[tm] = block[:, 0]
    return v


def tile_indexed(x, v):
    for tm in hl.tile(40):
        v[tm] = tm[0]
    return v


def none_in_store(x, v):
    for tm in hl.tile(40):
        v[tm, None] = 0.0
    return v


# ---------------------------------------------------------------- tiles and values


def tile_in_arithmetic(x, v):
    for tm in hl.tile(40):
        v[tm] = tm * 2
    return v


def tile_compared(x, v):
    for tm in hl.tile(40):
        v[tm] = hl.where(tm < 8, 0.0, 1.0)
    return v


def tile_as_value(x, v):
    for tm in hl.tile(40):
        v[tm] = hl.exp(tm)
    return v


def unknown_tile_attribute(x, v):
    for tm in hl.tile(40):
        v[tm.start] = 0.0
    return v


def unknown_method(x, v):
    for tm in hl.tile(40):
        v[tm] = v[tm].cumulative_sum(0)
    return v


def item_of_scalar(x, v, offsets):
    for g in hl.grid(4):
        v[g] = offsets[g].item()
    return v


def functional_update(jx):
    for tm in hl.tile(40):
        jx = jx.at[tm, :].set(0.0)
    return jx


def two_axes(x, v):
    for tm, tn in hl.tile([40, 40]):
        v[tm] = v[tm] + v[tn]
    return v


def contracts_two_axes(x, w, v):
    for tm, tn, tk in hl.tile([40, 64, 64]):
        x[tm, tn] = hl.dot(x[tm, tn], w[tk, :])[:, None]
    return x


def wrong_store_shape(x, v):
    for tm in hl.tile(40):
        v[tm] = x[tm, :]
    return v


def float_into_ints(x, v, idx):
    for tm in hl.tile(40):
        idx[tm] = v[tm]
    return idx


def into_int64(x, long):
    for tm in hl.tile(40):
        long[tm] = 0
    return long


def mask_not_bool(x, v, flags):
    for tm in hl.tile(40):
        v[tm] = hl.load(v, [tm], mask=flags[tm])
    return v


def number_stored_by_name(x, v):
    for tm in hl.tile(40):
        hl.store(v, tm)
    return v


def changes_jax(jx):
    for tm in hl.tile(40):
        jx[tm, :] = 0.0
    return jx


def changes_jax_through_view(jx):
    flat = jx.reshape(-1)
    for tm in hl.tile(40 * 64):
        flat[tm] = 0.0
    return jx


# ---------------------------------------------------------------- conditions


def vector_condition(x, v):
    for tm in hl.tile(40):
        b = v[tm]
        if b > 0:
            b = b * 2
        v[tm] = b
    return v


def vector_conditional(x, v):
    for tm in hl.tile(40):
        v[tm] = v[tm] if v[tm] > 0 else 0.0
    return v


def vector_and(x, v):
    for tm in hl.tile(40):
        b = v[tm]
        v[tm] = hl.where(b > 0 and b < 1, b, 0.0)
    return v


def tensor_condition(x, v):
    if v:
        pass
    return v


def tile_condition(x, v):
    for tm in hl.tile(40):
        if tm:
            v[tm] = 0.0
    return v


def branches_differ(x, v, flags):
    for i in hl.grid(40):
        s = v[i]
        if flags[i] > 0:
            s = x[i, :]
        v[i] = s.sum()
    return v


def host_values_differ(x, v, flags):
    for i in hl.grid(40):
        activation = torch.exp
        if flags[i] > 0:
            activation = torch.sin
        v[i] = activation(v[i])
    return v


def output_under_condition(x, flags):
    y = x
    if flags[0] > 0:
        y = hl.empty_like(x)
    return y


# ---------------------------------------------------------------- carried values


def carry_changes_dtype(h):
    y = hl.empty_like(h)
    for tm in hl.tile(40):
        acc = hl.zeros([tm, 64], dtype=hl.float32)
        for tk in hl.tile(64):
            acc = (acc + h[tm, tk].sum(1)[:, None]).to(h.dtype)
        y[tm, :] = acc
    return y


def carry_changes_shape(x):
    y = hl.empty_like(x)
    for tm in hl.tile(40):
        acc = hl.zeros([tm])
        for tk in hl.tile(64):
            acc = acc[:, None] + x[tm, tk]
        y[tm, :] = acc
    return y


def number_becomes_tensor(x, v):
    for tm in hl.tile(40):
        m = float("-inf")
        for tk in hl.tile(64):
            m = hl.maximum(m, x[tm, tk].amax(1))
        v[tm] = m
    return v


def int_becomes_float(x, v):
    for i in hl.grid(40):
        s = 0
        for tk in hl.tile(64):
            s = s + x[i, tk].sum()
        v[i] = s
    return v


def none_carried(x, v):
    for i in hl.grid(40):
        s = None
        for tk in hl.tile(64):
            s = x[i, tk].sum() if s is None else s + x[i, tk].sum()
        v[i] = s
    return v


def tuple_carried(x, v):
    for i in hl.grid(40):
        state = (0.0, 0.0)
        for tk in hl.tile(64):
            state = (state[0] + x[i, tk].sum(), state[1])
        v[i] = state[0]
    return v


def becomes_none(x, v):
    for i in hl.grid(40):
        s = 0.0
        for tk in hl.tile(64):
            s = s + 1.0
            s = None
        v[i] = s
    return v


# ---------------------------------------------------------------- calls


def unknown_torch_function(x, v):
    for tm in hl.tile(40):
        v[tm] = torch.sort(v[tm])
    return v


def unknown_jax_function(x, v):
    for tm in hl.tile(40):
        v[tm] = jnp.cumsum(v[tm])
    return v


def unknown_linalg(x, v):
    for tm in hl.tile(40):
        v[tm] = torch.linalg.svd(x[tm, :])
    return v


def nonzero(x, v):
    for tm in hl.tile(40):
        found = torch.nonzero(v[tm])
    return v


def misspelled_function(x, v):
    for tm in hl.tile(40):
        v[tm] = jnp.rad2deg(v[tm])
    return v


def loop_combinator(x, v):
    for tm in hl.tile(40):
        v[tm] = jax.lax.fori_loop(0, 3, lambda i, b: b + i, v[tm])
    return v


def python_on_value(x, v):
    for tm in hl.tile(40):
        b = sorted([v[tm], v[tm]])
    return v


def unknown_keyword(x, v):
    for tm in hl.tile(40):
        v[tm] = torch.sum(x[tm, :], columns=1)
    return v


def not_a_function(x, v, n):
    for tm in hl.tile(40):
        v[tm] = n(v[tm])
    return v


def helper_with_wrong_arguments(x, v):
    for tm in hl.tile(40):
        v[tm] = scaled(v[tm])
    return v


def scaled(b, by):
    return b * by


def error_in_helper(x, v):
    for tm in hl.tile(40):
        v[tm] = doubly_wrong(v[tm])
    return v


def wrong_helper(b):
    return b + torch.cumsum(b, 0)


def doubly_wrong(b):
    return wrong_helper(b) * 2


def endless_recursion(x, v):
    for tm in hl.tile(40):
        v[tm] = forever(v[tm])
    return v


def forever(b):
    return forever(b + 1)


def atomic(x, v):
    for i in hl.grid(40):
        hl.atomic_add(v, [0], v[i])
    return v


def float_of_math(x, v):
    for tm in hl.tile(40):
        v[tm] = math.gamma(v[tm])
    return v


def list_comprehension_over_value(x, v):
    for tm in hl.tile(40):
        v[tm] = sum([b for b in v[tm]])
    return v


def filtered_by_data(x, v):
    for i in hl.grid(40):
        v[i] = sum([v[k] for k in range(3) if v[k] > 0])
    return v


def formatted_value(x, v):
    for i in hl.grid(40):
        name = f"{v[i]}"
    return v


# ---------------------------------------------------------------- what is returned


def returns_number(x):
    return 3


def returns_value(x, offsets):
    return offsets[0] + 1


def returns_nested(x, v):
    return x, (v, v)


def does_nothing(x):
    y = hl.empty_like(x)
    for tm in hl.tile(40):
        y[tm, :] = x[tm, :]


def read_before_and_stored(x, offsets):
    first = offsets[0]
    for i in hl.grid(4):
        offsets[i] = 0
    for tm in hl.tile(first, first + 8, max_extent=8):
        x[tm, :] = 0.0
    return x
