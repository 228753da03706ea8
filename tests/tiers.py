"""share(values, of, nth) -> pytest parameters: every `of`-th always runs, the others in a tier.

`make test` runs what has no mark, CI the slow tests too, `make thorough` everything.  Tests of one
file take turns, so that every example is asked something by every tier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest


def share(
    values: Iterable[Any],
    of: int,
    nth: int = 0,
    rest: str = "slow",
    ids: Callable[[Any], str] = str,
) -> list[Any]:
    """Of every `of` values the `nth` has no mark, and the others have the mark `rest`."""
    others = getattr(pytest.mark, rest)
    return [
        pytest.param(value, id=ids(value), marks=() if n % of == nth % of else others)
        for n, value in enumerate(values)
    ]
