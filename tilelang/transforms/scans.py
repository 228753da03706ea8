"""scans(graph, axis, ...) -> what iterations meet of the carries that they read, as scans.

state = decay * state + f;  o[c] = q[c] @ state        %2 = scan %1, decay over c   o[c] = q[c] @ %2

Its adjoint runs the other way: what arrives at the states after an iteration arrives in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..ir import At, Axis, Const, Expr, GridIndex, Load, TileScalar, Var
from ..language.build import binary, cast
from ..language.dtypes import is_float
from ..language.shapes import broadcast, full
from .graph import AxisRange, Graph, Scan
from .linear import Linear, linear

LONGEST = 64  # positions of a tile, where the author leaves it open


def scans(
    graph: Graph,
    axis: str,
    carried: Sequence[Var],
    first: Sequence[Expr],
    after: Sequence[Expr],
    read: Sequence[Expr],
) -> dict[str, Expr]:
    """By name; of those alone that are scaled, or that `read` or another carry is computed from."""
    names = frozenset(c.name for c in carried)
    made: dict[str, Expr] = {}
    while True:
        found: dict[str, Expr] = {}
        for place, carry in enumerate(carried):
            new = graph.replaced(after[place], made)
            known = None if carry.name in made else linear(graph, new, carry)
            if known is None or any(graph.uses(p, names) for p in known.parts):
                continue
            others = (e for n, e in enumerate(after) if n != place)
            seen = any(graph.uses(e, (carry.name,)) for e in (*read, *others))
            if seen or known.factor is not None:
                found[carry.name] = graph.named(_scan(graph, axis, carry, first[place], known))
        if not found:
            return made
        made |= found


def _scan(graph: Graph, axis: str, carry: Var, first: Expr, known: Linear) -> Scan:
    shape, dtype = carry.type.shape, carry.type.dtype
    loc = getattr(graph.term(known.parts[-1]), "loc", None) if known.parts else None
    rest = full(shape, 0.0, dtype, loc) if known.rest is None else broadcast(known.rest, shape, loc)
    return Scan(axis, graph.add(rest), known.factor, first, carry.type, loc=loc)


def reversed_scan(graph: Graph, scan: Scan, adjoint: Expr) -> tuple[Expr, Expr]:
    """The adjoints of what each iteration adds, and of what the loop began with."""
    kind = replace(scan.type, dtype="float32")
    zero = graph.add(full(kind.shape, 0.0, "float32", scan.loc))
    value, first = (zero, adjoint) if scan.whole else (adjoint, zero)
    factor = None if scan.factor is None else graph.add(wide(scan.factor))
    back = Scan(scan.axis, value, factor, first, kind, back=not scan.back, loc=scan.loc)
    own = graph.named(scan)
    hint = graph.hints.get(own.name, "") if isinstance(own, Var) else ""
    return graph.named(back, hint), graph.named(replace(back, whole=True), hint)


def of_factor(graph: Graph, scan: Scan, arriving: Expr) -> Expr:
    """The adjoint of the factor of every iteration."""
    before = graph.named(replace(scan, whole=False))
    return graph.add(binary("mul", arriving, graph.add(wide(before)), scan.loc))


def wide(expr: Expr) -> Expr:
    """In float32, if it is a float."""
    return cast(expr, "float32", None) if is_float(expr.type.dtype) else expr


# ---------------------------------------------------------------- tiles by their numbers


def number_tiles(graph: Graph, tiles: str, name: str) -> None:
    """A loop over the numbers of an axis's tiles, which have a fixed length from here on."""
    known = graph.ranges[tiles]
    axis = known.axis
    if axis.fixed is None:
        most = LONGEST if known.extent is None else known.extent
        if axis.static is not None:
            most = axis.static[1] - axis.static[0]
        block = min(LONGEST, 1 << max(most - 1, 7).bit_length())
        known = replace(known, axis=replace(axis, block=block))
        graph.set_range(tiles, known)
    length = known.axis.fixed
    assert length is not None
    first = graph.add(binary("floordiv", known.begin, length, axis.loc))
    more = graph.add(binary("add", known.end, length - 1, axis.loc))
    last = graph.add(binary("floordiv", more, length, axis.loc))
    count = None if known.extent is None else -(-known.extent // length) + 1
    own = Axis(name, "grid", first, last, count, None, axis.loc, name)
    graph.set_range(name, AxisRange(own, first, last, (), count))


def number_of(graph: Graph, tiles: str) -> At:
    """The number of a tile: of its range if that begins at 0, or of the positions that it is in.

    One range has no two of a number, whether tiles are cut from its begin on or at multiples of
    their length: tile.begin // 64.
    """
    known = graph.ranges[tiles]
    if known.begin == Const(0, known.begin.type):
        return At(TileScalar(tiles, "id"))
    begin = TileScalar(tiles, "begin")
    return At(graph.add(binary("floordiv", begin, known.axis.fixed or 1, known.axis.loc)))


def numbered(graph: Graph, load: Expr, tiles: str, name: str, back: bool = False) -> Expr:
    """A load at the index of the loop over numbers rather than in each tile; `back`: in each."""
    term = graph.term(load)
    assert isinstance(term, Load)
    places = number_of(graph, tiles), At(GridIndex(name))
    old, new = reversed(places) if back else places
    return graph.add(replace(term, index=tuple(new if i == old else i for i in term.index)))
