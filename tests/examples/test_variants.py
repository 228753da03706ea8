"""What single examples offer beyond their main case: options, other widths, extreme values."""

from __future__ import annotations

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense import matmul, softmax
from examples.jagged import gdpa_dense_kv, jagged_attention, jagged_sum
from tests.frameworks import NEEDS_TORCH, from_jax, from_torch, torch
from tests.tiers import share

ATTENTION = jagged_attention.jagged_attention
SMALL = tile.Config({"tq": 16, "tk": 32})


@pytest.mark.parametrize("causal", share((True, False), 2))
def test_attention_with_the_longest_length_given(causal):
    """The step table is smaller; the result is not another one."""
    q, k, v, offsets = jagged_attention.make_inputs(offsets=(3, 20, 20, 60, 100), length=120)
    plain = from_jax(ATTENTION, (q, k, v, offsets, causal), config=SMALL)
    bounded = from_jax(ATTENTION, (q, k, v, offsets, causal, 40), config=SMALL)
    np.testing.assert_array_equal(plain, bounded)


def test_attention_refuses_a_sequence_longer_than_the_longest():
    q, k, v, offsets = jagged_attention.make_inputs(offsets=(3, 20, 20, 60, 100), length=120)
    with pytest.raises(ValueError, match=r"group 2 of offsets holds 40 .*max_extent = 39"):
        from_jax(ATTENTION, (q, k, v, offsets, False, 39))


def test_attention_with_values_of_another_width():
    q, k, _, offsets = jagged_attention.make_inputs()
    v = np.random.default_rng(1).standard_normal((*k.shape[:2], 48), np.float32)
    expected = jagged_attention.oracle(q, k, v, offsets, True)
    result = from_jax(ATTENTION, (q, k, v, offsets, True), config=SMALL)
    np.testing.assert_allclose(result, expected, atol=2e-6)


@pytest.mark.parametrize("scale", share((1e4, 1e-4, 30.0), 3))
def test_attention_does_not_overflow(scale):
    """With large scores every query picks one key, at whatever tile the largest score is."""
    q, k, v, offsets = jagged_attention.make_inputs()
    for causal in (False, True):
        arguments = (q * np.float32(scale), k, v, offsets, causal)
        result = from_jax(ATTENTION, arguments, config=SMALL)
        expected = jagged_attention.oracle(*arguments)
        assert np.isfinite(result).all()
        # a score of size s is off by s * 2**-22 or so, and a weight by as much of itself
        np.testing.assert_allclose(result, expected, atol=2e-6 + 2e-6 * scale)


def relu_squared(score):
    return hl.relu(score) * hl.relu(score)


@pytest.mark.parametrize(
    ("activation", "meaning"),
    [
        (jnp.tanh, np.tanh),
        (relu_squared, lambda s: np.maximum(s, 0) ** 2),
        (lambda score: hl.sigmoid(score) + 1, lambda s: 1 / (1 + np.exp(-s)) + 1),
    ],
    ids=["tanh", "function", "lambda"],
)
def test_gdpa_with_any_activation(activation, meaning):
    arguments = gdpa_dense_kv.make_inputs()
    kernel = gdpa_dense_kv.make_kernel(activation)
    expected = gdpa_dense_kv.oracle(*arguments, meaning)
    result = from_jax(kernel, arguments, config=tile.Config({"tq": 16, "ts": 16}))
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
def test_gdpa_with_an_activation_of_torch():
    arguments = gdpa_dense_kv.make_inputs()
    kernel = gdpa_dense_kv.make_kernel(torch.nn.functional.silu)
    expected = gdpa_dense_kv.oracle(*arguments, gdpa_dense_kv.silu)
    np.testing.assert_allclose(from_torch(kernel, arguments), expected, atol=1e-5)


@pytest.mark.parametrize("slope", [0.0, 0.25])
def test_an_epilogue_may_be_a_closure(slope):
    x, w = matmul.make_inputs()
    bias = matmul.make_bias()
    kernel = matmul.make_kernel(matmul.leaky_relu_with_bias(slope))
    expected = matmul.oracle_leaky(x, w, bias, slope)
    np.testing.assert_allclose(from_jax(kernel, (x, w, bias)), expected, atol=1e-5)


def test_softmax_of_rows_that_overflow_exp():
    x = np.array([[1000.0, 1000.0], [-1000.0, 0.0], [-math.inf, 5.0]], np.float32)
    expected = [[0.5, 0.5], [0.0, 1.0], [0.0, 1.0]]
    np.testing.assert_array_equal(from_jax(softmax.softmax, (x,)), expected)


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
@pytest.mark.parametrize("last", [2**40, 2**32 + 150, -(2**40)])
def test_int64_offsets_are_never_truncated(last):
    """2**32 + 150 would be 150, a legal offset, in 32 bits."""
    x, _ = jagged_sum.make_inputs()
    with pytest.raises(ValueError, match="offsets"):
        from_torch(jagged_sum.jagged_sum, (x, np.array([0, 100, last])))


def test_one_compile_serves_every_layout():
    x, offsets = jagged_sum.make_inputs()
    kernel = tile.kernel(jagged_sum.jagged_sum.__wrapped__)
    given = jnp.asarray(x)
    for end in range(0, 200, 20):
        kernel(given, jnp.asarray(np.minimum(offsets, end)))
    stats = kernel.stats()
    assert (stats.calls, stats.specialisations, stats.compiles) == (10, 1, 1)


def test_kernels_compose_inside_one_jit():
    x, offsets = jagged_sum.make_inputs()

    @jax.jit
    def run(x, offsets):
        return softmax.softmax(jagged_sum.jagged_sum(x, offsets))

    expected = softmax.oracle(jagged_sum.oracle(x, offsets))
    np.testing.assert_allclose(from_jax(run, (x, offsets)), expected, atol=1e-5)
