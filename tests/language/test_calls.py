"""Calls are resolved by identity, lazily, and without importing any framework."""

from __future__ import annotations

import builtins
import math
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang.language as hl
from tilelang.errors import Loc
from tilelang.ir import Apply, Const, Type, Var
from tilelang.language.calls import (
    created,
    creation,
    creation_method,
    marker,
    method,
    operator,
    property_of,
    resolve,
)
from tilelang.language.handles import TileHandle

torch = pytest.importorskip("torch", reason="compares with torch's spellings")

LOC = Loc("kernel.py", 1, 0, 1, "x")
x = Var("x", Type(("tm", 4), "float32"))
SAME = {
    "exp": [hl.exp, torch.exp, jnp.exp, jax.lax.exp, np.exp, math.exp],
    "rsqrt": [hl.rsqrt, torch.rsqrt, jax.lax.rsqrt],
    "silu": [hl.silu, torch.nn.functional.silu, jax.nn.silu, jax.nn.swish],
    "sigmoid": [hl.sigmoid, torch.sigmoid, jax.nn.sigmoid, jax.lax.logistic],
    "relu": [hl.relu, torch.relu, torch.nn.functional.relu, jax.nn.relu],
    "abs": [hl.abs, torch.abs, jnp.abs, jnp.absolute, builtins.abs],
}


@pytest.mark.parametrize("op", SAME)
def test_spellings_of_one_op_build_one_expression(op):
    built = [resolve(f)(LOC, x) for f in SAME[op]]
    assert built == [Apply(op, (x,), x.type)] * len(built)
    assert built[0].loc == LOC


def test_what_is_not_in_the_language():
    for obj in (torch.sort, jnp.fft, np.linalg.inv, print, len, range, object(), None, 3):
        assert resolve(obj) is None
    assert method("sort") is None and method("item") is None
    assert property_of("grad") is None


def test_dtypes_are_casts():
    for obj in (jnp.bfloat16, hl.bfloat16):
        assert resolve(obj)(LOC, x).type.dtype == "bfloat16"
    assert resolve(float)(LOC, Var("i", Type((), "int32"))).type.dtype == "float32"


def test_frameworks_that_come_later_are_found():
    code = """
import sys
import tilelang.language as hl
from tilelang.language.calls import resolve
assert resolve(hl.exp).name == "hl.exp"
assert not {"jax", "torch"} & set(sys.modules)
import torch
assert resolve(torch.exp).name == "torch.exp" and "jax" not in sys.modules
import jax
assert resolve(jax.numpy.exp).name == "jnp.exp" and resolve(torch.exp).name == "torch.exp"
assert resolve(jax.nn.gelu).name == "jax.nn.gelu"
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_markers():
    assert [marker(m) for m in (hl.tile, hl.grid, hl.load, hl.store, hl.constexpr)] == [
        "tile",
        "grid",
        "load",
        "store",
        "constexpr",
    ]
    assert marker(hl.exp) is None and resolve(hl.tile) is None


@pytest.mark.parametrize(
    "obj, kind",
    [
        (hl.zeros, "zeros"),
        (torch.empty, "empty"),
        (torch.full_like, "full_like"),
        (jnp.zeros, "zeros"),
        (jnp.ones_like, "ones_like"),
        (jax.lax.full, "full"),
        (np.empty, "empty"),
        (torch.exp, None),
        (print, None),
    ],
)
def test_creation(obj, kind):
    assert creation(obj) == kind


def test_creation_arguments_of_every_spelling():
    tile = TileHandle("tm", "tm")
    asked = [
        created(LOC, "zeros", ([tile, 4],), {"dtype": torch.bfloat16}),
        created(LOC, "zeros", (tile, 4), {"dtype": "bfloat16", "device": "cpu"}),
        created(LOC, "zeros", ((tile, 4), jnp.bfloat16), {}),
        created(LOC, "zeros", (), {"size": (tile, 4), "dtype": hl.bfloat16}),
    ]
    assert {(a.shape, a.fill, a.dtype) for a in asked} == {((tile, 4), 0, "bfloat16")}


def test_creation_defaults():
    assert created(LOC, "empty", (3, 4), {}).dtype == "float32"
    assert created(LOC, "empty", (3, 4), {}).fill is None
    assert created(LOC, "full", ([3], 7), {}).dtype == "int32"
    assert created(LOC, "full", (), {"size": [3], "fill_value": 7.0}).dtype == "float32"
    like = created(LOC, "full_like", (x, 2), {})
    assert (like.shape, like.dtype, like.like) == (None, None, x)
    assert creation_method("new_zeros") == "new_zeros" and creation_method("sum") is None
    assert created(LOC, "new_zeros", (x, 3, 4), {}).shape == (3, 4)


def test_creation_of_values():
    tile = TileHandle("tm", "tm")
    zeros = resolve(hl.zeros)(LOC, [tile, 8], dtype=hl.float32)
    assert zeros == Apply("full", (), Type(("tm", 8), "float32"), (("value", 0.0),))
    like = resolve(torch.full_like)(LOC, x, float("-inf"))
    assert like == Apply("full", (), x.type, (("value", float("-inf")),))
    scale = Var("scale", Type((), "float32"))
    assert resolve(jnp.full)(LOC, (tile,), scale).args == (scale,)


def test_properties():
    assert property_of("shape")(LOC, x) == (TileHandle("tm", "tm"), 4)
    assert property_of("dtype")(LOC, x) == torch.float32
    assert property_of("ndim")(LOC, x) == 2
    assert property_of("T")(LOC, x).type.shape == (4, "tm")
    assert method("size")(LOC, x, 1) == 4 and method("dim")(LOC, x) == 2


def test_limits_of_dtypes():
    assert resolve(torch.finfo)(LOC, hl.float32).max == np.finfo(np.float32).max
    assert resolve(jnp.iinfo)(LOC, jnp.int8).min == -128


def test_python_min_and_max_of_scalars():
    a, b = Var("a", Type((), "int32")), Var("b", Type((), "int32"))
    smallest = resolve(min)(LOC, a, b, 7)
    assert smallest.op == "minimum" and smallest.args[0].op == "minimum"
    assert resolve(max)(LOC, a, b) == Apply("maximum", (a, b), Type((), "int32"))


def test_operations_on_numbers_are_computed():
    assert operator("+")(LOC, 2, 3) == Const(5, Type((), "int32"), weak=True)
    assert operator("/")(LOC, 1, 4) == Const(0.25, Type((), "float32"), weak=True)
    assert operator("<")(LOC, 1, 2) == Const(True, Type((), "bool"), weak=True)


def test_logic_of_bools_and_bits_of_integers():
    mask, bits = Var("m", Type((4,), "bool")), Var("i", Type((4,), "int32"))
    assert operator("&")(LOC, mask, mask).op == "logical_and"
    assert operator("&")(LOC, bits, 3).op == "bitwise_and"
    assert operator("~")(LOC, mask).op == "logical_not"
    assert operator("and")(LOC, bits, mask).args[0].op == "cast"
