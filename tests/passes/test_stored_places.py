"""stored_places: places in arrays that vector memory does not hold are stored by a loop before."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again, becomes, floats, ir_of, stays
from tilelang.codegen.pallas.passes import stored_places as module
from tilelang.codegen.pallas.passes.stored_places import stored_places
from tilelang.codegen.pallas.target import Target

V5E = Target.of("tpu:v5e")
V, D = 40_000, 128  # 20 MB
B = 37
STEP = 39  # ids of the last rows, too
OFFSETS = np.array([0, 5, 5, 30, B], np.int32)
TARGETS = pytest.mark.parametrize("target", ["cpu", "tpu:v5e"])


def placed(kernel):
    return stored_places(kernel, V5E)


@tile.kernel
def decoded(logits, emb):
    """The embedding of the likeliest id of each row."""
    out = hl.empty([logits.shape[0], emb.shape[1]], dtype=emb.dtype)
    for t in hl.tile(logits.shape[0]):
        out[t, :] = emb[logits[t, :].argmax(1) * 39, :]
    return out


@tile.kernel
def decoded_one(logits, emb):
    """The same of one row at a time."""
    out = hl.empty([logits.shape[0], emb.shape[1]], dtype=emb.dtype)
    for b in hl.grid(logits.shape[0]):
        out[b, :] = emb[logits[b, :].argmax(0) * 39, :]
    return out


@tile.kernel
def of_groups(logits, emb, offsets):
    """Of the rows of groups, in boxes: tiles that are moved."""
    G, L, D = offsets.shape[0] - 1, logits.shape[0], emb.shape[1]
    out = hl.zeros([G, L, D], dtype=emb.dtype)
    for g in hl.grid(G):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=L):
            out[g, t.index, :] = emb[logits[offsets[g] + t.index, :].argmax(1) * 39, :]
    return out


@tile.kernel
def of_heads(logits, emb):
    """Numbers for each row and each head."""
    B, H, _ = logits.shape
    out = hl.zeros([B, H, emb.shape[1]], dtype=emb.dtype)
    for t in hl.tile(B):
        for h in hl.grid(H):
            out[t, h, :] = emb[logits[t, h, :].argmax(1) * 39 + h, :]
    return out


@tile.kernel
def in_turn(logits, first, second):
    """Where one row is says where the other is."""
    out = hl.empty([logits.shape[0], second.shape[1]], dtype=second.dtype)
    for t in hl.tile(logits.shape[0]):
        at = first[logits[t, :].argmax(1) * 39, :].argmax(1)
        out[t, :] = second[at * 300, :]
    return out


@tile.kernel
def put(logits, v):
    """The last row of each place stays; places are of floats that are computed, too."""
    out = hl.zeros([40_000, v.shape[1]], dtype=v.dtype)
    total = hl.zeros([40_000, v.shape[1]], dtype=v.dtype)
    for t in hl.tile(logits.shape[0]):
        at = logits[t, :].argmax(1) % 5 * 39
        out[at, :] = v[t, :]
        hl.atomic_add(total, [(logits[t, 0] * 4.0 + 20.0).to(hl.int32), slice(None)], v[t, :])
    return out, total


@tile.kernel
def carried(start, emb):
    """Where a row is says which comes next: no loop before knows."""
    out = hl.zeros([start.shape[0], emb.shape[1]], dtype=emb.dtype)
    for b in hl.grid(start.shape[0]):
        at = start[b]
        for _ in hl.grid(3):
            at = emb[at, :].argmax(0)
        out[b, :] = emb[at, :]
    return out


@tile.kernel
def changed(logits, emb):
    """Where rows are is said by what the same loop stores."""
    own = hl.zeros(logits.shape, dtype=logits.dtype)
    out = hl.empty([logits.shape[0], emb.shape[1]], dtype=emb.dtype)
    for b in hl.grid(logits.shape[0]):
        own[b, :] = -logits[b, :]
        out[b, :] = emb[own[b, :].argmax(0), :]
    return out


@tile.kernel
def by_group(logits, emb, w, offsets):
    """What the group says is a number of the row, too: groups have rows of their own."""
    out = hl.zeros([logits.shape[0], emb.shape[1]], dtype=emb.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            out[t, :] = emb[(logits[t, :] * w[g]).argmax(1) * 39 + g, :]
    return out


@tile.kernel
def by_range(logits, emb, w, begins, ends):
    """Ranges may share rows, which have a number in each then."""
    out = hl.zeros([logits.shape[0], emb.shape[1]], dtype=emb.dtype)
    for g in hl.grid(begins.shape[0]):
        for t in hl.tile(begins[g], ends[g]):
            out[t, :] = emb[(logits[t, :] * w[g]).argmax(1), :]
    return out


FLAT, COLUMNS = 3000, 100  # 1.2 MB, of which scalar memory has 1


@tile.kernel
def paired(x, rows, cols):
    """One number for each pair; none, and -1, in half of the columns."""
    flat = x.reshape(-1)
    y = hl.empty([rows.shape[0]], dtype=x.dtype)
    z = hl.empty([rows.shape[0]], dtype=x.dtype)
    for t in hl.tile(rows.shape[0]):
        at = rows[t] * x.shape[1] + cols[t]
        y[t] = flat[at]
        z[t] = hl.load(flat, [at + 1], mask=cols[t] < 50, other=-1)
    return y, z


@tile.kernel
def picked(logits, labels):
    """The logit of each label, as cross entropy is written for GPUs."""
    flat = logits.reshape(-1)
    y = hl.empty([labels.shape[0]], dtype=hl.float32)
    for t in hl.tile(labels.shape[0]):
        y[t] = logits[t, :].sum(1) - flat[t.index * logits.shape[1] + labels[t]]
    return y


@tile.kernel
def of_own_rows(x, cols, offsets):
    """Number cols[r] of row g, and of the row that r is in its group."""
    flat, C = x.reshape(-1), x.shape[1]
    y = hl.zeros([cols.shape[0]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t] = flat[g * C + cols[t]] + flat[(t.index - offsets[g]) * C + cols[t]]
    return y


@tile.kernel
def made_before(x, logits):
    """The author's own loops, one of which changes where rows are, between two that pick them."""
    n = logits.shape[0]
    ids = hl.zeros([n], dtype=hl.int32)
    y = hl.zeros([2, n], dtype=x.dtype)
    for t in hl.tile(n):
        ids[t] = logits[t, :].argmax(1) * 7
    for t in hl.tile(n):
        y[0, t] = x[ids[t], :].sum(1)
    for t in hl.tile(n):
        ids[t] = ids[t] + 1
    for t in hl.tile(n):
        y[1, t] = x[ids[t], :].sum(1)
    return y


def test_places_are_read_from_memory():
    becomes(
        ir_of(decoded, tile.spec((B, 200), "float32"), tile.spec((V, D), "float32")),
        placed,
        """
        for t in tile(37):
            emb_rows: float32[t, 128] = emb[rows(argmax(logits[t, 0:200], axis=1) * 39), 0:128]
            out[t, 0:128] = emb_rows
        """,
        """
        for t_1 in tile(37):
            t_measure[t_1] = argmax(logits[t_1, 0:200], axis=1) * 39

        for t in tile(37):
            emb_rows: float32[t, 128] = emb[rows(t_measure[t]), 0:128]
            out[t, 0:128] = emb_rows
        """,
    )


def test_rows_of_groups_have_a_number_each():
    specs = tile.spec((B, 200), "float32"), tile.spec((V, D), "float32"), tile.spec((5,), "int32")
    made = placed(ir_of(of_groups, *specs))
    assert made.tensor("t_measure").shape == (B,)
    assert "t_measure[t + offsets[g]]" in str(made)


def test_what_a_one_hot_picks_stays():
    small = tile.spec((B, 200), "float32"), tile.spec((400, D), "float32")
    stays(ir_of(decoded, *small), placed)
    stays(ir_of(decoded_one, *small), placed)


@pytest.mark.parametrize(
    "kernel, first", [(carried, "int32"), (changed, "float32"), (by_range, "float32")]
)
def test_others_are_refused(kernel, first):
    table, vector = tile.spec((V, D), "float32"), tile.spec((5,), "float32")
    rows = tile.spec((B,), first) if kernel is carried else tile.spec((B, 200), first)
    ends = tile.spec((5,), "int32")
    more = (vector, ends, ends) if kernel is by_range else ()
    with pytest.raises(tile.PlanError, match=r"index (depends|is)|has more in it"):
        kernel.lower(rows, table, *more, target="tpu:v6e")


@TARGETS
def test_values(target):
    x, emb = floats(B, 200), floats(V, D)
    at = x.argmax(1) * STEP
    np.testing.assert_array_equal(again(decoded)(x, emb, target=target), emb[at])
    np.testing.assert_array_equal(again(decoded_one)(x, emb, target=target), emb[at])
    got = np.asarray(again(of_groups)(x, emb, OFFSETS, target=target))
    for g, (begin, end) in enumerate(itertools.pairwise(OFFSETS)):
        np.testing.assert_array_equal(got[g, : end - begin], emb[at[begin:end]])
        assert not got[g, end - begin :].any()
    heads = floats(B, 3, 200)
    want = emb[heads.argmax(2) * STEP + np.arange(3)]
    np.testing.assert_array_equal(again(of_heads)(heads, emb, target=target), want)


@TARGETS
def test_groups_say_places_too(target):
    x, emb, w = floats(B, 200), floats(V, D), np.array([1, 2, -1, 0.5], np.float32)
    group = np.repeat(np.arange(4), np.diff(OFFSETS))
    want = emb[(x * w[group][:, None]).argmax(1) * STEP + group]
    few = np.array([3, 5, 5, 30, 31], np.int32)
    np.testing.assert_array_equal(again(by_group)(x, emb, w, OFFSETS, target=target), want)
    got = np.asarray(again(by_group)(x, emb, w, few, target=target))
    assert not got[:3].any() and not got[31:].any()
    np.testing.assert_array_equal(got[5:30], emb[(x[5:30] * -1).argmax(1) * STEP + 2])


def whole(limit, *shape):
    return (np.abs(floats(*shape)) * 1e4).astype(np.int32) % limit


@TARGETS
def test_numbers_that_scalar_memory_has_no_room_for(target):
    x, n = floats(FLAT, COLUMNS), 700
    rows, cols = whole(FLAT, n), whole(COLUMNS, n)
    y, z = again(paired)(x, rows, cols, target=target)
    np.testing.assert_array_equal(y, x[rows, cols])
    beside = x.reshape(-1)[np.minimum(rows * COLUMNS + cols + 1, x.size - 1)]
    np.testing.assert_array_equal(z, np.where(cols < 50, beside, -1))
    labels = whole(COLUMNS, FLAT)
    want = x.sum(1) - x[np.arange(FLAT), labels]
    np.testing.assert_allclose(again(picked)(x, labels, target=target), want, rtol=1e-4, atol=1e-4)

    offsets = np.array([10, 310, 310, 600, 650], np.int32)
    want = np.zeros(n, np.float32)
    for g, (begin, end) in enumerate(itertools.pairwise(offsets)):
        here = cols[begin:end]
        want[begin:end] = x[g, here] + x[np.arange(end - begin), here]
    np.testing.assert_array_equal(again(of_own_rows)(x, cols, offsets, target=target), want)


@TARGETS
def test_rows_at_places_that_a_loop_before_stores(target):
    x, logits = floats(FLAT, COLUMNS), floats(900, 33)
    ids = logits.argmax(1) * 7
    want = np.stack([x[ids].sum(1), x[ids + 1].sum(1)])
    made = again(made_before)
    text = str(made.source(x, logits, target="tpu:v5e"))
    assert text.index("    ids = ") < text.index("    x_picked = ") < text.rindex("    ids = ")
    got = made(x, logits, target=target)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@TARGETS
def test_places_that_places_say(target):
    x, first, second = floats(B, 200), floats(V, D), floats(V, D)
    made = placed(ir_of(in_turn, *(tile.spec(a.shape, "float32") for a in (x, first, second))))
    assert [len(loop.body) for loop in made.body] == [1, 1, 2]
    want = second[first[x.argmax(1) * STEP].argmax(1) * 300]
    np.testing.assert_array_equal(again(in_turn)(x, first, second, target=target), want)


@TARGETS
def test_stores_and_updates(target):
    x, v = floats(B, 200), floats(B, D)
    out, total = np.zeros((2, V, D), np.float32)
    for row, value in zip(x, v, strict=True):
        out[row.argmax() % 5 * STEP] = value
        total[int(np.float32(row[0]) * 4 + 20)] += value
    got = again(put)(x, v, target=target)
    np.testing.assert_array_equal(got[0], out)
    np.testing.assert_allclose(got[1], total, rtol=1e-5, atol=1e-5)


@needs_libtpu
@pytest.mark.parametrize("kernel", [decoded, decoded_one, put])
def test_they_compile(kernel):
    rows = tile.spec((64, D) if kernel is put else (V, D), "float32")
    compiled(kernel, tile.spec((64, 200), "float32"), rows, target="tpu:v5e")


def test_planted_a_moved_tile_that_reads_where_it_is_not(monkeypatch):
    """Numbers of rows are asked for where the tile lies, not where its loop counts."""
    asked = module.Measures.rows

    def at_its_own(self, around, expr):
        made = asked(self, around, expr)
        return made and tile_at_its_own(made)

    def tile_at_its_own(made):
        index = tuple(type(e)(e.axis) if hasattr(e, "offset") else e for e in made.index)
        return type(made)(made.tensor, index, made.type, loc=made.loc)

    monkeypatch.setattr(module.Measures, "rows", at_its_own)
    with pytest.raises(AssertionError):
        test_values("cpu")


@tile.kernel
def columns(x, order):
    """Columns that memory says lie nowhere else."""
    out = hl.zeros([x.shape[0], order.shape[0]], dtype=x.dtype)
    for t in hl.tile(order.shape[0]):
        out[:, t] = x[:, order[t]]
    return out


def test_places_that_memory_has_are_not_stored_again():
    """Each round would find them anew."""
    specs = tile.spec((200, V), "float32"), tile.spec((300,), "int32")
    stays(ir_of(columns, *specs), placed)
