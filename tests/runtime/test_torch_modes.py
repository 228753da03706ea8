"""Wrapped, traced and odd torch tensors give the result or a sentence, never garbage."""

from __future__ import annotations

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
    "a default device": lambda: under(torch.device("meta")),
    "a dispatch mode": lambda: under(FlopCounterMode(display=False)),
    "a constant in functionalize": lambda: torch.func.functionalize(lambda x: double(X) + x - x)(X),
    "vmap": lambda: torch.func.vmap(double)(X[None])[0],
    "a constant in vmap": lambda: torch.func.vmap(lambda x: double(X) + x - x)(X[None])[0],
}


@pytest.mark.parametrize("case", RIGHT)
def test_right(case):
    torch.testing.assert_close(RIGHT[case](), X * 2)


HINT = "\n  hint: torch.func transforms of kernels are not supported; pass a plain tensor"
CONSTANT = (
    " is tracing, and would keep the result of kernel double as a constant\n"
    "  hint: call the kernel outside of what is traced"
)
NO_DATA = (
    "x is a shape without data, and calling double needs the data\n"
    "  hint: double.source, .lower and .explain take shapes"
)
REFUSED = {
    "functionalised": (
        lambda: torch.func.functionalize(lambda x: double(x))(X),
        "x has no memory to read: it is functionalised" + HINT,
    ),
    "jit.trace": (
        lambda: torch.jit.trace(lambda x: double(x), (X,), check_trace=False),
        "torch.jit.trace" + CONSTANT,
    ),
    "make_fx": (lambda: make_fx(lambda x: double(x))(X), "make_fx" + CONSTANT),
    "make_fx on fakes": (lambda: make_fx(lambda x: double(x), tracing_mode="fake")(X), NO_DATA),
    "fake": (lambda: double(FakeTensorMode().from_tensor(X)), NO_DATA),
    "data among fakes": (lambda: under(FakeTensorMode()), "x has no memory to read: "),
    "meta": (lambda: double(X.to("meta")), NO_DATA),
    "sparse": (
        lambda: double(X.to_sparse()),
        "x is a sparse torch tensor (torch.sparse_coo)\n  hint: pass x.to_dense()",
    ),
    "a wrapper": (
        lambda: double(Wrapper(X)),
        "x has no memory to read: .numpy() is not supported for tensor subclasses." + HINT,
    ),
    "quantised": (
        lambda: double(torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)),
        "x has dtype torch.qint8, which no kernel takes",
    ),
    "grad": (
        lambda: torch.func.grad(lambda x: double(x).sum())(X),
        "kernel double has no backward yet, and x requires grad",
    ),
    "jvp": (
        lambda: torch.func.jvp(double, (X,), (X,)),
        "kernel double has no derivative yet, and x carries a tangent",
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


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_breaks_the_graph(backend):
    torch._dynamo.reset()
    run = torch.compile(Layer(), backend=backend)
    for x in (X, X, X[:11]):
        torch.testing.assert_close(run(x), torch.relu(x) * 3 + x * 2)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="tilelang kernels are no graphs"):
        torch.compile(lambda x: double(x), backend=backend, fullgraph=True)(X)
