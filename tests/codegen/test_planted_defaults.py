"""Bugs planted into the rules of defaults: of what was timed on an H100, and of what spills.

Without its rule a default is none of the configs that were timed, or far from the quickest of them;
or registers spill, by the real compiler.
"""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest

import tilelang as tile
from tests.aot.test_gpu_operands import (
    BLOCKS,
    DECAYED,
    DECAYED_KEYS,
    HEADS,
    OFFSETS,
    PAGES,
    ROWS_128,
    SCORES,
    WIDE_SCORES,
    adapters,
    latent,
    needs_triton,
    wide,
)
from tests.codegen.test_measured import NAMED, NEAR, TIMES
from tests.compile_cache import CUDA, shared
from tests.gpu import kernels, states
from tests.tiers import FIFTH, share
from tilelang.aot import compile_lowered
from tilelang.codegen.triton.passes.tile_wholes import tile_wholes
from tilelang.codegen.triton.plan import carried, defaults, groups, hopper, rows, shapes


def nothing(*args, **more):
    return None


def never(*args):
    return False


of_nest = rows._of_nest


def to_one(problem, loops):
    found = of_nest(problem, loops)
    return found and replace(found, columns=512, elements=4096, per_warp=512, stages=3)


# What is planted: where, and the case whose default shows it.
TIMED = {
    "sums over three results take two warps more in float32": (
        hopper, "scaled", lambda ir: 1, "attention_backward_of_q float32",
    ),
    "gradients have a program on each processor": (
        hopper, "MATRIX_ROWS", 128, "attention_backward_of_kv bfloat16",
    ),
    "attention has 8 warps for 64 rows": (
        defaults, "side_by_side", never, "jagged_attention bfloat16",
    ),
    "pages have 8 warps": (hopper, "_fused", nothing, "paged_attention bfloat16"),
    "two products have two stages": (hopper, "_square", never, "grouped_gemm_swiglu bfloat16"),
    "bytes that are turned have blocks of halves": (
        hopper, "turns_bytes", never, "quantized_matmul bfloat16",
    ),
    "what is converted has 8 warps": (
        hopper, "_converted", never, "weight_only_grouped_gemm bfloat16",
    ),
    "groups in float32 have 64 rows": (hopper, "_exact_rows", nothing, "grouped_gemm float32"),
    "short ranges have 64 keys": (hopper, "SHORTEST", 0, "varlen_attention bfloat16"),
    "short ranges have descriptors of their own": (
        hopper, "SHORT", 0, "gdpa_jagged_kv bfloat16",
    ),
    "one program has all of shared memory": (
        hopper, "pair", lambda target: target.shared // 8, "gdpa_dense_kv bfloat16",
    ),
    "long rows are those of any loop": (defaults, "row_tile", nothing, "layer_norm_long bfloat16"),
    "rows are read once, to one result": (
        rows, "_of_nest", lambda *args: to_one(*args), "cross_entropy bfloat16",
    ),
    "groups are those of any loop": (defaults, "group_tile", nothing, "jagged_sum bfloat16"),
    "rows that are read once have a thread each": (
        groups, "ONCE_PER_WARP", 512, "jagged_mean bfloat16",
    ),
    "rows that are read again are as many as fit": (
        groups, "AGAIN_ROWS", (16, 16), "jagged_softmax bfloat16",
    ),
    "whole rows of groups are few": (
        groups, "WHOLE_ELEMENTS", 2048, "jagged_layer_norm bfloat16",
    ),
    "no result is wide": (defaults, "is_wide", never, "matmul bfloat16"),
    "wide results are made one by one": (defaults, "is_flat", never, "jagged_dense_bmm bfloat16"),
    "rows that are known have 8 warps": (
        defaults, "with_few_warps", never, "flash_attention bfloat16",
    ),
}  # fmt: skip


def near(case):
    """Whether a default is one of the configs that were timed, and near the quickest."""
    name, dtype = case.split()
    kernel = tile.kernel(NAMED[name].kernel.__wrapped__)
    shapes_of = NAMED[name].cases[-2 if dtype == "bfloat16" else -1]
    time = TIMES[case].get(kernel.default_config(*shapes_of, target="cuda:sm90").to_json())
    return time is not None and time <= NEAR * min(TIMES[case].values())


@pytest.mark.parametrize("bug", share(TIMED, of=4))
def test_planted_rules_of_what_was_timed(bug, monkeypatch):
    *planted, case = TIMED[bug]
    if case.split()[0] not in NAMED:
        pytest.skip("this example is spelled in torch, which is not installed")
    assert near(case)
    monkeypatch.setattr(*planted)
    assert not near(case)


# What is planted: where, and the kernel, arguments and architecture of which registers spill.
ODD = (tile.spec((8192, 33), "bfloat16"), *(tile.spec((33,), "bfloat16"),) * 2)
SPILLING = {
    "addresses take no registers": (
        groups, "_odd", never, NAMED["jagged_layer_norm"].kernel,
        (*ODD, tile.spec((65,), "int32")), 90,
    ),
    "results may be 256 columns wide": (
        defaults, "WIDEST", 512, kernels.latent_attention, latent(256), 80,
    ),
    "what is scaled beside four products takes no registers": (
        defaults, "most_keys", lambda *args: carried.UNBOUNDED, kernels.two_softmaxes,
        (*HEADS, OFFSETS), 90,
    ),
    "scores may be as large as an author fixed them": (
        shapes, "GIVEN", carried.UNBOUNDED, kernels.block_sparse, wide(*BLOCKS), 80,
    ),
    "what is sought in float32 has 128 registers": (
        defaults, "REGISTERS", 128, kernels.outer_scores, WIDE_SCORES, 90,
    ),
    "states in float32 are as wide as others": (
        defaults, "tall", never, kernels.linear_attention, wide(*ROWS_128), 80,
    ),
    "ranges by ranges are as large as others": (
        defaults, "cut_both_ways", never, kernels.outer_scores, SCORES, 80,
    ),
    "what is computed of scores takes no registers": (
        hopper, "MUCH", carried.UNBOUNDED, states.sloped_attention, wide(*DECAYED), 90,
    ),
    "what is turned with positions takes no more than others": (
        defaults, "_turned_apart", never, states.decayed_keys, wide(*DECAYED_KEYS), 80,
    ),
    "long rows beside other products are multiplied whole": (
        sys.modules[tile_wholes.__module__], "_long", never, states.adapted, adapters(1024, 16), 90,
    ),
    "pages of long rows are multiplied whole": (
        sys.modules[tile_wholes.__module__], "_long", never, states.latent_pages, PAGES, 90,
    ),
    "scores of two products are 128 rows": (
        defaults, "is_latent", never, kernels.latent_attention, latent(128), 100,
    ),
}  # fmt: skip


@needs_triton
@pytest.mark.parametrize("bug", share(SPILLING, of=len(SPILLING) + 1, nth=-1, rest=FIFTH))
def test_planted_rules_of_registers(bug, monkeypatch):
    *planted, kernel, args, arch = SPILLING[bug]
    monkeypatch.setattr(*planted)
    lowered = tile.kernel(kernel.__wrapped__).lower(*args, target=f"cuda:sm{arch}")
    made = compile_lowered(lowered, worker=shared(CUDA))
    assert any(program.stack for program in made.programs)
