"""The kernels by hand are right, so that comparing with them means something."""

from __future__ import annotations

import numpy as np
import pytest

from examples.jagged import grouped_gemm as gemm
from examples.jagged import jagged_attention as attention

pytest.importorskip("jax")

from tilelang.runtime.jax_compat import traced_for

OFFSETS = [(0, 37, 37, 120, 256), (0, 64, 128, 192, 256), (0, 1, 1, 2, 256), (0, 0, 0, 0, 256)]


@pytest.mark.parametrize("offsets", OFFSETS)
def test_grouped_gemm(offsets: tuple[int, ...]) -> None:
    from tests.by_hand.grouped_gemm import grouped_gemm

    x, w, table = gemm.make_inputs(offsets=offsets, rows=256, k=64, n=256)
    with traced_for("TPU v6 lite", 1):
        found = grouped_gemm(x, w, table, bm=64, bn=128, interpret=True)
    np.testing.assert_allclose(found, gemm.oracle(x, w, table), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("offsets", OFFSETS)
def test_jagged_attention(offsets: tuple[int, ...], causal: bool) -> None:
    from tests.by_hand.jagged_attention import jagged_attention

    q, k, v, table = attention.make_inputs(offsets=offsets, length=256, width=64)
    with traced_for("TPU v6 lite", 1):
        found = jagged_attention(q, k, v, table, bq=64, bk=128, causal=causal, interpret=True)
    expected = attention.oracle(q, k, v, table, causal)
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
