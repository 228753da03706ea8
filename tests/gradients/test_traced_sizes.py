"""Sizes in programs that torch traced: symbols stay symbols, and numbers hold for those alone."""

from __future__ import annotations

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.fx.experimental.proxy_tensor import make_fx

import tilelang as tile
import tilelang.language as hl

COLUMNS = 8


@tile.kernel
def squared(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * x[tm, tn]
    return y


def gradient(x):
    return torch.func.grad(lambda x: squared(x).sum())(x)


def test_sizes_of_a_gradient_stay_symbols():
    traced = make_fx(gradient, tracing_mode="symbolic")(torch.ones(20, COLUMNS))
    x = torch.randn(31, COLUMNS)
    torch.testing.assert_close(traced(x), 2 * x)


@pytest.mark.parametrize("run", [gradient, torch.func.vmap(gradient)], ids=["grad", "vmap(grad)"])
def test_one_graph_serves_every_number_of_rows(run):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, backend=counter, fullgraph=True, dynamic=True)
    for rows in (20, 31, 47):
        x = torch.randn(*(() if run is gradient else (3,)), rows, COLUMNS)
        torch.testing.assert_close(compiled(x), 2 * x)
    assert counter.frame_count == 1


@tile.kernel
def first_rows(x, n):
    """The first rows, n times."""
    y = hl.empty([n, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(n):
        y[t, :] = x[t.index, :] * n
    return y


@tile.kernel
def times(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * n
    return y


@tile.kernel
def modulo(x, n):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * (n % 7)
    return y


@times.vjp
def _(saved, dy):
    return {"x": times(dy, saved["n"])}


# what is done with rows -> the same by torch
OF_SIZES = {
    "a size": (lambda x: times(x, x.shape[0]), lambda x: x * len(x)),
    "a size less a number": (
        lambda x: first_rows(x, x.shape[0] - 3),
        lambda x: x[:-3] * (len(x) - 3),
    ),
    "of a batch": (
        torch.func.vmap(lambda row: times(row[None], row.shape[0])[0], in_dims=1),
        lambda x: x.T * len(x),
    ),
}


@pytest.mark.parametrize("name", OF_SIZES)
def test_sizes_as_arguments_stay_symbols(name):
    run, want = OF_SIZES[name]
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(run, backend=counter, fullgraph=True, dynamic=True)
    for rows in (20, 31, 47, 9):
        x = torch.randn(rows, COLUMNS, requires_grad=True)
        result = compiled(x)
        torch.testing.assert_close(result, want(x))
        found, wanted = (torch.autograd.grad(y.square().sum(), x) for y in (result, want(x)))
        torch.testing.assert_close(found, wanted)
    assert counter.frame_count == 1


def test_a_number_that_rows_limit_stays_a_symbol():
    """Torch has a symbol for it from the second number on."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(first_rows, backend=counter, fullgraph=True)
    x = torch.randn(40, COLUMNS)
    for n in (5, 9, 17, 40):
        torch.testing.assert_close(compiled(x, n), x[:n] * n)
    assert counter.frame_count == 2


def test_a_number_that_torch_has_no_integer_for():
    x = torch.randn(4, COLUMNS, requires_grad=True)
    (found,) = torch.autograd.grad(modulo(x, (1 << 64) + 10).sum(), x)
    torch.testing.assert_close(found, torch.full_like(x, ((1 << 64) + 10) % 7))


class FirstRows(torch.nn.Module):
    def forward(self, x):
        return first_rows(x, x.shape[0] - 3)


def test_a_size_as_an_argument_is_exported():
    rows = torch.export.Dim("rows", min=5, max=500)
    given = (torch.ones(20, COLUMNS),)
    program = torch.export.export(FirstRows(), given, dynamic_shapes=({0: rows},)).module()
    for n in (20, 31):
        x = torch.randn(n, COLUMNS)
        torch.testing.assert_close(program(x), x[:-3] * (n - 3))


@pytest.mark.parametrize("rows", [10, 40])
def test_a_program_for_other_sizes_is_refused(rows):
    """Its kernels are told the sizes that were traced, and would read past the end of fewer."""
    traced = make_fx(gradient)(torch.ones(20, COLUMNS))
    with pytest.raises(tile.CallError) as refused:
        traced(torch.ones(rows, COLUMNS))
    assert str(refused.value) == (
        f"this program calls squared for x of float32[20, {COLUMNS}], and gives it "
        f"float32[{rows}, {COLUMNS}]\n"
        "  hint: trace it again for these, or with sizes that are symbols: torch.compile, or "
        "make_fx with tracing_mode='symbolic'"
    )


def test_a_sparse_cotangent():
    x = torch.randn(20, COLUMNS, requires_grad=True)
    chosen = torch.eye(20, COLUMNS)
    squared(x).backward(chosen.to_sparse())
    torch.testing.assert_close(x.grad, 2 * x.detach() * chosen)
