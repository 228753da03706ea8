"""Hopper: warps, stages and blocks of products, by what was quickest on an H100.

The times are those of benchmarks/h100.json (80 GB HBM3, torch 2.11.0, Triton 3.6.0, 2026-11-27),
in bfloat16 and int8 where nothing else is said: the default config of every example beside others,
each checked against it.  Two programs of 4 warps on a processor hide what one of 8 waits for; and
64 rows of a product are one instruction of 4 warps, which 8 would share by its columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilelang.codegen.triton.target import KIB, Target
from tilelang.ir import Apply, Axis, Expr
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

from .beside_sums import beside_sums
from .carried import scaled, states
from .lives import computed_blocks
from .pipe import MATRIX_ROWS, turns_bytes
from .roles import Roles, products, widest
from .shapes import (
    WIDEST,
    asynchronous,
    average_rows,
    boxed,
    cut_both_ways,
    of_groups,
    operand_load,
    rows_of,
    side_by_side,
)
from .width import Width

RESERVED = KIB  # bytes of shared memory that each program takes besides its own
# Products of int8 whose right operand has columns side by side: each warp multiplies, and turns the
# bytes of 64 columns in registers.  571 us instead of 1546 for 8192 x 4096 x 4096, 923 and 1908 for
# groups of 256 rows.
BYTES = {"rows": 256, "columns": 64, "summed": 128}
# Rows of ranges on average up to which a descriptor for each costs more than it saves: of 512 rows,
# 9 attentions over ranges take 0.77 to 0.98 of the time by pointers; of 1024 as long, of 2048 1.05.
SHORT = 512
MUCH = 7  # what is computed of scores, number by number: 6 for a window, 7 for a cap, 8 for slopes
# Rows of ranges from which on keys are taken 32 at a time: 423 us instead of 497 for 256 rows.
SHORTEST = 256


def width(
    problem: Problem,
    found: Roles,
    target: Target,
    config: Config,
    blocks: Mapping[str, int],
    first: Width,
) -> Width | None:
    """How wide programs are instead of the first guess; None where nothing was measured."""
    if not found.count or not asynchronous(target) or widest(problem.ir) > WIDEST:
        return None
    if found.itemsize > 2:
        # the gradient of queries in float32: 4713 us instead of 8458
        alone = found.fused and found.count == 3 and not states(problem.ir)
        return replace(first, warps=4, stages=2) if alone and not scaled(problem.ir) else None
    if not boxed(target):
        return None
    pointers = config.indexing == "pointer"
    if found.fused:
        return _fused(problem, found, target, blocks, first)
    if found.count > 1:
        # two products of one operand: 1188 us instead of 1642 for 64 groups of 4096 x 2048
        return replace(first, warps=8, stages=3) if _square(found, blocks) else None
    (dot,) = products(problem.ir)
    if turns_bytes(dot):
        wanted = {role: b for a, b in blocks.items() for role in found.of.get(a, ())}
        # 8 warps hold a product beside what it is added to: 4 spilled 296 bytes
        warps = first.warps if beside_sums(problem.ir) else 4
        return replace(first, warps=warps, stages=3) if wanted == BYTES else None
    if not _square(found, blocks) or beside_sums(problem.ir):
        return None
    if any("batch" in role for role in found.of.values()) and not pointers:
        # 314 us instead of 377 for 64 of 1024 x 1024 x 1024
        return replace(first, warps=8, stages=4, resident=1)
    if any(map(_converted, dot.args)):
        # 702 us instead of 1073 for groups, 529 and 549 for 8192 x 4096 x 4096
        return replace(first, warps=4, stages=4)
    return None


def _fused(
    problem: Problem, found: Roles, target: Target, blocks: Mapping[str, int], first: Width
) -> Width | None:
    """Attention and its gradients, of 64 rows."""
    of_rows = [blocks[a] for a, role in found.of.items() if "rows" in role]
    if any(rows != MATRIX_ROWS for rows in of_rows) or states(problem.ir):
        return None
    if found.backward:
        # the gradients of keys and values 785 us instead of 1573, of all three 2008 and 5162; with
        # three steps there is no memory for a second program: 1389
        every = all(block == MATRIX_ROWS for name, block in blocks.items() if name in found.of)
        return replace(first, warps=4, stages=2) if every else None
    if side_by_side(problem, found, target) and first.warps == 4:
        # the gradient of queries 525 us instead of 799
        known = all(problem.axis(a).static for a, role in found.of.items() if "summed" in role)
        # results that take the same time each: 157 us instead of 183 where what descriptors tell
        # is told once; where they do not, programs that stay have more to do than others
        return replace(first, stages=3, resident=2 if known else 0, paired=True)
    if found.count == 2 and not any("summed" in role for role in found.of.values()):
        # pages: 1851 us instead of 2962, though 56 bytes spill; 2422 by pointers, of which 64 do
        return replace(first, warps=4, stages=1, boxes=True)
    return None


def block(problem: Problem, found: Roles, target: Target, axis: Axis) -> int | None:
    """The block of an axis of products; None where nothing was measured."""
    role = found.of[axis.name]
    if found.itemsize > 2:
        if "summed" in role and computes(problem, found, target):
            return 64
        exact = asynchronous(target) and role == {"rows"}
        return _exact_rows(problem, found, axis) if exact else None
    if not boxed(target):
        return None
    if found.fused:
        short = average_rows(problem, axis)
        keys = side_by_side(problem, found, target) and "summed" in role and found.count == 2
        few = short is not None and short <= SHORTEST and widest(problem.ir) <= WIDEST
        return 32 if keys and few else None
    dots = products(problem.ir)
    if len(dots) > 1 or not turns_bytes(dots[0]) or {*found.of.values()} != {*map(_only, BYTES)}:
        return None
    (one,) = role
    return rows_of(problem, axis, BYTES[one]) if one == "rows" else BYTES[one]


def computes(problem: Problem, found: Roles, target: Target) -> bool:
    """Whether attention in float32 computes much between its products: biases, caps of scores.

    By the compiler's figures for rows of 128 numbers, which took no time: 32 rows and keys in two
    stages spill 16 bytes of a cap by tanh, or of distances with a slope, and of 64 keys in one
    none; of masks and windows alone they spill 8 at most, and were quicker than 16 rows.
    """
    if found.itemsize <= 2 or not asynchronous(target) or found.count != 2 or not found.fused:
        return False
    return widest(problem.ir) == WIDEST and computed_blocks(problem.ir) >= MUCH


def _exact_rows(problem: Problem, found: Roles, axis: Axis) -> int | None:
    """Rows of float32, of which three products of tf32 are made."""
    if widest(problem.ir) > WIDEST or states(problem.ir) or cut_both_ways(problem, found):
        return None
    if found.fused:
        # 2404 us instead of 3748 for 512 rows and keys, 2091 and 3199 for 256, 809 and 1176
        tiles = any("summed" in role for role in found.of.values())
        alone = found.count == 2 and frozenset({"columns"}) not in found.of.values()
        return 32 if alone and tiles else None
    plain = [operand_load(a) is not None for dot in products(problem.ir) for a in dot.args]
    if found.count > 1 or not all(plain):
        return None
    # 64 rows are one asynchronous instruction: 8717 us, 32 for groups of 256 rows 6083; 128 rows
    # of one array, along which groups are summed, 7196 instead of 9843
    return rows_of(problem, axis, 32) if of_groups(problem, found) else 128


def by_pointers(problem: Problem, found: Roles) -> bool:
    """Whether ranges are so short that no descriptor of their own pays."""
    if found.fused and (found.count > 2 or widest(problem.ir) > WIDEST):
        return False  # addresses take registers that such have not: gradients 785 us and not 925
    along = [a for a, role in found.of.items() if "summed" in role and a in problem.read]
    rows = [average_rows(problem, problem.ir.axis(a)) for a in along]
    return any(r is not None and r <= SHORT for r in rows)


def pair(target: Target) -> int:
    """Bytes of shared memory of each of two programs on a processor."""
    return (target.shared + RESERVED) // 2 - RESERVED


def _only(role: str) -> frozenset[str]:
    return frozenset({role})


def _square(found: Roles, blocks: Mapping[str, int]) -> bool:
    """Whether a result is 128 x 128."""
    sides = [b for a, b in blocks.items() if found.of.get(a, set()) & {"rows", "columns"}]
    return sides == [128, 128]


def _converted(operand: Expr) -> bool:
    """Whether an operand is read in another dtype."""
    if not (isinstance(operand, Apply) and operand.op == "cast"):
        return False
    return operand_load(operand.args[0]) is not None
