"""source(program, lengths) -> str: the program as a kernel, in the words of a user.

Where operands have different dimensions the text says how: `a[:, None] + b`, `.T`, `hl.permute`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tests.fuzzing.program import (
    Axis,
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
    Tensor,
    Term,
    TileNumber,
    Unary,
    Update,
    Value,
    Where,
    Whole,
    held,
    parts,
)
from tests.fuzzing.view import Place, Row, merged

HEAD = """import tilelang as tile
import tilelang.language as hl


@tile.kernel
def kernel({arguments}):
"""
NUMBERS: Mapping[str, str] = MappingProxyType({})
UNARY = {n: f"hl.{n}({{}})" for n in ("tanh", "abs", "relu", "exp", "log")}
UNARY |= {"neg": "-({})", "kept": "hl.where({0} > 0, {0}, 1.0)"}
UNARY |= {"detached": "hl.detach({})", "cut off": "({}).detach()"}
UNARY |= {"stopped": "jax.lax.stop_gradient({})"}
BINARY = {"max": "hl.maximum({}, {})"} | {op: f"({{}} {op} {{}})" for op in "+-*/"}
AS_IT_IS = [{n} for n in ("float32", "bfloat16", "float16", "int8", "float8_e4m3fn", "float8_e5m2")]
WHOLE = {"where": "hl.where({0} < {1}, {0} * 2, {1})"}
UPDATE = {
    "sum": "{} + {}",
    "max": "hl.maximum({}, {})",
    "decay": "{} * 0.5 + {}",
    "blend": "{0} + 0.5 * ({1} - {0})",
    "scale": "{} * {}",
    "set": "{1}",
    "turn": "{1} - {0}",
}
MIXED = {
    "upto": "hl.where({} >= {}, 1.0, 0.0)",
    "below": "hl.where({} > {}, 1.0, 0.0)",
    "after": "hl.where({} <= {}, 1.0, 0.0)",
    "distance": "hl.exp(({0} - {1}) * ({0} - {1}) / -16.0)",
}
ZEROS_AND_ONES = ("upto", "below", "after")
HALVES = ("bfloat16", "float16")
REDUCE = {
    "sum": "{}.sum({})",
    "max": "{}.amax({})",
    "min": "{}.amin({})",
    "mean": "{}.mean({})",
    "var": "hl.var({}, {})",
    "argmax": "{}.argmax({}).to(hl.float32)",
}


@dataclass(frozen=True)
class Text:
    """The text of a value and the dimensions of what it is worth."""

    dims: tuple[str, ...]
    text: str


@dataclass(frozen=True)
class Scope:
    """Open loops from outer to inner, and the dimensions of names."""

    program: Program
    open: tuple[str, ...] = ()
    named: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lengths: Mapping[str, str] = field(default_factory=dict)

    def inside(self, axis: str) -> Scope:
        return replace(self, open=(*self.open, axis), named=dict(self.named))

    def length(self, axis: Axis) -> str:
        return self.lengths.get(axis.name, str(axis.size))

    def order(self, dims: set[str]) -> tuple[str, ...]:
        """Dimensions as loops are nested, whole dimensions last."""
        whole = [a.name for a in self.program.axes if a.kind == "full"]
        return tuple(d for d in (*self.open, *whole) if d in dims)

    def vector(self, axis: str) -> bool:
        return self.program.axis(axis).kind != "grid"


def source(program: Program, lengths: Mapping[str, str] = NUMBERS) -> str:
    """A module with one kernel, `kernel`; `lengths` is how long axes are, where not in numbers."""
    lines = [_heads(t) for t in program.arguments if t.given != t.shape]
    lines += [_created(t, _shape(program, t, lengths)) for t in program.outputs]
    lines += [view.source(program.tensor(view.tensor).shape) for view in program.views]
    lines += _block(Scope(program, lengths=lengths), program.body)
    lines.append("return " + ", ".join(t.name for t in program.results))
    head = HEAD.format(arguments=", ".join(t.name for t in program.arguments))
    stopped = any(isinstance(p, Unary) and p.op == "stopped" for p in parts(program.body))
    head = f"import jax\n\n{head}" if stopped else head
    return head + "".join(f"    {line}\n" for line in lines)


def lengths_by_shapes(program: Program) -> dict[str, str]:
    """Of ragged tiles the length as the shape of an argument that they index."""
    found: dict[str, str] = {}
    inputs = {t.name: t for t in program.arguments if t.role == "input"}
    for load in (p for p in parts(program.body) if isinstance(p, Load) and p.tensor in inputs):
        for dim, pick in enumerate(load.index):
            if _alone(program, pick) and inputs[load.tensor].shape[dim] == _size(program, pick):
                found.setdefault(pick.axis, f"{load.tensor}.shape[{dim}]")
    return found


def _alone(program: Program, pick: Pick) -> bool:
    """Whether a ragged tile indexes a dimension, and nothing else does."""
    if pick != Pick(pick.axis) or not pick.axis:
        return False
    axis = program.axis(pick.axis)
    return axis.kind == "tile" and bool(axis.offsets) and not axis.local


def _size(program: Program, pick: Pick) -> int:
    return program.axis(pick.axis).size


def _shape(program: Program, tensor: Tensor, lengths: Mapping[str, str]) -> str:
    """The shape of an output: as long as an axis where that is what it is stored by."""
    stores = [p for p in parts(program.body) if isinstance(p, Store) and p.tensor == tensor.name]
    found = []
    for dim, size in enumerate(tensor.shape):
        picks = {store.index[dim] for store in stores}
        (one, *others) = picks or {Pick("")}
        plain = not others and _alone(program, one) and _size(program, one) == size
        found.append(lengths.get(one.axis, str(size)) if plain else str(size))
    return f"[{', '.join(found)}]"


def _heads(tensor: Tensor) -> str:
    """x = x.reshape(x.shape[0], 4, x.shape[1] // 4)"""
    *rows, columns = (f"{tensor.name}.shape[{dim}]" for dim in range(len(tensor.given)))
    many = tensor.shape[-2]
    shape = ", ".join((*rows, str(many), f"{columns} // {many}"))
    return f"{tensor.name} = {tensor.name}.reshape({shape})"


def _created(tensor: Tensor, shape: str) -> str:
    dtype = f"dtype=hl.{tensor.dtype}"
    if tensor.fill is None:
        return f"{tensor.name} = hl.empty({shape}, {dtype})"
    fill = str(bool(tensor.fill)) if tensor.dtype == "bool" else tensor.fill
    return f"{tensor.name} = hl.full({shape}, {fill}, {dtype})"


# ---------------------------------------------------------------- statements


def _block(scope: Scope, body: tuple[Statement, ...]) -> list[str]:
    return [line for statement in body for line in _statement(scope, statement)]


def _statement(scope: Scope, statement: Statement) -> list[str]:
    match statement:
        case Let(name, dims, value):
            scope.named[name] = dims
            return [f"{name} = {_let(scope, dims, value)}"]
        case Update(name, op, value):
            found = _value(scope, value)
            plain = found.text.startswith("hl.dot") and found.dims == scope.named[name]
            if op == "sum" and isinstance(value, Dot) and plain:
                return [f"{name} = {found.text[:-1]}, acc={name})"]
            fitted = _broadcast(found, scope.named[name])
            return [f"{name} = {UPDATE[op].format(name, fitted)}"]
        case Swap(name, other, value):
            fitted = _broadcast(_value(scope, value), scope.named[name])
            return [f"{name}, {other} = {other}, {name} + {fitted}"]
        case Store():
            return _store(scope, statement)
        case Loop():
            return _loop(scope, statement)
        case If(_, _, body, other):
            lines = [f"if {_condition(scope, statement)}:", *_in(_branch(scope, body))]
            return [*lines, "else:", *_in(_branch(scope, other))] if other else lines


def _branch(scope: Scope, body: tuple[Statement, ...]) -> list[str]:
    return _block(replace(scope, named=dict(scope.named)), body) or ["pass"]


def _condition(scope: Scope, statement: If) -> str:
    axis = statement.term.axis
    match statement.what:
        case "begin":
            return f"{axis}.begin < {statement.below}"
        case "rows":
            begin, end = _bounds(scope.program, scope.program.axis(axis))
            return f"{end} - {begin} < {statement.below}"
    return f"{_term(statement.term)} < {statement.below}"


def _term(term: Term) -> str:
    place = f"{term.axis} + {term.later}" if term.later else term.axis or "()"
    text = f"{term.tensor}[{place}]" if term.tensor else term.axis
    text = f"({text} // {term.share})" if term.share != 1 else text
    return f"{text} * {term.factor}" if term.factor != 1 else text


def _store(scope: Scope, store: Store) -> list[str]:
    tensor, index, written = _target(scope, store)
    value = _stored(scope, store, written)
    given = f"{tensor}, {_listed(index)}"
    mask = f", mask={_mask(scope, store.masks, written)}" if store.masks else ""
    if store.combine and store.atomic:
        op = {"sum": "add", "max": "max"}[store.combine]
        return [f"hl.atomic_{op}({given}, {value}{mask})"]
    element = f"hl.load({given}{mask})" if mask else f"{tensor}[{', '.join(index)}]"
    if store.combine:
        value = UPDATE[store.combine].format(element, value)
    return [f"hl.store({given}, {value}{mask})" if mask else f"{element} = {value}"]


def _target(scope: Scope, store: Store) -> tuple[str, list[str], tuple[str, ...]]:
    """What is stored to, the positions in it, and the dimensions of a value in their order."""
    if not store.view:
        return store.tensor, _index(scope, store.index), _written(scope, store.index)
    name, places = _seen_as(scope, store)
    dims = merged(tuple(part for place in places for part in place.parts))
    return name, [p.text for p in places], dims


def _let(scope: Scope, dims: tuple[str, ...], value: Value) -> str:
    if isinstance(value, Number):
        if not dims:
            return str(value.value)
        return f"hl.full([{_lengths(scope, dims)}], {_number(value.value)}, dtype=hl.float32)"
    return _filled(scope, _value(scope, value), dims)


def _filled(scope: Scope, value: Text, dims: tuple[str, ...]) -> str:
    """The value in all of these dimensions, also in those that it does not depend on."""
    text = _broadcast(value, dims)
    if value.dims == dims:
        return text
    return f"{text} + hl.zeros([{_lengths(scope, dims)}], dtype=hl.float32)"


def _lengths(scope: Scope, dims: tuple[str, ...]) -> str:
    axes = [scope.program.axis(d) for d in dims]
    return ", ".join(str(a.size) if a.kind == "full" else a.name for a in axes)


def _stored(scope: Scope, store: Store, written: tuple[str, ...]) -> str:
    canonical, written = scope.order(set(written)), tuple(dict.fromkeys(written))
    dtype = scope.program.tensor(store.tensor).dtype
    if isinstance(store.value, Load) and scope.program.tensor(store.value.tensor).dtype == dtype:
        found = _load(scope, store.value)
        if found.dims == canonical:  # a copy
            return _permuted(found, written)
    text = _filled(scope, _value(scope, store.value), canonical)
    moved = _permuted(Text(canonical, text), written)
    return moved if dtype == "float32" else f"{_atom(moved)}.to(hl.{dtype})"


def _loop(scope: Scope, loop: Loop) -> list[str]:
    axis, inside = scope.program.axis(loop.axis), scope.inside(loop.axis)
    inner = loop.body[0] if loop.body else None
    if loop.joint and isinstance(inner, Loop) and len(loop.body) == 1:
        other = scope.program.axis(inner.axis)
        if other.kind == axis.kind and axis.name not in (other.of, other.until):
            body = _turn(scope, axis) + _turn(scope, other)
            body += _block(inside.inside(inner.axis), inner.body)
            return [f"for {axis.loop}, {other.loop} in {_joint(scope, axis, other)}:", *_in(body)]
    head = f"for {axis.loop} in hl.{axis.kind}({_range(scope, axis)}):"
    return [head, *_in(_turn(scope, axis) + _block(inside, loop.body) or ["pass"])]


def _turn(scope: Scope, axis: Axis) -> list[str]:
    """Where a turn of a loop is whose order memory says, or that goes backwards."""
    if axis.mirrored:
        return [f"{axis.name} = {_bounds(scope.program, axis)[1]} - 1 - {axis.loop}"]
    return [f"{axis.name} = {axis.order}[{axis.loop}]"] if axis.order else []


def _in(lines: list[str]) -> list[str]:
    return ["    " + line for line in lines]


def _range(scope: Scope, axis: Axis) -> str:
    begin, end = _turns(scope.program, axis)
    end = f"({end} + hl.arange(2)).amin(0)" if axis.measured else end
    given = end if begin == "0" else f"{begin}, {end}"
    ragged = axis.offsets or axis.length
    given += f", max_extent={scope.length(axis)}" if ragged and axis.bounded else ""
    return given + (f", block_size={axis.block}" if axis.block else "")


def _turns(program: Program, axis: Axis) -> tuple[str, str]:
    """What its loop counts through: a mirrored one from 0."""
    begin, end = _bounds(program, axis)
    return ("0", f"{end} - {begin}") if axis.mirrored and begin != "0" else (begin, end)


def _bounds(program: Program, axis: Axis) -> tuple[str, str]:
    if axis.inside:
        return f"{axis.inside}.begin", f"{axis.inside}.end"
    begin, end = "0", str(program.turns(axis))
    if axis.length:
        end = _term(Term(axis.of, axis.length))
    if axis.offsets:
        begin, end = _first(axis), _first(axis, " + 1")
    if axis.counts:
        end = f"{begin} + {axis.counts}[{axis.of}]"
    if axis.until:
        known = axis.offsets or axis.length
        end = f"hl.minimum({end}, {axis.until}.end)" if known else f"{axis.until}.end"
    if axis.window:
        begin = f"hl.maximum({begin}, {axis.until}.begin - {axis.window})"
    if axis.local:
        begin, end = "0", end.removeprefix(f"{begin} + ") if axis.counts else f"{end} - {begin}"
    if axis.most:
        longest = str(axis.most) if axis.local else f"{begin} + {axis.most}"
        end = f"hl.minimum({end}, {longest})"
    return begin, end


def _first(axis: Axis, more: str = "") -> str:
    """Where the range of a group begins, or of one more."""
    return f"{axis.offsets}[{axis.of}{more}]" + (f" * {axis.page}" if axis.page != 1 else "")


def _joint(scope: Scope, first: Axis, second: Axis) -> str:
    begins, ends = zip(*(_turns(scope.program, axis) for axis in (first, second)))
    sizes = f", max_extent=[{scope.length(first)}, {scope.length(second)}]"
    ragged = any(a.offsets or a.length for a in (first, second))
    bounded = sizes if ragged else ""
    if first.block or second.block:
        bounded += f", block_size=[{first.block or None}, {second.block or None}]"
    return f"hl.{first.kind}([{', '.join(begins)}], [{', '.join(ends)}]{bounded})"


# ---------------------------------------------------------------- values


def _number(number: float) -> str:
    return str(number) if math.isfinite(number) else f'float("{number}")'


def _value(scope: Scope, value: Value) -> Text:
    match value:
        case Number(number):
            return Text((), _number(number))
        case Ref(name):
            return Text(scope.named[name], name)
        case Load():
            return _float(scope, value, _load(scope, value))
        case Whole(op, load, by):
            found = _load(scope, load)
            text = WHOLE.get(op, f"({{}} {op} {{}})").format(found.text, by)
            return Text(found.dims, f"{text}.to(hl.float32)")
        case Masked():
            return _float(scope, value.load, _masked(scope, value))
        case Native(op, left, right):
            dims, texts = _beside(scope, (_load(scope, left), _load(scope, right)))
            return Text(dims, f"{BINARY[op].format(*texts)}.to(hl.float32)")
        case Scalar(term):
            return Text((), f"({_term(term)} * 0.125)")
        case Chosen(load, left, right):
            found = _load(scope, load)
            dims, texts = _beside(scope, (found, _value(scope, left), _value(scope, right)))
            return Text(dims, f"hl.where({', '.join(texts)})")
        case Joined(op, axis, left, right, cut):
            dims, texts = _together(scope, (left, right))
            place = dims.index(axis)
            joined = f"hl.cat([{', '.join(texts)}], {place})"
            if cut in ("parts", "middle"):
                joined = _cut(joined, cut, place, scope.length(scope.program.axis(axis)))
            elif cut:
                axes, two = map(scope.program.axis, dims), place + (cut == "pairs")
                shape = [scope.length(a) if a.kind == "full" else a.name for a in axes]
                shape.insert(two, "2")
                joined = f"{joined}.reshape({', '.join(shape)}).amax({two})"
            return Text(dims[:place] + dims[place + 1 :], REDUCE[op].format(joined, place))
        case Position(axis):
            name = f"{axis}.index" if scope.vector(axis) else axis
            return Text(scope.order({axis}) if scope.vector(axis) else (), f"({name} * 0.0625)")
        case TileNumber(axis):
            return Text((), f"({axis}.id * 0.125)")
        case Looked():
            return _looked(scope, value)
        case Unary(op, inner):
            found = _value(scope, inner)
            return Text(found.dims, UNARY[op].format(found.text))
        case Reduce(op, axis, Load() as inner, native=True):
            found = _load(scope, inner)
            kept = tuple(d for d in found.dims if d != axis)
            text = REDUCE[op].format(_atom(found.text), found.dims.index(axis))
            return Text(kept, f"{text}.to(hl.float32)")
        case Reduce(op, axis, inner):
            found = _value(scope, inner)
            kept = tuple(d for d in found.dims if d != axis)
            place = found.dims.index(axis)
            return Text(kept, REDUCE[op].format(_atom(found.text), place))
        case Binary(op, left, right):
            dims, texts = _together(scope, (left, right))
            return Text(dims, BINARY[op].format(*texts))
        case Even(axis, left, right, of):
            dims, (_, *texts) = _together(scope, (Position(axis), left, right))
            even = Text(scope.order({axis}), f"({axis}.index % {of} == 0)")
            return Text(dims, f"hl.where({_broadcast(even, dims)}, {texts[0]}, {texts[1]})")
        case Where(op, left, right, yes, no):
            dims, (one, other, *texts) = _together(scope, (left, right, yes, no))
            return Text(dims, f"hl.where({one} {op} {other}, {texts[0]}, {texts[1]})")
        case Seen():
            return _seen(scope, value)
        case Mixed():
            return _mixed(scope, value)
        case Dot():
            return _dot(scope, value)


def _looked(scope: Scope, value: Looked) -> Text:
    axes = (value.rows, *((value.columns,) if value.columns else ()))
    dims, lanes = _beside(scope, tuple(Text((a,), _lanes(scope, a)) for a in axes))
    match value.how:
        case "share":
            place = f"{lanes[0]} // {value.shift}"
        case "apart":
            place = f"hl.abs({' - '.join(lanes)})"
        case "distance":
            place = " - ".join(lanes) + (f" + {value.shift}" if value.shift else "")
    found = f"{value.tensor}[{', '.join([*_index(scope, value.index), place])}]"
    dtype = scope.program.tensor(value.tensor).dtype
    return Text(dims, found if dtype == "float32" else f"{found}.to(hl.float32)")


def _lanes(scope: Scope, axis: str) -> str:
    """The positions of a tile, or of a whole dimension."""
    found = scope.program.axis(axis)
    return f"hl.arange({scope.length(found)})" if found.kind == "full" else f"{axis}.index"


def _cut(joined: str, cut: str, place: int, length: str) -> str:
    """What is greater in one half of joined values, or what lies around where they meet."""
    before = ":, " * place
    if cut == "middle":
        return f"({joined})[{before}{length} // 2 : {length} // 2 + {length}]"
    return f"hl.maximum(({joined})[{before}:{length}], ({joined})[{before}{length}:])"


def _seen(scope: Scope, seen: Seen) -> Text:
    axis, found = scope.program.axis(seen.axis), _value(scope, seen.value)
    pair = scope.order({axis.name, axis.until})
    inner, outer = (
        _broadcast(Text((name,), f"{name}.index"), pair) for name in (axis.name, axis.until)
    )
    shown = f"{inner} <= {outer}"
    if axis.window:
        shown = f"({shown}) & ({inner} + {axis.window} >= {outer})"
    dims = scope.order({*found.dims, *pair})
    condition = _broadcast(Text(pair, f"({shown})"), dims)
    return Text(dims, f"hl.where({condition}, {_broadcast(found, dims)}, {seen.other})")


def _together(scope: Scope, values: tuple[Value, ...]) -> tuple[tuple[str, ...], list[str]]:
    """The dimensions of all, and each broadcast to them."""
    return _beside(scope, tuple(_value(scope, v) for v in values))


def _beside(scope: Scope, texts: tuple[Text, ...]) -> tuple[tuple[str, ...], list[str]]:
    dims = scope.order({d for t in texts for d in t.dims})
    return dims, [_broadcast(t, dims) for t in texts]


def _dot(scope: Scope, dot: Dot) -> Text:
    """`hl.dot(a, b)` with operands turned as it needs them; loads keep their dtype if it is one."""
    pair = (dot.left, dot.right)
    dtypes = {scope.program.tensor(v.tensor).dtype if isinstance(v, Load) else "" for v in pair}
    as_it_is = dtypes in AS_IT_IS
    sides = [
        _load(scope, v) if as_it_is and isinstance(v, Load) else _value(scope, v) for v in pair
    ]
    rows = tuple(d for d in sides[0].dims if d != dot.axis)
    columns = tuple(d for d in sides[1].dims if d != dot.axis)
    if {*rows} & {*columns}:
        return _einsum(scope, sides[0], sides[1], dot.axis)
    left = _permuted(sides[0], (*rows, dot.axis))
    right = _permuted(sides[1], (dot.axis, *columns))
    made = f"hl.dot({left}, {right})"
    return Text((*rows, *columns), f"({made}).to(hl.float32)" if dtypes == {"int8"} else made)


def _mixed(scope: Scope, mixed: Mixed) -> Text:
    """Weights [t, t] and a value with t: rows of both, or columns where the value has t last."""
    found, axis = _value(scope, mixed.value), mixed.axis
    first, rank = found.dims[0] == axis, len(found.dims)
    weights = _weights(mixed, found)
    if rank == 1:
        return Text(found.dims, f"({weights} * {_atom(found.text)}[None, :]).sum(1)")
    if rank == 2 and mixed.form == "dot":
        value = mixed.value
        dtype = scope.program.tensor(value.tensor).dtype if isinstance(value, Load) else ""
        if dtype in HALVES and mixed.how in ZEROS_AND_ONES and isinstance(value, Load):
            weights, found = f"{_atom(weights)}.to(hl.{dtype})", _load(scope, value)
        pair = (weights, found.text) if first else (found.text, f"{_atom(weights)}.T")
        return Text(found.dims, f"hl.dot({', '.join(pair)})")
    if rank == 2:
        lanes = ("[:, :, None]", "[None, :, :]") if first else ("[None, :, :]", "[:, None, :]")
        spread = (
            f"{_atom(text)}{at}" for text, at in zip((weights, found.text), lanes, strict=True)
        )
        return Text(found.dims, f"({' * '.join(spread)}).sum({1 if first else 2})")
    letters = "abcdef"[:rank]
    own = letters[found.dims.index(axis)]
    product = f"z{own},{letters}->{letters.replace(own, 'z')}"
    return Text(found.dims, f'hl.einsum("{product}", {weights}, {found.text})')


def _weights(mixed: Mixed, value: Text) -> str:
    """Of each row of a tile the weights of its rows."""
    if mixed.how == "softmax":
        if len(value.dims) != 2:
            raise ValueError("scores are products of rows")
        rows = value.text if value.dims[0] == mixed.axis else f"{_atom(value.text)}.T"
        weights = f"hl.softmax(hl.dot({rows}, {_atom(rows)}.T), dim=1)"
    else:
        lanes = (f"{mixed.axis}.index[:, None]", f"{mixed.axis}.index[None, :]")
        weights = MIXED[mixed.how].format(*lanes)
    return f"hl.dot({weights}, {weights})" if mixed.twice else weights


def _einsum(scope: Scope, left: Text, right: Text, over: str) -> Text:
    """A product with the dimensions that both have as a batch."""
    letters = {d: chr(ord("a") + n) for n, d in enumerate(dict.fromkeys((*left.dims, *right.dims)))}
    dims = scope.order({*letters} - {over})
    a, b, made = ("".join(letters[d] for d in ds) for ds in (left.dims, right.dims, dims))
    return Text(dims, f'hl.einsum("{a},{b}->{made}", {left.text}, {right.text})')


def _load(scope: Scope, load: Load) -> Text:
    """Its dimensions in the order of the loops."""
    if load.view:
        name, places = _seen_as(scope, load)
        found = f"{name}[{', '.join(p.text for p in places)}]"
        return _ordered(scope, _reshaped(scope, found, places))
    written = _written(scope, load.index)
    return _ordered(scope, Text(written, f"{load.tensor}[{', '.join(_index(scope, load.index))}]"))


def _ordered(scope: Scope, value: Text) -> Text:
    dims = scope.order(set(value.dims))
    return Text(dims, _permuted(value, dims))


def _seen_as(scope: Scope, load: Load | Store) -> tuple[str, list[Place]]:
    """What is indexed, and how: the array, or a view of it."""
    view, places = scope.program.view(load.view), [_place(scope, p) for p in load.index]
    places = view.index(places, scope.program.tensor(load.tensor).shape)
    if not all(place.text for place in places):
        raise ValueError("a part of a dimension that begins where loops or memory say")
    return view.name, places


def _place(scope: Scope, pick: Pick) -> Place:
    parts, row = tuple((a, 0) for a in _written(scope, (pick,))), _row(scope, pick)
    if row is not None and row.inner.whole and pick.terms:
        return Place("", "", parts, row=row)
    text, lanes = _pick(scope, pick), _pick(scope, pick)
    if text == pick.axis and scope.vector(pick.axis):
        lanes = f"{text}.index"
    elif ":" in text:
        lanes = ""
    return Place(text, lanes, parts, text == ":", row)


def _row(scope: Scope, pick: Pick) -> Row | None:
    """Where it is one of several rows side by side, all of it or a tile."""
    if pick != Pick(pick.axis, pick.shift, terms=pick.terms) or not pick.axis:
        return None
    axis = scope.program.axis(pick.axis)
    inner = _place(scope, Pick(pick.axis)) if pick != Pick(pick.axis) else None
    if inner is None or not inner.parts or axis.offsets or axis.length:
        return None
    terms = tuple((_term(replace(t, factor=1)), t.factor) for t in pick.terms)
    return Row(axis.size, terms, pick.shift, inner)


def _reshaped(scope: Scope, text: str, places: Sequence[Place]) -> Text:
    """A value in the dimensions of axes, where those of a view are several of them or parts."""
    dims = merged(tuple(part for place in places for part in place.parts))
    if all(len(p.parts) < 2 and (p.parts or (("", 0),))[0][1] == 0 for p in places):
        return Text(dims, text)
    return Text(dims, f"{text}.reshape({_lengths(scope, dims)})")


def _masked(scope: Scope, masked: Masked) -> Text:
    load = masked.load
    name, places, written = load.tensor, _index(scope, load.index), _written(scope, load.index)
    if load.view:
        name, seen = _seen_as(scope, load)
        places, found = [p.text for p in seen], tuple(part for p in seen for part in p.parts)
        if any(half for _, half in found) or any(len(p.parts) > 1 for p in seen):
            raise ValueError("a mask is of dimensions of the array")
        written = merged(found)
    given = f"{name}, {_listed(places)}"
    mask = _mask(scope, masked.masks, written)
    other = held(scope.program.tensor(load.tensor), masked.other)
    return _ordered(scope, Text(written, f"hl.load({given}, mask={mask}, other={other})"))


def _listed(index: Sequence[str]) -> str:
    """The index in the brackets of hl.load and hl.store."""
    return f"[{', '.join(map(_argument, index))}]"


def _argument(place: str) -> str:
    """A slice as an argument has it."""
    begin, colon, end = place.partition(":")
    if not colon:
        return place
    return f"slice({begin}, {end})" if begin else "slice(None)"


def _mask(scope: Scope, masks: tuple[Mask, ...], written: tuple[str, ...]) -> str:
    """What all masks say, of the block with these dimensions that is loaded or stored."""
    found = [_comparison(scope, mask) for mask in masks]
    if any(not {*text.dims} <= {*written} for text in found):
        raise ValueError("a mask has a dimension that the block has not")
    return " & ".join(_broadcast(text, written) for text in found)


def _comparison(scope: Scope, mask: Mask) -> Text:
    pick, place = mask.pick, _pick(scope, mask.pick)
    lanes = pick.axis and scope.vector(pick.axis) and not pick.number
    vector = (pick.axis,) if lanes else ()
    if vector and not (pick.start or pick.back or pick.through):
        terms = [*map(_term, pick.terms), f"{pick.axis}.index"]
        terms[-1] += f" * {pick.factor}" if pick.factor != 1 else ""
        place = " + ".join([*terms, *([str(pick.shift)] if pick.shift else [])])
        place = place.replace("+ -", "- ")
    below = f"({place} < {mask.below})"
    begun = mask.first or pick.shift < 0
    return Text(vector, f"(({place} >= {mask.first}) & {below})" if begun else below)


def _float(scope: Scope, load: Load, text: Text) -> Text:
    if scope.program.tensor(load.tensor).dtype == "float32":
        return text
    return Text(text.dims, f"{text.text}.to(hl.float32)")


def _written(scope: Scope, index: tuple[Pick, ...]) -> tuple[str, ...]:
    """The dimensions of a value in the order of its index."""
    return tuple(p.axis for p in index if p.axis and scope.vector(p.axis) and not p.number)


def _index(scope: Scope, index: tuple[Pick, ...]) -> list[str]:
    return [_pick(scope, p) for p in index]


def _pick(scope: Scope, pick: Pick) -> str:
    """A position: the axis, then scalars, then the shift."""
    if not pick.axis:
        numbers = [str(pick.shift)] if pick.shift or not pick.terms else []
        return " + ".join([*map(_term, pick.terms), *numbers])
    axis = scope.program.axis(pick.axis)
    if axis.kind == "full" and pick.terms:
        raise ValueError("a part of a dimension that begins where loops or memory say")
    if axis.kind == "full":
        return f"{pick.shift}:{pick.shift + axis.size}" if pick.shift else ":"
    terms = [*map(_term, pick.terms), _along(axis, pick)]
    if pick.shift < 0:
        return f"{' + '.join(terms)} - {-pick.shift}"
    return " + ".join([*terms, *([str(pick.shift)] if pick.shift else [])])


def _along(axis: Axis, pick: Pick) -> str:
    if pick.number:
        return f"{pick.factor} * {axis.name}.id" if pick.factor != 1 else f"{axis.name}.id"
    if pick.through:
        told = f"{pick.through}[{axis.name}]"
        if pick.derived and axis.kind == "grid":
            return f"({told} + hl.arange(2)).amin(0)"
        pair = f"hl.expand_dims({told}, 1) + hl.expand_dims(hl.arange(2), 0)"
        return f"({pair}).amin(1)" if pick.derived else told
    lanes = f"{pick.factor} * {axis.name}.index" if pick.factor != 1 else f"{axis.name}.index"
    if pick.start:
        return f"{_first(axis)} + {lanes}"
    if pick.back:
        return f"{lanes} - {_first(axis)}"
    moved = pick.factor != 1 or pick.terms
    name = f"{axis.name}.index" if axis.kind == "tile" and moved else axis.name
    name = f"{name} // {pick.share}" if pick.share != 1 else name
    if pick.factor == 1:
        return name
    return f"{pick.factor} * ({name})" if pick.share != 1 else f"{pick.factor} * {name}"


def _permuted(value: Text, dims: tuple[str, ...]) -> str:
    if value.dims == dims:
        return value.text
    text = _atom(value.text)
    if len(dims) == 2:
        return f"{text}.T"
    order = tuple(value.dims.index(d) for d in dims)
    return f"hl.permute({text}, {order})"


def _broadcast(value: Text, dims: tuple[str, ...]) -> str:
    """The text with new dimensions where the value has none; scalars need none."""
    if not value.dims or value.dims == dims:
        return value.text
    index = ", ".join(":" if d in value.dims else "None" for d in dims)
    return f"{_atom(value.text)}[{index}]"


def _atom(text: str) -> str:
    """In parentheses unless it is a name, an element, or in parentheses already."""
    depth, closed = 0, []
    for place, sign in enumerate(text):
        depth += (sign in "([") - (sign in ")]")
        if depth == 0 and sign in ")]":
            closed.append(place)
    whole = closed == [len(text) - 1]
    element = text.partition("[")[0].isidentifier()
    return (
        text
        if text.replace(".", "").isidentifier() or (whole and (element or text[0] == "("))
        else f"({text})"
    )
