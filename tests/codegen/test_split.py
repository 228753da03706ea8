"""Split reductions on GPUs: which loops, into how many parts, what becomes of them, refusals.

Needs neither a GPU nor Triton; tests/gpu/test_split.py runs them.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.flash_attention import flash_attention
from examples.dense.matmul import matmul
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_sum import jagged_sum
from tests.passes.becomes import loops
from tests.subjects import SUBJECTS
from tests.tiers import share
from tilelang.codegen.triton.passes.split_reductions import _neutral
from tilelang.errors import PlanError
from tilelang.ir.verify import verify

SM90 = "cuda:sm90"
ROWS = tile.spec((100, 64), "float32")
OFFSETS = tile.spec((5,), "int32")


def asked(parts, **more):
    return tile.Config(split=parts, **more)


def test_what_becomes_of_a_sum():
    config = asked(3, blocks={"tf": 64, "tm": 8})
    lowered = jagged_sum.lower(ROWS, OFFSETS, config=config, target=SM90)
    assert loops(verify(lowered.plan.ir)) == (
        "for part in grid(3):\n"
        "    for g in grid(4):\n"
        "        for tf in tile(64):\n"
        "            acc: float32[tf] = full([tf], float32, value=0.0)\n"
        "            tm_first: int32[] = offsets[g]\n"
        "            tm_last: int32[] = offsets[g + 1]\n"
        "            tm_length: int32[] = (maximum(tm_last - tm_first, 0) + 23) // 24 * 8\n"
        "            tm_part: int32[] = maximum(tm_first + part * tm_length, tm_first)\n"
        "            for tm in tile(tm_part, minimum(tm_part + tm_length, tm_last), max_extent=40) "
        "carrying acc_1 = full([tf], float32, value=0.0):\n"
        "                acc_2: float32[tf] = acc_1 + sum(x[tm, tf], axis=0)\n"
        "                next acc_1 = acc_2\n"
        "            after acc_3 = acc_1\n"
        "            acc_parts[part, g, tf] = acc_3\n"
        "\n"
        "for g_1 in grid(4):\n"
        "    for tf_1 in tile(64, block=64):\n"
        "        acc_4: float32[tf_1] = full([tf_1], float32, value=0.0)\n"
        "        for part_1 in grid(3) carrying acc_1_1 = acc_4:\n"
        "            next acc_1_1 = acc_1_1 + acc_parts[part_1, g_1, tf_1]\n"
        "        after acc_3_1 = acc_1_1\n"
        "        y[g_1, tf_1] = acc_3_1\n"
    )
    assert [launch.name for launch in lowered.plan.launches] == [
        "jagged_sum_1_kernel", "jagged_sum_2_kernel",
    ]  # fmt: skip
    assert [launch.programs for launch in lowered.plan.launches] == [12, 4]


@tile.kernel
def rows_and_sums(x, offsets, others):
    y, z = hl.zeros(x.shape, dtype=hl.float32), hl.zeros(x.shape, dtype=hl.float32)
    sums = hl.zeros([offsets.shape[0] - 1, x.shape[1]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for t in hl.tile(offsets[g], offsets[g + 1]):
            y[t, :] = x[t, :] * 2.0
    for g in hl.grid(others.shape[0] - 1):
        for t in hl.tile(others[g], others[g + 1]):
            z[t, :] = x[t, :] * 3.0
    for g in hl.grid(offsets.shape[0] - 1):
        acc = hl.zeros([x.shape[1]], dtype=hl.float32)
        for t in hl.tile(offsets[g], offsets[g + 1]):
            acc += x[t, :].sum(0)
        sums[g, :] = acc
    return y, z, sums


def test_what_a_launch_shares_reads_for_itself():
    """It stands before what the launch's own loop reads, whatever that has read already."""
    text = rows_and_sums.source(ROWS, OFFSETS, OFFSETS, config=asked(2), target=SM90)
    _, *launches, _, _ = text.split("@triton.jit")  # the sum has two, and clears nothing
    pairs = (("first", "offsets"), ("first_1", "others"))
    for launch, (name, offsets) in zip(launches, pairs, strict=True):
        made, own = (
            launch.index(f"{n} = tl.load({offsets}_ptr") for n in (name, f"{offsets}_tile")
        )
        assert 0 < made < launch.index(f"< {name})") < own, launch


@pytest.mark.parametrize("subject", share(SUBJECTS, 3, 2))
def test_every_example_is_split_or_refused(subject):
    """What is printed is a legal kernel, and its own config gives it again."""
    case = subject.cases[-1]
    try:
        lowered = subject.kernel.lower(*case, config=asked(4), target=SM90)
    except PlanError as error:
        assert error.what.startswith("split=4, but ")
        return
    verify(lowered.plan.ir)
    assert lowered.plan.parts == 4
    compile(lowered.source.text, subject.name, "exec")


def test_parts_of_whole_tiles_have_no_masks():
    x, w = tile.spec((128, 4096), "bfloat16"), tile.spec((4096, 128), "bfloat16")
    text = matmul.source(x, w, config=asked(4), target=SM90)
    assert "mask" not in text
    assert "mask" not in matmul.source(x, w, config=asked(3), target=SM90)  # 3 * 1408 > 4096
    x, w = tile.spec((128, 4112), "bfloat16"), tile.spec((4112, 128), "bfloat16")
    assert "mask" in matmul.source(x, w, config=asked(3, indexing="pointer"), target=SM90)
    boxes = matmul.source(x, w, config=asked(3), target=SM90)
    assert boxes.count("tl.maximum(tk_end, 1)") == 2 and "mask" not in boxes  # both end with tk


@pytest.mark.parametrize(
    ("op", "dtype", "value"),
    [
        ("add", "float32", 0.0), ("add", "int32", 0), ("maximum", "bfloat16", -math.inf),
        ("minimum", "float32", math.inf), ("maximum", "int32", -(2**31)),
        ("minimum", "int8", 127), ("maximum", "uint8", 0), ("minimum", "uint32", 2**32 - 1),
    ],
)  # fmt: skip
def test_what_changes_nothing(op, dtype, value):
    assert _neutral(op, dtype) == value


# ---------------------------------------------------------------- by rule

LONG = tile.spec((1 << 20, 512), "bfloat16")


def parts(kernel, *args, target=SM90, config=None):
    return kernel.lower(*args, config=config, target=target).plan.parts


def test_few_programs_are_split_by_rule():
    few, many = tile.spec((5,), "int32"), tile.spec((513,), "int32")
    assert parts(jagged_sum, LONG, few) == 64  # 16 programs of one warp for 132 processors, 8 times
    assert parts(jagged_sum, LONG, few, target="cuda:sm80") == 32
    assert parts(jagged_sum, LONG, few, config=tile.Config(warps=4)) == 16
    assert parts(jagged_sum, LONG, many) == 1
    assert parts(jagged_sum, ROWS, few) == 1  # little to do
    assert parts(jagged_sum, LONG, few, config=asked(1)) == 1
    x, w = tile.spec((128, 65536), "bfloat16"), tile.spec((65536, 256), "bfloat16")
    assert parts(matmul, x, w) == 128
    assert (
        parts(matmul, tile.spec((8192, 4096), "bfloat16"), tile.spec((4096, 4096), "bfloat16")) == 1
    )


def test_a_config_says_what_was_chosen():
    few = tile.spec((5,), "int32")
    config = jagged_sum.default_config(LONG, few, target=SM90)
    assert config.split == 64
    assert {name for name, _ in config.blocks} == {"tf", "tm"}
    chosen, again = (jagged_sum.source(LONG, few, config=c, target=SM90) for c in (None, config))
    assert chosen == again


# ---------------------------------------------------------------- what is refused


@tile.kernel
def numbered(x):
    y = hl.empty([x.shape[1]], dtype=hl.float32)
    for tf in hl.tile(x.shape[1]):
        acc = hl.zeros([tf], dtype=hl.float32)
        for tm in hl.tile(x.shape[0], block_size=16):
            acc += x[tm, tf].sum(0) * (tm.id + 1.0)
        y[tf] = acc
    return y


@tile.kernel
def kept(x):
    y, z = hl.empty([x.shape[1]], dtype=hl.float32), hl.empty(x.shape, dtype=hl.float32)
    for tf in hl.tile(x.shape[1]):
        acc = hl.zeros([tf], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            z[tm, tf] = x[tm, tf] * 2.0
            acc += x[tm, tf].sum(0)
        y[tf] = acc
    return y, z


@tile.kernel
def product(x):
    y = hl.empty([x.shape[1]], dtype=hl.float32)
    for tf in hl.tile(x.shape[1]):
        acc = hl.full([tf], 1.0, dtype=hl.float32)
        for m in hl.grid(x.shape[0]):
            acc = acc * x[m, tf]
        y[tf] = acc
    return y


@tile.kernel
def early(x):
    y, z = (hl.empty([x.shape[1]], dtype=hl.float32) for _ in range(2))
    for tf in hl.tile(x.shape[1]):
        z[tf] = x[0, tf]
        acc = hl.zeros([tf], dtype=hl.float32)
        for tm in hl.tile(x.shape[0]):
            acc += x[tm, tf].sum(0)
        y[tf] = acc
    return y, z


@tile.kernel
def single(x):
    y = hl.empty(x.shape, dtype=hl.float32)
    for tm, tf in hl.tile(x.shape):
        y[tm, tf] = x[tm, tf]
    return y


HEADS = tile.spec((1, 2, 64, 32), "float32")
REFUSED = {
    "numbered": (numbered, (ROWS,), "tm.id counts the tiles of the whole range"),
    "kept": (kept, (ROWS,), "tm stores to z"),
    "product": (product, (ROWS,), "m carries acc, which is no sum, maximum or minimum"),
    "early": (early, (ROWS,), "tf stores before tm"),
    "single": (single, (ROWS,), "no loop inside of tf adds anything up"),
    "attention": (
        flash_attention,
        (HEADS, HEADS, HEADS),
        "tk carries total, which is no sum, maximum or minimum",
    ),
    "ragged": (
        grouped_gemm,
        (ROWS, tile.spec((4, 64, 32), "float32"), OFFSETS),
        "the range of tm is read from memory",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    kernel, args, reason = REFUSED[name]
    with pytest.raises(PlanError) as caught:
        kernel.lower(*args, config=asked(2), target=SM90)
    assert (caught.value.what, caught.value.hint) == (f"split=2, but {reason}", "leave split out")
    assert caught.value.loc is not None
    assert parts(kernel, *args) == 1


def test_the_other_family():
    with pytest.raises(PlanError, match="split=2 means nothing to tpu:v6e"):
        jagged_sum.lower(np.zeros((8, 8), np.float32), np.zeros(3, np.int32),
                         config=asked(2), target="tpu:v6e")  # fmt: skip
