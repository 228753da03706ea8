"""Recurrences over rows: the loop runs in the step, several turns of it in a row."""

from __future__ import annotations

import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from jax.experimental.pallas import tpu as pltpu

import tilelang as tile
import tilelang.language as hl
from tests.aot.written import compiled, needs_libtpu
from tests.codegen import flowing
from tests.codegen.test_single_rows import drawn, forms, on_tpu
from tests.interpreter import races_found
from tests.passes.becomes import again
from tests.tiers import share


@tile.kernel
def recurrence(a, x):
    """h = a[t] h + x[t], row by row."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for t in hl.grid(x.shape[0]):
        h = a[t, :].to(hl.float32) * h + x[t, :].to(hl.float32)
        y[t, :] = h.to(y.dtype)
    return y


@tile.kernel
def delta_rule(k, v, beta):
    """What a state answers to k[t] goes halfway to v[t]."""
    H, T, D = k.shape
    y = hl.zeros([H, T, D], dtype=v.dtype)
    for h in hl.grid(H):
        s = hl.zeros([D, D], dtype=hl.float32)
        for t in hl.grid(T):
            key = k[h, t, :]
            off = beta[h, t] * (v[h, t, :] - hl.sum(s * key[:, None], 0))
            s = s + key[:, None] * off[None, :]
            y[h, t, :] = hl.sum(s * key[:, None], 0)
    return y


@tile.kernel
def farthest(points, count: hl.constexpr):
    """How far the points are that lie farthest from those before them, of which row 0 is one."""
    far = hl.zeros([count], dtype=hl.float32)
    near = hl.full([points.shape[0]], 3.0e38, dtype=hl.float32)
    for t in hl.grid(count):
        near = hl.minimum(near, ((points[:, :] - points[t, :][None, :]) ** 2).sum(1))
        far[t] = near.amax(0)
    return far


@tile.kernel
def best_path(scores, moves):
    """The best sum of scores and moves that ends in each state, of every row."""
    T, S = scores.shape
    y = hl.zeros([T, S], dtype=hl.float32)
    best = hl.zeros([S], dtype=hl.float32)
    for t in hl.grid(T):
        best = hl.amax(best[:, None] + moves[:, :], 0) + scores[t, :]
        y[t, :] = best
    return y


@tile.kernel
def from_the_last(a, x):
    """The same from the last row on."""
    T = x.shape[0]
    y = hl.zeros(x.shape, dtype=x.dtype)
    h = hl.zeros([x.shape[1]], dtype=hl.float32)
    for t in hl.grid(T):
        h = a[T - 1 - t, :].to(hl.float32) * h + x[T - 1 - t, :].to(hl.float32)
        y[T - 1 - t, :] = h.to(y.dtype)
    return y


def from_the_last_exactly(a, x):
    return recurrence_exactly(a[::-1], x[::-1])[::-1]


def recurrence_exactly(a, x):
    y, h = np.zeros(x.shape), np.zeros(x.shape[1])
    for t in range(len(x)):
        y[t] = h = a[t].astype(np.float64) * h + x[t].astype(np.float64)
    return y


def delta_exactly(k, v, beta):
    y = np.zeros(k.shape)
    for h in range(len(k)):
        s = np.zeros((k.shape[2], k.shape[2]))
        for t in range(k.shape[1]):
            key = k[h, t].astype(np.float64)
            s += np.outer(key, beta[h, t] * (v[h, t] - key @ s))
            y[h, t] = key @ s
    return y


def best_exactly(scores, moves):
    y, best = np.zeros(scores.shape), np.zeros(scores.shape[1])
    for t in range(len(scores)):
        y[t] = best = (best[:, None] + moves).max(0) + scores[t]
    return y


def signs(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.sign(drawn(*shape, seed=1)).astype(dtype)


def spec(*shape: int, dtype: str = "float32") -> Any:
    return tile.spec(shape, dtype)


# ---------------------------------------------------------------- which loops


@pytest.mark.parametrize("target", ["tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"])
def test_a_loop_over_rows_runs_in_the_step(target):
    """A step of one row takes what any step costs, and picks the row from a block."""
    rows, states = spec(4096, 128), spec(4, 1024, 128)
    for kernel, arguments, several in (
        (recurrence, (rows, rows), 16),
        (from_the_last, (rows, rows), 16),
        (best_path, (spec(4096, 64), spec(64, 64)), 16),
        (delta_rule, (states, states, spec(4, 1024)), 8),
    ):
        text = kernel.source(*arguments, target=target)
        (count,) = re.findall(r"(?:unroll=|turned_in_rows\(.*, )(\d+)\)", text)
        place = r"(4095 - )?t\w*( - t \* \d+)?"
        assert re.search(rf"pl.ds\({place}, 1\)", text) and int(count) == several


def test_turns_are_as_many_as_there_are_and_fewer_of_large_states():
    config = tile.Config(loop_type="fori_loop")

    def several(kernel: tile.Kernel, *arguments: Any) -> list[str]:
        text = again(kernel).source(*arguments, target="tpu:v6e", config=config)
        return [part.split(")")[0] for part in text.split("unroll=")[1:]]

    assert several(recurrence, spec(4093, 128), spec(4093, 128)) == ["16"]  # and what is left
    assert several(recurrence, spec(5, 128), spec(5, 128)) == ["4"]
    large = spec(1, 64, 512)
    assert several(delta_rule, large, large, spec(1, 64)) == []
    assert several(farthest, spec(64, 3), 64) == ["16"]
    assert several(farthest, spec(4096, 3), 64) == []  # 512 registers hold a column


def test_ranges_of_unknown_length_have_turns_that_are_left():
    @tile.kernel
    def grouped(x, offsets):
        y = hl.zeros(x.shape, dtype=x.dtype)
        for g in hl.grid(offsets.shape[0] - 1):
            h = hl.zeros([x.shape[1]], dtype=hl.float32)
            for t in hl.grid(offsets[g], offsets[g + 1]):
                h = h + x[t, :]
                y[t, :] = h
        return y

    text = grouped.source(spec(512, 128), spec(5, dtype="int32"), target="tpu:v6e")
    assert "turned_in_rows(t_first, t_stop, each_t, h, 16)" in text


def test_the_name_of_the_function_may_be_the_author_s():
    @tile.kernel
    def grouped(turned_in_rows, offsets):
        y = hl.zeros(turned_in_rows.shape, dtype=turned_in_rows.dtype)
        for g in hl.grid(offsets.shape[0] - 1):
            h = hl.zeros([turned_in_rows.shape[1]], dtype=hl.float32)
            for t in hl.grid(offsets[g], offsets[g + 1]):
                h = h + turned_in_rows[t, :]
                y[t, :] = h
        return y

    text = grouped.source(spec(512, 128), spec(5, dtype="int32"), target="tpu:v6e")
    assert "jax.lax.fori_loop(t_first, t_stop, each_t, h)" in text


def test_arrays_that_do_not_fit_go_in_tiles():
    large = spec(1 << 18, 256)
    text = recurrence.source(large, large, target="tpu:v6e")
    assert "turned_in_rows(t * 512, t * 512 + 512" in text and "grid=(512,)" in text


# ---------------------------------------------------------------- what they make


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16], ids=str)
@pytest.mark.parametrize("rows", [1, 13, 64, 131])
@pytest.mark.parametrize(
    ("turned", "exactly"),
    [(recurrence, recurrence_exactly), (from_the_last, from_the_last_exactly)],
    ids=lambda v: getattr(v, "name", ""),
)
def test_recurrences(turned, exactly, rows, dtype):
    a, x, kernel = signs(rows, 40, dtype=dtype), drawn(rows, 40, dtype=dtype), on_tpu(turned)
    exact = exactly(a, x).astype(dtype).astype(np.float64)
    for config in forms(kernel, a, x):
        found = np.asarray(kernel(a, x, config=config)).astype(np.float64)
        np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("rows", [5, 35])
def test_states(rows):
    k, v, beta = drawn(3, rows, 16) / 32, drawn(3, rows, 16), drawn(3, rows) / 16
    kernel = on_tpu(delta_rule)
    for config in forms(kernel, k, v, beta):
        found = kernel(k, v, beta, config=config)
        np.testing.assert_allclose(found, delta_exactly(k, v, beta), rtol=1e-4, atol=1e-4)


def test_paths():
    scores, moves = drawn(70, 24), drawn(24, 24)
    np.testing.assert_array_equal(on_tpu(best_path)(scores, moves), best_exactly(scores, moves))


def test_strictly():
    """Memory is NaN until it is written, and an access outside of a buffer raises."""
    a, x = signs(131, 256), drawn(131, 256)
    kernel = on_tpu(recurrence, interpret=flowing.strict())
    assert "unroll=16" in kernel.source(a, x)
    try:
        found = kernel(a, x)
        assert not races_found()
        np.testing.assert_array_equal(found, recurrence_exactly(a, x))
    finally:  # memory and races are those of the whole process
        pltpu.reset_tpu_interpret_mode_state()


@needs_libtpu
@pytest.mark.parametrize("chip", share(["v6e", "v5e", "v4", "v5p", "7x"], 5, 0))
def test_every_generation_compiles_it(chip):
    target, states = f"tpu:{chip}", spec(2, 200, 100)
    for dtype in ("float32", "bfloat16"):
        rows = spec(1003, 100, dtype=dtype)
        assert compiled(recurrence, rows, rows, target=target)
        assert compiled(from_the_last, rows, rows, target=target)
    assert compiled(delta_rule, states, states, spec(2, 200), target=target)
    assert compiled(best_path, spec(1000, 64), spec(64, 64), target=target)
