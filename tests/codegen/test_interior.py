"""Interior tiles: which loops are cut, where, and what is left of their masks."""

from __future__ import annotations

import re

import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.attention_backward import attention_backward
from examples.dense.flash_attention import flash_attention
from examples.dense.matmul import matmul
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_sum import jagged_sum
from examples.jagged.sliding_window_attention import sliding_window_attention
from examples.jagged.transposed_grouped_gemm import transposed_grouped_gemm
from tests.gpu import kernels
from tests.language.test_scans import running_sums

ROUND = {"tm": 64, "tn": 64, "tk": 32}
HEADS = (*(tile.spec((4, 4096, 64), "bfloat16"),) * 3, tile.spec((9,), "int32"))


def loops(text, name):
    """The heads and bodies of the loops over a tile, of one text."""
    lines = text.splitlines()
    found = []
    for at, line in enumerate(lines):
        if re.match(rf" *for {name}_start in ", line):
            depth = len(line) - len(line.lstrip())
            body = []
            for inner in lines[at + 1 :]:
                if inner.strip() and len(inner) - len(inner.lstrip()) <= depth:
                    break
                body.append(inner)
            found.append((line.strip(), "\n".join(body)))
    return found


def printed(kernel, *args, target="cuda:sm90", **config):
    return kernel.source(*args, target=target, config=tile.Config(**config) if config else None)


def test_the_range_and_the_diagonal_are_one_end():
    text = printed(jagged_attention, *HEADS, True)
    (inside, whole), (rest, cut) = loops(text, "tk")
    assert inside == "for tk_start in tl.range(tq_begin, tk_whole, 64, num_stages=3):"
    assert rest == "for tk_start in tl.range(tk_whole, last, 64, num_stages=3):"
    assert "(tl.maximum(tl.minimum(last, tq_start + 1), tq_begin) - tq_begin) // 64 * 64" in text
    assert "where" not in whole and "tk_in" not in whole and "seen" not in whole
    assert "tl.where(seen & tk_in, scores" in cut
    assert "# whole tiles: no mask along tk" in text
    assert "# the other tiles, masked along tk" in text


def test_without_a_diagonal_the_range_decides():
    text = printed(jagged_attention, *HEADS)
    assert "tk_whole = tq_begin + (tl.maximum(tq_end, tq_begin) - tq_begin) // 64 * 64" in text
    (_, whole), (_, cut) = loops(text, "tk")
    assert "where" not in whole and "where(tk_in" in cut.replace("\n", "").replace(" ", "")


def test_what_is_known_of_the_ends_is_not_computed():
    """The tile's own end lies behind its first row, and both are not negative."""
    q = tile.spec((1, 2, 4096, 64), "bfloat16")
    text = printed(flash_attention, q, q, q, True)
    assert re.search(r"tk_whole = \(tq_start \+ 1\) // \d+ \* \d+\n", text)


def test_what_still_looks_at_positions_is_said_to_be_in_range():
    text = printed(sliding_window_attention, *HEADS, 20)
    (_, whole), _ = loops(text, "tk")
    assert "# whole tiles: all of tk is in range" in text
    assert "distance < 20" in whole and "tk_in" not in whole


def test_a_known_range_has_a_number():
    x, w = tile.spec((512, 1000), "float32"), tile.spec((1000, 512), "float32")
    (inside, whole), (rest, cut) = loops(printed(matmul, x, w, indexing="pointer"), "tk")
    assert "tl.range(0, 992, 32" in inside and "tl.range(992, 1000, 32" in rest
    assert "mask" not in whole and "mask" in cut


def test_of_a_mask_of_two_dimensions_the_other_one_is_left():
    """Rows that are no multiple of the block: loads of whole tiles along k asked for both."""
    x, w = tile.spec((500, 1000), "float32"), tile.spec((1000, 300), "float32")
    (_, whole), (_, cut) = loops(printed(matmul, x, w, indexing="pointer"), "tk")
    assert "tk_in" not in whole and "mask=tm_in[:, None]," in whole
    assert "mask=tm_in[:, None] & tk_in[None, :]" in cut


def test_of_a_select_of_two_dimensions_the_other_one_is_left():
    text = printed(kernels.picked_scores, *(tile.spec((1024, 64), "bfloat16"),) * 2,
                   tile.spec((1024,), "int32"))  # fmt: skip
    (_, whole), (_, cut) = loops(text, "tk")
    assert "tk_at < 1000" in cut and "tk_at < 1000" not in whole
    assert "tl.where((rows_tile > 0)[:, None], " in whole and "both =" not in whole.split("# ")[0]


def test_results_in_tensor_memory_are_there_once():
    """One tile beside a loop had its own 384 columns: Triton refused 832 (of 512)."""
    x, w = tile.spec((512, 200), "float32"), tile.spec((200, 512), "float32")
    assert len(loops(printed(matmul, x, w, indexing="pointer", blocks=ROUND), "tk")) == 2
    beside = printed(matmul, x, w, target="cuda:sm100", indexing="pointer", blocks=ROUND)
    assert len(loops(beside, "tk")) == 1


def test_one_tile_is_no_loop():
    """Two of one iteration would stand side by side, each with memory of its own."""
    x, w = tile.spec((512, 40), "float32"), tile.spec((40, 512), "float32")
    assert len(loops(printed(matmul, x, w, indexing="pointer"), "tk")) == 1


def test_lanes_that_a_block_has_not_are_never_whole():
    x, w = tile.spec((512, 1000), "float32"), tile.spec((1000, 512), "float32")
    blocks = {"tm": 64, "tn": 64, "tk": 24}  # 24 of 32 lanes
    assert len(loops(printed(matmul, x, w, indexing="pointer", blocks=blocks), "tk")) == 1


def test_boxes_need_no_masks():
    rows = tile.spec((4096, 512), "bfloat16")
    text = printed(transposed_grouped_gemm, rows, rows, tile.spec((3,), "int32"))
    assert "_boxes.load" in text and len(loops(text, "tm")) == 1


@pytest.mark.parametrize("target", ["cuda:sm80", "cuda:sm89"])
def test_where_warps_multiply_themselves_there_is_one_loop(target):
    assert len(loops(printed(jagged_attention, *HEADS, True, target=target), "tk")) == 1


def test_the_backward_of_attention_has_one_loop():
    q = tile.spec((1, 2, 1024, 64), "bfloat16")
    lse = tile.spec((1, 2, 1024), "float32")
    text = printed(attention_backward, q, q, q, q, lse, q)
    assert "whole tiles" not in text


def test_sums_without_products_have_one_loop():
    text = printed(jagged_sum, tile.spec((4096, 128), "float32"), tile.spec((9,), "int32"))
    assert len(loops(text, "tm")) == 1


@tile.kernel
def windowed(q, k, bound, window: hl.constexpr):
    """Conditions that hold in the first tiles, in the last ones, and in some of the middle."""
    T, D = q.shape
    out = hl.zeros([T, D], dtype=hl.float32)
    for tq in hl.tile(T):
        acc = hl.zeros([tq, D], dtype=hl.float32)
        low, high = bound[0], bound[1]
        for tk in hl.tile(T):
            scores = hl.dot(q[tq, :], k[tk, :].T)
            near = tq.index[:, None] - tk.index[None, :] < window
            scores = hl.where(near, scores, 0.0)
            scores = hl.where(tk.index[None, :] >= low, scores, 0.0)
            scores = hl.where(high > tk.index[None, :], scores, 0.0)
            acc = hl.dot(scores.to(k.dtype), k[tk, :], acc=acc)
        out[tq, :] = acc
    return out


def test_other_conditions_stay():
    q = tile.spec((1024, 64), "bfloat16")
    text = printed(windowed, q, q, tile.spec((2,), "int32"), 100)
    (_, whole), (_, cut) = loops(text, "tk")
    assert whole.count("tl.where") == 2 and cut.count("tl.where") == 3
    assert "high" in next(line for line in text.splitlines() if "tk_whole =" in line)


@tile.kernel
def remembered(q, k):
    """A mask that the loop carries: its name stands for another one in each tile."""
    T, D = q.shape
    out = hl.zeros([T, D], dtype=hl.float32)
    for tq in hl.tile(T):
        acc = hl.zeros([tq, D], dtype=hl.float32)
        seen = hl.zeros([tq], dtype=hl.int32)
        for tk in hl.tile(T, block_size=64):
            scores = hl.dot(q[tq, :], k[tk, :].T)
            acc = hl.dot(hl.where(seen[:, None] < 3, scores, 0.0).to(k.dtype), k[tk, :], acc=acc)
            seen = hl.maximum(seen, tq.index - tk.begin)
        out[tq, :] = acc
    return out


def test_what_a_loop_changes_is_no_bound():
    q = tile.spec((1024, 64), "bfloat16")
    assert len(loops(printed(remembered, q, q), "tk")) == 1


def test_positions_of_the_tile_itself_bound_no_tile():
    """A triangle of a tile with itself is cut in every tile."""
    text = printed(running_sums, tile.spec((64, 32), "float32"), tile.spec((5,), "int32"))
    (_, whole), _ = loops(text, "t")
    assert "t_whole = t_begin + (tl.maximum(t_end, t_begin) - t_begin)" in text
    assert "t_at[:, None] >= t_at[None, :]" in whole


BLOCKS = (*(tile.spec((4096, 8, 64), "bfloat16"),) * 3,
          tile.spec((512,), "int32"), tile.spec((65,), "int32"))  # fmt: skip


def test_a_range_as_long_as_a_tile_is_one_tile():
    """Wherever it begins: no second loop, no minimum of one number twice, no mask of its end."""
    text = printed(kernels.block_sparse, *BLOCKS)
    ((head, body),) = loops(text, "tk")
    assert head == "for tk_start in tl.range(tk_begin, tk_end, 64, num_stages=2):"
    assert "tk_end = c * 64 + 64\n" in text and "tk_in" not in text and "tk_whole" not in text
    assert "tl.where(tk_at[None, :] <= tq_at[:, None]" in body


def test_what_no_loop_moves_is_read_before_all_of_them():
    text = printed(kernels.block_sparse, *BLOCKS)
    q, loop, k = map(text.index, ("q_boxes.load(", "for j in tl.range", "k_boxes.load("))
    assert q < loop < k
