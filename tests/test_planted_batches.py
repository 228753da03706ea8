"""Every bug planted in batches of kernels is noticed, and nothing is noticed without one."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="some of the bugs are about torch")

from tests.planted.batches import MUTATIONS
from tests.tiers import share


@pytest.mark.parametrize("mutation", share(MUTATIONS, 2))
def test_a_planted_bug_is_caught(monkeypatch, mutation):
    mutation.seen_by()
    monkeypatch.setattr(mutation.owner, mutation.name, mutation.wrong)
    with pytest.raises((Exception, pytest.fail.Exception)):
        mutation.seen_by()
