"""Bugs planted in the rewriting that all passes share; a test of one pass must notice each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import prod
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.analysis import (
    test_cuts,
    test_folds,
    test_lags,
    test_order,
    test_positions_in_tiles,
    test_signs,
    test_thresholds,
    test_ties,
    test_windows,
)
from tests.codegen import (
    test_block_groups,
    test_changed_numbers,
    test_changed_views,
    test_constant_places,
    test_flat_columns,
    test_interior_steps,
    test_late_carries,
    test_left_out,
    test_lives,
    test_masked_scatter,
    test_masked_stores,
    test_masks,
    test_moved_ranges,
    test_moved_tiles,
    test_pieces,
    test_read_after_write,
    test_recalled,
    test_scatter,
    test_shorter,
    test_stacked,
    test_strides,
    test_triton,
    test_turns_at_once,
    test_uncovered,
)
from tests.frontend import test_jumps, test_through
from tests.language import test_left_over
from tests.passes import (
    test_along_lanes,
    test_bool_bytes,
    test_drop_implied_masks,
    test_drop_unused,
    test_fill_pads,
    test_first_positions,
    test_flat_scalars,
    test_fold_empty,
    test_gather_ahead,
    test_index_tiles,
    test_inline_indices,
    test_keep_inside,
    test_mask_outside,
    test_measured_ranges,
    test_name_shared,
    test_numbers_as_rows,
    test_one_hot_loads,
    test_one_hot_stores,
    test_powers_of_two,
    test_running_maximum,
    test_scatter_rows,
    test_select_numbers,
    test_separate_gathers,
    test_several_turns,
    test_stored_places,
    test_sum_tiles,
    test_turn_late,
    test_wide_carries,
    test_wide_operands,
)
from tests.passes.becomes import again
from tests.schedule import (
    test_beside_parts,
    test_estimate,
    test_fixed_tiles,
    test_rewriting,
    test_verify,
    test_within,
)
from tilelang.analysis import (
    axes,
    cuts,
    drawn,
    fixed,
    folds,
    lags,
    order,
    thresholds,
    uses,
    written,
)
from tilelang.analysis import stores as stays
from tilelang.codegen.pallas import computed, measures
from tilelang.codegen.pallas.emit import expressions, host
from tilelang.codegen.pallas.passes import (
    along_lanes,
    bool_bytes,
    first_positions,
    flat_columns,
    flat_scalars,
    gather_ahead,
    index_tiles,
    lifted_groups,
    measured_ranges,
    members,
    numbers_as_rows,
    one_hot_loads,
    one_hot_stores,
    running_maximum,
    scatter_rows,
    separate_gathers,
    several_turns,
    stored_places,
    sum_tiles,
    wide_carries,
    wide_operands,
)
from tilelang.codegen.pallas.plan import lives as pallas_lives
from tilelang.codegen.pallas.plan import physical, placement, rewriting, types, verify
from tilelang.codegen.pallas.plan.body import (
    interior,
    lane_index,
    late_carries,
    lower,
    pieces,
    stacked,
    stores,
    turns,
)
from tilelang.codegen.pallas.plan.body.layouts import apply
from tilelang.codegen.pallas.plan.estimate import interiors, seconds
from tilelang.codegen.pallas.plan.masks import masks
from tilelang.codegen.pallas.plan.physical import ScalarRead
from tilelang.codegen.pallas.plan.steps import conditions, loops, revisits
from tilelang.codegen.pallas.plan.types import _mask_text
from tilelang.codegen.pallas.plan.windows import changed, choose, outputs
from tilelang.codegen.triton.plan import access, defaults, lives, memory, reductions, strides
from tilelang.frontend import attributes, control, exchanged, jumps, through
from tilelang.ir import (
    Along,
    Apply,
    Assign,
    At,
    Const,
    Gather,
    KernelIR,
    Store,
    Tensor,
    TileIndex,
    TileScalar,
    Type,
    Var,
    map_body,
    names,
    statements,
)
from tilelang.language.build import binary, where
from tilelang.language.dtypes import is_float
from tilelang.language.shapes import full
from tilelang.passes import (
    drop_implied_masks,
    drop_unused,
    fill_pads,
    fold_empty,
    inline_indices,
    keep_inside,
    mask_outside,
    name_shared,
    powers_of_two,
    select_numbers,
    turn_late,
)
from tilelang.schedule.problem import Problem


@dataclass(frozen=True)
class Mutation:
    """`name` of `owner` replaced by `wrong`; the test `seen_by` must fail."""

    what: str
    owner: Any
    name: str
    wrong: Any
    seen_by: Callable[[], None]

    def __str__(self) -> str:
        return self.what


_map_stmt, _map_body, _names_in = keep_inside.map_stmt, keep_inside.map_body, names.names_in
_cut_at, _rewritten = axes.cut_at, turn_late.rewrite_body
_differing = written.differing
_seen, _of_heads = Tensor.seen, flat_columns._parts
_read_behind, _one_hot = host._read_behind, one_hot_stores.picked_store
_at, _needed_of = interior._at, interior._Tiles.needed
_sharing, _differs = stacked._sharing, stacked._Stack.differs
_masked, _inlined, _needed = fill_pads._masked_name, inline_indices.inlined, drop_unused._needed


def _masks_stay(stmt, value, index=lambda entry: entry):
    changed = _map_stmt(stmt, value, index)
    return replace(changed, mask=stmt.mask) if isinstance(stmt, Store) else changed


def _places_stay(stmt, value, index=None):
    return _map_stmt(stmt, value)


def _never_loose(load, entry, size, about):
    return entry


def _where_read(name, references):
    return _cut_at(name, [r for r in references if not r.writes])


def _at_the_end(scope, mask, shape, stmt):
    value = lower.lower(scope, mask, "row").expr
    return apply("reshape", (value,), (*(1,) * (len(shape) - 2), *value.type.shape), "bool")


def _top_only(body, change):
    return tuple(new for stmt in body for new in change(stmt))


def _one_level(expr, values):
    return values.get(expr.name, expr) if isinstance(expr, Var) else _inlined(expr, {})


def _without_carries(ir):
    return _names_in(ir) - {n for n in _names_in(ir) if n.startswith("rows_")}


def _turned_stay(body, change):
    """What is turned reads others as they were before."""
    before = {s.name: s for s in statements(body) if isinstance(s, Assign)}

    def kept(stmt):
        turned = isinstance(stmt, Assign) and turn_late._turned(stmt.value)
        return (before[stmt.name] if turned else stmt,)

    return map_body(_rewritten(body, change), kept)


def _unfilled(draft, output, form, real=exchanged._exchange):
    real(draft, output, form)
    draft.tensors[form.name] = replace(draft.tensors[form.name], fill=None)


def _no_remainder(op, a, by, real=access._computed):
    return a if op == "remainder" else real(op, a, by)


def _any_fill(expr):
    found = _masked(expr)
    return None if found is None else (found[0], found[1], replace(found[2], value=0.0))


def _of_ranges(stmt: physical.PStmt) -> Iterator[Any]:
    return (m for m in masks(stmt) if isinstance(m[0], types.Mask))


def _steps_or_not(window, order, sure):
    return _visits_all(window, order, lambda helpers: True)


_visits_all = outputs.visits_all
_carried, _one_row = wide_carries._carried, lower._one_row


def _summed(scope, value, position, packed, tensor):
    """The row as JAX sums it up: of 32 bits, whatever is said of it."""
    wide = replace(value, type=Type(value.type.shape, "int32"))
    row = _one_row(scope, wide, position, packed, tensor)
    return replace(row, value=replace(row.value, type=row.type))


def _signed(number):
    by = Const(24, Type((), "int32"))
    if number.type.dtype != "int32":
        return number
    return Apply("shift_right", (Apply("shift_left", (number, by), number.type), by), number.type)


def _of_the_array(dim, loc):
    return TileIndex(dim, Type((dim,), "int32"))


MUTATIONS = (
    Mutation(
        "what is not there is zero, whatever its author gave", fold_empty, "_absent",
        lambda load: 0,
        test_fold_empty.test_a_load_of_nothing_is_what_its_author_gave_for_lanes_that_are_not_there,
    ),
    Mutation(
        "a loop stops where an output does, whatever else it does", placement, "check_left_over",
        lambda problem, axes: None,
        test_left_over.test_a_sum_over_more_than_the_output_holds_is_refused,
    ),
    Mutation(
        "tiles are cut where memory is, whatever goes by them", placement, "check_tiles",
        lambda problem, axes: None,
        lambda: test_fixed_tiles.test_tiles_that_memory_would_cut_elsewhere_are_refused(
            test_fixed_tiles.ragged
        ),
    ),
    Mutation(
        "what is indexed by a tile's begin goes by no tile", fixed, "_named", lambda ir: (),
        lambda: test_fixed_tiles.test_tiles_that_memory_would_cut_elsewhere_are_refused(
            test_fixed_tiles.marked
        ),
    ),
    Mutation(
        "moved tiles begin where others do", fixed, "_moves", lambda entry, axis: False,
        lambda: test_fixed_tiles.test_tiles_that_memory_would_cut_elsewhere_are_refused(
            test_fixed_tiles.moved
        ),
    ),
    Mutation(
        "every range begins at a multiple of the block", placement, "_from_multiple",
        lambda nest, begin, block: True,
        lambda: test_fixed_tiles.test_tiles_that_memory_would_cut_elsewhere_are_refused(
            test_fixed_tiles.begins_elsewhere
        ),
    ),
    Mutation(
        "integers of 8 bits are computed as floats", wide_operands, "wide_of",
        lambda dtype: "float32",
        lambda: test_wide_operands.test_sums_of_narrow_integers_wrap("int8", "tpu:v5e"),
    ),
    Mutation(
        "numbers are rounded once they are wide", wide_operands, "to_numpy",
        lambda dtype: np.dtype("float32"), test_wide_operands.test_narrow_operands_are_wide,
    ),
    Mutation(
        "the highest bit of an unsigned number is its sign", wide_operands, "_apart", _signed,
        lambda: test_wide_operands.test_numbers_are_what_they_were("uint8", "tpu:v5e"),
    ),
    Mutation(
        "powers of two are computed in 16 bits", wide_operands, "OF_BFLOAT16",
        wide_operands.OF_BFLOAT16 | {"exp2", "pow"},
        lambda: test_wide_operands.test_powers_of_two_are_exact_in_16_bits("cpu"),
    ),
    Mutation(
        "single rows of narrow integers are as wide as their sum", lower, "_one_row", _summed,
        lambda: test_wide_operands.test_sums_of_narrow_integers_wrap("int8", "cpu"),
    ),
    Mutation(
        "carries end as they begin", wide_carries, "_carried",
        lambda carry: replace(_carried(carry), next=_carried(carry).init),
        lambda: test_wide_carries.test_they_are_what_they_were("tpu:v5e"),
    ),
    Mutation(
        "any value is carried as it is", wide_carries, "_held", lambda kind: True,
        test_wide_carries.test_bools_are_integers_and_numbers_are_wide,
    ),
    Mutation(
        "positions count from the array", first_positions.shapes, "lanes", _of_the_array,
        lambda: test_first_positions.test_values("int32", "cpu"),
    ),
    Mutation(
        "NaN is no maximum", first_positions, "is_float", lambda dtype: False,
        lambda: test_first_positions.test_values("float32", "cpu"),
    ),
    Mutation(
        "tiles begin where their lanes do", first_positions, "_moved", lambda ir, dim: False,
        lambda: test_first_positions.test_values("float32", "cpu"),
    ),
    Mutation(
        "every turn is there", several_turns._Turns, "live", lambda *_: None,
        test_several_turns.test_a_turn_that_may_not_be_there_is_not_taken,
    ),
    Mutation(
        "any maximum is a scale", running_maximum, "_scales", lambda *_: True,
        lambda: test_running_maximum.test_what_is_no_scale(test_running_maximum.not_scaled),
    ),
    Mutation(
        "bits that are flipped twice are flipped", folds, "ONCE", ("sum", "product"),
        test_folds.test_bits_that_are_flipped_for_every_tile,
    ),
    Mutation(
        "bytes are taken for whether there is one", bool_bytes, "_bools",
        lambda load, name: Const(True, load.type),
        lambda: test_bool_bytes.test_results_are_those_of_bools({"t": 32}),
    ),
    Mutation(
        "masks of stores are not rewritten", inline_indices, "map_stmt", _masks_stay,
        test_inline_indices.test_the_mask_of_stored_lanes_too,
    ),
    Mutation(
        "positions of stores are not rewritten", inline_indices, "map_stmt", _places_stay,
        test_inline_indices.test_the_mask_of_rows_that_are_stored_one_by_one_too,
    ),
    Mutation(
        "names are replaced once only", inline_indices, "inlined", _one_level,
        test_inline_indices.test_bounds_and_positions_are_written_out,
    ),
    Mutation(
        "bodies of loops are not rewritten", keep_inside, "map_body", _top_only,
        test_keep_inside.test_loads_are_clamped_and_stores_are_asked,
    ),
    Mutation(
        "ranges read numbers of what lies in windows", flat_scalars, "_beside",
        lambda *asked: frozenset(),
        test_flat_scalars.test_ranges_read_numbers_of_what_blocks_are_read_of,
    ),
    Mutation(
        "masks of numbers are dropped", select_numbers, "_stated", lambda mask: frozenset(),
        test_select_numbers.test_a_masked_number_is_chosen,
    ),
    Mutation(
        "what a mask leaves out bounds a range", mask_outside, "_loose", _never_loose,
        test_mask_outside.test_what_a_mask_leaves_out_bounds_no_range,
    ),
    Mutation(
        "windows leave arrays that are shorter than others", choose, "_inside",
        lambda axis, blocks: axis.number, test_left_out.test_no_window_leaves_its_array,
    ),
    Mutation(
        "masks of stores lie along the last dimensions", stores, "_aligned", _at_the_end,
        test_masked_stores.test_a_mask_of_rows_is_a_column,
    ),
    Mutation(
        "a copy of all heads has the rows of one store", stores, "_left_out",
        lambda arrays, window: {()},
        lambda: test_within.test_it_is_refused("several stores"),
    ),
    Mutation(
        "what was read once is not read again", expressions, "sources", lambda expr: frozenset(),
        test_read_after_write.test_a_row_is_picked_again_after_a_write,
    ),
    Mutation(
        "ranges rise where they are stored if they do where they are read", axes, "cut_at",
        _where_read, lambda: test_moved_ranges.test_no_cursor_follows_ranges_that_go_back(0),
    ),
    Mutation(
        "tiles that cut no array rise", Problem, "rises",
        lambda problem, axis: problem.fact(axis).rises,
        lambda: test_moved_ranges.test_no_cursor_follows_ranges_that_go_back(2),
    ),
    Mutation(
        "masks of positions stay", select_numbers, "map_index", lambda entry, fn: entry,
        lambda: test_select_numbers.test_positions_of_stores_under_an_if(4),
    ),
    Mutation(
        "sums of what is turned go over what they did", along_lanes, "_over_other",
        lambda expr, value: replace(expr, args=(value,)),
        test_along_lanes.test_sums_over_either_dimension,
    ),
    Mutation(
        "a name that is stored is turned where it is summed", along_lanes._Turning, "lost",
        lambda self, name: False, lambda: test_along_lanes.test_what_stays("stored"),
    ),
    Mutation(
        "vectors of tiles lie along the lanes", along_lanes._Turning, "lies",
        lambda self, value: {("t", True)},
        lambda: test_along_lanes.test_what_stays("a column"),
    ),
    Mutation(
        "rows with columns are computed register by register", pallas_lives, "_is_outer",
        lambda expr: False, test_along_lanes.test_memory_has_room_for_what_is_computed_whole,
    ),
    Mutation(
        "nothing is turned late", turn_late, "_turned", lambda value: None,
        test_turn_late.test_a_name_that_products_read,
    ),
    Mutation(
        "names that are turned late are made of others as they were", turn_late, "rewrite_body",
        _turned_stay,
        test_turn_late.test_names_that_are_computed_of_each_other,
    ),
    Mutation(
        "powers of two are not scaled", powers_of_two, "LOG2_E", 1.0,
        test_powers_of_two.test_an_online_softmax,
    ),
    Mutation(
        "any constant is scaled", powers_of_two, "GREATEST", float("inf"),
        test_powers_of_two.test_a_constant_that_would_overflow_stays,
    ),
    Mutation(
        "a sine of what is scaled is", powers_of_two, "SCALED", powers_of_two.SCALED | {"sin"},
        test_powers_of_two.test_no_multiplication_is_added,
    ),
    Mutation(
        "what is read elsewhere is scaled", powers_of_two, "_scaled",
        lambda kernel: {"m", "m_1", "m_2", "m_new", "s"},
        test_powers_of_two.test_what_is_read_elsewhere_stays,
    ),
    Mutation(
        "a block that is read once more is gone", lives, "read_by", lambda exprs: iter(()),
        test_lives.test_what_is_read_once_more_is_alive,
    ),
    Mutation(
        "registers hold any number of blocks", defaults, "most_alive", lambda kernel: 1,
        lambda: test_lives.test_many_blocks_have_more_warps_or_fewer_rows(
            "hstu_attention", "cuda:sm90", 4, [(8, (64, 64)), (8, (32, 64))]
        ),
    ),
    Mutation(
        "of two rows of an output each has a block of its own", choose, "several",
        lambda indices: frozenset(),
        lambda: test_constant_places.test_places_in_several_register_tiles(
            test_constant_places.columns
        ),
    ),
    Mutation(
        "where a tile begins is known in time", choose, "_known_in_time", lambda *asked: None,
        test_moved_tiles.test_a_tile_that_a_loop_within_the_step_moves,
    ),
    Mutation(
        "what counts once for every tile is taken", folds, "_wrong", lambda *asked: "",
        test_folds.test_updates_in_place,
    ),
    Mutation(
        "what relied on lanes that are filled otherwise is not masked", fill_pads, "_differ",
        lambda *chains: False,
        test_fill_pads.test_what_relied_on_lanes_that_are_filled_otherwise_is_masked,
    ),
    Mutation(
        "what is taken off position by position is a change of every tile", folds, "TAKEN", {},
        test_folds.test_the_words_for_what_is_taken_off,
    ),
    Mutation(
        "two rows are one tile", cuts, "CUTS", (3, 16),
        lambda: test_cuts.test_ranges_of_few_rows_are_cut_too(2),
    ),
    Mutation(
        "a loop is cut in one way", cuts, "CUTS", (8, 8),
        lambda: test_cuts.test_what_an_online_softmax_must_not_do_once_for_every_tile(
            test_cuts.turned
        ),
    ),
    Mutation(
        "all rows are the same", drawn.Drawn, "numbers",
        lambda memory, name, dtype, at, shape: np.ones(shape, np.float32),
        lambda: test_cuts.test_what_an_online_softmax_must_not_do_once_for_every_tile(
            test_cuts.unscaled
        ),
    ),
    Mutation(
        "what ranges begin before is in no tile that is tried", cuts, "_edges",
        lambda ir, loop, defined: {},
        lambda: test_windows.test_rows_that_see_nothing_of_what_their_tile_reads(20),
    ),
    Mutation(
        "limits are those of what is compared itself", thresholds, "BEFORE", {},
        lambda: test_thresholds.test_what_large_numbers_show_is_refused(
            test_thresholds.REFUSED["a part of it"]
        ),
    ),
    Mutation(
        "numbers are no larger than usual", thresholds, "LARGE", thresholds.COMPARED,
        lambda: test_thresholds.test_what_large_numbers_show_is_refused(
            test_thresholds.REFUSED["what is above"]
        ),
    ),
    Mutation(
        "functions are straight lines", thresholds, "CURVED", (),
        lambda: test_thresholds.test_what_large_numbers_show_is_refused(
            test_thresholds.REFUSED["a curve"]
        ),
    ),
    Mutation(
        "long loops inside are not looked into", cuts, "FIRST", drawn.LONGEST + 1,
        lambda: test_thresholds.test_what_large_numbers_show_is_refused(
            test_thresholds.REFUSED["twenty turns"]
        ),
    ),
    Mutation(
        "ranges that go by tiles are short", cuts, "LENGTHS", (drawn.LONGEST, drawn.LONGEST),
        lambda: test_thresholds.test_what_large_numbers_show_is_refused(
            test_thresholds.REFUSED["from before the tile"]
        ),
    ),
    Mutation(
        "what is small is nothing", cuts, "SMALL", written.CLOSE,
        lambda: test_thresholds.test_what_large_numbers_show_is_refused(
            test_thresholds.REFUSED["a mean of products"]
        ),
    ),
    Mutation(
        "what an author knows of ids is not asked", cuts, "RISES", (False, False),
        test_cuts.test_a_choice_that_ids_in_order_make_right,
    ),
    Mutation(
        "numbers have one sign", drawn, "SIGNS", (),
        lambda: test_signs.test_it_is_refused_wherever_the_loop_is(
            test_signs.of_rows, (4096, 4096), test_signs.FOLDS["positive"]
        ),
    ),
    Mutation(
        "nothing is as great as another", drawn.Drawn, "tied",
        lambda memory, name, total, turn, more: total + more,
        lambda: test_ties.test_what_goes_by_ties_in_one_tile_is_refused(
            test_ties.last_of_first_tile, 0, "bfloat16"
        ),
    ),
    Mutation(
        "the least of a tie is never the first", drawn, "TIED",
        dict.fromkeys(drawn.TIED, drawn.TIED[5]),
        lambda: test_ties.test_what_goes_by_ties_in_one_tile_is_refused(
            test_ties.weight_of_one_tile, 4, "bfloat16"
        ),
    ),
    Mutation(
        "numbers that are met by chance are few", cuts, "MOST", drawn.MOST[: min(drawn.TIED)],
        lambda: test_ties.test_what_goes_by_a_limit_is_refused(
            test_ties.LIMITED["twice the small"], "float32"
        ),
    ),
    Mutation(
        "every tile is whole", cuts, "SHORTER", (),
        lambda: test_ties.test_what_goes_by_a_limit_is_refused(
            test_ties.LIMITED["every other of a tile"], "float32"
        ),
    ),
    Mutation(
        "what is summed and compared rises", cuts, "_ordered",
        lambda compared, ir, defined: cuts._read(compared, ir, defined),
        lambda: test_ties.test_what_goes_by_a_limit_is_refused(
            test_ties.LIMITED["a product until it is enough"], "float32"
        ),
    ),
    Mutation(
        "a place is a tile's wherever its name is", cuts, "_places",
        lambda entry, defined: cuts._tiles(
            [e for p in cuts.index_exprs(entry) for e in cuts.walk(p)]
        ),
        lambda: test_ties.test_places_that_do_not_name_a_tile_alone_are_refused(test_ties.turned),
    ),
    Mutation(
        "rows are short", cuts, "LARGEST", 1 << 17,
        lambda: test_signs.test_rows_may_be_long(test_signs.rows_less_their_mean, 20_000),
    ),
    Mutation(
        "integers in memory are of one size", drawn, "MOST", (2,) * drawn.TRIES,
        lambda: test_cuts.test_a_condition_that_memory_decides(500),
    ),
    Mutation(
        "what a loop stores of a carry is what it leaves", stays, "_in_numbers",
        lambda fact, *asked: fact,
        test_cuts.test_what_the_last_tile_stores_of_a_carry,
    ),
    Mutation(
        "what a tile stores at its own positions is not asked", cuts, "_asked",
        lambda *asked: frozenset(),
        lambda: test_positions_in_tiles.test_what_goes_by_the_tile_is_refused(
            test_positions_in_tiles.causal_without_a_mask
        ),
    ),
    Mutation(
        "what a loop stored is what was there before", drawn, "seen",
        lambda log, tensor, at, found: found,
        lambda: test_positions_in_tiles.test_what_goes_by_the_tile_is_refused(
            test_positions_in_tiles.in_two_steps
        ),
    ),
    Mutation(
        "what nobody stored is like any number", written, "_before", lambda *asked: np.nan,
        lambda: test_positions_in_tiles.test_what_cancels_out_is_taken(
            test_positions_in_tiles.where_any_is
        ),
    ),
    Mutation(
        "what the next turn of a loop around stores over is asked", cuts, "differing",
        lambda one, other, tensors, alone, noise: _differing(
            one, other, tensors, alone=True, noise=noise
        ),
        test_positions_in_tiles.test_what_the_next_turn_of_a_loop_around_stores_over_is_taken,
    ),
    Mutation(
        "a place that names its tile is one of its positions", cuts, "_places",
        lambda entry, defined: set(),
        test_positions_in_tiles.test_a_place_for_each_tile_is_taken,
    ),
    Mutation(
        "a short loop inside is one of its turns", cuts, "LENGTHS", (0, 0),
        lambda: test_positions_in_tiles.test_what_goes_by_the_tile_is_refused(
            test_positions_in_tiles.causal_without_a_mask
        ),
    ),
    Mutation(
        "a carry is what is stored", cuts, "_leaves", lambda *asked: True,
        test_cuts.test_a_reference_that_the_result_does_not_know,
    ),
    Mutation(
        "carries are asked for their form alone", folds, "_causes", lambda *asked: (),
        test_cuts.test_loops_inside_and_around,
    ),
    Mutation(
        "rows of a tile come last in a value", index_tiles, "_rank", lambda index: 0,
        test_index_tiles.test_a_value_has_the_new_dimension_where_its_array_has_it,
    ),
    Mutation(
        "no value has another number of dimensions than it is made of", index_tiles, "_moves",
        lambda expr: False,
        lambda: test_index_tiles.test_values_are_those_of_rows_one_by_one(1, 20),
    ),
    Mutation(
        "rows that numbers pick are those of their index", index_tiles.RowTiles, "entry",
        lambda rows, entry, loc: Along(rows.axis) if isinstance(entry, At) else entry,
        lambda: test_index_tiles.test_values_are_those_of_rows_one_by_one(5, 20),
    ),
    Mutation(
        "a row that is left out counts", sum_tiles, "neutral", lambda op, dtype: 1.0,
        lambda: test_sum_tiles.test_values_are_those_of_rows_one_by_one(
            test_sum_tiles.means, test_sum_tiles.means_by_hand
        ),
    ),
    Mutation(
        "a number beside a row is what was there before", sum_tiles, "binary",
        lambda op, a, b, loc: b if isinstance(a, Const) else binary(op, a, b, loc),
        lambda: test_sum_tiles.test_values_are_those_of_rows_one_by_one(
            test_sum_tiles.beside, test_sum_tiles.beside_by_hand
        ),
    ),
    Mutation(
        "what fades is a sum", sum_tiles, "combination", lambda *asked: "add",
        lambda: test_sum_tiles.test_what_has_no_tiles(
            test_sum_tiles.faded, "acc is not only added to, nor the greatest or least"
        ),
    ),
    Mutation(
        "a loop goes as far as the longest of its arrays", sum_tiles._Sums, "_check_lengths",
        lambda sums: None,
        lambda: test_sum_tiles.test_what_has_no_tiles(
            test_sum_tiles.unlike, "what it indexes is not of one length"
        ),
    ),
    Mutation(
        "made-up numbers are rounded", drawn.Drawn, "dtype",
        lambda memory, name: "float32" if is_float(name) else name,
        lambda: test_cuts.test_large_numbers_that_cancel_are_no_difference(38, "float32"),
    ),
    Mutation(
        "what the last tile made is taken", folds, "of_lanes", lambda part: (),
        lambda: test_cuts.test_what_the_form_shows_needs_no_numbers(test_cuts.last),
    ),
    Mutation(
        "the greatest of every tile is added", folds, "kind_of", lambda op: "",
        test_folds.test_the_words_for_a_fold_of_other_folds,
    ),
    Mutation(
        "what the tile before left is this tile's", lags._LaggingTiles, "taken_over",
        lambda tiles, expr, at=None, over=None: (),
        test_lags.test_the_message,
    ),
    Mutation(
        "what changes places inside of a tile is the tile's own", lags, "_carries",
        lambda parts: [],
        lambda: test_lags.test_what_goes_by_the_tile_before(test_lags.places_changed),
    ),
    Mutation(
        "what this tile stored is the tile's before", lags._Placed, "sees",
        lambda place, other: False,
        lambda: test_lags.test_what_does_not(test_lags.stored_around),
    ),
    Mutation(
        "iterations of an inner loop come in any order", order, "_fact", lambda pair, known: None,
        lambda: test_order.test_what_goes_by_the_tiles(test_order.read_from_memory),
    ),
    Mutation(
        "statements of two tiles come in order", order, "_in_order", lambda pair, known: True,
        lambda: test_order.test_what_goes_by_the_tiles(test_order.stored_beside),
    ),
    Mutation(
        "no loop goes through the positions of a tile", order, "separate", lambda *asked: None,
        lambda: test_order.test_what_does_not(test_order.one_by_one),
    ),
    Mutation(
        "of positions that are computed nothing is known", order, "_exact",
        lambda reach, defined, known: reach,
        lambda: test_order.test_what_does_not(test_order.every_other),
    ),
    Mutation(
        "elements of an array are one another", stays, "apart", lambda load, store: False,
        test_lags.test_another_element_of_the_array_is_another_array,
    ),
    Mutation(
        "blocks of the author are somebody else's", folds, "_cut",
        lambda around, own, ir: ((a, ()) for a in around if a not in own),
        test_folds.test_blocks_that_the_author_wrote,
    ),
    Mutation(
        "names in use are given again", name_shared, "names_in", lambda ir: set(),
        test_name_shared.test_a_name_in_use_is_not_taken,
    ),
    Mutation(
        "names that loops leave are given again", separate_gathers, "names_in", _without_carries,
        test_separate_gathers.test_a_name_that_a_loop_carries_is_not_taken,
    ),
    Mutation(
        "values masked in two ways share a mask", fill_pads, "_masked_name", _any_fill,
        test_fill_pads.test_a_value_reduced_in_two_ways_is_masked_where_it_is_used,
    ),
    Mutation(
        "a mask of the author's that took a range in passes for one of the range",
        fill_pads, "_of_ranges", lambda mask: True,
        test_fill_pads.test_a_mask_of_the_authors_stays_where_it_is,
    ),
    Mutation(
        "any number passes for a maximum", drop_implied_masks, "_is_peak", lambda *args: True,
        test_drop_implied_masks.test_what_is_subtracted_must_be_a_maximum,
    ),
    Mutation(
        "a mask of a number bounds a range", mask_outside, "_loose", _never_loose,
        lambda: test_mask_outside.test_a_number_that_leaves_out_all_lanes_bounds_no_range_either(
            [0, 5, 13], True
        ),
    ),
    Mutation(
        "any mask of the author's is enough", mask_outside, "_implies", lambda *args: True,
        test_mask_outside.test_a_mask_that_says_so_is_enough,
    ),
    Mutation(
        "a mask of rows and one of columns are as large as the first", mask_outside, "binary",
        lambda op, a, b, loc: Apply(op, (a, b), a.type),
        test_mask_outside.test_lanes_of_two_tiles_that_are_none,
    ),
    Mutation(
        "a step of the rectangle behind the end goes back", revisits, "check_dead_steps",
        lambda *args: None, test_uncovered.test_no_step_behind_the_end_goes_back,
    ),
    Mutation(
        "a block is whole where another array has one of them", choose, "_in_parts",
        lambda axis, held: axis.place == "inner" and axis.limit > 1,
        test_masked_stores.test_rows_of_an_array_that_is_longer_than_what_is_stored,
    ),
    Mutation(
        "what is looked up is read ahead", gather_ahead, "_plain", lambda index: True,
        test_gather_ahead.test_an_index_that_is_looked_up_is_read_inside,
    ),
    Mutation(
        "no number is put together ahead", gather_ahead, "_worth", lambda *args: False,
        test_gather_ahead.test_many_numbers_are_put_together_by_default,
    ),
    Mutation(
        "every row is put together ahead", gather_ahead, "_worth", lambda *args: True,
        lambda: test_gather_ahead.test_few_rows_and_copies_are_left_alone_by_default(3, False),
    ),
    Mutation(
        "what a nest stores is picked from ahead", KernelIR, "stored", lambda *_: frozenset(),
        lambda: test_gather_ahead.test_what_the_nest_changes_is_picked_inside("x"),
    ),
    Mutation(
        "heads are stacked wherever they begin", stacked, "_sharing",
        lambda stmts, plan, axis: _sharing(stmts, SimpleNamespace(first=0, tiles=8), axis),
        test_stacked.test_what_is_stacked,
    ),
    Mutation(
        "numbers of a head are those of the first one of its group", stacked._Stack, "differs",
        lambda stack, expr: _differs(stack, expr) and not isinstance(expr, ScalarRead),
        test_stacked.test_a_number_of_the_iteration_is_left_to_it,
    ),
    Mutation(
        "sums over rows are cut, too", pieces._Rows, "kind",
        lambda rows, kind: replace(kind, shape=(rows.part.axis, *kind.shape[1:])),
        lambda: test_pieces.test_other_steps_are_left_alone("columns", 8),
    ),
    Mutation(
        "the last rows of a tile are in no piece", pieces, "_divides",
        lambda rows, tile: rows < tile,
        lambda: test_pieces.test_other_steps_are_left_alone("plain", 5),
    ),
    Mutation(
        "short rows are cut by default", pieces, "NUMBERS_LEAST", 1 << 14,
        test_pieces.test_pieces_by_default_where_rows_are_long,
    ),
    Mutation(
        "a tile is inside if its first lane is", interior._Tiles, "_positions",
        lambda tiles, axis: (axis.tile.origin,) * 2 if axis.place in interior.STEP else None,
        lambda: test_interior_steps.test_the_same_numbers("moved"),
    ),
    Mutation(
        "a step has the first piece of its rows only", interior, "_at",
        lambda expr, axis, _: _at(expr, axis, 0),
        lambda: test_interior_steps.test_the_same_numbers_in_pieces("moved"),
    ),
    Mutation(
        "a comparison that does not hold, and its reverse, leave a step out", conditions,
        "OTHERWISE", {"lt": "gt", "le": "gt"},
        lambda: test_interior_steps.test_the_same_numbers("below"),
    ),
    Mutation(
        "of two masks one is enough", interior._Tiles, "needed",
        lambda tiles, part: list(_needed_of(tiles, part))[:1],
        lambda: test_interior_steps.test_the_same_numbers("both"),
    ),
    Mutation(
        "a fold takes what it takes, however long", seconds, "DEEP", 0,
        test_estimate.test_a_fold_of_longer_rows_takes_longer,
    ),
    Mutation(
        "branches cost nothing", interiors, "BRANCH", -1000,
        test_interior_steps.test_short_ranges_are_not_worth_a_branch,
    ),
    Mutation(
        "an index lies where its tile does", lane_index, "shift", lambda axis, offset: None,
        test_scatter.test_an_index_lies_elsewhere_than_the_tile,
    ),
    Mutation(
        "a mask of rows is read where its tile lies", separate_gathers, "_at_positions",
        lambda expr: expr,
        test_separate_gathers.test_whether_a_row_is_stored_is_read_where_the_row_is,
    ),
    Mutation(
        "masks of rows are blocks", uses, "picks",
        lambda site: tuple(entry.expr for entry in site.index if isinstance(entry, Gather)),
        test_masked_scatter.test_rows_of_moved_tiles,
    ),
    Mutation(
        "carries are looked at once", late_carries, "_late", lambda loop, values: (),
        test_late_carries.test_which_constants_are_spread,
    ),
    Mutation(
        "an order of dimensions is its own inverse", through, "_order_back", tuple,
        lambda: test_through.test_the_numbers("whole", None),
    ),
    Mutation(
        "an early end in one branch ends all of them", jumps, "_leaves", lambda body, jump: True,
        lambda: test_jumps.test_the_rest_stays(test_jumps.BOTH_GO_ON),
    ),
    Mutation(
        "a helper gives what its last return does", control, "_left",
        lambda here, choice, holds, fails: fails.left,
        test_jumps.test_helpers_return_early,
    ),
    Mutation(
        "a fixed block is what the plan makes of it", attributes, "_block_size",
        lambda here, tile: TileScalar(tile.axis, "block_size"),
        test_shorter.test_a_fixed_block_that_covers_a_range_is_one_tile,
    ),
    Mutation(
        "places are read whatever changes them", changed, "_changed", lambda exprs, written: [],
        lambda: test_changed_numbers.test_places_that_a_step_changes_are_refused(
            *test_changed_numbers.REFUSED[1]
        ),
    ),
    Mutation(
        "what a loop leaves is no constant", late_carries, "_left", lambda body, values: {},
        test_late_carries.test_what_an_earlier_loop_leaves_is_spread_behind_it,
    ),
    Mutation(
        "constants are spread by others", late_carries, "_number", lambda value: 1,
        test_late_carries.test_which_constants_are_spread,
    ),
    Mutation(
        "what is computed of a constant is that", late_carries, "ELEMENTWISE", frozenset(),
        test_late_carries.test_a_constant_that_is_computed_is_no_other,
    ),
    Mutation(
        "views of arguments are of what was given", host, "_read_behind",
        lambda plan, number: _read_behind(plan, number) if number < 0 else set(),
        lambda: test_changed_views.test_views_behind_a_store(8),
    ),
    Mutation(
        "an argument comes as rows", numbers_as_rows, "_with_one",
        lambda tensor: replace(tensor, shape=(*tensor.shape, 1)),
        test_numbers_as_rows.test_an_argument_is_given_as_it_was,
    ),
    Mutation(
        "an output of rows is returned as it is", Tensor, "seen",
        lambda self, name, view: replace(_seen(self, name, view), shape=(*self.shape, 1)),
        test_numbers_as_rows.test_a_number_that_an_index_picks_is_a_row,
    ),
    Mutation(
        "a mask that is computed leaves out no row", one_hot_stores._PickedStore, "_value",
        lambda self, _: self.store.value.args[1],
        test_one_hot_stores.test_a_mask_that_is_computed_is_one_of_values,
    ),
    Mutation(
        "rows that no place picks count as 0 in a maximum", one_hot_stores, "neutral",
        lambda op, dtype: 0, lambda: test_one_hot_stores.test_the_largest(None),
    ),
    Mutation(
        "rows are multiplied whatever combines them", one_hot_stores._PickedStore, "multiplied",
        property(lambda self: len(self.place.shape) == 2),
        lambda: test_one_hot_stores.test_the_largest(None),
    ),
    Mutation(
        "places that memory holds are computed", computed.ComputedPlaces, "_of_rows",
        lambda self, expr: True,
        test_one_hot_stores.test_a_mask_that_is_computed_is_one_of_values,
    ),
    Mutation(
        "columns are picked as rows are", computed, "_beside", lambda index, gathers: False,
        lambda: test_one_hot_loads.test_columns_that_memory_says("tpu:v5e", None, "int8"),
    ),
    Mutation(
        "arrays of any size are updated as a whole", one_hot_stores, "picked_store",
        lambda ir, store, place, target: _one_hot(
            ir, store, place, replace(target, vmem_default=1 << 60)
        ),
        test_one_hot_stores.test_large_arrays_stay,
    ),
    Mutation(
        "all rows of a place stay, not the last one", one_hot_stores._PickedStore, "_number",
        lambda self: full(self.place.expr.type.shape, 0, "int32", None),
        lambda: test_one_hot_stores.test_the_last_row_stays(None, 7, np.float32),
    ),
    Mutation(
        "rows that a mask leaves out are the last ones, too", one_hot_stores, "reshape",
        lambda mask, shape, loc: full(shape, 1, "bool", loc),
        lambda: test_one_hot_stores.test_the_last_row_stays(None, 7, np.float32),
    ),
    Mutation(
        "a store of one place fills the others, too", one_hot_stores._PickedStore, "_hit",
        lambda self, axis: full((self.place.size,), 1, "bool", None),
        lambda: test_one_hot_stores.test_single_places(None, 7),
    ),
    Mutation(
        "places are not kept inside where they are loaded", one_hot_loads, "binary",
        lambda op, a, b, loc: a if op in ("minimum", "maximum") else binary(op, a, b, loc),
        lambda: test_one_hot_loads.test_every_type(None, test_one_hot_loads.TABLES[0]),
    ),
    Mutation(
        "integers are multiplied as float32", computed, "itemsize", lambda dtype: 1,
        lambda: test_one_hot_loads.test_every_type(None, test_one_hot_loads.TABLES[2]),
    ),
    Mutation(
        "what a mask leaves out is picked", one_hot_loads, "where",
        lambda mask, a, b, loc: a if a.type.rank == 2 else where(mask, a, b, loc),
        lambda: test_one_hot_loads.test_values(None),
    ),
    Mutation(
        "a column fills as many registers as a row", turns, "_held", prod,
        test_turns_at_once.test_turns_are_as_many_as_there_are_and_fewer_of_large_states,
    ),
    Mutation(
        "ranges are computed from vectors", inline_indices, "of_vectors", lambda expr: False,
        test_measured_ranges.test_others_stay,
    ),
    Mutation(
        "tiles lie where vectors say", measured_ranges, "map_sites",
        lambda kernel, nest, change: nest,
        lambda: test_measured_ranges.test_tiles_begin_where_vectors_say("tpu:v5e"),
    ),
    Mutation(
        "what a range is measured by is what it was before the loop", measures.Measures,
        "_alone", lambda self, expr, around: True,
        test_measured_ranges.test_others_stay,
    ),
    Mutation(
        "rows are measured from the first on, of whatever group", measures.Measures,
        "_range", lambda self, axis, asked: axis.static or (0, 1),
        test_measured_ranges.test_a_range_of_rows_is_measured_for_all_of_them,
    ),
    Mutation(
        "a range is measured wherever it is read", measures, "of_vectors",
        lambda expr: False, test_measured_ranges.test_no_vector_lies_in_scalar_memory,
    ),
    Mutation(
        "places of groups are those of rows", measures._Measure, "goes_by",
        lambda self, axis: axis in self.expr.type.shape,
        lambda: test_stored_places.test_values("cpu"),
    ),
    Mutation(
        "rows of a moved tile are counted from its loop on", measures._Measure, "entry",
        lambda self, axis: measures._at(axis.name, axis.kind),
        lambda: test_stored_places.test_values("cpu"),
    ),
    Mutation(
        "rows of ranges that may overlap have one number", measures, "_groups",
        lambda tile, around: next((a for a in around if a.kind == "grid"), None),
        lambda: test_stored_places.test_others_are_refused(test_stored_places.by_range, "float32"),
    ),
    Mutation(
        "what the nest stores lies in scalar memory", computed.ComputedPlaces,
        "changes", lambda self, tensor: False,
        test_recalled.test_counters_say_where_rows_go,
    ),
    Mutation(
        "an array that no loop fills is there where its numbers are read", host, "_read",
        lambda plan, scalars, hosts: (plan.ir.root(name) for name in hosts),
        lambda: test_uncovered.test_numbers_of_an_array_that_no_loop_fills("tpu:v5e"),
    ),
    Mutation(
        "rows are put together before there is what says where they are", host, "_arrays",
        lambda plan, name: {plan.ir.root(name)},
        lambda: test_stored_places.test_rows_at_places_that_a_loop_before_stores("tpu:v5e"),
    ),
    Mutation(
        "numbers of any array are read from scalar memory", stored_places, "no_room",
        lambda kernel, table, target: False,
        lambda: test_stored_places.test_numbers_that_scalar_memory_has_no_room_for("tpu:v5e"),
    ),
    Mutation(
        "what is put together has no mask", gather_ahead, "replace",
        lambda old, **new: replace(old, **{n: None if n == "mask" else v for n, v in new.items()}),
        lambda: test_stored_places.test_numbers_that_scalar_memory_has_no_room_for("tpu:v5e"),
    ),
    Mutation(
        "what places are made of is stored with them", stored_places, "loads", lambda expr: (),
        lambda: test_stored_places.test_places_that_places_say("cpu"),
    ),
    Mutation(
        "a position beside a part is another block", choose, "several",
        lambda *args: frozenset(),
        lambda: test_beside_parts.test_a_single_position_beside_a_part(
            again(test_beside_parts.boxes), (test_beside_parts.X,), test_beside_parts.BOXES, None
        ),
    ),
    Mutation(
        "every row is scattered", scatter_rows, "_large", lambda *args: True,
        test_scatter_rows.test_a_small_array_stays_in_blocks,
    ),
    Mutation(
        "what a loop carries feeds nothing", drop_unused, "_needed",
        lambda *args: {n for n in _needed(*args) if not n.endswith("_new")},
        test_drop_unused.test_what_feeds_a_store_stays,
    ),
    Mutation(
        "positions of a store keep their names", rewriting, "_selected", lambda select, _: select,
        test_rewriting.test_every_expression_of_a_statement,
    ),
    Mutation(
        "rows that are stored alone keep their names", rewriting, "_rows", lambda rows, _: rows,
        test_rewriting.test_every_expression_of_a_statement,
    ),
    Mutation(
        "operands of an operation keep their names", rewriting, "map_physical",
        lambda expr, _: expr, test_rewriting.test_every_operand_of_an_expression,
    ),
    Mutation(
        "which part of a block is meant keeps its names", rewriting, "_part", lambda part, _: part,
        test_rewriting.test_every_operand_of_an_expression,
    ),
    Mutation(
        "groups without rows in a tile change what they carry", lifted_groups, "takes_rows",
        lambda *_: True, lambda: test_block_groups.test_what_rows_and_groups_may_use_of_each_other(
            test_block_groups.faded, (), test_block_groups.faded_oracle
        ),
    ),
    Mutation(
        "the first column is the largest of all", members, "column",
        lambda values, at, column=members.column: column(values, 0),
        lambda: test_block_groups.test_what_rows_and_groups_may_use_of_each_other(
            test_block_groups.far_below, (), test_block_groups.far_below_oracle
        ),
    ),
    Mutation(
        "every head has the number of the first", flat_columns, "_parts",
        lambda value, count, width: (_of_heads(value, count, width)[0],) * count,
        lambda: test_flat_columns.test_rows_of_heads(*test_flat_columns.CASES[0]),
    ),
    Mutation(
        "rows of no group are stored", members.Members, "live",
        lambda self: Apply("full", (), Type((self.rows,), "bool"), (("value", True),)),
        test_block_groups.test_rows_between_the_groups_of_a_block_keep_their_fill,
    ),
    Mutation(
        "loops inside of a step turn as often as a range could", seconds, "with_lines",
        lambda _, at: at,
        test_estimate.test_loops_inside_of_a_step_turn_as_often_as_typical_ranges_have_tiles,
    ),
    Mutation(
        "the lines of a range are not verified", verify, "_lines", lambda here, *_: here,
        test_verify.test_every_expression_that_is_printed_is_verified,
    ),
    Mutation(
        "what a work list holds is not verified", verify, "_listed", lambda here, *_: here,
        test_verify.test_every_expression_that_is_printed_is_verified,
    ),
    Mutation(
        "rows beside a step's are not verified", verify, "_around", lambda *_: None,
        test_verify.test_every_expression_that_is_printed_is_verified,
    ),
    Mutation(
        "the outermost loop knows rows before it", loops, "counts", lambda *_: True,
        test_verify.only_range,
    ),
    Mutation(
        "only masks of ranges are shown", types, "masks", _of_ranges,
        test_masks.test_masks_of_the_author_and_of_arrays,
    ),
    Mutation(
        "blocks are filled by steps that may not come", outputs, "visits_all", _steps_or_not,
        test_uncovered.test_blocks_that_no_step_shows_are_filled,
    ),
    Mutation(
        "what lies outside of an array has no line", types, "_mask_text",
        lambda launch, mask, loc: _mask_text(launch, mask, None),
        test_masks.test_masks_of_the_author_and_of_arrays,
    ),
    Mutation(
        "no warps lie along what is added up", reductions, "warps_along",
        lambda shape, warps, wide: [1] * len(shape),
        test_triton.test_shared_memory_of_reductions,
    ),
    Mutation(
        "three products for one share a result", memory, "THREE", 1,
        test_triton.test_tensor_memory_is_limited,
    ),
    Mutation(
        "results of 64 rows take as many columns as those of 128", memory, "ROWS", 64,
        test_triton.test_tensor_memory_is_limited,
    ),
    Mutation(
        "runs of a view that lie in a row are not one", strides, "_merged", tuple,
        test_strides.test_every_reshaped_view,
    ),
    Mutation(
        "an output that is made in the shape of its view is not filled", exchanged, "_exchange",
        _unfilled, lambda: test_through.test_the_numbers("in_heads", None),
    ),
    Mutation(
        "parts of a run count from the first run on", access, "_computed", _no_remainder,
        test_strides.test_the_text_has_the_distance_of_every_part,
    ),
)  # fmt: skip
