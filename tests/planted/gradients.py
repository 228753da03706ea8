"""Bugs planted in derivation; a comparison with JAX, or a refusal, must notice each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from tests.gradients import test_gradients_jax
from tests.passes import test_separate_parts
from tests.planted.passes import Mutation
from tests.subjects import SUBJECTS
from tests.transforms import (
    test_asked_once,
    test_fixed_positions,
    test_gradients,
    test_language_text,
    test_places,
    test_ranges,
    test_refused,
    test_residuals,
    test_scans,
    test_softmax,
)
from tilelang.analysis import once, symbols
from tilelang.ir import Along, Apply, Expr, GridIndex
from tilelang.language.build import unary, where
from tilelang.language.derivatives import RULES, OpUse, Rule
from tilelang.passes.drop_detached import drop_detached
from tilelang.runtime import parsed
from tilelang.transforms import (
    adjoints,
    asked_once,
    derive,
    gauge,
    graph,
    left_out,
    legal,
    linear,
    ranges,
    reverse,
    saved,
    scans,
    softmax,
    sums,
    unit_gauge,
)
from tilelang.transforms.language_text import _Printer
from tilelang.transforms.place import _Writer


def _compares(name: str) -> Callable[[], None]:
    subject = next(s for s in SUBJECTS if s.name == name)
    layout = test_gradients.HARD[0] if subject.ragged is not None else None

    def seen() -> None:
        test_gradients._derivative.cache_clear()
        try:
            assert test_gradients.compare(subject, layout, 32) == ""
        finally:
            test_gradients._derivative.cache_clear()  # what a planted bug derived

    return seen


def _under_any(graph: Any, roots: Any) -> Any:
    """Every condition that some store asks, for every value."""
    asked = frozenset(mask for _, mask in roots if mask is not None)
    return dict.fromkeys(graph.reached(value for value, _ in roots), asked)


def _nowhere(place: Any) -> Any:
    """The same place, stored to in the author's kernel as if nothing moved it."""
    return place and replace(place, written=Along(place.written.axis))


def _refuses(name: str) -> Callable[[], None]:
    entry = next(e for e in test_refused.REFUSED if e[0].__name__ == name)
    return partial(test_refused.test_refused, *entry)


def _prints(name: str) -> Callable[[], None]:
    def seen() -> None:
        test_gradients._derivative.cache_clear()
        try:
            test_language_text.round_trip(name, Path(mkdtemp()))
        finally:
            test_gradients._derivative.cache_clear()

    return seen


def _with(op: str, rule: Rule) -> Mapping[str, Rule]:
    return {**RULES, op: rule}


def _swapped(use: OpUse) -> tuple[Expr | None, ...]:
    condition = use.args[0]
    yes = where(condition, use.adjoint, 0.0, use.loc)
    return None, where(condition, 0.0, use.adjoint, use.loc), yes


def _from_the_begin(use: OpUse) -> tuple[Expr | None, ...]:
    """As if a part were the first elements."""
    part = use.apply
    attrs = {**dict(part.attrs), "start": 0, "stop": part.attr("stop") - part.attr("start")}
    return RULES["narrow"](replace(use, apply=replace(part, attrs=tuple(attrs.items()))))


def _without_sign(use: OpUse) -> tuple[Expr | None, ...]:
    over, minus = RULES["div"](use)
    assert minus is not None
    return over, unary("neg", minus, use.loc)


def _without_heads(self: saved.Residuals, expr: Any) -> Any:
    found = _INDEX(self, expr)
    return None if found is None else found[-1:]


def _whatever_is_asked(graph: Any, expr: Expr, condition: Expr, alone: Any) -> Expr:
    term = graph.term(expr)
    if isinstance(term, Apply) and term.op == "where":
        return term.args[1]
    if not isinstance(term, Apply) or term.op != "mul":
        return expr
    args = tuple(_whatever_is_asked(graph, a, condition, alone) for a in term.args)
    return graph.add(replace(term, args=args))


_INDEX = saved.Residuals.index_of
_REVERSED = scans.reversed_scan
_KEPT = reverse._kept
_OFFSET = saved.Residuals._offset
_CUT = ranges._cut
_GAUGE = unit_gauge._of_itself
_FROM_NUMBER = softmax._from_number
_PARTS = gauge._of_parts


def _bug(what: str, owner: Any, name: str, wrong: Any, seen_by: Callable[[], None]) -> Mutation:
    return Mutation(what, owner, name, wrong, seen_by)


MUTATIONS = (
    _bug(
        "the gradient of a part goes to the begin", adjoints, "RULES",
        _with("narrow", _from_the_begin), lambda: test_separate_parts.test_gradients("gated"),
    ),
    _bug(
        "exp has its operand as derivative", adjoints, "RULES",
        _with("exp", lambda use: use.times(use.args[0])), _compares("jagged_softmax"),
    ),
    _bug(
        "where passes to the other branch", adjoints, "RULES",
        _with("where", _swapped), _compares("hstu_attention"),
    ),
    _bug(
        "maximum passes to both", adjoints, "RULES",
        _with("maximum", RULES["add"]), _compares("matmul_bias_relu"),
    ),
    _bug(
        "a quotient grows with its divisor", adjoints, "RULES",
        _with("div", _without_sign), _compares("softmax"),
    ),
    _bug(
        "every maximum is a gauge", adjoints, "is_gauge",
        lambda *given: True, _compares("segment_reduction"),
    ),
    _bug(
        "any factor of a sum is taken for 1", sums, "_is_one",
        lambda *given: True, _refuses("doubled"),
    ),
    _bug(
        "a window is cut on the wrong side", ranges, "_cut",
        lambda graph, bound, edge, offset: _CUT(graph, bound, edge, -offset),
        _compares("sliding_window_attention"),
    ),
    _bug(
        "a group without rows multiplies by what it never read", reverse, "guarded",
        lambda launched, site: site.adjoint, test_gradients.test_a_group_without_rows,
    ),
    _bug(
        "what is saved at an offset is not stored there", saved.Residuals, "_offset",
        lambda found, name: _nowhere(_OFFSET(found, name)),
        test_residuals.test_rows_of_every_chunk_are_saved,
    ),
    _bug(
        "results have a place for all that is saved beside them", saved, "_leaves_out",
        lambda mask: False,
        test_residuals.test_what_a_mask_leaves_out_of_the_results_is_not_lost,
    ),
    _bug(
        "what an if leaves out is multiplied by 0", reverse, "masked",
        lambda launched: launched, test_gradients.test_what_an_if_leaves_out_has_no_share,
    ),
    _bug(
        "an if leaves out what is read elsewhere too", left_out, "_under", _under_any,
        test_gradients.test_what_an_if_leaves_out_has_no_share,
    ),
    _bug(
        "shared heads are stored over each other", reverse, "distinct",
        lambda *given: True, _compares("grouped_query_attention"),
    ),
    _bug(
        "what is stored twice is differentiated", legal, "stored_once",
        lambda *given: True, _refuses("stored_twice"),
    ),
    _bug(
        "tiles that are moved are numbered by where they begin", symbols.Meanings, "moved",
        frozenset(), _refuses("numbers_of_moved_tiles"),
    ),
    _bug(
        "stores of two loops are taken to be apart in each iteration around them", once, "_in_one",
        lambda *given: True, test_places.test_rows_that_may_be_stored_over_are_refused,
    ),
    _bug(
        "heads share what is saved", saved.Residuals, "index_of",
        _without_heads, _compares("jagged_attention"),
    ),
    _bug(
        "the gauge is the maximum, and the sum in it 1", unit_gauge, "_of_itself",
        lambda graph, found, values: (_GAUGE(graph, found, values) or {}) | {found.m.name: found.m},
        _compares("jagged_softmax"),
    ),
    _bug(
        "whatever is compared with a number is kept from zero", softmax, "_below_one",
        lambda limit: True, partial(test_softmax.test_limits_that_count, 3.0, test_softmax.LOWEST),
    ),
    _bug(
        "a total is 0 or at least 1, whatever its maximum begins with", softmax, "_from_number",
        lambda graph, m: (-math.inf, _FROM_NUMBER(graph, m)[1]),
        partial(test_softmax.test_limits_that_count, 1e-6, 0.0),
    ),
    _bug(
        "rows that see nothing are taken for rows that do", unit_gauge, "seen",
        lambda graph, condition: None,
        test_softmax.test_the_cotangent_of_a_row_that_sees_nothing_does_not_leak,
    ),
    _bug(
        "the largest is read from another kernel than its elements", saved.Residuals, "_compared",
        lambda self, roots, forward, loops: set(),
        test_residuals.test_no_result_is_compared_with_what_is_computed_again,
    ),
    _bug(
        "gradients pass through what is detached", parsed, "derive",
        lambda ir, facts, *rest: derive(drop_detached(ir), facts, *rest),
        test_gradients.test_what_is_detached_has_no_gradient,
    ),
    _bug(
        "what was derived is refused by a name that nobody wrote", parsed, "derive",
        lambda ir, facts, wanted, author: derive(ir, facts, wanted),
        test_gradients_jax.test_what_was_derived_is_refused_by_the_name_of_its_author,
    ),
    _bug(
        "what moves in no known way stays", gauge, "_of_parts",
        lambda graph, term, known: _PARTS(graph, term, known) or gauge.STAYS,
        test_fixed_positions.test_what_is_not_scaled_alike_is_refused,
    ),
    _bug(
        "rounded results are read by whatever needs them", saved, "_only_multiplied",
        lambda *given: True, test_residuals.test_what_is_no_product_is_not_rounded,
    ),
    _bug(
        "what another condition selected is taken for selected", asked_once, "_selected",
        _whatever_is_asked, test_asked_once.test_other_conditions_are_asked,
    ),
    _bug(
        "what is open for a value is remembered of another range", graph.Graph, "set_range",
        lambda self, axis, range: self.ranges.update({axis: range}),
        test_ranges.test_scores_that_are_masked_by_a_number,
    ),
    _bug(
        "an element shares with itself, met again by a loop", adjoints, "_differs",
        lambda *given: True, test_ranges.test_the_largest_of_one_element_that_may_not_be_met,
    ),
    _bug(
        "the largest of one element is that also where no loop meets it", graph.Graph, "_runs",
        lambda *given: True, test_ranges.test_the_largest_of_one_element_that_may_not_be_met,
    ),
    _bug(
        "what grows with an operand is compared", adjoints, "GROWING", frozenset(),
        test_ranges.test_the_largest_that_grows_with_its_operand_is_found_among_operands,
    ),
    _bug(
        "what every turn meets again is compared", graph.Graph, "_runs",
        lambda *given: False, test_ranges.test_the_largest_of_one_element,
    ),
    _bug(
        "a loop that runs back runs forward", _Writer, "position",
        lambda self, axis, scope: GridIndex(self.axis(axis, scope)),
        partial(test_scans.test_carried_over_indices, *test_scans.DENSE[0]),
    ),
    _bug(
        "what is behind a minus is added", linear, "_negative", lambda graph, found, term: found,
        partial(test_scans.test_carried_over_indices, *test_scans.DENSE[3]),
    ),
    _bug(
        "of two multiples of a carry the first one counts", linear, "_both",
        lambda graph, term, x, y: x,
        partial(test_scans.test_carried_over_indices, *test_scans.DENSE[3]),
    ),
    _bug(
        "what is scaled on its way arrives unscaled", adjoints, "reversed_scan",
        lambda graph, scan, adjoint: _REVERSED(graph, replace(scan, factor=None), adjoint),
        partial(test_scans.test_carried_over_indices, *test_scans.DENSE[2]),
    ),
    _bug(
        "tiles that are not there scale by 0", reverse, "_kept",
        lambda *given: _KEPT(*given[:4]),
        partial(test_scans.test_tiles_that_scale, test_scans.LAYOUTS[0]),
    ),
    _bug(
        "parentheses are left out", _Printer, "wrapped",
        lambda self, expr, level: self.shown(expr)[0], _prints("jagged_layer_norm"),
    ),
)  # fmt: skip
