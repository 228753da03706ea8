"""Groups on a GPU: which tile their rows are reduced in, and which loops copy ahead."""

from __future__ import annotations

import re

import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.softmax import softmax
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_mean import jagged_mean
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum
from examples.jagged.segment_reduction import segment_reduction
from tests.aot.written import compiled
from tests.runtime.test_cuda import needs_triton
from tilelang.aot import CudaCompiled
from tilelang.codegen.triton.plan import body, loops

ROWS, WIDTH = 262144, 512
X = tile.spec((ROWS, WIDTH), "bfloat16")


def offsets(groups):
    return tile.spec((groups + 1,), "int32")


def chosen(kernel, *args):
    """Blocks, warps and stages of the default."""
    config = kernel.default_config(*args, target="cuda:sm90")
    return dict(config.blocks), config.warps, config.stages


@pytest.mark.parametrize("groups", [1, 256, 16384])
@pytest.mark.parametrize("kernel", [jagged_sum, jagged_mean], ids=lambda k: k.__name__)
def test_what_is_read_once_is_copied_ahead_by_one_warp(kernel, groups):
    assert chosen(kernel, X, offsets(groups)) == ({"tm": 16, "tf": 128}, 1, 3)


def test_narrow_rows_have_narrow_tiles():
    narrow = tile.spec((ROWS, 24), "bfloat16")
    assert chosen(jagged_sum, narrow, offsets(256))[0] == {"tm": 16, "tf": 24}


SOFTMAX = {  # groups -> rows and columns of a tile, and warps
    256: (256, 32, 8),
    1024: (128, 32, 4),
    4096: (32, 64, 2),
    16384: (16, 64, 1),
    100_000: (16, 64, 1),
}


@pytest.mark.parametrize("groups", SOFTMAX)
def test_what_is_read_again_is_half_of_a_group(groups):
    rows, columns, warps = SOFTMAX[groups]
    found = {"tm": rows, "tm_1": rows, "tf": columns}
    assert chosen(jagged_softmax, X, offsets(groups)) == (found, warps, 1)


def test_whole_rows():
    weight = tile.spec((WIDTH,), "bfloat16")
    for groups, rows, warps in ((256, 32, 8), (16384, 16, 4)):
        blocks, *rest = chosen(jagged_layer_norm, X, weight, weight, offsets(groups))
        assert blocks == dict.fromkeys(("tm", "tm_1", "tm_2"), rows) and rest == [warps, 1]


def odd_rows(groups: int) -> tuple[tile.TensorSpec, ...]:
    weight = tile.spec((33,), "float32")
    return tile.spec((4096, 33), "float32"), weight, weight, offsets(groups)


def test_odd_rows_have_more_warps():
    """Each of their numbers is read by an address of its own."""
    blocks, *rest = chosen(jagged_layer_norm, *odd_rows(16))
    assert blocks == dict.fromkeys(("tm", "tm_1", "tm_2"), 128) and rest == [8, 1]
    weight = tile.spec((WIDTH + 1,), "bfloat16")
    wide = tile.spec((ROWS, WIDTH + 1), "bfloat16")
    blocks, *rest = chosen(jagged_layer_norm, wide, weight, weight, offsets(256))
    assert blocks == dict.fromkeys(("tm", "tm_1", "tm_2"), 8) and rest == [8, 1]


@needs_triton
def test_odd_rows_do_not_spill():
    def stack(config: tile.Config | None = None) -> int:
        made = compiled(jagged_layer_norm, *odd_rows(16), target="cuda:sm90", config=config)
        assert isinstance(made, CudaCompiled)
        return sum(program.stack for program in made.programs)

    assert stack() == 0
    assert stack(tile.Config(warps=4)) > 0, "what even rows would have"


def test_sums_of_one_array_have_no_groups():
    assert chosen(softmax, X)[1:] == (8, 1)
    assert chosen(segment_reduction, X, offsets(256)) == ({"tm": 16, "tf": 128}, 1, 3)


# ---------------------------------------------------------------- which loops copy ahead


def heads(kernel, *args, **config):
    """Every loop over tiles and its stages, as printed."""
    text = kernel.source(*args, target="cuda:sm90", config=tile.Config(**config))
    found = re.findall(r"for (\w+)_start in tl.range\([^\n]*?(?:num_stages=(\d))?\):\n", text)
    return {name: stages and int(stages) for name, stages in found}


def test_loops_of_both_passes_copy_ahead_if_asked():
    found = heads(jagged_softmax, X, offsets(256), stages=3)
    assert (found["tm"], found["tm_1"], found["row"]) == (3, 3, "")


def test_one_stage_copies_nothing_ahead():
    assert heads(jagged_softmax, X, offsets(256), stages=1)["tm"] == ""


@tile.kernel
def in_place(y, offsets):
    sums = hl.empty([offsets.shape[0] - 1, y.shape[1]], dtype=y.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([y.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc += y[t, :].sum(0)
            y[t, :] = y[t, :] * 2.0
        sums[g, :] = acc
    return sums


@tile.kernel
def around(x, offsets):
    y = hl.empty([offsets.shape[0] - 1, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1], block_size=16):
            scale = x[t, :].amax(0)
            for u in hl.tile(offsets[g], offsets[g + 1]):
                acc += (x[u, :] * scale[None, :]).sum(0)
        y[g, :] = acc.to(y.dtype)
    return y


def test_what_a_loop_stores_is_not_copied_ahead_of_it():
    small = tile.spec((4096, 64), "float32")
    again = tile.kernel(in_place.__wrapped__)  # no plan of which is kept
    assert heads(again, small, offsets(4), stages=3)["t"] == ""
    assert heads(around, small, offsets(4), stages=3) == {"t": "", "u": 3}


def test_planted_copies_ahead_of_stores(monkeypatch):
    monkeypatch.setattr(
        body, "copies_ahead", lambda ir, loop, stored: loops.copies_ahead(ir, loop, ())
    )
    with pytest.raises(AssertionError):
        test_what_a_loop_stores_is_not_copied_ahead_of_it()


def test_copies_are_in_shared_memory():
    for stages in (2, 3, 4):
        config = tile.Config({"tm": 16, "tf": 128}, warps=1, stages=stages)
        lowered = jagged_sum.lower(X, offsets(256), target="cuda:sm90", config=config)
        assert lowered.plan.launches[0].shared == (stages - 1) * 16 * 128 * 2


def test_more_than_there_is_of_it_is_refused():
    with pytest.raises(tile.PlanError, match="bytes of shared memory"):
        jagged_sum.lower(
            X, offsets(256), target="cuda:sm90",
            config=tile.Config({"tm": 256, "tf": 512}, stages=4),
        )  # fmt: skip
