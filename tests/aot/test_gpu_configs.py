"""Configs that are no defaults: what they need of shared memory, by the plan and the compiler.

Loops of one step, which are none to the compiler; how far ahead loads are copied that wait for each
other; float32 that one product sums along, and another across; blocks that products make longer.
"""

from __future__ import annotations

import re

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.compile_cache import CUDA, shared
from tests.frameworks import needs_examples_in_torch, needs_triton
from tests.gpu.compiler import case
from tests.subjects import SUBJECTS
from tests.tiers import share
from tilelang.aot import compile_lowered
from tilelang.codegen.triton.plan import latency, launch, launch_memory, memory, pipe, reductions
from tilelang.codegen.triton.plan.loop_products import LoopProducts
from tilelang.codegen.triton.plan.loops import own_dots
from tilelang.codegen.triton.plan.types import For


@tile.kernel
def block_pages(q, k, v, pages, starts):
    """Attention to the pages that a table names; a mask compares where they lie."""
    T, H, D = q.shape
    P = k.shape[2]
    out = hl.zeros([T, H, D], dtype=q.dtype)
    for h in hl.grid(H):
        for tq in hl.tile(T, block_size=64):
            total = hl.zeros([tq], dtype=hl.float32)
            acc = hl.zeros([tq, D], dtype=hl.float32)
            for j in hl.grid(starts[tq.id], starts[tq.id + 1], max_extent=pages.shape[0]):
                page = pages[j]
                at = page * P + hl.arange(P)
                seen = at[None, :] <= tq.index[:, None]
                p = hl.where(seen, hl.exp(hl.dot(q[tq, h, :], k[h, page, :, :].T)), 0.0)
                total = total + p.sum(1)
                acc = acc + hl.dot(p.to(v.dtype), v[h, page, :, :])
            out[tq, h, :] = (acc / total[:, None]).to(out.dtype)
    return out


@tile.kernel
def floats_in_boxes(x, row_scale, w, scale):
    """What examples/dense/quantized_matmul.py does with integers, of 8-bit floats."""
    M, K = x.shape
    y = hl.empty([M, w.shape[1]], dtype=scale.dtype)
    for tm, tn in hl.tile([M, w.shape[1]]):
        acc = hl.zeros([tm, tn], dtype=hl.float32)
        for tk in hl.tile(K):
            acc = hl.dot(x[tm, tk], w[tk, tn], acc=acc)
        y[tm, tn] = (acc * row_scale[tm][:, None] * scale[tn]).to(y.dtype)
    return y


NAMED = {s.name: s for s in SUBJECTS}
KERNELS = {name: one.kernel for name, one in NAMED.items()} | {
    "block_pages": block_pages,
    "floats_of_8_bits": NAMED["quantized_grouped_gemm"].kernel,
    "floats_in_boxes": floats_in_boxes,
}
CASES = {name: one.cases for name, one in NAMED.items()} | {
    "floats_in_boxes": (case(NAMED["quantized_matmul"], "float8_e4m3fn"),),
    "floats_of_8_bits": (case(NAMED["quantized_grouped_gemm"], "float8_e5m2"),),
    "block_pages": (
        (
            *(tile.spec(s, "bfloat16") for s in ((4096, 8, 64), *((8, 64, 64, 64),) * 2)),
            tile.spec((512,), "int32"), tile.spec((65,), "int32"),
        ),
    )
}  # fmt: skip

# Name, number of its case, architecture, config; bytes by the compiler (Triton 3.6.0).
PAGES = {"tk": 128, "tn": 64, "tq": 16}
WHOLE = {"tk": 256, "tm": 64, "tn": 64}
SQUARE = {"tk": 16, "tq": 16}
RESULT = {"tk": 64, "tm": 64, "tn": 128}
KEYS = {"tk": 32, "tq": 64}
BROAD = {"tk": 32, "tm": 32, "tn": 256}
NORMS = {"tm": 8, "tm_1": 8, "tm_2": 8}
COLUMNS = {"tf": 128, "tm": 16, "tm_1": 32}
NARROW = {"tk": 16, "tm": 32, "tn": 128}  # products of 8 bits sum over 32 numbers at least
NEEDED = (
    ("paged_attention", 5, 90, {"blocks": {**PAGES, "tn": 256}, "stages": 5}, 425992),
    ("paged_attention", 5, 90, {"blocks": PAGES, "stages": 3}, 196612),
    ("paged_attention", 5, 80, {"blocks": PAGES, "stages": 2}, 196608),
    ("paged_attention", 4, 90, {"blocks": {"tq": 64}, "stages": 3}, 147492),
    ("paged_attention", 2, 80, {"blocks": {"tq": 64}, "stages": 4}, 14340),
    ("block_pages", 0, 80, {"stages": 5}, 73728),
    ("jagged_dense_bmm_bias", 0, 90, {"blocks": WHOLE, "stages": 4}, 65536),
    ("jagged_dense_bmm_bias", 0, 90, {"blocks": WHOLE, "stages": 4, "persistent": 64}, 139284),
    ("jagged_dense_bmm_bias", 0, 80, {"blocks": WHOLE, "stages": 4, "persistent": 64}, 73748),
    ("gdpa_dense_kv_silu", 3, 90, {"blocks": {"tq": 16, "ts": 256}, "stages": 4}, 32768),
    (
        "attention_backward_of_kv", 1, 80,
        {"blocks": SQUARE, "precision": "tf32", "stages": 1, "warps": 4}, 49152,
    ),
    ("attention_backward_of_kv", 1, 80, {"blocks": SQUARE, "stages": 2}, 57408),
    ("attention_backward_of_q", 3, 80, {"blocks": {**SQUARE, "tk": 32}, "stages": 2}, 32768),
    ("quantized_grouped_gemm", 0, 89, {"blocks": NARROW, "stages": 5}, 20480),
    ("jagged_dense_add", 4, 80, {"blocks": {"tm": 8}, "stages": 5}, 1088),
)  # fmt: skip
OTHERS = (
    ("paged_attention", 4, 90, {"indexing": "descriptor", "stages": 1}, 81928),
    ("attention_backward_of_kv", 4, 90, {"blocks": {"tk": 64, "tq": 64}, "stages": 2}, 106776),
    ("attention_backward_of_kv", 4, 90, {"blocks": {"tk": 32, "tq": 64}, "stages": 1}, 81920),
    ("attention_backward_of_kv", 4, 90, {"blocks": {"tk": 32, "tq": 64}, "stages": 2}, 69888),
    ("attention_backward_of_kv", 2, 80, {"blocks": {"tk": 64, "tq": 32}, "stages": 2}, 32896),
    ("attention_backward_of_q", 4, 80, {"blocks": {"tk": 256, "tq": 128}, "stages": 1}, 135168),
    ("hstu_attention", 4, 80, {"blocks": {"tk": 256, "tq": 128}, "stages": 2}, 163840),
    ("matmul", 0, 100, {"blocks": RESULT, "stages": 5, "warps": 16}, 98304),
    (
        "varlen_attention", 4, 100,
        {"blocks": {"tk": 64, "tq": 128}, "indexing": "descriptor", "stages": 4}, 164864,
    ),
    ("dense_attention_with_lse", 3, 100, {"blocks": KEYS, "stages": 2, "warps": 16}, 49152),
    ("flash_attention_causal", 3, 90, {"blocks": {"tk": 32, "tq": 256}, "stages": 5}, 81984),
    (
        "transposed_grouped_gemm", 0, 100,
        {"blocks": {"tk": 128, "tm": 32, "tn": 128}, "indexing": "descriptor", "stages": 5,
         "warps": 16}, 65600,
    ),
    ("grouped_gemm", 2, 80, {"blocks": {"tk": 32, "tm": 128, "tn": 128}, "stages": 2}, 16384),
    (
        "matmul_bias_leaky_relu", 4, 90,
        {"blocks": {"tk": 16, "tm": 64, "tn": 256}, "stages": 2, "warps": 8}, 20480,
    ),
    ("weight_only_matmul", 3, 100, {"blocks": {"tk": 256, "tm": 64, "tn": 64}}, 131080),
    ("quantized_grouped_gemm", 2, 90, {"blocks": BROAD, "persistent": 64}, 18432),
    ("floats_of_8_bits", 0, 90, {"blocks": {"tk": 64, "tm": 128, "tn": 128}}, 32768),
    (
        "floats_in_boxes", 0, 90,
        {"blocks": {"tk": 64, "tm": 128, "tn": 128}, "indexing": "descriptor", "stages": 3}, 49200,
    ),
    ("layer_norm", 0, 80, {"blocks": {"tm": 32}}, 2048),
    ("segment_sum", 4, 89, {"blocks": {"tm": 32}}, 8192),
    ("cross_entropy", 2, 100, {"blocks": {"tm": 64, "tv": 256}, "warps": 8}, 2048),
    ("jagged_softmax", 4, 90, {"blocks": COLUMNS, "stages": 5, "warps": 8}, 32768),
    ("jagged_layer_norm", 4, 89, {"blocks": NORMS, "stages": 3}, 20480),
)  # fmt: skip


def lowered(name, number, arch, fields):
    """Planned anew."""
    fresh = tile.kernel(KERNELS[name].__wrapped__)
    args, config = CASES[name][number], tile.Config(**fields)
    return fresh.lower(*args, config=config, target=f"cuda:sm{arch}")


def said(*sample):
    """What the plan says that the kernel needs, or a refusal does."""
    try:
        return max(one.shared for one in lowered(*sample).plan.launches)
    except tile.PlanError as error:
        (found,) = re.findall(r"needs about (\d+) bytes", error.what)
        return int(found)


def off(rows):
    """What is more than 5 %, or 64 bytes, off, one after another."""
    for *sample, needed in rows:
        if said(*sample) != pytest.approx(needed, rel=0.05, abs=64):
            yield *sample, said(*sample), needed


@needs_examples_in_torch
@pytest.mark.parametrize(
    "rows", share([NEEDED, *((one,) for one in OTHERS)], of=5, ids=lambda rows: rows[0][0])
)
def test_what_configs_need(rows):
    """Some were planned, of which the compiler needed up to three times the memory."""
    assert list(off(rows)) == []


@needs_examples_in_torch
def test_what_does_not_fit_is_refused():
    with pytest.raises(tile.PlanError, match="needs about 426000 bytes of shared memory"):
        lowered(*NEEDED[0][:-1])


@needs_triton
@needs_examples_in_torch
@pytest.mark.parametrize("sample", [NEEDED[4], NEEDED[6]], ids=lambda s: s[0])
def test_the_compiler_needs_as_much(sample):
    *sample, needed = sample
    (program,) = compile_lowered(lowered(*sample), worker=shared(CUDA)).programs
    assert program.shared == needed


BACKWARD = "attention_backward_of_kv"
# Which kernel shows it, and what is planted.
PLANTED = {
    "a loop of one step is one": (
        "jagged_dense_bmm_bias", launch_memory, "without", lambda loop, once: loop,
    ),
    "positions are there at once": ("paged_attention", memory, "copied", lambda *args: {}),
    "what masks compare is copied": (
        "block_pages", memory, "copied", lambda dots, *args: latency.copied(list(dots)[:1], *args),
    ),
    "float32 lies as all products want it": (BACKWARD, LoopProducts, "both_ways", frozenset()),
    "boxes that registers take are nowhere": (
        "paged_attention", memory.LoopMemory, "_waited", lambda self, counted: iter(()),
    ),
    "what registers read too is kept for a product": (
        BACKWARD, LoopProducts, "also_read", frozenset(),
    ),
    "products of several warps and of one read one place": (
        BACKWARD, LoopProducts, "mixed", frozenset(),
    ),
    "bytes that are summed across are copied ahead": (
        "floats_of_8_bits", LoopProducts, "bytes_across", lambda self, dot, side: False,
    ),
    "the broadest result says how warps lie": (
        "hstu_attention", LoopProducts, "is_broad",
        lambda self, loop: any(n < m for n, m in map(self.shape, own_dots(loop))),
    ),
    "any number of warps reads tensor memory": (
        "matmul", pipe.Pipe, "grouped",
        property(lambda self: self.target.matrix_warps > 1 and self.warps % 4 == 0),
    ),
    "what is turned is there whole": (
        "attention_backward_of_q", memory.LoopMemory, "_turns_of", lambda self, *args: 1,
    ),
    "threads write 16 bytes of any row": (
        "grouped_gemm", launch_memory, "row_alignment", lambda *args: 16,
    ),
    "a row that is loaded alone lies as others do": (
        "layer_norm", reductions, "_alone_bytes", lambda *args: 0,
    ),
    "threads store what they loaded": (
        "segment_sum", reductions, "_stored_bytes", lambda *args: 0,
    ),
    "what does not move is not copied beside a store": (
        "jagged_layer_norm", memory.LoopMemory, "_stores", lambda self: False,
    ),
}  # fmt: skip


@needs_examples_in_torch
@pytest.mark.parametrize("bug", share(PLANTED, of=3))
def test_planted(bug, monkeypatch):
    name, *planted = PLANTED[bug]
    rows = [row for row in (*NEEDED, *OTHERS) if row[0] == name]
    assert not any(off(rows))
    monkeypatch.setattr(*planted)
    assert any(off(rows))


def stages_of_results(**fields):
    """How far ahead the loop over a program's results copies; None: the compiler decides."""
    fields = {"blocks": WHOLE, "stages": 4, **fields}
    (one,) = lowered("jagged_dense_bmm_bias", 0, 90, fields).plan.launches
    return [s.stages for s in one.body if isinstance(s, For)][-1]


@needs_examples_in_torch
def test_programs_of_one_result_keep_nothing_of_another(monkeypatch):
    """The loop over results multiplies itself if the one inside of it has one step."""
    assert (stages_of_results(), stages_of_results(persistent=64)) == (1, None)
    monkeypatch.setattr(launch, "_own", lambda steps: (s for s in steps if not isinstance(s, For)))
    assert stages_of_results() is None
