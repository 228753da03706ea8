"""factors and local: the parts of a kernel, put together, are the kernel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.grouped_gemm import grouped_gemm
from tests import derivatives, partitions
from tests.derivatives import derived, launched, named
from tests.partitions import divided
from tests.passes.becomes import loops
from tests.subjects import SUBJECTS
from tests.tiers import HALF, share
from tests.transforms.batches import elements, tensors
from tilelang.analysis import analyze
from tilelang.ir import Store, statements
from tilelang.ir.verify import verify
from tilelang.reference import evaluate
from tilelang.transforms.local import local
from tilelang.transforms.partition import factors

GEMM = (((8, 6), "bfloat16"), ((2, 6, 4), "bfloat16"), ((3,), "int32"))


def parsed(kernel, *shapes):
    return (
        tile.kernel(getattr(kernel, "__wrapped__", kernel))
        .lower(*(tile.spec(*shape) for shape in shapes), target="tpu:v6e")
        .ir
    )


def found(ir):
    return {"+".join(sorted(f.axes)): f for f in factors(ir, analyze(ir))}


def whys(kernel, *shapes):
    return {name: f.why for name, f in found(parsed(kernel, *shapes)).items() if f.kind is None}


def test_the_factors_of_a_grouped_product():
    every = found(parsed(grouped_gemm, *GEMM))
    assert {name: f.kind for name, f in every.items()} == {
        "g": "groups", "tm": "rows", "tn": "parallel", "tk": "sum",
    }  # fmt: skip
    assert every["tm"].dims == {("x", 0), ("y", 0)} and every["tm"].clipped == {"offsets"}
    assert every["g"].edges == {("offsets", 0)} and every["g"].added == (("y", "bfloat16"),)
    assert every["tk"].added == (("y", "float32"),)


def test_the_kernel_of_one_device():
    ir = parsed(grouped_gemm, *GEMM)
    every = found(ir)
    part = verify(local(ir, {every["g"]: 2, every["tm"]: 4, every["tk"]: 3}))
    assert {t.name: (t.shape, t.dtype) for t in part.tensors} == {
        "x": ((2, 2), "bfloat16"), "w": ((1, 2, 4), "bfloat16"), "offsets": ((2,), "int32"),
        "y": ((2, 4), "float32"),
    }  # fmt: skip
    assert loops(part) == (
        "for g in grid(1):\n"
        "    for tm in tile(offsets[g], offsets[g + 1], max_extent=2):\n"
        "        for tn in tile(4):\n"
        "            acc: float32[tm, tn] = full([tm, tn], float32, value=0.0)\n"
        "            for tk in tile(2) carrying acc_1 = acc:\n"
        "                acc_2: float32[tm, tn] = acc_1 + "
        "dot(x[tm, tk], w[g, tk, tn], contract=(1, 0))\n"
        "                next acc_1 = acc_2\n"
        "            after acc_3 = acc_1\n"
        "            y[tm, tn] = acc_3\n"
    )


@tile.kernel
def divided_by_memory(x, s):
    y = hl.zeros([x.shape[1]], dtype=x.dtype)
    for k in hl.tile(x.shape[1]):
        acc = hl.zeros([k], dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            acc = acc + x[t, k].sum(0)
        y[k] = acc / hl.full([k], s[()], dtype=hl.float32)
    return y


def test_a_divisor_from_memory_may_be_0():
    every = found(parsed(divided_by_memory, ((40, 30), "float32"), ((), "float32")))
    assert every["t"].kind is None and every["k"].kind == "parallel"


# ------------------------------------------------------------ what is in the way


def whole_rows(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape, block_size=[None, x.shape[1]]):
        y[tm, tn] = x[tm, tn] - x[tm, tn].amax(1)[:, None]
    return y


def diagonal(x):
    y = hl.empty(x.shape[:2], dtype=x.dtype)
    for g in hl.grid(x.shape[0]):
        y[g, :] = x[g, :, g]
    return y


def numbered(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[tm] = x[tm] + tm.index
    return y


def shifted(x):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0] - 1):
        y[tm] = x[tm.index + 1]
    return y


def lengths(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            y[t] = x[t] / (offsets[g + 1] - offsets[g])
    return y


def biased(x, w, b):
    y = hl.empty([x.shape[0], w.shape[1]], dtype=x.dtype)
    for tm, tn in hl.tile([x.shape[0], w.shape[1]]):
        acc = hl.zeros([tm, tn], dtype=hl.float32)
        for tk in hl.tile(x.shape[1]):
            acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        y[tm, tn] = (acc + b[tn][None, :]).to(y.dtype)
    return y


def mean(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        total = 0.0
        for t in hl.tile(begin, end, max_extent=x.shape[0]):
            total = total + x[t].sum(0)
        y[g] = total * 0.5 / hl.maximum(end - begin, 1)
    return y


def undefined_mean(x, offsets):
    """A group without rows is no number; parts of others would be none either."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=x.shape[0]):
            total = total + x[t].sum(0)
        y[g] = total / (offsets[g + 1] - offsets[g])
    return y


def shared(q, k, offsets):
    """Heads of q in threes and in pairs; by a name and without one."""
    y = hl.zeros(q.shape, dtype=hl.float32)
    for h in hl.grid(q.shape[0]):
        pair = h // 2
        for g in hl.grid(offsets.shape[0] - 1):
            for t in hl.tile(offsets[g], offsets[g + 1], max_extent=q.shape[1]):
                y[h, t] = q[h, t] * k[pair, t] + k[h // 2, t]
    return y


def unevenly_shared(q, k):
    """A place for six positions of four, and the last one of k for nobody."""
    y = hl.zeros(q.shape, dtype=hl.float32)
    for h in hl.grid(q.shape[0]):
        for t in hl.tile(q.shape[1]):
            y[h, t] = q[h, t] * k[h // 3, t]
    return y


def counted_pairs(q, k):
    y = hl.zeros(q.shape, dtype=hl.float32)
    for h in hl.grid(q.shape[0]):
        for t in hl.tile(q.shape[1]):
            y[h, t] = q[h, t] * k[h // 2, t] + h // 2
    return y


def numbers_of_tiles(x, scale):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0], block_size=128):
        y[tm] = x[tm] * scale[tm.id]
    return y


def places_that_meet(x):
    y = hl.zeros([x.shape[0] + 2], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t.index + 2] = x[t]
    for t in hl.tile(x.shape[0]):
        y[t.index + 1] = x[t] * 2
    return y


def stored_in_another_form(x):
    """What is returned is not what is stored to, though it is the same."""
    y = hl.zeros([1, x.shape[1]], dtype=hl.float32)
    seen = y.unsqueeze(0)
    for g in hl.grid(1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            acc = acc + x[tm, :].sum(0)
        seen[0, g, :] = acc
    return y


def stored_in_two_forms(x, w):
    """Neither of the forms has the dimensions of the other."""
    y = hl.zeros([6], dtype=hl.float32)
    pairs, triples = y.reshape(3, 2), y.reshape(2, 3)
    for g in hl.grid(1):
        acc = hl.zeros([2], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            acc = acc + x[tm, 0:2].sum(0)
        pairs[g, :] = acc
    for ts in hl.tile(w.shape[0]):
        triples[1, :] += w[ts, 0:3].sum(0)
    return y


def sums_in_another_form(x):
    y = hl.zeros([x.shape[1]], dtype=hl.float32)
    for tn in hl.tile(x.shape[1]):
        acc = hl.zeros([tn], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            acc = acc + x[tm, tn].sum(0)
        y[tn] = acc
    return y.reshape(x.shape[1] // 2, 2)


def heads_of_columns(x, w):
    """Columns are those of heads, of which two share a weight."""
    M, H = x.shape[0], 2 * w.shape[0]
    heads = x.reshape(M, H, x.shape[1] // H)
    y = hl.empty(heads.shape, dtype=x.dtype)
    for h in hl.grid(H):
        for m, d in hl.tile([M, heads.shape[2]]):
            y[m, h, d] = heads[m, h, d] * w[h // 2, d] + h
    return y.reshape(M, x.shape[1])


def rows_of_sequences(x, w, offsets):
    """Sequences of one length in one array, whose groups begin where they like."""
    rows = x.reshape(-1, x.shape[2])
    y = hl.zeros(rows.shape, dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t, c in hl.tile([offsets[g], 0], [offsets[g + 1], x.shape[2]]):
            y[t, c] = rows[t, c] * w[g, c][None, :] + t.index[:, None]
    return y.reshape(x.shape)


def parts_of_heads(x):
    heads = x.reshape(x.shape[0], 3, 4)
    y = hl.empty([x.shape[0], 4], dtype=x.dtype)
    for m, d in hl.tile([x.shape[0], 4]):
        y[m, d] = heads[m, :, d].sum(1)
    return y


def offsets_in_pairs(x, offsets):
    pair = offsets.reshape(2, 2)
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(2):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = x[t] * pair[g, 0]
    return y


def pairs(x):
    y = hl.empty([x.shape[0], x.shape[0]], dtype=x.dtype)
    for i, j in hl.tile([x.shape[0], x.shape[0]]):
        y[i, j] = x[i][:, None] * x[j][None, :]
    return y


def sums_of_pairs(x):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for i in hl.grid(x.shape[0]):
        for j in hl.grid(x.shape[0]):
            hl.atomic_add(y, [i], x[i] * x[j])
    return y


def window(q, k, offsets):
    """Queries see the two keys before them and one behind."""
    y = hl.zeros(q.shape, dtype=q.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for i in hl.tile(begin, end):
            acc = hl.zeros([i], dtype=hl.float32)
            for j in hl.tile(max(begin, i.begin - 2), min(end, i.end + 1)):
                far = j.index[None, :] - i.index[:, None]
                near = (far >= -2) & (far <= 1)
                acc = acc + hl.where(near, q[i][:, None] * k[j][None, :], 0.0).sum(1)
            y[i] = acc
    return y


def first_rows(x, offsets):
    """Two rows of each group, but for the first, which its second half may not have."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin = offsets[g] + 1
        for i in hl.tile(begin, min(offsets[g + 1], begin + 2)):
            y[i] = x[i] * (i.index - begin + 1)
    return y


def added_from(x, b, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin = offsets[g]
        for i in hl.tile(begin, offsets[g + 1]):
            y[i] = x[i] + b[i - begin]
    return y


def padded(x, offsets):
    y = hl.zeros([offsets.shape[0] - 1, 9], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin = offsets[g]
        for i in hl.tile(begin, offsets[g + 1]):
            y[g, i.index - begin] = x[i]
    return y


def past_what_is_read(x, offsets):
    """Rows past those of x are the mask's: no device would have them."""
    y = hl.zeros([12], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=12):
            y[offsets[g] + t.index] = hl.load(x, [t], mask=t.index < 8, other=7.0)
    return y


def in_threes_and_pairs(q, k, v):
    y = hl.zeros(q.shape, dtype=hl.float32)
    for h in hl.grid(q.shape[0]):
        for t in hl.tile(q.shape[1]):
            y[h, t] = q[h, t] * k[h // 2, t] + v[h // 3, t]
    return y


F = "float32"
OBSTACLES = {
    "a whole row": (
        whole_rows, (((8, 4), F),), {"tn": "max brings elements along tn together"},
    ),
    "a shift": (shifted, (((8,), F),), {"tm": "tm does not run over the whole dimension"}),
    "numbers of tiles": (
        numbers_of_tiles, (((256,), F), ((2,), F)), {
            "tm": "tiles of tm are numbered, and cut anew in parts",
        },
    ),
    "places that meet": (
        places_that_meet, (((8,), F),), {
            "t+t_1": "it was not proved that elements of y are stored once",
        },
    ),
    "a part of each head": (
        parts_of_heads, (((8, 12), F),), {
            "d": "x is reshaped, and what is split is no part of both of its shapes",
        },
    ),
    "offsets in another form": (  # they would be clipped there, too
        offsets_in_pairs, (((8,), F), ((4,), "int32")), {
            "g": "offsets is indexed in another way, too", "t": "offsets is reshaped or transposed",
        },
    ),
    "a diagonal": (
        diagonal, (((8, 3, 8), F),), {"g": "two dimensions of one array are indexed along them"},
    ),
    "pairs of positions": (
        pairs, (((8,), F),), {"i+j": "i and j bring every position of it to every other"},
    ),
    "sums of pairs": (
        sums_of_pairs, (((8,), F),), {"i+j": "i and j bring every position of it to every other"},
    ),
    "uneven shares": (
        unevenly_shared, (((8, 5), F), ((4, 5), F)), {
            "h": "they index dimensions of different lengths",
        },
    ),
    "lengths": (
        lengths, (((8,), F), ((3,), "int32")), {
            "g": "no dimension is indexed along them",
        },
    ),
    "a divisor that may be 0": (
        undefined_mean, (((8,), F), ((3,), "int32")), {"t": "y is not the sum over t itself"},
    ),
    "rows past those that are split": (
        past_what_is_read, (((8,), F), ((3,), "int32")), {
            "g": "no dimension is indexed along them",
            "t": "t may run past its 8 positions, where masks leave out what is read: no device "
            "has those",
        },
    ),
    "a bias": (
        biased, (((8, 4), F), ((4, 4), F), ((4,), F)), {"tk": "y is not the sum over tk itself"},
    ),
}  # fmt: skip


COUNTS = {"a mean": (mean, "sum"), "lengths": (lengths, "rows")}
ROWS = {"x": np.arange(1.0, 9, dtype=np.float32), "offsets": np.int32([0, 3, 8])}


def parts_of(case):
    return divided(parsed(COUNTS[case][0], ((8,), F), ((3,), "int32")), ROWS)


@pytest.mark.parametrize("case", COUNTS)
def test_offsets_that_are_numbers_stay_those_of_the_whole(case):
    kernel, kind = COUNTS[case]
    ir = parsed(kernel, ((8,), F), ((3,), "int32"))
    factor = found(ir)["t"]
    assert factor.kind == kind and factor.clipped == {"offsets"}
    part = verify(local(ir, {factor: 4}))
    assert [p.tensor for p in part.params] == ["x", "offsets", "offsets_of_all"]
    assert list(parts_of(case)) == []


def test_a_sum_that_is_stored_in_another_form():
    """Each device returns its part of what is stored to in the form that is returned."""
    ir = parsed(stored_in_another_form, ((8, 4), F))
    assert found(ir)["tm"].kind == "sum"
    assert list(divided(ir, {"x": np.random.default_rng(0).random((8, 4), np.float32)})) == []


def test_a_sum_that_is_stored_in_two_forms():
    """No plan takes such a store; the sum would be that of one device."""
    ir, _ = derivatives.parsed(
        tile.kernel(stored_in_two_forms), (tile.spec((8, 4), F), tile.spec((9, 4), F))
    )
    assert found(ir)["tm"].why == "y is stored in another shape, and added up"


def halved(x):
    """Sums of rows, rounded to bfloat16 on their way and where they are stored."""
    y = hl.empty(x.shape[0], dtype=hl.bfloat16)
    for t in hl.tile(x.shape[0]):
        acc = hl.zeros([t], dtype=hl.float32)
        for u in hl.tile(x.shape[1]):
            acc = acc + x[t, u].sum(1)
        y[t] = acc.to(hl.bfloat16) * 0.5
    return y


@pytest.mark.parametrize("units", [0, 1, 3])
def test_parts_that_are_rounded_are_compared(monkeypatch, units):
    """A unit of a narrow result is what rounding explains; in float32 there is nothing to it."""
    ir = parsed(halved, ((8, 4), F))
    given = {"x": np.random.default_rng(0).random((8, 4), np.float32)}
    together = partitions._together

    def shifted(factor, name, parts):
        found = np.array(together(factor, name, parts))
        place = np.abs(found).argmax()
        found[place] = found[place].astype(np.float32) * (1 + units * 2**-7)
        return found

    monkeypatch.setattr(partitions, "_together", shifted)
    assert bool(list(divided(ir, given))) == (units > 0)


@pytest.mark.parametrize("case", OBSTACLES)
def test_obstacles(case):
    kernel, shapes, expected = OBSTACLES[case]
    assert whys(kernel, *shapes) == expected


# ------------------------------------------------------------ every example


@pytest.mark.parametrize("subject", share(SUBJECTS, 10, 1, HALF))
def test_the_parts_of_every_example(subject):
    """In NumPy."""
    for arguments in itertools.islice(next(elements(subject)), 2):
        ir = subject.kernel.lower(*arguments, *subject.static, target="cpu").ir
        names = [p.tensor for p in ir.params if p.tensor]
        assert list(divided(ir, dict(zip(names, arguments, strict=True)))) == []
    assert tensors(subject)


DIFFERENTIATED = ("grouped_gemm", "jagged_sum", "layer_norm", "grouped_gemm_bias", "jagged_softmax")


@pytest.mark.parametrize("subject", [s for s in SUBJECTS if s.name in DIFFERENTIATED], ids=str)
def test_the_parts_of_gradients(subject):
    """Rows are summed for the gradient of what they share: each device adds up its own."""
    arguments = (*next(elements(subject))[0], *subject.static)
    ir, made = derived(subject.kernel, arguments)
    known = {n: np.nan_to_num(a) for n, a in named(ir, arguments).items()}
    rng, exact = np.random.default_rng(0), evaluate(made.forward, known)
    cotangents = [rng.standard_normal(exact[r].shape).astype(np.float32) for r in ir.returns]
    kinds = set()
    for kernel, given in launched(made, known, cotangents)[1]:
        assert list(divided(kernel, given)) == []
        kinds |= {f.kind for f in factors(kernel, analyze(kernel))}
    assert kinds & {"rows", "sum", "parallel"}


LAYOUTS = ([0, 3, 3, 8, 9], [0, 0, 0, 0, 0], [9, 9, 9, 9, 9], [0, 1, 2, 3, 4], [2, 2, 9, 9, 9])


def test_positions_that_share_a_place_stay_together():
    """Of heads that share keys, a device has all."""
    ir = parsed(shared, ((12, 9), F), ((6, 9), F), ((5,), "int32"))
    heads = found(ir)["h"]
    assert heads.kind == "parallel" and heads.dims == {("q", 0), ("k", 0), ("y", 0)}
    assert [n for n in range(1, 13) if heads.splits(n)] == [1, 2, 3, 6]
    part = verify(local(ir, {heads: 3}))
    assert {t.name: t.shape[0] for t in part.tensors} == {"q": 4, "k": 2, "offsets": 5, "y": 4}
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((n, 9)).astype(np.float32) for n in (12, 6))
    for offsets in LAYOUTS:
        assert list(divided(ir, {"q": q, "k": k, "offsets": np.int32(offsets)})) == []


def test_several_shares_stay_together():
    ir = parsed(in_threes_and_pairs, ((12, 5), F), ((6, 5), F), ((4, 5), F))
    heads = found(ir)["h"]
    assert [n for n in range(1, 13) if heads.splits(n)] == [1, 2]
    rng = np.random.default_rng(0)
    sizes = {"q": 12, "k": 6, "v": 4}
    given = {name: rng.standard_normal((n, 5)).astype(np.float32) for name, n in sizes.items()}
    assert list(divided(ir, given)) == []


def test_columns_are_split_as_the_heads_that_they_are_seen_as():
    ir = parsed(heads_of_columns, ((8, 24), F), ((3, 4), F))
    every = found(ir)
    assert {n: (f.kind, f.size, f.together) for n, f in every.items()} == {
        "h": ("parallel", 6, 2), "m": ("parallel", 8, 1), "d": (None, 4, 1),
    }  # fmt: skip
    assert {("x", 1), ("w", 0), ("y", 1)} < every["h"].dims
    assert every["d"].why == "x is reshaped, and what is split is no part of both of its shapes"
    part = verify(local(ir, {every["h"]: 3, every["m"]: 2}))
    assert {t.shape for t in part.tensors} == {(4, 8), (1, 4), (4, 2, 4), (1,)}
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((8, 24), (3, 4)))
    assert list(divided(ir, {"x": x, "w": w})) == []


def test_rows_are_split_as_the_sequences_that_they_are_of():
    """Whole sequences, whose rows are clipped; groups are those of all rows."""
    ir = parsed(rows_of_sequences, ((4, 3, 5), F), ((4, 5), F), ((5,), "int32"))
    rows = found(ir)["t"]
    assert (rows.kind, rows.size, rows.together) == ("rows", 12, 3) and ("x", 0) in rows.dims
    assert ("x", 2) in found(ir)["c"].dims and found(ir)["g"].added == (("y", F), ("y_view", F))
    assert [n for n in range(1, 13) if rows.splits(n)] == [1, 2, 4]
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 5), (4, 5)))
    for offsets in ([0, 1, 1, 7, 12], [0, 0, 0, 0, 0], [2, 2, 5, 9, 9]):
        assert list(divided(ir, {"x": x, "w": w, "offsets": np.int32(offsets)})) == []


def test_sums_that_are_returned_in_another_form():
    ir = parsed(sums_in_another_form, ((8, 4), F))
    assert {n: (f.kind, f.together) for n, f in found(ir).items()} == {
        "tm": ("sum", 1), "tn": ("parallel", 2),
    }  # fmt: skip
    assert list(divided(ir, {"x": np.random.default_rng(0).random((8, 4), np.float32)})) == []


def test_what_heads_add_to_one_place_stays_on_one_device():
    """The loop over heads is ordered by that alone, and gradients are split as the keys are."""
    rng = np.random.default_rng(0)
    q, k = (rng.standard_normal((n, 9)).astype(np.float32) for n in (12, 6))
    given = (q, k, np.array([0, 3, 3, 8, 9], np.int32))
    ir, made = derived(tile.kernel(shared), given)
    ordered = set[str]()
    for kernel, arrays in launched(made, named(ir, given), [q])[1]:
        assert list(divided(kernel, arrays)) == []
        facts = analyze(kernel)
        for heads in factors(kernel, facts):
            if ("q", 0) in heads.dims or ("d_k", 0) in heads.dims:
                assert heads.kind == "parallel" and heads.splits(6)
                ordered |= {facts.axis(axis).kind for axis in heads.axes}
    assert "ordered" in ordered


NUMBERS = {
    "positions": (numbered, {"x": 8}, "tm", "parallel", ()),
    "positions of a pair": (counted_pairs, {"q": (8, 5), "k": (4, 5)}, "h", "parallel", ()),
    "a window": (window, {"q": 8, "k": 8, "offsets": 0}, "i", "rows", ()),
    "a window of keys": (
        window, {"q": 8, "k": 8, "offsets": 0}, "j", "sum", (("y", "float32"),),
    ),
    "a range that is computed": (first_rows, {"x": 8, "offsets": 0}, "i", "rows", ()),
    "a moved tile": (added_from, {"x": 8, "b": 8, "offsets": 0}, "i", "rows", ()),
    "places of a box": (padded, {"x": 8, "offsets": 0}, "i", "rows", (("y", F),)),
}  # fmt: skip
HOSTILE = ([0, 3, 3, 8, 8], [0, 0, 0, 0, 0], [8, 8, 8, 8, 8], [1, 1, 2, 3, 4], [2, 2, 8, 8, 8])


@pytest.mark.parametrize("case", share(NUMBERS, 4))
def test_numbers_are_those_of_the_whole(case):
    """Groups without rows, groups on several devices, devices without rows."""
    kernel, sizes, axis, kind, added = NUMBERS[case]
    rng = np.random.default_rng(0)
    for offsets in HOSTILE:
        given: dict[str, np.ndarray] = {
            name: rng.standard_normal(size).astype(np.float32) for name, size in sizes.items()
        }
        given |= {"offsets": np.array(offsets, np.int32)} if "offsets" in sizes else {}
        ir = parsed(kernel, *((a.shape, str(a.dtype)) for a in given.values()))
        factor = next(f for f in factors(ir, analyze(ir)) if axis in f.axes)
        assert (factor.kind, factor.added, factor.counted) == (kind, added, True)
        verify(local(ir, {factor: 4}))
        assert list(divided(ir, given)) == []


SHARED_KEYS = "grouped_query_attention", "varlen_attention", "paged_attention"


@pytest.mark.parametrize("name", share(SHARED_KEYS, 3))
def test_heads_that_share_keys_are_split(name):
    subject = next(s for s in SUBJECTS if s.name == name)
    arguments = (*next(elements(subject))[0], *subject.static)
    ir = subject.kernel.lower(*arguments, target="cpu").ir
    heads = found(ir)["h"]
    assert heads.kind == "parallel" and heads.splits(2) and not heads.splits(4)
    test_the_parts_of_every_example(subject)


def turned_means(x):
    """Stored through a view that permutes: what is stored is a multiple of the sum, turned."""
    y = hl.empty([x.shape[2], x.shape[0]], dtype=hl.bfloat16)
    v = y.T.unsqueeze(1)
    for b, t in hl.tile([x.shape[0], x.shape[2]]):
        total = hl.zeros([b, t], dtype=hl.float32)
        for s in hl.tile(x.shape[1]):
            total = total + x[b, s, t].sum(1)
        v[b, 0, t] = (total / x.shape[1]).to(hl.bfloat16)
    return y


def turned_maxima(x):
    y = hl.empty([x.shape[2], x.shape[0]], dtype=hl.float32)
    v = y.T
    for b, t in hl.tile([x.shape[0], x.shape[2]]):
        most = hl.full([b, t], float("-inf"), dtype=hl.float32)
        for s in hl.tile(x.shape[1]):
            most = hl.maximum(most, x[b, s, t].amax(1))
        v[b, t] = most
    return y


@pytest.mark.parametrize(("kernel", "kind"), [(turned_means, "sum"), (turned_maxima, "max")])
def test_what_is_stored_through_a_view_is_put_together(kernel, kind):
    x = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)
    ir = parsed(kernel, (x.shape, F))
    assert found(ir)["s"].kind == kind
    assert list(divided(ir, {"x": x})) == []


def rounded_by_a_view(x):
    """What is stored by a view is rounded last, as what is stored to the array."""
    y = hl.full([x.shape[0], x.shape[2]], 0.0, dtype=hl.bfloat16)
    v = y.unsqueeze(1)
    for t in hl.tile(x.shape[2]):
        total = hl.full([x.shape[0], t], 0.0, dtype=hl.float32)
        for s in hl.tile(x.shape[1]):
            total = total + x[:, s, t].sum(1)
        v[:, 0, t] = total.to(hl.bfloat16)
    return y


def test_sums_are_rounded_when_they_are_added_up() -> None:
    x = np.random.default_rng(0).standard_normal((4, 6, 5)).astype(np.float32)
    ir = parsed(rounded_by_a_view, (x.shape, F))
    factor = next(f for f in factors(ir, analyze(ir)) if "s" in f.axes)
    part = local(ir, {factor: 2})
    (tensor,) = (t for t in part.tensors if t.name == "y")
    (store,) = (s for s in statements(part.body) if isinstance(s, Store))
    assert (tensor.dtype, store.value.type.dtype) == ("float32", "float32")
    assert list(divided(ir, {"x": x})) == []
