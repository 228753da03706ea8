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
