"""Blocks: legal multiples, whole dimensions, fixed sizes, and what a config may name."""

from __future__ import annotations

import pytest

from tests.schedule.written import Writing, mul, planned
from tilelang.analysis import analyze
from tilelang.codegen.pallas.plan.blocks import multiple
from tilelang.codegen.pallas.plan.defaults import shrink
from tilelang.codegen.pallas.plan.search import default_config
from tilelang.codegen.pallas.target import Target
from tilelang.errors import PlanError
from tilelang.ir import KernelIR
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

WHOLE = slice(None)


def scaled(
    rows: int = 512, columns: int = 512, dtype: str = "float32", block: int | None = None
) -> KernelIR:
    k = Writing("scaled")
    k.input("x", rows, columns, dtype=dtype)
    k.output("y", rows, columns, dtype=dtype, fill=None)
    with k.tile("tm", 0, rows, block=block), k.tile("tn", 0, columns):
        k.store("y", "tm", "tn", value=mul(k.load("x", "tm", "tn"), 2))
    return k.ir()


def problem_of(ir: KernelIR) -> Problem:
    return Problem(ir, analyze(ir))


@pytest.mark.parametrize(("dtype", "rows"), [("float32", 8), ("bfloat16", 16), ("int8", 32)])
def test_multiples_are_those_of_the_register_tile(dtype: str, rows: int) -> None:
    problem, target = problem_of(scaled(dtype=dtype)), Target.of("tpu:v5e")
    assert (multiple(problem, "tm", target), multiple(problem, "tn", target)) == (rows, 128)


@pytest.mark.parametrize("target", ["tpu:v5e", "tpu:v6e"])
def test_a_block_that_cannot_be_cut_is_refused(target: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(scaled(), Config({"tm": 12}), target)
    assert str(caught.value) == (
        "a block of 12 for tm cannot be cut from a dimension of 512\n"
        '  File "kernel.py", line 4\n'
        "    for tm in hl.tile(...):\n"
        "    ^^^^^^^^^^^^^^^^^^^^^^^\n"
        f"  hint: on {target} use a multiple of 8, or at least 512 for the whole dimension"
    )


def test_the_interpreter_cuts_any_block() -> None:
    assert dict(planned(scaled(), Config({"tm": 12, "tn": 7})).blocks) == {"tm": 12, "tn": 7}


def test_a_block_longer_than_the_dimension_is_the_dimension() -> None:
    plan = planned(scaled(rows=40), Config({"tm": 64}), "tpu:v5e")
    assert dict(plan.blocks)["tm"] == 40
    assert planned(scaled(rows=40), Config({"tm": 40}), "tpu:v5e").blocks == plan.blocks


@pytest.mark.parametrize(
    ("config", "what", "hint"),
    [
        (
            Config({"tk": 8}),
            "config names a block for 'tk', but no tile axis has it",
            "blocks that can be chosen: tm, tn",
        ),
        (
            Config(block_sizes=[8]),
            "block_sizes has 1 entries, scaled has 2 block sizes to choose",
            "they are, in order: tm, tn",
        ),
        (
            Config(block_sizes=[8, 128, 8]),
            "block_sizes has 3 entries, scaled has 2 block sizes to choose",
            "they are, in order: tm, tn",
        ),
    ],
)
def test_a_config_for_another_kernel(config: Config, what: str, hint: str) -> None:
    with pytest.raises(PlanError) as caught:
        planned(scaled(), config)
    assert (caught.value.what, caught.value.hint) == (what, hint)


def test_block_sizes_are_in_loop_order() -> None:
    assert dict(planned(scaled(), Config(block_sizes=[16, 128])).blocks) == {"tm": 16, "tn": 128}


def test_a_fixed_block_is_kept_and_cannot_be_chosen() -> None:
    ir = scaled(block=64)
    assert dict(planned(ir, Config(block_sizes=[256])).blocks) == {"tm": 64, "tn": 256}
    with pytest.raises(PlanError) as caught:
        planned(ir, Config({"tm": 128}))
    assert caught.value.what == (
        "config names a block for 'tm', but its block_size is fixed in the kernel"
    )
    assert caught.value.loc is not None
    assert caught.value.loc.text.strip() == "for tm in hl.tile(...):"


@pytest.mark.parametrize("target", ["cpu", "tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("sizes", [(1, 1), (7, 100), (4096, 4096), (1000, 20000)])
def test_defaults_are_legal_everywhere(target: str, dtype: str, sizes: tuple[int, int]) -> None:
    ir = scaled(*sizes, dtype=dtype)
    config = default_config(problem_of(ir), Target.of(target))
    again = planned(ir, config, target)
    assert again.blocks == planned(ir, Config(), target).blocks


def test_vectors_have_long_blocks_by_default() -> None:
    k = Writing("doubled")
    k.input("x", 1 << 20)
    k.output("y", 1 << 20, fill=None)
    with k.tile("t", 0, 1 << 20):
        k.store("y", "t", value=mul(k.load("x", "t"), 2.0))
    assert dict(planned(k.ir(), None, "tpu:v5e").blocks) == {"t": 65536}


@pytest.mark.parametrize("legal", [(8, 8), (8, 128), (128, 8), (65, 128)])
def test_blocks_shrink_until_none_can(legal: tuple[int, int]) -> None:
    """Loops that are alike have dimensions of their own, and so other smallest blocks."""
    sizes: dict[str, int] | None = {"a": 65, "b": 65}
    least = dict(zip(sizes, legal, strict=True))
    for _ in range(10):
        before = sizes
        sizes = shrink(before, least, before, (("a", "b"),))
        if sizes is None:
            assert all(b <= max(legal[i], 16) for i, b in enumerate(before.values()))
            return
        assert sum(sizes.values()) < sum(before.values())
    raise AssertionError(sizes)
