"""The reference runs kernels that are written as IR by hand."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest

import tilelang.language as hl
from tilelang.errors import CallError, Loc, RaggedValueError
from tilelang.ir import (
    Along,
    Assign,
    At,
    Axis,
    Carry,
    Gather,
    GridIndex,
    KernelIR,
    Load,
    Loop,
    Param,
    Span,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Type,
    Var,
    View,
)
from tilelang.language import build, shapes, values
from tilelang.language.calls import resolve
from tilelang.reference import evaluate

LOC = Loc("kernel.py", 3, 4, 8, "    pass")
rng = np.random.default_rng(0)
INT = Type((), "int32")


def number(value):
    return values.const(value)


def tensor(name, shape, dtype="float32", **more):
    return Tensor(name, shape, dtype, more.pop("role", "input"), LOC, **more)


def output(name, shape, dtype="float32", fill=None):
    return tensor(name, shape, dtype, role="output", fill=fill)


def view(name, shape, source, how, arg, dtype="float32"):
    return tensor(name, shape, dtype, role="view", view=View(source, how, arg))


def axis(name, begin, end, kind="tile", block="block", max_extent=None):
    ends = [number(e) if isinstance(e, int) else e for e in (begin, end)]
    return Axis(name, kind, *ends, max_extent, block if kind == "tile" else None, LOC, name)


def load(t, *index, mask=None, other=0, dtype="float32"):
    dims = []
    for entry in index:
        match entry:
            case Along(name):
                dims.append(name)
            case Span(start, stop):
                dims.append(stop - start)
            case Gather(expr):
                dims.append(expr.type.shape[0])
    return Load(t, index, Type(tuple(dims), dtype), mask, other, LOC)


def loop(name, *body, carries=()):
    return Loop(name, body, tuple(carries), LOC)


def store(t, index, value, mask=None):
    return Store(t, index, value, LOC, mask)


def kernel(tensors, axes, *body, returns=()):
    params = tuple(Param(t.name, t.name) for t in tensors if t.role == "input")
    return KernelIR("kernel", params, tuple(tensors), tuple(axes), body, returns, "tuple", LOC)


def table(name, index):
    """offsets[g], offsets[g + 1]"""
    return load(name, At(index), dtype="int32")


# ---------------------------------------------------------------- dense


def vector_add(n, dtype="float32"):
    at = (Along("t"),)
    total = build.binary("add", load("x", *at, dtype=dtype), load("y", *at, dtype=dtype), LOC)
    return kernel(
        [tensor("x", (n,), dtype), tensor("y", (n,), dtype), output("z", (n,), dtype)],
        [axis("t", 0, n)],
        loop("t", Assign("s", total, LOC, "s"), store("z", at, Var("s", total.type))),
    )


@pytest.mark.parametrize("n", [0, 1, 127, 128, 300])
@pytest.mark.parametrize("block", [1, 8, 128])
def test_vector_add(n, block):
    x, y = rng.normal(size=(2, n)).astype(np.float32)
    got = evaluate(vector_add(n), {"x": x, "y": y}, seed=1, blocks={"t": block}, parallel=["t"])
    assert list(got) == ["z"]
    np.testing.assert_array_equal(got["z"], x + y)


def test_values_have_the_precision_of_their_dtype():
    x = rng.normal(size=200).astype(ml_dtypes.bfloat16)
    got = evaluate(vector_add(200, "bfloat16"), {"x": x, "y": x[::-1]})["z"]
    want = (x.astype(np.float32) + x[::-1].astype(np.float32)).astype(ml_dtypes.bfloat16)
    assert got.dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(got, want)


def test_inputs_are_not_changed_and_memory_that_is_not_written_is_garbage():
    ir = kernel(
        [
            tensor("x", (4,)),
            output("a", (3,)),
            output("b", (3,), "int32"),
            output("c", (2,), fill=7),
        ],
        [],
    )
    x = np.float32([1, 2, 3, 4])
    got = evaluate(ir, {"x": x})
    assert np.isnan(got["a"]).all() and (got["b"] == 0x5A5A5A5A).all()
    assert (got["c"] == 7).all() and "x" not in got


def test_a_mutated_input_is_returned_and_the_argument_stays():
    t = Along("t")
    ir = kernel(
        [tensor("x", (5,), mutated=True)],
        [axis("t", 0, 5)],
        loop("t", store("x", (t,), build.binary("mul", load("x", t), 2.0, LOC))),
    )
    x = np.arange(5, dtype=np.float32)
    assert (evaluate(ir, {"x": x})["x"] == 2 * np.arange(5)).all()
    assert (x == np.arange(5)).all()


def matmul(m, n, k):
    tm, tn, tk = Along("tm"), Along("tn"), Along("tk")
    acc = Type(("tm", "tn"), "float32")
    step = resolve(hl.dot)(LOC, load("x", tm, tk), load("w", tk, tn), acc=Var("acc", acc))
    zero = build.full(acc.shape, 0.0, None, LOC)
    carry = Carry("acc", zero, Var("next", acc), "acc_out", "acc", LOC)
    return kernel(
        [tensor("x", (m, k)), tensor("w", (k, n)), output("y", (m, n))],
        [axis("tm", 0, m), axis("tn", 0, n), axis("tk", 0, k)],
        loop(
            "tm",
            loop(
                "tn",
                loop("tk", Assign("next", step, LOC, "acc"), carries=[carry]),
                store("y", (tm, tn), Var("acc_out", acc)),
            ),
        ),
    )


@pytest.mark.parametrize("shape", [(5, 7, 9), (4, 4, 0), (0, 3, 3)])
def test_matmul_with_a_carry(shape):
    m, n, k = shape
    x, w = (rng.normal(size=s).astype(np.float32) for s in ((m, k), (k, n)))
    got = evaluate(matmul(m, n, k), {"x": x, "w": w}, blocks={"block": 4}, seed=0, parallel=["tm"])
    np.testing.assert_allclose(got["y"], x @ w, rtol=1e-5, atol=1e-5)


def test_block_sizes_by_axis_entry_or_author():
    x = np.arange(10, dtype=np.float32)

    def sizes(block, blocks):
        count = TileScalar("t", "count")
        ir = kernel(
            [tensor("x", (10,)), output("n", (), "int32", fill=0)],
            [axis("t", 0, 10, block=block)],
            loop("t", store("n", (), count)),
        )
        return int(evaluate(ir, {"x": x}, blocks=blocks)["n"])

    assert sizes("rows", {"rows": 5}) == 2
    assert sizes("rows", {"t": 1}) == 10
    assert sizes("rows", None) == 1
    assert sizes(3, {"t": 1}) == 4


# ---------------------------------------------------------------- ragged


def grouped_gemm(m, k, n, groups):
    """y[r] = x[r] @ w[g] for offsets[g] <= r < offsets[g + 1]."""
    g, tm = GridIndex("g"), Along("tm")
    after = build.binary("add", g, 1, LOC)
    product = resolve(hl.matmul)(
        LOC, load("x", tm, Span(0, k)), load("w", At(g), Span(0, k), Span(0, n))
    )
    return kernel(
        [
            tensor("x", (m, k)),
            tensor("w", (groups, k, n)),
            tensor("offsets", (groups + 1,), "int64"),
            output("y", (m, n), fill=0),
        ],
        [
            axis("g", 0, groups, kind="grid"),
            axis("tm", table("offsets", g), table("offsets", after), max_extent=m),
        ],
        loop("g", loop("tm", store("y", (tm, Span(0, n)), product))),
    )


LAYOUTS = [[0, 5, 5, 12], [0, 0, 0, 0], [2, 3, 9, 10], [0, 12, 12, 12], [0, 0, 0, 12]]


@pytest.mark.parametrize("offsets", LAYOUTS)
@pytest.mark.parametrize("block", [1, 4, 128])
def test_grouped_gemm(offsets, block):
    x = rng.normal(size=(12, 3)).astype(np.float32)
    w = rng.normal(size=(3, 3, 4)).astype(np.float32)
    want = np.zeros((12, 4), np.float32)
    for g in range(3):
        rows = slice(offsets[g], offsets[g + 1])
        want[rows] = x[rows] @ w[g]
    ir = grouped_gemm(12, 3, 4, 3)
    arrays = {"x": x, "w": w, "offsets": np.int64(offsets)}
    got = evaluate(ir, arrays, blocks={"tm": block}, seed=3, parallel=["g", "tm"])
    np.testing.assert_allclose(got["y"], want, rtol=1e-6, atol=1e-6)


def test_decreasing_offsets_are_an_empty_range():
    arrays = {"x": np.ones((4, 1)), "w": np.ones((1, 1, 1))}
    arrays = {k: v.astype(np.float32) for k, v in arrays.items()}
    got = evaluate(grouped_gemm(4, 1, 1, 1), {**arrays, "offsets": np.int64([3, 1])})
    assert (got["y"] == 0).all()


def test_what_is_out_of_range_is_named():
    ir = grouped_gemm(4, 1, 1, 1)
    arrays = {"x": np.ones((4, 1), np.float32), "w": np.ones((1, 1, 1), np.float32)}
    with pytest.raises(RaggedValueError, match="the kernel reads x at 4 of dimension 0, whose"):
        evaluate(ir, {**arrays, "offsets": np.int64([2, 6])})
    with pytest.raises(RaggedValueError, match="tm runs from 0 to 5: more than its max_extent 4"):
        evaluate(ir, {**arrays, "offsets": np.int64([0, 5])})
    with pytest.raises(RaggedValueError, match=r"offsets\[1\] is 4294967296, which does not fit"):
        evaluate(ir, {**arrays, "offsets": np.int64([0, 2**32])})
    with pytest.raises(CallError, match="w is missing"):
        evaluate(ir, {"x": arrays["x"]})
    with pytest.raises(CallError, match=r"x is float32\[1\], the kernel was parsed for float32\[4"):
        evaluate(ir, {"x": np.ones(1, np.float32)})


def attention(heads, length, width):
    """Online softmax over tiles of keys; (m, l, acc) are carried."""
    h, tq, tk = At(GridIndex("h")), Along("tq"), Along("tk")
    row, wide = Type(("tq",), "float32"), Type(("tq", width), "float32")
    m, norm, acc = Var("m", row), Var("l", row), Var("acc", wide)
    feature = Span(0, width)
    q, k, v = load("q", h, tq, feature), load("k", h, tk, feature), load("v", h, tk, feature)
    scores = build.dot(q, k, LOC, (1, 1))
    top = build.binary("maximum", m, build.reduce("max", scores, 1, False, LOC), LOC)
    new_m = Var("new_m", row)
    weights = build.unary(
        "exp", build.binary("sub", scores, shapes.expand_dims(new_m, 1, LOC), LOC), LOC
    )
    p = Var("p", weights.type)
    scale = build.unary("exp", build.binary("sub", m, new_m, LOC), LOC)
    total = build.reduce("sum", p, 1, False, LOC)
    new_l = build.binary("add", build.binary("mul", norm, scale, LOC), total, LOC)
    kept = build.binary("mul", acc, shapes.expand_dims(scale, 1, LOC), LOC)
    new_acc = build.binary("add", kept, build.dot(p, v, LOC, (1, 0)), LOC)
    carries = [
        Carry("m", build.full(("tq",), -math.inf, None, LOC), new_m, "m_out", "m", LOC),
        Carry("l", build.full(("tq",), 0.0, None, LOC), new_l, "l_out", "l", LOC),
        Carry("acc", build.full(wide.shape, 0.0, None, LOC), new_acc, "acc_out", "acc", LOC),
    ]
    divisor = shapes.expand_dims(Var("l_out", row), 1, LOC)
    result = build.binary("div", Var("acc_out", wide), divisor, LOC)
    shape = (heads, length, width)
    return kernel(
        [*(tensor(n, shape) for n in "qkv"), output("o", shape)],
        [axis("h", 0, heads, kind="grid"), axis("tq", 0, length), axis("tk", 0, length)],
        loop(
            "h",
            loop(
                "tq",
                loop(
                    "tk",
                    Assign("new_m", top, LOC, "m"),
                    Assign("p", weights, LOC, "p"),
                    carries=carries,
                ),
                store("o", (h, tq, feature), result),
            ),
        ),
    )


@pytest.mark.parametrize("block", [3, 5, 128])
def test_attention_carries_three_values(block):
    q, k, v = rng.normal(size=(3, 2, 11, 4)).astype(np.float32)
    weights = np.exp(q @ k.transpose(0, 2, 1))
    want = weights / weights.sum(-1, keepdims=True) @ v
    blocks = {"block": block}
    arrays = {"q": q, "k": k, "v": v}
    got = evaluate(attention(2, 11, 4), arrays, blocks=blocks, seed=0, parallel=["h", "tq"])
    np.testing.assert_allclose(got["o"], want, rtol=1e-5, atol=1e-6)


def test_a_grid_with_bounds_that_are_read():
    g, i = GridIndex("g"), GridIndex("i")
    after = build.binary("add", g, 1, LOC)
    ir = kernel(
        [tensor("offsets", (4,), "int32"), output("owner", (6,), "int32", fill=-1)],
        [
            axis("g", 0, 3, kind="grid"),
            axis("i", table("offsets", g), table("offsets", after), kind="grid", max_extent=6),
        ],
        loop("g", loop("i", store("owner", (At(i),), g))),
    )
    got = evaluate(ir, {"offsets": np.int32([0, 2, 2, 5])}, seed=0, parallel=["i"])
    assert got["owner"].tolist() == [0, 0, 2, 2, 2, -1]


# ---------------------------------------------------------------- indices


def test_offset_tiles_and_masks():
    t = Along("t", number(2))
    mask = build.binary("lt", TileIndex("t", Type(("t",), "int32")), 3, LOC)
    moved = load("x", t, mask=mask, other=-1)
    ir = kernel(
        [tensor("x", (5,)), output("y", (7,), fill=0)],
        [axis("t", 0, 5)],
        loop("t", store("y", (t,), moved)),
    )
    got = evaluate(ir, {"x": np.arange(5, dtype=np.float32)}, blocks={"t": 2})
    assert got["y"].tolist() == [0, 0, 2, 3, 4, -1, -1]


def test_a_lane_that_a_moved_tile_has_outside_of_the_tensor_is_no_data():
    there, back = Along("t", number(2)), Along("t", number(-2))
    ir = kernel(
        [tensor("x", (5,)), output("y", (5,), fill=9), output("z", (5,), fill=9)],
        [axis("t", 0, 5)],
        loop(
            "t",
            store("y", (there,), load("x", Along("t"))),
            store("z", (Along("t"),), load("x", back)),
        ),
    )
    got = evaluate(ir, {"x": np.arange(1, 6, dtype=np.float32)}, blocks={"t": 2})
    assert got["y"].tolist() == [9, 9, 1, 2, 3]
    assert got["z"].tolist() == [0, 0, 1, 2, 3]


def test_a_tile_that_is_not_moved_lies_in_the_tensor():
    t = Along("t")
    ir = kernel(
        [tensor("x", (7,)), output("y", (5,), fill=0)],
        [axis("t", 0, 7)],
        loop("t", store("y", (t,), load("x", t))),
    )
    with pytest.raises(RaggedValueError) as caught:
        evaluate(ir, {"x": np.ones(7, np.float32)})
    assert caught.value.what == "the kernel writes y at 5 of dimension 0, whose length is 5"
    assert caught.value.loc == LOC


def test_a_store_writes_the_lanes_of_its_mask():
    t = Along("t")
    positive = build.binary("gt", load("x", t), 0.0, LOC)
    ir = kernel(
        [tensor("x", (4,)), output("y", (4,), fill=9)],
        [axis("t", 0, 4)],
        loop("t", store("y", (t,), load("x", t), mask=positive)),
    )
    got = evaluate(ir, {"x": np.float32([1, -1, 2, 0])})
    assert got["y"].tolist() == [1, 9, 2, 9]


@pytest.mark.parametrize("hold", [True, False])
def test_a_scalar_mask_selects_all_or_nothing(hold):
    t = Along("t")
    whether = build.binary("lt", table("n", number(0)), 5, LOC)
    ir = kernel(
        [tensor("x", (4,)), tensor("n", (1,), "int32"), output("y", (4,), fill=0)],
        [axis("t", 0, 4)],
        loop("t", store("y", (t,), load("x", t), mask=whether)),
    )
    got = evaluate(ir, {"x": np.ones(4, np.float32), "n": np.int32([4 if hold else 5])})
    assert (got["y"] == hold).all()


def test_gathered_rows():
    t = Along("t")
    rows = load("index", t, dtype="int32")
    ir = kernel(
        [tensor("x", (5, 2)), tensor("index", (4,), "int32"), output("y", (4, 2))],
        [axis("t", 0, 4)],
        loop("t", store("y", (t, Span(0, 2)), load("x", Gather(rows), Span(0, 2)))),
    )
    x, index = rng.normal(size=(5, 2)).astype(np.float32), np.int32([4, 0, 0, 2])
    got = evaluate(ir, {"x": x, "index": index}, blocks={"t": 3})
    np.testing.assert_array_equal(got["y"], x[index])
    with pytest.raises(RaggedValueError, match="reads x at 5 of dimension 0"):
        evaluate(ir, {"x": x, "index": np.int32([0, 5, 0, 0])})


def test_spans_and_scalars_in_any_order():
    ir = kernel(
        [tensor("x", (3, 4, 5)), output("y", (2, 3))],
        [axis("t", 0, 3)],
        loop(
            "t",
            store(
                "y",
                (Span(0, 2), Along("t")),
                shapes.transpose(load("x", Along("t"), At(number(2)), Span(1, 3)), (1, 0), LOC),
            ),
        ),
    )
    x = rng.normal(size=(3, 4, 5)).astype(np.float32)
    got = evaluate(ir, {"x": x}, blocks={"t": 2})
    np.testing.assert_array_equal(got["y"], x[:, 2, 1:3].T)


def test_views_of_inputs_and_of_outputs():
    t, feature = Along("t"), Span(0, 2)
    ir = kernel(
        [
            tensor("x", (3, 2, 2)),
            view("turned", (2, 3, 2), "x", "permute", (1, 0, 2)),
            view("rows", (6, 2), "turned", "reshape", (6, 2)),
            output("y", (2, 2, 3), fill=0),
            view("back", (3, 2, 2), "y", "permute", (2, 0, 1)),
            view("flat", (6, 2), "back", "reshape", (6, 2)),
        ],
        [axis("t", 0, 6)],
        loop("t", store("flat", (t, feature), load("rows", t, feature))),
        returns=("back",),
    )
    x = rng.normal(size=(3, 2, 2)).astype(np.float32)
    got = evaluate(ir, {"x": x}, blocks={"t": 4})
    want = x.transpose(1, 0, 2).reshape(3, 2, 2)
    np.testing.assert_array_equal(got["back"], want)
    np.testing.assert_array_equal(got["y"], want.transpose(1, 2, 0))


def test_tensors_without_elements():
    t = Along("t")
    never = build.full((), False, "bool", LOC)
    ir = kernel(
        [tensor("x", (0,)), output("y", (3,), fill=1), output("z", (3, 0))],
        [axis("t", 0, 3)],
        loop(
            "t",
            store("y", (t,), load("x", t, mask=never, other=5)),
            store("z", (t, Span(0, 0)), build.full(("t", 0), 0.0, None, LOC)),
        ),
    )
    got = evaluate(ir, {"x": np.zeros(0, np.float32)})
    assert got["y"].tolist() == [5, 5, 5] and got["z"].shape == (3, 0)


# ---------------------------------------------------------------- order


def last_writer(parallel):
    ir = kernel(
        [output("y", (), "int32", fill=-1)],
        [axis("i", 0, 64, kind="grid")],
        loop("i", store("y", (), GridIndex("i"))),
    )
    return {int(evaluate(ir, {}, seed=s, parallel=parallel)["y"]) for s in range(4)}


def test_a_seed_shuffles_the_parallel_axes_only():
    assert last_writer([]) == {63}
    assert len(last_writer(["i"])) > 1


def test_a_seed_decides_the_order():
    ir = attention(2, 11, 4)
    arrays = {n: rng.normal(size=(2, 11, 4)).astype(np.float32) for n in "qkv"}
    runs = [
        evaluate(ir, arrays, seed=5, blocks={"block": 3}, parallel=["h", "tk"])["o"]
        for _ in range(2)
    ]
    np.testing.assert_array_equal(*runs)


def test_a_carry_without_iterations_is_its_initial_value():
    carry = Carry("s", number(7), build.binary("add", Var("s", INT), 1, LOC), "end", "s", LOC)
    ir = kernel(
        [output("y", (2,), "int32")],
        [axis("o", 0, 2, kind="grid"), axis("i", 0, GridIndex("o"), kind="grid")],
        loop("o", loop("i", carries=[carry]), store("y", (At(GridIndex("o")),), Var("end", INT))),
    )
    assert evaluate(ir, {})["y"].tolist() == [7, 8]


def test_a_shared_subexpression_is_evaluated_once():
    value = load("x", Along("t"))
    for _ in range(60):  # as a tree: 2 ** 60 loads
        value = build.binary("maximum", value, value, LOC)
    ir = kernel(
        [tensor("x", (3,)), output("y", (3,))],
        [axis("t", 0, 3)],
        loop("t", store("y", (Along("t"),), value)),
    )
    x = np.float32([1, 2, 3])
    np.testing.assert_array_equal(evaluate(ir, {"x": x})["y"], x)
