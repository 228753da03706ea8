"""One name for a dtype, whichever framework it comes from, and JAX's promotion."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tilelang.language as hl
from tilelang.errors import TypingError
from tilelang.ir import Type, Var
from tilelang.language.build import binary
from tilelang.language.dtypes import REFUSED, SUPPORTED, canonical, is_float8, promote, to_numpy
from tilelang.language.values import const

torch = pytest.importorskip("torch", reason="compares with torch's spellings")

NAMES = sorted(SUPPORTED)


@pytest.mark.parametrize("name", NAMES)
def test_every_framework_has_the_same_name(name):
    ours = getattr(hl, "bool_" if name == "bool" else name)
    theirs = [name, np.dtype(to_numpy(name)), to_numpy(name).type, getattr(jnp, name, None)]
    theirs.append(getattr(torch, name))
    assert [canonical(t) for t in theirs if t is not None] == [name] * 5
    assert all(ours == t for t in theirs if t is not None)
    assert torch.float64 != ours and np.dtype(ours) == to_numpy(name)


def test_python_types_are_32_bits_wide():
    assert [canonical(t) for t in (float, int, bool)] == ["float32", "int32", "bool"]


@pytest.mark.parametrize("obj", [None, 3, "fast", object(), list, np.zeros(3), jnp.float32(1)])
def test_other_objects_are_no_dtype(obj):
    assert canonical(obj) is None


@pytest.mark.parametrize("name", ["int64", "float64", "complex64"])
def test_a_refused_dtype_is_known_by_name(name):
    assert canonical(getattr(torch, name)) == canonical(getattr(np, name)) == name
    assert name in REFUSED


def test_equality_follows_the_name():
    assert hl.bfloat16 == torch.bfloat16 == hl.bfloat16
    assert hl.bfloat16 == ml_dtypes.bfloat16 and hl.bfloat16 != hl.float16
    assert {hl.int32: 1}[hl.DType("int32")] == 1


@pytest.mark.parametrize("a, b", list(itertools.product(NAMES, NAMES)))
def test_promotion_is_that_of_jax(a, b):
    if a != b and "bool" not in (a, b) and (is_float8(a) or is_float8(b)):
        with pytest.raises(TypingError, match="no common dtype"):
            promote(a, b)
        return
    with jax.enable_x64(False):
        assert promote(a, b) == jnp.promote_types(to_numpy(a), to_numpy(b)).name


@pytest.mark.parametrize("dtype", [n for n in NAMES if n not in ("bool", "float8_e5m2")])
@pytest.mark.parametrize("number", [2, 2.5])
def test_numbers_are_weak(dtype, number):
    got = binary("mul", Var("x", Type((3,), dtype)), number, None).type.dtype
    assert got == (jnp.ones(3, to_numpy(dtype)) * number).dtype.name


def test_numbers_take_the_dtype_of_the_other_operand():
    product = binary("mul", Var("x", Type((3,), "bfloat16")), 2, None)
    assert product.args[1] == const(2.0, like="bfloat16")
    assert product.args[1].weak


def test_a_number_alone_is_32_bits_wide():
    assert [const(v).type.dtype for v in (True, 1, 1.0)] == ["bool", "int32", "float32"]
