"""Every bug planted in a pass is noticed by the test of that pass: by the text, or by verify."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="some of the bugs are about torch")

from tests.planted.passes import MUTATIONS
from tests.tiers import share
from tilelang.errors import TileError
from tilelang.ir.verify import BrokenIR


@pytest.mark.parametrize("mutation", share(MUTATIONS, 2))
def test_a_planted_bug_is_caught(monkeypatch, mutation):
    mutation.seen_by()
    monkeypatch.setattr(mutation.owner, mutation.name, mutation.wrong)
    with pytest.raises((AssertionError, BrokenIR, TileError, pytest.fail.Exception)):
        mutation.seen_by()
