"""Kernels on arrays that are sharded over a mesh: four fake devices, or four real chips.

On fake devices programs run and are compared with one device; for chips libtpu compiles them.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

HAS_TORCH = importlib.util.find_spec("torch") is not None
SPELLED_IN_TORCH = {"heads", "sequences and queries", "keys", "batches"}  # left out without it
ROOT = Path(__file__).resolve().parent.parent.parent
ADDED = {"all-reduce": 1}


def place(file: str, function: str, text: str, col: int = 0) -> str:
    """The lines of a message that show where a function says so, wherever that is by now.

    col  of the only sign that is meant; without it the line is, but for its last one
    """
    lines = (ROOT / file).read_text().splitlines()
    begin = lines.index(next(line for line in lines if line.startswith(f"def {function}(")))
    number = next(n for n in range(begin, len(lines)) if lines[n].strip() == text)
    shown = " " * col + "^" if col else "^" * (len(text) - 1)
    return f'  File "{file}", line {number + 1}\n    {text}\n    {shown}\n'


RESHARD, CONSTRAIN = "jax.sharding.reshard", "jax.lax.with_sharding_constraint"
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
    "heads that share keys": ({}, "P('d', None, None)"),
    "keys that heads share": ({}, "P(None, 'a', None)"),
    "sequences and queries": ({}, "P('a', None, 'b', None)"),
    "results of groups": ({}, "P(None, 'd')"),
    "elements of a batch": ({}, "P('a', None, None)"),
    "dense": (ADDED, "P('a', None)"),
    "batches": ({}, "P('d', None, None)"),
    "an argument that is returned": ({}, "P(None, 'd'), P('d', None), P(None, 'd')"),
    "nothing": ({}, "P(None, None)"),
    "queries of sequences": ({}, "P('d', None, None)"),
    "rows of boxes": ({}, "P('d', None)"),
    "gradients of sequences": (
        ADDED,
        "P('d', None, None), P(None, None, None), P(None, None, None)",
    ),
    "gradients of boxes": (ADDED, "P('d', None), P(None, None, None)"),
    "a sum of rows": (ADDED, "P(None, None)"),
    "sums of tiles": (ADDED, "P(None, None)"),
    "a mean of rows": (ADDED, "P(None, None)"),
    "whole contraction": (ADDED, "P(None, None)"),
    "whole columns": ({}, "P(None, 'd')"),
    "whole columns and rows": (ADDED, "P('a', None)"),
    "whole sums": ({}, "P(None, 'd')"),
    "gradients of whole products": (ADDED, "P(None, 'd'), P(None, 'd', None)"),
    "gradients of rows": (ADDED, "P('d', None), P(None, None, None)"),
    "gradients of columns": (ADDED, "P(None, None), P(None, None, 'd')"),
    "gradients of groups": ({"all-reduce": 2}, "P(None, None), P('d', None, None)"),
    "gradients of heads that share keys": ({}, ", ".join(["P('d', None, None)"] * 3)),
    "columns of heads": ({}, "P(None, 'd')"),
    "gradients of columns of heads": (
        {"all-reduce": 1, "all-gather": 1},
        "P('b', 'a'), P(None, None)",
    ),
    "sequences in one array": ({}, "P('d', None, None)"),
    "pieces of groups": (ADDED, "P('d', None, None), P(None, 'd')"),
    # in stages: the maximum, then the sums
    "keys": ({"all-reduce": 2}, "P(None, None, None, None)"),
    "keys of sequences": ({"all-reduce": 2}, "P(None, None, None)"),
    "rows of groups": ({"all-reduce": 2}, "P('d', None)"),
    "gradients of rows of groups": ({"all-reduce": 3}, "P('d', None)"),
    "a norm of groups": ({"all-reduce": 2}, "P('d', None)"),
    "whole norms": ({"all-reduce": 2}, "P(None, 'd')"),
    "whole softmax": ({"all-reduce": 2}, "P(None, 'd')"),
    "gradients of whole norms": ({"all-reduce": 4}, "P(None, 'd'), P('d',)"),
    "features and rows of groups": ({"all-reduce": 2}, "P('a', 'b')"),
}
RAGGED = "for t in hl.tile(offsets[g], offsets[g + 1]):"
REFUSED = {
    "states": (
        "dimension 0 of x is sharded over mesh axis 'd', which kernel running_sum cannot be "
        "split over: something is stored in the loop over t\n"
        + place("tests/transforms/test_stages.py", "running_sum", RAGGED)
        + "  hint: replicate it, jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec())), "
        "shard dimension 1 instead, or call the kernel inside jax.shard_map, which gives it one "
        "shard at a time"
    ),
    "offsets": (
        "dimension 0 of offsets is sharded over mesh axis 'd', which kernel grouped_gemm cannot be "
        "split over: offsets are needed as a whole\n"
        '  File "examples/jagged/grouped_gemm.py", line 37\n'
        "    for g in hl.grid(G):\n"
        f"    {'^' * 19}\n"
        "  hint: replicate it, jax.sharding.reshard(offsets, NamedSharding(mesh, "
        "PartitionSpec())), or call the kernel inside "
        "jax.shard_map, which gives it one shard at a time"
    ),
    "twice": (
        "dimension 2 of w is sharded over mesh axis 'a', which kernel grouped_gemm cannot be split "
        "over: mesh axis 'a' splits another loop of it already\n"
        '  File "examples/jagged/grouped_gemm.py", line 38\n'
        "    for tm, tn in hl.tile([offsets[g], 0], [offsets[g + 1], N], max_extent=[M, N]):\n"
        f"    {'^' * 78}\n"
        "  hint: replicate it, jax.sharding.reshard(w, NamedSharding(mesh, PartitionSpec())), "
        "or call the kernel inside "
        "jax.shard_map, which gives it one shard at a time"
    ),
}


REFUSED["heads of one key"] = (
    "dimension 1 of q is sharded over mesh axis 'd', which kernel varlen_attention cannot be "
    "split over: 4 of its 8 positions stay together, and 2 is no multiple of the mesh's size\n"
    '  File "examples/jagged/varlen_attention.py", line 50\n'
    "    for h, b in hl.grid([H, offsets.shape[0] - 1]):\n"
    f"    {'^' * 46}\n"
    "  hint: replicate it, jax.sharding.reshard(q, NamedSharding(mesh, PartitionSpec())), "
    "or call the kernel inside "
    "jax.shard_map, which gives it one shard at a time"
)
REFUSED["whole argmax"] = (
    "dimension 1 of x is sharded over mesh axis 'd', which kernel whole_argmax cannot be split "
    "over: it is taken whole, by `:`\n"
    + place("tests/transforms/wholes.py", "whole_argmax", "def whole_argmax(x):", 17)
    + "  hint: replicate it, jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec())), "
    "loop over it, hl.tile(...), shard dimension 0 instead, or call the kernel inside "
    "jax.shard_map, which gives it one shard at a time"
)
REFUSED["columns of three heads"] = (
    "dimension 1 of x is sharded over mesh axis 'd', which kernel heads_of_columns cannot be "
    "split over: 8 of its 24 positions stay together, and 3 is no multiple of the mesh's size\n"
    + place("tests/transforms/test_partition.py", "heads_of_columns", "for h in hl.grid(H):")
    + "  hint: replicate it, jax.sharding.reshard(x, NamedSharding(mesh, PartitionSpec())), "
    "or call the kernel inside "
    "jax.shard_map, which gives it one shard at a time"
)

# Where the axes are Auto: what a compiler may shard anew is not refused, and so are its results.
AUTO = {
    "groups and contraction": RIGHT["groups and contraction"],
    "gradients of groups": ({"all-reduce": 2}, "P(None, None), P(None, None, None)"),
    "gradients of whole norms": ({"all-reduce": 6}, "P(None, 'd'), P('d',)"),
    "gradients of columns of heads": (ADDED, "P('b', 'a'), P('a', None)"),
    "columns of three heads": ({"all-gather": 1}, "P(None, None)"),
    "offsets": ({}, "P(None, None)"),
    "heads of one key": ({"all-gather": 1}, "P(None, 'd', None)"),
    "twice": ({"all-gather": 1, "all-to-all": 1}, "P(None, 'a')"),
}
# What the partitioner of JAX 0.12 chooses instead, where a choice is left to it.
NEWER = {"twice": {"all-gather": 2}}


def lines(*names: str) -> dict[str, dict]:
    command = [sys.executable, "-m", "tests.runtime.mesh", *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]
    found = [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]
    return {each.pop("name"): each for each in found}


def every() -> set[str]:
    """The names of all ways that are at hand."""
    return {*RIGHT, *REFUSED} - (set() if HAS_TORCH else SPELLED_IN_TORCH)


def agrees(found: dict[str, dict], other: dict | None = None) -> None:
    for name, each in found.items():
        right = {**RIGHT, **(other or {})}
        if name not in right:
            words = each["refused"].replace(f"{ROOT}/", "")
            assert words.replace(CONSTRAIN, RESHARD) == REFUSED[name]
        else:
            collectives, out = right[name]
            assert each["collectives"] in (collectives, NEWER.get(name)), name
            assert each["out"] == out, name
            assert each.get("error", 0) < 1e-6, name


def test_some_ways_to_shard():
    some = "rows and groups", "gradients of rows", "rows of boxes", "keys of sequences"
    agrees(lines(*some, *REFUSED))


# On two devices at once, by themselves and over a mesh, and whole rows that Auto axes split.
REFUSALS = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from tests.transforms.wholes import whole_argmax
from examples.jagged.grouped_gemm import grouped_gemm
import tilelang as tile

mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
x, w, offsets = jnp.ones((8, 16)), jnp.ones((2, 16, 16)), jnp.array([0, 3, 8])
one, other = jax.devices()[:2]

def refused(call, *arguments):
    try:
        call(*arguments)
    except tile.CallError as error:
        print(str(error).splitlines()[0], "|", error.hint)

there = jax.device_put(x, one), w, offsets
grouped_gemm(*there)
refused(grouped_gemm, there[0], jax.device_put(w, other), offsets)
rows = jax.device_put(x, NamedSharding(mesh, P("d")))
refused(grouped_gemm, rows, w, jax.device_put(offsets, other))
columns = jax.device_put(x, NamedSharding(mesh, P(None, "d")))
refused(whole_argmax, columns)
refused(jax.jit(lambda x: whole_argmax(x * 2)), columns)
"""
IN_THE_WAY = (
    "dimension 1 of x is sharded over mesh axis 'd', which kernel whole_argmax cannot be split "
    "over: it is taken whole, by `:` | replicate it, "
    "jax.lax.with_sharding_constraint(x, NamedSharding(mesh, PartitionSpec())), loop over it, "
    "hl.tile(...), shard dimension 0 instead, or call the kernel inside jax.shard_map, which gives "
    "it one shard at a time"
)


def test_what_is_refused_while_xla_compiles():
    run = subprocess.run(
        [sys.executable, "-c", REFUSALS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert run.stdout.splitlines() == [
        "x is on cpu:0 and w on cpu:1: grouped_gemm runs where all of its arguments are | "
        "jax.device_put(w, x.sharding)",
        "x is on 4 devices from cpu:0 on and offsets on cpu:1: grouped_gemm runs where all of its "
        "arguments are | "
        "jax.device_put(offsets, NamedSharding(x.sharding.mesh, PartitionSpec()))",
        IN_THE_WAY,
        IN_THE_WAY,
    ]


@pytest.mark.thorough
def test_every_way_to_shard():
    found = lines()
    assert set(found) == every()
    agrees(found)


@pytest.mark.slow
def test_a_fourth_of_the_ways_to_shard():
    some = sorted(every() - {*REFUSED})[::4]
    found = lines(*some)
    assert sorted(found) == some
    agrees(found)


@pytest.mark.slow
def test_some_ways_where_the_compiler_shards():
    some = "rows and groups", "a mean of rows", "gradients of rows", "twice", "keys"
    some += "keys that heads share", "heads of one key"
    agrees(lines("auto", *some), AUTO)


@pytest.mark.thorough
def test_every_way_where_the_compiler_shards():
    found = lines("auto")
    assert set(found) == every()
    agrees(found, AUTO)


# name -> how many kernels the program of each chip has
COMPILED = {
    "columns": 1,
    "rows": 1,
    "groups": 1,
    "contraction": 1,
    "nothing": 1,
    "gradients of rows": 3,
    "gradients of columns": 3,
    "gradients of groups": 3,
    "queries of sequences": 1,
    "rows of boxes": 1,
    "gradients of sequences": 4,
    "gradients of boxes": 3,
    "rows of groups": 3,
    "whole contraction": 2,
    "whole norms": 3,
    "gradients of whole products": 6,
}
# The last one is a mesh of 16 chips of four hosts.
TOPOLOGIES = [
    pytest.param("v5e:2x2", marks=pytest.mark.slow),
    *(
        pytest.param(name, marks=pytest.mark.thorough)
        for name in ("v5p:2x2x1", "v6e:2x2", "tpu7x:2x2x1", "v5e:4x4")
    ),
]


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_compiled_for_chips(topology):
    found = lines(topology, *COMPILED)
    assert {name: each.pop("kernels") for name, each in found.items()} == COMPILED
    agrees(found)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_auto_axes_of_absent_chips_are_refused():
    (found,) = lines("v5e:2x2", "auto", "rows").values()
    assert found["refused"] == (
        "kernel grouped_gemm is compiled for several TPUs that are not there, over mesh axes of "
        "type Auto: JAX asks how to split it only where they are\n"
        "  hint: use axes of type jax.sharding.AxisType.Explicit, or call it inside jax.shard_map"
    )
