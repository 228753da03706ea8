"""Values in and results out, per framework, around a jitted function that stands for a kernel."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import torch

from tests.analysis.build import LOC
from tilelang.errors import CallError, RaggedValueError
from tilelang.ir import KernelIR, Param, Tensor
from tilelang.runtime import bridge
from tilelang.runtime.checks import Check
from tilelang.runtime.launch import TensorArgument, framework_of, launch
from tilelang.runtime.tensors import describe


def kernel(returns=("y",), structure="single", mutated=(), **tensors):
    """A kernel as far as calling it goes: parameters, results and their structure."""
    inputs = [
        Tensor(n, d.spec.shape, d.spec.dtype, "input", LOC, mutated=n in mutated)
        for n, d in tensors.items()
    ]
    shape, dtype = inputs[0].shape, inputs[0].dtype
    outputs = [Tensor(n, shape, dtype, "output", LOC) for n in returns if n not in tensors]
    params = tuple(Param(n, n) for n in tensors)
    every = (*inputs, *outputs)
    return KernelIR("k", params, every, (), (), tuple(returns), structure, LOC)


def call(fn, *, check=None, returns=("y",), structure="single", mutated=(), **values):
    described = {name: describe(name, value) for name, value in values.items()}
    ir = kernel(returns, structure, mutated, **described)
    operands = [TensorArgument(i, n, d) for i, (n, d) in enumerate(described.items())]
    run = launch(ir, operands, jax.jit(fn), check, framework_of("k", operands))
    return run(tuple(values.values()))


def double(x):
    return x + x


LAYOUTS = {
    "contiguous": lambda: torch.randn(6, 5),
    "transposed": lambda: torch.randn(5, 6).t(),
    "permuted": lambda: torch.randn(2, 3, 4).permute(2, 0, 1),
    "columns": lambda: torch.randn(6, 9)[:, 2:7],
    "every other row": lambda: torch.randn(12, 5)[::2],
    "expanded": lambda: torch.randn(1, 5).expand(6, 5),
    "unaligned": lambda: torch.randn(31)[1:].view(6, 5),
    "zero rows": lambda: torch.randn(0, 5),
    "rank 0": lambda: torch.randn(()),
    "conjugate view": lambda: torch.randn(6, 5, dtype=torch.complex64).conj().imag,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_torch_layouts(layout):
    x = LAYOUTS[layout]()
    y = call(double, x=x)
    assert type(y) is torch.Tensor
    torch.testing.assert_close(y, x + x, rtol=0, atol=0)


NUMPY_LAYOUTS = {
    "reversed": lambda: np.arange(30, dtype=np.float32).reshape(6, 5)[::-1, ::-1],
    "fortran": lambda: np.asfortranarray(np.arange(30, dtype=np.float32).reshape(6, 5)),
    "broadcast": lambda: np.broadcast_to(np.float32(3), (6, 5)),
    "unaligned bytes": lambda: np.frombuffer(bytes(range(121)), np.uint8)[1:].view(np.float32),
    "memmap": lambda: np.arange(30, dtype=np.float32).view(np.memmap),
}


@pytest.mark.parametrize("layout", NUMPY_LAYOUTS)
def test_numpy_layouts(layout):
    x = NUMPY_LAYOUTS[layout]()
    y = call(double, x=x)
    assert type(y) is np.ndarray
    np.testing.assert_array_equal(y, x + x)
    y[...] = 0  # it is the caller's


DTYPES = ["float32", "bfloat16", "float16", "int32", "int16", "int8", "uint8", "uint32"]


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_dtypes(dtype, large):
    shape = (1 << 11, 1 << 10) if large else (4, 8)
    x = torch.randint(0, 100, shape).to(getattr(torch, dtype))
    y = call(double, x=x)
    assert y.dtype == x.dtype
    expected = (x.to(torch.float64) * 2).to(x.dtype)
    assert torch.equal(y.to(torch.float64), expected.to(torch.float64))


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2", "bool"])
def test_torch_bytes(dtype):
    x = torch.tensor([0.0, 1.0, 0.5]).to(getattr(torch, dtype))
    y = call(lambda x: jnp.flip(x), x=x)
    assert y.dtype == x.dtype
    assert torch.equal(y.float(), x.float().flip(0))


def test_bfloat16_numpy():
    x = np.arange(4, dtype=np.float32).astype(ml_dtypes.bfloat16)
    y = call(double, x=x)
    assert y.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(y.astype(np.float32), [0, 2, 4, 6])


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("make", [torch.ones, lambda *s: np.ones(s, np.float32)])
def test_results_own_their_memory(make, large):
    """Also of a kernel whose result is its input, unchanged."""
    x = make(1 << 11, 1 << 10) if large else make(4, 8)
    first, second = call(lambda x: (x, x), returns=("y", "z"), structure="tuple", x=x)
    first += 1
    assert float(x.max()) == float(second.max()) == 1


@pytest.mark.parametrize("make", [torch.ones, lambda *s: np.ones(s, np.float32)])
def test_inputs_may_change_after_the_call(make):
    def slow(x):
        return jax.lax.fori_loop(0, 50, lambda _, total: total + x, jnp.zeros_like(x))

    x = make(1000, 1000)
    y = call(slow, x=x)
    x += 1
    assert float(y.min()) == float(y.max()) == 50


def test_numpy_beside_jax_may_change_after_the_call():
    def slow(x, b):
        return jax.lax.fori_loop(0, 50, lambda _, total: total + b, x)

    x, b = jnp.zeros((1000, 1000)), torch.ones(1000, 1000).numpy()
    y = call(slow, x=x, b=b)
    b += 1
    assert float(y.min()) == float(y.max()) == 50


@pytest.mark.parametrize(
    ("make", "kind"),
    [(torch.tensor, torch.Tensor), (np.array, np.ndarray), (jnp.array, jax.Array)],
)
def test_structures(make, kind):
    x = make([1.0, 2.0], dtype={torch.tensor: torch.float32}.get(make, np.float32))
    pair = call(lambda x: (x + 1, x + 2), returns=("y", "z"), structure="tuple", x=x)
    assert isinstance(pair, tuple)
    assert [float(v[0]) for v in pair] == [2.0, 3.0]
    assert all(isinstance(v, kind) for v in pair)
    listed = call(lambda x: x + 1, structure="list", x=x)
    assert isinstance(listed, list)
    assert float(listed[0][0]) == 2.0


def test_numpy_goes_with_either():
    x, b = np.ones(3, np.float32), np.full(3, 2, np.float32)
    assert isinstance(call(lambda x, b: x + b, x=torch.from_numpy(x), b=b), torch.Tensor)
    assert isinstance(call(lambda x, b: x + b, x=jnp.array(x), b=b), jax.Array)
    assert isinstance(call(lambda x, b: x + b, x=x, b=b), np.ndarray)


def test_mixing_torch_and_jax():
    with pytest.raises(CallError) as caught:
        call(lambda x, b: x + b, x=torch.ones(3), b=jnp.ones(3))
    assert str(caught.value) == (
        "x is a torch tensor and b is a JAX array: k takes one or the other\n"
        "  hint: NumPy arrays go with both"
    )


# ---------------------------------------------------------------- int64


@pytest.mark.parametrize("make", [torch.tensor, np.array])
def test_int64_is_narrowed(make):
    y = call(double, x=make([1, -2, 2**30 - 1]))
    assert str(y.dtype).endswith("int32")
    assert [int(v) for v in y] == [2, -4, 2**31 - 2]


@pytest.mark.parametrize("make", [torch.tensor, np.array])
@pytest.mark.parametrize("value", [2**31, -(2**31) - 1, 2**40, 2**32 + 5])
def test_int64_is_never_truncated(make, value):
    with pytest.raises(RaggedValueError) as caught:
        call(double, x=make([[0, 1], [value, 3]]))
    assert str(caught.value) == (
        f"x[1, 0] = {value} does not fit in int32\n  hint: kernels compute indices in 32 bits"
    )


def test_int64_in_x64_mode():
    with jax.enable_x64(True):
        x = jnp.array([1, 2**31], jnp.int64)
        with pytest.raises(RaggedValueError, match=r"^x\[1\] = 2147483648 does not fit"):
            call(double, x=x)
        assert call(double, x=x[:1]).dtype == jnp.int32
        traced = jax.jit(lambda x: call(lambda v: v, x=x))(x)
        assert [int(v) for v in traced] == [1, 2**31 - 1]


# ---------------------------------------------------------------- stores to arguments


def increments(x):
    return x + 1


@pytest.mark.parametrize("layout", [n for n in LAYOUTS if n != "expanded"])
def test_mutated_torch(layout):
    x = LAYOUTS[layout]()
    before = x.clone()
    assert call(increments, returns=(), structure="none", mutated=("x",), x=x) is None
    torch.testing.assert_close(x, before + 1)


def test_mutated_numpy():
    x = np.zeros((4, 6), np.float32)
    assert call(increments, returns=(), structure="none", mutated=("x",), x=x[:, ::2]) is None
    np.testing.assert_array_equal(x, [[1, 0] * 3] * 4)


def test_a_returned_parameter_is_the_callers():
    x = torch.zeros(3)
    y, again = call(
        lambda x: (x + 5, x, x + 1), returns=("y", "x"), structure="tuple", mutated=("x",), x=x
    )
    assert again is x
    assert x.tolist() == [1, 1, 1]
    assert y.tolist() == [5, 5, 5]


def test_stores_that_cannot_be():
    x = torch.zeros(1).expand(3)
    with pytest.raises(CallError, match=r"(?s)^x cannot be written to: .*hint: pass x\.clone\(\)$"):
        call(increments, returns=(), structure="none", mutated=("x",), x=x)
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(CallError, match=r"^x is a read-only NumPy array, and the kernel stores"):
        call(increments, returns=(), structure="none", mutated=("x",), x=frozen)
    with pytest.raises(CallError) as caught:
        call(increments, returns=(), structure="none", mutated=("x",), x=jnp.zeros(3))
    assert str(caught.value) == (
        "x is stored to, and JAX arrays cannot be changed\n"
        "  hint: store to a new output, hl.empty_like(x), and return it"
    )


# ---------------------------------------------------------------- checks


def test_checks_see_what_the_kernel_sees():
    seen = {}
    check = Check(("b",), lambda arrays: seen.update(arrays))
    call(lambda x, b: x, check=check, x=torch.ones(2), b=torch.tensor([3, 4]))
    assert list(seen) == ["b"]
    assert seen["b"].tolist() == [3, 4]


def test_large_results_share_memory_with_nothing(monkeypatch):
    """Above the limit dlpack hands out JAX's buffer itself; below, a copy."""
    monkeypatch.setattr(bridge, "SMALL", 0)
    y = call(double, x=torch.ones(4, dtype=torch.bfloat16))
    assert y.dtype == torch.bfloat16
    assert y.tolist() == [2, 2, 2, 2]


def test_unknown_torch_layouts_raise_our_errors():
    described = describe("x", torch.ones(2))
    sparse = replace(described, device="cpu")
    read = bridge.reader("x", sparse.spec, "torch", copy=False)
    with pytest.raises(
        CallError, match=r"(?s)^x is a sparse torch tensor .*hint: pass x\.to_dense\(\)"
    ):
        read(torch.ones(2).to_sparse())
