"""The same expression, computed by torch or JAX and as the language understands it."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import tilelang.language as hl
from tests.language.written import read
from tilelang.language.calls import resolve
from tilelang.language.spellings import MODULES

torch = pytest.importorskip("torch", reason="compares with torch's spellings")

torch.set_num_threads(1)

X = np.linspace(-2.5, 3.0, 12, dtype=np.float32).reshape(3, 4)
Y = np.float32([[0.5, -1.25, 2.0, 3.5]]) * np.float32([[1.0], [-2.0], [0.75]])
POSITIVE = np.abs(X) + np.float32(0.25)
W = np.linspace(1, -1, 20, dtype=np.float32).reshape(4, 5)
STACK = np.linspace(-1, 1, 24, dtype=np.float32).reshape(2, 3, 4)
STACK_W = np.linspace(1, -1, 40, dtype=np.float32).reshape(2, 4, 5)
BIAS = np.linspace(0, 1, 15, dtype=np.float32).reshape(3, 5)
INT = np.int32([[7, -7, 4, 0], [3, 2, -9, 1], [5, 5, 6, -1]])
J = np.int32([2, 3, -4, 5])

TORCH = {
    "unary": lambda m, x: [
        f(x)
        for f in (
            m.exp, m.exp2, m.sin, m.cos, m.tanh, m.erf, m.sigmoid, m.relu, m.floor, m.ceil,
            m.round, m.trunc, m.sign, m.abs, m.neg, m.square, m.special.expit,
            m.nn.functional.silu, m.nn.functional.softplus, m.nn.functional.gelu,
            m.nn.functional.logsigmoid, m.nn.functional.relu6, m.nn.functional.mish,
            m.nn.functional.hardtanh, m.nn.functional.leaky_relu, m.expm1, m.special.expm1,
            m.nn.functional.elu, m.nn.functional.selu, m.nn.functional.celu,
            m.nn.functional.softsign, m.nn.functional.hardsigmoid, m.nn.functional.hardswish,
        )
    ],
    "gelu tanh": lambda m, x: m.nn.functional.gelu(x, approximate="tanh"),
    "alphas": lambda m, x: [
        m.nn.functional.elu(x, 0.3), m.nn.functional.celu(x, 0.3), m.nn.functional.elu(x, alpha=2),
    ],
    "detach": lambda m, x: [x.detach(), m.detach(x * 2)],
    "isnan": lambda m, x: [m.isnan(x), m.isfinite(x), m.isinf(x), m.logical_not(x > 0)],
    "clamp": lambda m, x: [m.clamp(x, -1, 1), m.clamp(x, min=0.5), x.clamp(max=1), m.clip(x, 0, 1)],
    "clamp_min": lambda m, x: [m.clamp_min(x, 0.5), x.clamp_max(1.0)],
    "sum": lambda m, x: [x.sum(), x.sum(0), x.sum(dim=-1, keepdim=True), m.sum(x, (0, 1))],
    "mean": lambda m, x: [m.mean(x), x.mean(dim=1), x.mean((0, 1), keepdim=True)],
    "amax": lambda m, x: [m.amax(x, 1), x.amin(dim=0, keepdim=True), m.max(x), x.min()],
    "max dim": lambda m, x: [*m.max(x, 1), *m.min(x, dim=0, keepdim=True), x.max(dim=1).values],
    "argmax": lambda m, x: [m.argmax(x, 1), x.argmin(dim=0, keepdim=True)],
    "any": lambda m, x: [m.any(x > 2, 1), (x > -9).all(dim=0), m.all(x > 0)],
    "softmax": lambda m, x: [m.softmax(x, 1), m.nn.functional.softmax(x, dim=0), x.softmax(-1)],
    "log_softmax": lambda m, x: [m.log_softmax(x, 1), m.logsumexp(x, 1), x.logsumexp(0, True)],
    "var": lambda m, x: [m.var(x), m.var(x, 1), m.var(x, 1, False), x.var(dim=0, keepdim=True)],
    "std": lambda m, x: [m.std(x, dim=1, correction=0), x.std(dim=1), x.std(0, correction=1)],
    "var_mean": lambda m, x: [*m.var_mean(x, 1)],
    "norm": lambda m, x: [
        m.norm(x), x.norm(dim=1), m.linalg.norm(x, dim=1), m.linalg.vector_norm(x, 1, dim=0),
        m.linalg.vector_norm(x, float("inf"), dim=1), x.norm(p=1, dim=1),
    ],
    "layer_norm": lambda m, x: [
        m.nn.functional.layer_norm(x, (4,)), m.nn.functional.rms_norm(x, (4,), eps=1e-5),
    ],
    "permute": lambda m, x: [
        x.T, x.mT, x.t(), m.t(x), x.transpose(0, 1), m.transpose(x, 0, -1), x.permute(1, 0),
        m.permute(x, (1, 0)), x.swapaxes(0, 1), m.swapdims(x, 0, 1),
    ],
    "reshape": lambda m, x: [
        x.reshape(4, 3), x.view(-1, 2), m.reshape(x, (2, -1)), x.flatten(), m.flatten(x, 0, 1),
        x.unsqueeze(1), m.unsqueeze(x, -1), x.unsqueeze(0).squeeze(0), m.squeeze(x.unsqueeze(2)),
        x.contiguous(),
    ],
    "expand": lambda m, x: [
        x.unsqueeze(0).expand(2, -1, 4), m.broadcast_to(x, (2, 3, 4)),
        x.sum(0).expand_as(x),
    ],
    "narrow": lambda m, x: [
        m.narrow(x, 0, 1, 2), x.narrow(1, -3, 2), x.narrow(0, 0, 3),
    ],
    "chunk": lambda m, x: [
        *m.chunk(x, 2, 1), *x.chunk(2), *x.chunk(7, dim=-1), *m.chunk(x, chunks=1),
        *m.split(x, 3, 1), *x.split([1, 2]), *m.split(x, split_size_or_sections=(4, 0), dim=1),
        m.nn.functional.glu(x), m.nn.functional.glu(x, dim=1),
    ],
    "cat": lambda m, x: [m.cat([x, x], 1), m.cat((x, x), dim=0), m.stack([x, x], dim=-1)],
    "creation": lambda m, x: [
        m.zeros(2, 3), m.zeros((2, 3), dtype=m.int32), m.ones([2]), m.full((2, 2), 1.5),
        m.zeros_like(x), m.ones_like(x), m.full_like(x, 2), x.new_zeros(2, 3),
        x.new_full((2,), 7), m.arange(5), m.arange(2, 9, 3), m.arange(0.0, 1.0, 0.25),
    ],
    "casts": lambda m, x: [
        x.to(m.bfloat16).float(), x.half(), x.int(), x.to(dtype=m.int32), x.bool(),
        x.type_as(x.int()), x.to(x.int()), x.bfloat16(),
    ],
    "masked": lambda m, x: [
        x.masked_fill(x > 0, -1.0), m.where(x > 0, x, 0.0), x.where(x > 0, -x),
        m.where(x > 0, 1, 0),
    ],
}  # fmt: skip

TORCH_TWO = {
    "arithmetic": lambda m, x, y: [x + y, x - y, x * y, x / y, 2 - x, 1 / y, -x, +x, x // y, x % y],
    "functions": lambda m, x, y: [
        m.add(x, y), m.add(x, y, alpha=2), m.sub(x, y, alpha=0.5), m.mul(x, y), m.div(x, y),
        m.div(x, y, rounding_mode="floor"), m.div(x, y, rounding_mode="trunc"), m.true_divide(x, y),
        m.remainder(x, y), m.floor_divide(x, y), m.minimum(x, y), m.maximum(x, y), m.max(x, y),
        x.max(y), m.logaddexp(x, y), m.lerp(x, y, 0.25), m.addcmul(x, x, y, value=2),
        m.pow(m.abs(x), y), x ** 2, x ** 3, m.square(y),
    ],
    "compare": lambda m, x, y: [x < y, x <= y, x > y, x >= y, x == y, x != y, m.eq(x, y), x.ne(y)],
    "logic": lambda m, x, y: [
        (x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0),
        m.logical_and(x > 0, y > 0), m.logical_xor(x > 0, y > 0),
    ],
}  # fmt: skip

TORCH_PRODUCTS = {
    "matmul": lambda m, x, w, s, t, b: [
        x @ w, m.matmul(x, w), m.mm(x, w), x.mm(w), s @ t, m.bmm(s, t), s.bmm(t), s @ w,
        x.sum(0) @ w, x @ w.sum(1), x.sum(0) @ t, m.mv(x, w.sum(1)),
    ],
    "broadcast batch": lambda m, x, w, s, t, b: [x @ t, x.unsqueeze(0) @ t, m.linalg.matmul(s, w)],
    "addmm": lambda m, x, w, s, t, b: [
        m.addmm(b, x, w), m.addmm(b, x, w, beta=0.5, alpha=2), b.addmm(x, w),
        m.baddbmm(b, s, t), m.nn.functional.linear(x, w.T), m.addmm(input=b, mat1=x, mat2=w),
    ],
    "einsum": lambda m, x, w, s, t, b: [
        m.einsum("mk,kn->mn", x, w), m.einsum("mk,kn->nm", x, w), m.einsum("bmk,bkn->bmn", s, t),
        m.einsum("mk,kn", x, w), m.einsum("bmk,mk->b", s, x), m.einsum("mk,mk->m", x, x),
        m.einsum("mk,kn->n", x, w), m.einsum("mk,bkn->bmn", x, t), m.einsum("mk,nj->mj", x, x),
    ],
    "outer": lambda m, x, w, s, t, b: [m.outer(x.sum(0), w.sum(0)), m.dot(x.sum(0), w.sum(1))],
}  # fmt: skip

JAX = {
    "unary": lambda m, x: [
        f(x)
        for f in (
            m.numpy.exp, m.numpy.exp2, m.numpy.sin, m.numpy.cos, m.numpy.tanh, m.lax.erf,
            m.nn.sigmoid, m.nn.relu, m.nn.silu, m.nn.swish, m.nn.softplus, m.nn.gelu,
            m.numpy.floor, m.numpy.ceil, m.numpy.round, m.numpy.rint, m.numpy.trunc, m.numpy.sign,
            m.numpy.abs, m.numpy.negative, m.numpy.square, m.lax.logistic, m.lax.exp, m.lax.tanh,
            m.nn.log_sigmoid, m.nn.relu6, m.nn.mish, m.nn.leaky_relu, m.nn.hard_tanh,
            m.scipy.special.erf, m.scipy.special.expit, m.numpy.expm1, m.lax.expm1,
            m.nn.elu, m.nn.selu, m.nn.celu, m.nn.soft_sign, m.nn.hard_sigmoid, m.nn.hard_swish,
            m.nn.hard_silu,
        )
    ],
    "alphas": lambda m, x: [m.nn.elu(x, 0.3), m.nn.celu(x, 0.3), m.nn.celu(x, alpha=2.0)],
    "stop_gradient": lambda m, x: [m.lax.stop_gradient(x), m.lax.stop_gradient(x * 2)],
    "gelu": lambda m, x: [m.nn.gelu(x, approximate=False), m.nn.gelu(x, approximate=True)],
    "isnan": lambda m, x: [m.numpy.isnan(x), m.numpy.isfinite(x), m.lax.is_finite(x)],
    "clip": lambda m, x: [m.numpy.clip(x, -1, 1), m.lax.clamp(-1.0, x, 1.0), x.clip(0.0, 1.0)],
    "sum": lambda m, x: [
        x.sum(), x.sum(0), m.numpy.sum(x, axis=-1, keepdims=True), m.numpy.sum(x, (0, 1)),
        m.numpy.sum(x, axis=1, dtype=m.numpy.float32), m.lax.reduce_sum(x, (0,)),
    ],
    "mean": lambda m, x: [m.numpy.mean(x), x.mean(axis=1), m.numpy.mean(x, axis=0, keepdims=True)],
    "max": lambda m, x: [
        m.numpy.max(x, axis=1), m.numpy.min(x, 0, keepdims=True), m.numpy.amax(x), x.max(axis=1),
        x.min(axis=0, keepdims=True),
    ],
    "argmax": lambda m, x: [m.numpy.argmax(x, axis=1), x.argmin(axis=0), m.lax.argmax(x, 1, int32)],
    "any": lambda m, x: [m.numpy.any(x > 2, axis=1), (x > -9).all(axis=0), m.numpy.all(x > 0)],
    "softmax": lambda m, x: [
        m.nn.softmax(x), m.nn.softmax(x, axis=0), m.nn.log_softmax(x, axis=1),
        m.nn.logsumexp(x, axis=1), m.scipy.special.logsumexp(x, axis=0, keepdims=True),
    ],
    "var": lambda m, x: [
        m.numpy.var(x), m.numpy.var(x, axis=1, ddof=1), m.numpy.std(x, axis=0, keepdims=True),
        x.var(axis=1), x.std(axis=0, ddof=1),
    ],
    "norm": lambda m, x: [m.numpy.linalg.norm(x), m.numpy.linalg.norm(x, axis=1)],
    "transpose": lambda m, x: [
        x.T, x.mT, m.numpy.transpose(x), m.numpy.transpose(x, (1, 0)), x.transpose(),
        x.transpose((1, 0)), m.numpy.swapaxes(x, 0, 1), m.lax.transpose(x, (1, 0)),
        m.numpy.moveaxis(x, 0, 1), m.numpy.permute_dims(x, (1, 0)), m.numpy.matrix_transpose(x),
    ],
    "reshape": lambda m, x: [
        x.reshape(4, 3), x.reshape((2, -1)), m.numpy.reshape(x, (6, 2)), m.lax.reshape(x, (12,)),
        m.numpy.expand_dims(x, 0), m.numpy.expand_dims(x, (0, 3)), m.lax.expand_dims(x, (1,)),
        m.numpy.squeeze(m.numpy.expand_dims(x, 1), axis=1), x.ravel(), m.numpy.ravel(x),
    ],
    "broadcast": lambda m, x: [
        m.numpy.broadcast_to(x, (2, 3, 4)), m.lax.broadcast_in_dim(x, (3, 2, 4), (0, 2)),
    ],
    "concatenate": lambda m, x: [
        m.numpy.concatenate([x, x], axis=1), m.numpy.stack([x, x], axis=-1),
        m.lax.concatenate([x, x], 0),
    ],
    "split": lambda m, x: [
        *m.numpy.split(x, 2, axis=1), *m.numpy.split(x, [1, 3, 3], 1),
        *m.lax.split(x, (1, 2)), *m.numpy.split(x, indices_or_sections=(3,), axis=-1),
        *m.numpy.split(x, 3), m.nn.glu(x), m.nn.glu(x, axis=1),
    ],
    "creation": lambda m, x: [
        m.numpy.zeros((2, 3)), m.numpy.zeros((2,), m.numpy.int32), m.numpy.ones(3),
        m.numpy.full((2, 2), 1.5), m.numpy.full((2,), 7, dtype=m.numpy.bfloat16),
        m.numpy.zeros_like(x), m.numpy.full_like(x, 2), m.numpy.arange(5), m.lax.iota(int32, 3),
        m.numpy.arange(2, 9, 3), m.lax.broadcasted_iota(int32, (2, 3), 0), m.lax.full((2,), 2.0),
    ],
    "casts": lambda m, x: [
        x.astype(m.numpy.bfloat16), x.astype("int32"), m.lax.convert_element_type(x, m.numpy.int8),
        x.astype(bool), m.numpy.astype(x, m.numpy.float16),
    ],
    "where": lambda m, x: [m.numpy.where(x > 0, x, 0.0), m.numpy.where(x > 0, 1, 0)],
}  # fmt: skip

JAX_TWO = {
    "arithmetic": lambda m, x, y: [x + y, x - y, x * y, x / y, 2 - x, 1 / y, -x, x // y, x % y],
    "functions": lambda m, x, y: [
        m.numpy.add(x, y), m.numpy.subtract(x, y), m.numpy.divide(x, y), m.numpy.mod(x, y),
        m.numpy.floor_divide(x, y), m.numpy.minimum(x, y), m.lax.max(x, y), m.lax.div(x, y),
        m.numpy.logaddexp(x, y), m.numpy.power(m.numpy.abs(x), y), x ** 2, m.lax.integer_pow(x, 3),
        m.lax.select(x > y, x, y),
    ],
    "compare": lambda m, x, y: [x < y, x >= y, m.numpy.equal(x, y), m.numpy.less(x, y)],
    "logic": lambda m, x, y: [(x > 0) & (y > 0), ~(x > 0), m.numpy.logical_or(x > 0, y > 0)],
}  # fmt: skip

JAX_PRODUCTS = {
    "dot": lambda m, x, w, s, t, b: [
        m.numpy.dot(x, w), x.dot(w), m.lax.dot(x, w), m.numpy.matmul(s, t), x @ w, s @ t,
        m.numpy.dot(s, w), m.numpy.matmul(x, w, preferred_element_type=m.numpy.float32),
    ],
    "dot_general": lambda m, x, w, s, t, b: [
        m.lax.dot_general(x, w, (((1,), (0,)), ((), ()))),
        m.lax.dot_general(s, t, (((2,), (1,)), ((0,), (0,)))),
        m.lax.dot_general(s, x, (((1, 2), (0, 1)), ((), ()))),
        m.lax.dot_general(x, x, dimension_numbers=(((), ()), ((0,), (0,)))),
    ],
    "einsum": lambda m, x, w, s, t, b: [
        m.numpy.einsum("mk,kn->mn", x, w), m.numpy.einsum("bmk,bkn->nbm", s, t),
        m.numpy.einsum("bmk,mk->b", s, x), m.numpy.outer(x.sum(0), w.sum(0)),
    ],
}  # fmt: skip

INTEGERS = {
    "arithmetic": lambda m, i, j: [i + j, i - j, i * j, i // j, i % j, i / j, -i, m.abs(i)],
    "bits": lambda m, i, j: [i & j, i | j, i ^ j, ~i, i << 2, i >> 1, m.bitwise_and(i, j)],
    "promotion": lambda m, i, j: [i + 1, i + 1.5, i * 2.0, m.exp(i), m.sqrt(i * i), i > 2],
    "reductions": lambda m, i, j: [i.sum(1), i.argmax(1), m.amax(i, 0)],
}
int32 = jnp.int32


def as_numpy(value):
    if isinstance(value, torch.Tensor):
        wide = value.float() if value.dtype == torch.bfloat16 else value
        return wide.numpy()
    return np.asarray(value)


def dtype_of(value):
    return str(value.dtype).removeprefix("torch.")


def check(fn, module, arrays, convert):
    theirs = fn(module, *map(convert, arrays))
    ours = read(lambda *a: tuple(as_list(fn(*a))), module, arrays)
    for place, (want, got) in enumerate(zip(as_list(theirs), ours, strict=True)):
        wanted = {"int64": "int32", "uint8": "uint8"}.get(dtype_of(want), dtype_of(want))
        assert (got.dtype.name, got.shape) == (wanted, tuple(want.shape)), f"result {place}"
        a, b = (np.asarray(v, np.float32) for v in (got, as_numpy(want)))
        np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6, err_msg=f"result {place}")


def as_list(result):
    return result if isinstance(result, list) else [result]


@pytest.mark.parametrize("case", TORCH)
def test_torch(case):
    check(TORCH[case], torch, [X], torch.from_numpy)


@pytest.mark.parametrize("case", TORCH_TWO)
def test_torch_of_two(case):
    check(TORCH_TWO[case], torch, [X, Y], torch.from_numpy)


@pytest.mark.parametrize("case", TORCH_PRODUCTS)
def test_torch_products(case):
    check(TORCH_PRODUCTS[case], torch, [X, W, STACK, STACK_W, BIAS], torch.from_numpy)


@pytest.mark.parametrize("case", INTEGERS)
def test_torch_integers(case):
    check(INTEGERS[case], torch, [INT, J], torch.from_numpy)


@pytest.mark.parametrize("name", ["log", "log1p", "log2", "sqrt", "rsqrt", "reciprocal"])
def test_of_positive_numbers(name):
    check(lambda m, x: getattr(m, name)(x), torch, [POSITIVE], torch.from_numpy)
    module = jax.lax if name == "rsqrt" else jnp
    check(lambda m, x: getattr(m, name)(x), module, [POSITIVE], jnp.asarray)


@pytest.mark.parametrize("case", JAX)
def test_jax(case):
    check(JAX[case], jax, [X], jnp.asarray)


@pytest.mark.parametrize("case", JAX_TWO)
def test_jax_of_two(case):
    check(JAX_TWO[case], jax, [X, Y], jnp.asarray)


@pytest.mark.parametrize("case", JAX_PRODUCTS)
def test_jax_products(case):
    check(JAX_PRODUCTS[case], jax, [X, W, STACK, STACK_W, BIAS], jnp.asarray)


@pytest.mark.parametrize("case", INTEGERS)
def test_jax_integers(case):
    check(INTEGERS[case], jnp, [INT, J], jnp.asarray)


@pytest.mark.parametrize("module", sorted(MODULES))
def test_every_spelling_exists_and_resolves(module):
    """A misspelt entry would never be found: each must be a callable of its module."""
    loaded = __import__(module, fromlist=["x"])
    absent = {n for n in MODULES[module] if not hasattr(loaded, n)} - NOT_EVERYWHERE
    assert absent == set()
    for name in set(MODULES[module]) - NOT_EVERYWHERE:
        assert resolve(getattr(loaded, name)) is not None, name


# In some versions or in only one of the modules that share a table.
NOT_EVERYWHERE = {
    "astype", "bitwise_invert", "permute_dims", "matrix_transpose", "concat", "exp2", "pow",
    "bitwise_left_shift", "bitwise_right_shift", "vector_norm", "matmul", "linear",
}  # fmt: skip


def test_narrow_floats_round_after_every_op():
    x = (X * 3).astype(ml_dtypes.bfloat16)
    for fn in (
        lambda m, x: m.exp(x),
        lambda m, x: x * x + x,
        lambda m, x: m.sum(x, 1),
        lambda m, x: m.mean(x, 1),
        lambda m, x: x + 1.5,
        lambda m, x: x @ m.transpose(x, (1, 0)),
    ):
        got, want = read(fn, jnp, [x]), fn(jnp, jnp.asarray(x))
        assert got.dtype == want.dtype == ml_dtypes.bfloat16
        a, b = np.asarray(got, np.float32), np.asarray(want, np.float32)
        np.testing.assert_allclose(a, b, rtol=1 / 128)


def test_a_dot_of_narrow_floats_is_float32_with_hl_only():
    x = X.astype(ml_dtypes.bfloat16)
    assert read(lambda m, x: m.dot(x, x.T), hl, [x]).dtype == np.float32
    assert read(lambda m, x: x @ x.T, hl, [x]).dtype == ml_dtypes.bfloat16
    assert read(lambda m, x: m.matmul(x, x.T), torch, [x]).dtype == ml_dtypes.bfloat16
    wide = read(lambda m, x: m.dot(x, x.T, preferred_element_type=m.float32), jnp, [x])
    assert wide.dtype == np.float32
