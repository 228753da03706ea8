"""Configs that are no defaults: what they need of shared memory, by the plan and the compiler.

Loops of one step, which are none to the compiler; how far ahead loads are copied that wait for each
other; float32 that one product sums along, and another across.
"""

from __future__ import annotations

import re
from importlib.util import find_spec

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.compile_cache import CUDA, shared
from tests.frameworks import needs_examples_in_torch
from tests.subjects import SUBJECTS
from tilelang.aot import compile_lowered
from tilelang.codegen.triton.plan import latency, launch, memory
from tilelang.codegen.triton.plan.types import For

needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install 'raggedtile[triton]'"
)


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


KERNELS = {s.name: s.kernel for s in SUBJECTS} | {"block_pages": block_pages}
CASES = {s.name: s.cases for s in SUBJECTS} | {
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
    ("jagged_dense_add", 4, 80, {"blocks": {"tm": 8}, "stages": 5}, 1088),
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


def off():
    """What is more than 5 %, or 64 bytes, off, one after another."""
    for *sample, needed in NEEDED:
        if said(*sample) != pytest.approx(needed, rel=0.05, abs=64):
            yield *sample, said(*sample), needed


@needs_examples_in_torch
def test_what_configs_need():
    """Some were planned, of which the compiler needed up to three times the memory."""
    assert list(off()) == []


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


PLANTED = {
    "a loop of one step is one": (memory, "without", lambda loop, once: loop),
    "positions are there at once": (memory, "copied", lambda *args: {}),
    "what masks compare is copied": (
        memory, "copied", lambda dots, *args: latency.copied(list(dots)[:1], *args),
    ),
    "float32 lies as all products want it": (memory._Loop, "_both_ways", frozenset()),
}  # fmt: skip


@needs_examples_in_torch
@pytest.mark.parametrize("bug", PLANTED)
def test_planted(bug, monkeypatch):
    monkeypatch.setattr(*PLANTED[bug])
    assert any(off())


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
