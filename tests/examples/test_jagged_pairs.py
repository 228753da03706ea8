"""What the shared tests do not ask of kernels with two tensors of offsets, boxes, or ids."""

from __future__ import annotations

import jax
import numpy as np
import pytest

import tilelang as tile
from examples.jagged import gdpa_jagged_kv, jagged_dense_add, segment_reduction, segment_sum
from tests.frameworks import from_jax

SMALL = tile.Config({"tq": 16, "tk": 32})


def close(kernel: tile.Kernel, arguments: tuple, expected: np.ndarray, **options) -> None:
    result = from_jax(kernel, arguments, **options)
    np.testing.assert_allclose(result, expected, atol=2e-5, rtol=1e-6)


# ---------------------------------------------------------------- two tensors of offsets


@pytest.mark.parametrize(
    "config", [None, pytest.param(SMALL, marks=pytest.mark.slow)], ids=["default", "small"]
)
@pytest.mark.parametrize(
    ("q_offsets", "kv_offsets"),
    [
        ((0, 20, 40, 60), (50, 50, 50, 50)),  # no request has keys
        ((7, 7, 7, 7), (0, 30, 60, 90)),  # no request has queries
        ((0, 0, 30, 60), (0, 90, 90, 100)),  # keys without queries, queries without keys
        ((0, 1, 2, 3), (97, 98, 99, 100)),
        ((16, 32, 48, 64), (0, 32, 64, 96)),
        ((0, 80, 80, 80), (0, 0, 0, 100)),  # the only queries see nothing
    ],
)
def test_queries_and_keys_of_different_lengths(q_offsets, kv_offsets, config):
    arguments = gdpa_jagged_kv.make_inputs(q_offsets=q_offsets, kv_offsets=kv_offsets)
    expected = gdpa_jagged_kv.oracle(*arguments)
    close(gdpa_jagged_kv.gdpa_jagged_kv, arguments, expected, config=config)


@pytest.mark.parametrize(("queries", "keys"), [(60, 0), (0, 90), (1, 1), (61, 127)])
def test_no_queries_or_no_keys_at_all(queries, keys):
    q_offsets, kv_offsets = (0, queries // 2, queries), (0, keys // 3, keys)
    arguments = gdpa_jagged_kv.make_inputs(
        q_offsets=q_offsets, kv_offsets=kv_offsets, queries=queries, keys=keys, width=5
    )
    expected = gdpa_jagged_kv.oracle(*arguments)
    close(gdpa_jagged_kv.gdpa_jagged_kv, arguments, expected)


def test_values_of_another_width_than_keys():
    q, k, _, *offsets = gdpa_jagged_kv.make_inputs()
    v = np.random.default_rng(1).standard_normal((*k.shape[:2], 48), np.float32)
    arguments = (q, k, v, *offsets)
    expected = gdpa_jagged_kv.oracle(*arguments)
    close(gdpa_jagged_kv.gdpa_jagged_kv, arguments, expected, config=SMALL)


def test_other_activations_of_two_ragged_batches():
    """relu(s) = s - min(s, 0), so that the two of them sum to plain products."""
    arguments = gdpa_jagged_kv.make_inputs()
    up = from_jax(gdpa_jagged_kv.make_kernel(jax.nn.relu), arguments, config=SMALL)
    negative = (-arguments[0], *arguments[1:])
    down = from_jax(gdpa_jagged_kv.make_kernel(jax.nn.relu), negative, config=SMALL)
    q, k, v, q_offsets, kv_offsets = arguments
    for b in range(3):
        rows = slice(q_offsets[b], q_offsets[b + 1])
        keys = slice(kv_offsets[b], kv_offsets[b + 1])
        scores = q[:, rows] @ k[:, keys].transpose(0, 2, 1) / np.sqrt(q.shape[2])
        np.testing.assert_allclose((up - down)[:, rows], scores @ v[:, keys], atol=1e-4)


# ---------------------------------------------------------------- boxes


@pytest.mark.parametrize("longest", [1, 16, 83, 200])
def test_boxes_lower_and_higher_than_groups(longest):
    arguments = jagged_dense_add.make_inputs(longest=longest, features=5)
    expected = jagged_dense_add.oracle(*arguments)
    config = tile.Config({"tm": 16})
    close(jagged_dense_add.jagged_dense_add, arguments, expected, config=config)


def test_rows_of_a_box_that_no_group_reaches_are_not_seen():
    x, dense, offsets = jagged_dense_add.make_inputs(longest=90)
    for g, size in enumerate(np.diff(offsets)):
        dense[g, size:] = np.nan
    expected = jagged_dense_add.oracle(x, dense, offsets)
    close(jagged_dense_add.jagged_dense_add, (x, dense, offsets), expected)


# ---------------------------------------------------------------- segments


def test_the_largest_of_negative_rows_is_not_zero():
    x, offsets = segment_reduction.make_inputs()
    sums, peaks = from_jax(segment_reduction.segment_reduction, (-np.abs(x) - 1, offsets))
    filled = np.diff(offsets) > 0
    assert (peaks[filled] <= -1).all() and not peaks[~filled].any()
    assert (sums[filled] <= peaks[filled]).all() and not sums[~filled].any()


def test_infinite_rows_stay_in_their_segment():
    x, offsets = segment_reduction.make_inputs()
    x[0], x[40] = -np.inf, np.inf
    sums, peaks = from_jax(segment_reduction.segment_reduction, (x, offsets))
    assert (sums[0] == -np.inf).all() and np.isfinite(peaks[0]).all()
    assert (sums[2] == np.inf).all() and (peaks[2] == np.inf).all()
    assert np.isfinite(sums[3]).all() and np.isfinite(peaks[3]).all()


@pytest.mark.parametrize("segment", [0, 17, 29])
def test_all_rows_in_one_segment(segment):
    x, ids, segments = segment_sum.make_inputs(rows=131, features=3)
    arguments = (x, np.full_like(ids, segment), segments)
    close(segment_sum.segment_sum, arguments, segment_sum.oracle(*arguments))


def test_ids_are_not_sorted_and_may_be_of_64_bits():
    x, ids, segments = segment_sum.make_inputs(rows=97)
    arguments = (x, np.random.default_rng(3).permutation(ids).astype(np.int64), segments)
    expected = segment_sum.oracle(*arguments)
    result = segment_sum.segment_sum(*arguments, config=tile.Config({"tm": 16}))
    np.testing.assert_allclose(np.asarray(result), expected, atol=2e-5)


@pytest.mark.parametrize("wrong", [-1, 30])
def test_an_id_of_no_segment_is_named(wrong):
    x, ids, segments = segment_sum.make_inputs()
    ids[13] = wrong
    with pytest.raises(ValueError, match=rf"ids\[13\] = {wrong}"):
        segment_sum.segment_sum(x, ids, segments)
