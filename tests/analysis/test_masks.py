"""Pad states and fills: rules one by one, then random expressions run on tiles full of NaN."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.analysis.build import F32, floats, index, load, op
from tilelang.analysis.masks import (
    Absent,
    FillNeed,
    Foreign,
    Known,
    fills,
    lane_mask,
    masked_reads,
    needs,
    pad_state,
    unknown,
)
from tilelang.ir import Apply, Const, GridIndex, Load, Span, TileScalar, Type, Var, walk
from tilelang.language.dtypes import is_float, is_narrow, to_numpy
from tilelang.language.op import OPS

X = floats("x", "tm", "tk")
W = floats("w", "tk", "tn")
ROW = floats("x", "tm")
ROWS_INT = load("x", "tm")
BOOL = "bool"


def full(value, *shape, dtype="float32"):
    return Apply("full", (), Type(shape, dtype), (("value", value),))


def const(value, dtype="float32"):
    return Const(value, Type((), dtype))


def in_range(axis="tm"):
    return lane_mask(axis, 0)


def where(condition, a, b):
    return op("where", condition, a, b, shape=a.type.shape, dtype=a.type.dtype)


def keep(x, fill, axis="tm"):
    """x with its foreign lanes filled."""
    return where(in_range(axis), x, const(fill, x.type.dtype))


def reduce(name, x, dim, dtype=None):
    shape = x.type.shape[:dim] + x.type.shape[dim + 1 :]
    return op(name, x, shape=shape, dtype=dtype or x.type.dtype, axis=dim, keepdim=False)


def dot(a, b, i=1, j=0):
    shape = a.type.shape[:i] + a.type.shape[i + 1 :] + b.type.shape[:j] + b.type.shape[j + 1 :]
    return op("dot", a, b, shape=shape, contract=(i, j), batch=((), ()))


# ---------------------------------------------------------------- pad states


@pytest.mark.parametrize(
    ("expr", "state"),
    [
        (ROW, Foreign()),
        (floats("x", GridIndex("g")), Absent()),
        (floats("x", "tk"), Absent()),
        (Load("x", ROW.index, ROW.type, full(True, "tm", dtype=BOOL), -math.inf), Foreign()),
        (index("tm"), Foreign()),
        (index("tk"), Absent()),
        (TileScalar("tm", "end"), Absent()),
        (const(2.0), Absent(2.0)),
        (full(2.0, "tm"), Known(2.0)),
        (full(2.0, "tk"), Absent(2.0)),
        (op("full", const(3.0), shape=("tm",)), Known(3.0)),
        (op("full", floats("x", 0), shape=("tm",)), Foreign()),
        (Apply("arange", (), Type((4,), "int32"), (("start", 0), ("step", 1))), Absent()),
        (op("add", full(2.0, "tm"), const(1.0), shape=("tm",)), Known(3.0)),
        (op("add", full(2.0, "tm"), floats("x", 0), shape=("tm",)), Foreign()),
        (op("exp", full(-math.inf, "tm")), Known(0.0)),
        (op("mul", full(0.0, "tm"), ROW), Foreign()),
        (op("mul", full(0, "tm", dtype="int32"), ROWS_INT), Known(0)),
        (op("sub", full(math.inf, "tm"), full(math.inf, "tm")), Foreign()),
        (op("maximum", full(-math.inf, "tm"), ROW), Foreign()),
        (op("cast", full(2.5, "tm"), dtype="int32"), Known(2)),
        (op("cast", full(1e30, "tm"), dtype="int32"), Foreign()),
        (op("cast", full(-5.0, "tm"), dtype="uint8"), Foreign()),
        (op("floordiv", full(1, "tm", dtype="int32"), const(0, "int32")), Foreign()),
        (op("pow", full(2, "tm", dtype="int32"), const(-1, "int32")), Foreign()),
        (op("cast", full(1.0, "tm"), dtype="bfloat16"), Known(1.0)),
        (op("add", full(1.0, "tm", dtype="bfloat16"), const(1e-3, "bfloat16")), Known(1.0)),
        (op("lt", full(1.0, "tm"), const(2.0), dtype=BOOL), Known(True)),
        (in_range(), Known(False)),
        (in_range("tk"), Absent()),
        (op("logical_and", in_range(), op("gt", ROW, const(0.0), dtype=BOOL)), Known(False)),
        (op("logical_or", in_range(), op("gt", ROW, const(0.0), dtype=BOOL)), Foreign()),
        (op("logical_or", op("logical_not", in_range()), in_range()), Known(True)),
        (keep(ROW, 0.0), Known(0.0)),
        (keep(ROW, 0.0, "tk"), Foreign()),
        (
            where(op("gt", ROW, const(0.0), dtype=BOOL), full(1.0, "tm"), full(1.0, "tm")),
            Known(1.0),
        ),
        (where(op("gt", ROW, const(0.0), dtype=BOOL), full(1.0, "tm"), full(2.0, "tm")), Foreign()),
        (where(op("gt", ROW, const(0.0), dtype=BOOL), full(1.0, "tm"), ROW), Foreign()),
        (op("expand_dims", keep(ROW, 0.0), shape=("tm", 1), axis=1), Known(0.0)),
        (op("transpose", keep(X, 0.0, "tk"), shape=("tk", "tm"), perm=(1, 0)), Foreign()),
        (op("broadcast", floats("x", 0), shape=("tm",)), Foreign()),
        (op("broadcast", const(1.0), shape=("tm",)), Known(1.0)),
        (op("concat", keep(ROW, 0.0), keep(ROW, 1.0), shape=("tm", 2), axis=1), Foreign()),
        (op("concat", keep(ROW, 1.0), keep(ROW, 1.0), shape=("tm", 2), axis=1), Known(1.0)),
        (Var("carried", ROW.type), Foreign()),
        (Var("carried", F32), Absent()),
        (op("step_index", full(1.0, "tm")), Foreign()),
    ],
    ids=str,
)
def test_pad_state(expr, state):
    assert pad_state(expr, "tm", {}) == state


def along_rows(x, fill):
    """x of shape (tm, tk) with the foreign rows filled."""
    mask = lane_mask("tm", 1)
    return where(mask, x, const(fill, x.type.dtype))


@pytest.mark.parametrize(
    ("name", "fill", "state"),
    [
        ("max", -math.inf, Known(-math.inf)),
        ("min", 3.0, Known(3.0)),
        ("sum", 0.0, Known(0.0)),
        ("sum", 1.0, Foreign()),
        ("argmax", 0.0, Foreign()),
    ],
)
def test_reduction_along_another_axis(name, fill, state):
    reduced = reduce(name, along_rows(X, fill), 1)
    assert pad_state(reduced, "tm", {}) == state


def test_reduction_along_the_axis_itself():
    assert pad_state(reduce("sum", along_rows(X, 0.0), 0), "tm", {}) == Absent()


def test_free_axis_of_a_product_is_foreign_unless_it_is_of_integers():
    """0 * NaN in the other operand reaches every row."""
    assert pad_state(dot(along_rows(X, 0.0), W), "tm", {}) == Foreign()
    whole = along_rows(load("x", "tm", "tk"), 0), load("w", "tk", "tn")
    assert pad_state(dot(*whole), "tm", {}) == Known(0)
    assert pad_state(dot(load("x", "tm", "tk"), whole[1]), "tm", {}) == Foreign()


def test_a_product_along_the_axis_is_not_what_its_lanes_hold():
    """Its operands hold 0 outside of the range, and it is the sum of what is inside."""
    rows, column = load("x", "tm", "tk"), load("w", "tk")
    product = dot(keep_last(rows), keep_last(column))
    assert pad_state(product, "tk", {}) == Absent()


def keep_last(x):
    return where(lane_mask("tk", 0), x, const(0, "int32"))


def test_names_have_the_state_of_their_definitions():
    known = {"a": full(1.0, "tm"), "b": op("add", Var("a", ROW.type), Var("a", ROW.type))}
    assert pad_state(Var("b", ROW.type), "tm", known) == Known(2.0)


def test_a_number_is_no_matter_of_lanes_that_are_left_out():
    """A load of one value holds what it holds; only lanes of a tile hold `other`."""
    number, tile_ = load("n"), load("x", "tm")
    wide = op("sub", tile_, number, shape=("tm",))
    total = reduce("sum", wide, 0)
    assert fills(reduce("sum", tile_, 0), {"tm"}, {}, masked_reads) == reduce("sum", tile_, 0)
    assert fills(total, {"tm"}, {}, masked_reads) != total


def test_long_chains_of_names_are_not_walked_twice():
    known = {"v0": full(0.0, "tm")}
    for k in range(200):
        known[f"v{k + 1}"] = op("add", Var(f"v{k}", ROW.type), Var(f"v{k}", ROW.type))
    assert pad_state(Var("v200", ROW.type), "tm", known) == Known(0.0)


# ---------------------------------------------------------------- needs


@pytest.mark.parametrize(
    ("name", "dtype", "fill"),
    [
        ("sum", "float32", 0.0),
        ("sum", "int32", 0),
        ("max", "float32", -math.inf),
        ("max", "int8", -128),
        ("max", "uint8", 0),
        ("min", "bfloat16", math.inf),
        ("min", "int32", 2**31 - 1),
        ("argmax", "float32", -math.inf),
        ("argmin", "int32", 2**31 - 1),
        ("any", "bool", False),
        ("all", "bool", True),
    ],
)
def test_neutral_fill(name, dtype, fill):
    found = needs(reduce(name, load("x", "tm", dtype=dtype), 0), {"tm"})
    assert found == (FillNeed(0, 0, "tm", fill),)
    assert type(found[0].fill) is type(fill)


def test_only_partial_axes_need_fills():
    assert needs(reduce("sum", X, 1), {"tm"}) == ()
    assert needs(reduce("sum", floats("x", Span(0, 4)), 0), {"tm"}) == ()
    assert needs(op("exp", X), {"tm", "tk"}) == ()


def test_products_need_both_operands():
    assert needs(dot(X, W), {"tm", "tk"}) == (FillNeed(0, 1, "tk", 0.0), FillNeed(1, 0, "tk", 0.0))


# ---------------------------------------------------------------- rewriting


def test_sum_over_a_partial_axis():
    assert fills(reduce("sum", ROW, 0), {"tm"}, {}) == reduce("sum", keep(ROW, 0.0), 0)


def test_mask_is_shaped_for_the_dimension():
    filled = fills(reduce("sum", X, 0), {"tm"}, {})
    assert filled.args[0].args[0] == lane_mask("tm", 1)
    assert lane_mask("tm", 1).type == Type(("tm", 1), "bool")
    assert lane_mask("tm", 2).type == Type(("tm", 1, 1), "bool")


def test_nothing_changes_without_partial_axes():
    expr = reduce("max", dot(X, W), 1)
    assert fills(expr, set(), {}) == expr


def test_what_holds_the_fill_already_is_left():
    for expr in (reduce("sum", keep(ROW, 0.0), 0), reduce("sum", full(0.0, "tm"), 0)):
        assert fills(expr, {"tm"}, {}) == expr


def test_another_fill_does_not_count():
    filled = fills(reduce("max", keep(ROW, 0.0), 0), {"tm"}, {})
    assert filled == reduce("max", keep(keep(ROW, 0.0), -math.inf), 0)


def test_a_select_with_the_same_fill_gets_one_more_condition():
    causal = op("gt", floats("s", "tm"), const(0.0), dtype=BOOL)
    both = op("logical_and", causal, in_range(), dtype=BOOL)
    masked = where(causal, ROW, const(-math.inf))
    expected = reduce("max", where(both, ROW, const(-math.inf)), 0)
    assert fills(reduce("max", masked, 0), {"tm"}, {}) == expected


def test_a_merged_condition_has_the_shape_of_both():
    column = op("gt", floats("s", "tk"), const(0.0), dtype=BOOL)
    masked = where(column, X, const(0.0))
    filled = fills(reduce("sum", masked, 0), {"tm"}, {})
    assert filled.args[0].args[0].type == Type(("tm", "tk"), "bool")


def test_filling_is_done_once():
    once = fills(reduce("sum", ROW, 0), {"tm"}, {})
    assert fills(once, {"tm"}, {}) == once


def test_names_are_masked_where_they_are_used():
    name = Var("p", X.type)
    filled = fills(dot(name, W), {"tk"}, {"p": op("exp", X)})
    assert filled.args[0] == where(lane_mask("tk", 0), name, const(0.0))
    assert (
        fills(dot(name, W), {"tk"}, {"p": where(lane_mask("tk", 0), X, const(0.0))}).args[0] == name
    )


def test_a_rounded_name_is_masked_before_it_is_rounded():
    """The sum and the product of softmax then share one mask, which stands where p is made."""
    name, weights = Var("p", X.type), load("w", "tk", "tn", dtype="bfloat16")
    rounded = op("cast", name, dtype="bfloat16")
    filled = fills(dot(rounded, weights), {"tk"}, {"p": op("exp", X)}).args[0]
    assert filled == op("cast", keep_columns(name), dtype="bfloat16")
    assert fills(filled, {"tk"}, {}) == filled
    assert pad_state(filled, "tk", {}) == Known(0.0)


def test_a_block_is_masked_before_it_is_transposed():
    rows = load("x", "tk", "tm", dtype="float32")
    turned = op("transpose", rows, shape=("tm", "tk"), perm=(1, 0))
    filled = fills(dot(turned, W), {"tk"}, {}).args[0]
    kept = where(lane_mask("tk", 1), rows, const(0.0))
    assert filled == op("transpose", kept, shape=("tm", "tk"), perm=(1, 0))
    assert fills(filled, {"tk"}, {}) == filled


def test_a_widened_integer_is_masked_after_it_is_widened():
    """Eight-bit integers have no select on a TPU."""
    name = Var("q", Type(X.type.shape, "int8"))
    wide = op("cast", name, dtype="float32")
    filled = fills(dot(wide, W), {"tk"}, {"q": load("x", "tm", "tk", dtype="int8")})
    assert filled.args[0] == keep_columns(wide)


def keep_columns(x):
    return where(lane_mask("tk", 0), x, const(0.0, x.type.dtype))


def test_operands_inside_of_operands():
    inner = reduce("sum", X, 1)
    filled = fills(reduce("max", inner, 0), {"tm", "tk"}, {})
    assert sum(isinstance(e, Apply) and e.op == "in_range" for e in walk(filled)) == 2


def test_reductions_in_loads_and_masks_are_filled():
    count = reduce("sum", ROWS_INT, 0)
    expr = floats("x", count)
    assert fills(expr, {"tm"}, {}).index[0].expr == reduce("sum", keep(ROWS_INT, 0), 0)


# ---------------------------------------------------------------- run on tiles full of NaN

LENGTH = {"tm": 4, "tk": 3}
VALID = {"tm": (1, 3), "tk": (0, 2)}
NUMBERS = (0.0, 0.0, -math.inf, 1.0, 3.0)


def garbage(dtype):
    return math.nan if is_float(dtype) else 1 if dtype == "bool" else 99


def evaluate(expr, data, valid, env):
    """The expression on whole blocks, whose foreign lanes hold garbage."""
    kind = to_numpy(expr.type.dtype)
    match expr:
        case Const(value):
            return np.asarray(value, kind)
        case Var(name):
            return env[name]
        case Load(tensor):
            return data[tensor]
        case Apply("in_range"):
            axis = expr.attr("axis")
            lanes = np.arange(LENGTH[axis])
            return (lanes >= valid[axis][0]) & (lanes < valid[axis][1])
        case Apply("full"):
            shape = tuple(sizes(expr.type.shape, valid))
            return np.full(shape, expr.attr("value"), kind)
        case Apply("cast"):
            return evaluate(expr.args[0], data, valid, env).astype(kind)
        case Apply():
            args = [evaluate(a, data, valid, env) for a in expr.args]
            if is_narrow(expr.args[0].type.dtype):
                args = [a.astype(np.float32) if a.dtype != bool else a for a in args]
            result = OPS[expr.op].reference(*args, **dict(expr.attrs))
            return np.asarray(result).astype(kind)


def sizes(shape, valid):
    for d in shape:
        yield d if isinstance(d, int) else LENGTH[d] if valid is VALID else valid[d]


def cut(array, shape, valid):
    """The valid lanes of a block."""
    lanes = tuple(slice(*valid[d]) if isinstance(d, str) else slice(None) for d in shape)
    return array[lanes]


@st.composite
def values(draw, shape, depth, dtype="float32"):
    """An expression of a shape over loads, constants, elementwise ops, reductions and products."""
    if depth == 0 or draw(st.integers(0, 4)) == 0:
        leaf = draw(st.sampled_from(["load", "load", "full"]))
        if leaf == "full":
            numbers = NUMBERS if is_float(dtype) else (0, 1, -5)
            return full(draw(st.sampled_from(numbers)), *shape, dtype=dtype)
        return load(f"{'_'.join(shape) or 'scalar'}_{dtype}", *shape, dtype=dtype)
    more = values(shape, depth - 1, dtype)
    choice = draw(
        st.sampled_from(["binary", "binary", "where", "unary", "reduce", "dot", "expand", "turn"])
    )
    if choice == "turn" and len(shape) == 2:
        turned = draw(values(shape[::-1], depth - 1, dtype))
        return op("transpose", turned, shape=shape, perm=(1, 0))
    if choice == "reduce" and len(shape) < 2:
        axis = draw(st.sampled_from([a for a in ("tm", "tk") if a not in shape]))
        dim = draw(st.integers(0, len(shape)))
        wide = draw(values((*shape[:dim], axis, *shape[dim:]), depth - 1, dtype))
        return reduce(draw(st.sampled_from(["sum", "max", "min"])), wide, dim)
    if choice == "dot" and len(shape) == 1:
        axis = "tk" if shape == ("tm",) else "tm"
        pair = (
            draw(values((*shape, axis), depth - 1, dtype)),
            draw(values((axis,), depth - 1, dtype)),
        )
        return dot(*pair)
    if choice == "expand" and shape == ("tm", "tk"):
        column = draw(values(("tm",), depth - 1, dtype))
        wide = op("expand_dims", column, shape=("tm", 1), axis=1)
        return op("add", draw(more), wide, shape=shape)
    if choice == "where":
        test = op("gt", draw(more), draw(more), shape=shape, dtype=BOOL)
        if draw(st.booleans()) and shape:
            test = op("logical_and", test, lane_mask(shape[-1], 0), shape=shape, dtype=BOOL)
        return op("where", test, draw(more), draw(more), shape=shape)
    if choice == "unary" and is_float(dtype):
        return op(draw(st.sampled_from(["abs", "neg", "relu", "floor"])), draw(more))
    name = draw(st.sampled_from(["add", "mul", "mul", "sub", "maximum", "minimum"]))
    return op(name, draw(more), draw(more), shape=shape)


@st.composite
def programs(draw):
    """Named values and an expression over them."""
    dtype = draw(st.sampled_from(["float32", "int32", "bfloat16"]))
    named = draw(values(("tm", "tk"), 2, dtype))
    shape = draw(st.sampled_from([(), ("tm",), ("tk",)]))
    body = draw(values(shape, 3, dtype))
    name = Var("named", named.type)
    if is_float(dtype) and draw(st.booleans()):  # rounded and widened again: small whole numbers
        name = op("cast", op("cast", name, dtype="bfloat16"), dtype=dtype)
    parts = [body]
    if shape == ("tm",):
        parts.append(reduce(draw(st.sampled_from(["sum", "max", "min"])), name, 1))
    if shape == ("tk",):
        parts.append(reduce(draw(st.sampled_from(["sum", "max", "min"])), name, 0))
    while len(parts) > 1:
        parts = [op("maximum", parts[0], parts[1], shape=shape), *parts[2:]]
    return dtype, named, parts[0]


def blocks(exprs, valid, seed, left_out=False):
    """Data for every load: small numbers where lanes are valid; garbage elsewhere, or `other`."""
    rng = np.random.default_rng(seed)
    found = {}
    for load_ in (e for x in exprs for e in walk(x) if isinstance(e, Load)):
        shape, dtype = load_.type.shape, load_.type.dtype
        size = tuple(LENGTH[d] for d in shape)
        outside = load_.other if left_out else garbage(dtype)
        data = np.full(size, outside, to_numpy(dtype))
        lanes = tuple(slice(*valid[d]) for d in shape)
        data[lanes] = rng.integers(-2, 4, data[lanes].shape)
        found.setdefault(load_.tensor, data)
    return found


@settings(max_examples=400, deadline=None)
@given(programs(), st.integers(0, 2**16), st.sampled_from([unknown, masked_reads]))
def test_foreign_lanes_never_reach_valid_ones(program, seed, reads):
    """Whole blocks after `fills` agree, where lanes are valid, with exact tiles before it."""
    _, named, expr = program
    data = blocks((named, expr), VALID, seed, reads is masked_reads)
    known = {"named": named}
    exact = {axis: (0, b - a) for axis, (a, b) in VALID.items()}
    tiles = {
        name: cut(block, shape, VALID)
        for name, block in data.items()
        for shape in [
            next(
                e.type.shape
                for x in (named, expr)
                for e in walk(x)
                if isinstance(e, Load) and e.tensor == name
            )
        ]
    }
    with np.errstate(all="ignore"):
        whole = fills(named, {"tm", "tk"}, known, reads)
        env = {"named": evaluate(whole, data, VALID, {})}
        got = evaluate(fills(expr, {"tm", "tk"}, known, reads), data, VALID, env)
        small = {"named": on_tiles(named, tiles, exact, {})}
        want = on_tiles(expr, tiles, exact, small)
    found = cut(got, expr.type.shape, VALID).astype(np.float64)
    np.testing.assert_array_equal(found, want.astype(np.float64))
    for axis in ("tm", "tk"):
        check_state(pad_state(whole, axis, {}), env["named"], named.type.shape, axis)
        check_state(pad_state(named, axis, {}), env["named"], named.type.shape, axis)


def on_tiles(expr, tiles, exact, env):
    """The expression on tiles that are exactly the valid positions."""
    lengths = {axis: high for axis, (_, high) in exact.items()}
    ones = {axis: np.ones(n, bool) for axis, n in lengths.items()}

    def visit(e):
        match e:
            case Apply("in_range"):
                return ones[e.attr("axis")]
            case Apply("full"):
                shape = tuple(d if isinstance(d, int) else lengths[d] for d in e.type.shape)
                return np.full(shape, e.attr("value"), to_numpy(e.type.dtype))
            case Apply("cast"):
                return visit(e.args[0]).astype(to_numpy(e.type.dtype))
            case Apply():
                args = [visit(a) for a in e.args]
                if is_narrow(e.args[0].type.dtype):
                    args = [a.astype(np.float32) if a.dtype != bool else a for a in args]
                result = OPS[e.op].reference(*args, **dict(e.attrs))
                return np.asarray(result).astype(to_numpy(e.type.dtype))
            case _:
                return evaluate(e, tiles, exact, env)

    return visit(expr)


def check_state(state, block, shape, axis):
    """A known pad state is what the foreign lanes hold."""
    if isinstance(state, Known):
        low, high = VALID[axis]
        dim = shape.index(axis)
        lanes = [n for n in range(LENGTH[axis]) if not low <= n < high]
        held = np.take(block, lanes, dim)
        other = next(d for d in shape if d != axis)
        held = np.take(held, range(*VALID[other]), shape.index(other))
        assert np.all(held.astype(np.float64) == state.value)
