"""Bugs planted in batches and parts of kernels, and the test that must notice each."""

from __future__ import annotations

import math
import sys
from dataclasses import replace

import pytest

import tilelang as tile
from tests.planted.passes import Mutation
from tests.runtime import test_batching, test_buckets, test_buckets_of_views, test_sharding
from tests.subjects import SUBJECTS
from tests.transforms import (
    test_batch,
    test_multiples,
    test_partition,
    test_stages,
    test_tile_sums,
    test_whole,
)
from tilelang.ir import Apply, Load, Store, Var, statement_exprs, walk
from tilelang.passes.static_lanes import StaticLanes
from tilelang.passes.tile_sums import tile_sums
from tilelang.runtime import (
    buckets,
    execution,
    jax_gradient,
    jax_programs,
    program,
    sharding,
    torch_ops,
)
from tilelang.runtime.lowering import proved
from tilelang.transforms import (
    batch,
    forward,
    local,
    multiples,
    partition,
    positions,
    stages,
    tile_folds,
    views,
    whole,
)

_prepare, _rows = jax_programs.prepare, buckets.ragged_rows
_on_device = execution._on_device
_sharded, _in_one = sharding._sharded, torch_ops._in_one
_grown, _each, _operands_of = batch._grown, program.one_by_one, execution.operands_of

tile_sums_file = sys.modules[tile_sums.__module__]


def _fresh_kernel(test):
    return lambda: test(tile.kernel(test_batching.scaled))


def _with_config(*case):
    with pytest.MonkeyPatch.context() as patch:
        test_sharding.test_a_config_is_of_the_loops_of_the_author(patch, *case)


def _inputs_only(ir, names):
    return frozenset(names)


def _without_views(ir, names):
    return _grown(ir, names) - {t.name for t in ir.tensors if t.role == "view"}


def _everything(ir, names):
    return _grown(ir, [t.name for t in ir.tensors])


def _values_only(self, stmt):
    changed = _stmt(self, stmt)
    return replace(changed, mask=stmt.mask) if isinstance(stmt, Store) else changed


def _not_nested(self, expr):
    """A position that is loaded is one of the first element's."""
    found = _expr(self, expr)
    if isinstance(found, Load) and found is not expr and found.tensor in self.grown:
        return replace(found, index=(found.index[0], *expr.index))
    return found


_stmt, _expr = batch._Launch.stmt, batch._Launch.expr


def _first_of_all(element, flags, own):
    run = _each(element, flags, own)
    return lambda *arrays: tuple(0 * r + r[:1] for r in run(*arrays))


def _one_by_one():
    with pytest.MonkeyPatch.context() as patch:
        test_batching.test_one_element_after_the_other(test_batching.refusing_kernel(patch))


def _parts(name):
    subject = next(s for s in SUBJECTS if s.name == name)
    return lambda: test_partition.test_the_parts_of_every_example(subject)


def _gradient_parts(name):
    subject = next(s for s in SUBJECTS if s.name == name)
    return lambda: test_partition.test_the_parts_of_gradients(subject)


def _counted() -> None:
    for case in test_partition.COUNTS:
        assert list(test_partition.parts_of(case)) == []


def _unclipped(factor, ragged, known):
    return factor


_tiles_kept_whole = partition._counted


def _cut_anew(factor, known):
    return replace(_tiles_kept_whole(factor, known), together=factor.together)


def _number(case):
    return lambda: test_partition.test_numbers_are_those_of_the_whole(case)


def _obstacle(case):
    return lambda: test_partition.test_obstacles(case)


MUTATIONS = (
    Mutation(
        "ranges read the offsets of no element", batch, "map_range", lambda axis, fn: axis,
        test_batch.test_ranges_read_the_offsets_of_their_element,
    ),
    Mutation(
        "results are shared", batch, "_grown", _inputs_only,
        test_batch.test_shared_arguments_stay,
    ),
    Mutation(
        "views keep their shape", batch, "_grown", _without_views,
        test_batch.test_launches_views_and_names,
    ),
    Mutation(
        "a permuted view permutes elements", batch, "_of_larger",
        lambda view, size: replace(view, arg=(size, *view.arg)),
        test_batch.test_launches_views_and_names,
    ),
    Mutation(
        "every argument is batched", batch, "_grown", _everything,
        test_batch.test_shared_arguments_stay,
    ),
    Mutation(
        "every launch has the same axis", batch, "_fresh",
        lambda ir: ["batch_1" for _ in ir.body], test_batch.test_launches_views_and_names,
    ),
    Mutation(
        "names of the author are taken", batch, "names_in", lambda ir: set(),
        test_batch.test_launches_views_and_names,
    ),
    Mutation(
        "masks of stores are those of no element", batch._Launch, "stmt", _values_only,
        test_batch.test_the_mask_of_stored_lanes,
    ),
    Mutation(
        "positions that are read are those of no element", batch._Launch, "expr", _not_nested,
        test_batch.test_a_picked_row,
    ),
    Mutation(
        "the batched arguments are other ones", execution, "operands_of",
        lambda ir: (*_operands_of(ir)[1:], _operands_of(ir)[0]),
        _fresh_kernel(test_batching.test_vmap_of_vmap),
    ),
    Mutation(
        "all elements have the first one's result", execution, "one_by_one", _first_of_all,
        _one_by_one,
    ),
    Mutation(
        "torch's results are those of the first", torch_ops, "_in_one",
        lambda *given: (lambda found: found[:1].expand_as(found))(_in_one(*given)),
        _fresh_kernel(test_batching.test_torch_vmap),
    ),
    Mutation(
        "torch loses what is stored", torch_ops, "_in_one",
        lambda callee, form, *rest: _in_one(callee, replace(form, stored=frozenset()), *rest),
        test_batching.test_torch_does_not_batch_stores,
    ),
    Mutation(
        "offsets are not clipped", partition, "_with_ranges", _unclipped,
        _parts("grouped_gemm"),
    ),
    Mutation(
        "rows that only a mask leaves out are on no device", partition, "_ends",
        lambda axis, factor, known: True, _obstacle("rows past those that are split"),
    ),
    Mutation(
        "what a loop carries is left on each device", partition, "_keeps_apart",
        lambda factor, known: True, test_partition.test_the_factors_of_a_grouped_product,
    ),
    Mutation(
        "offsets are read as numbers and clipped", local, "_numbers",
        lambda ir, split: iter(()), _counted,
    ),
    Mutation(
        "sums over what is taken whole begin with one", tile_sums_file, "neutral",
        lambda op, dtype: 1.0, lambda: test_whole.test_the_loops_do_the_same("norm"),
    ),
    Mutation(
        "the largest of parts are added up", tile_sums_file, "COMBINED",
        dict.fromkeys(tile_sums_file.COMBINED, "add"),
        lambda: test_whole.test_the_loops_do_the_same("softmax"),
    ),
    Mutation(
        "columns that are summed are kept apart", StaticLanes, "over", lambda self, expr: set(),
        lambda: test_whole.test_the_loops_do_the_same("norm"),
    ),
    Mutation(
        "scores are put together in memory", stages._Cut, "_is_kept", lambda self, name: True,
        test_sharding.test_dimensions_that_are_not_split_have_names_of_their_own,
    ),
    Mutation(
        "parts are divided by nothing", multiples, "_is_finite", lambda factor: True,
        _obstacle("a divisor that may be 0"),
    ),
    Mutation(
        "a product of numbers is a number", multiples, "_is_held", lambda sizes, dtype: True,
        lambda: test_multiples.test_factors("an infinite product"),
    ),
    Mutation(
        "devices run the whole axis", local, "_shorter", lambda axis, size: axis,
        test_partition.test_the_kernel_of_one_device,
    ),
    Mutation(
        "a bias is added on every device", partition, "_total",
        lambda expr, outs, known: next(
            (e for e in walk(expr) if isinstance(e, Var) and e.name in outs), None
        ),
        _obstacle("a bias"),
    ),
    Mutation(
        "what brings elements together is split", partition, "keeps", lambda *args: True,
        _obstacle("a whole row"),
    ),
    Mutation(
        "rows that lie elsewhere are rows", buckets, "_strides", lambda shape, dim: shape[dim],
        lambda: test_buckets_of_views.test_forms_whose_rows_lie_elsewhere_are_refused(
            test_buckets_of_views.elsewhere
        ),
    ),
    Mutation(
        "sums of tiles are added whatever is done with them", partition, "added_alone",
        lambda ir, axes, exprs, known: {
            id(e) for expr in exprs for e in walk(expr) if isinstance(e, Apply) and e.op == "sum"
        },
        lambda: test_tile_sums.test_what_goes_by_how_rows_are_cut_is_not_split(
            test_tile_sums.squares
        ),
    ),
    Mutation(
        "fixed tiles whose rows are mixed are cut", partition, "stay_together", lambda *args: 1,
        lambda: test_tile_sums.test_parts_put_together_are_the_whole(test_tile_sums.summed_up),
    ),
    Mutation(
        "pairs of rows count as rows", tile_folds, "keeps", lambda *args: True,
        lambda: test_tile_sums.test_what_goes_by_how_rows_are_cut_is_not_split(
            test_tile_sums.less_each
        ),
    ),
    Mutation(
        "tiles that are told apart are cut", partition, "_counted", _cut_anew,
        lambda: test_tile_sums.test_parts_put_together_are_the_whole(test_tile_sums.begins),
    ),
    Mutation(
        "positions are those of a device", positions, "plus", lambda expr, number: expr,
        _number("positions"),
    ),
    Mutation(
        "computed bounds are those of a device", local._OwnRange, "limit",
        lambda self, bound, op, most: bound, _number("a range that is computed"),
    ),
    Mutation(
        "masks are those of a device", partition, "numbers", lambda expr: iter(()),
        _number("a window"),
    ),
    Mutation(
        "tiles have a device's numbers", partition, "BEGINS", ("begin", "end", "id"),
        _obstacle("numbers of tiles"),
    ),
    Mutation(
        "what two devices store is added up", partition, "_once", lambda added, known: None,
        _obstacle("places that meet"),
    ),
    Mutation(
        "clipped offsets are numbers in another form", partition, "_as_they_lie",
        lambda *args: None, _obstacle("offsets in another form"),
    ),
    Mutation(
        "a part of one form is whole in the other", partition, "_in_all_forms",
        lambda *args: None, _obstacle("a part of each head"),
    ),
    Mutation(
        "dimensions are cut as those of their place", views, "_products",
        lambda shape: dict(enumerate(range(len(shape)))),
        test_partition.test_rows_are_split_as_the_sequences_that_they_are_of,
    ),
    Mutation(
        "what is returned in another form is not added up", partition, "_put_together",
        lambda added, known: tuple(added.items()),
        test_partition.test_sums_that_are_returned_in_another_form,
    ),
    Mutation(
        "stages return results as they are stored", stages._Cut, "_returning",
        lambda self, made, names: made, test_stages.test_stages_of_arrays_in_another_form,
    ),
    Mutation(
        "what a launch stores and reads is read before it", forward, "_unchanged",
        lambda kernel, loop: None,
        lambda: test_stages.test_what_reads_what_it_stores_has_no_stages(test_stages.stored_again),
    ),
    Mutation(
        "only values are read, not ranges", forward, "_read",
        lambda kernel, stmt: list(statement_exprs(stmt)),
        lambda: test_stages.test_what_reads_what_it_stores_has_no_stages(
            test_stages.in_a_range_that_is_stored
        ),
    ),
    Mutation(
        "tiles may be longer than what they are of", sharding, "_uneven",
        lambda ir, place, factor: str(factor.size // (factor.size // factor.together)),
        lambda: test_sharding.test_rows_of_tiles_that_are_told_apart(12, "stay together"),
    ),
    Mutation(
        "pairs of positions are those of a device", partition, "_beside", lambda *args: None,
        _obstacle("pairs of positions"),
    ),
    Mutation(
        "results of groups are not added up", partition, "_written_by_all",
        lambda *args: frozenset(), _parts("grouped_gemm"),
    ),
    Mutation(
        "rows of all devices are summed on each", partition, "_with_ranges",
        _unclipped, _gradient_parts("grouped_gemm"),
    ),
    Mutation(
        "what comes last is split", sharding, "_sharded",
        lambda specs: reversed(list(_sharded(specs))),
        test_sharding.test_the_first_of_what_contradicts_is_done,
    ),
    Mutation(
        "what is not split has one name for XLA", whole, "staged",
        lambda ir, facts, axes: (ir,),
        test_sharding.test_what_has_no_stages_has_a_name_of_its_own,
    ),
    Mutation(
        "arrays of one stage are whole in another", sharding, "_alike",
        lambda specs, split: dict(specs), test_sharding.test_stages_agree_on_what_is_sharded,
    ),
    Mutation(
        "a config goes for stages, too", execution, "_on_device",
        lambda chosen, split: _on_device(chosen, replace(split, ir=split.stages[0].ir)),
        lambda: _with_config(test_sharding.lengths, test_sharding.STAGED),
    ),
    Mutation(
        "sums that need others are made with them", stages._Cut, "_after", lambda self, name: 0,
        test_stages.test_a_sum_that_needs_another_comes_after_it,
    ),
    Mutation(
        "a part of the largest is the largest", partition, "FOLDS", {"sum": "sum", "max": "sum"},
        test_stages.test_the_stages_of_a_softmax,
    ),
    Mutation(
        "what is computed of the largest is put together", partition, "Var", Apply,
        test_stages.test_a_number_times_the_largest_is_not_the_largest,
    ),
    Mutation(
        "what is turned is another value", multiples, "turned_back", lambda expr: expr,
        lambda: test_partition.test_what_is_stored_through_a_view_is_put_together(
            test_partition.turned_means, "sum"
        ),
    ),
    Mutation(
        "gradients of what shards share are a shard's", jax_gradient, "varying_alike", list,
        test_sharding.test_gradients_of_what_shards_share_are_added_up,
    ),
    Mutation(
        "a kernel that counts its rows is padded", buckets, "_without_rows", lambda *args: None,
        lambda: test_buckets.test_refused("how many rows"),
    ),
    Mutation(
        "what is gathered is padded", buckets, "ragged_rows",
        lambda *args, **more: {**_rows(*args, **more), "x": frozenset({0})},
        test_buckets.test_what_is_gathered_is_no_row,
    ),
    Mutation(
        "what one row looks like is what many are", buckets, "ragged_rows",
        lambda ir, moved=True, other=None: _rows(ir, moved),
        test_buckets_of_views.test_two_rows_of_one_are_no_row,
    ),
    Mutation(
        "offsets are checked against padded rows", jax_programs, "prepare",
        lambda ir, facts, operands, chosen, *rest: _prepare(
            chosen.stages.ir, proved(chosen.stages.ir), operands, chosen, *rest
        ),
        test_buckets.test_offsets_are_those_of_the_rows_that_there_are,
    ),
    Mutation(
        "positions that share a place are torn apart", partition.Factor, "splits",
        lambda self, parts: self.size % parts == 0,
        test_partition.test_positions_that_share_a_place_stay_together,
    ),
    Mutation(
        "the smallest share is that of all", math, "lcm", min,
        test_partition.test_several_shares_stay_together,
    ),
    Mutation(
        "g + 1 is a position of its own", partition, "following", lambda entry: None,
        test_partition.test_the_factors_of_a_grouped_product,
    ),
)  # fmt: skip
