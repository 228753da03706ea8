"""Defaults: blocks, warps and stages that are good without tuning, by what the axes do.

The roles of axes follow from the products: rows and columns of a result, what is summed over, what
is repeated.  Blocks then shrink until shared memory holds what is in flight.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.codegen.triton.target import Target
from tilelang.ir import Axis, Dim, Load, definitions, every_expr, every_store
from tilelang.schedule.blocks import check_bounds, check_numbers, chosen
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

from . import hopper
from .alignment import BOX, LEAST_COPY, least_alignment
from .beside_sums import beside_sums
from .carried import beside, decays, is_latent, most_keys, states, tall
from .groups import group_tile
from .launch_memory import shared_bytes
from .lives import most_alive
from .results import of_loads
from .roles import Roles, longest_row, minor, products, roles, scattered, sums_scores, widest
from .rows import row_tile
from .shapes import (
    FEW_ROWS,
    WIDE,
    WIDEST,
    asynchronous,
    cut_both_ways,
    has_given_scores,
    is_flat,
    is_wide,
    length_of,
    most_rows,
    of_groups,
    operand_load,
    rows_of,
    side_by_side,
    with_few_warps,
)
from .sides import is_turned
from .specialized import WARPS
from .width import Width

# Blocks that hold a value of this many elements keep 4 to 8 warps busy with 16-byte accesses: four
# for each of 256 threads. Lanes of rows, and positions where there are only these, are guesses: no
# measurement of others is kept.
ELEMENTS, LANES, ALONE = 4096, 512, 1024
# Of an operand of float32 that the registers of 4 warps do not hold: seen in what ptxas made of
# attention; tests/gpu/matrix.py prints registers and spills of every example.
HELD = 8192
REGISTERS = 255  # ptxas aims for three programs of 4 warps on sm_89, and takes 255 on sm_80
PAIRED = 64  # positions at most that are compared with each other: ELEMENTS pairs of them
MANY = 4  # blocks of scores that are held at once, from which on registers spill by the compiler
# Elements of a value without products, and lanes to cut it down to, one for each thread of a warp:
# by the compiler, full rows of 32768 numbers do not spill on 16 warps; the most before was 16384.
LONGEST, LEAST = 32768, 32
# Elements of whole rows beside a product that 8 warps hold, and how many one of float32 counts as:
# by the compiler's figures of norms of sums, twice as many spill 24 to 328 bytes.
ROWS, EXACT = 16384, 4


def blocks_for(problem: Problem, config: Config, target: Target) -> dict[str, int]:
    """The block of every tile axis: the author's, the config's, or the default."""
    ir = problem.ir
    given = chosen(ir, config)
    for name, block in given.items():
        bounds = problem.bounds(name)
        if bounds is not None and isinstance(ir.axis(name).block, str):
            check_bounds(bounds, block)
    found = _start(problem, target, given)
    if not config.blocks and config.block_sizes is None:
        found = _fitting(problem, config, target, found)
    blocks = {n: min(b, max(length_of(problem, n), 1)) for n, b in found.items()}
    check_numbers(problem.facts, blocks)
    return blocks


def _start(problem: Problem, target: Target, given: Mapping[str, int]) -> dict[str, int]:
    """The first guess, before memory is looked at."""
    kernel_roles = roles(problem.ir)
    tiles = [a for a in problem.ir.axes if a.kind == "tile"]
    found = dict(given)
    for axis in tiles:
        if axis.name not in found and axis.name in kernel_roles.of:
            wanted = _multiplied(problem, kernel_roles, axis, target)
            found[axis.name] = _within(problem, axis, wanted)
    picked = scattered(problem.ir)
    for axis in sorted(
        (a for a in tiles if a.name not in found), key=lambda a: minor(problem.ir, a.name)
    ):
        wanted = _elementwise(problem, axis, found, kernel_roles)
        wanted = min(wanted, PAIRED) if axis.name in picked else wanted
        found[axis.name] = _within(problem, axis, wanted)
    for names in problem.registered:
        open_names = [n for n in names if n not in given]
        if open_names:
            found |= dict.fromkeys(open_names, min(found[n] for n in open_names))
    return {a.name: found[a.name] for a in tiles}


def _within(problem: Problem, axis: Axis, wanted: int) -> int:
    """A block no longer than the axis, and one that the author allows."""
    block = max(min(wanted, power_of_two(length_of(problem, axis.name))), 1)
    bounds = problem.bounds(axis.name)
    return block if bounds is None else bounds.nearest(block)


def _multiplied(problem: Problem, found: Roles, axis: Axis, target: Target) -> int:
    """The block of an axis of products."""
    role, narrow = found.of[axis.name], found.itemsize <= 2
    if "batch" in role:
        return 1
    measured = hopper.block(problem, found, axis=axis, target=target)
    if measured is not None:
        return measured
    if found.fused:
        return _fused(problem, found, axis, target)
    few = narrow and most_rows(problem, found) <= FEW_ROWS
    if role != {"summed"} and cut_both_ways(problem, found):
        return rows_of(problem, axis, 64 if narrow or role == {"columns"} else 32)
    if role == {"summed"} and not narrow:
        # what is turned with weights of positions is in registers twice: 32 spilled 384 bytes
        return 16 if target.matrix_warps == 1 and _turned_apart(problem) else 32
    if role == {"summed"}:
        return (256 if few else 64) // _addresses(problem, found, target)
    if role == {"columns"} and few:
        return 64
    if role == {"columns"} and is_wide(problem, found, target):
        return WIDE[1]
    if role == {"columns"}:
        # results of several products of one operand: what the registers of 8 warps hold
        several = found.count > 1 and target.matrix_warps == 1
        return (128 if narrow else 64) // (2 if several else 1)
    row = _row(problem, found)
    held = max(ROWS // row, 8 if row < ROWS else 4)  # as a norm before the product does
    return rows_of(problem, axis, min(128 if narrow else 64, held))


def _turned_apart(problem: Problem) -> bool:
    """Whether left operands of wide results are computed, not of loads alone, and turned."""
    made = definitions(problem.ir.body)
    turned = (d.args[0] for d in products(problem.ir) if is_turned(d))
    found = (e for e in turned if operand_load(e) is None and not of_loads(e, made))
    return widest(problem.ir) >= WIDEST and any(found)


def _row(problem: Problem, found: Roles) -> int:
    """The longest row, in numbers of which each takes a register at most."""
    return longest_row(problem.ir) * (1 if found.itemsize <= 2 else EXACT)


def _fused(problem: Problem, found: Roles, axis: Axis, target: Target) -> int:
    """The block of an axis of products of which one feeds another."""
    role = found.of[axis.name]
    if role == {"columns"}:
        # of the last product alone: each tile of them computes the others again
        if found.itemsize > 2 and states(problem.ir):
            # by the compiler's figures 64 of a state spill 952 bytes; of 128 rows 32 spill 328 on
            # sm_80, and 16 none, or 56 where it decays; so do 32 of a state of 64 rows, 72 bytes,
            # beside scores of as many
            alone = target.matrix_warps == 1 and has_given_scores(problem)
            return 16 if tall(problem.ir) or alone else 32
        given = found.itemsize > 2 and has_given_scores(problem)
        if given and target.matrix_warps == 1:
            return 32
        return 64 if given or beside(problem.ir, found) or tall(problem.ir) else 128
    parallel = problem.fact(axis.name).kind == "parallel"
    # tiles of scores alone have no wide results beside them
    times = max(widest(problem.ir, axis.name if role == {"summed"} else None) // WIDEST, 1)

    def fewer(block: int) -> int:
        return max(block // times, 16)

    if side_by_side(problem, found, target):
        rows = 64 if sums_scores(problem.ir, found) else fewer(128)
        return min(rows if parallel else fewer(64), 64)
    if found.itemsize > 2:  # three products of tf32 for one: what registers hold
        if target.matrix_warps == 1 and decays(problem.ir):
            return 8  # of 16 rows 8 and 32 bytes spill on sm_89
        # of 512 columns 32 keys spill 32 bytes where each warp multiplies
        few = times >= 4 and target.matrix_warps == 1
        return 16 if parallel or found.backward or few else 32
    many = most_alive(problem.ir) >= MANY
    together = target.matrix_warps > 1
    if found.backward:
        block = fewer(32 if many and not parallel else 64)
        return block if parallel else min(block, most_keys(problem.ir, target))
    # where each warp multiplies, operands take registers, and rows keep warps apart
    if parallel:
        rows = fewer(64 if many and (together or found.count == 2) else 128)
        rows = max(rows, 64) if asynchronous(target) and sums_scores(problem.ir, found) else rows
        return rows_of(problem, axis, min(rows, 64) if is_latent(problem.ir, target) else rows)
    return fewer(64) if together else min(fewer(64), 32)


def _addresses(problem: Problem, found: Roles, target: Target) -> int:
    """What addresses cost in registers: a block that products sum over is so many times shorter.

    By the compiler's figures for 128 x 128 results: numbers that have an address each spill 232
    bytes of 64, and 24 bytes of boundaries of 8 bytes where warps multiply rows of groups.
    """
    cut = target.matrix_warps == 1 and of_groups(problem, found)
    return 2 if least_alignment(problem.ir) < (BOX if cut else LEAST_COPY) else 1


def _elementwise(
    problem: Problem, axis: Axis, found: Mapping[str, int], kernel_roles: Roles
) -> int:
    """The block of an axis without products: values of a few thousand elements."""
    shapes = {v.type.shape for v in every_expr(problem.ir.body)}
    beside = max((_beside(shape, axis.name, found) for shape in shapes), default=1)
    own = [shape for shape in shapes if axis.name in shape]
    alone, around = all(len(shape) < 2 for shape in own), {d for shape in own for d in shape}
    if not around.isdisjoint(kernel_roles.of):  # an operand's other dimension
        return 128 if beside <= 128 else max(ELEMENTS * 4 // beside, 16)
    if alone:
        return ALONE
    if any(shape.count(axis.name) > 1 for shape in own):
        return PAIRED
    if _paired(problem, axis.name, around):
        return max(min(ELEMENTS // beside, PAIRED), 1)
    tile, row = group_tile(problem), row_tile(problem)
    if row is not None and axis.name in row.axes:
        return row.columns
    if row is not None:
        return max(row.elements // beside, 1)
    if minor(problem.ir, axis.name) == 0:
        widest = LANES if tile is None else tile.columns
        return min(widest, max(LONGEST // beside, LEAST))
    if tile is not None and problem.rises(axis.name):
        return max(min(tile.rows, tile.elements // beside), 1)
    return max(ELEMENTS // beside, 1)


def _paired(problem: Problem, axis: str, around: Collection[Dim]) -> bool:
    """Whether values go along it and another tile, and no array does: pairs of positions."""
    held = {e.type.shape for e in every_expr(problem.ir.body) if isinstance(e, Load)}
    held |= {store.value.type.shape for store in every_store(problem.ir.body)}
    together = {axis, *(d for shape in held if axis in shape for d in shape)}
    return any(isinstance(d, str) and d not in together for d in around)


def _beside(shape: tuple, axis: str, found: Mapping[str, int]) -> int:
    """Elements of a value for each position of the axis."""
    if axis not in shape:
        return 1
    rest = (d for d in shape if d != axis)
    return prod(power_of_two(d) if isinstance(d, int) else found.get(d, 1) for d in rest)


# ---------------------------------------------------------------- memory


def _fitting(
    problem: Problem, config: Config, target: Target, blocks: dict[str, int]
) -> dict[str, int]:
    """Blocks whose operands in flight fit into shared memory; summed axes shrink first.

    Down to the rows and columns of one instruction; if that is too much, to half of its rows.
    """
    kernel_roles = roles(problem.ir)
    fixed = {a.name for a in problem.ir.axes if a.fixed is not None}
    while True:
        width = width_for(problem, config, target, blocks)
        if _needed(problem, blocks, width, target) <= target.shared:
            return blocks
        own = {n: role for n, role in kernel_roles.of.items() if n in blocks and n not in fixed}
        free = [n for n in own if blocks[n] > 16]
        free = free or [n for n, role in own.items() if role == {"rows"} and blocks[n] > 8]
        if not free:
            return blocks
        order = sorted(free, key=lambda n: ("summed" not in kernel_roles.of[n], -blocks[n]))
        blocks = {**blocks, order[0]: blocks[order[0]] // 2}


def width_for(problem: Problem, config: Config, target: Target, blocks: Mapping[str, int]) -> Width:
    """Warps and stages for given blocks, where the config leaves them open."""
    found = roles(problem.ir)
    first = _products(problem, found, blocks, target) if found.count else _plain(problem, blocks)
    measured = hopper.width(problem, found, target, config, blocks, first)
    if is_flat(problem, found, target, config, blocks):
        first = replace(first, stages=4, flat=True, resident=1)
    elif measured is not None:
        first = measured if config.persistent is None else replace(measured, resident=0)
    if config.warp_specialize:
        first = replace(first, warps=WARPS)
    precision = config.precision or ("tf32x3" if found.count and found.itemsize == 4 else "ieee")
    warps = config.warps or first.warps
    width = replace(
        first,
        warps=warps,
        stages=config.stages or first.stages,
        precision=precision,
        repeats=first.resident > 0 or bool(config.persistent),
        registers=first.registers and min(first.registers, target.registers_of(warps)),
    )
    given = bool(config.blocks) or config.block_sizes is not None
    tight = found.fused and not target.columns
    least = all(block <= 16 for name, block in blocks.items() if name in found.of)
    # shorter blocks would spill, or there are none
    norm = found.itemsize == 4 and longest_row(problem.ir) > 1
    sums = [problem.ir.axis(name).fixed for name, role in found.of.items() if role == {"summed"}]
    fixed = bool(sums) and None not in sums
    held = given or found.fused or least or norm or fixed or cut_both_ways(problem, found)
    room = target.shared * 2 // 3 if tight else target.shared if held or measured else None
    if width.paired:
        room = hopper.pair(target)
    while config.stages is None and width.stages > 1 and room is not None:
        # attention has few registers to spare: addresses of large blocks in flight take the last
        if _needed(problem, blocks, width, target) <= room:
            break
        width = replace(width, stages=width.stages - 1)
    return width


def in_boxes(
    problem: Problem, config: Config, target: Target, width: Width, blocks: Mapping[str, int]
) -> bool:
    """Whether descriptors copy what products read, where the config leaves that open.

    By the compiler's figures for all examples: on sm_90 asynchronous products that are fed ahead
    have up to 81 registers more for results, because nothing computes addresses.  Without stages,
    and where warps multiply by themselves, boxes pass through shared memory once more and registers
    spill; on sm_100, which adds up results elsewhere, one of 30 kernels spills, and 4 take more.
    """
    if config.warp_specialize:
        return True
    if config.indexing is not None or not (target.boxes and target.scratch):
        return config.indexing == "descriptor" and target.scratch
    pipe, dots, found = width.pipe(target), products(problem.ir), roles(problem.ir)
    if width.flat or width.boxes:
        return True
    if hopper.by_pointers(problem, found):
        return False
    if found.count == 1 and of_groups(problem, found):
        return False  # 0.95 of the time on an H100: no group needs descriptors of its own
    ahead = bool(dots) and width.stages > 1 and not target.columns
    return ahead and all(pipe.asynchronous(d, blocks) for d in dots)


def _needed(problem: Problem, blocks: Mapping[str, int], width: Width, target: Target) -> int:
    return shared_bytes(problem.ir, problem.facts, blocks, width.pipe(target))


def _elements(shape: tuple, blocks: Mapping[str, int]) -> int:
    return prod(power_of_two(d if isinstance(d, int) else blocks.get(d, 1)) for d in shape)


def _products(problem: Problem, found: Roles, blocks: Mapping[str, int], target: Target) -> Width:
    results = dict.fromkeys(products(problem.ir))
    sizes = [_elements(r.type.shape, blocks) for r in results] * (1 + beside_sums(problem.ir))
    largest = max(sizes) if found.fused else sum(sizes)
    # warps that multiply by themselves hold three times the operands of products of float32
    wide = found.itemsize == 4 and target.matrix_warps == 1
    held = max(_elements(a.type.shape, blocks) for r in results for a in r.args)
    three = found.fused and found.itemsize == 4
    # so do addresses of numbers that are read one by one: 128 x 191 of 8 bits spilled 216 bytes
    addressed = held > HELD and least_alignment(problem.ir) < LEAST_COPY
    tight = (
        found.backward
        or addressed
        or cut_both_ways(problem, found)
        or (three and (found.count > 2 or held >= HELD))
    )
    rows = max((blocks.get(a, 1) for a, role in found.of.items() if role == {"rows"}), default=1)
    long = 0 if found.fused else rows * _row(problem, found)
    # 64 x 64 of operands that both are computed, each in two parts, spill 96 bytes on 4 warps
    made = wide and all(operand_load(a) is None for r in results for a in r.args)
    tight = tight or long > ROWS // 2 or made
    warps = 8 if largest >= 128 * (64 if found.fused or wide else 128) or tight else 4
    # threads of 16 warps have 128 registers, of which three products take most: 280 bytes
    warps = 16 if long > ROWS and found.itemsize < 4 else warps
    stages = 2 if found.fused or found.count > 1 else 3
    if found.fused and side_by_side(problem, found, target):
        rows = max(blocks.get(a, 1) for a, role in found.of.items() if "rows" in role)
        # a sum of 128 x 128 beside 64 rows spilled 8 bytes of 4 warps
        few = rows <= 64 and most_alive(problem.ir) < MANY and largest <= 64 * WIDEST
        few = few and widest(problem.ir) <= WIDEST
        warps, stages = (4 if few else 8), 3 if rows <= 64 else 2
    elif with_few_warps(problem, found, target):
        warps = 4
    elif three and states(problem.ir) and has_given_scores(problem) and asynchronous(target):
        warps = 4  # 8 cut 64 rows in two, and 16 to 320 bytes spill on sm_90
    if found.count == 1 and not found.fused and _deep(problem, found, target, blocks):
        stages = 4
    if _nothing_ahead(problem, found, target):
        stages = 1
    # where groups cut the rows of results a third of the registers, 168, is too few for some, and
    # half of them where results of another product are beside: 16 bytes on sm_89
    cut = wide and warps == 4 and not found.fused and of_groups(problem, found)
    cut = cut or (target.matrix_warps == 1 and beside(problem.ir, found))
    # for attention in float32 ptxas takes 199 to 234 on sm_100, and 168 for ragged rows and keys,
    # which spilled 8 bytes; allowed more it takes 180; of the 128 that it aims for on sm_80, too
    attends = found.fused or target.columns > 0
    cut = cut or (three and warps == 4 and attends and not found.backward)
    # a state in float32 spills, and ptxas gives up: of 32 registers it spills 22,136 bytes
    cut = cut or (three and bool(states(problem.ir)))
    # norms of 256 numbers take 148, and of the 128 that it aims for spilled 16 bytes on sm_80; so
    # did the largest scores of ranges by ranges on sm_90, and 24 bytes on sm_100
    both = found.itemsize == 4 and not wide and cut_both_ways(problem, found)
    cut = cut or (warps == 8 and (both or (wide and long > 0)))
    return Width(
        warps, stages, "ieee", True, interiors=not found.backward and target.matrix_warps > 1,
        registers=REGISTERS if cut else None,
        tight=three and decays(problem.ir),
    )  # fmt: skip


def _nothing_ahead(problem: Problem, found: Roles, target: Target) -> bool:
    """Whether fused products have no registers for addresses of what would be copied ahead.

    Beside a state of bfloat16 two stages spill nothing, of 128 x 128 and of 64 x 64.
    """
    three = found.fused and found.itemsize == 4
    given = three and target.matrix_warps == 1 and has_given_scores(problem)
    latent = is_latent(problem.ir, target) and widest(problem.ir) == 2 * WIDEST
    all_taken = three or not (target.columns or states(problem.ir))
    return (
        (found.backward and all_taken) or given or latent or hopper.computes(problem, found, target)
    )


def _deep(problem: Problem, found: Roles, target: Target, blocks: Mapping[str, int]) -> bool:
    """Whether one product is fed four steps ahead: 3 are better only for 128 x 256 of one array."""
    if most_rows(problem, found) <= FEW_ROWS:
        return True
    columns = max((b for a, b in blocks.items() if found.of.get(a) == {"columns"}), default=1)
    narrow = found.itemsize == 2 and target.matrix_warps > 1 and not target.columns
    return narrow and (columns < WIDE[1] or of_groups(problem, found))


def _plain(problem: Problem, blocks: Mapping[str, int]) -> Width:
    largest = max((_elements(v.type.shape, blocks) for v in every_expr(problem.ir.body)), default=1)
    tile = group_tile(problem) or row_tile(problem)
    if tile is not None:
        return Width(tile.warps(largest), tile.stages, "ieee", False, interiors=False)
    warps = 16 if largest >= LONGEST else min(max(largest // 512, 1), 8)
    return Width(warps, 1, "ieee", False, interiors=False)
