"""Tensors of every framework: where they live, and which ones are refused."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import tilelang as tile
import tilelang.language as hl
from tilelang.errors import CallError
from tilelang.ir import TensorSpec
from tilelang.runtime.device import refuse
from tilelang.runtime.entries import key_of
from tilelang.runtime.launch import TensorArgument
from tilelang.runtime.tensors import Described, describe, home_of


def fake():
    with FakeTensorMode():
        return torch.zeros(2, 3)


@pytest.mark.parametrize(
    ("value", "framework", "home", "device"),
    [
        (np.zeros((2, 3), np.float32), "numpy", "numpy", "cpu"),
        (torch.zeros(2, 3), "torch", "torch", "cpu"),
        (torch.nn.Parameter(torch.zeros(2, 3)), "torch", "torch", "cpu"),
        (torch.zeros(2, 3, device="meta"), "torch", "shape", ""),
        (fake(), "torch", "shape", ""),
        (jnp.zeros((2, 3)), "jax", "jax", "cpu"),
        (jax.ShapeDtypeStruct((2, 3), jnp.float32), "jax", "shape", ""),
        (tile.spec((2, 3), "float32"), "numpy", "shape", ""),
    ],
)
def test_describe(value, framework, home, device):
    spec = TensorSpec((2, 3), "float32", framework)
    assert describe("x", value) == Described(spec, home, device)
    if (framework, home) != ("torch", "shape"):  # sizes may be symbols there
        key = key_of((type(value),))
        assert hash(key(value)) == hash(key(value))


@pytest.mark.parametrize("transform", [jax.jit, jax.vmap, jax.grad])
def test_traced(transform):
    seen = []

    def f(x):
        seen.append(describe("x", x))
        return x.sum()

    transform(f)(jnp.zeros((2, 3) if transform is not jax.vmap else (5, 2, 3)))
    assert seen == [Described(TensorSpec((2, 3), "float32", "jax"), "traced", "")]


@pytest.mark.parametrize("value", [1, 2.0, True, None, "a", (1, 2), np.float32, torch.float32, len])
def test_static_values_are_no_tensors(value):
    assert home_of(type(value)) is None
    assert describe("x", value) is None


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (torch.bfloat16, "bfloat16"),
        (jnp.bfloat16, "bfloat16"),
        ("float8_e4m3fn", "float8_e4m3fn"),
        (np.int64, "int64"),
        (bool, "bool"),
    ],
)
def test_spec(dtype, name):
    assert tile.spec((4,), dtype) == TensorSpec((4,), name)
    assert tile.spec(4, dtype) == TensorSpec((4,), name)


def nested():
    return torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)], layout=torch.jagged)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            np.zeros(2),
            "x is float64, which no kernel computes in\n  hint: pass x.astype(np.float32)",
        ),
        (
            torch.zeros(2, dtype=torch.float64),
            "x is float64, which no kernel computes in\n  hint: pass x.float()",
        ),
        (
            np.zeros(2, np.complex64),
            "x has dtype complex64, which no kernel takes\n"
            "  hint: keep the real and the imaginary part in two float32 tensors",
        ),
        (
            np.zeros(2, np.uint64),
            "x has dtype uint64, which no kernel takes\n  hint: use uint32",
        ),
        (
            np.array(["a"]),
            "x has dtype <U1, which no kernel takes\n  hint: kernels take float32, bfloat16, "
            "float16, float8_e4m3fn, float8_e5m2, int64 (as indices), int32, int16, int8, uint32, "
            "uint8 and bool",
        ),
        (
            torch.zeros(2, 2).to_sparse(),
            "x is a sparse torch tensor (torch.sparse_coo)\n  hint: pass x.to_dense()",
        ),
        (
            nested(),
            "x is a nested torch tensor\n  hint: values, offsets = tile.from_njt(x)",
        ),
        (
            np.ma.masked_array(np.zeros(2, np.float32), mask=[0, 1]),
            "x is a masked NumPy array\n  hint: pass its data and its mask as two arguments",
        ),
        (
            np.zeros(2, ">f4"),
            "x has its bytes in the order of another machine (>f4)\n"
            "  hint: pass x.astype(x.dtype.newbyteorder('='))",
        ),
    ],
)
def test_refused(value, message):
    with pytest.raises(CallError) as caught:
        describe("x", value)
    assert str(caught.value) == message


@pytest.mark.parametrize("shape", [(-1,), (2.0,), ("n",), (True,)])
def test_sizes(shape):
    with pytest.raises(CallError, match=r"is not a size\n  hint: sizes are integers >= 0$"):
        tile.spec(shape, "float32")


def test_symbolic_shapes():
    (size,) = jax.export.symbolic_shape("b")
    with pytest.raises(CallError, match=r"^x has the symbolic shape \(b, 3\)\n  hint: kernels are"):
        describe("x", jax.ShapeDtypeStruct((size, 3), jnp.float32))


@pytest.mark.parametrize("device", ["tpu", "xla"])
def test_torch_on_a_tpu_is_told_of_its_own_way(device):
    """The data would go through the host: TorchTPU exports kernels for its TPU itself."""
    described = Described(TensorSpec((2, 3), "float32", "torch"), "torch", device)
    with pytest.raises(CallError) as caught:
        refuse("gemm", [TensorArgument(0, "x", described)])
    assert str(caught.value) == (
        f"x is a torch tensor on device '{device}': gemm takes those of the CPU and of GPUs\n"
        "  hint: with TorchTPU, make an operation of it: tile.tpu_op('my::gemm', gemm)"
        + ("; torch_xla is not supported" if device == "xla" else "")
    )


@tile.kernel
def sums(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for td in hl.tile(x.shape[1]):
            acc = hl.zeros([td], dtype=hl.float32)
            for tm in hl.tile(offsets[g], offsets[g + 1]):
                acc = acc + x[tm, td].sum(0)
            y[g, td] = acc
    return y


@pytest.mark.parametrize("without", ["x", "offsets"])
def test_tensors_without_data_beside_others(without):
    """What they would give is memory that nobody wrote."""
    given = {"x": torch.ones(40, 4), "offsets": torch.tensor([0, 10, 40])}
    given[without] = given[without].to("meta")
    with pytest.raises(CallError, match=f"^{without} is on device 'meta', without data, and"):
        sums(**given)
    every = {name: tensor.to("meta") for name, tensor in given.items()}
    assert sums(**every).shape == (2, 4) and sums(**every).is_meta
