"""Kernels as operations of torch: compiled, exported, traced as one node; with gradients."""

from __future__ import annotations

import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import sympy
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from tests.gradients.kernels import COLUMNS, OFFSETS, case, registered
from tilelang.runtime import torch_shapes
from tilelang.runtime.torch_shapes import SizeRule, rule_for

ROOT = Path(__file__).resolve().parent.parent.parent
CASE = case()
X, W, STARTS = (torch.from_numpy(a) for a in (CASE.x, CASE.w, OFFSETS))


@pytest.fixture(scope="module")
def made():
    return registered()


def operations(graph):
    """Names of the operations of kernels in a graph."""
    targets = (str(n.target) for n in graph.nodes if n.op == "call_function")
    return [t.split(".")[1].partition("_")[0] for t in targets if t.startswith("raggedtile")]


class Layer(torch.nn.Module):
    def __init__(self, kernel):
        super().__init__()
        self.kernel = kernel

    def forward(self, x, w, offsets):
        y, total = self.kernel(torch.relu(x), w, offsets)
        return y * 2 + total[:, None]


def of_rows(rows):
    generator = torch.Generator().manual_seed(rows)
    x, w = torch.randn(2, rows, COLUMNS, generator=generator)
    return x.requires_grad_(), w.requires_grad_()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_graph_serves_every_number_of_rows(made, backend):
    torch._dynamo.reset()
    counter, layer = CompileCounterWithBackend(backend), Layer(made.kernel)
    run = torch.compile(layer, backend=counter, fullgraph=True, dynamic=True)
    for rows in (20, 20, 31, 47):
        found, wanted = of_rows(rows), of_rows(rows)
        y, expected = run(*found, STARTS), layer(*wanted, STARTS)
        torch.testing.assert_close(y, expected, rtol=1e-6, atol=1e-6)
        y.sum().backward()
        expected.sum().backward()
        for one, other in zip(found, wanted, strict=True):
            torch.testing.assert_close(one.grad, other.grad, rtol=1e-6, atol=1e-6)
    assert counter.frame_count == 1


def test_a_kernel_that_torch_compile_sees_first():
    """Nothing of it was called, so that its operation is registered while Dynamo traces."""
    torch._dynamo.reset()
    fresh = registered().kernel
    run = torch.compile(lambda x: fresh(x, W, offsets=STARTS)[0], backend="eager", fullgraph=True)
    torch.testing.assert_close(run(X), registered().kernel(X, W, STARTS)[0])


@pytest.mark.parametrize("strict", [False, True])
def test_export_keeps_one_node(made, strict):
    rows = torch.export.Dim("rows", min=2, max=4096)
    exported = torch.export.export(
        Layer(made.kernel),
        (X, W, STARTS),
        dynamic_shapes=({0: rows}, {0: rows}, None),
        strict=strict,
    )
    assert operations(exported.graph) == ["product"]
    for n in (20, 33):
        x, w = (t.detach() for t in of_rows(n))
        torch.testing.assert_close(
            exported.module()(x, w, STARTS), Layer(made.kernel)(x, w, STARTS)
        )


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_make_fx_keeps_one_node(made, mode):
    def run(x, w, offsets):
        return made.kernel(x, w, offsets)[0] + x

    traced = make_fx(run, tracing_mode=mode)(X, W, STARTS)
    assert operations(traced.graph) == ["product"]
    offsets = torch.tensor([0, 1, 2, 20], dtype=torch.int32)
    torch.testing.assert_close(traced(2 * X, W, offsets), run(2 * X, W, offsets))


def test_make_fx_of_a_gradient(made):
    def gradient(x, w):
        return torch.func.grad(lambda x: made.kernel(x, w, STARTS)[0].sum())(x)

    traced = make_fx(gradient)(X, W)
    assert operations(traced.graph) == ["product", "product"]
    torch.testing.assert_close(traced(X, 3 * W), gradient(X, 3 * W))


def test_jit_trace_keeps_one_node_and_its_gradient(made):
    traced = torch.jit.trace(lambda x, w, o: made.kernel(x, w, o)[0], (X, W, STARTS))
    assert str(traced.graph).count("raggedtile::product_") == 1
    x = X.clone().requires_grad_()
    traced(x, 2 * W, STARTS).sum().backward()
    (wanted,) = torch.autograd.grad(made.kernel(x, 2 * W, STARTS)[0].sum(), x)
    torch.testing.assert_close(x.grad, wanted)


def test_opcheck(made):
    made.kernel(X.clone().requires_grad_(), W, STARTS)  # registers it
    (callee,) = (c for t in made.kernel._torches.values() for c in t.callees.values())
    (operation,) = callee.operations.values()
    arguments = X.clone().requires_grad_(), W.clone().requires_grad_(), STARTS
    found = torch.library.opcheck(operation.overload, arguments)
    assert set(found.values()) == {"SUCCESS"}
    assert str(operation.overload._schema).partition("(")[2] == (
        "Tensor x, Tensor w, Tensor offsets) -> (Tensor, Tensor)"
    )


def test_fakes_of_symbolic_sizes(made):
    with FakeTensorMode(shape_env=ShapeEnv()) as mode:
        x = mode.from_tensor(X)
        y, total = made.kernel(x, mode.from_tensor(W), mode.from_tensor(STARTS))
    assert (y.shape, y.dtype, total.dtype) == (x.shape, torch.float32, torch.float32)


@tile.kernel
def halves(x, n: hl.constexpr = 4):
    """A row of zeros after each, then n more."""
    y = hl.zeros([2 * x.shape[0] + n, x.shape[1]], dtype=x.dtype)
    for r in hl.grid(x.shape[0]):
        for tn in hl.tile(x.shape[1]):
            y[2 * r, tn] = x[r, tn]
    return y


def wrapped_halves(x):
    return halves(x)


torch.fx.wrap("wrapped_halves")


@tile.kernel
def rounded(x):
    """x, and rows of zeros up to a multiple of 64."""
    y = hl.zeros([(x.shape[0] + 63) // 64 * 64, x.shape[1]], dtype=x.dtype)
    for r in hl.grid(x.shape[0]):
        for tn in hl.tile(x.shape[1]):
            y[r, tn] = x[r, tn]
    return y


@pytest.mark.parametrize(("kernel", "graphs"), [(halves, 1), (rounded, 3)], ids=["2n", "rounded"])
def test_shapes_that_are_no_argument(kernel, graphs):
    """One graph where the shape is a sum of multiples, one for every length where it is not."""
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    run = torch.compile(lambda x: kernel(x) + 1, backend=counter, fullgraph=True, dynamic=True)
    for rows in (20, 33, 70):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(run(x), kernel(x) + 1)
    assert counter.frame_count == graphs


def test_stores_to_arguments_in_a_graph():
    @tile.kernel
    def add_to(y, x):
        for t in hl.tile(y.shape[0]):
            y[t] = y[t] + x[t]

    torch._dynamo.reset()
    run = torch.compile(lambda y, x: (add_to(y, x), y * 2)[1], backend="aot_eager", fullgraph=True)
    y = torch.zeros(8)
    assert torch.equal(run(y, torch.ones(8)), torch.full((8,), 2.0))
    assert torch.equal(y, torch.ones(8))


def test_static_arguments_that_are_symbols():
    torch._dynamo.reset()
    run = torch.compile(
        lambda x, n: halves(x, n), backend="aot_eager", fullgraph=True, dynamic=True
    )
    for n in (4, 6, 9):
        assert run(X, n).shape == (2 * len(X) + n, COLUMNS)


def test_proxies_of_fx_are_refused_and_a_wrapped_function_is_one_node():
    with pytest.raises(tile.CallError) as caught:
        torch.fx.symbolic_trace(lambda x: halves(x))
    assert str(caught.value) == (
        "x is a Proxy of torch.fx, which stands for a tensor\n"
        "  hint: use torch.export or make_fx, which see the kernel as one operation; or call it in "
        "a function of a module, which torch.fx.wrap names"
    )
    traced = torch.fx.symbolic_trace(lambda x: wrapped_halves(x) + 1)
    assert torch.equal(traced(X), halves(X) + 1)


# ---------------------------------------------------------------- rows that are counted by programs


def picked(run, x, w):
    """The kernel for rows that are picked by what they hold."""
    rows = torch.nonzero(x[:, 0] > 0)[:, 0]
    own = x[rows]
    offsets = torch.stack([rows.new_zeros(()), rows.new_full((), rows.shape[0])])
    return run(own, w, offsets)


@tile.kernel
def of_table(x, w, offsets):
    y = hl.zeros([x.shape[0], w.shape[2]], dtype=x.dtype)
    for t in hl.tile(offsets[0], offsets[1]):
        y[t, :] = hl.dot(x[t, :], w[0, :, :])
    return y


@tile.kernel
def of_powers(x, w, offsets):
    """Its rows are counted up to a power of two, which no rule says."""
    y = hl.zeros([1 << x.shape[0].bit_length(), w.shape[2]], dtype=x.dtype)
    for t in hl.tile(offsets[0], offsets[1], max_extent=x.shape[0]):
        y[t, :] = hl.dot(x[t, :], w[0, :, :])
    return y


COUNTED = {"capture_dynamic_output_shape_ops": True, "capture_scalar_outputs": True}


def test_rows_that_only_the_program_counts():
    """Of a router, as of nonzero: one graph for all of them, with its gradient."""
    torch._dynamo.reset()
    with torch._dynamo.config.patch(COUNTED):
        counter = CompileCounterWithBackend("aot_eager")
        run = torch.compile(partial(picked, of_table), backend=counter, fullgraph=True)
        for several in (9, 0, 12):
            x, w = torch.randn(12, 8), torch.randn(1, 8, 4, requires_grad=True)
            x[:, 0] = several - 0.5 - torch.arange(12)
            y, wanted = run(x, w), x[:several] @ w[0]
            torch.testing.assert_close(y, wanted)
            (found,) = torch.autograd.grad(y.sum(), w)
            torch.testing.assert_close(found, torch.autograd.grad(wanted.sum(), w)[0])
    assert counter.frame_count == 1


def test_results_that_no_rule_says_of_rows_that_the_program_counts():
    torch._dynamo.reset()
    x, w = torch.randn(12, 8), torch.randn(1, 8, 4)
    with torch._dynamo.config.patch(COUNTED), pytest.raises(Exception) as caught:
        torch.compile(partial(picked, of_powers), backend="aot_eager", fullgraph=True)(x, w)
    assert (
        "the size u0 is known only when the program runs, and the kernel is another one, or its "
        "results are of other shapes, for other numbers"
    ) in str(caught.value)


# ---------------------------------------------------------------- saved, and loaded elsewhere


class Experts(torch.nn.Module):
    """With a weight that is trained: a call is differentiated, and is one node all the same."""

    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(2, 8, 4))

    def forward(self, x, offsets):
        return grouped_gemm(x, self.w, offsets)


SAVED = """
import sys, torch
from tests.gradients.test_torch_ops import Experts, exported
torch.export.save(exported(Experts()), sys.argv[1])
"""
LOADED = """
import sys, torch
from examples.jagged.grouped_gemm import grouped_gemm
grouped_gemm(torch.ones(3, 5), torch.ones(1, 5, 2), torch.tensor([0, 3]))
program = torch.export.load(sys.argv[1]).module()
y = program(torch.ones(7, 8), torch.tensor([0, 3, 7]))
y.sum().backward()
assert (y == 8).all() and [len(p.grad) for p in program.parameters()] == [2]
"""


def exported(layer):
    rows = torch.export.Dim("rows", min=2, max=4096)
    given = torch.ones(20, 8), torch.tensor([0, 3, 20])
    return torch.export.export(layer, given, dynamic_shapes=({0: rows}, None))


def test_a_trained_layer_is_exported_as_the_kernel_itself():
    """Not as the part of its gradient that saves more: no other process has that operation."""
    program, layer = exported(Experts()), Experts()
    nodes = [str(n.target) for n in program.graph.nodes if "raggedtile" in str(n.target)]
    plain = tile.kernel(grouped_gemm._fn)
    plain(torch.ones(3, 5), torch.ones(1, 5, 2), torch.tensor([0, 3]))  # defines the operation
    (callee,) = (c for t in plain._torches.values() for c in t.callees.values())
    (defined,) = callee.operations.values()
    assert [n.startswith(f"raggedtile.{callee.name}") for n in nodes] == [True]
    assert str(defined.overload).startswith(f"raggedtile.{callee.name}")
    x, offsets = torch.randn(9, 8), torch.tensor([1, 4, 9])
    y, run = layer(x, offsets), program.module()
    torch.testing.assert_close(run(x, offsets), y)
    y.square().sum().backward()
    run(x, offsets).square().sum().backward()
    torch.testing.assert_close(next(run.parameters()).grad, layer.w.grad)


@pytest.mark.slow
def test_another_process_runs_what_was_saved(tmp_path):
    """Of kernels that are defined once: one that is defined anew has another name."""
    for script in (SAVED, LOADED):
        command = [sys.executable, "-c", script, str(tmp_path / "layer.pt2")]
        run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr[-2000:]


# ---------------------------------------------------------------- the rule for sizes


class Symbol:
    """A size as torch traces it."""

    def __init__(self, expr, hint):
        self.node, self.expr, self.hint, self.fixed = self, sympy.Symbol(expr), hint, False

    def __int__(self):
        self.fixed = True
        return self.hint


def test_rules_of_shapes():
    a, b = Symbol("a", 20), Symbol("b", 24)
    rule = rule_for((a, b), lambda s: ((s[0] + 2 * s[1], 7),))
    assert rule == SizeRule((20, 24), ((68, 7),), ((0,), (1,)), (((1, 0),), ((2, 0),)))
    assert rule.at((10, 1)) == ((12, 7),)
    assert rule.holds((10, 1), ((12, 7),))
    assert not rule.holds((10, 1), ((13, 7),))
    assert not a.fixed
    assert not b.fixed


@pytest.mark.parametrize("by", [4, 64, 1000])
def test_sizes_that_follow_no_rule_are_fixed(by):
    a, b = Symbol("a", 20), Symbol("b", 24)
    rule = rule_for((a, b), lambda s: ((-(-s[0] // by) * by, s[1]),))
    assert rule.symbols == ()
    assert a.fixed
    assert rule.at((20, 24)) == ((-(-20 // by) * by, 24),)


def test_sizes_that_are_unrolled_are_fixed_before_larger_ones_are_tried():
    """A thousand turns of a loop that is unrolled are a kernel that is never done."""
    a, b, asked = Symbol("a", 20), Symbol("b", 3), []
    rule = rule_for((a, b), lambda s: (asked.append(s) or (s[0], 8),), lambda s: 5 * s[1])
    assert rule.symbols == ((0,),)
    assert b.fixed and not a.fixed
    assert {b for _, b in asked} == {3, 4}


class Equal(Symbol):
    """A size that torch may be told to be another one."""

    def __init__(self, expr, hint, told):
        super().__init__(expr, hint)
        self.told = told

    def __eq__(self, other):
        self.told.append({str(self.expr), str(other.expr)})
        return True


def test_sizes_that_cannot_change_alone_change_together():
    """Only those: `c` stands for the same number, and is free."""
    told = []
    sizes = [Equal(name, 20, told) for name in "abc"] + [Equal("d", 8, told)]

    def shapes_of(s):
        if s[0] != s[1]:
            raise tile.CallError("an array of 20 rows is reshaped to 21")
        return ((s[0], s[2], s[3]),)

    rule = rule_for(sizes, shapes_of)
    assert rule.symbols == ((0, 1), (2,), (3,))
    assert rule.at((5, 5, 6, 7)) == ((5, 6, 7),)
    assert told == [{"a", "b"}] and not any(s.fixed for s in sizes)


@tile.kernel
def products_of_heads(q, k, heads: hl.constexpr):
    """Rows of q are those of k: no size of one alone is another's."""
    M = q.shape[0]
    q3, k3 = (a.reshape(M, heads, a.shape[1] // heads) for a in (q, k))
    y = hl.empty([M, heads], dtype=q.dtype)
    for t in hl.tile(M):
        for h in hl.grid(heads):
            y[t, h] = (q3[t, h, :] * k3[t, h, :]).sum(1)
    return y


def test_rows_that_arrays_share_are_exported():
    class Heads(torch.nn.Module):
        def forward(self, q, k):
            return products_of_heads(q, k, 2)

    rows = torch.export.Dim("rows", min=2, max=4096)
    given = torch.randn(20, 8), torch.randn(20, 8)
    program = torch.export.export(Heads(), given, dynamic_shapes=({0: rows}, {0: rows})).module()
    for q, k in (given, (torch.randn(7, 8), torch.randn(7, 8))):
        torch.testing.assert_close(program(q, k), (q * k).reshape(-1, 2, 4).sum(2))


@tile.kernel
def chosen(x, ids):
    """The sum of some rows of x for each row: as many as ids has columns."""
    y = hl.zeros([ids.shape[0], x.shape[1]], dtype=x.dtype)
    for t in hl.tile(ids.shape[0]):
        acc = hl.zeros([t, x.shape[1]], dtype=hl.float32)
        for k in hl.static_range(ids.shape[1]):
            acc = acc + x[ids[t, k], :]
        y[t, :] = acc
    return y


def test_a_dynamic_size_that_is_unrolled():
    torch._dynamo.reset()
    run = torch.compile(lambda *a: chosen(*a), backend="aot_eager", fullgraph=True, dynamic=True)
    for rows, columns in ((6, 3), (9, 3), (9, 2)):
        x = torch.randn(rows, 8, requires_grad=True)
        ids = torch.arange(rows * columns, dtype=torch.int32).reshape(rows, columns) % rows
        y = run(x, ids)
        torch.testing.assert_close(y, x[ids.long()].sum(1))
        (dx,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(dx, torch.full_like(x, columns))


def test_a_program_for_results_of_other_shapes_is_refused(monkeypatch):
    """A rule that two guesses confirm may be wrong: the operation itself looks."""
    torch._dynamo.reset()
    monkeypatch.setattr(torch_shapes, "_tested", lambda rule, shapes_of: True)
    fresh = tile.kernel(rounded._fn)
    run = torch.compile(lambda x: fresh(x), backend="aot_eager", fullgraph=True, dynamic=True)
    assert run(torch.zeros(20, 8)).shape == (64, 8)
    with pytest.raises(tile.CallError) as caught:
        run(torch.zeros(70, 8))
    what, hint = str(caught.value).splitlines()
    assert what.endswith(
        "was compiled for results of shape [(64, 8)], and they have shape [(128, 8)]"
    )
    assert hint == "  hint: compile with dynamic=False, or mark the sizes as static"


@pytest.mark.thorough  # a C++ compiler takes a minute
def test_inductor(made):
    torch._dynamo.reset()
    run = torch.compile(Layer(made.kernel), fullgraph=True, dynamic=True)
    for rows in (20, 31):
        found, wanted = of_rows(rows), of_rows(rows)
        run(*found, STARTS).sum().backward()
        Layer(made.kernel)(*wanted, STARTS).sum().backward()
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one.grad, other.grad, rtol=1e-5, atol=1e-5)
