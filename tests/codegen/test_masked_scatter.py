"""Scatters under masks that are arrays: whether a row is stored is asked for each row by itself."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.passes.becomes import again
from tests.tiers import share

ROWS = 70
OFFSETS = np.array([0, 0, 9, 10, 40, 70, 70], np.int32)
FORMS: tuple[dict[str, Any], ...] = (
    {},
    {"loop_type": "outer_pipeline", "steps": "table"},
    {"loop_type": "outer_pipeline", "steps": "rectangle"},
    {"loop_type": "worklist"},
    {"loop_type": "emit_pipeline"},
    {"loop_type": "fori_loop"},
)


@tile.kernel
def counted(ids, keep, offsets):
    """How often every number is there in each group, of those that are kept."""
    y = hl.zeros([offsets.shape[0] - 1, 12], dtype=hl.int32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            hl.atomic_add(y, [g, ids[t]], 1, mask=keep[t] != 0)
    return y


@tile.kernel
def moved(x, ids, keep, offsets, length: hl.constexpr):
    """Rows that are kept go to where the others of their group do not say; tiles begin at 0."""
    y = hl.full([length, x.shape[1]], 7, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g + 1] - offsets[g], max_extent=x.shape[0]):
            kept = keep[offsets[g] + t.index] != 0
            hl.store(y, [ids[t], slice(None)], x[offsets[g] + t.index, :], mask=kept[:, None])
    return y


@tile.kernel
def weighted(x, ids, weight):
    """What says whether a row is stored is a value, too."""
    y = hl.zeros([12, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        value = x[t, :] * weight[t][:, None].to(x.dtype)
        hl.store(y, [ids[t], slice(None)], value, mask=weight[t][:, None] > 0)
    return y


@tile.kernel
def positive(x, ids, length: hl.constexpr = 12):
    y = hl.zeros([length, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        hl.store(y, [ids[t], slice(None)], x[t, :], mask=(x[t, 0] > 0)[:, None])
    return y


@tile.kernel
def summed(x, ids, length: hl.constexpr = 12):
    y = hl.zeros([length, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        hl.store(y, [ids[t], slice(None)], x[t, :], mask=(x[t, :].sum(1) > 0)[:, None])
    return y


@tile.kernel
def positive_first(x, ids):
    y, keep = hl.zeros([12, x.shape[1]], dtype=x.dtype), hl.zeros([x.shape[0]], dtype=hl.bool_)
    for s in hl.tile(x.shape[0]):
        keep[s] = x[s, :].sum(1) > 0
    for t in hl.tile(x.shape[0]):
        hl.store(y, [ids[t], slice(None)], x[t, :], mask=keep[t][:, None])
    return y


def drawn(seed: int, dtype: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((ROWS, 24)).astype(np.float32)
    return x, rng.integers(0, 12, ROWS, np.int32), rng.integers(0, 2, ROWS).astype(dtype)


def last_rows(x: np.ndarray, ids: np.ndarray, keep: np.ndarray, fill: float, length: int):
    y = np.full((length, x.shape[1]), fill, np.float32)
    for row, place, kept in zip(x, ids, keep, strict=True):
        y[place] = row if kept else y[place]
    return y


def moved_by_hand(x: np.ndarray, ids: np.ndarray, keep: np.ndarray, length: int) -> np.ndarray:
    own = np.concatenate([ids[: b - a] for a, b in pairwise(OFFSETS)])
    return last_rows(x, own, keep, 7, length)


@pytest.mark.parametrize("dtype", [np.bool_, np.int8, np.int32])
@pytest.mark.parametrize("form", share(FORMS, 2))
def test_numbers_that_are_kept_are_counted(form: dict[str, Any], dtype: Any) -> None:
    _, ids, keep = drawn(1, dtype)
    found = np.asarray(counted(ids, keep, OFFSETS, config=tile.Config({"t": 16}, **form)))
    for g in range(6):
        own = slice(OFFSETS[g], OFFSETS[g + 1])
        np.testing.assert_array_equal(found[g], np.bincount(ids[own], keep[own], 12))


@pytest.mark.parametrize("length", [12, 100_000])
@pytest.mark.parametrize("form", share(FORMS, 2))
def test_rows_that_are_kept_are_stored(form: dict[str, Any], length: int) -> None:
    """In a block that holds the output, and where a long one lies."""
    x, ids, keep = drawn(2, np.bool_)
    config = tile.Config({"t": 16}, **form)
    found = moved(x, ids, keep, OFFSETS, length, config=config)
    np.testing.assert_array_equal(found, moved_by_hand(x, ids, keep, length))


def test_rows_of_moved_tiles() -> None:
    x, ids, keep = drawn(2, np.bool_)
    found = again(moved)(x, ids, keep, OFFSETS, 12, config=tile.Config({"t": 16}))
    np.testing.assert_array_equal(found, moved_by_hand(x, ids, keep, 12))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32", "int16", "int8", "uint8"])
def test_what_says_so_is_a_value_too(dtype: str) -> None:
    import jax.numpy as jnp

    x, ids, keep = drawn(3, np.int32)
    found = weighted(x, ids, jnp.asarray(keep * 3, dtype))
    np.testing.assert_array_equal(np.asarray(found), last_rows(x * 3, ids, keep, 0, 12))


WHY = "store what says so to a tensor in a loop of its own before this one"


@pytest.mark.parametrize("target", ["cpu", "tpu:v6e"])
def test_what_is_computed_says_which_rows_of_a_small_array(target: str) -> None:
    x, ids, _ = drawn(4, np.bool_)
    found = again(positive)(x, ids, target=target)
    np.testing.assert_array_equal(found, last_rows(x, ids, x[:, 0] > 0, 0, 12))
    found = again(summed)(x, ids, target=target)
    np.testing.assert_array_equal(found, last_rows(x, ids, x.sum(1) > 0, 0, 12))


def test_of_a_large_one_it_says_how_it_is_stored_first() -> None:
    x, ids, _ = drawn(4, np.bool_)
    with pytest.raises(tile.PlanError) as caught:
        positive.source(x, ids, 100_000, target="tpu:v6e")
    assert (caught.value.what, caught.value.hint) == (
        "x says which rows are picked, or stored, so its rows cannot also be used as values",
        WHY,
    )
    with pytest.raises(tile.PlanError) as caught:
        summed.source(x, ids, 100_000, target="tpu:v6e")
    assert (caught.value.what, caught.value.hint) == (
        "rows are picked, and masked, by numbers that are loaded, constant or computed of those, "
        "and what says so has more in it",
        WHY,
    )
    np.testing.assert_array_equal(positive_first(x, ids), last_rows(x, ids, x.sum(1) > 0, 0, 12))


@needs_libtpu
@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:7x"])
@pytest.mark.parametrize("dtype", ["bool", "bfloat16", "int8"])
def test_the_compiler_takes_such_masks(dtype: str, target: str) -> None:
    x, ids = tile.spec((300, 128), "float32"), tile.spec((300,), "int32")
    keep, offsets = tile.spec((300,), dtype), tile.spec((7,), "int32")
    assert compiled(counted, ids, keep, offsets, target=target).memory.code
    assert compiled(moved, x, ids, keep, offsets, 100_000, target=target).memory.code
    assert compiled(weighted, x, ids, keep, target=target).memory.code
