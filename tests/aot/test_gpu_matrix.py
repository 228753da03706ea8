"""Shared memory as the plan says and as the compiler needs it; what the table of GPUs finds."""

from __future__ import annotations

from dataclasses import replace

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.compile_cache import CUDA, shared
from tests.frameworks import needs_examples_in_torch, needs_triton
from tests.gpu import kernels, legality, matrix
from tests.gpu.compiler import FLOAT8, case, dtypes_of
from tests.subjects import SUBJECTS
from tests.tiers import HALF, share
from tilelang.aot import Assembled, Gone, compile_lowered
from tilelang.codegen.triton.plan import memory, pipe, results, sides


def subject(name):
    return next(s for s in SUBJECTS if s.name == name)


# ---------------------------------------------------------------- the estimate

# Asynchronous products and those of warps; operands that are cast, turned, reshaped, picked, split
# into three products, the same in every iteration, or used by several products.
SAMPLE = (
    ("grouped_gemm", "bfloat16", 90, None),
    ("jagged_attention", "bfloat16", 89, None),
    ("weight_only_matmul", "bfloat16", 100, None),
    ("matmul", "float32", 90, None),
    ("batched_matmul", "bfloat16", 90, None),
    ("transposed_matmul", "bfloat16", 89, None),
    ("quantized_matmul", "bfloat16", 90, None),
    ("jagged_attention", "bfloat16", 100, None),
    ("moe", "bfloat16", 100, None),
    ("attention_backward_of_kv", "bfloat16", 89, None),
    ("weight_only_matmul", "bfloat16", 89, None),
    ("matmul", "bfloat16", 90, tile.Config({"tm": 64, "tn": 128, "tk": 32}, stages=5, warps=4)),
    ("transposed_matmul", "float32", 89, tile.Config({"tm": 32, "tk": 64}, stages=5)),
    ("jagged_sum", "bfloat16", 90, None),
    ("jagged_softmax", "float32", 80, tile.Config({"tm": 64, "tf": 64}, stages=4, warps=8)),
)


def _word(sample):
    return f"{sample[0]}-{sample[1]}-sm{sample[2]}" + ("" if sample[3] is None else "-config")


@needs_triton
@pytest.mark.parametrize("sample", share(SAMPLE, of=4, rest=HALF, ids=_word))
def test_the_estimate_of_shared_memory_agrees_with_the_compiler(sample):
    name, dtype, arch, config = sample
    found = subject(name)
    lowered = found.kernel.lower(*case(found, dtype), config=config, target=f"cuda:sm{arch}")
    made = compile_lowered(lowered, worker=shared(CUDA))
    for launch, program in zip(lowered.plan.launches, made.programs, strict=True):
        if launch.shared:
            assert launch.shared == pytest.approx(program.shared, rel=0.05)


GATES = tuple(tile.spec(s, "bfloat16") for s in ((4096, 72), (8, 72, 80), (8, 72, 80)))


@needs_triton
@pytest.mark.parametrize("arch", [89, 90])
def test_programs_of_one_item_keep_no_operands_of_another(arch):
    """sm_89 had no memory for those, and did not compile the default."""
    target = f"cuda:sm{arch}"
    lowered = kernels.whole_gates.lower(*GATES, tile.spec((9,), "int32"), target=target)
    (program,) = compile_lowered(lowered, worker=shared(CUDA)).programs
    (launch,) = lowered.plan.launches
    assert program.shared <= launch.shared


# What each sample needs, by the compiler (Triton 3.6.0): the estimate without a compiler.
NEEDED = {
    ("grouped_gemm", "bfloat16", 90): 196608,
    ("jagged_dense_bmm", "bfloat16", 90): 229408,
    ("grouped_gemm", "bfloat16", 89): 65536,
    ("matmul", "float32", 90): 65568,
    ("hstu_attention", "float32", 90): 73728,
    ("weight_only_matmul", "bfloat16", 100): 81936,
    ("weight_only_matmul", "bfloat16", 89): 49152,
    ("batched_matmul", "bfloat16", 90): 131104,
    ("transposed_matmul", "bfloat16", 89): 49152,
    ("transposed_matmul", "float32", 89): 32768,
    ("quantized_matmul", "bfloat16", 100): 32768,
    ("quantized_matmul", "float32", 80): 32768,
    ("quantized_grouped_gemm", "float32", 100): 49168,
    ("jagged_attention", "bfloat16", 90): 115712,
    ("jagged_attention", "bfloat16", 100): 98848,
    ("paged_attention", "float32", 89): 81920,
    ("dense_attention_backward", "float32", 80): 49152,
    ("attention_backward_of_q", "float32", 89): 65536,
}


def disagrees():
    """The samples whose estimate is more than 5 % off."""
    found = []
    for (name, dtype, arch), needed in NEEDED.items():
        one = subject(name)
        one.kernel._lowered.clear()  # planned anew, whatever was planned before
        lowered = one.kernel.lower(*case(one, dtype), target=f"cuda:sm{arch}")
        said = max(launch.shared for launch in lowered.plan.launches)
        found += [name] if said != pytest.approx(needed, rel=0.05) else []
        one.kernel._lowered.clear()
    return found


@needs_examples_in_torch
@pytest.mark.parametrize(("warps", "needed"), [(4, 213024), (8, 229408), (16, 262176)])
def test_what_a_flat_loop_stores_by_its_warps(warps, needed):
    """An H100 had no memory for that of 16."""
    kernel, args = (
        tile.kernel(subject("matmul").kernel.__wrapped__),
        case(subject("matmul"), "bfloat16"),
    )
    blocks = {"tm": 128, "tn": 256, "tk": 64}
    config = tile.Config(blocks, stages=4, warps=warps, indexing="descriptor")
    if needed > 227 * 1024:
        with pytest.raises(tile.PlanError, match=r"about 2621\d\d bytes"):
            kernel.lower(*args, config=config, target="cuda:sm90")
        return
    (launch,) = kernel.lower(*args, config=config, target="cuda:sm90").plan.launches
    assert launch.shared == pytest.approx(needed, rel=0.001)


@needs_examples_in_torch
def test_the_estimate_agrees_with_what_was_seen():
    assert disagrees() == []


def test_parts_of_float32_are_in_tensor_memory(monkeypatch):
    """Rows that the loop does not move, 64 of 128 numbers: two parts were 64 KiB too much."""
    one = subject("jagged_attention")
    fresh = tile.kernel(one.kernel.__wrapped__)

    def said():
        config = tile.Config({"tq": 64, "tk": 16})
        args = case(one, "float32")
        (launch,) = fresh.lower(*args, config=config, target="cuda:sm100").plan.launches
        fresh._lowered.clear()
        return launch.shared

    assert said() == pytest.approx(32776, rel=0.05)
    monkeypatch.setattr(memory.LoopMemory, "_elsewhere", lambda self, load, dot: False)
    assert said() > 90_000


def test_parts_of_float32_are_made_where_they_are_multiplied():
    """Values that are named before the scores: their two parts were counted beside those of keys.

    By the compiler (Triton 3.6.0) it is 98,304; 131,072 was said.
    """
    one = subject("varlen_attention")
    (args,) = (c for c in one.cases if (c[0].shape[0], c[0].dtype) == (1000, "float32"))
    config = tile.Config({"tk": 64, "tq": 64}, stages=2)
    fresh = tile.kernel(one.kernel.__wrapped__)
    (launch,) = fresh.lower(*args, config=config, target="cuda:sm90").plan.launches
    assert launch.shared == pytest.approx(98304, rel=0.05)


@pytest.mark.parametrize(
    ("rows", "columns", "warps", "chained", "down"),
    [(128, 128, 8, False, 2), (64, 128, 4, False, 1), (64, 64, 4, True, 4), (16, 64, 4, True, 1)],
)
def test_warps_lie_as_triton_lays_them(rows, columns, warps, chained, down):
    """The first three by what the compiler printed (Triton 3.6.0)."""
    assert results._warps_down(rows, columns, warps, chained) == down


@tile.kernel
def two_sums(x, w, z, v):
    """What both products read is loaded before the first one."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        y[t, :] = hl.dot(x[t, :], w[:, :]) + hl.dot(z[t, :], v[:, :])
    return y


@tile.kernel
def three_sums(x, w, z, v):
    """What warps read twice is in registers as soon as it can be."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        first = hl.dot(x[t, :], w[:, :]) + hl.dot(z[t, :], v[:, :])
        y[t, :] = first + hl.dot(x[t, :], v[:, :])
    return y


@tile.kernel
def one_by_one(x, w, z, v):
    """Two statements, of which the first one's operands are gone when the next one's are there."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=hl.float32)
    u = hl.empty([x.shape[0], v.shape[1]], dtype=hl.float32)
    for t in hl.tile(x.shape[0]):
        a = hl.dot(x[t, :], w[:, :])
        b = hl.dot(z[t, :], v[:, :])
        y[t, :] = a
        u[t, :] = b
    return y, u


# kernel, dtype, architecture, columns of x, w, z and v; bytes by the compiler (Triton 3.6.0)
IN_A_ROW = (
    (two_sums, "bfloat16", 80, (64, 64, 64, 64), 49152),
    (two_sums, "bfloat16", 90, (64, 64, 64, 64), 49160),
    (two_sums, "bfloat16", 89, (128, 32, 32, 32), 51200),
    (two_sums, "bfloat16", 100, (128, 32, 32, 32), 51208),
    (three_sums, "bfloat16", 80, (128, 32, 128, 32), 40960),
    (three_sums, "bfloat16", 90, (128, 32, 128, 32), 81928),
    (one_by_one, "bfloat16", 80, (128, 32, 32, 16), 40960),
    (one_by_one, "float32", 80, (64, 64, 64, 32), 16384),  # a loop runs when its operands are gone
    (one_by_one, "float32", 89, (64, 128, 32, 64), 16384),
    (one_by_one, "float32", 90, (64, 128, 32, 64), 32792),
)


def off_in_a_row():
    """Of products without a loop, one after another: what is more than 5 % off."""
    found = []
    for kernel, dtype, arch, (k, n, other, columns), needed in IN_A_ROW:
        shapes = ((256, k), (k, n), (256, other), (other, columns))
        specs = [tile.spec(shape, dtype) for shape in shapes]
        kernel._lowered.clear()  # planned anew, whatever was planned before
        (launch,) = kernel.lower(*specs, target=f"cuda:sm{arch}").plan.launches
        kernel._lowered.clear()
        if launch.shared != pytest.approx(needed, rel=0.05):
            found.append((kernel.__name__, dtype, arch, launch.shared, needed))
    return found


@needs_examples_in_torch
def test_products_in_a_row():
    assert off_in_a_row() == []


PLANTED_LIVES = {
    "what is loaded lives from its own product on": ("LoopMemory", "_made", lambda self, parts: {}),
    "what warps read twice stays in memory": (
        "Life", "after", lambda self, before: replace(before or self, last=self.last),
    ),
    "a program's only iteration keeps operands": (
        "LoopMemory", "_moves", lambda self, load: (
            memory.moves_along(load, self.of.loop.axis, self.of.made)
        ),
    ),
}  # fmt: skip


@needs_examples_in_torch
@pytest.mark.parametrize("bug", PLANTED_LIVES)
def test_planted_lives(bug, monkeypatch):
    owner, name, planted = PLANTED_LIVES[bug]
    monkeypatch.setattr(getattr(memory, owner), name, planted)
    assert off_in_a_row() != []


# Rows that begin at multiples of 2 or 8 bytes: their addresses took the registers of large blocks.
ADDRESSES = (
    ("matmul", 80, ((4096, 2048), (2048, 1001)), 32768),
    ("matmul", 90, ((4096, 2048), (2048, 1001)), 40992),
    ("matmul", 90, ((4096, 2047), (2047, 1001)), 32768),
    ("matmul", 100, ((4096, 2047), (2047, 1024)), 40976),
    ("grouped_gemm", 80, ((16384, 2048), (16, 2048, 1001), (17,)), 32768),
    ("grouped_gemm", 90, ((16384, 2048), (16, 2048, 1001), (17,)), 40960),
    ("grouped_gemm", 89, ((4096, 300), (16, 300, 200), (17,)), 32768),
)


def unaligned(name, arch, shapes):
    """The default of a product in bfloat16; offsets are int32."""
    dtypes = ["bfloat16", "bfloat16", "int32"]
    specs = [tile.spec(shape, dtype) for shape, dtype in zip(shapes, dtypes, strict=False)]
    return subject(name).kernel.lower(*specs, target=f"cuda:sm{arch}")


@needs_examples_in_torch
@pytest.mark.parametrize(("name", "arch", "shapes", "needed"), ADDRESSES)
def test_what_is_not_copied_ahead_has_one_buffer(name, arch, shapes, needed):
    (launch,) = unaligned(name, arch, shapes).plan.launches
    assert launch.shared == pytest.approx(needed, rel=0.05)


@needs_triton
@needs_examples_in_torch
@pytest.mark.parametrize(
    "sample", share(ADDRESSES, of=3, rest=HALF, ids=lambda s: f"{s[0]}-{s[1]}")
)
def test_addresses_of_odd_rows_spill_nothing(sample):
    name, arch, shapes, needed = sample
    made = compile_lowered(unaligned(name, arch, shapes), worker=shared(CUDA))
    assert [(p.stack, p.shared) for p in made.programs] == [(0, needed)]


BATCHES = (  # dtype, architecture, blocks of tb, tk, tm and tn, stages; bytes by the compiler
    ("bfloat16", 90, (8, 64, 32, 64), 3, 196608),
    ("bfloat16", 90, (2, 64, 128, 128), 3, 131088),
    ("bfloat16", 100, (2, 64, 128, 128), 3, 131072),
    ("bfloat16", 80, (4, 64, 64, 64), 3, 131072),
    ("bfloat16", 80, (1, 64, 16, 128), 4, 22528),
    ("float32", 80, (1, 64, 16, 128), 3, 73728),
    ("float32", 90, (1, 64, 32, 32), 3, 32768),
)


def off_in_batches():
    """Of products of several matrices at once: what is more than 5 % off."""
    found = []
    fresh = tile.kernel(subject("batched_matmul").kernel.__wrapped__)
    for dtype, arch, sizes, stages, needed in BATCHES:
        specs = [tile.spec((8, 256, 256), dtype)] * 2
        blocks = dict(zip(("tb", "tk", "tm", "tn"), sizes, strict=True))
        config = tile.Config(blocks, warps=4, stages=stages)
        (launch,) = fresh.lower(*specs, target=f"cuda:sm{arch}", config=config).plan.launches
        if launch.shared != pytest.approx(needed, rel=0.05):
            found.append((dtype, arch, sizes, launch.shared, needed))
    return found


@needs_examples_in_torch
def test_batches_of_products():
    assert off_in_batches() == []


@needs_examples_in_torch
@pytest.mark.parametrize("flat", [True, False])
def test_planted_batches_are_one_matrix_or_never_copied(flat, monkeypatch):
    monkeypatch.setattr(memory.LoopMemory, "_flat", lambda self, dot, side: flat)
    assert off_in_batches() != []


BUGS = {
    "products of warps keep a copy more": ("asynchronous", lambda self, dot, blocks: True),
    "operands are never split": ("parts", lambda self, dot: 1),
}


@needs_examples_in_torch
@pytest.mark.parametrize("least", [2, 8])
def test_copies_of_any_size_arrive_or_none(least, monkeypatch):
    for module in (memory, sides):  # both have its name
        monkeypatch.setattr(module, "LEAST_COPY", least)
    assert disagrees() == ["transposed_matmul"]


@needs_examples_in_torch
@pytest.mark.parametrize("bug", BUGS)
def test_planted(bug, monkeypatch):
    monkeypatch.setattr(pipe.Pipe, *BUGS[bug])
    assert disagrees()


@needs_examples_in_torch
def test_a_picked_row_takes_half_of_the_stages(monkeypatch):
    monkeypatch.setattr(memory, "moves_along", lambda load, axis, made: True)
    assert disagrees()


# ---------------------------------------------------------------- the table


def planned(name="matmul", dtype="bfloat16", arch=90):
    one = subject(name)
    return one.kernel.lower(*case(one, dtype), target=f"cuda:sm{arch}").plan.launches


GOOD = Assembled("k", 100, 0, 98352, 8, {"HGMMA": 4, "LDGSTS": 24})
FAULTS = {
    "k: stack 8": replace(GOOD, stack=8),
    "k: copies wait": replace(GOOD, instructions={"HGMMA": 4}),
    "k: none of HGMMA, IGMMA, QGMMA": replace(GOOD, instructions={"HMMA": 64, "LDGSTS": 24}),
}


def test_what_a_cell_says():
    launches = tuple(replace(launch, shared=GOOD.shared) for launch in planned())
    cell = matrix.Cell(90, launches, (GOOD,))
    assert (cell.faults, str(cell)) == ((), "100, 96 K, HGMMA 4, LDGSTS 24")


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_wrong_with_a_cell(fault):
    assert matrix.Cell(90, planned(), (FAULTS[fault],)).faults == (fault,)


def test_a_stack_that_was_measured_is_no_fault_and_a_larger_one_is():
    made = replace(GOOD, stack=8)
    assert matrix.Cell(90, planned(), (made,), stack=8).faults == ()
    assert matrix.Cell(90, planned(), (made,), stack=7).faults == ("k: stack 8",)
    for name, dtype, arch in matrix.QUICKER:
        assert dtype in dtypes_of(subject(name)) and arch in matrix.ARCHITECTURES


def test_a_case_that_does_not_compile():
    cell = matrix.Cell(90, (), (), "no")
    assert (cell.faults, str(cell)) == (("no",), "**fails**: no")
    page = matrix.page([matrix.Row("matmul", "bfloat16", (cell,))], (90,), "3.6.0")
    assert "1 of 1 are not as they should be" in page


def test_what_an_architecture_does_not_compute_in_is_refused_and_no_fault():
    worker = Answers(AssertionError("nothing is compiled"))
    cell = matrix.cell(subject("quantized_grouped_gemm"), "float8_e5m2", 80, worker)
    assert cell.faults == () and "float8_e5m2, and cuda:sm80 does not compute" in str(cell)
    found = matrix.Row(
        "quantized_grouped_gemm", "float8_e5m2", (cell, matrix.Cell(90, (), (), "no"))
    )
    page = matrix.page([found], (80, 90), "3.6.0")
    assert "1 of 1 are not as they should be; 1 are refused in words" in " ".join(page.split())


def test_operands_of_eight_bits_have_tables_of_their_own():
    assert dtypes_of(subject("matmul")) == ("bfloat16", "float32")
    assert dtypes_of(subject("quantized_grouped_gemm")) == ("int8", *FLOAT8)
    x, w, scale = case(subject("weight_only_matmul"), FLOAT8[0])
    assert (x.dtype, w.dtype, scale.dtype) == ("bfloat16", FLOAT8[0], "float32")


# ---------------------------------------------------------------- random configs


class Answers:
    """A worker that answers, or dies, as it is told."""

    def __init__(self, answer):
        self.answer = answer

    def ask(self, request, timeout):
        if isinstance(self.answer, Exception):
            raise self.answer
        names = [launch["name"] for launch in request["launches"]]
        made = [{**self.answer, "name": name} for name in names]
        return {"programs": made, "seconds": 0.0, "warnings": []}


FITS = {"registers": 9, "stack": 0, "shared": 98304, "warps": 8, "instructions": {}}
OUTCOMES = (
    ("fits", FITS),
    ("slow", Gone(None, "")),
    ("WRONG", {**FITS, "shared": 300_000}),
    ("WRONG", {**FITS, "registers": 174}),
)


@needs_triton
@pytest.mark.parametrize(("outcome", "answer"), OUTCOMES)
def test_verdicts(outcome, answer):
    """174 registers are fine for 8 warps; 16 have 128 of them each."""
    one = subject("matmul")
    draw = legality.Draw(one, case(one, "bfloat16"), 90, tile.Config(warps=16))
    assert legality.judge(draw, Answers(answer)).outcome == outcome


def test_what_is_refused():
    one = subject("matmul")
    config = tile.Config({"tm": 256, "tn": 256, "tk": 256}, stages=5)
    draw = legality.Draw(one, case(one, "bfloat16"), 90, config)
    verdict = legality.judge(draw, Answers(FITS))
    assert verdict.outcome == "refused" and "bytes of shared memory" in verdict.why


def test_draws_are_the_same_for_a_seed():
    first, again = (legality.draws(3, SUBJECTS) for _ in range(2))
    assert [str(next(first)) for _ in range(5)] == [str(next(again)) for _ in range(5)]
