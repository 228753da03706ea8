"""Kernels of no example: what their operands need of shared memory, and that no default spills."""

from __future__ import annotations

import sys

import pytest

import tilelang as tile
from tests.compile_cache import CUDA, shared
from tests.frameworks import needs_triton
from tests.gpu import kernels, states
from tests.tiers import HALF, share
from tilelang.aot import compile_lowered
from tilelang.codegen.triton.passes.tile_wholes import tile_wholes
from tilelang.codegen.triton.plan import (
    body,
    defaults,
    launch_memory,
    life,
    loop_products,
    memory,
    results,
)
from tilelang.ir.traversal import definitions

OFFSETS = tile.spec((17,), "int32")


def narrow(*shapes):
    return tuple(tile.spec(shape, "bfloat16") for shape in shapes)


SCORES = (*narrow((4096, 128), (4096, 128)), OFFSETS, OFFSETS)
ADDED = (*narrow((4096, 4096), (4096, 4096), (16, 4096, 16), (16, 16, 4096)), OFFSETS)
WIDE_SCORES = (*(tile.spec((4096, 128), "float32"),) * 2, OFFSETS, OFFSETS)
NORMS = narrow((8192, 2048), (2048, 2048), (2048,))


def normed(columns):
    """Rows of so many numbers; up to 256 of bfloat16 are multiplied whole."""
    rows = (8192, columns)
    return (*narrow(rows, rows, (columns,), (16, columns, 1024)), OFFSETS)


NORMED, WHOLE = normed(512), normed(256)
ROWS_64, ROWS_128 = ((*narrow(*((4096, 8, d),) * 3), OFFSETS) for d in (64, 128))
CROSSES = narrow((8192, 1024), (8192, 1024), (1024, 128), (128, 1024), (1024,))
HEADS = narrow(*((4096, 8, 128),) * 5)
DECAYED = (*ROWS_128[:-1], tile.spec((8,), "float32"), OFFSETS)
BLOCKS = (*ROWS_128[:-1], tile.spec((512,), "int32"), tile.spec((65,), "int32"))
DECAYED_KEYS = (*ROWS_128[:2], tile.spec((8,), "float32"), OFFSETS)
WEIGHTED = (*ROWS_128[:2], tile.spec((4096, 8), "float32"), OFFSETS)
LOW_RANK = (*narrow((4096, 2048), (16, 2048, 16), (16, 16, 2048)), OFFSETS)
LOOKED_UP = (*narrow(*((4096, 128),) * 3), tile.spec((64,), "float32"), OFFSETS)


SPARSE = (
    tile.spec((65536,), "float32"), tile.spec((65536,), "int32"),
    tile.spec((4096, 256), "float32"), tile.spec((2049,), "int32"),
)  # fmt: skip


def wide(*args):
    """The same in float32."""
    return tuple(tile.spec(a.shape, "float32") if a.dtype == "bfloat16" else a for a in args)


def latent(columns):
    """Of 16 heads over one latent row of so many numbers, and 64 that are turned."""
    rows = [(2048, 16, columns), (2048, 16, 64), (2048, columns), (2048, 64)]
    return (*narrow(*rows), OFFSETS)


def adapters(width, rank):
    """Of 32 adapters of few columns, whose weights are small, and rows that are long."""
    return (
        *narrow((8192, width), (32, width, rank), (32, rank, width)),
        tile.spec((64,), "int32"),
        tile.spec((65,), "int32"),
    )


PAGES = (
    *narrow((64, 128, 512), (64, 128, 64), (4096, 32, 512), (4096, 32, 64)),
    tile.spec((64, 64), "int32"),
    tile.spec((64,), "int32"),
)

# kernel, arguments, architecture; bytes by the compiler (Triton 3.6.0) of the default
NEEDED = (
    (kernels.outer_scores, SCORES, 80, 65536),
    (kernels.outer_scores, SCORES, 90, 98304),
    (kernels.outer_scores, SCORES, 100, 81936),
    (kernels.outer_scores, WIDE_SCORES, 80, 106496),
    (kernels.outer_scores, WIDE_SCORES, 89, 73728),
    (kernels.outer_scores, WIDE_SCORES, 90, 106496),
    (kernels.latent_attention, latent(128), 90, 73784),
    (kernels.latent_attention, latent(256), 80, 65536),
    (kernels.latent_attention, latent(256), 90, 61496),
    (kernels.latent_attention, latent(512), 89, 32768),
    (kernels.low_rank_added, ADDED, 90, 73752),
    (kernels.low_rank_added, ADDED, 100, 65552),
    (kernels.normalised_products, NORMS, 80, 81920),
    (kernels.normalised_products, NORMS, 90, 114744),
    (kernels.two_softmaxes, (*HEADS, OFFSETS), 80, 45056),
    (kernels.two_softmaxes, (*HEADS, OFFSETS), 89, 45056),
    (kernels.two_softmaxes, (*HEADS, OFFSETS), 90, 49152),
    (kernels.normed_rows, NORMED, 80, 53504),
    (kernels.normed_rows, NORMED, 90, 78208),
    (kernels.normed_rows, NORMED, 100, 53504),
    (kernels.normed_rows, WHOLE, 80, 106496),
    (kernels.normed_rows, WHOLE, 89, 86016),
    (kernels.normed_rows, WHOLE, 90, 172032),
    (kernels.normed_rows, WHOLE, 100, 139280),
    (kernels.linear_attention, ROWS_64, 80, 24576),
    (kernels.linear_attention, ROWS_64, 90, 45096),
    (kernels.linear_attention, ROWS_64, 100, 65584),
    (kernels.linear_attention, ROWS_128, 89, 28672),
    (kernels.linear_attention, ROWS_128, 100, 114736),
    (kernels.retention, DECAYED, 89, 36864),
    (kernels.retention, DECAYED, 90, 65576),
    (kernels.block_sparse, BLOCKS, 90, 65568),
    (kernels.block_sparse, BLOCKS, 100, 82464),
    (kernels.looked_up_scores, LOOKED_UP, 100, 99328),
    (kernels.latent_attention, wide(*latent(256)), 80, 118784),
    (kernels.latent_attention, wide(*latent(256)), 100, 73728),
    (kernels.normed_rows, wide(*normed(128)), 89, 73728),
    (kernels.normed_rows, wide(*normed(4096)), 80, 19712),
    (kernels.outer_scores, WIDE_SCORES, 100, 106496),
    (kernels.low_rank_cross, CROSSES, 90, 73872),
    (kernels.low_rank_cross, CROSSES, 100, 102544),
    (kernels.retention, wide(*DECAYED), 80, 16384),
    (kernels.retention, wide(*DECAYED), 89, 16384),
    (kernels.retention, wide(*DECAYED), 90, 18432),
    (kernels.linear_attention, wide(*ROWS_64), 90, 16384),
    (kernels.block_sparse, wide(*BLOCKS), 80, 8192),
    (kernels.block_sparse, wide(*BLOCKS), 89, 8192),
    (kernels.block_sparse, wide(*BLOCKS), 90, 32792),
    (kernels.block_sparse, wide(*BLOCKS), 100, 32776),
    (kernels.latent_attention, wide(*latent(512)), 80, 145408),
    (kernels.latent_attention, wide(*latent(512)), 89, 69632),
    (kernels.normed_rows, wide(*normed(256)), 80, 26880),
    (kernels.normalised_products, wide(*NORMS), 80, 40960),
    (kernels.sparse_rows, SPARSE, 90, 16640),
    (states.weighted_keys, WEIGHTED, 80, 49664),
    (states.weighted_keys, WEIGHTED, 90, 82688),
    (states.decayed_keys, wide(*DECAYED_KEYS), 80, 65536),
    (states.two_passes, ROWS_128, 80, 98304),
    (states.two_passes, ROWS_128, 90, 98304),
    (states.two_passes, wide(*ROWS_64), 80, 40960),
    (states.sloped_attention, wide(*DECAYED), 90, 65536),
    (states.low_rank_groups, wide(*LOW_RANK), 90, 16384),
    (states.latent_pages, PAGES, 89, 43008),
    (states.latent_pages, PAGES, 90, 65560),
)


def word(sample):
    kernel, args, arch, _ = sample
    return f"{kernel.__name__}-{args[0].dtype}-{args[0].shape[-1]}-sm{arch}"


def lowered(kernel, args, arch):
    """Planned anew, whatever was planned before."""
    return tile.kernel(kernel.__wrapped__).lower(*args, target=f"cuda:sm{arch}")


def off():
    """What is more than 5 % off, one kernel after the other."""
    for kernel, args, arch, needed in NEEDED:
        said = max(launch.shared for launch in lowered(kernel, args, arch).plan.launches)
        if said != pytest.approx(needed, rel=0.05):
            yield kernel.__name__, arch, said


def test_what_operands_need():
    assert list(off()) == []


@needs_triton
@pytest.mark.parametrize(
    "sample",
    share(NEEDED, of=3, rest=HALF, ids=lambda s: f"{s[0].__name__}-{s[1][0].shape[-1]}-{s[2]}"),
)
def test_defaults_of_other_shapes_compile_and_spill_nothing(sample):
    kernel, args, arch, needed = sample
    made = compile_lowered(lowered(kernel, args, arch), worker=shared(CUDA))
    assert [(p.stack, p.shared) for p in made.programs] == [(0, needed)]


@pytest.mark.parametrize("arch", [80, 90])
def test_chains_of_names_may_be_long(arch):
    """Of 256 selects the estimate of shared memory was a RecursionError."""
    rows = narrow((4096, 128), (4096, 128), (4096, 128))
    made = lowered(kernels.looked_up_scores, (*rows, tile.spec((256,), "float32"), OFFSETS), arch)
    assert max(launch.shared for launch in made.plan.launches) > 0


def test_blocks_that_cannot_be_shorter_take_fewer_stages(monkeypatch):
    """Three stages of 16 x 16 of these need 132,096 bytes, sm_89 has 101,376: it was refused."""
    monkeypatch.setattr(sys.modules[tile_wholes.__module__], "LONG_WIDE", 512)  # rows stay whole
    monkeypatch.setattr(defaults, "EXACT", 1)  # and 16 of them are as few as there may be
    wide = tuple(tile.spec(arg.shape, "float32") for arg in NORMED[:-1])
    made = lowered(kernels.normed_rows, (*wide, OFFSETS), 89)
    assert (made.config.stages, dict(made.config.blocks)) == (2, {"n": 16, "t": 16})


PLANTED = {
    "results go as a whole": (results, "_parts", lambda *args: 1),
    "what loops carry out is no product": (launch_memory, "_made", definitions),
    "all that is copied is there once more": (memory, "turns", lambda uses, ahead: {}),
    "what is turned twice stays": (memory, "registers_turn", lambda operand: False),
    "what a sum makes is computed where it is wanted": (memory, "of_loads", lambda *args: True),
    "what loads make is computed elsewhere": (memory, "of_loads", lambda *args: False),
    "a result on its way to memory takes none": (memory, "leaving_bytes", lambda *args: 0),
    "what was computed before a loop has left memory": (
        loop_products.LoopProducts, "stays", lambda self, operand: False,
    ),
    "what memory holds lies as products want it": (
        loop_products.LoopProducts, "lies", lambda self, operand: False,
    ),
    "what several products read is in registers before its left operand": (
        life.Life, "beside", lambda self, number: (
            self.size if self.first <= number <= self.last and not self.passes else 0
        ),
    ),
    "long rows are multiplied whole": (
        sys.modules[tile_wholes.__module__], "_long", lambda dot: False,
    ),
    "warps lie alike in both products of a sum": (
        memory.LoopMemory, "_rearranged", lambda self, dot: 0,
    ),
    "rows of a head are a matrix where they lie": (
        memory.LoopMemory, "_elsewhere", lambda self, load, dot: False,
    ),
    "weights that are turned are copied ahead": (memory, "turned_matrices", lambda *args: ()),
    "all that is turned is copied ahead": (memory, "is_narrow", lambda load: False),
    "what registers hold is there once more": (memory.LoopMemory, "_in_registers", ()),
    "warps exchange all rows in memory": (
        memory.LoopMemory, "_in_each_warp", lambda self, operand: False,
    ),
}  # fmt: skip


@pytest.mark.parametrize("bug", share(PLANTED, 4))
def test_planted(bug, monkeypatch):
    monkeypatch.setattr(*PLANTED[bug])
    assert any(off())


def test_copies_around_a_loop(monkeypatch):
    """None are on their way there: the compiler copies ahead in innermost loops."""
    monkeypatch.setattr(memory.LoopMemory, "ahead", property(lambda self: self.of.pipe.stages - 1))
    assert any(off())


def test_wide_results_take_fewer_rows(monkeypatch):
    """128 x 256 numbers of a result spill on every architecture."""
    config = lowered(kernels.latent_attention, latent(512), 90).config
    assert (config.warps, dict(config.blocks)) == (8, {"tk": 16, "tk_1": 64, "tq": 64})
    config = lowered(states.latent_pages, PAGES, 90).config
    assert (config.warps, dict(config.blocks)) == (8, {"h": 64, "tk": 64})
    config = lowered(kernels.latent_attention, latent(256), 80).config
    assert (config.warps, dict(config.blocks)) == (8, {"tk": 32, "tq": 64})
    monkeypatch.setattr(defaults, "WIDEST", 512)
    assert dict(lowered(kernels.latent_attention, latent(256), 80).config.blocks)["tq"] == 128


def test_blocks_that_an_author_fixed_copy_nothing_ahead_in_float32():
    """64 rows and keys of 64 numbers in three products: of two stages ptxas spills 8,008 bytes."""
    blocks = tuple(tile.spec((4096, 8, 64), "float32") for _ in range(3)) + BLOCKS[3:]
    for arch, stages, columns in ((80, 1, 32), (90, 2, 64)):  # where products run by themselves
        config = lowered(kernels.block_sparse, blocks, arch).config
        assert (config.stages, dict(config.blocks)["tn"]) == (stages, columns)


def test_what_does_not_move_is_read_before_a_loop_that_writes(monkeypatch):
    """Triton leaves it in the loop then, and copies it in each iteration."""
    text = str(lowered(kernels.outer_scores, SCORES, 90).source)
    assert text.index("a_tile = ") < text.index("for j_start") < text.index("b_tile = ")
    monkeypatch.setattr(body, "unmoved", lambda loop: ())
    text = str(lowered(kernels.outer_scores, SCORES, 90).source)
    assert text.index("for j_start") < text.index("a_tile = ")
