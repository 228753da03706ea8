"""Every bug planted in derivation is noticed: by JAX's gradient, a refusal, or the text."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="some of the bugs are about torch")

from tests.planted.gradients import MUTATIONS
from tests.tiers import share
from tilelang.errors import TileError
from tilelang.ir.verify import BrokenIR


@pytest.mark.parametrize("mutation", share(MUTATIONS, 6, ids=lambda m: m.what))
def test_a_planted_bug_is_caught(monkeypatch, mutation):
    mutation.seen_by()
    monkeypatch.setattr(mutation.owner, mutation.name, mutation.wrong)
    caught = (AssertionError, BrokenIR, TileError, pytest.fail.Exception)
    with pytest.raises(caught):
        mutation.seen_by()
