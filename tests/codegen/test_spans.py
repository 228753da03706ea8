"""Where blocks of ranges begin and end, as XLA finds it: few blocks, many of them, any offsets."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilelang.codegen.pallas.emit.functions import SPANS

MOST = np.iinfo(np.int32).max


def spans_of(text: str, offsets: np.ndarray, size: int) -> list[int]:
    known: dict[str, Any] = {"jax": jax, "jnp": jnp}
    exec(text, known)
    return np.asarray(known["spans_of"](jnp.asarray(offsets), size)).tolist()


def one_by_one(offsets: np.ndarray, size: int) -> list[int]:
    """The same by loops."""
    firsts: list[int] = []
    stops: list[int] = []
    ranges = list(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True))
    for block in (ranges[at : at + size] for at in range(0, len(ranges), size)):
        live = [each for each in block if each[0] < each[1]]
        first = min((begin for begin, _ in live), default=MOST)
        stops.append(max((end for _, end in live), default=0))
        firsts.append(first if first < stops[-1] else min(begin for begin, _ in block))
    return firsts + stops


def some(count: int, rises: bool) -> np.ndarray:
    found = np.random.default_rng(count).integers(0, 50, count + 1).astype(np.int32)
    return np.sort(found) if rises else found


CASES = [(1, 4), (5, 2), (7, 7), (128, 4), (2048, 64), (600, 4), (3001, 16)]


@pytest.mark.parametrize("rises", [True, False])
@pytest.mark.parametrize(("count", "size"), CASES)
def test_every_block_has_its_own_ranges(count, size, rises):
    offsets = some(count, rises)
    assert spans_of(SPANS, offsets, size) == one_by_one(offsets, size)


@pytest.mark.parametrize(
    ("old", "new", "count"),
    [
        ("[:, None] ==", "[:, None] >=", 128),  # ranges of blocks before it, too
        ("live, own = end > begin", "live, own = end >= 0", 128),  # groups without rows count
        ("constant_values=other", "constant_values=0", 3001),  # rows behind the last group count
        ("each(begin, most)", "each(end, most)", 128),  # a block without rows is somewhere else
    ],
)
def test_a_planted_bug_is_noticed(old, new, count):
    assert old in SPANS
    wrong, offsets = SPANS.replace(old, new), some(count, False)
    assert spans_of(wrong, offsets, 4) != one_by_one(offsets, 4)
