"""Shapes: which products and sums want blocks of another form, by what was measured.

The times were taken on an H100 (80 GB HBM3, torch 2.11.0, Triton 3.6.0, 2026-11-23) in bfloat16 by
`benchmarks/gpu.py`, whose page is docs/gpu-performance.md.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilelang.codegen.triton.passes.pad_dims import power_of_two
from tilelang.codegen.triton.target import Target
from tilelang.ir import Apply, Axis, Expr, Gather, KernelIR, Load, every_expr
from tilelang.language.op import REDUCTIONS
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

from .alignment import BOX, least_alignment
from .beside_sums import beside_sums
from .roles import Roles, products, summed, widest

# Columns of results that stay in registers while another product runs; twice as many take half of
# the rows and keys: 128 x 256 spilled 344 bytes on 8 warps, 64 x 256 none, 32 x 512 none.
WIDEST = 128
GIVEN = 64  # rows and keys that an author fixed, from which on float32 spills
WIDE = (128, 256)  # rows and columns of a product at most
# Rows of which the other operand takes all the time to read: 16 x 64 x 256 in 4 stages takes half
# of the time of 16 x 128 x 64 in 3 (16 x 4096 x 4096).
FEW_ROWS = 32


def of_groups(problem: Problem, found: Roles) -> bool:
    """Whether the rows of a product are those of groups."""
    return any(problem.rises(a) for a, role in found.of.items() if role == {"rows"})


def side_by_side(problem: Problem, found: Roles, target: Target) -> bool:
    """Whether attention over groups takes one group of warps for 64 rows, several programs beside.

    By times on an H100 of sequences of 2048 rows and of skewed ones, 64 and 128 wide, causal or
    not: 1.3 to 1.8 times quicker than 128 rows of 8 warps, whose programs wait alone for what they
    tell the descriptors of each sequence.  Rows that are not ragged tell that once, and are 1.2
    times quicker 128 at a time.
    """
    if found.itemsize > 2 or found.backward or not boxed(target):
        return False
    rows = [a for a, role in found.of.items() if "rows" in role and "summed" not in role]
    tiles = any("summed" in role for role in found.of.values())  # pages are as long as they are
    return tiles and any(problem.rises(name) for name in rows)


def with_few_warps(problem: Problem, found: Roles, target: Target) -> bool:
    """Whether attention over known ranges has 4 warps for 128 rows instead of 8.

    By times on an H100 (4 x 16 x 4096 x 128): 1065 us instead of 1490 where every row sees all
    keys; where the keys end at a diagonal, 759 instead of 635.
    """
    keys = [a for a, role in found.of.items() if "summed" in role]
    known = all(problem.axis(a).static is not None for a in keys)
    narrow = found.itemsize <= 2 and found.count == 2
    small = widest(problem.ir) <= WIDEST
    return narrow and small and bool(keys) and known and found.fused and boxed(target)


def boxed(target: Target) -> bool:
    """Whether descriptors feed asynchronous products whose results are in registers."""
    return target.boxes and target.scratch and asynchronous(target)


def asynchronous(target: Target) -> bool:
    """Whether several warps multiply together, and results are in registers."""
    return target.matrix_warps > 1 and not target.columns


def cut_both_ways(problem: Problem, found: Roles) -> bool:
    """Whether ranges begin and end rows and columns of a result: each number has an address.

    By the compiler's figures for products of 128 numbers: 128 x 128 on 8 warps spill 64 to 520
    bytes, 64 x 64 on 4 warps 8 on sm_100, and on 8 none.  Of float32, 64 x 64 spill up to 8,320 on
    sm_80, and 32 x 64 none.
    """
    roles = [role for name, role in found.of.items() if problem.rises(name)]
    return not found.fused and {"rows"} in roles and {"columns"} in roles


def is_wide(problem: Problem, found: Roles, target: Target) -> bool:
    """Whether one product has results of 128 x 256, of which each operand is read less often.

    By times on an H100: 774 TFLOP/s instead of 559 where they fill the processors; 0.72 of the time
    for 1024 x 8192 x 8192, whose 256 results do so twice.
    """
    (dot, *others) = products(problem.ir)
    if any("batch" in role for role in found.of.values()):
        return False  # by the compiler's figures: 40 bytes of 255 registers spill
    if others or found.itemsize != 2 or target.matrix_warps == 1 or target.columns:
        return False
    if not all(map(operand_load, dot.args)) or beside_sums(problem.ir):
        return False  # what is computed before it is multiplied takes registers, or after that
    if _crowded(problem.ir, dot):
        return False
    if least_alignment(problem.ir) < BOX:
        return False  # so do addresses, where no box is copied: 288 bytes spill
    return _programs(problem, found, WIDE) * 4 >= target.processors * 3


def _crowded(kernel: KernelIR, dot: Apply) -> bool:
    """Whether rows of results are reduced, or terms are added whose rows memory names.

    By the compiler's figures for sm_90: 128 bytes of the maxima and sums of a cross entropy spill
    beside 128 x 256 results, and 24 of a residual that is picked.
    """
    shape = dot.type.shape
    for part in every_expr(kernel.body):
        match part:
            case Apply(op, (value, *_)) if op in REDUCTIONS and value.type.shape == shape:
                return True
            case Load(_, index) if part.type.shape == shape:
                if any(isinstance(entry, Gather) for entry in index):
                    return True
            case _:
                pass
    return False


def is_flat(
    problem: Problem, found: Roles, target: Target, config: Config, blocks: Mapping[str, int]
) -> bool:
    """Whether one program per processor takes one wide result after another, as one long loop.

    What the next result is made of is copied while the last one is stored: 122 us instead of 137
    for 64 groups of 1024 x 1024 in 32768 rows, 357 instead of 377 for 8192 x 4096 x 4096.  Groups
    of 128 rows take all their time to read weights, and are quicker in many programs: 196 to 219.
    """
    asked = config.indexing == "pointer" or config.persistent not in (None, True)
    if asked or config.warp_specialize or not boxed(target) or found.count != 1:
        return False
    summed = [a for a, role in found.of.items() if role == {"summed"}]
    known = all(b is not None and b[0] < b[1] for b in (problem.axis(a).static for a in summed))
    sizes = {role: b for a, b in blocks.items() for role in found.of.get(a, ())}
    wide = (sizes.get("rows"), sizes.get("columns")) == WIDE
    rows = (problem.ir.axis(a) for a, role in found.of.items() if role == {"rows"})
    many = all(rows_of(problem, axis, 2 * WIDE[0]) > WIDE[0] for axis in rows)
    short = _is_short(problem, found)
    one = wide and len(summed) == 1 and known and many and not short
    return one and is_wide(problem, found, target)


def _is_short(problem: Problem, found: Roles) -> bool:
    """Whether groups have few rows for weights that take long to read.

    By times of 2026-11-27, of 256 rows on average: 536 us by pointers in many programs instead of
    658 for 64 groups of 4096 x 2048; but 67 instead of 63 for 128 of 512 x 512, whose first and
    last steps count for more.
    """
    summed = [a for a, role in found.of.items() if role == {"summed"}]
    long = any(length_of(problem, a) > 1024 for a in summed)
    rows = [problem.ir.axis(a) for a, role in found.of.items() if role == {"rows"}]
    return long and of_groups(problem, found) and all(rows_of(problem, a, 512) <= 256 for a in rows)


def has_given_scores(problem: Problem) -> bool:
    """Whether an author fixed 64 rows and 64 keys and more of a product that another one reads.

    By the compiler's figures for float32 where each warp multiplies: 64 columns of results beside
    them spill 16 to 608 bytes, 32 none, and two stages 24 of these; on sm_90 128 columns spill 96
    to 208 and 64 none.
    """
    fixed = {a.name: a.fixed for a in problem.ir.axes}
    dots = products(problem.ir)
    between = {fixed.get(d, d) if isinstance(d, str) else d for d in map(summed, dots)}

    def given(dot: Apply) -> bool:
        sides = [fixed.get(d) if isinstance(d, str) else d for d in dot.type.shape[-2:]]
        return all(n is not None and n >= GIVEN for n in sides) and sides[-1] in between

    return any(map(given, dots))


def operand_load(expr: Expr) -> Load | None:
    """What is multiplied, as it is read; None where it is computed."""
    while isinstance(expr, Apply) and expr.op in ("transpose", "reshape", "squeeze"):
        expr = expr.args[0]
    return expr if isinstance(expr, Load) else None


def _programs(problem: Problem, found: Roles, tile: tuple[int, int]) -> int:
    """How many results of a product there are."""
    by = {frozenset({"rows"}): tile[0], frozenset({"columns"}): tile[1]}
    cut = {outer for name in found.of for outer in problem.rises(name)}
    count = 1
    for axis in problem.ir.axes:
        if problem.fact(axis.name).kind != "parallel" or axis.name in cut:
            continue
        count *= -(
            -length_of(problem, axis.name) // by.get(found.of.get(axis.name, frozenset()), 1)
        )
    return count


def most_rows(problem: Problem, found: Roles) -> int:
    """How many rows a result has."""
    rows = [problem.ir.axis(a) for a, role in found.of.items() if role == {"rows"}]
    known = (min(rows_of(problem, a, 128), power_of_two(length_of(problem, a.name))) for a in rows)
    return min(known, default=128)


def rows_of(problem: Problem, axis: Axis, most: int) -> int:
    """Rows of a result: fewer where groups have few of them on average."""
    average = average_rows(problem, axis)
    return most if average is None else min(most, max(power_of_two(average), 16))


def average_rows(problem: Problem, axis: Axis) -> int | None:
    """Rows of a range on average; None where no memory says where it begins."""
    found = (problem.axis(outer).static for outer in problem.rises(axis.name))
    groups = max((end - begin for begin, end in filter(None, found)), default=0)
    return problem.extent(axis.name) // groups if groups else None


def length_of(problem: Problem, name: str) -> int:
    """The length of an axis, as far as it is known."""
    axis = problem.axis(name)
    if axis.static is not None:
        return axis.static[1] - axis.static[0]
    return axis.max_extent if axis.max_extent is not None else problem.extent(name)
