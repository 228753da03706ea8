"""Random loop nests: whatever analysis claims of them holds when they are run on numbers."""

from __future__ import annotations

from collections import defaultdict

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.analysis.build import Draft, add, begin, end, floats, load, mul, op, store, sub
from tests.analysis.run import OutOfRange, trace
from tilelang.analysis import analyze
from tilelang.ir import Along, Const, GridIndex, Span, TileScalar, Type

ROWS, COLUMNS = 12, 6
INT = Type((), "int32")
small = st.integers(0, 4)


@st.composite
def indices(draw, grids):
    """A scalar made of grid indices."""
    if not grids or draw(st.integers(0, 5)) == 0:
        return Const(draw(small), INT)
    first = GridIndex(draw(st.sampled_from(grids)))
    second = GridIndex(draw(st.sampled_from(grids)))
    k = draw(st.integers(1, 4))
    return draw(
        st.sampled_from(
            [
                first,
                first,
                add(first, k),
                sub(k, first),
                add(mul(first, k), second),
                op("floordiv", first, k),
                op("mod", first, k),
                add(mul(first, k), op("mod", second, k)),
                load("perm", first),
            ]
        )
    )


@st.composite
def bounds(draw, grids, tiles):
    """begin and end of a loop inside of the loops given."""
    low = draw(small)
    choices = [(Const(0, INT), Const(draw(small), INT)), (Const(low, INT), Const(low + 2, INT))]
    if grids:
        e = GridIndex(draw(st.sampled_from(grids)))
        k = draw(st.integers(1, 3))
        ragged = load("offsets", e), load("offsets", add(e, 1))
        choices += [
            ragged,
            ragged,
            (Const(0, INT), sub(ragged[1], ragged[0])),
            (load("starts", e), load("ends", e)),
            (mul(e, k), add(mul(e, k), draw(st.integers(1, 3)))),
            (op("maximum", ragged[0], 2), op("minimum", ragged[1], 7)),
            (ragged[0], op("where", op("gt", e, 1, dtype="bool"), ragged[1], ragged[0])),
            (ragged[0], add(ragged[1], draw(st.integers(0, 1)))),
            (ragged[0], load("offsets", add(e, 2))),
            (Const(0, INT), op("minimum", load("perm", e), load("perm", add(e, 1)))),
            (load("perm", e), add(load("perm", e), 2)),
        ]
    if grids and tiles:
        choices.append((ragged[0], op("minimum", ragged[1], end(tiles[-1]))))
        choices.append((op("maximum", ragged[0], sub(begin(tiles[-1]), 2)), ragged[1]))
    if tiles:
        choices.append((begin(tiles[-1]), end(tiles[-1])))
    return draw(st.sampled_from(choices))


@st.composite
def entries(draw, grids, tiles, size):
    if tiles and draw(st.booleans()):
        axis = draw(st.sampled_from(tiles))
        shift = draw(indices(grids))
        moves = [None, None, shift]
        moves += [load("offsets", GridIndex(g)) for g in grids]
        index = Along(axis, draw(st.sampled_from(moves)))
        edge = TileScalar(axis, draw(st.sampled_from(["begin", "end", "id"])))
        return draw(st.sampled_from([index, index, index, edge]))
    if draw(st.integers(0, 3)) == 0:
        return draw(st.sampled_from([Span(0, size), Span(0, 2), Span(2, 4)]))
    return draw(indices(grids))


@st.composite
def stores(draw, grids, tiles):
    where = [draw(entries(grids, tiles, size)) for size in (ROWS, COLUMNS)]
    value = None
    if draw(st.integers(0, 3)) == 0:
        value = floats("y", *(draw(entries(grids, tiles, size)) for size in (ROWS, COLUMNS)))
        if draw(st.booleans()):
            value = floats("y", *where)
    return store("y", *where, value=value)


@st.composite
def nests(draw, d, depth, grids=(), tiles=()):
    name = f"a{depth}{draw(st.integers(0, 10**6))}"
    kind = draw(st.sampled_from(["grid", "tile"]))
    edges = draw(bounds(grids, tiles))
    inside = ((*grids, name), tiles) if kind == "grid" else (grids, (*tiles, name))
    body = [draw(stores(*inside)) for _ in range(draw(st.integers(0 if depth else 1, 2)))]
    if depth:
        place = draw(st.integers(0, len(body)))
        body.insert(place, draw(nests(d, depth - 1, *inside)))
    return getattr(d, kind)(name, *edges, *body)


@st.composite
def kernels(draw):
    d = Draft(y=(ROWS, COLUMNS), offsets=(9,), starts=(9,), ends=(9,), perm=(9,))
    return d.kernel(draw(nests(d, draw(st.integers(0, 2)))))


@st.composite
def tables(draw):
    values = st.lists(st.integers(0, ROWS), min_size=9, max_size=9)
    starts = draw(values)
    return {
        "offsets": sorted(draw(values)),
        "starts": starts,
        "ends": [s + draw(small) for s in starts],
        "perm": draw(values),
    }


@settings(max_examples=200, deadline=None)
@given(kernels(), tables(), st.integers(1, 3))
def test_what_is_claimed_holds(ir, data, block):
    try:
        ran = trace(ir, data, block)
    except OutOfRange:
        assume(False)
        return
    facts = analyze(ir)
    for fact in facts.axes:
        if fact.kind == "parallel":
            assert not conflicts(ran, fact.name, fact.independent), fact.why
        if fact.nonempty:
            assert all(first < last for _, first, last in ran.runs.get(fact.name, ()))
        for outer in fact.rises:
            check_rises(ir, fact.name, outer, ran)
    output = facts.output("y")
    written = {t.element for t in ran.touches if t.writes}
    if output.covered:
        assert len(written) == ROWS * COLUMNS


def conflicts(ran, axis, anywhere):
    """Elements stored in one iteration of an axis and touched in another.

    Iterations of the loops around are the same, unless `anywhere`.
    """
    seen = defaultdict(set)
    stored = set()
    for touch in ran.touches:
        names = [name for name, _ in touch.at]
        if axis not in names:
            continue
        depth = names.index(axis)
        around = () if anywhere else touch.at[:depth]
        seen[touch.tensor, touch.element, around].add(touch.at[depth])
        if touch.writes:
            stored.add((touch.tensor, touch.element, around))
    return [key for key in stored if len(seen[key]) > 1]


def check_rises(ir, axis, over, ran):
    """A range lies behind those of earlier iterations of one axis around."""
    runs = [r for r in ran.runs.get(axis, ()) if r[1] < r[2]]
    accesses = [a for loop in _loops(ir.body) for s in loop.body for a in (s, value_of(s))]
    plain = all(
        entry.offset is None
        for access in accesses
        for entry in getattr(access, "index", ())
        if isinstance(entry, Along) and entry.axis == axis
    )
    if not plain:
        return  # positions are those in the tensor: the stores are checked instead
    outer = list(dict(runs[0][0])) if runs else []
    for where, _, last in runs:
        for other, first, _ in runs:
            same = all(where[o] == other[o] for o in outer[: outer.index(over)])
            if same and where[over] < other[over]:
                assert last <= first


def value_of(stmt):
    return getattr(stmt, "value", None)


def _loops(body):
    for stmt in body:
        if hasattr(stmt, "body"):
            yield stmt
            yield from _loops(stmt.body)
