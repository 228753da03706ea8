"""Spans: ranges that move with static loops by whole blocks need no table and no mask."""

from __future__ import annotations

import numpy as np
import pytest

from tests.schedule.written import (
    INT,
    Writing,
    add,
    edge,
    expected,
    full,
    mul,
    planned,
    positions,
    printed,
    run,
    total,
)
from tilelang.errors import PlanError
from tilelang.ir import Along, At, Const, Expr, GridIndex, KernelIR
from tilelang.language import build, shapes
from tilelang.schedule.config import Config

WHOLE = slice(None)
LOOP_TYPES = ("grid", "outer_pipeline", "fori_loop", "unroll", "emit_pipeline")


def times(index: Expr, by: int) -> Expr:
    return build.binary("mul", index, Const(by, INT), None)


def split_sum(length: int = 64, k: int = 256) -> KernelIR:
    """y[ts.id] = the sum over a part of x's columns, tile by tile."""
    w = Writing("split_sum")
    w.input("x", 16, k)
    w.output("y", -(-k // length), 16, 128, fill=None)
    with w.tile("ts", 0, k, block=length):
        with w.tile("tk", edge("ts", "begin"), edge("ts", "end"), most=length):
            acc = w.carried("acc", full((16,), 0.0))
            w.becomes(acc, add(acc, total(w.load("x", WHOLE, "tk"), 1)))
        value = shapes.expand_dims(w.after("acc", acc), 1, None)
        value = build.broadcast(value, (16, 128), None)
        w.store("y", At(edge("ts", "id")), WHOLE, WHOLE, value=value)
    return w.ir()


def parts(length: int, count: int, size: int, first: int = 0) -> KernelIR:
    """Rows from s * length on, for every s: y = 2 x + their positions."""
    w = Writing("parts")
    w.input("x", size, 128)
    w.output("y", size, 128)
    with w.grid("s", first, count):
        s = GridIndex("s")
        low, high = times(s, length), times(add(s, Const(1, INT)), length)
        with w.tile("t", low, high, most=length):
            at = build.cast(shapes.expand_dims(positions("t"), 1, None), "float32", None)
            value = add(mul(w.load("x", "t", WHOLE), 2.0), at)
            w.store("y", "t", WHOLE, value=value)
    return w.ir()


def shifted(length: int, count: int) -> KernelIR:
    """The same as `parts`, as y[s * length + t.index]."""
    w = Writing("shifted")
    w.input("x", length * count, 128)
    w.output("y", length * count, 128)
    with w.grid("s", 0, count), w.tile("t", 0, length):
        here = Along("t", times(GridIndex("s"), length))
        w.store("y", here, WHOLE, value=mul(w.load("x", here, WHOLE), 3.0))
    return w.ir()


def nested() -> KernelIR:
    """Ranges in ranges in ranges: rows of a quarter of a half."""
    w = Writing("nested")
    w.input("x", 256, 128)
    w.output("y", 256, 128)
    with (
        w.tile("ta", 0, 256, block=128),
        w.tile("tb", edge("ta", "begin"), edge("ta", "end"), 128),
        w.tile("tc", edge("tb", "begin"), edge("tb", "end"), 128),
    ):
        w.store("y", "tc", WHOLE, value=mul(w.load("x", "tc", WHOLE), 2.0))
    return w.ir()


def under_groups() -> KernelIR:
    """A sum in parts, for the rows of every group."""
    w = Writing("under_groups")
    begin, end = w.offsets("offsets", 4)
    w.input("x", 50, 256)
    w.output("y", 50, 128)
    with w.grid("g", 0, 4), w.tile("tm", begin, end):
        with w.tile("ts", 0, 256, block=128):
            outer = w.carried("outer", full(("tm",), 0.0))
            with w.tile("tk", edge("ts", "begin"), edge("ts", "end"), most=128):
                acc = w.carried("acc", outer)
                w.becomes(acc, add(acc, total(w.load("x", "tm", "tk"), 1)))
            w.becomes(outer, w.after("acc", acc))
        value = shapes.expand_dims(w.after("outer", outer), 1, None)
        w.store("y", "tm", WHOLE, value=build.broadcast(value, ("tm", 128), None))
    return w.ir()


def agree(ir: KernelIR, config: Config) -> None:
    rng = np.random.default_rng(1)
    arrays = {
        t.name: np.array([0, 7, 7, 31, 50], np.int32)
        if t.name == "offsets"
        else rng.standard_normal(t.shape).astype(np.float32)
        for t in ir.tensors
        if t.role == "input"
    }
    for name, value in expected(ir, arrays, config).items():
        np.testing.assert_allclose(run(ir, arrays, config)[name], value, rtol=1e-5, atol=1e-5)


def dims(ir: KernelIR, config: Config) -> list[tuple[str | None, int | None, str]]:
    (launch,) = planned(ir, config).launches
    return [(d.axis, d.extent, d.semantics) for d in launch.dims]


def test_tiles_of_a_tile_are_a_static_grid() -> None:
    config = Config({"tk": 16})
    assert dims(split_sum(), config) == [("ts", 4, "parallel"), ("tk", 4, "arbitrary")]
    (launch,) = planned(split_sum(), config).launches
    assert launch.table is None
    assert not launch.axis("tk").partial
    text = printed(split_sum(), config).text
    assert "ts * 4 + tk" in text
    assert "mask" not in text


@pytest.mark.parametrize("loop_type", LOOP_TYPES)
def test_tiles_of_a_tile(loop_type: str) -> None:
    agree(split_sum(), Config({"tk": 16}, loop_type=loop_type))


def test_one_tile_for_every_outer_tile() -> None:
    config = Config({"tk": 64})
    assert dims(split_sum(), config) == [("ts", 4, "parallel")]
    agree(split_sum(), config)


def test_blocks_that_do_not_divide_the_range_need_a_table() -> None:
    assert None in [axis for axis, _, _ in dims(split_sum(), Config({"tk": 24}))]
    agree(split_sum(), Config({"tk": 24}))
    assert None in [axis for axis, _, _ in dims(split_sum(k=250), Config({"tk": 16}))]
    agree(split_sum(k=250), Config({"tk": 16}))


def test_ranges_that_a_grid_moves() -> None:
    ir = parts(64, 4, 256)
    assert dims(ir, Config({"t": 16})) == [("s", 4, "parallel"), ("t", 4, "arbitrary")]
    agree(ir, Config({"t": 16}))
    agree(ir, Config({"t": 64}))
    agree(parts(64, 4, 256, first=1), Config({"t": 16}))
    agree(parts(64, 3, 256), Config({"t": 32}))


def test_ranges_past_the_array_keep_their_masks() -> None:
    ir = parts(64, 4, 250)
    (launch,) = planned(ir, Config({"t": 16})).launches
    assert launch.axis("t").base is None
    assert launch.axis("t").partial


def test_tiles_moved_by_an_index() -> None:
    ir = shifted(64, 4)
    assert dims(ir, Config({"t": 16})) == [("s", 4, "parallel"), ("t", 4, "arbitrary")]
    agree(ir, Config({"t": 16}))


@pytest.mark.parametrize("tb", [32, 64, 128])
def test_ranges_in_ranges_in_ranges(tb: int) -> None:
    config = Config({"tb": tb, "tc": 16})
    assert None not in [axis for axis, _, _ in dims(nested(), config)]
    agree(nested(), config)


def test_under_a_step_table() -> None:
    config = Config({"tm": 16, "tk": 32})
    agree(under_groups(), config)
    (launch,) = planned(under_groups(), config).launches
    assert [(d.axis, d.extent) for d in launch.dims] == [(None, None), ("ts", 2), ("tk", 4)]


def test_default_blocks_divide_the_range() -> None:
    config = planned(split_sum(768, 3072), None, "tpu:v6e")
    assert dict(config.blocks)["tk"] == 768
    assert dict(planned(split_sum(4 * 1280, 8 * 1280), None, "tpu:v6e").blocks)["tk"] == 1280


# ---------------------------------------------------------------- ranges that blocks do not divide


def doubled(low: Expr, high: Expr, outer: str) -> KernelIR:
    """y = 2 x, in parts of 100 rows."""
    w = Writing("doubled")
    w.input("x", 400, 128)
    w.output("y", 400, 128)
    loop = w.grid("s", 0, 4) if outer == "grid" else w.tile("s", 0, 400, block=100)
    with loop, w.tile("t", low, high, most=100):
        w.store("y", "t", WHOLE, value=mul(w.load("x", "t", WHOLE), 2.0))
    return w.ir()


def falling() -> KernelIR:
    """The last rows first."""
    s = GridIndex("s")
    low = build.binary("sub", Const(3, INT), s, None)
    high = build.binary("sub", Const(4, INT), s, None)
    return doubled(times(low, 100), times(high, 100), "grid")


@pytest.mark.parametrize("loop_type", ["outer_pipeline", "worklist"])
def test_tiles_that_two_outer_tiles_share(loop_type: str) -> None:
    ir = doubled(edge("s", "begin"), edge("s", "end"), "tile")
    agree(ir, Config({"t": 16}, loop_type=loop_type))


def test_ranges_that_fall_are_not_taken_to_rise() -> None:
    agree(falling(), Config({"t": 16}, loop_type="fori_loop"))
    agree(falling(), Config({"t": 16}, loop_type="outer_pipeline"))
    with pytest.raises(PlanError, match="blocks of y would be visited again"):
        planned(falling(), Config({"t": 16}, loop_type="worklist"))
