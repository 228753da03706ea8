"""What the Triton back end prints and refuses; needs neither a GPU nor Triton."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.layer_norm import layer_norm
from examples.dense.rms_norm import rms_norm
from tests.derivatives import derived
from tests.frameworks import needs_examples_in_torch
from tests.gpu import compiler, kernels
from tests.subjects import SUBJECTS
from tilelang.analysis import analyze
from tilelang.codegen.triton.plan import memory, unmoved
from tilelang.codegen.triton.target import Target
from tilelang.runtime import lowering

ROOT = Path(__file__).resolve().parent.parent.parent
X = np.zeros((64, 32), np.float32)
W = np.zeros((32, 64), np.float32)
KEYS = (8, 4, 256, 128)
ROWS = np.zeros(64, np.int32)


@tile.kernel
def double(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :] * 2.0
    return y


@tile.kernel
def small_sums(x, rows):
    y = hl.zeros([8], dtype=hl.int8)
    for t in hl.tile(rows.shape[0]):
        hl.atomic_add(y, [rows[t]], x[t])
    return y


@tile.kernel
def masked_scatter(x, rows):
    y = hl.zeros([8, x.shape[1]], dtype=x.dtype)
    for t in hl.tile(rows.shape[0]):
        hl.store(y, [rows[t], slice(None)], x[t, :], mask=x[t, :] > 0)
    return y


@tile.kernel
def registered(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    rows = hl.register_block_size(64, 256)
    for t in hl.tile(x.shape[0], block_size=rows):
        y[t, :] = x[t, :] * 2
    return y


@tile.kernel
def rounded(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t, :] = x[t, :].to(hl.float8_e4m3fn).to(x.dtype)
    return y


@tile.kernel
def multiplied(x, w):
    y = hl.empty([x.shape[0], w.shape[1]], dtype=x.dtype)
    for tm, tn in hl.tile([x.shape[0], w.shape[1]]):
        y[tm, tn] = hl.dot(x[tm, :], w[:, tn])
    return y


def printed(kernel, *args, target="cuda:sm90", **config):
    return kernel.source(*args, target=target, config=tile.Config(**config) if config else None)


REFUSED = {
    "a value of a dtype that the target lacks": (
        lambda: printed(rounded, X, target="cuda:sm80"),
        "a value is float8_e4m3fn, and cuda:sm80 does not compute in it",
        "cast it to bfloat16 or float32",
    ),
    "a field of the other family": (
        lambda: printed(double, X, buffers=2),
        "buffers=2 means nothing to cuda:sm90",
        "leave it out; cuda:sm90 knows blocks, block_sizes, warps, stages, indexing, persistent, "
        "worklist, l2_group, precision, split, max_registers, warp_specialize",
    ),
    "a field of this family": (
        lambda: printed(double, X, target="tpu:v6e", warps=4),
        "warps=4 means nothing to tpu:v6e",
        "leave it out; tpu:v6e knows blocks, block_sizes, loop_type, steps, buffers, cores, "
        "within, windows, gathers, pieces",
    ),
    "descriptors": (
        lambda: printed(double, X, target="cuda:sm80", indexing="descriptor"),
        "indexing='descriptor', but cuda:sm80 copies no boxes",
        "leave indexing out; cuda:sm90 and cuda:sm100 have descriptors",
    ),
    "a value of too many elements": (
        lambda: printed(double, tile.spec((65536, 32), "float32"), block_sizes=[65536]),
        "a value of double has 2,097,152 elements, Triton allows 1,048,576",
        "make the blocks smaller",
    ),
    "results of more columns than there are": (
        lambda: printed(
            {s.name: s.kernel for s in SUBJECTS}["gdpa_dense_kv"],
            *(tile.spec(s, "bfloat16") for s in ((4, 1024, 128), KEYS, KEYS)),
            tile.spec((9,), "int32"),
            target="cuda:sm100",
            blocks={"tq": 256, "ts": 128},
            warps=4,
        ),
        "gdpa_dense_kv needs 640 columns of tensor memory, cuda:sm100 has 512",
        "make the blocks smaller",
    ),
    "descriptors of nothing": (
        lambda: printed(double, X, indexing="descriptor"),
        "indexing='descriptor', but no operand of a product of double can be copied in boxes",
        "leave indexing out",
    ),
    "descriptors of odd rows": (
        lambda: printed(multiplied, X[:, :31], W[:31, :62], indexing="descriptor"),
        "indexing='descriptor', but no operand of a product of multiplied can be copied in boxes "
        "(x: its rows do not begin at multiples of 16 bytes; w: its rows do not begin at multiples "
        "of 16 bytes)",
        "leave indexing out",
    ),
    "split": (
        lambda: printed(double, X, split=4),
        "split=4, but no loop inside of t adds anything up",
        "leave split out",
    ),
    "a worklist of nothing": (
        lambda: printed(double, X, worklist="table"),
        "worklist='table', but no loop of double is ragged",
        "leave worklist out",
    ),
    "three warps": (
        lambda: tile.Config(warps=3),
        "warps must be 1, 2, 4, 8 or 16, got 3",
        "",
    ),
    "8-bit atomics": (
        lambda: printed(small_sums, np.zeros(64, np.int8), ROWS),
        "y is int8, of which there is no atomic add",
        "make it one of float32, float16, bfloat16, int32, uint32",
    ),
    "single elements of scattered rows": (
        lambda: printed(masked_scatter, X, ROWS),
        "this store picks rows by an index and masks elements of them, which is not there yet for "
        "GPUs",
        "mask whole rows, or give rows that are not meant an index outside of the array",
    ),
    "a call": (
        lambda: double(X, target="cuda:sm90"),
        "double is planned for cuda:sm90, and none of its arguments is on a GPU",
        "move them with .cuda(), or set TRITON_INTERPRET=1 before Python starts, to run it in "
        "Triton's interpreter",
    ),
}


SEEN = (  # three products for one, of float32
    ("matmul", {"tm": 128, "tn": 128, "tk": 32}, 512),
    ("matmul", {"tm": 64, "tn": 256, "tk": 32}, 544),
    ("matmul", {"tm": 128, "tn": 256, "tk": 32}, 800),
    ("grouped_gemm_swiglu", {"tm": 64, "tn": 128}, 544),
    ("grouped_gemm_swiglu", {"tm": 128, "tn": 64}, 512),
    ("jagged_attention", {"tq": 64, "tk": 64}, 512),
    ("jagged_attention", {"tq": 64, "tk": 128}, 640),
    ("jagged_attention", {"tq": 128, "tk": 64}, 704),
    ("attention_backward_of_kv", {"tq": 32, "tk": 64}, 544),
    ("paged_attention", {"tq": 64}, 544),
)


REDUCED = (  # example, case, bytes
    ("jagged_sum", -2, 8192),
    ("jagged_sum", -1, 16384),
    ("segment_reduction", -2, 8192),
    ("batch_softmax", -2, 2048),
    ("softmax", -1, 32),
    ("cross_entropy", -1, 32),
    ("layer_norm_long", -2, 32),
)


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused_says_why(name):
    run, what, hint = REFUSED[name]
    with pytest.raises(tile.TileError) as caught:
        run()
    assert (caught.value.what, caught.value.hint) == (what, hint)


@pytest.mark.parametrize("rows", [20, 64, 300])
def test_the_default_config_is_one_that_may_be_given(rows):
    """Also for a dimension that is shorter than the least block that the author allows."""
    x = tile.spec((rows, 32), "float32")
    config = registered.default_config(x, target="cuda:sm90")
    given = registered.source(x, target="cuda:sm90", config=config)
    assert given == registered.source(x, target="cuda:sm90")


def test_shared_memory_is_limited():
    with pytest.raises(tile.PlanError) as caught:
        subject = next(s for s in SUBJECTS if s.name == "matmul")
        printed(
            subject.kernel, *subject.cases[-2], target="cuda:sm89", stages=8, block_sizes=[128] * 3
        )
    assert "bytes of shared memory, cuda:sm89 has 101376" in caught.value.what


@tile.kernel
def summed_whole(x, w):
    """What is computed is summed over, and divided by the sum of all columns: neither is cut."""
    y = hl.empty([x.shape[0], w.shape[1]], dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        scores = hl.dot(x[t, :], w[:, :])
        weights = hl.exp(scores - scores.amax(-1)[:, None])
        total = hl.dot(weights, w[:, :])
        y[t, :] = total / total.sum(1)[:, None]
    return y


@tile.kernel
def scattered_numbers(x, rows):
    """Which lane is the last one for a place is asked of every pair of them."""
    y = hl.zeros([9], dtype=x.dtype)
    for t in hl.tile(rows.shape[0]):
        y[rows[t]] = x[t]
    return y


def test_a_scatter_compares_as_many_places_as_registers_hold():
    """1,024 of them are a million pairs, which took the compiler minutes."""
    args = np.zeros(1301, np.float32), np.zeros(1301, np.int32)
    assert dict(scattered_numbers.default_config(*args, target="cuda:sm90").blocks) == {"t": 64}


@pytest.mark.parametrize(("width", "warps"), [(190, 8), (192, 4)])
def test_numbers_with_an_address_each_are_shared_by_more_warps(width, warps):
    """By the compiler 4 warps spill 216 bytes on sm_90, and 8 none: 190 is no multiple of 4."""
    args = tile.spec((513, width), "int8"), tile.spec((width, 64), "int8")
    for target in ("cuda:sm89", "cuda:sm90", "cuda:sm100"):
        assert kernels.odd_product.default_config(*args, target=target).warps == warps


def test_an_operand_that_no_block_makes_smaller_is_named():
    """The caret is at the product."""
    args = np.zeros((4096, 256), np.float32), np.zeros((256, 256), np.float32)
    with pytest.raises(tile.PlanError) as caught:
        summed_whole.lower(*args, target="cuda:sm89")
    assert "bytes of shared memory, cuda:sm89 has 101376" in caught.value.what
    assert "total = hl.dot(weights, w[:, :])" in str(caught.value)
    assert caught.value.hint == (
        "an operand of 256 x 256 float32 is taken whole, in two pieces for precision='tf32x3', and "
        "no block changes that: take a part at a time (for t in hl.tile(256): ...), or give "
        "precision='tf32'"
    )
    half = np.zeros((4096, 128), np.float32), np.zeros((128, 128), np.float32)
    (launch,) = summed_whole.lower(*half, target="cuda:sm89").plan.launches
    assert launch.shared == 65536  # as the compiler: warps split its pieces in registers


def test_pages_of_float32_are_taken_tile_by_tile():
    """Their columns and their sums: 128 x 128 in two pieces is more than the memory of sm_89."""
    subject = next(s for s in SUBJECTS if s.name == "paged_attention")
    lowered = subject.kernel.lower(*subject.cases[-1], target="cuda:sm89")
    assert dict(lowered.config.blocks) == {"tk": 16, "tn": 64, "tq": 16}
    config = tile.Config(blocks={"tq": 16, "tn": 32, "tk": 32})
    assert subject.kernel.lower(*subject.cases[-1], target="cuda:sm89", config=config).source


@pytest.mark.parametrize(("warps", "most"), [(4, 255), (8, 255), (16, 128)])
def test_registers_of_one_program_are_limited(warps, most):
    """65,536 of them: what ptxas takes more for, a launch refuses."""
    subject = next(s for s in SUBJECTS if s.name == "grouped_gemm")
    fresh = tile.kernel(subject.kernel.__wrapped__)  # planted bugs are not kept

    def registers(**given):
        config = tile.Config(warps=warps, **given)
        lowered = fresh.lower(*subject.cases[-1], target="cuda:sm89", config=config)
        return [launch.max_registers for launch in lowered.plan.launches]

    assert registers(max_registers=most) == [most]
    assert registers() in ([None], [most])  # the rule's own, which 16 warps would not have
    if most < 255:
        with pytest.raises(tile.PlanError) as caught:
            registers(max_registers=most + 1)
        assert caught.value.what == (
            f"max_registers={most + 1}, but of {warps} warps on cuda:sm89 each thread has at most "
            f"{most}"
        )
        assert caught.value.hint == f"give at most {most}, or fewer warps"


def test_results_of_asynchronous_products_have_registers():
    """64 x 256 on 4 warps: 128 numbers in each thread; of 64 registers ptxas gave up."""
    subject = next(s for s in SUBJECTS if s.name == "grouped_gemm")
    args = tile.spec((1024, 512), "bfloat16"), tile.spec((8, 512, 512), "bfloat16")
    blocks = {"tk": 64, "tm": 64, "tn": 256}

    def lowered(target, most):
        config = tile.Config(blocks, warps=4, max_registers=most)
        return subject.kernel.lower(*args, tile.spec((9,), "int32"), config=config, target=target)

    with pytest.raises(tile.PlanError) as caught:
        lowered("cuda:sm90", 64)
    assert caught.value.what == (
        "max_registers=64, but a product of grouped_gemm has 128 results in each thread"
    )
    assert caught.value.hint == "give more registers or warps, or smaller blocks"
    assert lowered("cuda:sm90", 168).source
    assert lowered("cuda:sm80", 64).source  # which spills; results of sm_100 are elsewhere
    assert lowered("cuda:sm100", 64).source


def test_planted_registers_that_no_launch_has(monkeypatch):
    monkeypatch.setattr(Target, "registers_of", lambda self, warps: self.registers)
    with pytest.raises((AssertionError, pytest.fail.Exception)):
        test_registers_of_one_program_are_limited(16, 128)


@needs_examples_in_torch
def test_shared_memory_of_reductions():
    """What the compiler was seen to need, of defaults and of the second launch of a split sum."""
    subjects = {s.name: s for s in SUBJECTS}
    for name, case, needed in REDUCED:
        fresh = tile.kernel(subjects[name].kernel.__wrapped__)
        (launch,) = fresh.lower(*subjects[name].cases[case], target="cuda:sm90").plan.launches
        assert (name, launch.shared) == (name, needed)
    split = subjects["split_k_matmul"]
    case = next(c for c in split.cases if c[0].shape == (256, 4096) and c[0].dtype == "float32")
    blocks = {"tk": 16, "tm": 256, "tm_1": 256, "tn": 32, "tn_1": 64}
    with pytest.raises(tile.PlanError, match="about 131072 bytes of shared memory"):
        tile.kernel(split.kernel.__wrapped__).lower(
            *case, config=tile.Config(blocks=blocks, stages=3), target="cuda:sm89"
        )


def test_attention_of_float32_has_blocks_that_registers_hold():
    """The compiler was seen to spill with 32 rows, with 16 of keys, and on 4 warps for long pages.

    `make gpu-matrix` asks it for every example.
    """
    subjects = {s.name: s for s in SUBJECTS}
    for name, columns in {"jagged_attention": "tk", "gdpa_dense_kv_silu": "ts"}.items():
        for target in ("cuda:sm80", "cuda:sm100"):
            found = subjects[name].kernel.default_config(*subjects[name].cases[-1], target=target)
            assert dict(found.blocks) == {"tq": 16, columns: 32}
            assert found.warps == 4
    for name, stages in {"paged_attention": 2, "attention_backward_of_kv": 1}.items():
        found = subjects[name].kernel.default_config(*subjects[name].cases[-1], target="cuda:sm100")
        assert (name, found.warps, found.stages) == (name, 8, stages)


def test_tensor_memory_is_limited():
    """Columns that the compiler was seen to need; up to 512 it takes whatever there is."""
    subjects = {s.name: s for s in SUBJECTS}
    for name, blocks, columns in SEEN:
        fresh = tile.kernel(subjects[name].kernel.__wrapped__)  # planted bugs are not kept
        asked = {"target": "cuda:sm100", "config": tile.Config(blocks=blocks)}
        if columns <= 512:
            fresh.lower(*subjects[name].cases[-1], **asked)
            continue
        with pytest.raises(tile.PlanError, match=f" needs {columns} columns of tensor memory"):
            fresh.lower(*subjects[name].cases[-1], **asked)


@pytest.mark.parametrize("name", ["attention_backward_of_kv", "dense_attention_backward"])
def test_sums_of_four_products_are_in_tensor_memory_for_the_whole_loop(name):
    """Two of 256 x 128 beside 64 x 256: Triton refused 768 columns."""
    (subject,) = (s for s in SUBJECTS if s.name == name)
    own = {"tk": 256, "tq": 64} if "_kv" in name else {"tk": 64, "tk_1": 256, "tq": 64, "tq_2": 64}

    def lowered(blocks):
        fresh = tile.kernel(subject.kernel.__wrapped__)
        asked = tile.Config(blocks=blocks, warps=8, stages=1)
        return fresh.lower(*subject.cases[-2], target="cuda:sm100", config=asked)

    with pytest.raises(tile.PlanError, match="needs 768 columns of tensor memory"):
        lowered(own)
    lowered({a: min(b, 128) for a, b in own.items()})  # which was seen to take all 512


def test_planted_sums_that_no_loop_carries(monkeypatch):
    monkeypatch.setattr(memory.LoopMemory, "_is_carried", lambda self, dot: False)
    with pytest.raises(pytest.fail.Exception):
        test_sums_of_four_products_are_in_tensor_memory_for_the_whole_loop(
            "attention_backward_of_kv"
        )


def test_arguments_are_pointers_in_the_order_of_the_plan():
    lowered = kernels.twice.lower(X, target="cuda:sm90")
    (launch,) = lowered.plan.launches
    assert launch.arguments == ("x", "half", "y")
    assert [b.name for b in lowered.plan.buffers] == ["half", "y"]
    assert f"def {launch.name}(x_ptr, half_ptr, y_ptr):" in lowered.source.text
    assert f"{launch.name}[({launch.programs},)](x, half, y, " in lowered.source.text


def test_threads_wait_for_what_others_stored():
    lines = kernels.twice.source(X, target="cuda:sm90").splitlines()
    barrier = next(i for i, line in enumerate(lines) if "tl.debug_barrier()" in line)
    stores = [i for i, line in enumerate(lines) if "tl.store(" in line]
    loads = [i for i, line in enumerate(lines) if "tl.load(half_ptr" in line]
    assert stores[0] < barrier < min(loads)


def test_explain_counts_tiles_from_where_ranges_begin():
    subject = next(s for s in SUBJECTS if s.name == "grouped_gemm")
    arrays = subject.arrays("float32", rows=45, groups=4)
    offsets = np.array([0, 3, 10, 30, 45], np.int32)
    text = subject.kernel.explain(*arrays, offsets, target="cuda:sm90")
    assert "worklist: search of tm over 4 g, at most 7 items" in text
    assert "tm: 80 positions computed for 45 useful ones (5 tiles of 16, 44% padding)" in text


def test_explain_counts_tiles_of_ranges_in_ops_of_a_device():
    """An `if` that becomes a range holds a remainder as GPUs have it."""

    @tile.kernel
    def every_other(x, offsets):
        y = hl.zeros_like(x)
        for t in hl.tile(x.shape[0]):
            y[t, :] = x[t, :] * 2.0
        for g in hl.grid(offsets.shape[0] - 1):
            if g % 2 == 1:
                for t in hl.tile(offsets[g], offsets[g + 1]):
                    y[t, :] = -x[t, :]
        return y

    x, offsets = np.ones((38, 4), np.float32), np.array([0, 9, 20, 38], np.int32)
    text = every_other.explain(x, offsets, target="cuda:sm90")
    assert "t: 38 positions computed for 11 useful ones" in text


def test_explain_leaves_out_ranges_of_parts():
    """The default cuts this sum into parts, which begin where a loop of the plan says."""
    subject = next(s for s in SUBJECTS if s.name == "long_sum")
    arguments = compiler.case(subject, subject.dtypes[0])
    lowered = subject.kernel.lower(*arguments, target="cuda:sm90")
    assert lowered.plan.parts > 1
    assert "plan" in subject.kernel.explain(*arguments, target="cuda:sm90").splitlines()


def test_printing_needs_no_triton():
    code = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(('triton', 'torch', 'jax', 'jaxlib')))\n"
        "import numpy as np\n"
        "from tests.gpu import kernels\n"
        "print(kernels.twice.source(np.zeros((4, 8), np.float32), target='cuda:sm90')[:10])\n"
    )
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout == '"""twice f\n'


def _lines(subject, target, indexing):
    config = tile.Config(indexing=indexing)
    text = subject.kernel.source(*subject.cases[-2], target=target, config=config)
    lines = text.splitlines()
    loop = next(n for n, line in enumerate(lines) if "num_stages=" in line and "for " in line)
    return "\n".join(lines[:loop]), "\n".join(lines[loop:])


def _read_before(target, indexing="pointer"):
    (subject,) = (s for s in SUBJECTS if s.name == "jagged_attention")
    before, inside = _lines(subject, target, indexing)
    return [name in before for name in ("q_tile =", "k_tile =", "v_tile =")], [
        name in inside for name in ("q_tile =", "k_tile =", "v_tile =")
    ]


def test_where_triton_would_copy_it_again_what_does_not_move_is_read_before_the_loop():
    assert _read_before("cuda:sm90") == ([False] * 3, [True] * 3)
    assert _read_before("cuda:sm100") == ([True, False, False], [False, True, True])
    boxes = _read_before("cuda:sm90", "descriptor")  # which Triton moves nowhere
    assert boxes == ([True, False, False], [False, True, True])


@pytest.mark.parametrize("bug", ["whatever moves is read before", "nothing is read before"])
def test_planted(bug, monkeypatch):
    """The test above finds what is read in the wrong place."""
    bugs = {
        "whatever moves is read before": lambda load, axes, names: False,
        "nothing is read before": lambda load, axes, names: True,
    }
    monkeypatch.setattr(unmoved, "_moves", bugs[bug])
    (subject,) = (s for s in SUBJECTS if s.name == "jagged_attention")
    subject.kernel._lowered.clear()
    try:
        with pytest.raises((AssertionError, tile.TileError)):
            assert _read_before("cuda:sm100") == ([True, False, False], [False, True, True])
    finally:
        subject.kernel._lowered.clear()


@tile.kernel
def named_bounds(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        begin, end = offsets[g], offsets[g + 1]
        for t in hl.tile(begin, end):
            y[t, :] = x[t, :] * 2.0
    return y


def test_a_loop_that_stores_nothing_is_no_launch():
    lowered = named_bounds.lower(X[:0], np.zeros(4, np.int32), target="cuda:sm90")
    assert lowered.plan.launches == ()


@tile.kernel
def products(x, w):
    y = hl.empty([x.shape[0], w.shape[1]], dtype=hl.int32)
    for t in hl.tile(x.shape[0]):
        acc = hl.zeros([t, w.shape[1]], dtype=hl.int32)
        for k in hl.tile(x.shape[1]):
            acc = hl.dot(x[t, k], w[k, :], acc=acc)
        y[t, :] = acc
    return y


def test_products_of_bytes_sum_over_32():
    x, w = tile.spec((64, 48), "int8"), tile.spec((48, 64), "int8")
    text = products.source(x, w, target="cuda:sm89", config=tile.Config({"k": 16, "t": 64}))
    assert "k_at = k_start + tl.arange(0, 32)" in text and "k_in = k_at < k_start + 16" in text


@pytest.mark.parametrize("example", [rms_norm, layer_norm])
def test_gradients_of_shared_weights_are_split(example):
    """All rows add to them: many programs of a GPU do, and a second launch adds up their parts."""
    vector = tile.spec((1024,), "float32")
    others = (vector,) if example is rms_norm else (vector, vector)
    _, made = derived(example, (tile.spec((4096, 1024), "float32"), *others))
    (launch,) = (launch for launch in made.launches if "d_weight" in launch.results)
    facts = analyze(launch.kernel)
    config = lowering.chosen_by_default(launch.kernel, facts, Target.of("cuda:sm90"))
    assert (config.split or 1) >= 32
