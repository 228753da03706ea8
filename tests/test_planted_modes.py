"""Every bug planted in the runtime is noticed, and nothing is noticed without one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="some of the bugs are about torch")

from tests.planted import differentiated, modes
from tests.tiers import share


@pytest.mark.parametrize("planted", share([*modes.BROKEN, *differentiated.BROKEN], 2))
def test_a_planted_bug_is_noticed(planted, monkeypatch):
    assert planted.check()
    monkeypatch.setattr(planted.owner, planted.name, planted.wrong)
    try:
        noticed = not planted.check()
    except Exception:
        noticed = True
    assert noticed
