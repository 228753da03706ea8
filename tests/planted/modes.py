"""Bugs planted in how a kernel meets JAX, torch and Python, and the check that must notice each."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import torch
from jax.sharding import AbstractDevice, AbstractMesh
from torch.fx.experimental.proxy_tensor import make_fx

import tilelang as tile
import tilelang.language as hl
from tests.aot.test_few_rows import arguments, picked
from tests.codegen.test_bools import SHOWN, WAYS, marked, seen
from tests.codegen.test_bools import X as HEADS
from tests.codegen.test_masked_ends import KERNELS, TRIED, block_of, shorter_is_read
from tests.codegen.test_parts_of_rows import part
from tests.codegen.test_shorter import X as ROWS_OF_X
from tests.codegen.test_shorter import asked, given, head
from tests.gradients import test_traced_sizes
from tests.runtime import test_dynamo
from tests.runtime.test_traced import OFFSETS, turned
from tilelang.codegen.pallas.plan import blocks, launch
from tilelang.codegen.pallas.plan.body import scatters, stores
from tilelang.codegen.pallas.plan.estimate import rank
from tilelang.codegen.pallas.plan.steps import moves, revisits
from tilelang.codegen.pallas.plan.windows.types import Window
from tilelang.runtime import dynamo, execution, primitive, torch_kernel, torch_ops, traced
from tilelang.runtime.device import device_of, target_of
from tilelang.runtime.torch_shapes import known

X = np.arange(32, dtype=np.float32).reshape(4, 8)


@dataclass(frozen=True)
class Broken:
    """One wrong function in the place of a right one; `check` raises or is False with it."""

    what: str
    owner: Any
    name: str
    wrong: Any
    check: Callable[[], bool]

    def __str__(self) -> str:
        return self.what


def double(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        y[tm, tn] = x[tm, tn] * 2.0
    return y


def compiled_for_the_tpu() -> bool:
    module = jax.export.export(jax.jit(tile.kernel(double)), platforms=["tpu"])(X)
    return "tpu_custom_call" in module.mlir_module()


def planned_for_the_mesh() -> bool:
    kernel = tile.kernel(double)
    device = AbstractDevice(device_kind="TPU v5", num_cores=2, platform="tpu")
    with jax.sharding.use_abstract_mesh(AbstractMesh((), (), abstract_device=device)):
        jax.export.export(jax.jit(kernel), platforms=["tpu"])(X)
    return [target.name for _, _, target in kernel._lowered] == ["tpu:v5p"]


def right_inside_of_a_trace() -> bool:
    kernel = tile.kernel(double)
    return bool((jax.jit(lambda a: a + kernel(X))(jnp.zeros_like(X)) == 2 * X).all())


def never_a_constant() -> bool:
    kernel = tile.kernel(double)
    replay = make_fx(lambda x: kernel(x))(torch.from_numpy(X))
    return torch.equal(replay(torch.ones(4, 8)), torch.full((4, 8), 2.0))


def copied_as_itself() -> bool:
    kernel = tile.kernel(double)
    return copy.deepcopy([kernel])[0] is kernel


def small_products() -> bool:
    """XLA's CPU has none of bfloat16 of which the left operand lies turned."""
    kernel = tile.kernel(turned._fn)
    w = kernel(jnp.zeros((40, 16), jnp.bfloat16), OFFSETS)
    return bool((w == 0).all())


def bools_of_heads() -> bool:
    text = tile.kernel(marked._fn).source(SHOWN, HEADS, config=WAYS[1])
    return "jnp.transpose(flags_by_h_ref[...], (1, 0, 2)) != 0" in text


def bools_that_are_carried() -> bool:
    return bool((tile.kernel(seen._fn)(HEADS)[:, -1] == (HEADS > 1).any(0)).all())


def tiles_that_share_a_block() -> bool:
    config = tile.Config({"t": 8})
    text = tile.kernel(head._fn).source(*given(head, 3), config=config, target="tpu:v5p")
    return '"parallel"' not in text


def pipelines_that_share_a_block() -> bool:
    kernel = tile.kernel(asked._fn)
    config = tile.Config({"t": 16}, loop_type="emit_pipeline")
    try:
        return bool((kernel(*given(asked, 3), config=config) == 2 * ROWS_OF_X[:3]).all())
    except tile.PlanError:
        return True


def whole_registers() -> bool:
    return all(block_of(tile.kernel(kernel._fn)) == 24 for kernel in KERNELS)


def tried_in_whole_registers() -> bool:
    return block_of(tile.kernel(shorter_is_read._fn), TRIED, "tpu:v5p") == 128


def few_rows_are_padded() -> bool:
    text = tile.kernel(picked._fn).source(*arguments(3, "int8", 5), target="tpu:v6e")
    return "planes = jnp.pad(planes, ((0, 0), (0, 5), (0, 0)), constant_values=1)" in text


def parts_of_rows() -> bool:
    ids, v = tile.spec((6,), "int32"), tile.spec((6, 1), "float32")
    try:
        tile.kernel(part._fn).lower(ids, v, 2, 3, 260, target="tpu:v6e")
    except tile.PlanError:
        return True
    return False


def _by_host(kernel: str, target: Any, platform: str, interpret: Any, strict: bool) -> Any:
    return device_of(kernel, target, "cpu", interpret, strict)


def _ignoring(platform: str, kind: str | None = None) -> Any:
    return target_of(platform)


def passed(test: Callable[[], None]) -> Callable[[], bool]:
    """A test that raises where it fails."""

    def check() -> bool:
        test()
        return True

    return check


BROKEN = (
    Broken("graphs of Dynamo know functions by their code", dynamo, "_guard", lambda value: None,
           passed(test_dynamo.test_functions_of_one_text_are_told_apart)),
    Broken("numbers in a tuple stay symbols", torch_kernel, "known",
           lambda value: value if isinstance(value, tuple) else known(value),
           passed(test_dynamo.test_numbers_in_a_tuple_that_change)),
    Broken("numbers are part of an operation", torch_kernel, "_is_size", lambda value: False,
           passed(partial(test_traced_sizes.test_sizes_as_arguments_stay_symbols, "a size"))),
    Broken("the host decides what is lowered", execution, "device_of", _by_host,
           compiled_for_the_tpu),
    Broken("every TPU is the same", execution, "target_of", _ignoring, planned_for_the_mesh),
    Broken("a call on values is staged into the trace", execution, "at_once", lambda run: run,
           right_inside_of_a_trace),
    Broken("traces of torch are not noticed", torch_ops, "unusual", lambda tensors: False,
           never_a_constant),
    Broken("a kernel is copied", tile.Kernel, "__deepcopy__",
           lambda self, memo: tile.kernel(self._fn), copied_as_itself),
    Broken("no mesh ever says which TPU", primitive, "abstract_kind", lambda: None,
           planned_for_the_mesh),
    Broken("products of a CPU keep bfloat16", traced, "_small", lambda dtype: False,
           small_products),
    Broken("turned copies hold bools", stores, "in_scratch", lambda dtype: dtype, bools_of_heads),
    Broken("bools are kept as bools", launch, "as_held", lambda stmt: stmt, bools_that_are_carried),
    Broken("tiles behind an end have blocks of their own", moves, "follows",
           lambda number, axis: True, tiles_that_share_a_block),
    Broken("so have those of pipelines", revisits, "follows", lambda number, axis: True,
           pipelines_that_share_a_block),
    Broken("a block is all of an array, whatever is masked beside it", blocks, "whole",
           lambda problem, axis, target: problem.extent(axis.name), whole_registers),
    Broken("so is one that is tried", rank, "whole",
           lambda problem, axis, target: problem.extent(axis.name), tried_in_whole_registers),
    Broken("arrays of few rows lie as others do", Window, "long",
           property(lambda window: window.shape), few_rows_are_padded),
    Broken("any part of a row is stored", scatters, "_check_part", lambda *_: None, parts_of_rows),
)  # fmt: skip
