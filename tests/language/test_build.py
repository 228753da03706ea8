"""Typing rules of values that run along tile axes."""

from __future__ import annotations

import pytest

import tilelang.language as hl
from tilelang.errors import TypingError
from tilelang.ir import Apply, Const, TileIndex, TileScalar, Type, Var, walk
from tilelang.language import build, shapes
from tilelang.language.calls import method, resolve
from tilelang.language.handles import TileHandle

x = Var("x", Type(("tm", "tk"), "float32"))
w = Var("w", Type(("tk", "tn"), "float32"))
half = Var("half", Type(("tm", "tk"), "bfloat16"))
tm = TileHandle("tm", "tm")


def shape(expr):
    return expr.type.shape


def test_broadcasting_of_axes():
    row = Var("row", Type(("tk",), "float32"))
    column = shapes.expand_dims(Var("column", Type(("tm",), "float32")), 1, None)
    assert shape(build.binary("add", x, row, None)) == ("tm", "tk")
    assert shape(build.binary("mul", column, row, None)) == ("tm", "tk")
    assert shape(build.binary("mul", x, 2.0, None)) == ("tm", "tk")


def test_operands_are_brought_to_one_dtype():
    total = build.binary("add", half, x, None)
    assert total.args == (Apply("cast", (half,), x.type), x)
    assert build.binary("div", *[Var(n, Type((), "int32")) for n in "ab"], None).type == Type(
        (), "float32"
    )


def test_dots():
    assert build.dot(x, w, None, (1, 0)).type == Type(("tm", "tn"), "float32")
    heads = Var("heads", Type(("h", "tm", 8), "bfloat16"))
    scores = build.dot(heads, heads, None, (2, 2), ((0,), (0,)))
    assert scores.type == Type(("h", "tm", "tm"), "float32")
    small = Var("small", Type(("tm", "tk"), "int8"))
    assert build.dot(small, small, None, (1, 1)).type == Type(("tm", "tm"), "int32")


def test_products_are_in_the_dtype_of_their_operands_unless_they_are_added():
    acc = Var("acc", Type(("tm", "tn"), "float32"))
    narrow = Var("narrow", Type(("tk", "tn"), "bfloat16"))
    assert resolve(hl.matmul)(None, half, narrow).type.dtype == "bfloat16"
    assert resolve(hl.dot)(None, half, narrow).type.dtype == "float32"
    added = resolve(hl.dot)(None, half, narrow, acc=acc)
    assert (added.op, added.args[0], added.args[1].op) == ("add", acc, "dot")
    assert resolve(hl.dot)(None, half, narrow, out_dtype=hl.bfloat16).type.dtype == "bfloat16"


def test_reductions_are_of_one_axis_each():
    total = build.reduce("sum", x, None, False, None)
    assert [e.attr("axis") for e in walk(total) if isinstance(e, Apply)] == [1, 0]
    assert shape(build.reduce("max", x, -1, True, None)) == ("tm", 1)
    assert build.reduce("argmax", x, 1, False, None).type == Type(("tm",), "int32")


def test_narrow_sums_are_in_float32():
    total = build.reduce("sum", half, 1, False, None)
    assert [e.op for e in walk(total) if isinstance(e, Apply)] == ["cast", "sum", "cast"]
    assert (total.type.dtype, total.args[0].type.dtype) == ("bfloat16", "float32")
    assert build.reduce("max", half, 1, False, None).args == (half,)


def test_mean_divides_by_the_valid_positions_of_a_tile():
    mean = method("mean")(None, x, 1)
    length = Apply("sub", (TileScalar("tk", "end"), TileScalar("tk", "begin")), Type((), "int32"))
    assert mean.op == "div"
    assert length in list(walk(mean))
    fixed = method("mean")(None, Var("v", Type((3, 4), "float32")))
    assert fixed.args[1] == Const(12.0, Type((), "float32"), weak=True)


@pytest.mark.parametrize(
    "have, want, result",
    [
        (("tm", 64), ["tm", 8, 8], ("tm", 8, 8)),
        (("tm", 64), [-1, 64], ("tm", 64)),
        (("tm", 64), ["tm", -1, 4], ("tm", 16, 4)),
        (("tm", 4, 8), ["tm", -1], ("tm", 32)),
        ((2, "tm", 6), [2, "tm", 3, -1], (2, "tm", 3, 2)),
        (("tm",), [1, -1, 1], (1, "tm", 1)),
        (("tm", "tk"), ["tm", 1, "tk"], ("tm", 1, "tk")),
        ((4, 6), [-1], (24,)),
        ((0, 6), [0, -1], None),
        (("tm", 4), [-1], None),
        (("tm", "tk"), ["tk", "tm"], None),
        (("tm", 4), [4, "tm"], None),
    ],
)
def test_reshape_keeps_tile_axes_whole(have, want, result):
    value = Var("v", Type(have, "float32"))
    sizes = [TileHandle(d, d) if isinstance(d, str) else d for d in want]
    if result is None:
        with pytest.raises(TypingError, match="does not fit"):
            method("reshape")(None, value, sizes)
    else:
        assert shape(method("reshape")(None, value, sizes)) == result


def test_nothing_is_built_for_operations_that_change_nothing():
    assert build.cast(x, "float32", None) is x
    assert shapes.reshape(x, ("tm", "tk"), None) is x
    assert shapes.transpose(x, (0, 1), None) is x
    assert build.broadcast(x, ("tm", "tk"), None) is x
    assert method("contiguous")(None, x) is x


def test_arange_of_a_tile_counts_from_its_begin():
    lanes = resolve(hl.arange)(None, tm)
    assert lanes.type == Type(("tm",), "int32")
    assert lanes.args == (TileIndex("tm", lanes.type), TileScalar("tm", "begin"))


def test_iota_along_a_tile():
    lanes = resolve(hl.broadcasted_iota)(None, hl.int32, (4, tm), 1)
    assert lanes.type == Type((4, "tm"), "int32")
    assert TileScalar("tm", "begin") in list(walk(lanes))


def test_the_length_of_a_tile_stands_for_its_axis():
    zeros = resolve(hl.zeros)(None, [TileScalar("tm", "block_size"), 4])
    assert shape(zeros) == ("tm", 4)


def test_a_whole_exponent_stays_whole():
    squared = build.binary("pow", half, 2, None)
    assert repr(squared.args[1].value) == "2" and squared.args[1].type.dtype == "bfloat16"


def test_softmax_of_narrow_floats_is_computed_in_float32():
    soft = method("softmax")(None, half, -1)
    assert soft.type == half.type
    costly = [e for e in walk(soft) if isinstance(e, Apply) and e.op in ("exp", "sum", "div")]
    assert {e.type.dtype for e in costly} == {"float32"}
