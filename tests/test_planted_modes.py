"""Every bug planted in the runtime is noticed, and nothing is noticed without one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="some of the bugs are about torch")

from tests.planted import differentiated, modes


@pytest.mark.parametrize("planted", [*modes.BROKEN, *differentiated.BROKEN], ids=str)
def test_a_planted_bug_is_noticed(planted, monkeypatch):
    assert planted.check()
    monkeypatch.setattr(planted.owner, planted.name, planted.wrong)
    try:
        noticed = not planted.check()
    except Exception:
        noticed = True
    assert noticed
