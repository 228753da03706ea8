"""Objects of the author's mean in a kernel what they mean in Python."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from types import FunctionType

import numpy as np
import pytest
import torch
import triton.language as tl

import tilelang.language as hl
from tilelang.errors import ParseError, TypingError
from tilelang.frontend import inlining

from .run import array, parsed, run

same = np.testing.assert_array_equal


def _next(v):
    return hl.maximum(v, -100.0) + 1


class WithFun:
    """Its attribute is called as that of jax.jit is."""

    def __init__(self, fun):
        self.fun = fun

    def __call__(self, v):
        return self.fun(v) * 2


class Wrapper:
    """A decorator that does more than to call what it wraps."""

    def __init__(self, function):
        functools.update_wrapper(self, function)
        self.function = function

    def __call__(self, v):
        return self.function(v) * 2


@functools.wraps(_next)
def wrapped(v):
    return _next(v) * 2


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fun = _next

    def forward(self, v):
        return self.fun(v) * 2


CALLED = {"fun": WithFun(_next), "wrapper": Wrapper(_next), "wraps": wrapped}


def _apply(x, f):
    y = hl.empty_like(x)
    for t in hl.tile(x.shape[0]):
        y[t] = f(x[t])
    return y


@pytest.mark.parametrize("name", CALLED)
def test_an_object_is_called_by_its_own_call(name):
    x = array(9)
    same(run(_apply, x, CALLED[name]), (x + 1) * 2)


def test_what_a_library_wraps_is_looked_through():
    x = array(9)
    same(run(_apply, x, functools.cache(_next)), x + 1)


def test_a_module_of_torch_is_not_what_one_of_its_parts_is():
    with pytest.raises(ParseError, match="f is not in the language"):
        run(_apply, array(9), Layer())


def of_triton(x):
    y = hl.empty(x.shape, dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        y[t] = tl.exp(x[t])
    return y


def test_what_triton_calls_so_is_of_this_language():
    with pytest.raises(ParseError, match=r"tl\.exp is not in the language") as caught:
        run(of_triton, array(9))
    assert caught.value.hint == "hl.exp, with import tilelang.language as hl"


def test_planted_whatever_wraps_is_looked_through(monkeypatch):
    def is_foreign(fn):
        return not isinstance(fn, FunctionType) or fn.__name__ == "__call__"

    monkeypatch.setattr(inlining, "is_foreign", is_foreign)
    x = array(9)
    for name in ("fun", "wrapper"):
        with pytest.raises(AssertionError):
            same(run(_apply, x, CALLED[name]), (x + 1) * 2)


@dataclass(frozen=True)
class Pair:
    a: object
    b: object

    @property
    def total(self):
        return self.a + self.b

    @functools.cached_property
    def product(self):
        return self.a * self.b


def test_properties_compute_with_values():
    def kernel(x):
        y = hl.empty_like(x)
        for t in hl.tile(x.shape[0]):
            pair = Pair(x[t], x[t] + 1)
            y[t] = pair.total + pair.product
        return y

    x = array(9)
    same(run(kernel, x), 2 * x + 1 + x * (x + 1))


def test_a_chain_of_numbers_of_numpy():
    def kernel(x):
        assert 0 < np.int64(3) < np.int64(5)
        y = hl.empty_like(x)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] if np.int64(7) > np.int64(3) > np.int64(5) else x[t] + 1
        return y

    x = array(9)
    same(run(kernel, x), x + 1)


class Node:
    """An object that leads back to itself."""


@dataclass
class Config:
    scale: float
    owner: object = None


def test_objects_may_hold_each_other():
    config, node = Config(2.0), Node()
    node.config, config.owner = config, [config]

    def kernel(x):
        y = hl.empty_like(x)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] * (node.config.owner[0].scale if hasattr(config, "scale") else 1.0)
        return y

    x = array(9)
    same(run(kernel, x), x * 2)


@pytest.mark.parametrize("framework", ["torch", "jax", "numpy"])
def test_a_device_is_the_same_for_every_framework(framework):
    """One parse serves them all."""

    def kernel(x):
        assert x.device == "device"
        y = torch.empty(x.shape, device=x.device)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t]
        return y

    assert parsed(kernel, array(9), framework=framework).tensors


def test_a_list_that_grows_is_one_list_by_all_of_its_names():
    def kernel(x):
        y = hl.empty_like(x)
        for t in hl.tile(x.shape[0]):
            terms = also = [x[t]]
            terms += [x[t] * 2]
            terms *= 2
            table = other = {"a": x[t]}
            table |= {"b": x[t] * 3}
            y[t] = sum(also) + other["b"]
        return y

    x = array(9)
    same(run(kernel, x), x * 9)


GLOBAL = [1.0]


def test_a_list_from_outside_does_not_grow():
    def kernel(x):
        terms = GLOBAL
        terms += [2.0]
        return x

    with pytest.raises(ParseError, match="a list from outside of the kernel is changed"):
        run(kernel, array(9))
    assert GLOBAL == [1.0]


@dataclass
class Precision:
    """A class that has a dtype, and is none."""

    scale: float
    dtype = np.dtype("float32")


def test_a_class_with_a_dtype_is_made_as_any_other():
    def kernel(x):
        made = Precision(2.0)
        y = hl.empty(x.shape, dtype=made.dtype)
        for t in hl.tile(x.shape[0]):
            y[t] = x[t] * made.scale
        return y

    x = array(9)
    same(run(kernel, x), x * 2)


def test_a_class_with_a_dtype_is_no_dtype():
    with pytest.raises(TypingError, match="is not a dtype"):
        run(_of_a_class, array(9))


def _of_a_class(x):
    return hl.empty(x.shape, dtype=Precision)
