"""The kernels whose facts the tests state."""

from __future__ import annotations

from tilelang.ir import Along, Const, Gather, Span, Tensor, Type, View

from .build import (
    F32,
    INT,
    LOC,
    OFFSETS,
    Draft,
    add,
    begin,
    carry,
    end,
    floats,
    g,
    h,
    let,
    load,
    mul,
    op,
    store,
    sub,
    var,
)

BLOCK = Type(("tm", "tn"), "float32")
ZERO = Const(0.0, F32)


def grouped_gemm():
    d = Draft(x=(64, 32), w=(4, 32, 48), offsets=(5,), y=(64, 48))
    operands = floats("x", "tm", "tk"), floats("w", g, "tk", "tn")
    dot = op("dot", *operands, shape=BLOCK.shape, contract=(1, 0), batch=((), ()))
    inner = d.tile(
        "tk",
        0,
        32,
        let("total", add(var("acc", BLOCK), dot)),
        carries=[carry("acc", ZERO, var("total", BLOCK))],
    )
    after = store("y", "tm", "tn", value=var("acc_out", BLOCK))
    return d.kernel(d.grid("g", 0, 4, d.tile("tm", *OFFSETS, d.tile("tn", 0, 48, inner, after))))


def jagged_attention():
    d = Draft(q=(64, 4, 32), k=(64, 4, 32), offsets=(5,), y=(64, 4, 32))
    last = op("maximum", var("m"), op("max", floats("k", "tk", h, Span(0, 32)), shape=()))
    kv = d.tile(
        "tk",
        OFFSETS[0],
        op("minimum", OFFSETS[1], end("tq")),
        let("m_new", last),
        let("l_new", add(mul(var("l"), op("exp", sub(var("m"), var("m_new")))), var("m_new"))),
        let("acc_new", add(mul(var("acc"), var("m_new")), var("l_new"))),
        carries=[
            carry("m", ZERO, var("m_new")),
            carry("l", ZERO, var("l_new")),
            carry("acc", ZERO, var("acc_new")),
        ],
    )
    rows = d.tile("tq", *OFFSETS, kv, store("y", "tq", h, Span(0, 32)))
    return d.kernel(d.grid("g", 0, 4, d.grid("h", 0, 4, rows)))


def separate_ranges():
    d = Draft(starts=(4,), ends=(4,), y=(64, 48))
    rows = d.tile("tm", load("starts", g), load("ends", g), store("y", "tm", Span(0, 48)))
    return d.kernel(d.grid("g", 0, 4, rows))


def shifted():
    d = Draft(offsets=(5,), x=(64, 48), y=(64, 48))
    start = var("start", INT)
    rows = Along("tm", start)
    value = floats("x", rows, Span(0, 48))
    return d.kernel(
        d.grid(
            "g",
            0,
            4,
            let("start", OFFSETS[0]),
            let("length", sub(OFFSETS[1], start)),
            d.tile("tm", 0, var("length", INT), store("y", rows, Span(0, 48), value=value)),
        )
    )


def fixed_ranges():
    d = Draft(y=(64, 48))
    rows = d.tile("tm", mul(g, 16), add(mul(g, 16), 16), store("y", "tm", Span(0, 48)))
    return d.kernel(d.grid("g", 0, 4, rows))


def flattened_heads():
    d = Draft(y=(8, 4, 48))
    place = op("floordiv", g, 4), op("mod", g, 4)
    return d.kernel(d.grid("g", 0, 32, d.tile("tn", 0, 48, store("y", *place, "tn"))))


def scatter():
    d = Draft(idx=(64,), y=(64, 48))
    rows = load("idx", "tm")
    picked = var("rows", rows)
    body = (let("rows", rows), store("y", Gather(picked), Span(0, 48)))
    return d.kernel(d.tile("tm", 0, 64, *body))


def permuted_rows():
    d = Draft(perm=(64,), y=(64, 48))
    return d.kernel(d.grid("g", 0, 64, store("y", load("perm", g), Span(0, 48))))


def permuted_groups():
    d = Draft(perm=(4,), offsets=(5,), y=(64, 48))
    group = var("e", INT)
    bounds = load("offsets", group), load("offsets", add(group, 1))
    rows = d.tile("tm", *bounds, store("y", "tm", Span(0, 48)))
    return d.kernel(d.grid("g", 0, 4, let("e", load("perm", g)), rows))


def narrowed():
    d = Draft(offsets=(5,), n=(1,), y=(64, 48))
    bounds = op("maximum", OFFSETS[0], 3), op("minimum", OFFSETS[1], load("n", 0))
    return d.kernel(d.grid("g", 0, 4, d.tile("tm", *bounds, store("y", "tm", Span(0, 48)))))


def conditional_range():
    d = Draft(offsets=(5,), n=(4,), y=(64, 48))
    busy = op("gt", load("n", g), 0, dtype="bool")
    last = op("where", busy, OFFSETS[1], OFFSETS[0])
    rows = d.tile("tm", OFFSETS[0], last, store("y", "tm", Span(0, 48)))
    return d.kernel(d.grid("g", 0, 4, rows))


def jagged_sum():
    d = Draft(x=(64, 48), offsets=(5,), y=(4, 48))
    kind = Type(("tf",), "float32")
    part = op("sum", floats("x", "tm", "tf"), shape=("tf",), axis=0, keepdim=False)
    body = let("total", add(var("acc", kind), part))
    rows = d.tile("tm", *OFFSETS, body, carries=[carry("acc", ZERO, var("total", kind))])
    after = store("y", g, "tf", value=var("acc_out", kind))
    return d.kernel(d.grid("g", 0, 4, d.tile("tf", 0, 48, rows, after)))


def three_levels():
    d = Draft(splits=(3,), offsets=(9,), y=(64, 48))
    groups = load("splits", h), load("splits", add(h, 1))
    rows = d.tile("tm", *OFFSETS, store("y", "tm", Span(0, 48)))
    return d.kernel(d.grid("h", 0, 2, d.grid("g", *groups, rows)))


def sliding_window():
    d = Draft(offsets=(5,), k=(64, 48), y=(64, 48))
    first = op("maximum", OFFSETS[0], sub(begin("tq"), 8))
    last = op("minimum", OFFSETS[1], end("tq"))
    kind = Type(("tq",), "float32")
    kv = d.tile(
        "tk",
        first,
        last,
        let("total", add(var("acc", kind), op("sum", floats("k", "tk", 0), shape=()))),
        carries=[carry("acc", ZERO, var("total", kind))],
    )
    rows = d.tile("tq", *OFFSETS, kv, store("y", "tq", 0, value=var("acc_out", kind)))
    return d.kernel(d.grid("g", 0, 4, rows))


def permuted_view():
    """z is y transposed; the kernel stores to both."""
    d = Draft(y=(64, 64))
    d.tensors.append(
        Tensor("z", (64, 64), "float32", "view", LOC, view=View("y", "permute", (1, 0)))
    )
    return d


def increment():
    d = Draft(y=(64, 48))
    value = add(floats("y", "tm", Span(0, 48)), Const(1.0, F32))
    return d.kernel(d.tile("tm", 0, 64, store("y", "tm", Span(0, 48), value=value)))


def neighbour(distance):
    """y[t] = y[t + distance]"""
    d = Draft(y=(64,))
    value = floats("y", Along("tm", Const(distance, INT)))
    return d.kernel(d.tile("tm", 0, 60, store("y", "tm", value=value)))
