"""The op table: every primitive has a meaning, a cost and an example that runs."""

from __future__ import annotations

import doctest

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as hl
from tilelang.language import dtypes, reduction, values
from tilelang.language.evaluate import compute
from tilelang.language.op import OPS, neutral
from tilelang.language.spellings import HL

UNARY = (
    "neg abs exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid silu gelu_tanh gelu_erf"
    " relu softplus floor ceil round trunc sign isnan isfinite logical_not detach cast"
)
BINARY = (
    "add sub mul div floordiv mod pow minimum maximum eq ne lt le gt ge logical_and logical_or"
    " logical_xor bitwise_and bitwise_or bitwise_xor shift_left shift_right"
)
OTHERS = (
    "where sum max min argmax argmin any all dot expand_dims squeeze transpose reshape broadcast"
    " concat narrow full arange"
)


def run(doc: str, name: str) -> doctest.TestResults:
    scope = {"hl": hl, "np": np, "neutral": neutral, **vars(dtypes), **vars(values)}
    example = doctest.DocTestParser().get_doctest(doc, scope, name, None, 0)
    return doctest.DocTestRunner(verbose=False).run(example)


@pytest.mark.parametrize("name", sorted(HL))
def test_the_example_of_every_public_op_runs(name):
    results = run(getattr(hl, name).__doc__ or "", name)
    assert results.attempted > 0 and results.failed == 0


@pytest.mark.parametrize("name", sorted(OPS))
def test_every_primitive_is_documented_with_an_example(name):
    results = run(OPS[name].doc, name)
    assert results.attempted > 0 and results.failed == 0


@pytest.mark.parametrize(
    "function", [dtypes.promote, dtypes.DType, reduction.neutral, values.const]
)
def test_examples_of_functions(function):
    assert run(function.__doc__ or "", function.__name__).failed == 0


def test_the_table_is_complete():
    assert set(OPS) == {*UNARY.split(), *BINARY.split(), *OTHERS.split()}
    assert all(o.name == name for name, o in OPS.items())
    kinds = {o.kind for o in OPS.values()}
    assert kinds == {"elementwise", "reduce", "contract", "shape", "create"}


@pytest.mark.parametrize(
    "cost, names",
    [
        ("costly", "exp tanh gelu_erf pow sum max dot rsqrt"),
        ("cheap", "add mul where cast eq relu maximum neg transpose"),
        ("free", "expand_dims squeeze broadcast full"),
    ],
)
def test_cost(cost, names):
    assert {OPS[n].cost for n in names.split()} == {cost}


@pytest.mark.parametrize("name", ["sum", "max", "min", "any", "all"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "uint32", "bool"])
def test_neutral_elements_change_nothing(name, dtype):
    if name in ("any", "all"):
        dtype = "bool"
    numpy_dtype = dtypes.to_numpy(dtype)
    value = np.asarray([3], numpy_dtype)
    padded = np.concatenate([value, np.asarray([neutral(name, dtype)], numpy_dtype)])
    attrs = (("axis", 0), ("keepdim", False))
    kept, alone = (compute(name, (v,), dtype, (), attrs) for v in (padded, value))
    assert kept == alone


def test_neutral_of_positions_is_that_of_the_extreme():
    assert neutral("argmax", "int32") == neutral("max", "int32") == -(2**31)
    assert neutral("argmin", "float32") == float("inf")
    assert neutral("max", "float8_e4m3fn") == -448.0


def test_narrow_floats_are_computed_in_float32():
    x = np.asarray([256, 1, 1], ml_dtypes.bfloat16)
    total = compute("sum", (x,), "float32", (), (("axis", 0), ("keepdim", False)))
    assert total == 258  # in bfloat16 each 1 would be lost
    product = compute("mul", (x, x), "bfloat16", (3,), ())
    assert product.dtype == ml_dtypes.bfloat16


def test_a_dot_of_small_integers_accumulates_in_int32():
    ones = np.full((1, 300), 100, np.int8)
    attrs = (("contract", (1, 1)), ("batch", ((), ())))
    assert compute("dot", (ones, ones), "int32", (1, 1), attrs) == 3_000_000


def test_public_ops_accept_bfloat16_arrays():
    x = np.asarray([0, 1], ml_dtypes.bfloat16)
    assert hl.exp(x).dtype == ml_dtypes.bfloat16
    assert hl.dot(x, x).dtype == np.float32
