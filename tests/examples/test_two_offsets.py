"""gdpa_jagged_kv: queries and keys are cut by offsets of their own, of other lengths."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
from examples.jagged import gdpa_jagged_kv
from tests.frameworks import from_jax
from tests.ragged import Space, covered, every_stratum, poison
from tests.tiers import share

QUERIES, KEYS = Space(rows=72, groups=5, block=16), Space(rows=50, groups=5, block=16)
PAIRS = list(zip(every_stratum(QUERIES), reversed(every_stratum(KEYS)), strict=False))
FORMS = ({}, {"steps": "rectangle"}, {"loop_type": "worklist"}, {"loop_type": "emit_pipeline"})


@pytest.mark.parametrize("form", share(FORMS, 2))
def test_every_pair_of_layouts(form: dict[str, str]) -> None:
    """Rows in no request hold NaN and Inf, which must not be seen; results there are zero."""
    config = tile.Config({"tq": 16, "tk": 32}, **form)
    q, k, v, *_ = gdpa_jagged_kv.make_inputs(queries=QUERIES.rows, keys=KEYS.rows)
    assert len(PAIRS) >= 8
    for queries, keys in PAIRS:
        cuts = queries.offsets, keys.offsets
        hidden = poison(q, covered(cuts[0], QUERIES.rows), 1)
        hidden_k, hidden_v = (poison(a, covered(cuts[1], KEYS.rows), 1) for a in (k, v))
        arguments = (hidden, hidden_k, hidden_v, *cuts)
        result = from_jax(gdpa_jagged_kv.gdpa_jagged_kv, arguments, config=config)
        exact = gdpa_jagged_kv.oracle(q, k, v, *cuts)
        np.testing.assert_allclose(result, exact, atol=2e-5, err_msg=f"{queries}; {keys}")
        assert (result[:, ~covered(cuts[0], QUERIES.rows)] == 0).all()
