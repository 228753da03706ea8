"""Numbers of tiles as positions: scale[t.id] of too few blocks is refused."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tilelang.analysis import numbers
from tilelang.codegen.pallas.plan import blocks
from tilelang.errors import ParseError, PlanError, RaggedValueError
from tilelang.runtime import launch

X, FEW = np.ones(40, np.float32), np.arange(1, 4, dtype=np.float32)


@tile.kernel
def scaled(x, scale):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40, block_size=8):
        y[t] = x[t] * scale[t.id]
    return y


@tile.kernel
def scaled_if(x, scale, s):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40, block_size=8):
        if s[0] < 1:
            y[t] = x[t] * scale[t.id]
    return y


@tile.kernel
def parts_if(x, s):
    y = hl.zeros([3], dtype=hl.float32)
    if s[0] < 1:
        for t in hl.tile(40, block_size=8):
            y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def of_groups(x, scale, offsets):
    """Tiles of each group, counted from its begin."""
    y = hl.zeros([40], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=40, block_size=8):
            hl.atomic_add(y, [t], x[t] * scale[g, t.id])
    return y


def test_where_it_is_certain_the_line_is_refused() -> None:
    with pytest.raises(ParseError, match=r"scale has length 3, t\.id reaches 4"):
        scaled(X, FEW)
    np.testing.assert_array_equal(scaled(X, np.arange(5, dtype=np.float32)), np.arange(40) // 8)


@pytest.mark.parametrize("args", [(scaled_if, X, FEW), (parts_if, X)], ids=["load", "store"])
def test_behind_a_condition_a_call_is_refused(args) -> None:
    kernel, *arrays = args
    for run in (kernel, kernel.reference):
        with pytest.raises(RaggedValueError, match=r"24 // 8 = 3 is too large"):
            run(*arrays, np.zeros(1, np.int32))
        run(*arrays, np.ones(1, np.int32))


def test_of_groups_the_longest_says_it() -> None:
    scale = np.ones((2, 3), np.float32)
    right = (np.arange(40) < 24) * 1.0 + (np.arange(40) < 10)
    np.testing.assert_array_equal(of_groups(X, scale, np.array([0, 24, 34])), right)
    with pytest.raises(RaggedValueError, match="scale"):
        of_groups(X, scale, np.array([0, 25, 35]))


# ---------------------------------------------------------------- blocks that the plan chooses

LONG = np.ones(640, np.float32)


@tile.kernel
def sums(x):
    y = hl.zeros([2], dtype=hl.float32)
    for t in hl.tile(640):
        y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def sums_of_two(x):
    y = hl.zeros([2], dtype=hl.float32)
    for t in hl.tile(640):
        if t.id < 2:
            y[t.id] = x[t].sum(0)
    return y


def of(kernel, **blocks):
    return tile.kernel(kernel.__wrapped__, config=tile.Config(blocks))


@pytest.mark.parametrize("target", ["cpu", "tpu:v6e", "cuda:sm90"])
def test_more_tiles_than_the_array_has_room_for_are_refused(target) -> None:
    wrong = "y has length 2, where t.id is a position, and blocks of 128 make 5 tiles of t"
    with pytest.raises(PlanError, match=wrong) as caught:
        of(sums, t=128).source(LONG, target=target)
    assert caught.value.hint == "blocks of t are 320 at least, or that has to be longer"
    assert "y[t.id] = x[t].sum(0)" in str(caught.value)


def test_as_many_tiles_as_there_is_room_for_are_taken() -> None:
    np.testing.assert_array_equal(sums(LONG), [640, 0])
    np.testing.assert_array_equal(of(sums, t=384)(LONG), [384, 256])
    np.testing.assert_array_equal(of(sums, t=320)(LONG), [320, 320])
    np.testing.assert_array_equal(of(sums_of_two, t=128)(LONG), [128, 128])


# ---------------------------------------------------------------- behind what may not hold

S = np.zeros(1, np.int32)
MAY_BE = "blocks of 8 make up to 5 tiles of t"


@tile.kernel
def parts_in_an_if(x, s):
    y = hl.zeros([3], dtype=hl.float32)
    for g in hl.grid(1):
        for t in hl.tile(40):
            if s[g] < 1:
                y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def parts_around_an_if(x, s):
    y = hl.empty([3], dtype=hl.float32)
    if s[0] < 1:
        for t in hl.tile(40):
            y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def parts_under_a_mask(x, s):
    y = hl.zeros([3], dtype=hl.float32)
    for t in hl.tile(40):
        hl.store(y, [t.id], x[t].sum(0), mask=s[0] < 1)
    return y


@tile.kernel
def parts_of_some(x, s):
    y = hl.empty([3], dtype=hl.float32)
    for t in hl.tile(s[0], max_extent=40):
        y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def parts_in_an_empty_loop(x, s):
    y = hl.zeros([3], dtype=hl.float32)
    for t in hl.tile(40):
        for g in hl.grid(s[0], max_extent=2):
            y[t.id] = x[t].sum(0) + g
    return y


@tile.kernel
def scaled_in_an_if(x, s, scale):
    y = hl.zeros([40], dtype=hl.float32)
    for t in hl.tile(40):
        if s[0] < 1:
            y[t.id] = x[t].sum(0) * scale[t.id]
    return y


MAY_BE_KERNELS = (
    (parts_in_an_if, (X, S)),
    (parts_around_an_if, (X, S)),
    (parts_under_a_mask, (X, S)),
    (parts_of_some, (X, S)),
    (parts_in_an_empty_loop, (X, S)),
    (scaled_in_an_if, (X, S, FEW)),
)
each_may_be = pytest.mark.parametrize(
    ("kernel", "given"), MAY_BE_KERNELS, ids=lambda a: getattr(a, "__name__", "")
)


@each_may_be
@pytest.mark.parametrize("target", ["cpu", "cuda:sm90"])
def test_more_tiles_than_there_is_room_for_are_refused_though_none_may_be_there(
    kernel, given, target
) -> None:
    """The block would say how many are lost: s says whether they are stored."""
    with pytest.raises(
        PlanError, match=f"has length 3, where t.id is a position, and {MAY_BE}"
    ) as e:
        of(kernel, t=8).source(*given, target=target)
    assert e.value.hint == (
        "blocks of t are 14 at least, or that has to be longer, or an `if` says which tiles are "
        "meant: if t.id < 3: ..."
    )
    assert "t.id]" in str(e.value)
    of(kernel, t=16).source(*given)


@each_may_be
def test_default_blocks_have_room_for_all_tiles(kernel, given) -> None:
    block = dict(kernel.default_config(*given).blocks)["t"]
    found = kernel.reference(*given, blocks={"t": block})
    np.testing.assert_array_equal(kernel(*given), found)
    np.testing.assert_array_equal(
        of(kernel, t=16)(*given), kernel.reference(*given, blocks={"t": 16})
    )


def test_the_planted_loss_of_tiles(monkeypatch) -> None:
    monkeypatch.setattr(numbers, "_asks", lambda reference, *_: reference.masked)
    parts = tile.kernel(parts_in_an_if.__wrapped__, config=tile.Config({"t": 8}))
    parts.source(X, S)  # which is refused otherwise, see above


# ---------------------------------------------------------------- sums of numbers


@tile.kernel
def every_second(x):
    y = hl.zeros([7], dtype=hl.float32)
    for t in hl.tile(40):
        y[2 * t.id] = x[t].sum(0)
    return y


@tile.kernel
def backwards(x):
    y = hl.zeros([3], dtype=hl.float32)
    for t in hl.tile(40):
        y[2 - t.id] = x[t].sum(0)
    return y


@tile.kernel
def of_pairs(x):
    y = hl.zeros([6], dtype=hl.float32)
    for t, u in hl.tile([40, 8]):
        y[2 * t.id + u.id] = x[t].sum(0)
    return y


@tile.kernel
def halves(x):
    y = hl.zeros([2], dtype=hl.float32)
    for t in hl.tile(40):
        hl.atomic_add(y, [t.id // 2], x[t].sum(0))
    return y


@pytest.mark.parametrize(
    ("kernel", "blocks", "wrong", "hint"),
    [
        (every_second, {"t": 8}, r"where 2\*t\.id is a position", "blocks of t are 10 at least"),
        (backwards, {"t": 8}, r"where 2 - t\.id is a position", "blocks of t are 14 at least"),
        (
            of_pairs,
            {"t": 8, "u": 4},
            "make 5 tiles of t and blocks of 4 make 2 tiles of u",
            "use larger blocks of t and u",
        ),
    ],
    ids=lambda a: getattr(a, "__name__", ""),
)
def test_numbers_in_sums_are_counted_too(kernel, blocks, wrong, hint) -> None:
    with pytest.raises(PlanError, match=wrong) as caught:
        of(kernel, **blocks).source(X)
    assert caught.value.hint == f"{hint}, or that has to be longer"
    larger = {axis: 2 * block for axis, block in blocks.items()}
    np.testing.assert_array_equal(of(kernel, **larger)(X), kernel.reference(X, blocks=larger))


def test_a_call_knows_the_blocks_of_its_plan() -> None:
    """What is no sum of numbers is looked at when it is known how many there are."""
    np.testing.assert_array_equal(of(halves, t=16)(X), [32, 8])
    for run in (of(halves, t=8), lambda x: halves.reference(x, blocks={"t": 8})):
        with pytest.raises(RaggedValueError):
            run(X)


@tile.kernel
def first_parts(x, n):
    """The author says which tiles are meant, by a number in memory."""
    y = hl.zeros([3], dtype=hl.float32)
    for t in hl.tile(40):
        if t.id < n[0]:
            y[t.id] = x[t].sum(0)
    return y


@tile.kernel
def parts_that_end(x, n):
    y = hl.zeros([3], dtype=hl.float32)
    for t in hl.tile(40):
        if t.end <= n[0]:
            y[t.id] = x[t].sum(0)
    return y


@pytest.mark.parametrize(
    ("kernel", "right", "wrong"), [(first_parts, (0, 3), (4, 9)), (parts_that_end, (25, 31), (32,))]
)
def test_of_tiles_that_memory_picks_calls_look_at_the_number(kernel, right, wrong) -> None:
    for n in (np.array([n], np.int32) for n in right):
        found = of(kernel, t=8)(X, n)
        np.testing.assert_array_equal(found, kernel.reference(X, n, blocks={"t": 8}))
    for n in (np.array([n], np.int32) for n in wrong):
        with pytest.raises(RaggedValueError, match=r"24 // 8 = 3 is too large"):
            of(kernel, t=8)(X, n)
        of(kernel, t=16)(X, n)  # of which there are three


@pytest.mark.parametrize("kernel", [first_parts, parts_that_end])
def test_planted_calls_that_do_not_know_the_blocks(kernel, monkeypatch) -> None:
    compiled = launch.compile_checks
    monkeypatch.setattr(launch, "compile_checks", lambda ir, facts, blocks: compiled(ir, facts))
    of(kernel, t=8)(X, np.array([40], np.int32))  # three of five tiles are stored, in silence


def test_planted_tiles_that_nobody_counts(monkeypatch) -> None:
    monkeypatch.setattr(blocks, "check_numbers", lambda facts, found: None)
    with pytest.raises(pytest.fail.Exception):
        test_more_tiles_than_the_array_has_room_for_are_refused("cpu")
