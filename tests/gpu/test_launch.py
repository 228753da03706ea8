"""Calls on a GPU, as far as they go without one: down to the driver call, and what is refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

import tilelang as tile
from examples.jagged.grouped_gemm import grouped_gemm, make_inputs
from tests.frameworks import to_torch
from tilelang.errors import CallError

ROOT = Path(__file__).resolve().parents[2]
needs_triton = pytest.mark.skipif(
    find_spec("triton") is None, reason="triton is not installed: pip install 'raggedtile[triton]'"
)
needs_gcc = pytest.mark.skipif(
    shutil.which("gcc") is None, reason="Triton builds its launcher with a C compiler"
)


@cache
def seen() -> dict:
    """What a process saw that called kernels on the stand-in for the driver."""
    command = [sys.executable, "-m", "tests.gpu.on_stub"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


@needs_triton
@needs_gcc
def test_a_call_launches_what_was_planned():
    assert seen()["arguments"] == seen()["pointers"]
    assert seen()["grid"][0] == seen()["grid"][1]
    assert seen()["threads"][0] == seen()["threads"][1]


@needs_triton
@needs_gcc
def test_neither_a_second_call_nor_other_lengths_compile_again():
    assert seen()["compiled"] == 1
    assert seen()["other lengths"] == 1


@needs_triton
@needs_gcc
def test_a_pointer_that_is_not_aligned_has_code_of_its_own():
    assert seen()["unaligned"] == [True, False, False, False]
    assert seen()["in all"] == 2
    assert seen()["launches"] == 5


@needs_triton
@needs_gcc
def test_what_is_not_contiguous_is_copied():
    assert seen()["copied"]


def test_without_a_gpu():
    arguments = [to_torch(a) for a in make_inputs()]
    with pytest.raises(CallError) as caught:
        grouped_gemm(*arguments, target="cuda:sm90")
    assert str(caught.value).splitlines() == [
        "grouped_gemm is planned for cuda:sm90, and none of its arguments is on a GPU",
        "  hint: move them with .cuda(), or set TRITON_INTERPRET=1 before Python starts, to run it "
        "in Triton's interpreter",
    ]


def test_jax_arrays():
    import jax.numpy as jnp

    with pytest.raises(CallError, match="x is a JAX array: this version calls Triton kernels from"):
        grouped_gemm(*map(jnp.asarray, make_inputs()), target="cuda:sm90")


def test_shapes_without_data():
    x, w = tile.spec((64, 32), "float32"), tile.spec((2, 32, 32), "float32")
    with pytest.raises(CallError, match="x is a shape without data, and calling grouped_gemm"):
        grouped_gemm(x, w, tile.spec((3,), "int32"), target="cuda:sm90")
