"""python -m tests.schedule_table --write docs/schedule.md: bundles of a step, and by hand.

Grouped GEMM and jagged attention as the compiler generates them, and as a person writes them
(tests/by_hand), both at the same blocks, are compiled by the real TPU compiler.  The page says how
many bundles a step of each takes, how many steps of the generated kernel do no work, and how many
whole arrays XLA moves around it.  Needs libtpu and no TPU; nothing is timed.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any
from unittest import mock

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import numpy as np

import tilelang as tile
from examples.jagged import grouped_gemm, jagged_attention
from tilelang.aot import Bundles, compile_lowered
from tilelang.codegen.source import Source
from tilelang.runtime.lowering import Lowered

GENERATIONS = ("v5e", "v5p", "v6e", "7x")
MOST = 1.05  # bundles of a generated step, for each one of the kernel by hand
BY_HAND = Path(__file__).with_name("by_hand")
# Lengths of groups, as parts of all rows: empty ones, and others that end inside of a tile; what is
# left is the last group.  A group of one row is added.
PARTS = (0.13, 0, 0.07, 0.21, 0.09, 0.27, 0)
GROUPS = len(PARTS) + 2
BASE, DIGITS = 128, 4  # of a number of steps, as written into an output

TITLE = "# Schedules, compared with kernels by hand"
MADE = (
    "Made by `make schedule`, with libtpu {libtpu} and JAX {jax}, ahead of time: no TPU was used, "
    "and nothing was timed. A TPU core starts one bundle of instructions per cycle, in order, so "
    "the bundles of a step are what it costs as long as it waits for no copy."
)
COLUMNS = (
    "*step* is the bundles of one turn of the pipeline's loop, everything included that only the "
    "first or last step at a block does; *guarded* says how many of them that is. *by hand* is the "
    "same for `tests/by_hand`, at the same blocks; the ratio may be {most} at most. *dead* is the "
    "steps that work on no pair of a tile and a group, of all that the kernel makes for offsets "
    "with empty groups, groups of one row and groups that end inside of a tile. *moved* is the "
    "whole arrays that XLA copies, casts or pads around the kernel."
)


@dataclass(frozen=True)
class Measured:
    """A kernel of the examples at given blocks.

    arguments  specs
    blocks     None: those of the default config
    call       the call of the kernel by hand, from names of blocks
    live       (offsets, blocks) -> steps that have work to do
    within     as in a config: the attention by hand has a head in each step
    """

    title: str
    kernel: tile.Kernel
    arguments: tuple[Any, ...]
    blocks: dict[str, int] | None
    call: Callable[[dict[str, int]], str]
    live: Callable[[np.ndarray, dict[str, int]], int]
    within: tuple[str, ...] | None = None

    def lowered(self, generation: str) -> Lowered:
        config = tile.Config(self.blocks or {}, within=self.within)
        return self.kernel.lower(*self.arguments, target=f"tpu:{generation}", config=config)


@dataclass(frozen=True)
class Row:
    """One kernel for one generation."""

    title: str
    generation: str
    blocks: str
    ours: Bundles
    by_hand: Bundles
    dead: int
    steps: int
    moved: int

    @property
    def ratio(self) -> float:
        return self.ours.step / self.by_hand.step

    @property
    def failed(self) -> bool:
        return self.ratio > MOST or self.dead > 0 or self.moved > 0


# ---------------------------------------------------------------- the kernels


def gemm(rows: int, k: int, n: int, groups: int, dtype: str, **blocks: int) -> Measured:
    """Grouped GEMM; the kernel by hand keeps all of K in a block."""

    def call(sizes: dict[str, int]) -> str:
        assert sizes["tk"] == k, "the kernel by hand has whole rows of x"
        return f"grouped_gemm(x, w, offsets, bm={sizes['tm']}, bn={sizes['tn']})"

    def live(offsets: np.ndarray, sizes: dict[str, int]) -> int:
        return sum(len(tiles) for tiles in _tiles(offsets, sizes["tm"])) * (n // sizes["tn"])

    return Measured(
        f"grouped GEMM [{rows}, {k}] x [{groups}, {k}, {n}], {dtype}",
        grouped_gemm.grouped_gemm,
        grouped_gemm.case(rows, k, n, groups, dtype),
        blocks or None,
        call,
        live,
    )


def attention(
    heads: int, tokens: int, width: int, causal: bool, dtype: str, **blocks: int
) -> Measured:
    """Jagged attention."""

    def call(sizes: dict[str, int]) -> str:
        sizes_by_hand = f"bq={sizes['tq']}, bk={sizes['tk']}"
        return f"jagged_attention(q, k, v, offsets, {sizes_by_hand}, causal={causal})"

    def live(offsets: np.ndarray, sizes: dict[str, int]) -> int:
        tq, tk, count = sizes["tq"], sizes["tk"], 0
        for begin, end, tiles in zip(offsets, offsets[1:], _tiles(offsets, tq)):
            for tile_of_queries in tiles:
                last = min(end, (tile_of_queries + 1) * tq) if causal else end
                count += -(-last // tk) - begin // tk
        return count * heads

    return Measured(
        f"jagged attention{', causal' if causal else ''}, [{heads}, {tokens}, {width}], {dtype}",
        jagged_attention.jagged_attention,
        jagged_attention.case(heads, tokens, width, GROUPS, causal, dtype),
        blocks or None,
        call,
        live,
        within=(),
    )


def _tiles(offsets: np.ndarray, block: int) -> list[range]:
    """Tiles that each group has rows in."""
    pairs = zip(offsets.tolist(), offsets[1:].tolist())
    return [range(begin // block, -(-end // block) if end > begin else 0) for begin, end in pairs]


KERNELS = (
    gemm(8192, 2048, 2048, GROUPS, "bfloat16", tm=128, tn=512, tk=2048),
    gemm(8192, 2048, 2048, GROUPS, "bfloat16", tm=256, tn=512, tk=2048),
    gemm(16384, 4096, 2048, GROUPS, "bfloat16"),
    gemm(8192, 1024, 2048, GROUPS, "float32", tm=128, tn=512, tk=1024),
    attention(16, 8192, 128, False, "bfloat16", tq=256, tk=512),
    attention(16, 8192, 128, True, "bfloat16", tq=256, tk=512),
    attention(16, 8192, 128, False, "bfloat16", tq=128, tk=128),
    attention(16, 16384, 128, True, "bfloat16"),
    attention(8, 8192, 128, True, "float32", tq=256, tk=256),
)


# ---------------------------------------------------------------- measuring


def measure(kernel: Measured, generation: str) -> Row:
    """Compiles both, and counts steps."""
    lowered = kernel.lowered(generation)
    blocks = dict(lowered.config.blocks)
    compiled = compile_lowered(lowered, schedule=True)
    by_hand = compile_lowered(_by_hand(kernel, lowered), schedule=True)
    offsets = layout(kernel.arguments[0].shape[-2])
    steps = steps_of(lowered, offsets)
    return Row(
        kernel.title,
        generation,
        ", ".join(f"{name}={size}" for name, size in blocks.items()),
        _launch(compiled),
        _launch(by_hand),
        steps - kernel.live(offsets, blocks),
        steps,
        len(compiled.copies),
    )


def layout(rows: int) -> np.ndarray:
    """Offsets of GROUPS groups, of every kind, that share all rows."""
    lengths = [1, *(int(part * rows) for part in PARTS)]
    return np.cumsum([0, *lengths, rows - sum(lengths)], dtype=np.int32)


def _by_hand(kernel: Measured, lowered: Lowered) -> Lowered:
    """The kernel by hand in the place of the generated module."""
    text = (BY_HAND / f"{lowered.ir.name}.py").read_text(encoding="utf-8")
    call = kernel.call(dict(lowered.config.blocks))
    names = ", ".join(tensor.name for tensor in lowered.ir.tensors if tensor.role == "input")
    text += f"\n\ndef by_hand({names}):\n    return {call}\n"
    return replace(lowered, source=Source(text, "by_hand"))


def _launch(compiled: tile.Compiled) -> Bundles:
    assert compiled.schedule is not None
    (launch,) = (kernel for kernel in compiled.schedule.kernels if kernel.ours)
    return launch


def steps_of(lowered: Lowered, offsets: np.ndarray) -> int:
    """Steps of the one pipeline of a generated kernel; only its step table is run, on the CPU."""
    import jax.numpy as jnp
    from jax.experimental.pallas import tpu as pltpu

    def emit_pipeline(body: Any, *, grid: Sequence[Any], **_: Any) -> Callable[..., None]:
        # In the place of the steps: their number, in digits that every dtype of an output holds.
        # (JAX 0.12 drops callbacks from a kernel.)
        def write(*refs: Any) -> None:
            steps = jnp.int32(1)
            for size in grid:
                steps = steps * size
            first = (0,) * (len(refs[-1].shape) - 1)
            for digit in range(DIGITS):
                refs[-1][(*first, digit)] = (steps // BASE**digit % BASE).astype(refs[-1].dtype)

        return write

    arguments = [
        offsets if tensor.name == "offsets" else jnp.zeros(tensor.shape, tensor.dtype)
        for tensor in lowered.ir.tensors
        if tensor.role == "input"
    ]
    with mock.patch.object(pltpu, "emit_pipeline", emit_pipeline):
        output = lowered.source.load()(*arguments, interpret=True)
    digits = np.asarray(output, np.float64).reshape(-1)[:DIGITS]
    return int(digits @ BASE ** np.arange(DIGITS))


# ---------------------------------------------------------------- the page


def page(rows: Iterable[Row], jax: str, libtpu: str) -> str:
    """The whole page: a table for each kernel."""
    head = (TITLE, MADE.format(libtpu=libtpu, jax=jax), COLUMNS.format(most=MOST))
    parts = [head[0], *(textwrap.fill(text, 100) for text in head[1:])]
    tables: dict[str, list[Row]] = {}
    for row in rows:
        tables.setdefault(row.title, []).append(row)
    return "\n\n".join([*parts, *(_table(title, some) for title, some in tables.items())]) + "\n"


def _table(title: str, rows: Sequence[Row]) -> str:
    names = ("target", "blocks", "step", "guarded", "by hand", "ratio", "dead", "moved")
    lines = [f"## {title}", "", _line(names), "|---|---" + "|---:" * (len(names) - 2) + "|"]
    for row in rows:
        ratio = f"**{row.ratio:.3f}**" if row.ratio > MOST else f"{row.ratio:.3f}"
        counts = (row.ours.step, row.ours.guarded, row.by_hand.step, ratio)
        dead = f"{row.dead} of {row.steps}"
        lines.append(_line((row.generation, row.blocks, *map(str, counts), dead, str(row.moved))))
    return "\n".join(lines)


def _line(entries: Iterable[str]) -> str:
    return "| " + " | ".join(entries) + " |"


def main(argv: Sequence[str]) -> int:
    """Prints the page or writes it; 0 if every ratio is small enough and nothing is wasted."""
    parser = argparse.ArgumentParser(prog="python -m tests.schedule_table")
    parser.add_argument("--write", type=Path, help="the file to write the page to")
    parser.add_argument("--jobs", type=int, default=2, help="compilers at a time (%(default)s)")
    parser.add_argument("--only", default="", help="kernels whose titles contain this")
    options = parser.parse_args(argv)
    cells = [(k, name) for k in KERNELS if options.only in k.title for name in GENERATIONS]
    with ThreadPoolExecutor(options.jobs) as pool:
        rows = list(pool.map(lambda cell: measure(*cell), cells))
    text = page(rows, version("jax"), version("libtpu"))
    if options.write is None:
        print(text)
    else:
        options.write.write_text(text, encoding="utf-8")
    failed = sum(row.failed for row in rows)
    print(f"{len(rows) - failed} of {len(rows)} are within {MOST} of the kernel by hand")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
