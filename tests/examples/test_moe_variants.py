"""Quantised products, epilogues and pages beyond their main cases."""

from __future__ import annotations

from itertools import pairwise

import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
from examples.jagged import grouped_gemm_bias_activation as epilogue
from examples.jagged import paged_attention as paged
from examples.jagged import quantized_grouped_gemm as quantized
from tests.frameworks import NEEDS_TORCH, from_jax, torch

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
SMALL = tile.Config({"tm": 16, "tn": 128, "tk": 128})
PAGES = tile.Config({"tq": 16})


def close(result, expected):
    np.testing.assert_allclose(result, expected, atol=2e-6 * np.abs(expected).max())


# ---------------------------------------------------------------- quantised


@pytest.mark.parametrize("dtype", FLOAT8)
def test_weights_in_eight_bit_floats(dtype):
    arguments = quantized.make_inputs(k=136, n=200, dtype=dtype)
    kernel, expected = quantized.weight_only_grouped_gemm, quantized.oracle(*arguments)
    close(from_jax(kernel, arguments, config=SMALL), expected)
    close(kernel.reference(*arguments, blocks=dict(SMALL.blocks)), expected)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_rows_and_weights_in_eight_bit_floats(dtype):
    arguments = quantized.make_quantized_inputs(k=136, n=200, dtype=dtype)
    kernel, expected = quantized.quantized_grouped_gemm, quantized.oracle_quantized(*arguments)
    close(from_jax(kernel, arguments, config=SMALL), expected)
    close(kernel.reference(*arguments, blocks=dict(SMALL.blocks)), expected)


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
@pytest.mark.parametrize("dtype", FLOAT8)
def test_eight_bit_floats_of_torch(dtype):
    assert torch is not None
    x, w, scale, offsets = quantized.make_inputs(dtype=dtype)
    weights = torch.from_numpy(w.view(np.uint8)).view(getattr(torch, dtype))
    given = (torch.from_numpy(x), weights, torch.from_numpy(scale), torch.from_numpy(offsets))
    result = quantized.weight_only_grouped_gemm(*given, config=SMALL)
    close(result.numpy(), quantized.oracle(x, w, scale, offsets))


@pytest.mark.parametrize(("dtype", "most"), [("int8", 0.01), ("float8_e4m3fn", 0.04)])
def test_what_quantising_costs(dtype, most):
    """The products of the restored weights are those of the weights, up to rounding."""
    rng = np.random.default_rng(0)
    w = rng.standard_normal((3, 64, 40), np.float32)
    values, scale = quantized.quantize(w, dtype, 1)
    restored = values.astype(np.float32) * scale[:, None]
    assert np.linalg.norm(restored - w) <= most * np.linalg.norm(w)
    assert values.dtype.name == dtype and scale.shape == (3, 40)


def test_integer_sums_are_exact():
    """Of 300 products of 127 * 127, which bfloat16 and float32 sums would round."""
    x, w = np.full((5, 300), 127, np.int8), np.full((1, 300, 7), 127, np.int8)
    w[0, 0] = 1
    scales = np.ones(5, np.float32), np.ones((1, 7), np.float32)
    arguments = (x, scales[0], w, scales[1], np.array([0, 5], np.int32))
    result = from_jax(quantized.quantized_grouped_gemm, arguments, config=SMALL)
    assert (result == 299 * 127 * 127 + 127).all()


# ---------------------------------------------------------------- epilogues


def test_an_epilogue_is_any_function():
    def clipped_square(value):
        return jnp.minimum(value * value, 2.0)

    arguments = epilogue.make_inputs()
    expected = epilogue.oracle(*arguments, lambda v: np.minimum(v * v, 2.0))
    kernel = epilogue.make_kernel(clipped_square)
    np.testing.assert_allclose(from_jax(kernel, arguments, config=SMALL), expected, atol=1e-5)


def test_a_gate_of_another_kind():
    x, w, v, offsets = epilogue.make_gated_inputs()
    result = from_jax(epilogue.make_gated_kernel(jnp.tanh), (x, w, v, offsets), config=SMALL)
    expected = np.zeros(result.shape)
    for g, (begin, end) in enumerate(pairwise(offsets)):
        rows = x[begin:end].astype(np.float64)
        expected[begin:end] = np.tanh(rows @ w[g]) * (rows @ v[g])
    np.testing.assert_allclose(result, expected, atol=1e-5)


# ---------------------------------------------------------------- pages


def test_decoding_one_query_for_each_sequence():
    arguments = paged.make_inputs(offsets=tuple(range(8)), rows=7, longest=50)
    result = from_jax(paged.paged_attention, arguments, config=PAGES)
    np.testing.assert_allclose(result, paged.oracle(*arguments), atol=2e-6)


def test_a_prompt_is_read_from_its_first_position_on():
    """As many queries as positions: plain causal attention."""
    arguments = list(paged.make_inputs(offsets=(0, 40), rows=40, longest=40))
    assert arguments[4] == 40
    result = from_jax(paged.paged_attention, arguments, config=PAGES)
    np.testing.assert_allclose(result, paged.oracle(*arguments), atol=2e-6)


def test_sequences_may_share_pages():
    arguments = list(paged.make_inputs())
    table, lengths = arguments[3], arguments[4]
    table[1:] = table[0]
    lengths[:] = lengths[0]
    result = from_jax(paged.paged_attention, arguments, config=PAGES)
    np.testing.assert_allclose(result, paged.oracle(*arguments), atol=2e-6)


@pytest.mark.parametrize(("page", "why"), [(10**6, "is too large"), (-1, "is negative")])
def test_a_page_that_does_not_exist(page, why):
    arguments = list(paged.make_inputs())
    arguments[3][1, 0] = page
    with pytest.raises(ValueError, match=rf"table\[1, 0\] = {page} {why}.* of k_pages"):
        from_jax(paged.paged_attention, arguments, config=PAGES)


def test_entries_of_the_table_that_are_not_in_use_may_be_anything():
    arguments = list(paged.make_inputs(longest=64))
    expected = paged.oracle(*arguments)
    most = arguments[3].shape[1]
    arguments[3] = np.concatenate([arguments[3], np.full((4, 2), -7, np.int32)], axis=1)
    assert (arguments[4] <= most * 16).all()
    result = from_jax(paged.paged_attention, arguments, config=PAGES)
    np.testing.assert_allclose(result, expected, atol=2e-6)


def test_more_positions_than_the_table_has_pages_for():
    arguments = list(paged.make_inputs())
    arguments[4][2] = 1000
    with pytest.raises(ValueError, match="past the 6 columns of table"):
        from_jax(paged.paged_attention, arguments, config=PAGES)


# ---------------------------------------------------------------- routing


@pytest.fixture
def moe():
    return pytest.importorskip("examples.jagged.moe", reason=NEEDS_TORCH)


@pytest.mark.parametrize(
    ("tokens", "experts", "top"),
    [
        (33, 9, 3),
        (7, 1, 1),
        pytest.param(40, 5, 2, marks=pytest.mark.slow),
        pytest.param(1, 4, 2, marks=pytest.mark.slow),
    ],
)
def test_random_routing(moe, tokens, experts, top):
    for seed in range(3):
        arguments = moe.make_inputs(seed, tokens, experts, top, 136, 72)
        config = tile.Config({"ts": 16, "tn": 128, "td": 128})
        result = from_jax(moe.moe, arguments, config=config)
        np.testing.assert_allclose(result, moe.oracle(*arguments), atol=1e-5)


def test_pairs_that_the_router_drops(moe):
    """The last slots belong to no expert; their pairs add nothing, whatever their token is."""
    x, w, token, slot, gate, offsets = moe.make_inputs()
    offsets = np.minimum(offsets, 70)
    x[token[75]] = 1e30
    result = from_jax(moe.moe, (x, w, token, slot, gate, offsets))
    expected = moe.oracle(x, w, token, slot, gate, offsets)
    np.testing.assert_allclose(result, expected, atol=1e-5 * np.abs(expected).max())
    assert not np.array_equal(expected, moe.oracle(x, w, token, slot, gate, moe.make_inputs()[5]))


def test_a_slot_that_does_not_exist(moe):
    x, w, token, slot, gate, offsets = moe.make_inputs()
    slot[3, 1] = 80
    with pytest.raises(ValueError, match=r"= 80 is too large: it picks one of the 80 rows of z"):
        from_jax(moe.moe, (x, w, token, slot, gate, offsets))
