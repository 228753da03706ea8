"""carried_sums: shared memory of norms in tiles of columns, as Triton 3.6 was seen to take it."""

from __future__ import annotations

import pytest

import tilelang as tile
from examples.dense.layer_norm import layer_norm_long
from examples.jagged.paged_attention import paged_attention
from tests.passes.becomes import again
from tilelang.codegen.triton.plan import carried_sums, memory
from tilelang.codegen.triton.plan.types import Plan

ROWS = {dtype: (tile.spec((16384, 4096), dtype), *(tile.spec((4096,), dtype),) * 2)
        for dtype in ("float32", "bfloat16")}  # fmt: skip
# dtype, architecture, blocks of the rows and of the three loops over columns, bytes
SEEN = [
    ("float32", 90, (16, 64, 64, 64), 11_264),
    ("float32", 90, (16, 64, 256, 256), 53_248),
    ("float32", 90, (16, 256, 64, 256), 40_960),
    ("float32", 90, (64, 256, 256, 256), 139_264),
    ("float32", 90, (64, 64, 64, 256), 151_552),
    ("float32", 80, (16, 64, 64, 64), 13_312),
    ("float32", 80, (16, 256, 256, 256), 53_248),
    ("float32", 80, (64, 64, 64, 64), 50_176),
    ("float32", 80, (64, 256, 256, 256), 151_552),
    # a row of 256 numbers of 2 bytes is fewer than 4 bytes for each of 256 threads
    ("bfloat16", 90, (16, 256, 256, 256), 16_384),
    ("bfloat16", 80, (64, 256, 256, 256), 65_536),
]


def shared(kernel: tile.Kernel, given: tuple, config: tile.Config, target: str) -> int:
    plan = again(kernel).lower(*given, config=config, target=target).plan
    assert isinstance(plan, Plan)
    (launch,) = plan.launches
    return launch.shared


def planned(dtype: str, arch: int, blocks: tuple[int, ...]) -> int:
    names = ("tm", "tn", "tn_1", "tn_2")
    config = tile.Config(dict(zip(names, blocks, strict=True)), stages=3)
    return shared(layer_norm_long, ROWS[dtype], config, f"cuda:sm{arch}")


@pytest.mark.parametrize(("dtype", "arch", "blocks", "needed"), SEEN)
def test_as_the_compiler_takes_it(dtype, arch, blocks, needed):
    assert needed <= planned(dtype, arch, blocks) <= needed * 1.05


def test_what_does_not_fit_is_refused():
    """It was let through, and needs 200,704 bytes."""
    with pytest.raises(tile.PlanError, match="about 200704 bytes"):
        planned("float32", 80, (64, 64, 64, 256))


@pytest.mark.parametrize("bug", ["nothing passes", "one number of a row lies where four did"])
def test_planted(bug, monkeypatch):
    if bug == "nothing passes":
        monkeypatch.setattr(carried_sums, "_added", lambda made: iter(()))
    else:
        real = carried_sums._registers
        monkeypatch.setattr(carried_sums, "_registers", lambda *a, apart=False: real(*a))
    assert any(planned(dtype, arch, blocks) < needed for dtype, arch, blocks, needed in SEEN)


PAGES = tuple(tile.spec(shape, dtype) for shape, dtype in (
    ((8, 512, 128), "float32"), ((4, 64, 128, 128), "float32"), ((4, 64, 128, 128), "float32"),
    ((8, 8), "int32"), ((8,), "int32"), ((9,), "int32"),
))  # fmt: skip


@pytest.mark.parametrize(("columns", "needed"), [(64, 131_072), (128, 196_608)])
def test_scores_that_a_loop_inside_adds_up_pass_to_the_next_product(columns, needed):
    """64 KiB of them, in two parts, were missing."""
    config = tile.Config({"tk": 32, "tn": columns, "tq": 64})
    assert needed <= shared(paged_attention, PAGES, config, "cuda:sm90") <= needed * 1.05


def test_planted_scores_that_stay_in_registers(monkeypatch):
    monkeypatch.setattr(memory.LoopMemory, "_made_inside", lambda self, dot: False)
    with pytest.raises(AssertionError):
        test_scores_that_a_loop_inside_adds_up_pass_to_the_next_product(64, 131_072)
