"""Kernels in Triton's interpreter, or on a GPU.

TRITON_INTERPRET=1 pytest tests/gpu/test_kernels.py
pytest -m gpu tests/gpu/test_kernels.py
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from examples.dense.batched_matmul import batched_matmul
from tests import checks
from tests.gpu import kernels, machine
from tests.ragged import Space, every_stratum, wild_offsets
from tests.subjects import SUBJECTS
from tilelang.codegen.triton.plan import interior
from tilelang.language.op import BINARY, UNARY

if machine.LACKS:
    pytest.skip(machine.LACKS, allow_module_level=True)

pytestmark = machine.MARKS
RNG = np.random.default_rng(0)
JAGGED = [s for s in SUBJECTS if s.ragged is not None]
DENSE = [s for s in SUBJECTS if s.ragged is None]
SPACE = Space(45, 4, 16)
FORMS = {"search": {"worklist": "search"}, "table": {"worklist": "table", "persistent": 3}}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subject", DENSE, ids=str)
def test_dense(subject, dtype):
    if dtype in subject.dtypes:
        arguments = subject.arguments(subject.arrays(dtype))
        assert checks.right(subject, machine.small(subject), arguments, dtype) == ""


# What CI runs of the jagged examples: products, sums, two loops in a row, two ragged axes.
SAMPLE = ("grouped_gemm", "jagged_sum", "jagged_softmax", "gdpa_jagged_kv", "padded_to_jagged")
SAMPLED = [
    pytest.param(s, marks=() if s.name in SAMPLE else pytest.mark.thorough, id=s.name)
    for s in JAGGED
]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subject", SAMPLED)
def test_every_layout(subject, dtype):
    if dtype in subject.dtypes:
        arrays = subject.arrays(dtype, rows=SPACE.rows, groups=SPACE.groups)
        layouts = every_stratum(subject.ragged.space(SPACE))
        assert checks.every_layout(subject, machine.small(subject), arrays, layouts, dtype) == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("subject", SAMPLED)
def test_neighbours_and_wild_offsets(subject, form):
    run = machine.small(subject, **FORMS[form])
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    space = subject.ragged.space(SPACE)
    assert checks.neighbours(subject, run, arrays, every_stratum(space)[-2:]) == []
    for name, offsets in wild_offsets(space).items():
        assert checks.unchecked(subject, run, arrays, offsets) == [], name


# Operands of products that descriptors copy; quantized ones are not at multiples of 16 bytes here.
DENSE_BOXES = [s for s in DENSE if "matmul" in s.name or "attention" in s.name]
BOXES = (
    "grouped_gemm", "jagged_attention", "gdpa_jagged_kv", "jagged_dense_bmm_bias", "moe",
    "sliding_window_attention", "hstu_attention", "grouped_query_attention", "varlen_attention",
    "attention_backward_of_q", "attention_backward_of_kv", "transposed_grouped_gemm",
    "grouped_gemm_swiglu", "weight_only_grouped_gemm", "paged_attention",
)  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("subject", DENSE_BOXES, ids=str)
def test_dense_in_boxes(subject, dtype):
    if dtype not in subject.dtypes or subject.name == "quantized_matmul":
        return
    arguments = subject.arguments(subject.arrays(dtype))
    run = machine.small(subject, indexing="descriptor")
    assert checks.right(subject, run, arguments, dtype) == ""


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in SAMPLE else pytest.mark.thorough) for n in BOXES]
)
def test_ragged_in_boxes(name):
    (subject,) = (s for s in JAGGED if s.name == name)
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    space = subject.ragged.space(SPACE)
    layouts = every_stratum(space)
    run = machine.small(subject, indexing="descriptor", persistent=3)
    assert checks.every_layout(subject, run, arrays, layouts[::2], "float32") == []
    assert checks.neighbours(subject, run, arrays, layouts[-2:]) == []
    for words, offsets in wild_offsets(space).items():
        assert checks.unchecked(subject, run, arrays, offsets) == [], words


# Products in a loop: of rows that a loop around it chose, of rows that are picked.
STANDING = ("gdpa_jagged_kv", "moe", "jagged_attention_causal", "attention_backward_of_kv")


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=pytest.mark.thorough if n != STANDING[0] else ()) for n in STANDING],
)
def test_what_does_not_move_is_read_before_its_loop(name):
    (subject,) = (s for s in JAGGED if s.name == name)
    run = machine.small(subject, "cuda:sm100")
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)
    space = subject.ragged.space(SPACE)
    layouts = every_stratum(space)
    assert checks.every_layout(subject, run, arrays, layouts[::3], "float32") == []
    assert checks.neighbours(subject, run, arrays, layouts[-2:]) == []
    for words, offsets in wild_offsets(space).items():
        assert checks.unchecked(subject, run, arrays, offsets) == [], words


# ---------------------------------------------------------------- small kernels


def agrees(kernel, *args, tolerance=1e-5, **config):
    """Whether the interpreter gives what the reference does."""
    chosen = tile.Config(**config) if config else None
    found = checks.parts(machine.call(kernel, chosen)(*args))
    wanted = checks.parts(kernel.reference(*args))
    for one, other in zip(found, wanted, strict=True):
        assert one.dtype == other.dtype
        one, other = (np.asarray(a).astype(np.float64) for a in (one, other))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def floats(*shape):
    return np.asarray(RNG.standard_normal(shape), np.float32)


def halves(*shape):
    return floats(*shape).astype(ml_dtypes.bfloat16)


ROWS = np.array([3, 1, 3, 7, 4, 3, 6, 1, 1, 0], np.int32)
SMALL = {
    "odd_product": (kernels.odd_product, (floats(37, 9), floats(9, 20)), {"blocks": {"tm": 16}}),
    "numbers": (kernels.numbers, (floats(10, 5), np.array(7, np.int32), floats()), {}),
    "scatter": (kernels.scatter, (floats(10, 24), ROWS), {"blocks": {"t": 4}}),
    "scatter in one tile": (kernels.scatter, (floats(10, 24), ROWS), {"blocks": {"t": 16}}),
    "scattered sums": (kernels.scattered_sums, (floats(10, 24), ROWS), {"blocks": {"t": 4}}),
    "batches of one": (
        batched_matmul,
        (floats(3, 37, 40), floats(3, 40, 24)),
        {"blocks": {"tb": 1, "tm": 16, "tn": 16, "tk": 16}},
    ),
    "twice": (kernels.twice, (floats(5, 40),), {"block_sizes": [16, 16]}),
    "running_sums": (kernels.running_sums, (floats(6, 40),), {"blocks": {"t": 16}}),
    "swapped": (kernels.swapped, (floats(21, 5),), {"blocks": {"t": 8}}),
    "picked": (kernels.picked, (floats(5, 12), np.array([4, 1, 1, 0, 2], np.int32)), {}),
    "floors": (
        kernels.floors,
        (np.arange(-20, 20, dtype=np.int32), np.resize(np.int32([3, -3, 7, -1]), 40)),
        {"blocks": {"t": 16}},
    ),
    "lonely": (kernels.lonely, (floats(1, 40),), {"blocks": {"t": 16}}),
    "a few that are not lonely": (kernels.lonely, (floats(3, 40),), {"blocks": {"t": 16}}),
    "nested": (
        kernels.nested,
        (floats(30), np.int32([0, 2, 2, 5]), np.int32([0, 4, 4, 11, 20, 28])),
        {"blocks": {"t": 8}},
    ),
    "joined halves": (kernels.rotated, (floats(21, 24), floats(24)), {"blocks": {"t": 8}}),
    "joined halves of a power of two": (kernels.rotated, (floats(21, 32), floats(32)), {}),
    "parts": (kernels.parts_of_products, (floats(21, 24), floats(24, 20)), {"blocks": {"t": 8}}),
    "parts of powers of two": (kernels.parts_of_products, (floats(21, 16), floats(16, 32)), {}),
    "heads of odd lengths": (kernels.interleaved, (floats(13, 33),), {"blocks": {"t": 4}}),
    "joined operands": (
        kernels.joined_and_multiplied,
        (floats(21, 24), floats(21, 9), floats(33, 40)),
        {"blocks": {"t": 16}},
    ),
    "vectors": (
        kernels.with_vectors,
        (floats(45, 24), floats(45, 24), floats(24), np.int32([2, 20, 20, 41])),
        {"blocks": {"t": 8}},
    ),
    "vectors of 16 bits": (
        kernels.with_vectors,
        (*(halves(*s) for s in ((45, 24), (45, 24), (24,))), np.int32([0, 3, 40, 45])),
        {"tolerance": 2e-2},
    ),
    "whole weights": (
        kernels.whole_weights,
        (floats(45, 72), floats(3, 72, 80), floats(3, 80), np.int32([2, 20, 20, 41])),
        {},
    ),
    "whole gates": (
        kernels.whole_gates,
        (floats(45, 64), floats(3, 64, 100), floats(3, 64, 100), np.int32([0, 45, 45, 45])),
        {"blocks": {"t": 16, "tn": 32, "tk": 16, "tk_1": 32}},
    ),
    "scores of ranges by ranges": (
        kernels.outer_scores,
        (
            floats(45, 24),
            floats(31, 24),
            np.int32([0, 1, 33, 33, 40]),
            np.int32([2, 2, 20, 30, 31]),
        ),
        {"blocks": {"i": 16, "j": 8}},
    ),
    "low rank added": (
        kernels.low_rank_added,
        (
            *(floats(45, 24), floats(24, 40), floats(3, 24, 8), floats(3, 8, 40)),
            np.int32([0, 1, 1, 44]),
        ),
        {"blocks": {"t": 16, "n": 16, "k": 16, "k_1": 8}},
    ),
    "latent attention": (
        kernels.latent_attention,
        (
            *(floats(45, 2, 24), floats(45, 2, 8), floats(45, 24), floats(45, 8)),
            np.int32([0, 1, 33, 33, 44]),
        ),
        {"blocks": {"tq": 16, "tk": 8}},
    ),
    "normalised products": (
        kernels.normalised_products,
        (floats(45, 24), floats(24, 40), floats(40)),
        {"blocks": {"t": 16, "n": 16, "k": 16}},
    ),
    "linear attention": (
        kernels.linear_attention,
        (*(floats(45, 2, 24) for _ in range(3)), np.int32([0, 1, 33, 33, 44])),
        {"blocks": {"t": 16}},
    ),
    "state in columns": (
        kernels.retention,
        (*(floats(45, 2, 72) for _ in range(3)), floats(2) * 0.1, np.int32([0, 1, 33, 33, 44])),
        {"blocks": {"t": 16, "tn": 32}, "tolerance": 1e-3},
    ),
    "blocks of a table": (
        kernels.block_sparse,
        (
            *(floats(150, 2, 24) for _ in range(3)),
            np.int32([0, 1, 0, 0, 1, 1]),
            np.int32([0, 1, 3, 6]),
        ),
        {},
    ),
    "long rows in parts": (
        kernels.latent_attention,
        (
            *(floats(45, 2, 136), floats(45, 2, 8), floats(45, 136), floats(45, 8)),
            np.int32([0, 1, 33, 33, 44]),
        ),
        {"blocks": {"tq": 16, "tk": 32}},
    ),
    "low rank cross": (
        kernels.low_rank_cross,
        (floats(45, 40), floats(45, 40), floats(40, 8), floats(8, 40), floats(40)),
        {"blocks": {"t": 16, "n": 16}},
    ),
    "looked up scores": (
        kernels.looked_up_scores,
        (*(floats(45, 24) for _ in range(3)), floats(12), np.int32([0, 1, 33, 33, 44])),
        {"blocks": {"tq": 16, "tk": 8}},
    ),
    "looked up scores of 16 bits": (
        kernels.looked_up_scores,
        (*(floats(45, 24) for _ in range(3)), halves(256), np.int32([0, 45, 45])),
        {"blocks": {"tq": 16, "tk": 16}, "tolerance": 1e-4},
    ),
    "looked up by what memory holds": (
        kernels.looked_up,
        (floats(13, 20), floats(20, 3), np.resize(np.int32([-2, 0, 19, 20, 900, 7]), (13, 20))),
        {"blocks": {"t": 8}},
    ),
    "selects of two dimensions": (
        kernels.picked_scores,
        (floats(72, 16), floats(72, 16), np.resize(np.int32([1, 0, 2]), 72)),
        {"blocks": {"tq": 16, "tk": 16}, "tolerance": 1e-4},
    ),
    "whole sums": (
        kernels.whole_sums,
        (floats(45, 72), floats(3, 72, 80), np.int32([0, 1, 33, 45])),
        {},
    ),
}


@pytest.mark.parametrize("name", SMALL)
def test_small_kernels(name):
    kernel, args, config = SMALL[name]
    agrees(kernel, *args, **config)


def test_planted_conditions_of_the_other_dimension(monkeypatch):
    """A tile that no mask of its own cuts is not whole for other rows."""
    monkeypatch.setattr(interior.LoopTile, "holds", lambda self, condition: True)
    kernel, args, config = SMALL["selects of two dimensions"]
    with pytest.raises(AssertionError, match="tolerance"):
        agrees(tile.kernel(kernel.__wrapped__), *args, **config)


def test_nan_wins():
    x = floats(6, 20)
    x[1, 3], x[2, 19], x[5, 0] = np.nan, np.inf, np.nan
    agrees(kernels.largest, x, blocks={"t": 4})


# ---------------------------------------------------------------- every op

VALUES = np.concatenate([floats(40) * 3, np.float32([0, -0.0, 0.5, 1.5, -2.5, 1e-6, 30, -30])])
POSITIVE = ("log", "log1p", "log2", "sqrt", "rsqrt")
OF_BOOL, OF_INT = ("logical_not",), ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS = ("shift_left", "shift_right")


def operands(op):
    if op.startswith("logical"):
        return VALUES > 0, np.roll(VALUES, 3) > 0
    if op in OF_INT:
        return np.arange(-24, 24, dtype=np.int32), np.arange(48, dtype=np.int32)
    if op in SHIFTS:
        return np.arange(-24, 24, dtype=np.int32), np.resize(np.int32([0, 1, 5]), 48)
    if op in POSITIVE:
        return np.abs(VALUES) + np.float32(0.01), VALUES
    if op == "pow":
        return np.abs(VALUES) + np.float32(0.01), np.clip(np.roll(VALUES, 5), -3, 3)
    return VALUES, np.roll(VALUES, 5) + np.float32(0.25)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("op", [*UNARY.split(), *BINARY.split()])
def test_every_elementwise_op(op, dtype):
    gelu = {"gelu_tanh": "tanh", "gelu_erf": "none"}.get(op)
    function = getattr(hl, "gelu" if gelu else op)

    @tile.kernel
    def approximated(x, y):
        out = hl.empty(x.shape, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            out[t] = function(x[t], approximate=gelu).to(hl.float32)
        return out

    @tile.kernel
    def unary(x, y):
        out = hl.empty(x.shape, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            out[t] = function(x[t]).to(hl.float32)
        return out

    @tile.kernel
    def binary(x, y):
        out = hl.empty(x.shape, dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            out[t] = function(x[t], y[t]).to(hl.float32)
        return out

    x, y = operands(op)
    if dtype == "bfloat16" and x.dtype == np.float32:
        x, y = x.astype(ml_dtypes.bfloat16), y.astype(ml_dtypes.bfloat16)
    kernel = approximated if gelu else unary if op in UNARY.split() else binary
    agrees(kernel, x, y, tolerance=1e-5 if dtype == "float32" else 2e-2, blocks={"t": 16})


WHOLE = {
    "float32": (VALUES, (0, 1, 2, 3, 7, -2)),
    "int32": (np.resize(np.int32([0, 1, -1, 2, -3, 7, 46341]), 48), (0, 1, 2, 3, 31)),
    "int8": (np.resize(np.int8([0, 1, -1, 2, -3, 11]), 48), (0, 2, 3)),
}


@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_powers(dtype):
    x, numbers = WHOLE[dtype]
    for n in numbers:

        @tile.kernel
        def raised(x, n=n):
            out = hl.empty(x.shape, dtype=x.dtype)
            for t in hl.tile(x.shape[0]):
                out[t] = x[t] ** n
            return out

        agrees(raised, x, blocks={"t": 16})


def test_powers_of_integers_to_integers_in_memory():
    @tile.kernel
    def raised(x, y):
        out = hl.empty(x.shape, dtype=x.dtype)
        two = hl.empty(x.shape, dtype=x.dtype)
        for t in hl.tile(x.shape[0]):
            out[t] = x[t] ** y[t]
            two[t] = 2 ** y[t]
        return out, two

    x = np.resize(np.int32([0, 1, -1, 2, -3, 7, 46341]), 48)
    y = np.resize(np.int32([0, 1, 2, 5, 31]), 48)
    agrees(raised, x, y, blocks={"t": 16})


@pytest.mark.parametrize("dtype", [ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2])
def test_numbers_of_8_bit_floats(dtype):
    """Which Triton has none of but 0, in its interpreter as in its compiler."""

    @tile.kernel
    def chosen(x):
        out = hl.empty([2, *x.shape], dtype=hl.float32)
        for t in hl.tile(x.shape[0]):
            out[0, t] = hl.where(t.index < 3, x[t], 1.5).to(hl.float32)
            out[1, t] = hl.where(t.index < 7, hl.full([t], 0.5, dtype=x.dtype), x[t]).to(hl.float32)
        return out

    agrees(chosen, floats(13).astype(dtype), blocks={"t": 4})


@pytest.mark.parametrize("op", ["sum", "max", "min", "argmax", "argmin", "any", "all"])
@pytest.mark.parametrize("axis", [0, 1])
def test_every_reduction(op, axis):
    function = getattr(hl, op)

    @tile.kernel
    def reduced(x):
        out = hl.empty([x.shape[1 - axis]], dtype=hl.float32)
        for t in hl.tile(x.shape[1 - axis]):
            part = x[t, :] if axis == 1 else x[:, t]
            out[t] = function(part, axis).to(hl.float32)
        return out

    x = floats(21, 13)
    if op.startswith("arg"):  # the first of equals; the first NaN, before everything else
        x[:, 4], x[4, :] = x[:, 2], x[2, :]
        x[3, 5], x[3, 8], x[7, 5], x[9, 1] = np.nan, np.nan, np.nan, np.inf
    agrees(reduced, x > 1.2 if op in ("any", "all") else x, blocks={"t": 8})
