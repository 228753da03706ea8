"""Random rows that tiles store: whatever is taken is the same in every block, by the reference.

The rows may be such as a loop before has stored, and a loop behind may read what is stored.
"""

from __future__ import annotations

import importlib.util
import random

import numpy as np
import pytest

import tilelang as tile
from tests.tiers import share
from tilelang.analysis import cuts
from tilelang.errors import ParseError

KERNEL = """
import tilelang as tile
import tilelang.language as hl

@tile.kernel
def kernel(x, s, offsets):
    y = hl.{made}(x.shape, dtype=hl.float32)
    {before}
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            rows = x[t, :]
            most = rows.amax(0)[None, :]
            total = rows.sum(0)[None, :]
            seen = hl.where(t.index[:, None] >= t.index[None, :], 1.0, 0.0)
            below = hl.dot(seen, rows)
            before = hl.zeros([t, x.shape[1]], dtype=hl.float32)
            for k in hl.tile(offsets[g], t.end):
                near = hl.where(k.index[None, :] {side} t.index[:, None], 1.0, {other})
                before = before + hl.dot(near, x[k, :])
            {condition}
            y[t, :] = {value}
            acc = {fold}
    {behind}
    return y
"""
BEFORE = """
    read = hl.empty(x.shape, dtype=hl.float32)
    for u in hl.tile(x.shape[0]):
        read[u, :] = x[u, :] * 0.5
"""
BEHIND = """
    z = hl.empty(x.shape, dtype=hl.float32)
    for v in hl.tile(x.shape[0]):
        z[v, :] = y[v, :] + 1.0
"""
LEAVES = (
    "rows", "rows", "rows * 0.5", "below", "below + acc[None, :]", "before", "s[:][None, :]",
    "hl.exp(rows - most) * hl.exp(most)", "(total - rows)", "most", "acc[None, :]",
    "(t.index - t.begin)[:, None] * 1.0", "(t.end - t.index)[:, None] * 1.0", "t.begin * 0.125",
    "(t.end - t.begin) * rows", "((rows - total) + total)", "(t.index - offsets[g])[:, None] * 1.0",
)  # fmt: skip
FOLDS = ("acc + rows.sum(0)", "acc + rows.sum(0)", "hl.maximum(acc, rows.amax(0))", "acc")
CONDITIONS = ("", "", "", "if t.end > offsets[g] + 3:", "if t.begin >= offsets[g]:")
OFFSETS = [[0, 23], [0, 0, 5, 6, 23], [2, 9, 9, 20]]
SEEDS = range(9_300_000, 9_300_048)


def value(rng: random.Random, depth: int) -> str:
    if not depth:
        return rng.choice(LEAVES)
    one, other = value(rng, depth - 1), value(rng, rng.randint(0, depth - 1))
    return rng.choice((
        f"({one} + {other})", f"({one} - {other})", f"hl.maximum({one}, {other})",
        f"hl.where(t.index[:, None] < {rng.randint(3, 24)}, {one}, {other})",
        f"({one} * s[:][None, :])",
    ))  # fmt: skip


def text(seed: int) -> str:
    rng = random.Random(seed)
    condition = rng.choice(CONDITIONS)
    made = KERNEL.format(
        made=rng.choice(("zeros", "empty")) if not condition else "zeros",
        side=rng.choice(("<=", "<=", "<")),
        other=rng.choice(("0.0", "0.0", "0.0", "0.5")),
        condition=condition or "pass",
        value=value(rng, rng.randint(0, 2)),
        fold=rng.choice(FOLDS),
        before="{before}",
        behind="{behind}",
    )
    before, behind = rng.choice(("", "", BEFORE)), rng.choice(("", "", BEHIND))
    if before:
        made = made.replace("x[t, :]", "read[t, :]").replace("x[k, :]", "read[k, :]")
    made = made.replace("return y", "return z") if behind else made
    made = made.replace("    {before}\n", before).replace("    {behind}\n", behind)
    stored = "            y[t, :]"
    made = made.replace(f"            pass\n{stored}", stored)
    return made.replace(stored, f"    {stored}") if condition else made


def results(kernel: tile.Kernel, seed: int) -> list[np.ndarray]:
    """Of the same arguments in several blocks."""
    rng = np.random.default_rng(seed)
    x, s = (rng.standard_normal(n).astype(np.float32) for n in ((23, 3), (3,)))
    offsets = np.array(OFFSETS[seed % len(OFFSETS)], np.int32)
    inside = slice(offsets[0], offsets[-1])
    blocks = ({"t": n, "k": 4} for n in (1, 2, 3, 5, 23))
    return [np.asarray(kernel.reference(x, s, offsets, blocks=b))[inside] for b in blocks]


def outcome(seed: int, folder) -> str:
    """Whether a kernel is taken, and whether its results are the same."""
    path = folder / f"tiles{seed}.py"
    path.write_text(text(seed))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        found = [results(module.kernel, seed + n) for n in range(len(OFFSETS))]
    except ParseError as error:
        assert "depend on the block of" in error.what, error
        return "refused"
    pairs = [(one, made[0]) for made in found for one in made]
    same = [np.allclose(*pair, rtol=1e-3, atol=1e-3, equal_nan=True) for pair in pairs]
    return "same" if all(same) else "WRONG"


@pytest.mark.parametrize("seed", share(SEEDS, 4))
def test_what_is_taken_is_the_same_in_every_block(seed, tmp_path):
    assert outcome(seed, tmp_path) != "WRONG", text(seed)


def test_both_are_drawn(tmp_path):
    found = [outcome(seed, tmp_path) for seed in SEEDS[:16]]
    assert {*found} == {"same", "refused"}


def test_planted_stores_that_nobody_asks(monkeypatch, tmp_path):
    monkeypatch.setattr(cuts, "_asked", lambda *given: cuts._Asked(frozenset(), frozenset(), True))
    assert "WRONG" in [outcome(seed, tmp_path) for seed in SEEDS[:16]]
