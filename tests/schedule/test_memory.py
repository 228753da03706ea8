"""The memory model: what a launch needs, what it asks for, and what is refused with the sum."""

from __future__ import annotations

import pytest

import tilelang as tile
import tilelang.language as hl
from tests.schedule.written import Writing, add, full, planned
from tilelang.analysis import analyze
from tilelang.codegen.pallas.plan.memory import padded_bytes
from tilelang.codegen.pallas.plan.search import default_config
from tilelang.codegen.pallas.target import MIB, Target
from tilelang.errors import PlanError
from tilelang.ir import KernelIR
from tilelang.language import build
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

V5E = Target.of("tpu:v5e")


@pytest.mark.parametrize(
    ("shape", "dtype", "size"),
    [
        ((8, 128), "float32", 4096),
        ((1, 1), "float32", 4096),
        ((9, 129), "float32", 4 * 4096),
        ((8, 128), "bfloat16", 4096),
        ((17, 128), "bfloat16", 2 * 4096),
        ((1, 128), "int8", 4096),
        ((3, 8, 128), "float32", 3 * 4096),
        ((128,), "float32", 4096),
    ],
)
def test_blocks_fill_whole_register_tiles(shape: tuple[int, ...], dtype: str, size: int) -> None:
    assert padded_bytes(shape, dtype, V5E) == size


def matmul(size: int = 1024) -> KernelIR:
    k = Writing("matmul")
    k.input("x", size, size)
    k.input("w", size, size)
    k.output("y", size, size, fill=None)
    with k.tile("tm", 0, size), k.tile("tn", 0, size):
        with k.tile("tk", 0, size):
            acc = k.carried("acc", full(("tm", "tn"), 0.0))
            operands = k.load("x", "tm", "tk"), k.load("w", "tk", "tn")
            k.becomes(acc, add(acc, build.dot(*operands, None, (1, 0))))
        k.store("y", "tm", "tn", value=k.after("acc", acc))
    return k.ir()


BLOCKS = {"tm": 128, "tn": 256, "tk": 512}


def test_every_buffer_is_counted() -> None:
    (launch,) = planned(matmul(), Config(BLOCKS), "tpu:v5e").launches
    parts = dict(launch.memory.parts)
    assert parts["x_ref"] == 2 * 128 * 512 * 4
    assert parts["w_ref"] == 2 * 512 * 256 * 4
    assert parts["y_ref"] == 2 * 128 * 256 * 4
    assert sum(parts.values()) == launch.memory.vmem
    assert sum(size == 128 * 256 * 4 for size in parts.values()) == 1  # the accumulator
    assert launch.memory.limit is None


def test_buffers_of_inputs_are_as_many_as_the_config_says() -> None:
    config = Config(BLOCKS, loop_type="outer_pipeline", buffers=3)
    (launch,) = planned(matmul(), config, "tpu:v5e").launches
    parts = dict(launch.memory.parts)
    assert parts["x_ref"] == 3 * 128 * 512 * 4
    assert parts["y_ref"] == 2 * 128 * 256 * 4


def test_more_than_the_default_is_asked_for_in_whole_mebibytes() -> None:
    config = Config({"tm": 1024, "tn": 1024, "tk": 512})
    (launch,) = planned(matmul(), config, "tpu:v5e").launches
    limit = launch.memory.limit
    assert limit is not None
    assert limit % MIB == 0
    assert launch.memory.vmem < limit <= V5E.vmem_physical


def test_what_no_limit_allows_is_refused_with_the_sum() -> None:
    config = Config({"tm": 4096, "tn": 4096, "tk": 4096})
    with pytest.raises(PlanError) as caught:
        planned(matmul(4096), config, "tpu:v5e")
    assert caught.value.what.startswith("matmul needs ")
    assert caught.value.what.endswith(" bytes of vector memory, tpu:v5e has 134,217,728")
    assert caught.value.hint.startswith("use smaller blocks; the sum is: ")
    assert "x_ref 67,108,864" in caught.value.hint or "x_ref 134,217,728" in caught.value.hint


@pytest.mark.parametrize("target", ["tpu:v4", "tpu:v5e", "tpu:v5p", "tpu:v6e", "tpu:7x"])
@pytest.mark.parametrize("size", [128, 4096, 16384])
def test_the_default_fits_with_a_margin(target: str, size: int) -> None:
    ir, goal = matmul(size), Target.of(target)
    config = default_config(Problem(ir, analyze(ir)), goal)
    (launch,) = planned(ir, config, target).launches
    assert launch.memory.vmem * 5 // 4 <= goal.vmem_physical


def test_scalar_memory_holds_offsets_and_table() -> None:
    k = Writing("ragged")
    begin, end = k.offsets("offsets", 4)
    k.input("x", 64, 128)
    k.output("y", 64, 128)
    with k.grid("g", 0, 4), k.tile("tm", begin, end):
        k.store("y", "tm", slice(None), value=k.load("x", "tm", slice(None)))
    (launch,) = planned(k.ir(), Config({"tm": 16})).launches
    assert launch.table is not None
    assert launch.memory.smem == 4 * 5 + launch.table.rows * 2 * 4


@tile.kernel
def products(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        product = 1.0
        for i in hl.grid(offsets[g], offsets[g + 1]):
            product = product * x[i, 0]
            y[i, :] = product * hl.zeros([x.shape[1]]) + product
    return y


@tile.kernel
def products_of_blocks(x, offsets):
    y = hl.zeros(x.shape, dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        product = hl.full([1], 1.0)
        for i in hl.grid(offsets[g], offsets[g + 1]):
            product = product * x[i, 0:1]
            y[i, :] = product * hl.zeros([x.shape[1]]) + product
    return y


@tile.kernel
def discounted(r, offsets):
    y = hl.zeros(r.shape, dtype=r.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0.0
        for i in hl.grid(offsets[g], offsets[g + 1]):
            total = r[i] + 0.9 * total
            y[i] = total
    return y


@tile.kernel
def discounted_in_blocks(r, offsets):
    y = hl.zeros([r.shape[0], 1], dtype=r.dtype)
    column = r.reshape(-1, 1)
    for g in hl.grid(offsets.shape[0] - 1):
        total = hl.zeros([1], dtype=hl.float32)
        for i in hl.grid(offsets[g], offsets[g + 1]):
            total = column[i, :] + 0.9 * total
            y[i, :] = total
    return y.reshape(-1)


@tile.kernel
def counted(r, offsets):
    """Integers, of which positions could be made."""
    y = hl.zeros([offsets.shape[0] - 1], dtype=r.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        total = 0
        for i in hl.grid(offsets[g], offsets[g + 1]):
            total += r[i]
        y[g] = total
    return y


@tile.kernel
def products_of_changed(x, offsets):
    for t in hl.tile(x.shape[0]):
        x[t, :] = x[t, :] + 1.0
    y = hl.zeros([x.shape[0], 128], dtype=x.dtype)
    for g in hl.grid(offsets.shape[0] - 1):
        product = 1.0
        for i in hl.grid(offsets[g], offsets[g + 1]):
            product = product * x[i, 0]
            y[i, :] = product * hl.zeros([128]) + product
    return y


AS_BLOCKS = (
    "load numbers that are no positions or bounds as blocks, x[i, 0:1] for x[i, 0] and "
    "v.reshape(-1, 1)[i, :] for v[i], or split the kernel"
)


@pytest.mark.parametrize(
    ("kernel", "follows", "shape"),
    [(products, products_of_blocks, (4096, 128)), (discounted, discounted_in_blocks, (1 << 20,))],
    ids=["rows", "numbers"],
)
def test_numbers_that_do_not_fit_are_read_in_blocks(
    kernel: tile.Kernel, follows: tile.Kernel, shape: tuple[int, ...]
) -> None:
    """As who writes blocks says it."""
    given = tile.spec(shape, "float32"), tile.spec((5,), "int32")
    for each in (kernel, follows):
        (launch,) = each.lower(*given, target="tpu:v5e").plan.launches
        assert launch.scalars == ("offsets",)


@pytest.mark.parametrize(
    ("kernel", "dtype", "size", "hint"),
    [
        (counted, "int32", "r 4,194,304", AS_BLOCKS),
        (products_of_changed, "float32", "x 2,097,152", "make matrices flat"),
    ],
    ids=["numbers", "changed"],
)
def test_single_numbers_that_do_not_fit_say_what_would(
    kernel: tile.Kernel, dtype: str, size: str, hint: str
) -> None:
    """Flat matrices are no advice where they do not fit either; the sum is that of its parts."""
    shape = (1 << 20,) if kernel is counted else (4096, 16)
    given = tile.spec(shape, dtype), tile.spec((5,), "int32")
    with pytest.raises(PlanError) as caught:
        kernel.lower(*given, target="tpu:v5e")
    assert caught.value.hint.startswith(hint)
    parts = caught.value.hint.split("the sum is: ")[1]
    assert size in parts.split(", ")
    total = sum(int(part.rsplit(" ", 1)[1].replace(",", "")) for part in parts.split(", "))
    assert f"take {total:,} bytes of scalar memory" in caught.value.what
