"""Steps that run their rows in pieces compute the same bits, and others are left alone."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.flash_attention import flash_attention, make_inputs
from tests.ragged import Space, every_stratum

SPACE = Space(rows=72, groups=5, block=16)
T, D, N = 72, 8, 16


@tile.kernel
def walked(x, keys, values, offsets, kind: hl.constexpr):
    """A running maximum with its sums; rows that are no query's are left out of every product."""
    y = hl.zeros([T, N], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            m = hl.full([tm], -8.0, dtype=hl.float32)
            acc = hl.zeros([tm, N], dtype=hl.float32)
            for tk in hl.tile(offsets[g] // 16 * 16, offsets[g + 1], block_size=16):
                scores = hl.dot(x[tm, :], keys[tk, :].T)
                scores = hl.where(tm.index[:, None] >= tk.index[None, :], scores, -8.0)
                best = hl.maximum(m, scores.amax(-1))
                near = hl.where(scores > best[:, None] - 4, scores, 0.0)
                if kind == "columns":  # a maximum over the rows, which cancels out
                    near = (near + scores.amax(0)[None, :]) - scores.amax(0)[None, :]
                if kind == "turned":  # a row of the product for each key
                    acc = acc + hl.dot(hl.dot(keys[tk, :], x[tm, :].T).T, values[tk, :])
                acc = acc + hl.dot(near, values[tk, :]) + (best - m)[:, None]
                m = best
            y[tm, :] = acc
    return y


rng = np.random.default_rng(0)
X, KEYS = (rng.integers(-2, 3, (T, D)).astype(np.float32) for _ in range(2))
VALUES = rng.integers(-2, 3, (T, N)).astype(np.float32)
CUTS = np.array([0, 5, 5, 40, 72], np.int32)
SPECS = tuple(tile.spec(a.shape, "float32") for a in (X, KEYS, VALUES))


def config(pieces: int | None, **more) -> tile.Config:
    return tile.Config({"tm": 16}, pieces=pieces, **more)


def walked_by_hand(cuts: np.ndarray) -> np.ndarray:
    """What a tile of 16 keys after the other makes of a row."""
    y = np.zeros((T, N))
    for begin, end in itertools.pairwise(cuts):
        for row in range(begin, end):
            m = -8.0
            for first in range(begin // 16 * 16, end, 16):
                keys = range(first, min(first + 16, end))
                scores = [X[row] @ KEYS[k] if k <= row else -8.0 for k in keys]
                best = max(m, *scores)
                weights = [s if s > best - 4 else 0.0 for s in scores]
                y[row] += sum(w * VALUES[k] for w, k in zip(weights, keys, strict=True)) + best - m
                m = best
    return y


def loops(source: str) -> list[str]:
    return re.findall(r"for \w+_piece in range\((\d+)\):", source)


def refused(kernel: tile.Kernel, arguments: tuple, chosen: tile.Config, **more: str) -> str:
    """Why a config is refused; nothing if it is not."""
    try:
        kernel.source(*arguments, config=chosen, **more)
    except tile.PlanError as error:
        return str(error)
    return ""


def test_the_same_bits_in_every_layout() -> None:
    kernel = tile.kernel(walked.__wrapped__)  # planned anew, also where bugs are planted
    outside = np.full((T, 1), np.nan, np.float32)
    for layout in every_stratum(SPACE):
        cuts = layout.offsets
        inside = (np.arange(T)[:, None] >= cuts[0]) & (np.arange(T)[:, None] < cuts[-1])
        given = [np.where(inside, a, outside) for a in (X, KEYS, VALUES)]
        whole = kernel(*given, cuts, "plain", config=config(0))
        for chosen in (config(8), config(4), config(8, loop_type="worklist")):
            found = kernel(*given, cuts, "plain", config=chosen)
            np.testing.assert_array_equal(np.asarray(found), np.asarray(whole))


def test_flash_attention_in_pieces() -> None:
    """XLA's products of fewer rows round otherwise."""
    arguments = (*make_inputs(), True)
    whole, pieces = (
        np.asarray(flash_attention(*arguments, config=tile.Config({"tq": 32}, pieces=rows)))
        for rows in (0, 8)
    )
    np.testing.assert_allclose(pieces, whole, rtol=1e-5, atol=1e-6)


def test_products_of_the_next_piece_come_first() -> None:
    source = walked.source(*SPECS, tile.spec((6,), "int32"), "plain", config=config(8))
    assert loops(source) == ["2"]
    called = source.index("tm_piece_ahead = tm_piece_products(tm_piece + 1)")
    assert source.index("for tm_piece in") < called < source.index("jnp.max(scores")
    # what all pieces use is computed before them
    assert source.index("factor = jnp.where(") < source.index("def tm_piece_products")


@pytest.mark.parametrize(
    ("kind", "rows"), [("columns", 8), ("turned", 8), ("plain", 16), ("plain", 5)]
)
def test_other_steps_are_left_alone(kind: str, rows: int) -> None:
    arguments = (*SPECS, tile.spec((6,), "int32"), kind)
    kernel = tile.kernel(walked.__wrapped__)
    assert loops(kernel.source(*arguments, config=config(None))) == []
    said = refused(kernel, arguments, config(rows))
    assert (
        f"pieces={rows}, but no step of walked makes something of a product of a tile that has "
        "more rows, each row by itself\n"
    ) in said
    hint = "leave pieces out, or use a multiple of 32 rows that divides a block"
    assert f"hint: {hint}" in said


def test_rows_of_a_piece_fill_registers() -> None:
    large = tile.spec((1, 2, 4096, 128), "bfloat16")
    for rows, legal in ((64, True), (16, False)):
        chosen = tile.Config({"tq": 128, "tk": 128}, pieces=rows)
        said = refused(flash_attention, (large, large, large), chosen, target="tpu:v6e")
        assert (said == "") == legal


def test_pieces_by_default_where_rows_are_long() -> None:
    def chosen(length: int, chip: str = "v6e", **blocks: int) -> list[str]:
        large = tile.spec((1, 2, length, 128), "bfloat16")
        kernel = tile.kernel(flash_attention.__wrapped__)
        config = tile.Config(blocks)
        return loops(kernel.source(large, large, large, config=config, target=f"tpu:{chip}"))

    assert chosen(4096) == ["4"]  # 512 rows of 4096 scores
    assert chosen(4096, tq=1024, tk=1024) == ["4"]
    assert chosen(4096, tq=256, tk=512) == []
    # units of 128 lanes have the same work with half of the numbers
    assert chosen(4096, "v5e", tq=1024, tk=1024) == ["8"]
    assert chosen(4096, "v5p", tq=512, tk=512) == ["2"]
    assert chosen(4096, "v5p", tq=256, tk=256) == []
