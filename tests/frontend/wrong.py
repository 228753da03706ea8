"""Kernels that are refused; the docstring of each is the message that it gets.

The arguments are those of ARGUMENTS by the names of the parameters.
"""

# What is wrong here stays wrong.
# ruff: noqa: B007, C416, E501, F401, F821, F841, RUF059

import dataclasses
import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import torch
from jax.experimental import pallas as pl

import tilelang as tile
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
    "scalar": TensorSpec((), "int32", "jax"),
    "n": 3,
}
TABLE = np.arange(40)


# ---------------------------------------------------------------- statements


def while_loop(x):
    r"""ParseError: `while` goes on by what is not known while compiling
      while b.sum() > 1:
            ^^^^^^^^^^^
    hint: loop with hl.grid or hl.tile and a mask, or range(...) of known length
    """
    for tm in hl.tile(x.shape[0]):
        b = x[tm, :]
        while b.sum() > 1:
            b = b / 2
    return x


def try_statement(x):
    r"""ParseError: try is not in the language
      try:
      ^^^
    hint: check shapes with assert before the loops
    """
    try:
        M = x.shape[0]
    except IndexError:
        M = 1
    return x


def with_statement(x):
    r"""ParseError: with is not in the language
      with torch.no_grad():
      ^^^^
    hint: write its body alone
    """
    with torch.no_grad():
        y = hl.empty_like(x)
    return y


def global_statement(x):
    r"""ParseError: global is not in the language
      global TABLE
      ^^^^^^
    hint: pass values as arguments and return them
    """
    global TABLE
    return x


def delete(x):
    r"""ParseError: del is not in the language
      del y
      ^^^
    hint: leave it out
    """
    y = hl.empty_like(x)
    del y
    return x


def class_statement(x):
    r"""ParseError: class is not in the language
      class Scale:
      ^^^^^
    hint: define it outside of the kernel
    """

    class Scale:
        pass

    return x


def match_statement(x, n):
    r"""ParseError: match is not in the language
      match n:
      ^^^^^
    hint: write if, elif and else
    """
    match n:
        case 3:
            pass
    return x


def import_statement(x):
    r"""ParseError: import is not in the language
      import math
      ^^^^^^
    hint: import at the top of the file
    """
    import math

    return x


def yields(x):
    r"""ParseError: yield is not in the language
      yield x
      ^^^^^^^
    hint: store results to an output
    """
    yield x


def loop_else(x):
    r"""ParseError: else after a loop is not in the language
      pass
      ^^^^
    hint: write it after the loop, without else
    """
    for tm in hl.tile(40):
        x[tm, :] = 0.0
    else:
        pass
    return x


def break_in_tile_loop(x, v):
    r"""ParseError: break in a loop of the kernel
      break
      ^^^^^
    hint: end the range earlier, as in hl.tile(begin, min(end, stop))
    """
    for i in hl.grid(40):
        v[i] = 1.0
        break
    return x


def while_without_end(x, v):
    r"""ParseError: a Python loop of over 4096 iterations would be unrolled
      while turn < 5000:
            ^^^^^^^^^^^
    hint: hl.grid or hl.tile makes a loop in the kernel
    """
    turn = 0
    while turn < 5000:
        turn += 1
    return v


def while_with_else(x, v):
    r"""ParseError: else after a loop is not in the language
      v = x
      ^^^^^
    hint: write it after the loop, without else
    """
    while False:
        pass
    else:
        v = x
    return v


def continue_under_condition(x, v, flags):
    r"""ParseError: continue under a condition that is not known while compiling
      continue
      ^^^^^^^^
    hint: write an if with both branches, or hl.where
    """
    for i in hl.grid(40):
        if flags[i] > 0:
            if flags[i] > 1:
                continue
            v[i] = 2.0
        v[i] = v[i] + 1.0


def return_in_loop(x, v):
    r"""ParseError: return in a loop of the kernel
      return v
      ^^^^^^^^
    hint: store to an output, and return it after the loops
    """
    for i in hl.grid(40):
        v[i] = 1.0
        return v


def return_under_condition(x, flags):
    r"""ParseError: return under a condition that is not known while compiling
      return x
      ^^^^^^^^
    hint: write an if with both branches, or hl.where
    """
    if flags[0] > 0:
        return x
    return flags


def attribute_assigned(x):
    r"""ParseError: an attribute is assigned to
      x.scale = 2.0
      ^^^^^^^
    hint: assign to a name
    """
    x.scale = 2.0
    return x


def decorated_inside(x):
    r"""ParseError: a decorator in a kernel
      @functools.cache
       ^^^^^^^^^^^^^^^
    hint: leave it out, or define it outside
    """

    @functools.cache
    def double(b):
        return b * 2

    return x


# ---------------------------------------------------------------- names


def unknown_name(x):
    r"""ParseError: z is not defined
    return z
           ^
    """
    y = hl.empty_like(x)
    return z


def name_of_the_language(x):
    r"""ParseError: empty_like is not defined
      y = empty_like(x)
          ^^^^^^^^^^
    hint: hl.empty_like, with import tilelang.language as hl
    """
    y = empty_like(x)
    return y


def name_of_the_package(v):
    r"""ParseError: AttributeError: module 'tilelang' has no attribute 'grid'
      for i in tile.grid(40):
               ^^^^^^^^^
    hint: hl.grid, with import tilelang.language as hl
    """
    for i in tile.grid(40):
        v[i] = 0.0
    return v


def package_called(v):
    r"""ParseError: tile is called, and is a module
      for tm in tile(40):
                ^^^^^^^^
    hint: hl.tile, with import tilelang.language as hl
    """
    for tm in tile(40):
        v[tm] = 0.0
    return v


def function_as_a_method(v):
    r"""ParseError: a value of the kernel has no attribute silu
      v[tm] = v[tm].silu()
              ^^^^^^^^^^
    hint: hl.silu, with import tilelang.language as hl
    """
    for tm in hl.tile(40):
        v[tm] = v[tm].silu()
    return v


def length_of_a_tile(v):
    r"""ParseError: the length of tile tm is not known while compiling
      v[tm] = hl.zeros([len(tm)], dtype=hl.float32)
                        ^^^^^^^
    hint: tm.end - tm.begin is how many positions it covers; in shapes it stands for its length: hl.zeros([tm])
    """
    for tm in hl.tile(40):
        v[tm] = hl.zeros([len(tm)], dtype=hl.float32)
    return v


def misspelled_name(x):
    r"""ParseError: ouput is not defined
      return ouput
             ^^^^^
    hint: did you mean output?
    """
    output = hl.empty_like(x)
    return ouput


def read_before_assigned(x):
    r"""ParseError: rows is read before it is assigned
      M = rows
          ^^^^
    hint: give it a value before, such as rows = hl.zeros([...])
    """
    M = rows
    rows = x.shape[0]
    return x


def read_before_its_loop(x, offsets):
    r"""ParseError: g is read before it is assigned
      for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=40):
                                ^
    hint: the loop of line N assigns it: read it inside of it
    """
    for tm in hl.tile(offsets[g], offsets[g + 1], max_extent=40):
        for g in hl.grid(4):
            x[tm, :] = 0.0
    return x


def numbered_rows(x, offsets):
    r"""ParseError: the tensor offsets is iterated over
      for g, first in enumerate(offsets):
                      ^^^^^^^^^^^^^^^^^^
    hint: loop over its indices: for i in hl.grid(offsets.shape[0])
    """
    for g, first in enumerate(offsets):
        x[first, :] = g
    return x


def listed_value(x, v):
    r"""ParseError: a value of the kernel is iterated over
      v[tm] = list(v[tm])
              ^^^^^^^^^^^
    hint: hl.grid and hl.tile loop over lengths that depend on data
    """
    for tm in hl.tile(40):
        v[tm] = list(v[tm])
    return v


def parts_of_a_tensor(x, v):
    r"""ParseError: x is used whole, as if it were a value
      first, second = x.chunk(2, 1)
                      ^^^^^^^^^^^^^
    hint: load a part of it in a loop: for tile in hl.tile(x.shape[0]): ... x[tile, :] ...; in one, all of it is x[:, :]
    """
    first, second = x.chunk(2, 1)
    return v


def repeated_view(cube):
    r"""ParseError: a view of planes would repeat elements
      wide = planes.expand(8, 160, 64)
             ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: read v = planes[0, :, :] in the loop: values are repeated where they are used or stored, along dimensions in front of theirs; v[:, None] has one behind
    """
    planes = cube.reshape(1, 160, 64)
    wide = planes.expand(8, 160, 64)
    return wide


def tile_after_loop(x, v):
    r"""ParseError: tm belongs to the loop of line N, and is read after it
      for tn in hl.tile(tm.end):
                        ^^
    hint: a tile or an index has no value outside of its loop
    """
    for tm in hl.tile(40):
        v[tm] = 0.0
    for tn in hl.tile(tm.end):
        v[tn] = 1.0
    return v


def returned_from_loop(x):
    r"""ParseError: block is first assigned in the loop of line N, and is read after it
      return block
             ^^^^^
    hint: store it to an output in the loop: a launch leaves nothing but tensors
    """
    for tm in hl.tile(40):
        block = x[tm, :] * 2
    return block


def first_assigned_in_loop(x, v):
    r"""ParseError: block is first assigned in the loop of line N, and is read after it
      v[tm] = block.sum(1)
              ^^^^^
    hint: give block a value before the loop
    """
    for tm in hl.tile(40):
        for tk in hl.tile(64):
            block = x[tm, tk]
        v[tm] = block.sum(1)
    return v


def first_assigned_in_branch(x, v, flags):
    r"""ParseError: scale is assigned only in one branch of the `if` of line N
      v[i] = v[i] * scale
                    ^^^^^
    hint: give scale a value before the `if`
    """
    for i in hl.grid(40):
        if flags[i] > 0:
            scale = 2.0
        v[i] = v[i] * scale
    return v


def launch_result(x, v):
    r"""ParseError: total is computed by the loop of line N, and is read outside of it
      v[tn] = v[tn] / total
                      ^^^^^
    hint: store it to an output in the loop: a launch leaves nothing but tensors
    """
    total = 0.0
    for tm in hl.tile(40):
        total = total + v[tm].sum()
    for tn in hl.tile(40):
        v[tn] = v[tn] / total
    return v


# ---------------------------------------------------------------- host code


def failing_assert(x, w):
    r"""CallError: x is (40, 64), w is (64, 96)
    assert x.shape == w.shape, f"x is {x.shape}, w is {w.shape}"
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    """
    assert x.shape == w.shape, f"x is {x.shape}, w is {w.shape}"
    return x


def failing_assert_without_message(x, w):
    r"""CallError: x.shape[0] == w.shape[0] does not hold
    assert x.shape[0] == w.shape[0]
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    """
    assert x.shape[0] == w.shape[0]
    return x


def raised(x):
    r"""CallError: ValueError: rows must be a multiple of 128
    raise ValueError("rows must be a multiple of 128")
    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    """
    if x.shape[0] % 128:
        raise ValueError("rows must be a multiple of 128")
    return x


def assert_on_data(x, offsets):
    r"""ParseError: `assert` on a condition that is not known while compiling
      assert offsets[0] == 0
             ^^^^^^^^^^^^^^^
    hint: only shapes, dtypes and other host values are checked
    """
    assert offsets[0] == 0
    return x


def division_by_zero(x):
    r"""ParseError: ZeroDivisionError: integer division or modulo by zero
    n = x.shape[0] // (x.ndim - 2)
        ^^^^^^^^^^^^^^^^^^^^^^^^^^
    """
    n = x.shape[0] // (x.ndim - 2)
    return x


def no_such_attribute(x):
    r"""ParseError: the tensor x has no attribute shapes
      return x.shapes
             ^^^^^^^^
    hint: did you mean .shape?
    """
    return x.shapes


def no_such_module_attribute(x):
    r"""ParseError: AttributeError: module 'torch' has no attribute 'zeros_lik'
      y = torch.zeros_lik(x)
          ^^^^^^^^^^^^^^^
    hint: did you mean zeros_like?
    """
    y = torch.zeros_lik(x)
    return y


def host_index_error(x):
    r"""ParseError: IndexError: tuple index out of range
      M, N, K = x.shape[0], x.shape[1], x.shape[2]
                                        ^^^^^^^^^^
    hint: x has 2 dimensions, its shape is (40, 64)
    """
    M, N, K = x.shape[0], x.shape[1], x.shape[2]
    return x


def shape_of_a_number(x, scalar):
    r"""ParseError: IndexError: tuple index out of range
      y = hl.zeros([scalar.shape[0], 64])
                    ^^^^^^^^^^^^^^^
    hint: scalar has 0 dimensions, its shape is (): it is one number, or what jax.jit makes of one
    """
    y = hl.zeros([scalar.shape[0], 64])
    return y


def number_without_dimensions(v, n):
    r"""ParseError: TypeError: 'int' object is not subscriptable
      y[t] = v[t] / n[()]
                    ^^^^^
    hint: without [()] it may be a number, or an array without dimensions
    """
    y = hl.zeros_like(v)
    for t in hl.tile(v.shape[0]):
        y[t] = v[t] / n[()]
    return y


def host_list_index_error(x):
    r"""ParseError: IndexError: list index out of range
      y = hl.zeros([40, sizes[1]])
                        ^^^^^^^^
    hint: there is 1 item, counted from 0
    """
    sizes = [64]
    y = hl.zeros([40, sizes[1]])
    return y


def result_reduced(x):
    r"""TypingError: y is used whole, as if it were a value
      return y.sum()
             ^^^^^^^
    hint: return it, and compute with it after the call; else load a part of it in a loop: for tile in hl.tile(y.shape[0]): ... y[tile, :] ...; in one, all of it is y[:, :]
    """
    y = hl.zeros_like(x)
    for tm in hl.tile(40):
        y[tm, :] = x[tm, :]
    return y.sum()


def result_named_again(x):
    r"""TypingError: carried value y changes from float32[40, 64] to float32[tm, 64]
      y = x[tm, :] * 2
      ^^^^^^^^^^^^^^^^
    hint: a carried value keeps its shape; what a tile has is stored: y[tm, :] = ...
    """
    y = hl.zeros_like(x)
    for tm in hl.tile(40):
        y = x[tm, :] * 2
    return y


def result_on_a_device(x):
    r"""ParseError: the tensor y has no attribute cuda
      y = hl.zeros_like(x).cuda()
          ^^^^^^^^^^^^^^^^^^^^^
    hint: the kernel runs where its arguments are
    """
    y = hl.zeros_like(x).cuda()
    return y


def row_stored_by_one_index(x):
    r"""ParseError: y has 2 dimensions and is indexed with 1
      y[i] = row
      ^^^^^^^^^^
    hint: take the rest whole: y[i, :]
    """
    y = hl.zeros_like(x)
    for i in hl.grid(40):
        row = x[i, :]
        y[i] = row
    return y


def unpacking(x):
    r"""ParseError: 2 values for 3 names
      M, N, K = x.shape
      ^^^^^^^
    hint: what is taken apart is (40, 64)
    """
    M, N, K = x.shape
    return x


def printing(x):
    r"""ParseError: print is not in the language
      print(x.shape)
      ^^^^^^^^^^^^^^
    hint: print what the kernel returns, or use Kernel.explain(...) and print_source(...)
    """
    print(x.shape)
    return x


def list_from_outside_changed(x):
    r"""ParseError: a list from outside of the kernel is changed
      SIZES.append(x.shape[0])
      ^^^^^^^^^^^^^^^^^^^^^^^^
    hint: copy it first: list(...)
    """
    SIZES.append(x.shape[0])
    return x


SIZES = []


@tile.kernel
def inner_kernel(x):
    return x


def list_around_loop_changed(x, v):
    r"""ParseError: a list that was made outside of this loop or `if` is changed
      parts.append(x[tm, :])
      ^^^^^^^^^^^^^^^^^^^^^^
    hint: give its name another, v = [...]: a loop carries that, and no change of a list
    """
    parts = []
    for tm in hl.tile(40):
        parts.append(x[tm, :])
        v[tm] = parts[-1].sum(1)
    return v


def item_of_list_around_loop(x, v):
    r"""ParseError: a list that was made outside of this loop or `if` is changed
      sums[0] = sums[0] + v[tm].sum()
      ^^^^^^^
    hint: give its name another, v = [...]: a loop carries that, and no change of a list
    """
    sums = [0.0, 0.0]
    for tm in hl.tile(40):
        sums[0] = sums[0] + v[tm].sum()
        v[tm] = v[tm] * 2
    return v


def iterates_tensor(x, v):
    r"""ParseError: the tensor v is iterated over
      for row in v:
                 ^
    hint: loop over its indices: for i in hl.grid(v.shape[0])
    """
    for row in v:
        pass
    return x


def whole_tensor_op(x):
    r"""TypingError: x is used whole, as if it were a value
      y = torch.exp(x)
          ^^^^^^^^^^^^
    hint: load a part of it in a loop: for tile in hl.tile(x.shape[0]): ... x[tile, :] ...; in one, all of it is x[:, :]
    """
    y = torch.exp(x)
    return y


def whole_tensor_arithmetic(x):
    r"""TypingError: x is used whole, as if it were a value
      y = x * 2
          ^^^^^
    hint: load a part of it in a loop: for tile in hl.tile(x.shape[0]): ... x[tile, :] ...; in one, all of it is x[:, :]
    """
    y = x * 2
    return y


def whole_tensor_copy(x):
    r"""ParseError: x.clone() copies a whole tensor
      y = x.clone()
          ^^^^^^^^^
    hint: make an output, hl.empty_like(x), and copy it tile by tile
    """
    y = x.clone()
    return y


def computed_outside(x, v):
    r"""ParseError: x is loaded outside of a loop
      row = x[0, :]
            ^^^^^^^
    hint: load it in the loop that uses it, which is one of hl.tile or hl.grid (a range is written out); before the loops only single elements are read
    """
    row = x[0, :]
    for tk in hl.tile(64):
        v[0] = row[tk].sum()
    return v


def stored_outside(x, v):
    r"""ParseError: v is stored to outside of a loop
      v[0] = 1.0
      ^^^^^^^^^^
    hint: write it in a loop of the kernel: for i in hl.grid(1): ...
    """
    v[0] = 1.0
    return v


def data_dependent_shape(x, offsets):
    r"""ParseError: the shape of a tensor is not known while compiling
      y = hl.zeros([offsets[4], x.shape[1]])
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: make it as large as it can become; the loops then fill the part that is needed
    """
    y = hl.zeros([offsets[4], x.shape[1]])
    return y


def float64_output(x):
    r"""TypingError: float64 is not a dtype that a kernel computes with
      y = hl.zeros(x.shape, dtype=torch.float64)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: use float32: the devices have no 64-bit floats
    """
    y = hl.zeros(x.shape, dtype=torch.float64)
    return y


def float_length(x):
    r"""ParseError: a length is 20.0, not a whole number
      y = hl.zeros([x.shape[0] / 2])
          ^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: // divides whole numbers
    """
    y = hl.zeros([x.shape[0] / 2])
    return y


def string_dtype(x):
    r"""TypingError: 'float33' is not a dtype
      y = hl.zeros(x.shape, dtype="float33")
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write hl.float32, hl.bfloat16, hl.int32
    """
    y = hl.zeros(x.shape, dtype="float33")
    return y


def bad_view(x):
    r"""TypingError: reshape: x (float32[40, 64]) does not fit [3, -1]
      y = x.view(3, -1)
          ^^^^^^^^^^^^^
    hint: it has 2560 elements
    """
    y = x.view(3, -1)
    return y


def float64_argument(double):
    r"""ParseError: double is float64, which no kernel computes with
      def float64_argument(double):
                           ^^^^^^
    hint: use float32: the devices have no 64-bit floats
    """
    return double


def array_from_outside(x, v):
    r"""ParseError: an ndarray from outside of the kernel is indexed
      v[i] = TABLE[i]
                   ^
    hint: pass it to the kernel as an argument
    """
    for i in hl.grid(40):
        v[i] = TABLE[i]
    return v


# ---------------------------------------------------------------- loops


def tile_as_bound(x, v):
    r"""ParseError: tile tm is used as the bound of a loop
      for tk in hl.tile(tm):
                ^^^^^^^^^^^
    hint: tm.begin and tm.end are its bounds
    """
    for tm in hl.tile(40):
        for tk in hl.tile(tm):
            v[tm] = 0.0
    return v


def tensor_as_bound(x, v, offsets):
    r"""ParseError: the tensor offsets is used as the bound of a loop
      for tm in hl.tile(offsets):
                ^^^^^^^^^^^^^^^^
    hint: offsets[0] is an element of it, offsets.shape[0] a length
    """
    for tm in hl.tile(offsets):
        v[tm] = 0.0
    return v


def float_bound(x, v):
    r"""TypingError: the bound of a loop is v (float32[])
      for tm in hl.tile(v[0]):
                ^^^^^^^^^^^^^
    hint: a bound is an integer: pass v as int32 or int64
    """
    for tm in hl.tile(v[0]):
        v[tm] = 0.0
    return v


def missing_max_extent(x, v, offsets):
    r"""ParseError: missing max_extent: the extent of tm is not known while compiling
      for tm in hl.tile(offsets[g], offsets[g + 1]):
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: it indexes no dimension that would bound it: hl.tile(..., max_extent=...)
    """
    for g in hl.grid(4):
        total = 0
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            total = total + tm.index.sum()
        v[g] = total.to(hl.float32)
    return v


def extent_behind_a_mask(v, offsets):
    r"""ParseError: missing max_extent: the extent of tm is not known while compiling
      for tm in hl.tile(0, offsets[g]):
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: it indexes no dimension that would bound it: hl.tile(..., max_extent=...)
    """
    for g in hl.grid(4):
        total = 0.0
        for tm in hl.tile(0, offsets[g]):
            total = total + hl.load(v, [tm], mask=tm.index < 40, other=1.0).sum()
        v[g] = total
    return v


def extent_behind_an_if(v, offsets):
    r"""ParseError: missing max_extent: the extent of i is not known while compiling
      for i in hl.grid(offsets[g]):
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: it indexes no dimension that would bound it: hl.grid(..., max_extent=...)
    """
    for g in hl.grid(4):
        total = 0.0
        for i in hl.grid(offsets[g]):
            if i + 1 < 40:
                total = total + v[i + 1]
        v[g] = total
    return v


def wrong_number_of_names(x):
    r"""ParseError: 3 names for 2 axes
      for tm, tk, tn in hl.tile([40, 64]):
          ^^^^^^^^^^
    hint: a list of bounds makes a loop of each: for a, b in hl.tile([n, m])
    """
    for tm in hl.tile([40, 64]):
        x[tm] = 0.0
    for tm, tk, tn in hl.tile([40, 64]):
        x[tm, tk] = 0.0
    return x


def wrong_number_of_bounds(x):
    r"""ParseError: hl.tile with 2 begins and 1 end
    for tm, tk in hl.tile([0, 0], [40]):
                  ^^^^^^^^^^^^^^^^^^^^^
    """
    for tm, tk in hl.tile([0, 0], [40]):
        x[tm, tk] = 0.0
    return x


def three_bounds(x, v):
    r"""ParseError: hl.tile with 3 bounds
      for tm in hl.tile(0, 40, 8):
                ^^^^^^^^^^^^^^^^^
    hint: a length of tiles is a keyword: hl.tile(begin, end, block_size=...)
    """
    for tm in hl.tile(0, 40, 8):
        v[tm] = 0.0
    return v


def unknown_option(x, v):
    r"""ParseError: hl.tile: got an unexpected keyword argument 'step'
      for tm in hl.tile(40, step=8):
                ^^^^^^^^^^^^^^^^^^^
    hint: it takes tile(*bounds, max_extent=None, block_size=None)
    """
    for tm in hl.tile(40, step=8):
        v[tm] = 0.0
    return v


def block_of_zero(x, v):
    r"""ParseError: block_size is 0
      for tm in hl.tile(40, block_size=0):
                ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: it is 1 or more
    """
    for tm in hl.tile(40, block_size=0):
        v[tm] = 0.0
    return v


def one_extent_for_two(x, offsets):
    r"""ParseError: max_extent has 1 value for 2 dimensions
      for tm, tn in hl.tile([0, 0], [offsets[0], 64], max_extent=40):
                    ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: give one for each, or None: max_extent=[..., None]
    """
    for tm, tn in hl.tile([0, 0], [offsets[0], 64], max_extent=40):
        x[tm, tn] = 0.0
    return x


def range_of_rows(x):
    r"""ParseError: x is loaded outside of a loop
      x[i, :] = x[i, :] * 2
                ^^^^^^^
    hint: load it in the loop that uses it, which is one of hl.tile or hl.grid (a range is written out); before the loops only single elements are read
    """
    for i in range(40):
        x[i, :] = x[i, :] * 2
    return x


def grid_with_a_step(x, v):
    r"""ParseError: hl.grid with 3 bounds
      for i in hl.grid(0, 40, 8):
               ^^^^^^^^^^^^^^^^^
    hint: hl.grid has no step: in hl.grid(count) the index is begin + i * step
    """
    for i in hl.grid(0, 40, 8):
        x[i, :] = 0.0
    return x


def range_to_an_index(x):
    r"""ParseError: range has a bound that is not known while compiling
      for j in range(i):
               ^^^^^^^^
    hint: loop with hl.grid(...), or with hl.tile(...) over tiles
    """
    for i in hl.grid(40):
        for j in range(i):
            x[i, j] = 0.0
    return x


def part_up_to_an_index(x):
    r"""ParseError: a slice has bounds that are not known while compiling
      x[i, :i] = 0.0
           ^^
    hint: loop with hl.tile(begin, end) and index with it; of a length that is known, begin + hl.arange(length), or x.reshape(..., length, ...)[i] before the loops
    """
    for i in hl.grid(40):
        x[i, :i] = 0.0
    return x


def atomic_method(x, v):
    r"""ParseError: the tensor v has no attribute atomic_add
      v.atomic_add([tm], x[tm, :].sum(1))
      ^^^^^^^^^^^^
    hint: hl.atomic_add(v, [index], value), with import tilelang.language as hl
    """
    for tm in hl.tile(40):
        v.atomic_add([tm], x[tm, :].sum(1))
    return v


def atomic_method_of_a_part(x, v):
    r"""ParseError: a value of the kernel has no attribute atomic_add
      v[tm].atomic_add(x[tm, :].sum(1))
      ^^^^^^^^^^^^^^^^
    hint: hl.atomic_add(v, [index], value), with import tilelang.language as hl
    """
    for tm in hl.tile(40):
        v[tm].atomic_add(x[tm, :].sum(1))
    return v


def random_like(x):
    r"""ParseError: torch.randn_like is not in the language
      x[tm, :] += torch.randn_like(x[tm, :])
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: pass random numbers as an argument
    """
    for tm in hl.tile(40):
        x[tm, :] += torch.randn_like(x[tm, :])
    return x


def random_of_jax(x):
    r"""ParseError: jax.random.uniform is not in the language
      x[tm, :] += jax.random.uniform(jax.random.key(0), x[tm, :].shape)
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: pass random numbers as an argument
    """
    for tm in hl.tile(40):
        x[tm, :] += jax.random.uniform(jax.random.key(0), x[tm, :].shape)
    return x


def several_at_once(x):
    r"""ParseError: jax.vmap(jnp.sin) is not in the language
      x[tm, :] = jax.vmap(jnp.sin)(x[tm, :])
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write a for loop over hl.grid
    """
    for tm in hl.tile(40):
        x[tm, :] = jax.vmap(jnp.sin)(x[tm, :])
    return x


def module_of_torch(x):
    r"""ParseError: torch.nn.Linear(64, 64) is not in the language
      x[tm, :] = torch.nn.Linear(64, 64)(x[tm, :])
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: pass its weight to the kernel as an argument: F.linear(x[t, :], w[:, :])
    """
    for tm in hl.tile(40):
        x[tm, :] = torch.nn.Linear(64, 64)(x[tm, :])
    return x


def attention_of_torch(x):
    r"""ParseError: torch.nn.functional.scaled_dot_product_attention is not in the language
      x[tm, :] = torch.nn.functional.scaled_dot_product_attention(x[tm, :], x[:, :], x[:, :])
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write its loops, as examples/dense/flash_attention.py does
    """
    for tm in hl.tile(40):
        x[tm, :] = torch.nn.functional.scaled_dot_product_attention(x[tm, :], x[:, :], x[:, :])
    return x


def dynamic_slice_of_jax(jx):
    r"""ParseError: jax.lax.dynamic_slice is not in the language
      y[tm, :] = jax.lax.dynamic_slice(jx, (0, 0), (4, 64))
                 ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: loop with hl.tile(begin, end) and index with it, or with begin + hl.arange(length)
    """
    y = hl.empty_like(jx)
    for tm in hl.tile(40):
        y[tm, :] = jax.lax.dynamic_slice(jx, (0, 0), (4, 64))
    return y


def updates_of_jax(x):
    r"""ParseError: the tensor x has no attribute at
      x.at[tm, :].add(1.0)
      ^^^^
    hint: y[index] = value stores to a tensor, hl.atomic_add(y, [index], value) adds to it
    """
    for tm in hl.tile(40):
        x.at[tm, :].add(1.0)
    return x


def gradient_asked_inside(x):
    r"""ParseError: a value of the kernel has no attribute requires_grad_
      x[tm, :] = x[tm, :].requires_grad_()
                 ^^^^^^^^^^^^^^^^^^^^^^^
    hint: gradients are of the whole kernel: of its arguments, where it is called
    """
    for tm in hl.tile(40):
        x[tm, :] = x[tm, :].requires_grad_()
    return x


def random_in_place(x):
    r"""ParseError: a value of the kernel has no attribute normal_
      x[tm, :] = x[tm, :].normal_()
                 ^^^^^^^^^^^^^^^^
    hint: pass random numbers as an argument
    """
    for tm in hl.tile(40):
        x[tm, :] = x[tm, :].normal_()
    return x


def decreasing_range(x, v):
    r"""ParseError: tm runs from 40 down to 8
      for tm in hl.tile(40, 8):
      ^^^^^^^^^^^^^^^^^^^^^^^^
    hint: the end of a range is not before its begin; blocks of 8 are hl.tile(40, block_size=8)
    """
    for tm in hl.tile(40, 8):
        v[tm] = 0.0
    return v


def too_small_max_extent(x, v):
    r"""ParseError: max_extent=8 is less than the extent 40 of tm
      for tm in hl.tile(40, max_extent=8):
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: leave it out: the extent is known
    """
    for tm in hl.tile(40, max_extent=8):
        v[tm] = 0.0
    return v


def tile_outside_of_for(x):
    r"""ParseError: hl.tile is used outside of a for statement
      tiles = hl.tile(40)
              ^^^^^^^^^^^
    hint: write it in the loop: for i in hl.tile(...):
    """
    tiles = hl.tile(40)
    return x


def range_of_data(x, v, offsets):
    r"""ParseError: range has a bound that is not known while compiling
      for i in range(offsets[g]):
               ^^^^^^^^^^^^^^^^^
    hint: loop with hl.grid(...), or with hl.tile(...) over tiles
    """
    for g in hl.grid(4):
        for i in range(offsets[g]):
            v[i] = 0.0
    return v


def huge_unrolling(x, v):
    r"""ParseError: a Python loop of over 4096 iterations would be unrolled
      for i in range(100000):
               ^^^^^^^^^^^^^
    hint: hl.grid or hl.tile makes a loop in the kernel
    """
    for i in range(100000):
        pass
    return v


def static_range_of_data(x, v, offsets):
    r"""ParseError: a bound of hl.static_range is not known while compiling
      for i in hl.static_range(offsets[g]):
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write a number, or compute it of shapes and of arguments that are no tensors
    """
    for g in hl.grid(4):
        for i in hl.static_range(offsets[g]):
            v[i] = 0.0
    return v


# ---------------------------------------------------------------- indices


def too_many_indices(x, v):
    r"""ParseError: v has 1 dimension and is indexed with 2
    v[tm, :] = 0.0
    ^^^^^^^^^^^^^^
    """
    for tm in hl.tile(40):
        v[tm, :] = 0.0
    return v


def too_few_indices(x, v):
    r"""ParseError: x has 2 dimensions and is indexed with 1
      v[tm] = x[tm].sum(1)
              ^^^^^
    hint: take the rest whole: x[tm, :]
    """
    for tm in hl.tile(40):
        v[tm] = x[tm].sum(1)
    return v


def too_few_indices_of_a_call(x, v):
    r"""ParseError: x has 2 dimensions and is indexed with 1
      v[tm] = hl.load(x, [tm]).sum(1)
              ^^^^^^^^^^^^^^^^
    hint: give one for each, in a list: slice(None) takes a whole dimension
    """
    for tm in hl.tile(40):
        v[tm] = hl.load(x, [tm]).sum(1)
    return v


def tile_of_another_dimension(x, w, v):
    r"""ParseError: tile tm indexes dimension 1 of x, which is 64 long, and dimension 0 of x, which is 40 long
      v[tm] = acc.sum(1) + x[tm, tm].sum(1)
                                 ^^
    hint: if only a part of the longer one is meant, index it with tm.index
    """
    for tm in hl.tile(40):
        acc = hl.zeros([tm, 96])
        for tk in hl.tile(64):
            acc = hl.dot(x[tm, tk], w[tk, :], acc=acc)
        v[tm] = acc.sum(1) + x[tm, tm].sum(1)
    return v


def tile_too_long(x, v):
    r"""ParseError: tile tk runs over [0, 64) and indexes dimension 0 of v, which is 40 long
      v[tk] = x[0, tk]
        ^^
    hint: loop over that dimension: hl.tile(40)
    """
    for tk in hl.tile(64):
        v[tk] = x[0, tk]
    return v


def moved_tile_too_long(x, v):
    r"""ParseError: tile tm runs over [0, 40) and indexes dimension 0 of x, which is 40 long, at positions moved by 1
      v[tm] = x[tm + 1, 0]
                ^^^^^^
    hint: hl.load(x, [tile, ...], mask=...) leaves some out
    """
    for tm in hl.tile(40):
        v[tm] = x[tm + 1, 0]
    return v


def moved_tile_too_long_in_two_parts(x, v):
    r"""ParseError: tile tm runs over [0, 40) and indexes dimension 0 of x, which is 40 long, at positions moved by -2
      v[tm] = x[tm.index - 3 + k, 0]
                ^^^^^^^^^^^^^^^^
    hint: hl.load(x, [tile, ...], mask=...) leaves some out
    """
    for tm in hl.tile(40):
        for k in hl.static_range(1, 4):
            v[tm] = x[tm.index - 3 + k, 0]
    return v


def constant_index_out_of_range(x, v):
    r"""ParseError: index 64 is out of range for dimension 1 of x, which is 64 long
    v[tm] = x[tm, 64]
                  ^^
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, 64]
    return v


def float_index(x, v):
    r"""ParseError: 1.5 is used as an index
      v[tm] = x[tm, 1.5]
                    ^^^
    hint: an index is an int, a tile, a slice, None, or an integer value
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, 1.5]
    return v


def float_value_index(x, v):
    r"""ParseError: x is indexed with a float32 value
      v[tm] = x[v[tm], 0]
                ^^^^^
    hint: indices are integers: index.to(hl.int32)
    """
    for tm in hl.tile(40):
        v[tm] = x[v[tm], 0]
    return v


def mask_index(x, v):
    r"""ParseError: v is indexed with a mask
      v[tm] = v[v[tm] > 0]
                ^^^^^^^^^
    hint: how many there are depends on data; hl.load(v, [tile], mask=...), or hl.store, leaves some out
    """
    for tm in hl.tile(40):
        v[tm] = v[v[tm] > 0]
    return v


def list_index(x, v):
    r"""ParseError: the list [0, 2] is used as an index
      v[tm] = x[tm, [0, 2]].sum(1)
                    ^^^^^^
    hint: an index is an int, a tile, a slice, None, or an integer value
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, [0, 2]].sum(1)
    return v


def string_index(x, v):
    r"""ParseError: 'a' is used as an index
      v[tm] = x[tm, "a"]
                    ^^^
    hint: an index is an int, a tile, a slice, None, or an integer value
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, "a"]
    return v


def whole_tensor_index(x, v, idx):
    r"""ParseError: the whole tensor idx is used as an index
      v[tm] = x[idx, 0]
                ^^^
    hint: index with a part of it: idx[tile]
    """
    for tm in hl.tile(40):
        v[tm] = x[idx, 0]
    return v


def two_gathers(x, v, idx):
    r"""ParseError: two dimensions are indexed with computed positions
      v[tm] = x[idx[tm], idx[tm]].sum(1)
              ^^^^^^^^^^^^^^^^^^^
    hint: one number for each pair is flat[rows * 64 + columns], of flat = x.reshape(-1)
    """
    for tm in hl.tile(40):
        v[tm] = x[idx[tm], idx[tm]].sum(1)
    return v


def two_gathers_of_a_part(x, v, idx):
    r"""ParseError: two dimensions are indexed with computed positions
      v[tm] = heads[idx[tm], idx[tm], :].sum(1)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: reshape the tensor so that one index picks the rows
    """
    heads = x.reshape(40, 8, 8)
    for tm in hl.tile(40):
        v[tm] = heads[idx[tm], idx[tm], :].sum(1)
    return v


def one_number_a_row(x, v, idx):
    r"""TypingError: x_rows (float32[tm, tm]) is stored to a block of v of shape [tm]
      v[tm] = x[tm, idx[tm]]
      ^^^^^^^^^^^^^^^^^^^^^^
    hint: x[t, i[t]] has each position of t with each: one number a row is flat[t.index * N + i[t]], of flat = x.reshape(-1) with rows of N
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, idx[tm]]
    return v


def negative_step(x, v):
    r"""ParseError: a slice has a step of -1
      v[tm] = x[tm, ::-1].sum(1)
                    ^^^^
    hint: load every element and pick those that are needed, or reshape the tensor first
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, ::-1].sum(1)
    return v


def slice_of_tile(x, v):
    r"""ParseError: a slice has bounds that are not known while compiling
      v[tm] = x[tm.begin : tm.end, 0]
                ^^^^^^^^^^^^^^^^^
    hint: index with the tile
    """
    for tm in hl.tile(40):
        v[tm] = x[tm.begin : tm.end, 0]
    return v


def two_ellipses(x, v):
    r"""ParseError: ... stands twice in an index
    v[tm] = x[..., tm, ...]
                       ^^^
    """
    for tm in hl.tile(40):
        v[tm] = x[..., tm, ...]
    return v


def value_indexed(x, v):
    r"""ParseError: a value of the kernel is indexed
      v[tm] = block[:, 0]
                       ^
    hint: of a value, v[:, 8:16] is a part, v[:, None] adds a dimension, v[0] drops one of length 1, and sums under a mask pick elements
    """
    for tm in hl.tile(40):
        block = x[tm, :]
        v[tm] = block[:, 0]
    return v


def part_of_a_tile(x, v):
    r"""TypingError: a part of axis tm of block (float32[tm, 64])
      v[tm] = block[:4, :].sum(1)
                    ^^
    hint: mask what is not meant, with tm.index; or loop over the part: hl.tile(begin, end) instead of tm
    """
    for tm in hl.tile(40):
        block = x[tm, :]
        v[tm] = block[:4, :].sum(1)
    return v


def every_other_of_a_value(x, v):
    r"""ParseError: a slice has a step of 2
      v[tm] = block[:, ::2].sum(1)
                       ^^^
    hint: load every element and pick those that are needed, or reshape the tensor first
    """
    for tm in hl.tile(40):
        block = x[tm, :]
        v[tm] = block[:, ::2].sum(1)
    return v


def part_by_data(x, v, offsets):
    r"""ParseError: a slice has bounds that are not known while compiling
      v[tm] = block[:, offsets[0] :].sum(1)
                       ^^^^^^^^^^^^
    hint: bounds of a part of a value are static: mask what is not meant, with hl.arange of its length
    """
    for tm in hl.tile(40):
        block = x[tm, :]
        v[tm] = block[:, offsets[0] :].sum(1)
    return v


def tile_indexed(x, v):
    r"""ParseError: a tile is indexed
      v[tm] = tm[0]
              ^^^^^
    hint: tm.index[:, None] adds a dimension
    """
    for tm in hl.tile(40):
        v[tm] = tm[0]
    return v


def none_in_store(x, v):
    r"""ParseError: None in the index of a store
      v[tm, None] = 0.0
      ^^^^^^^^^^^^^^^^^
    hint: leave it out
    """
    for tm in hl.tile(40):
        v[tm, None] = 0.0
    return v


# ---------------------------------------------------------------- tiles and values


def tile_in_arithmetic(x, v):
    r"""ParseError: tile tm is used in arithmetic
      v[tm] = tm * 2
              ^^^^^^
    hint: tm.index is its positions, tm.begin the first of them
    """
    for tm in hl.tile(40):
        v[tm] = tm * 2
    return v


def tile_compared(x, v):
    r"""ParseError: tile tm is compared
      v[tm] = hl.where(tm < 8, 0.0, 1.0)
                       ^^^^^^
    hint: compare its positions: tm.index
    """
    for tm in hl.tile(40):
        v[tm] = hl.where(tm < 8, 0.0, 1.0)
    return v


def tile_as_value(x, v):
    r"""TypingError: tile tm is used as a value
      v[tm] = hl.exp(tm)
              ^^^^^^^^^^
    hint: tm.index is the positions that it covers, tm.begin the first of them
    """
    for tm in hl.tile(40):
        v[tm] = hl.exp(tm)
    return v


def unknown_tile_attribute(x, v):
    r"""ParseError: the tile tm has no attribute start
      v[tm.start] = 0.0
        ^^^^^^^^
    hint: a tile has .begin .end .index .id .count .block_size
    """
    for tm in hl.tile(40):
        v[tm.start] = 0.0
    return v


def unknown_method(x, v):
    r"""ParseError: a value of the kernel has no attribute cumulative_sum
    v[tm] = v[tm].cumulative_sum(0)
            ^^^^^^^^^^^^^^^^^^^^
    """
    for tm in hl.tile(40):
        v[tm] = v[tm].cumulative_sum(0)
    return v


def item_of_scalar(x, v, offsets):
    r"""ParseError: a value of the kernel has no attribute item
      v[g] = offsets[g].item()
             ^^^^^^^^^^^^^^^
    hint: a scalar of the kernel is used as it is
    """
    for g in hl.grid(4):
        v[g] = offsets[g].item()
    return v


def functional_update(jx):
    r"""ParseError: jx is the tensor jx before the loop of line N, which changes it
      jx = jx.at[tm, :].set(0.0)
           ^^
    hint: a tensor is changed by a store: jx[index] = value
    """
    for tm in hl.tile(40):
        jx = jx.at[tm, :].set(0.0)
    return jx


def two_axes(x, v):
    r"""TypingError: add combines two different axes: tm of v (float32[tm]) and tn of v (float32[tn])
      v[tm] = v[tm] + v[tn]
              ^^^^^^^^^^^^^
    hint: axes match by name, not by length: index both with the same tile, or put them in different dimensions with v[:, None]
    """
    for tm, tn in hl.tile([40, 40]):
        v[tm] = v[tm] + v[tn]
    return v


def contracts_two_axes(x, w, v):
    r"""TypingError: dot contracts axis tn of x (float32[tm, tn]) with axis tk of w (float32[tk, 96])
      x[tm, tn] = hl.dot(x[tm, tn], w[tk, :])[:, None]
                  ^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: both must run along one axis: index that dimension of w with tn
    """
    for tm, tn, tk in hl.tile([40, 64, 64]):
        x[tm, tn] = hl.dot(x[tm, tn], w[tk, :])[:, None]
    return x


def wrong_store_shape(x, v):
    r"""TypingError: x (float32[tm, 64]) is stored to a block of v of shape [tm]
      v[tm] = x[tm, :]
      ^^^^^^^^^^^^^^^^
    hint: the shapes must match; a dimension of length 1 is repeated
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, :]
    return v


def float_into_ints(x, v, idx):
    r"""TypingError: v (float32[tm]) is stored to idx, which is int32
      idx[tm] = v[tm]
      ^^^^^^^^^^^^^^^
    hint: convert it: value.to(hl.int32)
    """
    for tm in hl.tile(40):
        idx[tm] = v[tm]
    return idx


def into_int64(x, long):
    r"""ParseError: long is stored to, and is int64
      long[tm] = 0
      ^^^^^^^^^^^^
    hint: make it int32: int64 tensors are read only
    """
    for tm in hl.tile(40):
        long[tm] = 0
    return long


def mask_not_bool(x, v, flags):
    r"""TypingError: mask is flags (int32[tm]), not bool
      v[tm] = hl.load(v, [tm], mask=flags[tm])
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: compare it, as in mask=x > 0
    """
    for tm in hl.tile(40):
        v[tm] = hl.load(v, [tm], mask=flags[tm])
    return v


def number_stored_by_name(x, v):
    r"""ParseError: hl.store: missing a required argument: 'value'
      hl.store(v, tm)
      ^^^^^^^^^^^^^^^
    hint: it takes store(tensor, index, value, mask=None)
    """
    for tm in hl.tile(40):
        hl.store(v, tm)
    return v


def changes_jax(jx):
    r"""CallError: jx is stored to, and JAX arrays cannot be changed
      jx[tm, :] = 0.0
      ^^^^^^^^^^^^^^^
    hint: store to a new output, hl.empty_like(jx), and return it
    """
    for tm in hl.tile(40):
        jx[tm, :] = 0.0
    return jx


def changes_jax_through_view(jx):
    r"""CallError: jx is stored to, and JAX arrays cannot be changed
      flat[tm] = 0.0
      ^^^^^^^^^^^^^^
    hint: store to a new output, hl.empty_like(jx), and return it
    """
    flat = jx.reshape(-1)
    for tm in hl.tile(40 * 64):
        flat[tm] = 0.0
    return jx


# ---------------------------------------------------------------- conditions


def vector_condition(x, v):
    r"""ParseError: `if` has a condition of type bool[tm]
      if b > 0:
         ^^^^^
    hint: hl.where(condition, a, b) chooses for each element
    """
    for tm in hl.tile(40):
        b = v[tm]
        if b > 0:
            b = b * 2
        v[tm] = b
    return v


def vector_conditional(x, v):
    r"""ParseError: `if ... else` has a condition of type bool[tm]
      v[tm] = v[tm] if v[tm] > 0 else 0.0
                       ^^^^^^^^^
    hint: hl.where(condition, a, b) chooses for each element
    """
    for tm in hl.tile(40):
        v[tm] = v[tm] if v[tm] > 0 else 0.0
    return v


def vector_and(x, v):
    r"""ParseError: `and` of a value of type bool[tm]
      v[tm] = hl.where(b > 0 and b < 1, b, 0.0)
                       ^^^^^^^^^^^^^^^
    hint: & combines elements: (a > 0) & (b > 0)
    """
    for tm in hl.tile(40):
        b = v[tm]
        v[tm] = hl.where(b > 0 and b < 1, b, 0.0)
    return v


def tensor_condition(x, v):
    r"""ParseError: `if` has the tensor v as its condition
      if v:
         ^
    hint: load an element of it: v[0]
    """
    if v:
        pass
    return v


def tile_condition(x, v):
    r"""ParseError: `if` has the tile tm as its condition
      if tm:
         ^^
    hint: tm.begin, tm.end and tm.id are scalars
    """
    for tm in hl.tile(40):
        if tm:
            v[tm] = 0.0
    return v


def branches_differ(x, v, flags):
    r"""TypingError: s is float32[64] in one branch and float32[] in the other
      s = v[i]
      ^^^^^^^^
    hint: both branches must give it one shape and dtype
    """
    for i in hl.grid(40):
        s = v[i]
        if flags[i] > 0:
            s = x[i, :]
        v[i] = s.sum()
    return v


def host_values_differ(x, v, flags):
    r"""ParseError: activation is another host value in each branch of the `if` of line N
      v[i] = activation(v[i])
             ^^^^^^^^^^
    hint: which branch is taken is not known while compiling: both give values of the kernel
    """
    for i in hl.grid(40):
        activation = torch.exp
        if flags[i] > 0:
            activation = torch.sin
        v[i] = activation(v[i])
    return v


def output_under_condition(x, flags):
    r"""ParseError: a tensor is made under a condition that is not known while compiling
      y = hl.empty_like(x)
          ^^^^^^^^^^^^^^^^
    hint: make it before the `if`
    """
    y = x
    if flags[0] > 0:
        y = hl.empty_like(x)
    return y


# ---------------------------------------------------------------- carried values


def carry_changes_dtype(h):
    r"""TypingError: carried value acc changes from float32[tm, 64] to bfloat16[tm, 64]
      acc = (acc + h[tm, tk].sum(1)[:, None]).to(h.dtype)
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: keep the dtype: acc = (...).to(hl.float32)
    """
    y = hl.empty_like(h)
    for tm in hl.tile(40):
        acc = hl.zeros([tm, 64], dtype=hl.float32)
        for tk in hl.tile(64):
            acc = (acc + h[tm, tk].sum(1)[:, None]).to(h.dtype)
        y[tm, :] = acc
    return y


def carry_changes_shape(x):
    r"""TypingError: carried value acc changes from float32[tm] to float32[tm, tk]
      acc = acc[:, None] + x[tm, tk]
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: a carried value keeps its shape
    """
    y = hl.empty_like(x)
    for tm in hl.tile(40):
        acc = hl.zeros([tm])
        for tk in hl.tile(64):
            acc = acc[:, None] + x[tm, tk]
        y[tm, :] = acc
    return y


def number_becomes_tensor(x, v):
    r"""TypingError: carried value m changes from float32[] to float32[tm]
      m = hl.maximum(m, x[tm, tk].amax(1))
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: begin with its shape: m = hl.full([tm], float('-inf'), dtype=hl.float32)
    """
    for tm in hl.tile(40):
        m = float("-inf")
        for tk in hl.tile(64):
            m = hl.maximum(m, x[tm, tk].amax(1))
        v[tm] = m
    return v


def int_becomes_float(x, v):
    r"""TypingError: carried value s changes from int32[] to float32[]
      s = s + x[i, tk].sum()
      ^^^^^^^^^^^^^^^^^^^^^^
    hint: begin with a float: s = 0.0
    """
    for i in hl.grid(40):
        s = 0
        for tk in hl.tile(64):
            s = s + x[i, tk].sum()
        v[i] = s
    return v


def none_carried(x, v):
    r"""ParseError: s is None before the loop of line N, which changes it
      s = x[i, tk].sum() if s is None else s + x[i, tk].sum()
                            ^
    hint: begin with a number or a value, such as s = hl.zeros([...])
    """
    for i in hl.grid(40):
        s = None
        for tk in hl.tile(64):
            s = x[i, tk].sum() if s is None else s + x[i, tk].sum()
        v[i] = s
    return v


def tuple_carried(x, v):
    r"""ParseError: state is a tuple before the loop of line N, which changes it
      state = (state[0] + x[i, tk].sum(), state[1])
               ^^^^^
    hint: carry what is a value in a variable of its own: not all of it is
    """
    for i in hl.grid(40):
        state = (0.0, "sum")
        for tk in hl.tile(64):
            state = (state[0] + x[i, tk].sum(), state[1])
        v[i] = state[0]
    return v


def tuple_grows(x, v):
    r"""TypingError: carried value state changes from a tuple of 2 values to a tuple of 3 values
      state = (*state, x[i, tk].sum())
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: it must stay as many values, in the same tuples or lists
    """
    for i in hl.grid(40):
        state = (0.0, 1.0)
        for tk in hl.tile(64):
            state = (*state, x[i, tk].sum())
        v[i] = state[0]
    return v


def item_changes_its_type(x, v):
    r"""TypingError: carried value state[0] changes from int32[] to float32[]
      state = [state[0] + x[i, tk].sum()]
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: begin with a float: state[0] = 0.0
    """
    for i in hl.grid(40):
        state = [0]
        for tk in hl.tile(64):
            state = [state[0] + x[i, tk].sum()]
        v[i] = state[0]
    return v


def becomes_none(x, v):
    r"""TypingError: carried value s changes from float32[] to None
      s = None
      ^^^^^^^^
    hint: it must stay a value of one shape and dtype
    """
    for i in hl.grid(40):
        s = 0.0
        for tk in hl.tile(64):
            s = s + 1.0
            s = None
        v[i] = s
    return v


# ---------------------------------------------------------------- calls


def unknown_torch_function(x, v):
    r"""ParseError: torch.sort is not in the language
      v[tm] = torch.sort(v[tm])
              ^^^^^^^^^^^^^^^^^
    hint: sort before the kernel is called
    """
    for tm in hl.tile(40):
        v[tm] = torch.sort(v[tm])
    return v


def unknown_jax_function(x, v):
    r"""ParseError: jnp.cumsum is not in the language
      v[tm] = jnp.cumsum(v[tm])
              ^^^^^^^^^^^^^^^^^
    hint: hl.dot(hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0), v) sums a tile up to each row, and a carry adds the tiles before (docs/language.md)
    """
    for tm in hl.tile(40):
        v[tm] = jnp.cumsum(v[tm])
    return v


def method_of_other_libraries(x, v):
    r"""ParseError: a value of the kernel has no attribute topk
      v[tm] = x[tm, :].topk(1)
              ^^^^^^^^^^^^^
    hint: the greatest are v.amax(1), at = v.argmax(1) says where, and the next ones are those of hl.where(hl.arange(v.shape[1])[None, :] == at[:, None], -float('inf'), v)
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, :].topk(1)
    return v


def unknown_in_language(x, v):
    r"""ParseError: AttributeError: module 'tilelang.language' has no attribute 'rand'
      v[tm] = hl.rand(tm)
              ^^^^^^^
    hint: pass random numbers as an argument
    """
    for tm in hl.tile(40):
        v[tm] = hl.rand(tm)
    return v


def both_of_max(x, v):
    r"""TypingError: a pair of values is used as one value
      v[tm] = v[tm] - x[tm, :].max(dim=1)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: take one of .values and .indices; hl.amax and hl.amin give the values alone
    """
    for tm in hl.tile(40):
        v[tm] = v[tm] - x[tm, :].max(dim=1)
    return v


def unknown_linalg(x, v):
    r"""ParseError: torch.linalg.svd is not in the language
      v[tm] = torch.linalg.svd(x[tm, :])
              ^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: functions written in Python are inlined; docs/language.md lists the operations
    """
    for tm in hl.tile(40):
        v[tm] = torch.linalg.svd(x[tm, :])
    return v


def nonzero(x, v):
    r"""ParseError: torch.nonzero is not in the language
      found = torch.nonzero(v[tm])
              ^^^^^^^^^^^^^^^^^^^^
    hint: how many there are depends on data; use hl.where or a mask
    """
    for tm in hl.tile(40):
        found = torch.nonzero(v[tm])
    return v


def misspelled_function(x, v):
    r"""ParseError: jnp.rad2deg is not in the language
      v[tm] = jnp.rad2deg(v[tm])
              ^^^^^^^^^^^^^^^^^^
    hint: functions written in Python are inlined; docs/language.md lists the operations
    """
    for tm in hl.tile(40):
        v[tm] = jnp.rad2deg(v[tm])
    return v


def loop_combinator(x, v):
    r"""ParseError: jax.lax.fori_loop is not in the language
      v[tm] = jax.lax.fori_loop(0, 3, lambda i, b: b + i, v[tm])
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write a for loop over hl.grid or hl.tile
    """
    for tm in hl.tile(40):
        v[tm] = jax.lax.fori_loop(0, 3, lambda i, b: b + i, v[tm])
    return v


def python_on_value(x, v):
    r"""ParseError: sorted is not in the language
      b = sorted([v[tm], v[tm]])
          ^^^^^^^^^^^^^^^^^^^^^^
    hint: sort before the kernel is called
    """
    for tm in hl.tile(40):
        b = sorted([v[tm], v[tm]])
    return v


def unknown_keyword(x, v):
    r"""TypingError: torch.sum has no argument 'columns' here
      v[tm] = torch.sum(x[tm, :], columns=1)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: it takes sum(x, axis=None, keepdims=False, dtype=None)
    """
    for tm in hl.tile(40):
        v[tm] = torch.sum(x[tm, :], columns=1)
    return v


def not_a_function(x, v, n):
    r"""ParseError: n is called, and is an int
    v[tm] = n(v[tm])
            ^^^^^^^^
    """
    for tm in hl.tile(40):
        v[tm] = n(v[tm])
    return v


def helper_with_wrong_arguments(x, v):
    r"""ParseError: scaled: missing a required argument: 'by'
      v[tm] = scaled(v[tm])
              ^^^^^^^^^^^^^
    hint: it takes scaled(b, by)
    """
    for tm in hl.tile(40):
        v[tm] = scaled(v[tm])
    return v


def scaled(b, by):
    return b * by


def error_in_helper(x, v):
    r"""ParseError: torch.cumsum is not in the language (in wrong_helper, called from line N; in doubly_wrong, called from line N)
      return b + torch.cumsum(b, 0)
                 ^^^^^^^^^^^^^^^^^^
    hint: hl.dot(hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0), v) sums a tile up to each row, and a carry adds the tiles before (docs/language.md)
    """
    for tm in hl.tile(40):
        v[tm] = doubly_wrong(v[tm])
    return v


def wrong_helper(b):
    return b + torch.cumsum(b, 0)


def doubly_wrong(b):
    return wrong_helper(b) * 2


def endless_recursion(x, v):
    r"""ParseError: calls are nested more than 40 deep (in forever, called from line N; in forever, called from line N; in forever, called from line N)
      return forever(b + 1)
             ^^^^^^^^^^^^^^
    hint: a recursion must end on host values, such as shapes
    """
    for tm in hl.tile(40):
        v[tm] = forever(v[tm])
    return v


def forever(b):
    return forever(b + 1)


def number_of_a_ragged_tile(x, offsets):
    r"""ParseError: t.id in a range that does not begin at 0
      y[t, :] = x[t, :] + t.id
                          ^^^^
    hint: t.begin == begin tells the first tile and t.index - begin counts positions; tiles of hl.tile(0, end) have numbers
    """
    y = hl.zeros_like(x)
    for g in hl.grid(4):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] + t.id
    return y


def number_of_a_moved_tile(x, offsets):
    r"""ParseError: t.id of a tile that line N moves to other positions
      last = t.id == t.count - 1
             ^^^^
    hint: t.index counts positions, and t.begin == 0 tells the first tile
    """
    y = hl.zeros_like(x)
    for g in hl.grid(4):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=40):
            last = t.id == t.count - 1
            y[offsets[g] + t.index, :] = hl.where(last, x[offsets[g] + t.index, :], 0)
    return y


def atomic_outside_of_a_loop(x, v):
    r"""ParseError: v is stored to outside of a loop
      hl.atomic_add(v, [0], 1.0)
      ^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write it in a loop of the kernel: for i in hl.grid(1): ...
    """
    hl.atomic_add(v, [0], 1.0)
    return v


def store_of_what_is_turned(x, v):
    r"""TypingError: x (float32[tm, 64]) is stored to a block of y of shape [64, tm]
      y[:, tm] = x[tm, :]
      ^^^^^^^^^^^^^^^^^^^
    hint: turn it: (...).T
    """
    y = hl.zeros([64, 40], dtype=hl.float32)
    for tm in hl.tile(40):
        y[:, tm] = x[tm, :]
    return y


def atomic_of_what_is_left_of_the_tile(x, v):
    r"""TypingError: a value of type float32[tm] is stored to a block of x of shape [64]
      hl.atomic_add(x, [0, slice(None)], x[tm, :].abs().sum(1))
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: tm is no dimension there: index with it, or fold over it
    """
    for tm in hl.tile(40):
        hl.atomic_add(x, [0, slice(None)], x[tm, :].abs().sum(1))
    return x


def atomic_of_another_shape(x, v):
    r"""TypingError: x (float32[tm, 64]) is stored to a block of v of shape [tm]
      hl.atomic_add(v, [tm], x[tm, :])
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: the shapes must match; a dimension of length 1 is repeated
    """
    for tm in hl.tile(40):
        hl.atomic_add(v, [tm], x[tm, :])
    return v


def atomic_in_no_order(x, v):
    """ParseError: hl.atomic_add: sem='ERROR' is no memory order
      hl.atomic_add(v, [tm], v[tm], sem="ERROR")
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: leave it out, or write one of 'relaxed', 'acquire', 'release', 'acq_rel'
    """
    for tm in hl.tile(v.shape[0]):
        hl.atomic_add(v, [tm], v[tm], sem="ERROR")


def atomic_without_a_tensor(x, v):
    r"""ParseError: hl.atomic_max takes a tensor first, not a float
      hl.atomic_max(1.0, [0], v[0])
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: hl.atomic_max(x, [tile], ...)
    """
    for _ in hl.grid(1):
        hl.atomic_max(1.0, [0], v[0])
    return v


def float_of_math(x, v):
    r"""ParseError: math.gamma is not in the language
      v[tm] = math.gamma(v[tm])
              ^^^^^^^^^^^^^^^^^
    hint: functions written in Python are inlined; docs/language.md lists the operations
    """
    for tm in hl.tile(40):
        v[tm] = math.gamma(v[tm])
    return v


def list_comprehension_over_value(x, v):
    r"""ParseError: a value of the kernel is iterated over
      v[tm] = sum([b for b in v[tm]])
                              ^^^^^
    hint: hl.grid and hl.tile loop over lengths that depend on data
    """
    for tm in hl.tile(40):
        v[tm] = sum([b for b in v[tm]])
    return v


def filtered_by_data(x, v):
    r"""ParseError: a comprehension has a condition that is not known while compiling
      v[i] = sum([v[k] for k in range(3) if v[k] > 0])
                                            ^^^^^^^^
    hint: the length of a list is known while compiling; hl.where chooses elements
    """
    for i in hl.grid(40):
        v[i] = sum([v[k] for k in range(3) if v[k] > 0])
    return v


def formatted_value(x, v):
    r"""ParseError: an f-string shows a value of the kernel
      name = f"{v[i]}"
                ^^^^
    hint: format shapes, dtypes and other host values
    """
    for i in hl.grid(40):
        name = f"{v[i]}"
    return v


# ---------------------------------------------------------------- what is returned


def returns_number(x):
    r"""ParseError: 3 is returned
      return 3
      ^^^^^^^^
    hint: a kernel returns tensors: inputs, outputs and views of them
    """
    return 3


def returns_value(x, offsets):
    r"""ParseError: a value is returned
      return offsets[0] + 1
      ^^^^^^^^^^^^^^^^^^^^^
    hint: store it to an output; a kernel returns tensors: inputs, outputs and views of them
    """
    return offsets[0] + 1


def returns_part(x):
    r"""ParseError: a part of y is returned
      return x, y[0]
                ^^^^
    hint: return y, and index what the call gives
    """
    y = hl.empty_like(x)
    for tm in hl.tile(40):
        y[tm, :] = x[tm, :]
    return x, y[0]


def returns_nested(x, v):
    r"""ParseError: a tuple is returned
      return x, (v, v)
      ^^^^^^^^^^^^^^^^
    hint: a kernel returns tensors: inputs, outputs and views of them
    """
    return x, (v, v)


def does_nothing(x):
    r"""ParseError: does_nothing returns nothing and changes no argument
      def does_nothing(x):
      ^^^^^^^^^^^^^^^^^^^^
    hint: return the tensors that it makes
    """
    y = hl.empty_like(x)
    for tm in hl.tile(40):
        y[tm, :] = x[tm, :]


def read_before_and_stored(x, offsets):
    r"""ParseError: offsets is read before the loops, and a loop stores to it
      first = offsets[0]
              ^^^^^^^^^^
    hint: read it inside of the loop that needs it
    """
    first = offsets[0]
    for i in hl.grid(4):
        offsets[i] = 0
    for tm in hl.tile(first, first + 8, max_extent=8):
        x[tm, :] = 0.0
    return x


# ---------------------------------------------------------------- more of the above


def walrus_in_comprehension(x):
    r"""ParseError: := in a comprehension or a lambda
      sizes = [(n := k) for k in range(3)]
                ^^^^^^
    hint: assign it in a statement of its own
    """
    sizes = [(n := k) for k in range(3)]
    return x


def sequences_compared(x, v):
    r"""ParseError: sequences that hold values are compared
      if (v[i], 1) == (0.0, 1):
         ^^^^^^^^^^^^^^^^^^^^^
    hint: compare item by item
    """
    for i in hl.grid(40):
        if (v[i], 1) == (0.0, 1):
            v[i] = 1.0
    return v


def in_list_of_values(x, v):
    r"""ParseError: `in` on values that are not known while compiling
      v[i] = 1.0 if v[i] in (0.0, 1.0) else 0.0
                    ^^^^^^^^^^^^^^^^^^
    hint: compare with each: (a == 0) | (a == 1)
    """
    for i in hl.grid(40):
        v[i] = 1.0 if v[i] in (0.0, 1.0) else 0.0
    return v


def index_read_from_stored(x, idx):
    r"""ParseError: idx is stored to, and this index is read from it
      x[rows, 0] = 1.0
        ^^^^
    hint: read the number first, as in start = idx[...], and add the tile to that
    """
    for i in hl.grid(4):
        for t in hl.tile(5):
            rows = idx[i] + t.index
            idx[i] = 0
            x[rows, 0] = 1.0
    return x


def kernel_in_kernel(x):
    r"""ParseError: the kernel inner_kernel is called inside of a kernel
      return inner_kernel(x)
             ^^^^^^^^^^^^^^^
    hint: call it before this one, and pass what it returns; functions are inlined
    """
    return inner_kernel(x)


def value_unpacked(x, v):
    r"""ParseError: a value of the kernel is iterated over
      a, b = x[tm, :]
      ^^^^
    hint: hl.grid and hl.tile loop over lengths that depend on data
    """
    for tm in hl.tile(40):
        a, b = x[tm, :]
    return v


def value_called(x, v):
    r"""ParseError: v[tm] is called, and is a value of type float32[tm]
    v[tm] = v[tm](1)
            ^^^^^^^^
    """
    for tm in hl.tile(40):
        v[tm] = v[tm](1)
    return v


def out_of_memory_attribute(x, v):
    r"""ParseError: the tensor x has no attribute stride
      y = x.stride(0)
          ^^^^^^^^
    hint: did you mean .size?
    """
    y = x.stride(0)
    return v


def output_dtype_int64(x, long):
    r"""TypingError: int64 is not a dtype that a kernel computes with
      y = hl.zeros_like(long)
          ^^^^^^^^^^^^^^^^^^^
    hint: use int32: int64 tensors are accepted as inputs and read as int32
    """
    y = hl.zeros_like(long)
    return y


def constexpr_tensor(x: hl.constexpr):
    r"""CallError: x is a constant of the kernel, not a tensor
      def constexpr_tensor(x: hl.constexpr):
                           ^^^^^^^^^^^^^^^
    hint: a tensor is a parameter without hl.constexpr: x
    """
    return x


def element_of_value(x, v):
    r"""ParseError: an element of a value is assigned to
      b[0] = 1.0
      ^^^^
    hint: make a new value with hl.where(condition, new, old)
    """
    for tm in hl.tile(40):
        b = v[tm]
        b[0] = 1.0
    return v


def element_of_value_that_is_added_to(x, v):
    r"""ParseError: an element of a value is assigned to
      b[0] += 1.0
      ^^^^
    hint: make a new value with hl.where(condition, new, old)
    """
    for tm in hl.tile(40):
        b = v[tm]
        b[0] += 1.0
    return v


def item_of_tuple_that_is_added_to(x, v):
    r"""ParseError: an item of a tuple is assigned to
      b[0] += 1.0
      ^^^^
    hint: make a new one, or change a list or a dict that the kernel made
    """
    for tm in hl.tile(40):
        b = v[tm], v[tm]
        b[0] += 1.0
    return v


def grid_of_floats(x, v):
    r"""ParseError: the bound of a loop is 2.5, not a whole number
      for i in hl.grid(2.5):
               ^^^^^^^^^^^^
    hint: // divides whole numbers
    """
    for i in hl.grid(2.5):
        v[i] = 1.0
    return v


def operator_of_bools(x, v):
    r"""TypingError: add of bool values
      v[tm] = (v[tm] > 0) + (v[tm] > 1)
              ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: cast first, as in mask.to(hl.int32); & | ^ ~ combine truth values
    """
    for tm in hl.tile(40):
        v[tm] = (v[tm] > 0) + (v[tm] > 1)
    return v


def unary_on_tile(x, v):
    r"""TypingError: tile tm is used as a value
      v[tm] = -tm
              ^^^
    hint: tm.index is the positions that it covers, tm.begin the first of them
    """
    for tm in hl.tile(40):
        v[tm] = -tm
    return v


def two_dtypes_without_promotion(x, v):
    r"""TypingError: float8_e4m3fn and float8_e5m2 have no common dtype
      v[tm] = v[tm].to(hl.float8_e4m3fn) + v[tm].to(hl.float8_e5m2)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: cast both operands to the dtype to compute in, such as .to(hl.float32)
    """
    for tm in hl.tile(40):
        v[tm] = v[tm].to(hl.float8_e4m3fn) + v[tm].to(hl.float8_e5m2)
    return v


def dtype_of_64_bits(x, v):
    r"""TypingError: float64 is not a dtype that a kernel computes with
      v[tm] = v[tm].double()
              ^^^^^^^^^^^^^^
    hint: use float32: the devices have no 64-bit floats
    """
    for tm in hl.tile(40):
        v[tm] = v[tm].double()
    return v


def reshapes_a_tile(x, v):
    r"""TypingError: reshape: x (float32[tm, 64]) does not fit [-1]
      v[tm] = x[tm, :].reshape(-1)
              ^^^^^^^^^^^^^^^^^^^^
    hint: axis tm cannot be split, merged or reordered; reshape the static dimensions only
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, :].reshape(-1)
    return v


def dimension_out_of_range(x, v):
    r"""TypingError: sum: no dimension 2 in a value of 2 dimensions
      v[tm] = x[tm, :].sum(2)
              ^^^^^^^^^^^^^^^
    hint: dimensions are 0 to 1, or -2 to -1
    """
    for tm in hl.tile(40):
        v[tm] = x[tm, :].sum(2)
    return v


def mask_of_rows_alone(x, v):
    r"""TypingError: the mask is a value of type bool[tm], for a block of shape [tm, 64]
      hl.store(x, [tm, slice(None)], 0.0, mask=v[tm] > 0)
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: give it the dimensions that it lacks, of length 1: (...)[:, None]
    """
    for tm in hl.tile(40):
        hl.store(x, [tm, slice(None)], 0.0, mask=v[tm] > 0)
    return v


def mask_of_another_shape(x, v):
    r"""TypingError: the mask is a value of type bool[tm, 64], for a block of shape [tm]
      v[tm] = hl.load(v, [tm], mask=x[tm, :] > 0)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: the shapes must match; a dimension of length 1 is repeated
    """
    for tm in hl.tile(40):
        v[tm] = hl.load(v, [tm], mask=x[tm, :] > 0)
    return v


def other_not_a_number(x, v):
    r"""ParseError: `other` is not a number
      v[tm] = hl.load(v, [tm], mask=v[tm] > 0, other=v[tm])
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: hl.where(mask, value, other) takes any value
    """
    for tm in hl.tile(40):
        v[tm] = hl.load(v, [tm], mask=v[tm] > 0, other=v[tm])
    return v


def missing_index(x, v):
    r"""ParseError: hl.load takes a tensor first, not an int
      v[tm] = hl.load(3, [tm])
              ^^^^^^^^^^^^^^^^
    hint: hl.load(x, [tile], ...)
    """
    for tm in hl.tile(40):
        v[tm] = hl.load(3, [tm])
    return v


def loop_target_is_subscript(x, v):
    r"""ParseError: the target of a loop is a name for each axis
    for v[0] in hl.grid(3):
        ^^^^
    """
    for v[0] in hl.grid(3):
        pass
    return v


def raise_on_data(x, v):
    r"""ParseError: `raise` under a condition that is not known while compiling
      raise ValueError("positive")
      ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: only shapes, dtypes and other host values are checked
    """
    for i in hl.grid(40):
        if v[i] > 0:
            raise ValueError("positive")
    return v


def break_out_of_if(x, v):
    r"""ParseError: break under a condition that is not known while compiling
      break
      ^^^^^
    hint: write an if with both branches, or hl.where
    """
    for i in hl.grid(40):
        if v[i] > 0:
            break
    return v


def kernel_without_tensors(n):
    r"""TypingError: out is used whole, as if it were a value
      return hl.zeros([n]) + 1
             ^^^^^^^^^^^^^^^^^
    hint: return it, and compute with it after the call; else load a part of it in a loop: for tile in hl.tile(out.shape[0]): ... out[tile] ...; in one, all of it is out[:]
    """
    return hl.zeros([n]) + 1


def nested_too_deep_tuple(x, v):
    r"""ParseError: an int is iterated over
      a, (b, c) = x.shape
         ^^^^^^
    hint: a sequence is needed here
    """
    a, (b, c) = x.shape
    return v


def in_place_method(x, v):
    r"""ParseError: a value of the kernel has no attribute add_
      b.add_(1.0)
      ^^^^^^
    hint: values do not change: write v = v.add(...)
    """
    for tm in hl.tile(40):
        b = v[tm]
        b.add_(1.0)
    return v


def slice_of_offsets(x, v, offsets):
    r"""ParseError: a slice has bounds that are not known while compiling
      v[g] = x[offsets[g] : offsets[g + 1], 0].sum()
               ^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: loop with hl.tile(begin, end) and index with it; of a length that is known, begin + hl.arange(length), or x.reshape(..., length, ...)[i] before the loops
    """
    for g in hl.grid(4):
        v[g] = x[offsets[g] : offsets[g + 1], 0].sum()
    return v


def reduce_of_functools(x, v):
    r"""ParseError: functools.reduce is not in the language
      v[tm] = functools.reduce(lambda a, b: a + b, [v[tm]] * 3)
              ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: write a for loop
    """
    for tm in hl.tile(40):
        v[tm] = functools.reduce(lambda a, b: a + b, [v[tm]] * 3)
    return v


def element_of_shape_by_data(x, v, flags):
    r"""ParseError: a tuple is indexed with a value that is not known while compiling
      n = x.shape[flags[i]]
                  ^^^^^^^^
    hint: hl.static_range gives indices that are known while compiling
    """
    for i in hl.grid(40):
        n = x.shape[flags[i]]
    return v


def shape_in_loop_depends_on_data(x, v, offsets):
    r"""TypingError: full: a length is not known while compiling
      acc = hl.zeros([offsets[g]])
            ^^^^^^^^^^^^^^^^^^^^^^
    hint: a shape is made of Python ints and tiles; loop over a data-dependent length
    """
    for g in hl.grid(4):
        acc = hl.zeros([offsets[g]])
    return v


def stores_in_an_expression(x, v):
    r"""ParseError: a function that stores is called in an expression
      v[i] = v[0] + cleared(v, 0)
                    ^^^^^^^^^^^^^
    hint: assign what it returns to a variable, in a statement of its own
    """
    for i in hl.grid(40):
        v[i] = v[0] + cleared(v, 0)
    return v


def cleared(v, at):
    v[at] = 0.0
    return v[at]


def stores_in_a_tuple(x, v):
    r"""ParseError: a function that stores is called in an expression
      a, b = v[0], cleared(v, 0)
                   ^^^^^^^^^^^^^
    hint: assign what it returns to a variable, in a statement of its own
    """
    for i in hl.grid(40):
        a, b = v[0], cleared(v, 0)
    return v


def stores_in_an_argument(x, v):
    r"""ParseError: a function that stores is called in an expression
      b = hl.exp(cleared(v, 0))
                 ^^^^^^^^^^^^^
    hint: assign what it returns to a variable, in a statement of its own
    """
    for i in hl.grid(40):
        b = hl.exp(cleared(v, 0))
    return v


def stores_in_a_condition(x, v):
    r"""ParseError: a function that stores is called in an expression
      if cleared(v, 0) > 0:
         ^^^^^^^^^^^^^
    hint: assign what it returns to a variable, in a statement of its own
    """
    for i in hl.grid(40):
        if cleared(v, 0) > 0:
            v[i] = 1.0
    return v


# ---------------------------------------------------------------- objects that hold values


@dataclasses.dataclass(frozen=True)
class Pair:
    first: object
    second: object

    @property
    def same(self):
        return self.first == self.second


@dataclasses.dataclass
class Checked:
    first: object

    def __post_init__(self):
        self.is_zero = self.first == 0


def objects_compared(x, v):
    r"""ParseError: sequences that hold values are compared
      if Pair(v[i], 1) == Pair(0.0, 1):
         ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: compare item by item
    """
    for i in hl.grid(40):
        if Pair(v[i], 1) == Pair(0.0, 1):
            v[i] = 1.0
    return v


def property_that_compares(x):
    r"""ParseError: `if` has a condition of type bool[tm, 64]
      if Pair(x[tm, :], 0.0).same:
         ^^^^^^^^^^^^^^^^^^^^^^^^
    hint: hl.where(condition, a, b) chooses for each element
    """
    for tm in hl.tile(x.shape[0]):
        if Pair(x[tm, :], 0.0).same:
            x[tm, :] = 1.0
    return x


def object_that_computes_when_it_is_made(x, v):
    r"""ParseError: __post_init__ of Checked is run by Python, on values of the kernel
      v[i] = 1.0 if Checked(v[i]).is_zero else 2.0
                    ^^^^^^^^^^^^^
    hint: pass it host values, or write a function of what it computes
    """
    for i in hl.grid(40):
        v[i] = 1.0 if Checked(v[i]).is_zero else 2.0
    return v


def index_of_a_value(x, v):
    r"""ParseError: a container compares values of the kernel, to find one of them
      v[i] = [v[i], v[0]].index(v[0])
             ^^^^^^^^^^^^^^^^^^^^^^^^
    hint: values are not known while compiling: find things by numbers or names
    """
    for i in hl.grid(40):
        v[i] = [v[i], v[0]].index(v[0])
    return v


def value_as_a_key(x, v):
    r"""ParseError: a container compares values of the kernel, to find one of them
      v[i] = {v[i]: 1.0}[v[i]]
              ^^^^
    hint: values are not known while compiling: find things by numbers or names
    """
    for i in hl.grid(40):
        v[i] = {v[i]: 1.0}[v[i]]
    return v


def value_in_a_set(x, v):
    r"""ParseError: a container compares values of the kernel, to find one of them
      v[i] = len({v[i], v[0]})
                 ^^^^^^^^^^^^
    hint: values are not known while compiling: find things by numbers or names
    """
    for i in hl.grid(40):
        v[i] = len({v[i], v[0]})
    return v


def get_of_a_value(x, v):
    r"""ParseError: a container compares values of the kernel, to find one of them
      v[i] = {0.0: 1.0}.get(v[i], 2.0)
             ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: values are not known while compiling: find things by numbers or names
    """
    for i in hl.grid(40):
        v[i] = {0.0: 1.0}.get(v[i], 2.0)
    return v


# ---------------------------------------------------------------- numbers that no dtype holds


def infinite_integer(x):
    r"""TypingError: -inf does not fit int32
      y = hl.full([x.shape[0]], -math.inf, dtype=hl.int32)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: int32 holds whole numbers from -2147483648 to 2147483647
    """
    y = hl.full([x.shape[0]], -math.inf, dtype=hl.int32)
    return y


def fraction_as_an_integer(x):
    r"""TypingError: 1.5 does not fit int32
      y = hl.full([x.shape[0]], 1.5, dtype=hl.int32)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: int32 holds whole numbers from -2147483648 to 2147483647
    """
    y = hl.full([x.shape[0]], 1.5, dtype=hl.int32)
    return y


def initial_number_too_large(x):
    r"""TypingError: 300 does not fit int8
      y = hl.full([x.shape[0]], 300, dtype=hl.int8)
          ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: int8 is -128 to 127
    """
    y = hl.full([x.shape[0]], 300, dtype=hl.int8)
    return y


def integers_by_zero(flags):
    r"""TypingError: integers are divided by 0
      y[t] = flags[t] // 0
             ^^^^^^^^^^^^^
    hint: convert to float32 before, where inf and nan are meant
    """
    y = hl.empty_like(flags)
    for t in hl.tile(flags.shape[0]):
        y[t] = flags[t] // 0
    return y


def remainder_of_zero(flags):
    r"""TypingError: integers are divided by 0
      y[t] = flags[t] % 0
             ^^^^^^^^^^^^
    hint: convert to float32 before, where inf and nan are meant
    """
    y = hl.empty_like(flags)
    for t in hl.tile(flags.shape[0]):
        y[t] = flags[t] % 0
    return y


def shifted_out(flags):
    r"""TypingError: int32 is shifted by 32
      y[t] = flags[t] << 32
             ^^^^^^^^^^^^^^
    hint: shift by 0 to 31
    """
    y = hl.empty_like(flags)
    for t in hl.tile(flags.shape[0]):
        y[t] = flags[t] << 32
    return y


# ---------------------------------------------------------------- names of something else


def method_that_is_not_called(x, v):
    r"""TypingError: the method sum is used as a value
      v[t] = x[t, :].sum
      ^^^^^^^^^^^^^^^^^^
    hint: call it: .sum(...)
    """
    for t in hl.tile(x.shape[0]):
        v[t] = x[t, :].sum
    return v


def method_in_arithmetic(x, v):
    r"""TypingError: the method sum is used as a value
      v[t] = x[t, :].sum + 1
             ^^^^^^^^^^^^^^^
    hint: call it: .sum(...)
    """
    for t in hl.tile(x.shape[0]):
        v[t] = x[t, :].sum + 1
    return v


def method_as_a_bound(v):
    r"""ParseError: the bound of a loop is the method size
      for t in hl.tile(v.size):
               ^^^^^^^^^^^^^^^
    hint: call it: .size(...); x.shape[0] is a length
    """
    for t in hl.tile(v.size):
        v[t] = 0.0
    return v


def method_as_a_length(v):
    r"""ParseError: a length is the method size
      return hl.zeros([v.size])
             ^^^^^^^^^^^^^^^^^^
    hint: call it: .size(...); x.shape[0] is a length
    """
    return hl.zeros([v.size])


def tile_as_a_dimension(x, v):
    r"""TypingError: sum: the tile t is not a dimension
      v[t] = x[t, :].sum(t)
             ^^^^^^^^^^^^^^
    hint: a dimension is named by its number, such as dim=0 or axis=-1
    """
    for t in hl.tile(x.shape[0]):
        v[t] = x[t, :].sum(t)
    return v


def value_as_a_dimension(x, v):
    r"""TypingError: sum: a value of type float32[] is not a dimension
      v[t] = x[t, :].sum(x[0, 0])
             ^^^^^^^^^^^^^^^^^^^^
    hint: a dimension is named by its number, such as dim=0 or axis=-1
    """
    for t in hl.tile(x.shape[0]):
        v[t] = x[t, :].sum(x[0, 0])
    return v


def loop_named_as_the_one_around(x):
    r"""ParseError: t is the index of the loop of line N around this one too
      for t in hl.tile(x.shape[1]):
          ^
    hint: give each loop a name of its own
    """
    for t in hl.tile(x.shape[0]):
        for t in hl.tile(x.shape[1]):
            x[t, t] = 0.0
    return x


def one_name_for_two_loops(x):
    r"""ParseError: one name is the index of two loops
      for t, t in hl.tile(x.shape):
          ^^^^
    hint: give each loop a name of its own
    """
    for t, t in hl.tile(x.shape):
        x[t, t] = 0.0
    return x


def number_with_a_shape(n):
    r"""ParseError: AttributeError: 'int' object has no attribute 'shape'
      return hl.zeros(n.shape)
                      ^^^^^^^
    hint: an array is needed here, and this is an int: 3
    """
    return hl.zeros(n.shape)


def number_that_is_indexed(v, n):
    r"""ParseError: an int is indexed with a value that is not known while compiling
      v[t] = n[t]
               ^
    hint: pass an array where a kernel loads from its argument
    """
    for t in hl.tile(v.shape[0]):
        v[t] = n[t]
    return v


def program_of_pallas(v):
    r"""ParseError: AssertionError
      v[t] = pl.program_id(0)
             ^^^^^^^^^^^^^^^^
    hint: x[t] loads what a tile covers, y[t] = ... stores it; t.begin and t.index say where
    """
    for t in hl.tile(v.shape[0]):
        v[t] = pl.program_id(0)
    return v


def negated_block(v):
    r"""ParseError: not has a condition of type bool[t]
      v[t] = hl.where(not v[t] > 0, 1.0, 2.0)
                      ^^^^^^^^^^^^
    hint: ~ negates elements: ~(a > 0)
    """
    for t in hl.tile(v.shape[0]):
        v[t] = hl.where(not v[t] > 0, 1.0, 2.0)
    return v


# ---------------------------------------------------------------- ranges and functions


def static_range_of_nothing(v):
    r"""ParseError: hl.static_range takes one to three numbers
    for i in hl.static_range():
             ^^^^^^^^^^^^^^^^^
    """
    for t in hl.tile(v.shape[0]):
        for i in hl.static_range():
            v[t] = v[t] + i
    return v


def static_range_that_stands_still(v):
    r"""ParseError: hl.static_range with a step of 0
    for i in hl.static_range(0, 4, 0):
             ^^^^^^^^^^^^^^^^^^^^^^^^
    """
    for t in hl.tile(v.shape[0]):
        for i in hl.static_range(0, 4, 0):
            v[t] = v[t] + i
    return v


def constexpr_called(v):
    r"""ParseError: hl.constexpr is called
      scale = hl.constexpr(2)
              ^^^^^^^^^^^^^^^
    hint: annotate a parameter with it: def kernel(x, scale: hl.constexpr)
    """
    scale = hl.constexpr(2)
    for t in hl.tile(v.shape[0]):
        v[t] = v[t] * scale
    return v


def value_of_another_shape_is_set(x, w):
    r"""TypingError: w (float32[1, 32]) is stored to a block of out of shape [tm, 64]
      out[tm, :] = w[0:1, 0:32]
      ^^^^^^^^^^^^^^^^^^^^^^^^^
    hint: the shapes must match; a dimension of length 1 is repeated
    """
    out = hl.empty_like(x)
    for tm in hl.tile(x.shape[0]):
        out[tm, :] = w[0:1, 0:32]
    return out


def range_that_falls(v):
    r"""ParseError: t runs from 20 down to 10
      for t in hl.tile(20, 10):
      ^^^^^^^^^^^^^^^^^^^^^^^^
    hint: the end of a range is not before its begin; blocks of 10 are hl.tile(20, block_size=10)
    """
    for t in hl.tile(20, 10):
        v[t] = v[t] + 1
    return v


def method_that_does_not_exist(x):
    r"""ParseError: the tensor x has no attribute softmaxes
      y = x.softmaxes(1)
          ^^^^^^^^^^^
    hint: did you mean .softmax?
    """
    y = x.softmaxes(1)
    return y


def method_that_goes_by_data(x):
    r"""ParseError: the tensor x has no attribute nonzero
      y = x.nonzero()
          ^^^^^^^^^
    hint: how many there are depends on data; use hl.where or a mask
    """
    y = x.nonzero()
    return y
