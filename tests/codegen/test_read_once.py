"""Texts for GPUs say what is read, by which mask, and what the other lanes hold, once.

Rows and numbers that do not move with a loop stand before it, under the author's names; what a
mask leaves out holds what is wanted of it as it is read; a mask has every condition once, and none
that the range of a tile says.
"""

from __future__ import annotations

from collections import defaultdict

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.passes.becomes import again, floats
from tilelang.codegen.triton.plan import access, body, others, problem, unmoved


@tile.kernel
def soft(x, offsets):
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        m = hl.full([], -1e30, dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            v = x[t]
            m = hl.maximum(m, v.amax(0))
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = hl.exp(x[t] - m)
    return y


@tile.kernel
def both_ends(x, offsets):
    """What is summed, too, is read as 0 outside."""
    y = hl.zeros([offsets.shape[0] - 1, 2], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        m, s = hl.full([], -1e30, dtype=hl.float32), hl.zeros([], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            m = hl.maximum(m, x[t].amax(0))
            s = s + x[t].sum(0)
        y[g, 0] = m
        y[g, 1] = s
    return y


@tile.kernel
def normalised(x, w, scale):
    M, N = x.shape
    y = hl.empty([M, N], dtype=x.dtype)
    for i in hl.grid(M):
        for n in hl.tile(N):
            factor = scale[i]
            y[i, n] = x[i, n] * factor
        for t in hl.tile(N):
            y[i, t] = x[i, t] + w[:].sum(0)
    return y


@tile.kernel
def counted(ids, bins: hl.constexpr):
    h = hl.zeros([bins], dtype=hl.int32)
    for t in hl.tile(ids.shape[0]):
        ok = (ids[t] >= 0) & (ids[t] < bins)
        hl.atomic_add(h, [ids[t]], 1, mask=ok)
    return h


@tile.kernel
def shifted(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for t in hl.tile(begin, end):
            acc = hl.zeros([t], dtype=x.dtype)
            for k in hl.static_range(2):
                acc = acc + hl.load(x, [t - k], mask=t.index - k >= begin, other=0)
            y[t] = acc
    return y


X, OFFSETS = floats(100), np.array([0, 37, 37, 90], np.int32)
CASES = {  # kernel, arguments, lines that it has, and parts of lines that it has not
    "other lanes": (soft, (X, OFFSETS), ('other=float("-inf")',), ("tl.where(t_in",)),
    "other lanes of two kinds": (
        both_ends, (X, OFFSETS), ("other=0.0", "tl.where(t_in"), ('other=float("-inf")',),
    ),
    "conditions that a name stands for": (
        counted, (np.arange(9, dtype=np.int32), 5), ("t_in & (ids_tile >= 0) & (ids_tile < 5)",),
        ("ok",),
    ),
    "ends that a range says": (
        shifted, (X, OFFSETS), ("(t_at >= begin)", "(t_at - 1 >= 0)"), ("t_at - 0", "- 1 < 100"),
    ),
}  # fmt: skip


def text(kernel, *args):
    code = again(kernel).source(*args, target="cuda:sm90").splitlines()
    return "\n".join(line for line in code if not line.lstrip().startswith("#"))


def wrong(name):
    kernel, args, wanted, unwanted = CASES[name]
    made = text(kernel, *args)
    return [w for w in wanted if w not in made] + [u for u in unwanted if u in made]


@pytest.mark.parametrize("name", CASES)
def test_it_is_said_once(name):
    assert wrong(name) == []


def before(kernel, *args, **blocks):
    """Lines of reads, and how many loops stand around or before each."""
    loops, found = 0, {}
    config = tile.Config(blocks)
    for line in again(kernel).source(*args, target="cuda:sm90", config=config).splitlines():
        loops += "tl.range" in line
        name, _, what = line.strip().partition(" = ")
        if what.startswith("tl.load"):
            found[name] = loops
    return found


@tile.kernel
def states(x, a, y):
    """A state of columns that each row changes: what it decays by is the same in all rows."""
    D, N = a.shape
    for d in hl.tile(D):
        s = hl.zeros([d, N], dtype=hl.float32)
        for r in hl.grid(x.shape[0]):
            s = s * a[d, :] + x[r, d][:, None]
            y[r, d] = s.sum(1)


def stands(columns, **blocks):
    """Before the loop over rows, which Triton moves no reads out of: it stores."""
    args = floats(9, 512), floats(512, columns), floats(9, 512)
    found = before(states, *args, **blocks)
    return found["a_tile"], found["x_tile"]


def test_a_tile_stands_before_a_loop_that_stores():
    assert stands(16) == (0, 1)
    assert stands(1024, d=512) == (1, 1)  # more than registers keep while a loop runs


def test_planted_tiles_that_registers_do_not_keep(monkeypatch):
    monkeypatch.setattr(body, "HELD", 1 << 20)
    assert stands(1024, d=512) != (1, 1)


@tile.kernel
def biased(x, bias, offsets):
    """Numbers of a table at the distances of rows, of which those outside are no one's."""
    y = hl.zeros(x.shape, dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc = hl.zeros([t], dtype=hl.float32)
            for s in hl.tile(offsets[g], offsets[g + 1]):
                rel = t.index[:, None] - s.index[None, :] + 8
                acc = acc + (bias[rel].to(hl.float32) * x[s][None, :]).sum(1)
            y[t] = acc
    return y


def looked_up():
    bias = floats(17).astype(ml_dtypes.bfloat16)
    made = text(biased, X, bias, OFFSETS)
    return "bias_tile = tl.load(bias_ptr + bias_rows)" in made, ".to(tl.bfloat16)" in made


def test_what_is_looked_up_needs_no_mask_and_is_rounded_once():
    assert looked_up() == (True, False)


def test_planted_masks_of_what_is_looked_up(monkeypatch):
    monkeypatch.setattr(problem.Prepared, "held", lambda self, load: load.other)
    assert "tl.where(s_in" not in text(biased, X, floats(17), OFFSETS).partition("bias_at")[2]


def standing():
    found = before(normalised, floats(30, 500), floats(20), floats(30), n=128, t=128)
    return found["factor"], found["w_tile"], found["x_tile"]


def test_rows_and_numbers_stand_before_their_loop():
    assert standing() == (0, 1, 1)  # w before the second loop, and behind the first


def test_planted_reads_inside_their_loops(monkeypatch):
    monkeypatch.setattr(unmoved, "_moves", lambda load, axes, names: True)
    assert standing() != (0, 1, 1)


def test_planted_conditions_twice(monkeypatch):
    monkeypatch.setattr(access, "_said", lambda conditions, named: list(conditions))
    assert wrong("conditions that a name stands for")


def test_planted_numbers_that_another_reader_sees(monkeypatch):
    """Sums would take -inf of the lanes outside."""

    once = lambda found: defaultdict(lambda: 1, dict.fromkeys(found, 1))  # noqa: E731
    monkeypatch.setattr(others, "Counter", once)
    assert wrong("other lanes of two kinds")
