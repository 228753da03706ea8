"""Functions that a module has besides its kernels: sums and moves of rows, tables, parts."""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.codegen.pallas.plan.physical import (
    Diagonals,
    GroupSum,
    Inner,
    LaneGather,
    MovedRows,
    RowsFrom,
    flat,
    parts_of,
)
from tilelang.codegen.pallas.plan.types import LANES, ROWS, SIDE, Plan

SPANS = '''\
def spans_of(offsets: jax.Array, size: int) -> jax.Array:
    """Where blocks of `size` ranges [offsets[g], offsets[g + 1]) begin, then where they end.

    Of a block without rows, where its rows would be: its step stays there.  Few blocks look at all
    ranges, each at its own: to lay them out anew takes longer.
    """
    begin, end = offsets[:-1], offsets[1:]
    count, most = len(begin), jnp.iinfo(begin.dtype).max
    live, own = end > begin, jnp.arange(-(-count // size))[:, None] == jnp.arange(count) // size

    def each(values: jax.Array, other: int) -> jax.Array:
        if count <= 128 * size:
            return jnp.where(own, values, other)
        return jnp.pad(values, (0, -count % size), constant_values=other).reshape(-1, size)

    first = each(jnp.where(live, begin, most), most).min(axis=1)
    stop = each(jnp.where(live, end, 0), 0).max(axis=1)
    first = jnp.where(first < stop, first, each(begin, most).min(axis=1))
    return jnp.concatenate([first, stop])'''
SUMS = '''\
def group_sums(member: jax.Array, rows: jax.Array) -> jax.Array:
    """The sums of the rows of groups, by a product: member[g, r] says whether row r is of group g.

    0 * NaN is NaN: what is not finite is left out then, and put back where it belongs.
    """
    member = member.astype(jnp.bfloat16)

    def product(values: jax.Array) -> jax.Array:
        return jnp.dot(member, values.astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    def upper(values: jax.Array) -> jax.Array:  # the part of float32 that bfloat16 holds
        bits = jax.lax.bitcast_convert_type(values, jnp.int32) & -65536
        return jax.lax.bitcast_convert_type(bits, jnp.float32)

    def exact(values: jax.Array) -> jax.Array:
        if values.dtype == jnp.bfloat16:
            return product(values)
        high = upper(values)
        middle = upper(values - high)
        return product(values - high - middle) + product(middle) + product(high)

    def apart() -> jax.Array:
        values = rows.astype(jnp.float32)
        up, down = (product(~over) > 0.0 for over in (values < jnp.inf, values > -jnp.inf))
        finite = jnp.where(jnp.abs(values) < jnp.inf, values, 0.0).astype(rows.dtype)
        return exact(finite) + jnp.where(up, jnp.inf, 0.0) - jnp.where(down, jnp.inf, 0.0)

    sums = exact(rows)
    return jax.lax.cond(jnp.isnan(jnp.sum(sums * 0.0)), apart, lambda: sums)'''

ONCE = '''\
def turned_once(stop, turn, before):
    """What a loop hands on that turns once, if it turns at all."""
    after = turn(0, before)
    return jax.tree.map(lambda new, old: jnp.where(stop > 0, new, old), after, before)'''

TURNS = '''\
def turned_in_rows(first, stop, turn, carried, count: int):
    """What a loop hands on, `count` turns of which are written in a row; those left go alone."""
    rows = jax.lax.div(jnp.maximum(stop - first, 0), count)

    def row(n, carried):
        def each(k, carried):
            return turn(first + n * count + k, carried)

        return jax.lax.fori_loop(0, count, each, carried, unroll=True)

    carried = jax.lax.fori_loop(0, rows, row, carried)
    return jax.lax.fori_loop(first + rows * count, stop, turn, carried)'''

MOVE = '''\
def move_rows(source, target, held, by, first, stop, some: int) -> None:
    """target[r] = source[r + by] for first <= r < stop; no other row of it changes.

    `some` rows are moved at a time.  A block is read from whole register tiles on: they go to
    `held`, of which a row is 32 bits of 128 columns, and any one can be the first that is read.
    """
    each = 4 // source.dtype.itemsize  # rows in 32 bits
    tile, near = 8 * each, min(some + 8 * each, source.shape[0])
    begin = jax.lax.div(first, tile)

    def move_some(n, _):
        row = tile * jnp.minimum(begin + n * (some // tile), (target.shape[0] - some) // tile)
        there = jnp.maximum(row + by, 0)
        there = tile * jnp.minimum(jax.lax.div(there, tile), (source.shape[0] - near) // tile)
        far = jnp.clip(row + by - there + some, 0, some + near)  # `some` rows lie before those
        index = row + jax.lax.broadcasted_iota(jnp.int32, (some, 1), 0)
        mask = (index >= first) & (index < stop)
        for part in range(held.shape[0]):
            columns = slice(128 * part, min(128 * part + 128, target.shape[1]))
            width = columns.stop - columns.start
            rows = pltpu.bitcast(source[pl.ds(there, near), columns], jnp.int32)
            held[part, some // each : (some + near) // each, :width] = rows
            rows = held[part, pl.ds(jax.lax.div(far, each), some // each), :width]
            if each > 1:
                bits = jnp.full_like(rows, jax.lax.rem(far, each) * (32 // each))
                after = held[part, pl.ds(jax.lax.div(far, each) + 1, some // each), :width]
                after = jax.lax.shift_left(after, 32 - bits)
                after |= jax.lax.shift_right_logical(rows, bits)
                rows = jnp.where(bits == 0, rows, after)
            rows = pltpu.bitcast(rows, target.dtype)
            place = pl.ds(row, some), columns
            target[place] = jnp.where(mask, rows, target[place])
        return 0

    count = jax.lax.div(stop - begin * tile + some - 1, some)
    move_some(0, 0)  # most groups are short: no loop for those
    jax.lax.fori_loop(1, count, move_some, 0)'''


DIAGONALS = f'''\
def diagonals(line: jax.Array, first: jax.Array, shape: tuple[int, int]) -> jax.Array:
    """[i, j] is `line[0, first + j - i]`; behind an end, where there are {SIDE} copies of it, that.

    Each row is the one above it, turned by a lane: {ROWS} rows and {LANES} lanes at a time.
    """
    rows, columns = shape
    found = []
    for row in range(0, rows, {ROWS}):
        beside, height = [], min({ROWS}, rows - row)
        for column in range(0, columns, {LANES}):
            width = min({LANES}, columns - column)
            wide = -(-(height + width) // 128) * 128
            begin = jnp.clip(first + column - row - height + 1, 1, line.shape[1] - wide)
            near = pltpu.roll(line, line.shape[1] - begin, 1)[:, :wide]
            tall = jnp.broadcast_to(near, (-(-height // 8) * 8, wide))
            turned = pltpu.roll(tall, (wide - height + 1) % wide, 1, stride=1, stride_axis=0)
            beside.append(turned[:height, :width])
        found.append(jnp.concatenate(beside, 1))
    return jnp.concatenate(found, 0)'''


LANE_GATHER = '''\
def lane_gather(table: jax.Array, place: jax.Array) -> jax.Array:
    """[i, j] is `table[0, place[i, j]]`; behind an end, the number there.

    Each lane of a register reads a lane of another one: one of 128 numbers at once.
    """
    place = jnp.clip(place, 0, table.shape[1] - 1)
    rows, columns = max(place.shape[0], 2), place.shape[1]
    found = []
    for column in range(0, columns, 128):
        at = place[:, column : column + 128]
        at = jnp.broadcast_to(at, (rows, at.shape[1]))
        for first in range(0, table.shape[1], 128):
            numbers = table[:, first : first + 128]
            numbers = jnp.broadcast_to(numbers, (rows, numbers.shape[1]))
            near = jnp.take_along_axis(numbers, at & 127, 1, mode="promise_in_bounds")
            picked = near if first == 0 else jnp.where(at >= first, near, picked)
        found.append(picked)
    return jnp.concatenate(found, 1)[: place.shape[0]]'''


CUT = '''\
def rows_from(source, held, start, rows: int):
    """`rows` rows of a block from row `start` on, which may be any one, and lie outside of it.

    What those hold that the block does not have is anything.  All go through `held`, of which a row
    is 32 bits of 128 columns, and any one can be the first that is read.
    """
    each = 4 // source.dtype.itemsize  # rows in 32 bits
    far = start + rows  # `rows` rows lie before those of the block
    found = []
    for part in range(held.shape[0]):
        columns = slice(128 * part, min(128 * part + 128, source.shape[1]))
        width = columns.stop - columns.start
        block = pltpu.bitcast(source[:, columns], jnp.int32)
        held[part, rows // each : (rows + source.shape[0]) // each, :width] = block
    for part in range(held.shape[0]):
        width = min(128, source.shape[1] - 128 * part)
        words = held[part, pl.ds(jax.lax.div(far, each), rows // each), :width]
        if each > 1:
            bits = jnp.full_like(words, jax.lax.rem(far, each) * (32 // each))
            after = held[part, pl.ds(jax.lax.div(far, each) + 1, rows // each), :width]
            after = jax.lax.shift_left(after, 32 - bits)
            after |= jax.lax.shift_right_logical(words, bits)
            words = jnp.where(bits == 0, words, after)
        found.append(pltpu.bitcast(words, source.dtype))
    return jnp.concatenate(found, 1) if len(found) > 1 else found[0]'''


def called_by(plan: Plan) -> Iterator[str]:
    """Those that the text of a plan calls."""
    if any(t.view is not None and t.view.how == "spans" for t in plan.ir.tensors):
        yield SPANS
    stmts = [s for launch in plan.launches for section in launch.sections for s in section.body]
    parts = [e for stmt in stmts for e in parts_of(stmt)]
    if any(isinstance(e, GroupSum) for e in parts):
        yield SUMS
    if any(isinstance(e, MovedRows) for e in parts):
        yield MOVE
    if any(isinstance(e, RowsFrom) for e in parts):
        yield CUT
    if any(isinstance(e, Diagonals) for e in parts):
        yield DIAGONALS
    if any(isinstance(e, LaneGather) for e in parts):
        yield LANE_GATHER
    if any(isinstance(s, Inner) and s.unroll > 1 and not s.counted for s in flat(stmts)):
        yield TURNS
    short = (s for a in plan.launches if a.beside for s in a.beside.body if isinstance(s, Inner))
    if any(loop.carries for loop in short):
        yield ONCE
