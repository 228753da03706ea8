"""work(body, core, trips) -> Work: what the units of a core do in one run of some statements.

    acc = dot(x[tm, tk], w[tk, tn]) + acc    matrix units: the product; memory: acc
    p = exp(s - m[:, None])                  ALU and special unit: s; lanes: m is spread over them

Counts are of vector registers (8 x 128 numbers of 32 bits) and of cycles of matrix units.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import assert_never

from tilelang.codegen.pallas.chips import Chip
from tilelang.codegen.pallas.plan.axis import AxisPlan
from tilelang.codegen.pallas.plan.lives import SHAPES
from tilelang.codegen.pallas.plan.moved import MovedRows
from tilelang.codegen.pallas.plan.physical import (
    Bind,
    Diagonals,
    GroupSum,
    Inner,
    InRange,
    Keep,
    Kept,
    LaneGather,
    PExpr,
    PStmt,
    Read,
    Roll,
    RowsFrom,
    TakeRows,
    Write,
    walk_physical,
)
from tilelang.ir import Apply, Const, TileIndex, Type, Var
from tilelang.ir.traversal import dots
from tilelang.language.dtypes import itemsize
from tilelang.language.op import REDUCTIONS

from .rotations import LANES, Rotated, rotations

Axes = Mapping[str, AxisPlan]
Trips = Mapping[str, float]
Working = (
    Apply | Diagonals | LaneGather | GroupSum | MovedRows | RowsFrom | TakeRows | Roll | Read | Kept
    | Rotated
)  # fmt: skip
Parts = dict[int, tuple[Working, ...]]
# What of a value is more than this lives in memory; of 64, a guess: with 32, 48 and 64 the mean
# error of benchmarks/calibrate.py is 0.1627, 0.1623, 0.1628 on v5e; 0.187, 0.187, 0.188 on v6e.
REGISTERS = 48

# Independent iterations in one step hide what each waits for: so many of them each other's chains,
# and of what goes between lanes the latency.  By schedules of v6e of attention in eight kinds; in
# benchmarks/schedules.json nearly none has any: 3 to 12, 0.3 to 0.7 change the error by 0.0002.
BESIDE, LANES_BESIDE = 6, 0.45

# Operations of the ALU for one register, where it is not one: counted in libtpu's schedules.  The
# error of benchmarks/calibrate.py is 0.162 on v5e and 0.187 on v6e; 0.163, 0.201 where all are 1,
# 0.170 and 0.199 with 1.5 times as many, 0.161 and 0.192 with 1.5 times less.
ALU = {
    "exp": 3, "exp2": 2, "div": 4, "log": 6, "log2": 6, "log1p": 8, "rsqrt": 3, "sqrt": 4,
    "tanh": 4, "sigmoid": 6, "silu": 7, "softplus": 12, "sin": 20, "cos": 20, "erf": 20,
    "gelu_tanh": 12, "gelu_erf": 24, "pow": 12, "logical_and": 0.5, "logical_or": 0.5,
    "logical_not": 0.5,
}  # fmt: skip
# Of a quotient by one number a row, over which one is computed once for all registers of the row:
# softmax of 16384 x 4096 numbers in tiles of 256 rows was estimated to work for 1.23 times as long
# as by v6e's schedules, and is now for 1.04; of 512 rows on v5e 1.21 and 1.01.  Of one number a
# column the same was tried: tiles of 512 rows, whose values are spilled, were taken for jagged
# softmax, and take 1.2 of the time.
SHARED = 2
# What the special unit has a part in, as the same schedules show; without any 0.188 on v6e.
SPECIAL = {"exp", "exp2", "div", "log", "log2", "log1p", "rsqrt", "sqrt", "tanh", "sigmoid", "silu"}
# A row is turned by its number, beside as many lanes as there are rows: 6.3 cycles a register in
# schedules of v6e, and 6.7 in v5e's, of 40 blocks of 128 x 128 that are added up.
TURNED = 2.3
# A register gathers from the lanes of another one: 3.3 cycles in schedules of v6e, 20 gathers of
# blocks of 128 x 128 that are added up.
GATHERED = 1.8
FREE = {*SHAPES, "dot"}


# What is done, as often as it is done:
# matrix   cycles in which the matrix units multiply
# sums     registers of products that are added to an accumulator
# alu, special, memory  operations on registers: arithmetic, exp and the like, loads and stores
# lanes    registers that go through the unit that moves numbers between lanes
# rotated  registers that go through it so that what they meet is in the same lanes
# columns  operations on values of one lane
# turns    of loops inside the step
# chain    results that the next operation waits for: products and sums over lanes
# deep     registers of a row that are folded one after another, before its lanes are
# rows     single rows that are picked or put
# spills   registers of values that are stored because there are too few registers
# pipes    pipelines inside the step that begin, and `piped` their turns
TERMS = (
    "matrix", "sums", "alu", "special", "memory", "lanes", "rotated", "columns", "turns", "chain",
    "deep", "rows", "spills", "pipes", "piped",
)  # fmt: skip
Work = dict[str, float]  # of those that are done at all


def add(found: Work, more: Work, times: float = 1) -> None:
    """Adds what is done so many times."""
    for term, amount in more.items():
        found[term] = found.get(term, 0) + times * amount


@dataclass(frozen=True)
class Core:
    """What work depends on besides the statements and how often loops turn: blocks, and the chip.

    parts  what makes work in the values that were met, by their identity, and what statements
           move along the lanes besides, by theirs: the same for all blocks
    done   the work of statements so far, by theirs
    lanes  names of columns that are in all lanes
    """

    axes: Axes
    chip: Chip
    parts: Parts = field(default_factory=dict)
    done: dict[int, Work] = field(default_factory=dict)
    lanes: set[str] = field(default_factory=set)

    def shape(self, value: Type) -> tuple[int, ...]:
        return tuple(d if isinstance(d, int) else self.axes[d].size for d in value.shape)

    def registers(self, value: Type) -> float:
        """How many a value fills."""
        return registers(self.shape(value), value.dtype)


def registers(shape: tuple[int, ...], dtype: str) -> float:
    """Vector registers that an array of that shape fills, narrow types packed."""
    if not shape:
        return 0
    *lead, rows, lanes = (1, *shape)[-max(len(shape), 2) :]
    held = 4 if dtype == "bool" else itemsize(dtype)
    return math.prod(lead) * -(-rows // (32 // min(held, 4))) * -(-lanes // 128)


def work(body: Iterable[PStmt], core: Core, trips: Trips) -> Work:
    """The work of statements, loops inside included; `trips` says how often those turn."""
    found, stmts = Work(), tuple(body)
    if any(id(stmt) not in core.parts for stmt in stmts):
        core.parts.update(rotations(stmts))
    for stmt in stmts:
        if isinstance(stmt, Inner):
            add(found, _turned(stmt, core, trips), trips[stmt.axis] / stmt.together)
            add(found, {"pipes": 1} if stmt.form == "pipeline" else {})
            continue
        if id(stmt) not in core.done:
            core.done[id(stmt)] = _stated(stmt, core)
        add(found, core.done[id(stmt)])
    return found


def _turned(stmt: Inner, core: Core, trips: Trips) -> Work:
    """The work of one turn of a loop inside."""
    turn = work(stmt.body, core, trips)
    within = stmt.axis in core.axes and core.axes[stmt.axis].place == "within"
    if within or stmt.ahead or stmt.unroll > 1:
        alone = work((s for s in stmt.body if isinstance(s, Inner)), core, trips)
        several = trips[stmt.axis] / stmt.together if stmt.unroll == 1 else stmt.unroll
        turn = _beside(turn, alone, several)
    add(turn, {"piped": 1} if stmt.form == "pipeline" else {"turns": 1 / stmt.unroll})
    for carry in stmt.carries:
        add(turn, _evaluated(carry.next, core))
    return turn


def _beside(turn: Work, alone: Work, turns: float) -> Work:
    """The work of one of several iterations that wait for nothing of each other.

    Loops of its own stand `alone`: those of one iteration come after those of the one before.
    """
    hidden = {"chain": 1 / min(max(turns, 1), BESIDE), "lanes": LANES_BESIDE}
    saved = {t: (1 - part) * (turn.get(t, 0) - alone.get(t, 0)) for t, part in hidden.items()}
    return {term: amount - saved.get(term, 0) for term, amount in turn.items()}


def _stated(stmt: Bind | Keep | Write, core: Core) -> Work:
    found = _evaluated(stmt.value, core)
    add(found, _done(core.parts[id(stmt)], core))
    size = core.registers(stmt.value.type)
    match stmt:
        case Write(value=MovedRows()):
            pass
        case Write(value=value, rows=put):
            add(found, {"memory": size, "rows": _length(value.type, core) if put else 0})
        case Keep(value=value):
            add(found, {**_spilled(value, core), "memory": size})
        case Bind(name=name, value=value):
            add(found, _spilled(value, core))
            core.lanes.update({name} if _in_all_lanes(value, core) else ())
        case _:
            assert_never(stmt)
    return found


def _length(value: Type, core: Core) -> int:
    return core.shape(value)[0] if value.shape else 1


def _spilled(value: PExpr, core: Core) -> Work:
    """What of a value does not fit the registers is stored; sums of products have their place."""
    size, shape = core.registers(value.type), core.shape(value.type)
    if len(shape) < 2 or size <= REGISTERS or shape[-1] == 1 or _adds_product(value):
        return {}
    return {"spills": size - REGISTERS}


def _adds_product(value: PExpr) -> bool:
    if not isinstance(value, Apply):
        return False
    through = value.op in ("add", "cast", "where", "mul")
    return value.op in ("dot", "full") or (through and any(map(_adds_product, value.args)))


def _evaluated(value: PExpr, core: Core) -> Work:
    if id(value) not in core.parts:
        core.parts[id(value)] = _parts(value)
    return _done(core.parts[id(value)], core)


def _done(parts: tuple[Working, ...], core: Core) -> Work:
    found: Work = {}
    for part in parts:
        match part:
            case Apply():
                add(found, _applied(part, core))
            case TakeRows():
                add(found, {"rows": _length(part.type, core)})
            case GroupSum():
                add(found, _group_sum(part, core))
            case MovedRows():
                add(found, _moved(part, core))
            case Roll():
                add(found, _turned_round(part, core))
            case Diagonals():
                rows, columns = core.shape(part.type)
                add(found, {"rotated": TURNED * rows / 8 * (-(-columns // 128) + 1)})
            case LaneGather():
                size = core.registers(part.type) * -(-core.shape(part.table.type)[-1] // 128)
                add(found, {"rotated": GATHERED * size, "alu": 4 * size})
            case RowsFrom():  # the block goes to scratch memory, and rows come from there
                size = core.registers(part.type)
                add(found, {"memory": 4 * size, "alu": 7 * size})
            case Rotated():
                add(found, {"rotated": _rotated(part, core)})
            case Read() | Kept():
                add(found, {"memory": core.registers(part.type)})
            case _:
                assert_never(part)
    return found


def _parts(value: PExpr) -> tuple[Working, ...]:
    """What makes work in a value: a product streams its operands from where they are."""
    parts = list(walk_physical(value))
    fed = {id(a) for p in dots(parts) for a in p.args}
    fed |= {id(p.source) for p in parts if isinstance(p, MovedRows | RowsFrom)}
    return tuple(
        p
        for p in parts
        if (isinstance(p, Apply) and _works(p))
        or isinstance(p, TakeRows | GroupSum | MovedRows | Diagonals | LaneGather | Roll | RowsFrom)
        or (isinstance(p, Read | Kept) and id(p) not in fed)
    )


def _works(expr: Apply) -> bool:
    if expr.op == "dot" or expr.op in REDUCTIONS:
        return True
    return expr.op not in FREE and bool(expr.type.shape)


def _applied(expr: Apply, core: Core) -> Work:
    if expr.op == "dot":
        return _product(expr, core)
    if expr.op in REDUCTIONS:
        return _reduced(expr, core)
    size, shape = core.registers(expr.type), core.shape(expr.type)
    narrowing = expr.op == "cast" and itemsize(expr.type.dtype) < 4
    each = 0.5 if narrowing else ALU.get(expr.op, 1)
    special = size if expr.op in SPECIAL else 0
    if expr.op == "div" and shape[-1] > 1 and _one_lane(expr.args[1], core):
        each, special = SHARED, size / -(-shape[-1] // 128)
    if shape[-1] == 1:
        return {"columns": size * each, "special": special}
    spread = sum(core.registers(a.type) for a in expr.args if _column(a, core))
    return {"alu": size * each, "special": special, "lanes": spread}


def _one_lane(value: PExpr, core: Core) -> bool:
    """Whether a value has one number a row, which is repeated over the lanes."""
    shape = core.shape(_repeated(value).type)
    return len(shape) >= 2 and shape[-1] == 1


def _column(arg: PExpr, core: Core) -> bool:
    """Whether an operand has one number a row, which is spread over the lanes."""
    arg = _repeated(arg)
    if isinstance(arg, TileIndex | InRange) or not getattr(arg, "type", None):
        return False
    column = _one_lane(arg, core) and math.prod(core.shape(arg.type)) > 1
    return column and not _in_all_lanes(arg, core)


def _repeated(value: PExpr) -> PExpr:
    """What a value repeats along some of its dimensions."""
    while isinstance(value, Apply) and value.op in ("broadcast", "expand_dims"):
        value = value.args[0]
    return value


def _in_all_lanes(value: PExpr, core: Core) -> bool:
    """Whether each lane has the number of its row: what reductions over lanes give, and numbers,
    and what is made of these alone."""
    match value:
        case Var(name):
            return name in core.lanes
        case Apply("dot" | "transpose"):
            return False
        case Apply(op, args):
            return op in REDUCTIONS or all(_in_all_lanes(a, core) for a in args)
        case _:
            return isinstance(value, Const)


def _reduced(expr: Apply, core: Core) -> Work:
    arg = expr.args[0]
    size = core.registers(arg.type)
    kept = {} if isinstance(arg, Read | Var) else _spilled(arg, core)
    if expr.attr("axis") not in (-1, len(arg.type.shape) - 1):
        return {**kept, "alu": size}
    rows = math.prod(core.shape(arg.type)[:-1]) / 8
    return {**kept, "alu": size, "lanes": rows, "chain": 1, "deep": core.shape(arg.type)[-1] / 128}


def _group_sum(expr: GroupSum, core: Core) -> Work:
    """A product with the matrix of members, or three of the parts of float32, and what tests it."""
    groups, rows = core.shape(expr.member.type)
    parts = 1 if expr.rows.type.dtype == "bfloat16" else 3
    units, side = core.chip.units, 128 * core.chip.units.results
    columns = core.shape(expr.rows.type)[-1]
    streamed = max(groups * units.multiply / 8, side / 4)
    matrix = parts * -(-rows // side) * -(-columns // side) * streamed / units.matrix
    sums, own = core.registers(expr.type), core.registers(expr.rows.type)
    members = 7 * core.registers(expr.member.type)  # made of comparisons, packed, and laid out
    alu = 2 * sums + members + (6 * own if parts > 1 else 0)
    return {
        "matrix": matrix, "sums": parts * sums, "alu": alu, "chain": 3, "lanes": groups / 8
    }  # fmt: skip


def _rotated(value: Rotated, core: Core) -> float:
    """Registers that it fills from its lane on; those of a single one in a row have eight rows."""
    *lead, lanes = core.shape(value.type)
    wide = value.lane + lanes > LANES
    dtype = value.type.dtype if wide else "float32"
    return registers((*lead, value.lane + lanes), dtype)


def _turned_round(expr: Roll, core: Core) -> Work:
    """Rows that are turned by a number that is read: by each power of two or not, register by
    register, with both in sight and more of them than there are registers.

    With these figures padded_to_jagged in tiles of 64 to 512 rows is estimated to work for
    0.73 to 1.06 of what schedules of v6e and v5e take; without its turns for 0.28 to 0.65.
    """
    size, shape = core.registers(expr.type), core.shape(expr.type)
    if expr.dim == len(shape) - 1:
        return {"lanes": size}
    if isinstance(expr.by, Const):  # a register is turned, and takes some rows of the next one
        return {"alu": 2 * size}
    rounds = max(math.log2(shape[expr.dim] / 8), 0)
    return {"alu": (2 * rounds + 10) * size}


def _moved(expr: MovedRows, core: Core) -> Work:
    """Rows of a tile go through scratch memory and are put beside what is there; groups in turn."""
    flat = expr.source.type if expr.to_box else expr.type
    size = core.registers(flat)
    return {"memory": 3.5 * size, "alu": 7 * size, "rows": 2 * core.axes[expr.groups].size}


def _product(expr: Apply, core: Core) -> Work:
    """The operand that stays in the units is changed for each of its tiles; the other streams.

    Factors of float32 are multiplied as bfloat16: libtpu's schedules are as long for them.
    """
    a, b = expr.args
    left, right = core.shape(a.type), core.shape(b.type)
    (i, j), (batch, of_b) = expr.attr("contract"), expr.attr("batch", ((), ()))
    rows = math.prod(d for at, d in enumerate(left) if at != i and at not in batch)
    columns = math.prod(d for at, d in enumerate(right) if at != j and at not in of_b)
    each = math.prod(left[at] for at in batch)
    units, side = core.chip.units, 128 * core.chip.units.results
    streamed = max(rows * units.multiply / 8, side / 4)
    tiles = -(-left[i] // side) * -(-columns // side)
    sums = each * -(-rows // 8) * -(-columns // 128)
    return {"matrix": each * tiles * streamed / units.matrix, "sums": sums, "chain": 1}
