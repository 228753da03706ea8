"""normalised(problem, target) -> (pass, kernel)...: the kernel after each pass, in their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tilelang import ir
from tilelang.codegen.pallas.passes.along_lanes import along_lanes
from tilelang.codegen.pallas.passes.bool_bytes import bool_bytes
from tilelang.codegen.pallas.passes.diagonals import diagonals
from tilelang.codegen.pallas.passes.first_positions import first_positions
from tilelang.codegen.pallas.passes.flat_scalars import flat_scalars
from tilelang.codegen.pallas.passes.gather_ahead import gather_ahead
from tilelang.codegen.pallas.passes.gather_columns import gather_columns
from tilelang.codegen.pallas.passes.lane_gathers import lane_gathers
from tilelang.codegen.pallas.passes.numbers_as_rows import numbers_as_rows
from tilelang.codegen.pallas.passes.scatter_rows import scatter_rows
from tilelang.codegen.pallas.passes.separate_gathers import separate_gathers
from tilelang.codegen.pallas.passes.stale_views import refuse_stale
from tilelang.codegen.pallas.passes.turn_rows import turn_rows
from tilelang.codegen.pallas.passes.wide_carries import wide_carries
from tilelang.codegen.pallas.passes.wide_operands import wide_operands
from tilelang.codegen.pallas.target import Target
from tilelang.passes.fold_empty import fold_empty
from tilelang.passes.inline_indices import inline_indices
from tilelang.passes.keep_inside import keep_inside
from tilelang.passes.mask_outside import mask_outside
from tilelang.passes.name_shared import name_shared
from tilelang.passes.powers_of_two import powers_of_two
from tilelang.passes.row_products import row_products
from tilelang.passes.select_numbers import select_numbers
from tilelang.passes.turn_late import turn_late
from tilelang.schedule.problem import Problem


def normalised(
    problem: Problem, target: Target, gathers: str | None = None
) -> Iterator[tuple[str, ir.KernelIR]]:
    """The kernel after each pass, in their order.

    Lanes outside of arrays are masked and positions kept inside first, while indices are those that
    the facts speak of.  They are written out, and rows that XLA puts together taken out, before
    those in scalar memory are made flat; single rows become scatters and gathers while loads are
    where the author wrote them; and gathers get statements of their own late, because no pass after
    that may write a load anywhere.  Rows that are combined where they are stored are then found,
    and what is left is computed as TPUs compute; interpreters compute most of it as it is.
    """
    facts, kernel, wide = problem.facts, problem.ir, not target.interpreted
    refuse_stale(kernel)
    passes: tuple[tuple[str, Callable[[ir.KernelIR], ir.KernelIR]], ...] = (
        ("mask_outside", lambda k: mask_outside(k, facts)),
        ("keep_inside", lambda k: keep_inside(k, facts)),
        ("select_numbers", select_numbers),
        ("fold_empty", fold_empty),
        ("row_products", row_products),
        ("first_positions", lambda k: first_positions(k, integers=wide)),
        ("numbers_as_rows", numbers_as_rows),
        ("bool_bytes", bool_bytes),
        ("powers_of_two", powers_of_two),
        *((("turn_rows", turn_rows),) if wide else ()),
        ("along_lanes", along_lanes),
        ("name_shared", name_shared),
        ("turn_late", turn_late),
        ("inline_indices", inline_indices),
        *((("diagonals", diagonals),) if wide and target.strides else ()),
        *((("lane_gathers", lane_gathers),) if wide else ()),
        ("gather_ahead", lambda k: gather_ahead(k, gathers, target)),
        ("flat_scalars", lambda k: flat_scalars(k, target)),
        ("scatter_rows", lambda k: scatter_rows(k, target)),
        ("gather_columns", lambda k: gather_columns(k, target)),
        ("separate_gathers", separate_gathers),
        *((("wide_carries", wide_carries),) if wide else ()),
        ("wide_operands", lambda k: wide_operands(k, interpreted=not wide)),
    )
    for name, run in passes:
        kernel = run(kernel)
        yield name, kernel
