"""What a wrong expression is told: what is wrong, where, and what to write instead."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang.language as hl
from tilelang.errors import Loc, ParseError, TypingError
from tilelang.ir import Along, Load, Tensor, Type, Var
from tilelang.language.calls import method, operator, resolve
from tilelang.language.handles import BlockHandle, TensorHandle, TileHandle

torch = pytest.importorskip("torch", reason="compares with torch's spellings")

LOC = Loc("kernel.py", 12, 8, 20, "        y = hl.dot(x, w)")


def value(name, *shape, dtype="float32"):
    return Var(name, Type(shape, dtype))


x = Load("x", (Along("tm"), Along("tk")), Type(("tm", "tk"), "float32"))
w = Load("w", (Along("tk"), Along("tn")), Type(("tk", "tn"), "float32"))
acc, wide = value("acc", "tm", 64), value("wide", "tm", 32)
odd = value("odd", "tm", 3)
count, n = value("count", "tm", dtype="int32"), value("n", dtype="int32")
mask = value("mask", "tm", dtype="bool")
scalar = value("scalar")
small = value("small", dtype="uint8")
tm = TileHandle("tm", "tm")
tensor = Tensor("table", (4, 4), "float32", "input", LOC)


def call(fn, *args, **kwargs):
    return lambda: resolve(fn)(LOC, *args, **kwargs)


def of(name, *args, **kwargs):
    return lambda: method(name)(LOC, *args, **kwargs)


def op(symbol, *args):
    return lambda: operator(symbol)(LOC, *args)


CASES = {
    "two axes contracted": (
        call(hl.dot, x, value("w", "tn", "tk")),
        "dot contracts axis tk of x (float32[tm, tk]) with axis tn of w (float32[tn, tk])",
        "both must run along one axis: index that dimension of w with tk",
    ),
    "floats into integers": (
        call(hl.dot, x, w, acc=value("total", "tm", "tn", dtype="int32")),
        "dot: a value of type float32[tm, tn] is added to total (int32[tm, tn]), which has no "
        "fractions",
        "give acc a dtype of floats: dtype=hl.float32",
    ),
    "axis against length": (
        op("@", x, acc),
        "matmul contracts axis tk of x (float32[tm, tk]) with axis tm of acc (float32[tm, 64])",
        "both must run along one axis",
    ),
    "lengths contracted": (
        op("@", acc, value("v", 32, 8)),
        "matmul contracts a dimension of length 64 of acc (float32[tm, 64]) with a dimension of "
        "length 32 of v (float32[32, 8])",
        "a transpose may be missing",
    ),
    "two axes added": (
        op("+", x, w),
        "add combines two different axes: tm of x (float32[tm, tk]) and tk of w (float32[tk, tn])",
        "axes match by name, not by length: index both with the same tile",
    ),
    "two lengths added": (
        op("+", acc, wide),
        "add needs equal lengths: dimension -1 is 64 in acc (float32[tm, 64]) and 32 in wide "
        "(float32[tm, 32])",
        "a dimension of length 1, made by [:, None], is repeated as needed",
    ),
    "axis and length added": (
        op("*", x, acc),
        "mul combines axis tk of x (float32[tm, tk]) with a dimension of length 64 of acc "
        "(float32[tm, 64])",
        "index that dimension of acc with the tile tk too",
    ),
    "bools added": (
        op("+", mask, mask),
        "add of bool values",
        "cast first, as in mask.to(hl.int32); & | ^ ~ combine truth values",
    ),
    "bits of floats": (op("&", acc, 1), "bitwise_and of float32 values", "cast to hl.int32 first"),
    "wrong dimension": (
        call(torch.sum, x, dim=2),
        "sum: no dimension 2 in a value of 2 dimensions",
        "dimensions are 0 to 1, or -2 to -1",
    ),
    "dimension of a scalar": (
        call(jnp.sum, scalar, axis=0),
        "sum: no dimension 0 in a value of 0 dimensions",
        "it has none",
    ),
    "float dimension": (
        call(torch.sum, x, dim=1.0),
        "sum: 1.0 is not a dimension",
        "a dimension is named by its number",
    ),
    "dimension twice": (of("sum", x, (0, -2)), "sum: dimension 0 is given twice", ""),
    "dtype in the place of keepdims": (
        call(jnp.sum, x, 0, "float32"),
        "sum: keepdims='float32'",
        "it is True or False",
    ),
    "unknown keyword": (
        call(jnp.sum, x, where=mask),
        "jnp.sum has no argument 'where' here",
        "it takes sum(x, axis=None, keepdims=False, dtype=None)",
    ),
    "keyword twice": (
        call(torch.sum, x, dim=0, axis=0),
        "torch.sum: 'axis' is given twice",
        "it takes sum(x, axis=None, keepdims=False, dtype=None)",
    ),
    "missing argument": (
        call(torch.exp),
        "torch.exp: missing a required argument: 'x'",
        "it takes exp(x)",
    ),
    "mean of integers": (
        call(torch.mean, count, 0),
        "mean of count (int32[tm]): not a float",
        "cast first: x.to(hl.float32)",
    ),
    "softmax of integers": (
        of("softmax", count, 0),
        "softmax of count (int32[tm]): not a float",
        "cast first: x.to(hl.float32)",
    ),
    "float64": (
        of("to", x, torch.float64),
        "float64 is not a dtype that a kernel computes with",
        "use float32: the devices have no 64-bit floats",
    ),
    "int64": (
        call(torch.zeros, 3, dtype=torch.int64),
        "int64 is not a dtype that a kernel computes with",
        "use int32: int64 tensors are accepted as inputs and read as int32",
    ),
    "complex64": (
        call(jnp.zeros, (3,), jnp.complex64),
        "complex64 is not a dtype that a kernel computes with",
        "keep the real and the imaginary part in two float32 tensors",
    ),
    "no dtype": (of("astype", x, "fast"), "'fast' is not a dtype", "write hl.float32"),
    "float8 and float32": (
        op("+", value("q", "tm", dtype="float8_e4m3fn"), value("r", "tm")),
        "float8_e4m3fn and float32 have no common dtype",
        "cast both operands to the dtype to compute in",
    ),
    "data-dependent shape": (
        call(hl.zeros, [n]),
        "full: a length is not known while compiling",
        "a shape is made of Python ints and tiles; loop over a data-dependent length",
    ),
    "block size as a length": (
        call(hl.zeros, [BlockHandle("rows")]),
        "full: block size rows does not say which axis",
        "use the tile: hl.zeros([tile], dtype=hl.float32)",
    ),
    "string as a length": (call(hl.zeros, ["tm"]), "full: 'tm' is not a length", "lengths are"),
    "merged axes": (
        of("reshape", x, -1),
        "reshape: x (float32[tm, tk]) does not fit [-1]",
        "axes tm, tk cannot be split, merged or reordered; reshape the static dimensions only",
    ),
    "split axis": (
        of("view", value("y", "tm"), 4, -1),
        "reshape: y (float32[tm]) does not fit [4, -1]",
        "axis tm cannot be split, merged or reordered; reshape the static dimensions only",
    ),
    "wrong product": (
        of("reshape", acc, [tm, 8, 9]),
        "reshape: acc (float32[tm, 64]) does not fit [tm, 8, 9]",
        "the lengths between its tile axes must multiply to the same",
    ),
    "wrong size": (
        of("reshape", value("q", 4, 6), 5, 5),
        "reshape: q (float32[4, 6]) does not fit [5, 5]",
        "it has 24 elements",
    ),
    "mm of a vector": (
        call(torch.mm, x, value("z", "tk")),
        "mm needs values of 2 dimensions, not z (float32[tk])",
        "matmul or @ takes any number of dimensions",
    ),
    "batches of different ranks": (
        op("@", value("a", 2, "h", "tm", 64), value("b", 2, 64, 8)),
        "matmul: a (float32[2, h, tm, 64]) and b (float32[2, 64, 8]) have different numbers of "
        "dimensions",
        "add the missing batch dimensions with [None]",
    ),
    "batches of different lengths": (
        op("@", value("a", 2, "tm", 64), value("b", 3, 64, 8)),
        "matmul pairs a dimension of length 2 of a (float32[2, tm, 64]) with a dimension of "
        "length 3 of b (float32[3, 64, 8])",
        "the lengths must be equal",
    ),
    "where of a number": (
        call(jnp.where, x, 1.0, 0.0),
        "where: the condition is x (float32[tm, tk]), not bool",
        "compare it, as in hl.where(x != 0, ...)",
    ),
    "einsum of three": (
        call(jnp.einsum, "ij,jk,kl->il", x, w, w),
        "einsum of 3 operands",
        "combine two at a time",
    ),
    "einsum rank": (
        call(torch.einsum, "ijk,jk->ik", x, w),
        "einsum: 'ijk' names 3 dimensions of x (float32[tm, tk])",
        "",
    ),
    "cat along a tile": (
        call(torch.cat, [x, x], 0),
        "cat along axis tm of x (float32[tm, tk])",
        "the length of a tile is not known; cat along a static dimension",
    ),
    "part of a tile": (
        call(torch.narrow, x, 0, 0, 2),
        "a part of axis tm of x (float32[tm, tk])",
        "mask what is not meant, with tm.index; or loop over the part: hl.tile(begin, end) instead "
        "of tm",
    ),
    "part out of range": (
        call(torch.narrow, acc, 1, 60, 8),
        "narrow: 60 to 68 of dimension 1 of acc (float32[tm, 64]), which is 64 long",
        "",
    ),
    "part of an unknown length": (
        call(torch.narrow, acc, 1, 0, 1.5),
        "narrow: a part whose bounds are not known while compiling",
        "begin and length are ints, or lengths of dimensions",
    ),
    "chunks of a tile": (
        call(torch.chunk, x, 2),
        "chunk: axis tm of x (float32[tm, tk]) is a tile",
        "loop over the parts: hl.tile(begin, end) instead of tm",
    ),
    "no chunks": (
        call(torch.chunk, acc, 0, 1),
        "chunk: 0 parts",
        "how many is an int, at least 1",
    ),
    "lengths of parts": (
        call(torch.split, acc, [60, 8], 1),
        "split: parts of 60, 8 of dimension 1 of acc (float32[tm, 64]), which is 64 long",
        "",
    ),
    "length of a part": (
        call(torch.split, acc, 0, 1),
        "split: parts of 0",
        "an int above 0, or a list of ints that add up to the length of the dimension",
    ),
    "equal parts": (
        call(jnp.split, acc, 3, 1),
        "split: 3 of dimension 1 of acc (float32[tm, 64]), which is 64 long",
        "how many equal parts, an int that divides the length, or where parts begin, in order",
    ),
    "halves": (
        call(hl.glu, odd),
        "glu of dimension 1 of odd (float32[tm, 3]), which is 3 long",
        "its length is even: half of it gates the other half",
    ),
    "stack of different shapes": (
        call(torch.stack, [acc, wide]),
        "cat along dimension 0: a value of type float32[1, tm, 64] and a value of type "
        "float32[1, tm, 32] do not fit",
        "all other dimensions must be the same",
    ),
    "squeeze of a tile": (
        of("squeeze", acc, 0),
        "squeeze: dimension 0 of acc (float32[tm, 64]) is tm, not 1",
        "",
    ),
    "ambiguous max": (
        of("max", x, 1),
        "x.max(1) means (values, indices) in torch and the values in JAX",
        "write x.amax(1), x.max(dim=1) or x.max(axis=1)",
    ),
    "ambiguous var": (
        of("var", x, 1),
        "x.var(...) means division by n - 1 in torch and by n in JAX",
        "write x.var(..., correction=1) or x.var(..., correction=0)",
    ),
    "argmax of all": (
        call(hl.argmax, x),
        "argmax over all dimensions of x (float32[tm, tk])",
        "give one: argmax(x, dim=-1)",
    ),
    "tile as a value": (
        op("+", count, tm),
        "tile tm is used as a value",
        "tm.index is the positions that it covers, tm.begin the first of them",
    ),
    "tensor as a value": (
        call(hl.exp, TensorHandle(tensor)),
        "table is used whole, as if it were a value",
        "load a part of it in a loop: for tile in hl.tile(table.shape[0]): ... table[tile, :] ...; "
        "in one, all of it is table[:, :]",
    ),
    "string as a value": (
        op("+", x, "a"),
        "the string 'a' is used as a value",
        "values are loaded from tensors, made by hl.full and hl.arange, or Python numbers",
    ),
    "None as a value": (
        call(hl.exp, None),
        "a NoneType is used as a value",
        "values are loaded from tensors",
    ),
    "number too large": (op("+", small, 300), "300 does not fit uint8", "uint8 is 0 to 255"),
    "number over int32": (
        op("+", n, 2**31),
        "2147483648 does not fit int32",
        "int32 is -2147483648 to 2147483647",
    ),
    "negative power": (op("**", n, -1), "an integer to the power -1", "make the base a float"),
    "cdiv of floats": (call(hl.cdiv, x, 2), "cdiv of float32", "it counts, and takes integers"),
    "clamp without bounds": (call(hl.clamp, x), "clamp needs a min, a max or both", ""),
    "unknown gelu": (
        call(torch.nn.functional.gelu, x, approximate="fast"),
        "gelu: approximate='fast'",
        'it is "none" or "tanh"',
    ),
    "arange of data": (
        call(torch.arange, n),
        "arange: the length is not known while compiling",
        "tile.index is the positions of a tile",
    ),
    "expand of a tile": (
        of("expand", x, 3, 3),
        "broadcast: dimension 0 of x (float32[tm, tk]) is tm, not 1 or 3",
        "only dimensions of length 1 are repeated",
    ),
    "integer division in lax": (
        call(jax.lax.div, n, n),
        "jax.lax.div of integers rounds towards zero",
        "write x // y, which rounds down",
    ),
    "zeros_like of a tensor": (
        call(torch.zeros_like, TensorHandle(tensor)),
        "a value as large as the whole tensor table",
        "in a loop, make a value of a tile's shape: hl.zeros([tile, 64])",
    ),
    "product with a scalar": (
        op("@", x, scalar),
        "matmul: scalar (float32[]) is a scalar",
        "use * to scale by a number",
    ),
    "dimension numbers that are none": (
        call(jax.lax.dot_general, x, w, ((1,), (0,))),
        "dot_general: dimension numbers ((1,), (0,))",
        "write (((1,), (0,)), ((), ())): contracting dimensions, then batch dimensions",
    ),
    "a dimension number twice": (
        call(jax.lax.dot_general, x, w, (((1, 1), (0, 0)), ((), ()))),
        "dot_general: dimensions [1, 1] of x (float32[tm, tk])",
        "each is named once, from 0",
    ),
    "einsum with a label twice": (
        call(jnp.einsum, "mm,kn->mn", x, w),
        "einsum: 'mm' repeats a label",
        "",
    ),
    "t of a cube": (
        of("t", value("cube", 2, 3, 4)),
        "t: cube (float32[2, 3, 4]) is not a matrix",
        "write x.mT",
    ),
    "stack of one value": (
        call(torch.stack, x),
        "stack needs a list of values",
        "hl.stack([a, b], dim=0)",
    ),
    "cat of nothing": (
        call(torch.cat, []),
        "cat needs a list of values",
        "hl.cat([a, b], dim=-1)",
    ),
    "two lengths left open": (
        of("reshape", wide, -1, -1),
        "reshape: only one length can be -1",
        "",
    ),
    "arange that stands still": (call(jnp.arange, 0, 4, 0), "arange: a step of 0", ""),
    "matrix norm": (
        call(torch.linalg.norm, x, ord=2),
        "norm: ord=2 over several dimensions of x (float32[tm, tk]) is a matrix norm",
        "give one dim, or leave ord out",
    ),
    "norm of another order": (
        call(torch.linalg.norm, x, ord=3, dim=1),
        "norm: ord=3",
        "it is 1, 2, inf or -inf",
    ),
    "limits of floats as integers": (
        call(jnp.iinfo, hl.float32),
        "iinfo of float32",
        "finfo has the limits of floats",
    ),
    "pieces of a tile": (
        call(torch.chunk, x, 2, dim=0),
        "chunk: axis tm of x (float32[tm, tk]) is a tile",
        "loop over the parts: hl.tile(begin, end) instead of tm",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_message(case):
    build, what, hint = CASES[case]
    with pytest.raises(TypingError) as caught:
        build()
    assert caught.value.what == what
    assert bool(hint) == bool(caught.value.hint)
    assert hint in caught.value.hint
    assert caught.value.loc == LOC
    assert str(caught.value).startswith(
        f'{what}\n  File "kernel.py", line 12\n    y = hl.dot(x, w)'
    )


def test_a_loop_outside_of_a_kernel():
    with pytest.raises(ParseError) as caught:
        hl.tile(3)
    assert caught.value.what == "hl.tile is used outside of a kernel"
    assert "@tilelang.kernel" in caught.value.hint


def test_an_op_on_a_float64_array():
    with pytest.raises(TypingError, match="an array of float64"):
        hl.exp(np.zeros(3))
