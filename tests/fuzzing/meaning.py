"""evaluate(program, arguments) -> Evaluated: a random program in float64, element by element.

Written from the description of `program.py` alone: it shares nothing with the compiler.  Tile loops
run once, over their whole range, or in tiles of `block`: a program whose results then differ has no
meaning, and the compiler must refuse it.  IndexError: something outside of an array is read or
written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import ml_dtypes
import numpy as np

from tests.fuzzing.program import (
    Binary,
    Chosen,
    Dot,
    Even,
    If,
    Joined,
    Let,
    Load,
    Looked,
    Loop,
    Mask,
    Masked,
    Mixed,
    Native,
    Number,
    Pick,
    Position,
    Program,
    Reduce,
    Ref,
    Scalar,
    Seen,
    Statement,
    Store,
    Swap,
    Term,
    TileNumber,
    Unary,
    Update,
    Value,
    Where,
    Whole,
    held,
    parts,
    tile_of,
)

Array = np.ndarray
UNARY = {
    "tanh": np.tanh,
    "abs": np.abs,
    "neg": np.negative,
    "relu": lambda x: np.maximum(x, 0),
    "exp": np.exp,
    "log": np.log,
    "kept": lambda x: np.where(x > 0, x, 1.0),
}
DETACHED = ("detached", "cut off", "stopped")
BINARY = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "max": np.maximum}
COMPARED = {"<": np.less, "<=": np.less_equal, ">": np.greater, ">=": np.greater_equal}
COMPARED |= {"==": np.equal}
UPDATED = {"max": np.maximum, "scale": np.multiply, "set": lambda old, new: new}
UPDATED |= {"turn": lambda old, new: new - old}
UPDATED |= {"blend": lambda old, new: old + 0.5 * (new - old)}
COMBINED = {"sum": np.add, "max": np.maximum}
WHOLE = {
    "//": np.floor_divide,
    "%": np.mod,
    "&": np.bitwise_and,
    "|": np.bitwise_or,
    "^": np.bitwise_xor,
    "<<": np.left_shift,
    ">>": np.right_shift,
    "where": lambda x, by: np.where(x < by, x * 2, by),
}
MIXED: dict[str, Callable[[Array], Array]] = {
    "upto": lambda apart: apart >= 0,
    "below": lambda apart: apart > 0,
    "after": lambda apart: apart <= 0,
    "distance": lambda apart: np.exp(apart * apart / -16),
}
REDUCE = {
    "sum": np.sum,
    "max": np.max,
    "min": np.min,
    "mean": np.mean,
    "var": np.var,
    "argmax": np.argmax,
}


@dataclass(frozen=True)
class Evaluated:
    """results  output -> values, NaN where they are unspecified
    read     argument -> which elements were read
    """

    results: Mapping[str, Array]
    read: Mapping[str, Array]


@dataclass(frozen=True)
class Named:
    """A value and what its dimensions are."""

    dims: tuple[str, ...]
    array: Array


def _as_it_is(array: Array) -> Array:
    return array


@dataclass
class Run:
    """One evaluation: memory and the positions at which every open axis is.

    detached  what a value is worth that no derivative passes through
    numbered  the axes whose tiles are counted
    """

    program: Program
    memory: dict[str, Array]
    read: dict[str, Array]
    at: dict[str, Array] = field(default_factory=dict)
    begin: dict[str, int] = field(default_factory=dict)
    block: int = 0
    detached: Callable[[Array], Array] = _as_it_is
    numbered: frozenset[str] = frozenset()

    def order(self, dims: set[str]) -> tuple[str, ...]:
        """Dimensions as loops are nested, whole dimensions last."""
        return tuple(d for d in self.at if d in dims and self.at[d].ndim)


def evaluate(
    program: Program,
    arguments: Mapping[str, Array],
    block: int = 0,
    detached: Callable[[Array], Array] = _as_it_is,
) -> Evaluated:
    """Runs every statement in order; of tile loops, `block` positions at a time, or all if 0."""
    memory = {
        t.name: np.array(arguments[t.name], np.float64).reshape(t.shape) for t in program.arguments
    }
    for output in program.outputs:
        fill = np.nan if output.fill is None else output.fill
        memory[output.name] = np.full(output.shape, fill, np.float64)
    run = Run(program, memory, {n: np.zeros(a.shape, bool) for n, a in memory.items()})
    run.block, run.detached = block, detached
    run.numbered = frozenset(
        p.axis for p in parts(program.body) if isinstance(p, Pick) and p.number
    )
    with np.errstate(all="ignore"):
        _block(run, program.body, {})
    seen = {v.name: v.array(memory[v.tensor]) for v in program.views}
    return Evaluated({t.name: {**memory, **seen}[t.name] for t in program.results}, run.read)


# ---------------------------------------------------------------- statements


def _block(run: Run, body: tuple[Statement, ...], values: dict[str, Named]) -> None:
    for statement in body:
        match statement:
            case Let(name, dims, value):
                values[name] = Named(dims, _spread(run, _value(run, value, values), dims))
            case Update(name, op, value):
                values[name] = _updated(run, values[name], op, _value(run, value, values))
            case Swap(name, other, value):
                new = _updated(run, values[name], "sum", _value(run, value, values))
                values[name], values[other] = values[other], new
            case Store():
                _store(run, statement, _value(run, statement.value, values))
            case Loop(axis, body):
                _loop(run, axis, body, values)
            case If():
                scope = dict(values)
                _block(run, statement.body if _holds(run, statement) else statement.other, scope)
                values.update({name: scope[name] for name in values})


def _holds(run: Run, statement: If) -> bool:
    if statement.what == "begin":
        return True
    if statement.what == "rows":
        begin, end = _range(run, statement.term.axis)
        return end - begin < statement.below
    return _term(run, statement.term) < statement.below


def _term(run: Run, term: Term) -> int:
    """The number that a scalar is, times its factor."""
    if not term.tensor:
        return term.factor * (int(run.at[term.axis]) // term.share)
    place = (int(run.at[term.axis]) + term.later,) if term.axis else ()
    run.read[term.tensor][place] = True
    return term.factor * int(run.memory[term.tensor][place])


def _loop(run: Run, axis: str, body: tuple[Statement, ...], values: dict[str, Named]) -> None:
    begin, end = _range(run, axis)
    single = run.program.axis(axis).kind == "grid"
    size = 1 if single else _size(run, axis) or max(end - begin, 1)
    for first in range(begin, end, size):
        turn = begin + end - 1 - first if run.program.axis(axis).mirrored else first
        step = _turn(run, axis, turn) if single else np.arange(first, min(first + size, end))
        at = _inserted(run, axis, step)
        inner = replace(run, at=at, begin=dict(run.begin))
        inner.begin[axis] = _first(run, axis)
        scope = dict(values)
        _block(inner, body, scope)
        values.update({name: scope[name] for name in values})


def _turn(run: Run, name: str, turn: int) -> Array:
    """At which position a turn of a loop is: as memory says, if that has the order."""
    order = run.program.axis(name).order
    if not order:
        return np.asarray(turn)
    run.read[order][turn] = True
    return run.memory[order][turn].astype(np.int64)


def _size(run: Run, name: str) -> int:
    """How many positions are done at a time, 0 for all: the author's tiles, where he fixed them."""
    axis = run.program.axis(name)
    if axis.block:
        return axis.block
    return tile_of(axis) if name in run.numbered else run.block


def _inserted(run: Run, axis: str, step: Array) -> dict[str, Array]:
    """The open axes with one more; whole dimensions stay last."""
    whole = {a.name: np.arange(a.size) for a in run.program.axes if a.kind == "full"}
    loops = {name: at for name, at in run.at.items() if name not in whole}
    return {**loops, axis: step, **whole}


def _first(run: Run, name: str) -> int:
    """Where the range of an axis begins in the whole array."""
    axis = run.program.axis(name)
    first = int(run.memory[axis.offsets][int(run.at[axis.of])]) if axis.offsets else 0
    return first * axis.page


def _range(run: Run, name: str) -> tuple[int, int]:
    axis = run.program.axis(name)
    if axis.inside:
        outer = run.at[axis.inside]
        return int(outer[0]), int(outer[-1]) + 1
    begin, end = 0, run.program.turns(axis)
    if axis.length:
        end = _term(run, Term(axis.of, axis.length))
    if axis.offsets:
        group, begin = int(run.at[axis.of]), _first(run, name)
        more = axis.counts or axis.offsets
        end = int(run.memory[more][group + (not axis.counts)]) * axis.page
        end += begin if axis.counts else 0
        for tensor in {axis.offsets, more}:
            run.read[tensor][group : group + 2] = True
    if axis.until:
        other = run.at[axis.until]
        end = min(end, int(other[-1]) + 1)
        begin = max(begin, int(other[0]) - axis.window) if axis.window else begin
    end = min(end, begin + axis.most) if axis.most else end
    return (0, end - begin) if axis.local else (begin, end)


def _updated(run: Run, old: Named, op: str, new: Named) -> Named:
    value = _spread(run, new, old.dims)
    if op in UPDATED:
        return Named(old.dims, UPDATED[op](old.array, value))
    return Named(old.dims, old.array * (0.5 if op == "decay" else 1) + value)


def _store(run: Run, store: Store, value: Named) -> None:
    tensor = run.program.tensor(store.tensor)
    dims = _dims(run, store.index)
    array = np.broadcast_to(_arranged(run, value, dims), [len(run.at[d]) for d in dims])
    holds, lanes = _let_through(run, store.masks)
    if not holds:
        return
    array = array[_those(run, dims, lanes)]
    at = _positions(_narrowed(run, lanes), store.tensor, store.index)
    if store.atomic:  # of several lanes for one place, each
        COMBINED[store.combine].at(run.memory[store.tensor], at, array)
        return
    if store.combine:
        array = COMBINED[store.combine](run.memory[store.tensor][at], array)
    kept = array.astype(getattr(ml_dtypes, tensor.dtype, tensor.dtype)).astype(np.float64)
    run.memory[store.tensor][at] = kept


# ---------------------------------------------------------------- values


def _value(run: Run, value: Value, values: Mapping[str, Named]) -> Named:
    match value:
        case Number(number):
            return Named((), np.asarray(number))
        case Ref(name):
            return values[name]
        case Load():
            return _load(run, value)
        case Masked():
            return _masked(run, value)
        case Whole(op, load, by):
            found = _load(run, load)
            return Named(found.dims, WHOLE[op](found.array.astype(np.int64), by))
        case Native(op, left, right):
            return _together(run, BINARY[op], _load(run, left), _load(run, right))
        case Scalar(term):
            return Named((), np.asarray(_term(run, term) / 8))
        case Chosen(load, left, right):
            found = _load(run, load)
            holds = Named(found.dims, found.array != 0)
            pair = (_value(run, v, values) for v in (left, right))
            return _together(run, np.where, holds, *pair)
        case Joined(op, axis, left, right, cut):
            both = _together(run, _side_by_side, *(_value(run, v, values) for v in (left, right)))
            place = both.dims.index(axis)
            array = np.concatenate([*both.array], place)
            if cut == "middle":
                length = array.shape[place] // 2
                part = slice(length // 2, length // 2 + length)
                array = array[(slice(None),) * place + (part,)]
            elif cut:
                some = slice(None, None, 2) if cut == "pairs" else slice(0, array.shape[place] // 2)
                rest = slice(1, None, 2) if cut == "pairs" else slice(some.stop, None)
                array = np.maximum(*(array[(slice(None),) * place + (s,)] for s in (some, rest)))
            kept = tuple(d for d in both.dims if d != axis)
            return Named(kept, REDUCE[op](array, place))
        case Position(axis):
            dims = run.order({axis})
            return Named(dims, run.at[axis] / 16)
        case Looked():
            return _looked(run, value)
        case TileNumber(axis):
            if not (block := run.program.axis(axis).block):
                raise ValueError(f"whoever runs it says how long tiles of {axis} are")
            return Named(run.order({axis}), run.at[axis] // block / 8)
        case Unary(op, inner) if op in DETACHED:
            found = _value(run, inner, values)
            return Named(found.dims, run.detached(found.array))
        case Unary(op, inner):
            found = _value(run, inner, values)
            return Named(found.dims, UNARY[op](found.array))
        case Reduce(op, axis, inner):
            found = _value(run, inner, values)
            place = found.dims.index(axis)
            left = tuple(d for d in found.dims if d != axis)
            return Named(left, REDUCE[op](found.array, place))
        case Binary(op, left, right):
            return _together(run, BINARY[op], *(_value(run, v, values) for v in (left, right)))
        case Even(axis, left, right, of):
            pair = (_value(run, left, values), _value(run, right, values))
            even = Named(run.order({axis}), run.at[axis] % of == 0)
            return _together(run, np.where, even, *pair)
        case Where(op, left, right, yes, no):
            one, other, *some = (_value(run, v, values) for v in (left, right, yes, no))
            return _together(run, np.where, _together(run, COMPARED[op], one, other), *some)
        case Seen(axis, inner, other):
            found = _value(run, inner, values)
            return _together(run, np.where, _seen(run, axis), found, Named((), np.asarray(other)))
        case Mixed():
            return _mixed(run, value, _value(run, value.value, values))
        case Dot(axis, left, right):
            pair = (_value(run, left, values), _value(run, right, values))
            product = _together(run, np.multiply, *pair)
            place = product.dims.index(axis)
            kept = tuple(d for d in product.dims if d != axis)
            return Named(kept, product.array.sum(place))


def _mixed(run: Run, mixed: Mixed, value: Named) -> Named:
    """Weights of rows of the tile and of the rows that each is the sum of."""
    place = value.dims.index(mixed.axis)
    rows = np.moveaxis(value.array, place, 0)
    apart = run.at[mixed.axis][:, None] - run.at[mixed.axis]
    if mixed.how == "softmax":
        scores = rows.reshape(len(rows), -1) @ rows.reshape(len(rows), -1).T
        weights = np.exp(scores - scores.max(1, keepdims=True))
        weights = weights / weights.sum(1, keepdims=True)
    else:
        weights = MIXED[mixed.how](apart).astype(np.float64)
    weights = weights @ weights if mixed.twice else weights
    return Named(value.dims, np.moveaxis(np.tensordot(weights, rows, 1), 0, place))


def _side_by_side(left: Array, right: Array) -> Array:
    return np.stack(np.broadcast_arrays(left, right))


def _seen(run: Run, name: str) -> Named:
    """Which positions of a causal axis are not after one of the other axis, and in its window."""
    axis = run.program.axis(name)
    dims = (axis.until, name)
    distance = run.at[axis.until][:, None] - run.at[name]
    seen = (distance >= 0) & (distance <= (axis.window or distance.max(initial=0)))
    return Named(dims, seen)


def _load(run: Run, load: Load) -> Named:
    at = _positions(run, load.tensor, load.index)
    run.read[load.tensor][at] = True
    written = _dims(run, load.index)
    dims = run.order(set(written))
    return Named(dims, run.memory[load.tensor][at].transpose([written.index(d) for d in dims]))


def _looked(run: Run, value: Looked) -> Named:
    """Positions outside of the table are those at its ends."""
    names = {value.rows, value.columns} - {""}
    dims, at = run.order(names), {n: Named((n,), run.at[n]) for n in names}
    place = at[value.rows]
    if value.columns:
        place = _together(run, np.subtract, place, at[value.columns])
    match value.how:
        case "share":
            found = place.array // value.shift
        case "apart":
            found = np.abs(place.array)
        case "distance":
            found = place.array + value.shift
    table, own = run.memory[value.tensor], tuple(int(_position(run, p)) for p in value.index)
    places = (*own, np.clip(found, 0, table.shape[-1] - 1))
    run.read[value.tensor][places] = True
    return Named(dims, table[places])


def _masked(run: Run, value: Masked) -> Named:
    """Only the positions that the mask lets through are read."""
    whole = _other(run, value.load, held(run.program.tensor(value.load.tensor), value.other))
    holds, lanes = _let_through(run, value.masks)
    if holds:
        found = _load(_narrowed(run, lanes), value.load)
        whole.array[_those(run, whole.dims, lanes)] = found.array
    return whole


def _let_through(run: Run, masks: tuple[Mask, ...]) -> tuple[bool, dict[str, Array]]:
    """Whether the masks of numbers hold, and which positions of its axis each other mask lets."""
    holds, lanes = True, {}
    for mask in masks:
        at = _position(run, mask.pick)
        inside = (at >= mask.first) & (at < mask.below)
        if at.ndim:
            axis = mask.pick.axis
            lanes[axis] = lanes[axis] & inside if axis in lanes else inside
        else:
            holds = holds and bool(inside)
    return holds, lanes


def _narrowed(run: Run, lanes: Mapping[str, Array]) -> Run:
    return replace(run, at={**run.at, **{axis: run.at[axis][own] for axis, own in lanes.items()}})


def _those(run: Run, dims: tuple[str, ...], lanes: Mapping[str, Array]) -> tuple[Array, ...]:
    """The index of these lanes in a value."""
    return np.ix_(*(lanes.get(d, np.ones(len(run.at[d]), bool)) for d in dims))


def _other(run: Run, load: Load, other: float) -> Named:
    dims = run.order(set(_dims(run, load.index)))
    return Named(dims, np.full([len(run.at[d]) for d in dims], other, np.float64))


def _dims(run: Run, index: tuple[Pick, ...]) -> tuple[str, ...]:
    return tuple(p.axis for p in index if p.axis and run.at[p.axis].ndim and not p.number)


def _positions(run: Run, tensor: str, index: tuple[Pick, ...]) -> tuple[Array, ...]:
    """One array of positions for each dimension; together they span those that are not scalars."""
    rank = len(_dims(run, index))
    found, place = [], 0
    for pick, size in zip(index, run.memory[tensor].shape, strict=True):
        at = _position(run, pick)
        if at.size and not 0 <= at.min() <= at.max() < size:
            raise IndexError(f"{tensor}: {at.min()} to {at.max()} of {size}")
        if at.ndim:
            place += 1
            at = at.reshape(-1, *(1,) * (rank - place))
        found.append(at)
    return tuple(found)


def _position(run: Run, pick: Pick) -> Array:
    at = run.at[pick.axis] if pick.axis else np.asarray(0)
    if pick.number:
        at = np.asarray(at[0] // tile_of(run.program.axis(pick.axis)))
    at = at // pick.share
    if pick.through:
        run.read[pick.through][at] = True
        at = run.memory[pick.through][at].astype(np.int64)
    begin = run.begin[pick.axis] if pick.start or pick.back else 0
    at = at * pick.factor + pick.shift + (begin if pick.start else -begin)
    return np.asarray(at + sum(_term(run, term) for term in pick.terms))


def _together(run: Run, op, *operands: Named) -> Named:
    dims = run.order({d for o in operands for d in o.dims})
    return Named(dims, op(*(_arranged(run, o, dims) for o in operands)))


def _arranged(run: Run, value: Named, dims: tuple[str, ...]) -> Array:
    """With these dimensions, of length 1 where the value has none; the last one of two alike."""
    kept = [d for i, d in enumerate(dims) if d in value.dims and d not in dims[i + 1 :]]
    array = value.array.transpose([value.dims.index(d) for d in kept])
    lacks = [i for i, d in enumerate(dims) if d not in value.dims or d in dims[i + 1 :]]
    return np.expand_dims(array, lacks)


def _spread(run: Run, value: Named, dims: tuple[str, ...]) -> Array:
    return np.broadcast_to(_arranged(run, value, dims), [len(run.at[d]) for d in dims]).copy()
