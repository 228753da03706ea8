"""Specialized warps: asked for only in the form that Triton has them in, else refused in words."""

from __future__ import annotations

import pytest

import tilelang as tile
from examples.dense.matmul import matmul
from examples.dense.softmax import softmax
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.jagged_attention import jagged_attention
from tests.aot.written import compiled
from tests.runtime.test_cuda import needs_triton
from tilelang.aot import CudaCompiled
from tilelang.errors import PlanError

X, W = tile.spec((1024, 512), "bfloat16"), tile.spec((512, 1024), "bfloat16")
GROUPS = (
    tile.spec((4096, 512), "bfloat16"),
    tile.spec((8, 512, 1024), "bfloat16"),
    tile.spec((9,), "int32"),
)
HEADS = (*(tile.spec((8, 2048, 128), "bfloat16"),) * 3, tile.spec((9,), "int32"))
ASKED = tile.Config(warp_specialize=True)


def refusal(kernel, *args, target="cuda:sm100", **config):
    with pytest.raises(PlanError) as caught:
        kernel.source(*args, target=target, config=tile.Config(warp_specialize=True, **config))
    return caught.value.what, caught.value.hint


def test_the_loop_of_products_is_marked():
    text = matmul.source(X, W, target="cuda:sm100", config=ASKED)
    assert "in tl.range(0, 512, 64, num_stages=3, warp_specialize=True):" in text
    assert "num_warps=4" in text and "x_boxes.load" in text
    assert "warp_specialize" not in matmul.source(X, W, target="cuda:sm100")


def test_ragged_loops_have_a_table():
    """Triton has none in a `while`, which finds tiles one after another."""
    text = grouped_gemm.source(*GROUPS, target="cuda:sm100", config=ASKED)
    assert text.count("warp_specialize=True") == 1
    assert "while" not in text and "item_ends" in text


WORDS = {
    "a target without boxes": (
        lambda: refusal(matmul, X, W, target="cuda:sm89"),
        "warp_specialize=True, but cuda:sm89 copies no boxes",
        "leave warp_specialize out; cuda:sm100 has it",
    ),
    "a target where it was wrong": (
        lambda: refusal(matmul, X, W, target="cuda:sm90"),
        "warp_specialize=True, but cuda:sm90 gives wrong results with it",
        "leave warp_specialize out; cuda:sm100 has it",
    ),
    "more warps": (
        lambda: refusal(matmul, X, W, warps=8),
        "warp_specialize=True, but warps=8",
        "give warps=4, or leave it out",
    ),
    "pointers": (
        lambda: refusal(matmul, X, W, indexing="pointer"),
        "warp_specialize=True, but indexing='pointer'",
        "leave indexing out",
    ),
    "a search": (
        lambda: refusal(grouped_gemm, *GROUPS, worklist="search"),
        "warp_specialize=True, but worklist='search'",
        "leave worklist out: a table of the tiles is written",
    ),
    "few rows": (
        lambda: refusal(matmul, X, W, blocks={"tm": 64}),
        "warp_specialize=True, but matmul has no loop whose warps could share the work: a product "
        "in the loop over tk_start has 64 rows, fewer than 128",
        "leave warp_specialize out, or give blocks with products of 128 rows and operands that are "
        "copied as boxes",
    ),
    "no product": (
        lambda: refusal(softmax, tile.spec((256, 512), "float32")),
        "warp_specialize=True, but softmax has no loop whose warps could share the work: no loop "
        "of it has a product",
        "leave warp_specialize out, or give blocks with products of 128 rows and operands that are "
        "copied as boxes",
    ),
}


@pytest.mark.parametrize("asked", WORDS)
def test_what_is_refused(asked):
    call, what, hint = WORDS[asked]
    assert call() == (what, hint)


def test_what_is_no_answer():
    with pytest.raises(PlanError, match="warp_specialize must be True or False"):
        tile.Config(warp_specialize=1.5)


@needs_triton
@pytest.mark.slow
@pytest.mark.parametrize("name", ["matmul", "grouped_gemm", "jagged_attention"])
def test_the_compiler_adds_warps(name):
    """If it left them out in silence, there would be 4."""
    kernel, specs, blocks = {
        "matmul": (matmul, (X, W), {}),
        "grouped_gemm": (grouped_gemm, GROUPS, {}),
        "jagged_attention": (jagged_attention, HEADS, {"tq": 128, "tk": 64}),
    }[name]
    config = tile.Config(blocks, warp_specialize=True)
    made = compiled(kernel, *specs, target="cuda:sm100", config=config, timeout=300.0)
    assert isinstance(made, CudaCompiled)
    (program,) = (p for p in made.programs if p.instructions["UTMALDG"])
    assert program.warps > 4
    if name != "jagged_attention":  # which takes 336 bytes
        assert program.stack == 0
