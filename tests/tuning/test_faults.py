"""Some injected faults of every kind; `make tuner-faults` injects 500."""

from __future__ import annotations

import pytest

from tests.tuning import faults
from tilelang.autotune import lock as locks


@pytest.mark.parametrize(
    "count",
    [6, pytest.param(12, marks=pytest.mark.slow), pytest.param(500, marks=pytest.mark.thorough)],
)
def test_no_fault_leads_to_a_wrong_config(count, monkeypatch):
    monkeypatch.setattr(locks, "_used", [None])
    found = faults.run(count, seed=count)
    assert sum(found.values()) == count
    assert [what for what in found if "WRONG" in what] == []
