"""rows="bucket": one program for many numbers of rows; and max_recompiles."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.jagged.jagged_softmax import jagged_softmax
from tests.frameworks import NEEDS_TORCH, torch
from tests.subjects import JAGGED
from tests.transforms.batches import elements
from tilelang.errors import CallError
from tilelang.runtime import buckets, execution
from tilelang.runtime.signature import bind

RNG = np.random.default_rng(0)
LAYOUTS = {  # rows -> offsets, all for one program
    66: (0, 66, 66, 66),
    70: (3, 5, 6, 70),
    75: (0, 0, 20, 21),
    80: (10, 11, 79, 80),
}


def scaled(x, w, offsets):
    """y[r] = x[r] * w[g], and how many rows each group has."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    total = hl.zeros([w.shape[0]], dtype=x.dtype)
    for g in hl.grid(w.shape[0]):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] * w[g]
        total[g] = w[g] * 2
    return y, total


def arguments(rows, make=np.asarray):
    x, w = RNG.standard_normal((rows, 8), np.float32), np.float32([2, -1, 0.5])
    offsets = np.int32(LAYOUTS[rows])
    x[: offsets[0]] = np.nan  # in no group
    x[offsets[-1] :] = np.inf
    return make(x), make(w), make(offsets)


def right(found, given):
    x, w, offsets = map(np.asarray, given)
    group = np.searchsorted(offsets, np.arange(len(x)), "right") - 1
    inside = (group >= 0) & (group < 3)
    with np.errstate(invalid="ignore"):
        wanted = np.where(inside[:, None], x * w[np.clip(group, 0, 2)][:, None], 0)
    y, total = map(np.asarray, found)
    np.testing.assert_array_equal(y, wanted)
    np.testing.assert_array_equal(total, 2 * w)


def test_buckets():
    assert [buckets.bucket(n) for n in (0, 1, 64, 65, 80, 81, 128, 129, 160, 161)] == [
        64, 64, 64, 80, 80, 96, 128, 160, 160, 192,
    ]  # fmt: skip
    sizes = [buckets.bucket(n) for n in range(64, 5000)]
    assert all(n <= size <= 1.25 * n for n, size in enumerate(sizes, 64))
    assert sizes == sorted(sizes) and len(set(sizes)) < 30


def test_one_program_for_all_lengths():
    kernel = tile.kernel(scaled, rows="bucket", max_recompiles=0)
    for rows in LAYOUTS:
        given = arguments(rows)
        right(kernel(*given), given)
        right(kernel(*map(jnp.asarray, given)), given)
        right(jax.jit(kernel)(*given), given)
        if torch is not None:
            right(kernel(*map(torch.from_numpy, given)), given)
    assert kernel.stats().compiles == 1


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
def test_torch_graphs():
    kernel = tile.kernel(scaled, rows="bucket")
    torch._dynamo.reset()
    run = torch.compile(lambda *t: kernel(*t), backend="aot_eager", fullgraph=True, dynamic=True)
    for rows in LAYOUTS:
        given = arguments(rows)
        right(run(*map(torch.from_numpy, given)), given)
    assert kernel.stats().compiles == 1


def test_gradients_are_cut_too():
    kernel = tile.kernel(jagged_softmax._fn, rows="bucket", max_recompiles=1)  # forward, backward
    for rows, offsets in LAYOUTS.items():
        x, c = RNG.standard_normal((2, rows, 4), np.float32)
        loss = [lambda x, k=k, o=offsets, c=c: (k(x, np.int32(o)) * c).sum() for k in
                (kernel, jagged_softmax)]  # fmt: skip
        found = jax.grad(loss[0])(x)
        assert found.shape == x.shape
        if rows in (66, 80):
            np.testing.assert_allclose(found, jax.grad(loss[1])(x), atol=1e-6)


def test_offsets_are_those_of_the_rows_that_there_are():
    x, w, offsets = arguments(70)
    with pytest.raises(ValueError, match=r"^offsets\[3\] = 75 is past the 70 rows of x"):
        tile.kernel(scaled, rows="bucket")(x, w, offsets + 5)


def weights(x, offsets):
    """How much exp(x) is in each group: dead rows would count, too."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.atomic_add(y, [g], hl.exp(x[t]).sum(0))
    return y


PAST = {"the last": (0, 5, 20, 78), "all": (71, 80, 90, 99), "far": (0, 5, 2**31 - 1, 70)}


def past_the_end(kernel, offsets):
    """What a kernel that is made for 70 rows gives inside of jit, where nobody checks offsets."""
    x, starts = RNG.standard_normal(70, np.float32), jnp.asarray(offsets, jnp.int32)
    wanted = jax.jit(tile.kernel(weights))(x, starts)
    return np.allclose(jax.jit(kernel)(x, starts), wanted, rtol=1e-6)


@pytest.mark.parametrize("layout", PAST)
def test_offsets_past_the_end_inside_of_jit(layout):
    """They end with the rows that there are, and not with those of the program."""
    assert past_the_end(tile.kernel(weights, rows="bucket"), PAST[layout])


def test_a_planted_bug_is_caught(monkeypatch):
    monkeypatch.setattr(execution, "ends", lambda ir: {})
    assert not past_the_end(tile.kernel(weights, rows="bucket"), PAST["the last"])


def mixed(x, table):
    """Where groups begin and end, and what they are times: no number of the table is clipped."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(table.shape[0]):
        for t in hl.tile(table[g, 0], table[g, 1]):
            y[t] = x[t] * table[g, 2]
    return y


def only_masked(more, offsets):
    """The sum of more[t], which is 2 where it has no rows: it does not say where groups end."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=more.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1], max_extent=70):
            found = hl.load(more, [t], mask=t.index < 3, other=2.0).sum(0)
            hl.atomic_add(y, [g], found)
    return y


FEWER = np.arange(5, dtype=np.float32)


def test_arrays_under_a_mask_end_no_range():
    offsets = np.int32([0, 5, 20, 70])
    known = tile.kernel(only_masked, rows="bucket")(FEWER, offsets)
    np.testing.assert_array_equal(known, tile.kernel(only_masked)(FEWER, offsets))
    np.testing.assert_array_equal(known, [0 + 1 + 2 + 4, 30, 100])


def shorter(x, offsets):
    """The sums of groups, and the first three rows: an output of three does not end the groups."""
    total = hl.zeros([offsets.shape[0] - 1], dtype=x.dtype)
    head = hl.zeros([3], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        own = hl.full([1], 0.0, dtype=x.dtype)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            own = own + x[t].sum(0)[None]
            hl.store(head, [t], x[t], mask=t.index < 3)
        total[g] = own.sum(0)
    return total, head


def test_outputs_under_a_mask_end_no_range():
    x, offsets = np.arange(70, dtype=np.float32), np.int32([0, 5, 20, 70])
    total, head = tile.kernel(shorter, rows="bucket")(x, offsets)
    np.testing.assert_array_equal(total, [x[:5].sum(), x[5:20].sum(), x[20:].sum()])
    np.testing.assert_array_equal(head, x[:3])


@pytest.mark.parametrize(
    "check", [test_arrays_under_a_mask_end_no_range, test_outputs_under_a_mask_end_no_range]
)
def test_a_planted_range_that_ends_with_them_is_caught(check, monkeypatch):
    monkeypatch.setattr(buckets, "_ends_ranges", lambda site: True)
    with pytest.raises(AssertionError):
        check()


def test_only_offsets_end_with_the_rows():
    known = tile.kernel(mixed)
    ir = known._parsed(known._given(bind(known.signature, (X, np.int32([[0, 70, 500]])), {}))).ir
    assert buckets.ends(ir) == {}
    given = (jnp.asarray(X), jnp.asarray([[0, 70, 500]], jnp.int32))
    found = jax.jit(tile.kernel(mixed, rows="bucket"))(*given)
    np.testing.assert_array_equal(found, np.full(70, 500, np.float32))


def counted(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(offsets[0], offsets[1]):
        y[t] = x[t] / x.shape[0]
    return y


def whole(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t] + 1
    return y


def gathered(x, rows, offsets):
    y = hl.zeros(rows.shape, dtype=x.dtype)
    for t in hl.tile(offsets[0], offsets[1]):
        y[t] = x[rows[t]]
    return y


X, PAIR = np.ones(70, np.float32), np.int32([0, 70])
REFUSED = {
    "how many rows": (
        lambda: tile.kernel(counted, rows="bucket")(X, PAIR),
        "kernel counted computes with how many rows there are, and padding changes that\n"
        '  hint: leave rows="bucket" out, or pass the number as a tensor',
    ),
    "no ragged rows": (
        lambda: tile.kernel(whole, rows="bucket")(X),
        "kernel whole has no rows to pad: no dimension of an argument is indexed only by tiles "
        'over ranges that are read from tensors\n  hint: leave rows="bucket" out',
    ),
    "a policy": (
        lambda: tile.kernel(whole, rows="some"),
        "rows='some' is neither 'exact' nor 'bucket'",
    ),
    "too many compiles": (
        lambda: list(map(tile.kernel(whole, max_recompiles=1).source, (X[:4], X[:5], X[:6]))),
        "kernel whole was compiled 2 times, and max_recompiles=1 allows no other time: now for "
        'x: float32[6]\n  hint: rows="bucket" shares programs between numbers of rows; else '
        "allow more",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    call, text = REFUSED[case]
    with pytest.raises(CallError) as caught:
        call()
    assert str(caught.value) == text


def wide(kernel, *given):
    made = tile.kernel(kernel, rows="bucket")
    known = made._given(bind(made.signature, given, {}))
    parsed = made._parsed(known)
    return parsed.ir, buckets.wider(parsed, known, made._parsed).ir


def test_what_is_gathered_is_no_row():
    """A position may be that of any row, the last one too."""
    own, more = wide(gathered, X, np.int32(range(70)), PAIR)
    grown = {t.name for t in own.tensors if t.shape != more.tensor(t.name).shape}
    assert grown == {"rows", "y"}


# Their rows are positions, or the sizes of other results.
WITHOUT = {"padded_to_jagged", "moe"}


def test_rows_of_every_example():
    found = set()
    for subject in JAGGED:
        try:
            own, more = wide(subject.kernel._fn, *next(elements(subject))[0], *subject.static)
        except CallError:
            found.add(subject.name)
        else:
            assert any(t.shape != more.tensor(t.name).shape for t in own.tensors)
    assert found == WITHOUT & {subject.name for subject in JAGGED}
