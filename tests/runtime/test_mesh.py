"""Kernels on arrays that are sharded over an explicit mesh: four fake devices, or four real chips.

On fake devices programs run and are compared with one device; for chips libtpu compiles them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
ADDED = {"all-reduce": 1}
# name -> the collectives of the compiled program, and how the result is sharded
RIGHT = {
    "columns": ({}, "P(None, 'd')"),
    "rows": ({}, "P('d', None)"),
    "groups": (ADDED, "P(None, None)"),
    "contraction": (ADDED, "P(None, None)"),
    "rows and columns": ({}, "P('a', 'b')"),
    "rows and groups": (ADDED, "P('a', None)"),
    "groups and contraction": (ADDED, "P(None, None)"),
    "rows over two axes": ({}, "P(('a', 'b'), None)"),
    "bfloat16 contraction": (ADDED, "P(None, None)"),
    "heads": ({}, "P(None, 'd', None, None)"),
    "sequences and queries": ({}, "P('a', None, 'b', None)"),
    "results of groups": ({}, "P(None, 'd')"),
    "dense": (ADDED, "P('a', None)"),
    "batches": ({}, "P('d', None, None)"),
}
REFUSED = {
    "a sum of rows": (
        "dimension 0 of x is sharded over mesh axis 'd', which kernel jagged_sum cannot be split "
        "over: tm is ordered: carries acc, a sum\n"
        "  hint: replicate it, jax.sharding.reshard(x, PartitionSpec()), or call the kernel inside "
        "jax.shard_map, which gives it one shard at a time"
    ),
    "keys": (
        "dimension 2 of k is sharded over mesh axis 'd', which kernel flash_attention cannot be "
        "split over: tk is ordered: carries total, acc, m\n"
        "  hint: replicate it, jax.sharding.reshard(k, PartitionSpec()), or call the kernel inside "
        "jax.shard_map, which gives it one shard at a time"
    ),
    "offsets": (
        "dimension 0 of offsets is sharded over mesh axis 'd', which kernel grouped_gemm cannot be "
        "split over: offsets are needed as a whole\n"
        "  hint: replicate it, jax.sharding.reshard(offsets, PartitionSpec()), or call the kernel "
        "inside jax.shard_map, which gives it one shard at a time"
    ),
    "twice": (
        "dimension 2 of w is sharded over mesh axis 'a', which kernel grouped_gemm cannot be split "
        "over: mesh axis 'a' splits another loop of it already\n"
        "  hint: replicate it, jax.sharding.reshard(w, PartitionSpec()), or call the kernel inside "
        "jax.shard_map, which gives it one shard at a time"
    ),
}


def lines(*names: str) -> dict[str, dict]:
    command = [sys.executable, "-m", "tests.runtime.mesh", *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {each.pop("name"): each for each in found}


def agrees(found: dict[str, dict]) -> None:
    for name, each in found.items():
        if name in REFUSED:
            assert each["refused"] == REFUSED[name]
        else:
            assert (each["collectives"], each["out"]) == RIGHT[name], name
            assert each.get("error", 0) < 1e-6, name


def test_some_ways_to_shard():
    agrees(lines("rows and groups", "bfloat16 contraction", *REFUSED))


@pytest.mark.slow
def test_every_way_to_shard():
    found = lines()
    assert set(found) == {*RIGHT, *REFUSED}
    agrees(found)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_compiled_for_four_chips():
    found = lines("tpu", "columns", "rows", "groups", "contraction")
    assert len(found) == 4 and all(each.pop("kernels") == 1 for each in found.values())
    agrees(found)
