"""Wrapped, traced and odd torch tensors give the result or a sentence, never garbage."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import tilelang as tile
import tilelang.language as hl

X = torch.randn(40, 24, generator=torch.Generator().manual_seed(0))


@tile.kernel
def double(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * 2.0
    return y


@tile.kernel
def scaled(x, w):
    y = hl.empty(x.shape, dtype=hl.float32)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :] * w[:].to(hl.float32)[None, :]
    return y


@pytest.fixture(scope="module", autouse=True)
def compiled():
    """Every call below finds a launch that was made for plain tensors of the same key."""
    double(X)


class Plain(torch.Tensor):
    pass


class Nothing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class Wrapper(torch.Tensor):
    """A tensor without memory around another."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)
        made.inner = inner
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return Wrapper(func(*(a.inner if isinstance(a, Wrapper) else a for a in args)))


def under(mode, call=lambda: double(X)):
    with mode:
        return call()


RIGHT = {
    "a subclass": lambda: double(X.as_subclass(Plain)),
    "conjugated": lambda: -double(torch.complex(X, X).conj().imag),
    "negative bit": lambda: -double(torch._neg_view(X)),
    "a function mode": lambda: under(Nothing()),
    "a wrapper": lambda: double(Wrapper(X)).inner,
    "functionalised": lambda: torch.func.functionalize(lambda x: double(x))(X),
    "batched": lambda: torch.func.vmap(double)(X[None])[0],
    "jit.trace": lambda: torch.jit.trace(lambda x: double(x), (X + 1,))(X),
    "make_fx": lambda: make_fx(lambda x: double(x))(X + 1)(X),
    "make_fx on fakes": lambda: make_fx(lambda x: double(x), tracing_mode="fake")(X + 1)(X),
    "a default device": lambda: under(torch.device("meta")),
    "a dispatch mode": lambda: under(FlopCounterMode(display=False)),
    "a constant in functionalize": lambda: torch.func.functionalize(lambda x: double(X) + x - x)(X),
    "vmap": lambda: torch.func.vmap(double)(X[None])[0],
    "a constant in vmap": lambda: torch.func.vmap(lambda x: double(X) + x - x)(X[None])[0],
}


@pytest.mark.parametrize("case", RIGHT)
def test_right(case):
    torch.testing.assert_close(RIGHT[case](), X * 2)


@pytest.mark.parametrize("dtype", [ml_dtypes.bfloat16, np.float16], ids=lambda d: d.__name__)
def test_arrays_of_numpy_beside_traced_tensors(dtype):
    """Of dtypes that torch has by another name, and of memory that nobody may write to."""
    w = np.arange(24).astype(dtype)
    w.flags.writeable = False
    wanted = X * torch.arange(24.0)
    torch.testing.assert_close(make_fx(lambda x: scaled(x, w))(X + 1)(X), wanted)
    torch.testing.assert_close(torch.func.vmap(lambda x: scaled(x, w))(X[None])[0], wanted)


def test_shapes_need_no_data():
    """Neither JAX nor a plan: a kernel that was never called, so that nothing of it is there."""
    mode = FakeTensorMode()
    fresh = tile.kernel(double._fn)
    for value in (mode.from_tensor(X), X.to("meta")):
        y = fresh(value)
        assert (type(y), y.shape, y.dtype, y.device) == (
            type(value), X.shape, X.dtype, value.device,
        )  # fmt: skip
    assert fresh.stats().compiles == 0


REFUSED = {
    "sparse": (
        lambda: double(X.to_sparse()),
        "x is a sparse torch tensor (torch.sparse_coo)\n  hint: pass x.to_dense()",
    ),
    "quantised": (
        lambda: double(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)),
        "x has dtype torch.qint8, which no kernel takes",
    ),
    "jvp": (
        lambda: torch.func.jvp(double, (X,), (X,)),
        "kernel double has no derivative in forward mode, and x carries a tangent\n"
        "  hint: use reverse mode: backward(), torch.func.grad, torch.func.vjp",
    ),
    "a list of tensors": (
        lambda: double([X]),
        "x is a list that holds tensors\n  hint: give each tensor a parameter of its own",
    ),
    "a tuple of tensors": (
        lambda: double(((X,), 1)),
        "x is a tuple that holds tensors\n  hint: give each tensor a parameter of its own",
    ),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, message = REFUSED[case]
    with pytest.raises(tile.CallError) as caught:
        call()
    assert str(caught.value).startswith(message)


class Layer(torch.nn.Module):
    factor = 3.0

    @tile.kernel
    def scaled(self, x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for tm, tn in hl.tile(x.shape):
            y[tm, tn] = x[tm, tn] * self.factor
        return y

    def forward(self, x):
        return self.scaled(torch.relu(x)) + double(x)


def test_data_among_fakes_is_refused_by_torch():
    with pytest.raises(AssertionError, match="Please convert all Tensors to FakeTensors first"):
        under(FakeTensorMode())
