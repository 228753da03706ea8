"""The jagged examples as generated Pallas on the CPU, from JAX and from torch, on hard layouts.

One compiled kernel serves all layouts of a test, because they have the same shapes.
"""

from __future__ import annotations

import functools

import numpy as np
import pytest

import tilelang as tile
from tests import checks
from tests.frameworks import NEEDS_TORCH, from_jax, from_torch, torch
from tests.numerics import error
from tests.ragged import Layout, Space, every_stratum, wild_offsets, wrong_layouts
from tests.subjects import JAGGED, Subject
from tests.tiers import FIFTH, share

SPACE = Space(rows=72, groups=5, block=16)
LAYOUTS = every_stratum(SPACE)
VARIANTS = (  # of grouped_gemm, gdpa_dense_kv, jagged_dense_bmm, jagged_attention in other words
    "grouped_gemm_gelu",
    "grouped_gemm_swiglu",
    "gdpa_dense_kv_silu",
    "jagged_dense_bmm_bias",
    "hstu_attention",
    "jagged_attention",
    "grouped_query_attention",
)
each = pytest.mark.parametrize("subject", JAGGED, ids=str)
# A part of the examples each in `make test`; tests of one program share it.
first, third = (pytest.mark.parametrize("subject", share(JAGGED, 4, n)) for n in (0, 2))
# What the CPU's own compiler makes of a program, or torch of its arrays, differs least by example.
second = pytest.mark.parametrize("subject", share(JAGGED, 10, 1, FIFTH))
torches = pytest.mark.parametrize("subject", share(JAGGED, 6, 0, FIFTH))


def _arrays(subject: Subject, dtype: str, rows: int = SPACE.rows, groups: int = SPACE.groups):
    return subject.arrays(dtype, rows=rows, groups=groups)


def _jax(subject: Subject, config: tile.Config | None = None):
    return functools.partial(_call_jax, subject.kernel, config)


def _call_jax(kernel, config, *arguments):
    return from_jax(kernel, arguments, config=config)


@first
def test_every_layout(subject):
    for dtype in subject.dtypes:
        call = _jax(subject, subject.small)
        assert checks.every_layout(subject, call, _arrays(subject, dtype), LAYOUTS, dtype) == []


# One example for every way that its loops are made: another epilogue prints the same steps.
GUARDED = [s for s in JAGGED if s.name not in VARIANTS]


@pytest.mark.parametrize("subject", share(GUARDED, 6, 2, FIFTH))
def test_every_layout_with_guarded_steps(subject):
    config = tile.Config(subject.blocks, loop_type="outer_pipeline", steps="rectangle")
    arrays, call = _arrays(subject, "float32"), _jax(subject, config)
    assert checks.every_layout(subject, call, arrays, LAYOUTS, "float32") == []


@first
def test_every_layout_with_the_default_config(subject):
    arrays, call = _arrays(subject, "float32"), _jax(subject)
    assert checks.every_layout(subject, call, arrays, LAYOUTS, "float32") == []


@first
def test_neighbours_never_leak(subject):
    arrays, call = _arrays(subject, "float32"), _jax(subject, subject.small)
    layouts = [la for la in LAYOUTS if la.stratum in ("crowded", "edges and empties", "gap before")]
    assert checks.neighbours(subject, call, arrays, layouts) == []


@pytest.mark.skipif(torch is None, reason=NEEDS_TORCH)
@torches
def test_from_torch(subject):
    for dtype in subject.dtypes:
        arrays = _arrays(subject, dtype)
        for layout in LAYOUTS[::4]:
            cuts = layout.tensors(checks.ragged_of(subject).offsets)
            exact, baseline = subject.expected(*arrays, *cuts, *subject.static)
            given = (*arrays, *(offsets.astype(np.int64) for offsets in cuts), *subject.static)
            result = from_torch(subject.kernel, given, config=subject.small)
            problem = checks.differences(subject, result, exact, baseline, dtype)
            assert problem == "", str(layout)


@second
def test_every_layout_inside_jit(subject):
    """Compiled as a user's call is, without the cheaper options of the tests."""
    arrays, call = _arrays(subject, "float32"), subject.inside_jit
    assert checks.every_layout(subject, call, arrays, LAYOUTS, "float32") == []


@third
@pytest.mark.parametrize("groups", [1, 3, 0])
def test_no_rows(subject, groups):
    _is_zero(subject, _arrays(subject, "float32", 0, groups), np.zeros(groups + 1, np.int32))


@third
def test_no_groups(subject):
    _is_zero(subject, _arrays(subject, "float32", SPACE.rows, 0), np.zeros(1, np.int32))


def _is_zero(subject: Subject, arrays, offsets: np.ndarray) -> None:
    """With these offsets everywhere, the results are zeros of the shape of the oracle's."""
    arguments = subject.arguments(arrays, Layout("zero", offsets, offsets))
    results, exact = _jax(subject)(*arguments), subject.oracle(*arguments)
    for result, want in zip(checks.parts(results), checks.parts(exact), strict=True):
        assert error(result, want) == 0 and not result.any()


@third
def test_one_group(subject):
    space = Space(rows=40, groups=1, block=16)
    arrays, layouts = _arrays(subject, "float32", 40, 1), every_stratum(space)
    call = _jax(subject, subject.small)
    assert checks.every_layout(subject, call, arrays, layouts, "float32") == []


@each
def test_wrong_offsets_raise(subject):
    arrays = _arrays(subject, "float32")
    ragged = checks.ragged_of(subject)
    for layout in wrong_layouts(ragged.space(SPACE), ragged.offsets):
        arguments = subject.arguments(arrays, layout)
        with pytest.raises(ValueError, match="offsets"):
            from_jax(subject.kernel, arguments, config=subject.small)
        if torch is not None:
            with pytest.raises(ValueError, match="offsets"):
                from_torch(subject.kernel, arguments, config=subject.small)


@second
def test_wrong_offsets_without_checks_harm_no_other_group(subject):
    """Under `jax.jit` the values of offsets are not known, so that nothing can be raised."""
    arrays, call = _arrays(subject, "float32"), subject.inside_jit
    for name, offsets in wild_offsets(SPACE).items():
        assert checks.unchecked(subject, call, arrays, offsets) == [], name
