"""share(values, of, nth) -> pytest parameters: every `of`-th always runs, the others in a tier.

HALF, FIFTH: of the others every second, or fifth, runs in CI, and the rest in `make thorough`.

`make test` runs what has no mark, CI the slow tests too, `make thorough` everything.  Tests of one
file take turns, so that every example is asked something by every tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

HALF = "slow", "thorough"
FIFTH = "slow", *["thorough"] * 4


def share(
    values: Iterable[Any],
    of: int,
    nth: int = 0,
    rest: str | tuple[str, ...] = "slow",
    ids: Callable[[Any], str] = str,
) -> list[Any]:
    """Of every `of` values the `nth` has no mark; the others have the marks of `rest` in turn."""
    tiers = (rest,) if isinstance(rest, str) else rest
    found, others = [], 0
    for n, value in enumerate(values):
        if n % of == nth % of:
            found.append(pytest.param(value, id=ids(value)))
            continue
        mark = getattr(pytest.mark, tiers[others % len(tiers)])
        found.append(pytest.param(value, id=ids(value), marks=mark))
        others += 1
    return found
