"""Every planted bug of lanes, tables and carries is caught; the texts without one are right."""

from __future__ import annotations

import functools

import numpy as np
import pytest

pytest.importorskip("torch", reason="some of the bugs are about torch")

from tests.planted.lanes import BUGS, CASES
from tests.planted.trial import runnable
from tests.tiers import share
from tilelang.runtime.lowering import Lowered


@functools.cache
def lowered(name: str) -> Lowered:
    case = CASES[name]
    return case.kernel.lower(*case.arguments, config=case.config)


def is_right(name: str, text: str) -> bool:
    case = CASES[name]
    found = runnable(lowered(name), text)(*case.arguments)
    found = found if isinstance(found, tuple) else (found,)
    pairs = zip(found, case.exact(), strict=True)
    return all(np.array_equal(np.asarray(a, np.float64), b) for a, b in pairs)


@pytest.mark.parametrize("name", CASES)
def test_without_a_bug_the_text_is_right(name):
    assert is_right(name, lowered(name).source.text)


@pytest.mark.parametrize("bug", share(BUGS, 2, ids=lambda bug: f"{bug[0]}-{bug[1]}"))
def test_a_planted_bug_is_caught(bug):
    name, what, old, new = bug
    text = lowered(name).source.text
    assert old in text, what
    assert not is_right(name, text.replace(old, new)), what
