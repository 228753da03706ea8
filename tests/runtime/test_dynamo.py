"""torch.compile(fullgraph=True): what a call is given besides tensors, and that it is guarded."""

from __future__ import annotations

import pytest
import torch

import tilelang as tile
import tilelang.language as hl
from tilelang.schedule.config import Config

X = torch.randn(24, 16, generator=torch.Generator().manual_seed(0))


@tile.kernel
def applied(x, f: hl.constexpr = hl.relu):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = f(x[t, :])
    return y


@tile.kernel
def both(x, functions: hl.constexpr):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = functions[0](x[t, :]) * 2.0 + functions[1](x[t, :])
    return y


@tile.kernel
def affine(x, numbers: hl.constexpr):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * numbers[0] + numbers[1]
    return y


@tile.kernel
def blocks(x):
    y = hl.zeros(x.shape, dtype=hl.int32)
    for t in hl.tile(x.shape[0]):
        y[t.begin, :] = hl.full([x.shape[1]], t.block_size, dtype=hl.int32)
    return y


class Layer(torch.nn.Module):
    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    @tile.kernel
    def scaled(self, x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t, :] = x[t, :] * self.factor
        return y

    def forward(self, x):
        return self.scaled(torch.relu(x)) + applied(x, hl.exp)


def compiled(function, backend="aot_eager", **options):
    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True, **options)


def test_functions_of_one_text_are_told_apart():
    """Those of the language share their code, by which Dynamo guards functions."""
    assert hl.exp.__code__ is hl.sigmoid.__code__
    run = compiled(lambda x, f: applied(x, f))
    for f, want in ((hl.exp, torch.exp), (hl.sigmoid, torch.sigmoid), (hl.exp, torch.exp)):
        torch.testing.assert_close(run(X, f), want(X))
    torch.testing.assert_close(compiled(lambda x: applied(x, f=hl.tanh))(X), torch.tanh(X))


def test_functions_in_a_tuple_are_told_apart():
    run = compiled(lambda x, f, g: both(x, (f, g)))
    for f, g in ((hl.exp, hl.sigmoid), (hl.sigmoid, hl.exp)):
        want = getattr(torch, f.__name__)(X) * 2 + getattr(torch, g.__name__)(X)
        torch.testing.assert_close(run(X, f, g), want)


def test_numbers_in_a_tuple_that_change():
    """Dynamo takes numbers that change for symbols."""
    for dynamic, numbers in ((None, (2.0, 3.0, 4.0)), (True, (2, 3, 4))):
        run = compiled(lambda x, a: affine(x, (a, 1.0)), dynamic=dynamic)
        for number in numbers:
            torch.testing.assert_close(run(X, number), X * number + 1)


def objects_are_told_apart(backend="aot_eager") -> None:
    run = compiled(lambda layer, x: layer(x), backend)
    two, five = Layer(2.0), Layer(5.0)
    for layer in (two, five, two):
        torch.testing.assert_close(run(layer, X), torch.relu(X) * layer.factor + X.exp())
    two.factor = 7.0  # what is read of them is read at every call
    torch.testing.assert_close(run(two, X), torch.relu(X) * 7 + X.exp())
    torch.testing.assert_close(run(five, X), torch.relu(X) * 5 + X.exp())


def test_objects_are_told_apart():
    objects_are_told_apart()


@pytest.mark.slow
def test_objects_in_compiled_programs_are_told_apart():
    objects_are_told_apart("inductor")


def test_gradients_of_a_method():
    x = X.clone().requires_grad_()
    compiled(Layer(3.0))(x).sum().backward()
    torch.testing.assert_close(x.grad, 3.0 * (X > 0) + X.exp())


def test_exported_with_an_object():
    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer(3.0)

        def forward(self, x):
            return self.layer.scaled(x)

    program = torch.export.export(Model(), (X,))
    torch.testing.assert_close(program.module()(X + 1), (X + 1) * 3)


GIVEN = Config(blocks={"t": 8})


def test_configs():
    """One that is given, one of other numbers, none, and one that is made in the function."""
    run = compiled(lambda x, config: blocks(x, config=config))
    for config, block in ((GIVEN, 8), (Config(blocks={"t": 16}), 16), (None, 24), (GIVEN, 8)):
        assert run(X, config)[0, 0] == block
    made = compiled(lambda x: blocks(x, config=Config(blocks={"t": 8})))
    assert made(X)[0, 0] == 8


def test_a_wrong_config_is_refused_at_the_line():
    with pytest.raises(Exception, match="config names a block for 'rows', but no tile axis has it"):
        compiled(lambda x: blocks(x, config=Config(blocks={"rows": 8})))(X)


def test_a_wrong_call_says_what_the_kernel_takes():
    with pytest.raises(Exception, match=r"applied takes 2 arguments \(x, f\) but 3 were given"):
        compiled(lambda x: applied(x, hl.exp, 3))(X)


class Weighted(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(16))

    @tile.kernel
    def forward(self, x):
        y = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            y[t, :] = x[t, :] * self.weight[:]
        return y


def test_parameters_have_to_be_arguments():
    """The sentence is that of an eager call: what a kernel reads of outside is never fake."""
    for run in (Weighted(), compiled(Weighted())):
        with pytest.raises(Exception, match="an array from outside of the kernel is used as a"):
            run(X)
