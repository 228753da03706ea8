"""Kernel.configs: what it gives away is legal, met once, and in the order of the estimate."""

from __future__ import annotations

import itertools

import pytest

import tilelang as tile
from examples.dense.matmul import matmul
from examples.dense.softmax import softmax
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_sum import jagged_sum
from tests.tiers import HALF, share


def bf16(*shape):
    return tile.spec(shape, "bfloat16")


GROUPED = (bf16(512, 256), bf16(4, 256, 256), tile.spec((5,), "int32"))
CALLS = (
    (grouped_gemm, GROUPED),
    (jagged_sum, (bf16(1024, 256), tile.spec((9,), "int32"))),
    (matmul, (bf16(512, 1024), bf16(1024, 256))),
)


def taken(kernel, arguments, target, count):
    return list(itertools.islice(kernel.configs(*arguments, target=target), count))


TARGETS = ("tpu:v6e", "tpu:v5p", "cpu", "cuda:sm90")
PAIRS = [(target, *call) for call in CALLS for target in TARGETS]


@pytest.mark.parametrize(
    "case", share(PAIRS, 4, rest=HALF, ids=lambda pair: f"{pair[1].__name__}-{pair[0]}")
)
def test_configs_are_legal_and_met_once(case):
    target, kernel, arguments = case
    found = taken(kernel, arguments, target, 12)
    assert len({c.config for c in found}) == len(found) > 5
    texts = set()
    for candidate in found[:8]:
        lowered = kernel.lower(*arguments, config=candidate.config, target=target)
        texts.add(lowered.source.text)
        assert lowered.config == candidate.config
    assert len(texts) == 8, "two configs are one program"


@pytest.mark.parametrize("call", share(CALLS, 3, rest=HALF, ids=lambda call: call[0].__name__))
def test_the_best_estimate_comes_first_and_the_default_is_there(call):
    kernel, arguments = call
    found = taken(kernel, arguments, "tpu:v6e", 60)
    seconds = [c.seconds for c in found if c.config.buffers is None]
    assert all(s is not None for s in seconds)
    # a better one may be met behind worse ones only: neighbours are looked at from the best
    assert all(b > 0.7 * max(seconds[: n + 1]) for n, b in enumerate(seconds)), "hardly sorted"
    default = kernel.default_config(*arguments, target="tpu:v6e")
    assert default in [c.config for c in found]


@pytest.mark.parametrize("target", ["cpu", "cuda:sm90"])
def test_without_an_estimate_the_default_is_the_first(target):
    (first,) = taken(grouped_gemm, GROUPED, target, 1)
    assert first.config == grouped_gemm.default_config(*GROUPED, target=target)
    assert first.seconds is None and "no estimate" in str(first)


def test_every_kind_of_choice_is_tried():
    found = [c.config for c in taken(grouped_gemm, GROUPED, "tpu:v5p", 90)]
    assert {c.loop_type for c in found} >= {None, "worklist", "emit_pipeline", "fori_loop"}
    assert {c.steps for c in found} == {None, "rectangle"}
    assert {c.buffers for c in found} == {None, 3, 4}
    assert len({c.block("tm") for c in found}) > 3


def test_blocks_of_groups_have_other_sizes():
    """Half and twice as many groups, and rows: none of them by a search that resizes plans."""
    arguments = tile.spec((65536, 512), "float32"), tile.spec((257,), "int32")
    found = [c.config for c in taken(jagged_sum, arguments, "tpu:v6e", 40)]
    sizes = {(c.block("g"), c.block("tm")) for c in found if c.block("g")}
    assert sizes >= {(128, 1024), (128, 2048), (256, 2048)}
    assert all(n for pair in sizes for n in pair)


def test_what_cannot_be_planned_says_so_at_once():
    with pytest.raises(tile.TileError):
        next(iter(softmax.configs(tile.spec((8, 8), "complex64"), target="tpu:v6e")))
