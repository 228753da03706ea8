"""MATCHES: our kernels at production shapes, who else computes the same, and the targets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

import tilelang as tile
from benchmarks import experts
from benchmarks.experts import Expert
from benchmarks.production import CASES, HEAD, Case, bf16, grouped, int32, skewed
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_mean import jagged_mean
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum
from examples.jagged.jagged_to_padded import jagged_to_padded
from examples.jagged.moe import moe
from examples.jagged.padded_to_jagged import padded_to_jagged
from examples.jagged.paged_attention import paged_attention

Operands = tuple[tuple[tuple[int, ...], str], ...]


@dataclass(frozen=True)
class Match:
    """A case, and others that compute the same.

    family  rows of the page that belong together
    most    the target: our time is to be at most that part of the best expert's, or of the limit
            where `limit`
    """

    family: str
    case: Case
    most: float
    experts: tuple[Expert, ...] = ()
    limit: bool = False


@dataclass(frozen=True)
class Pages:
    """Sequences in pages: 32 query heads share the keys and values of 8, D = 128."""

    lengths: np.ndarray
    page: int
    queries: int
    table: np.ndarray = field(init=False)
    offsets: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        count, most = len(self.lengths), -(-2048 // self.page)
        table = np.random.default_rng(0).permutation(count * most).astype(np.int32)
        object.__setattr__(self, "table", table.reshape(count, most))
        offsets = np.arange(count + 1, dtype=np.int32) * self.queries
        object.__setattr__(self, "offsets", offsets)

    def case(self) -> Case:
        """Our call."""
        count, most = self.table.shape
        pages = bf16(8, count * most, self.page, 128)
        arguments = (
            bf16(32, count * self.queries, 128),
            pages,
            pages,
            tile.spec((count, most), "int32"),
            int32(count),
            int32(count + 1),
        )
        values = {"table": self.table, "lengths": self.lengths, "offsets": self.offsets}
        return Case(paged_attention, arguments, values)

    def ragged(self, block: int, queries: int) -> Expert:
        """JAX's ragged paged attention; its pages hold keys and values in turns."""
        count, most = self.table.shape
        operands: Operands = (
            ((count * self.queries, 32, 128), "bfloat16"),
            ((count * most, self.page, 16, 128), "bfloat16"),
            ((count,), "int32"),
            ((count, most), "int32"),
            ((count + 1,), "int32"),
            ((1,), "int32"),
        )
        values = (self.lengths, self.table, self.offsets, np.array([count], np.int32))
        return Expert(
            f"ragged_paged_attention {block} pages, {queries} queries",
            experts.jax_ragged_paged,
            operands,
            {"block": block, "queries": queries},
            dict(enumerate(values, 2)),
        )

    def paged(self, pages: int) -> Expert:
        """JAX's paged attention."""
        count, most = self.table.shape
        pool = ((8, count * most, self.page, 128), "bfloat16")
        return Expert(
            f"paged_attention {pages} pages",
            experts.jax_paged,
            (
                ((count, 32, 128), "bfloat16"),
                pool,
                pool,
                ((count, most), "int32"),
                ((count,), "int32"),
            ),
            {"pages": pages},
            {3: self.table, 4: self.lengths},
        )


def operands(case: Case) -> Operands:
    """Shapes and dtypes of the arrays among a case's arguments."""
    arrays = [a for a in case.arguments if hasattr(a, "shape")]
    return tuple((tuple(a.shape), str(a.dtype)) for a in arrays)


def lengths(count: int) -> np.ndarray:
    """512 to 2048, each another one."""
    return (512 + np.arange(count) * 607 % 1537).astype(np.int32)


def products(name: str) -> Match:
    xla = Expert("XLA", experts.xla_matmul, operands(CASES[name]))
    return Match("matmul", CASES[name], 1.05, (xla,))


def rows(name: str) -> Match:
    call = getattr(experts, f"xla_{name.split()[0].removesuffix('_long')}")
    return Match("rows", CASES[name], 1.05, (Expert("XLA", call, operands(CASES[name])),), True)


def groups(case: Case, *tilings: tuple[int, int, int]) -> Match:
    given, values = operands(case), {2: case.values["offsets"]}
    tried = (
        Expert(f"megablox {m}x{k}x{n}", experts.megablox, given, {"tiling": (m, k, n)}, values)
        for m, k, n in tilings
    )
    return Match("grouped_gemm", case, 1.0, tuple(tried))


def flash(causal: bool) -> Match:
    case = CASES["flash_attention causal 4096" if causal else "flash_attention 4096"]
    given = operands(case)[:3]
    jax = Expert("flash 1024", experts.jax_flash, given, {"causal": causal, "block": 1024})
    splash = {"causal": causal, "block": 1024, "compute": 512}
    return Match(
        "flash",
        case,
        0.85,
        (jax, Expert("splash 1024", experts.splash, (*given, ((2,), "int32")), splash)),
    )


def jagged_attention() -> Match:
    case = CASES["jagged_attention causal 8192"]
    given, offsets = operands(case), case.values["offsets"]
    segments = {"causal": True, "block": 512, "compute": 512}
    known = {**segments, "ends": offsets[1:].tolist()}
    return Match(
        "jagged attention",
        case,
        1.05,
        (
            Expert("splash 512, segments", experts.splash, given, segments, {3: offsets}),
            Expert("splash 512, lengths compiled in", experts.splash_known, given[:3], known),
        ),
    )


def backward() -> Match:
    given = (((1, 2, 4096, 128), "bfloat16"),) * 4
    jax = Expert("flash 1024", experts.jax_flash_backward, given, {"block": 1024})
    return Match("backward", CASES["attention_backward 4096"], 1.05, (jax,))


def mixture(tokens: int, width: int, n: int, count: int, top: int) -> Match:
    """Every token goes to `top` experts, some of which are chosen more often."""
    rng = np.random.default_rng(0)
    scores = rng.standard_normal((tokens, count)) + np.linspace(0, 1, count)
    chosen = np.argsort(-scores, axis=1)[:, :top].reshape(-1)
    order = np.argsort(chosen, kind="stable")
    slot = np.argsort(order).reshape(tokens, top).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(chosen, minlength=count))])
    offsets, token = offsets.astype(np.int32), (order // top).astype(np.int32)
    shapes = (bf16(tokens, width), bf16(count, width, n), int32(tokens * top))
    arguments = (
        *shapes,
        tile.spec((tokens, top), "int32"),
        bf16(tokens, top),
        int32(count + 1),
    )
    case = Case(moe, arguments, {"offsets": offsets})
    places = {2: token, 3: slot, 5: offsets}
    tried = (
        Expert(
            f"gather by XLA, megablox {m}x{k}x{n}",
            experts.gathered_megablox,
            operands(case),
            {"tiling": (m, k, n)},
            places,
        )
        for m, k, n in ((128, width, n), (256, width, n))
    )
    return Match("moe", case, 0.9, tuple(tried))


def jagged(kernel: tile.Kernel, each: int, most: float, *extra: object) -> Match:
    """32,768 rows of 512 in groups of `each` rows in the mean."""
    count = 32768 // each
    arguments = (bf16(32768, 512), *extra, int32(count + 1))
    return Match("jagged rows", Case(kernel, arguments, skewed(32768, count)), most, (), True)


def padded(each: int, most: float, back: bool) -> Match:
    """Rows of groups to boxes that hold the longest group, or back."""
    count = 32768 // each
    offsets = skewed(32768, count)
    box = -(-int(np.diff(offsets["offsets"]).max()) // 16) * 16
    if back:
        case = Case(padded_to_jagged, (bf16(count, box, 512), int32(count + 1), 32768), offsets)
    else:
        case = Case(jagged_to_padded, (bf16(32768, 512), int32(count + 1), box), offsets)
    return Match("jagged rows", case, most, (), True)


def _jagged() -> dict[str, Match]:
    found: dict[str, Match] = {}
    weight = bf16(512)
    for each, light, heavy in ((256, 1.2, 1.6), (16, 2.0, 4.0)):
        size = f"groups of {each} rows"
        found[f"jagged_sum, {size}"] = jagged(jagged_sum, each, light)
        found[f"jagged_mean, {size}"] = jagged(jagged_mean, each, light)
        found[f"jagged_softmax, {size}"] = jagged(jagged_softmax, each, heavy)
        found[f"jagged_layer_norm, {size}"] = jagged(jagged_layer_norm, each, heavy, weight, weight)
        found[f"jagged_to_padded, {size}"] = padded(each, light, False)
        found[f"padded_to_jagged, {size}"] = padded(each, light, True)
    return found


DECODE_16, DECODE_64 = Pages(lengths(16), 128, 1), Pages(lengths(64), 128, 1)
PREFILL = Pages(np.full(4, 1024, np.int32), 128, 256)

MATCHES: Mapping[str, Match] = {
    "matmul 8192x4096x4096": products("matmul 8192x4096x4096"),
    "matmul 1024x8192x8192": products("matmul 1024x8192x8192"),
    "grouped_gemm 8 of 4096x2048": groups(
        CASES["grouped_gemm 8 of 4096x2048"], (512, 4096, 1024), (512, 1024, 1024)
    ),
    "grouped_gemm 64 of 7168x1024": groups(
        CASES["grouped_gemm 64 of 7168x1024"], (256, 1024, 1024), (128, 7168, 512)
    ),
    "grouped_gemm 256 of 2048x768": groups(
        CASES["grouped_gemm 256 of 2048x768"], (128, 2048, 768), (256, 1024, 768)
    ),
    "moe 1024 tokens, 16 experts, top 4": mixture(1024, 2048, 1024, 16, 4),
    "flash_attention causal 4096": flash(True),
    "flash_attention 4096": flash(False),
    "attention_backward 4096": backward(),
    "jagged_attention causal 8192": jagged_attention(),
    "paged_attention decode, 16 sequences": Match(
        "decode", DECODE_16.case(), 0.85, (DECODE_16.ragged(8, 32), DECODE_16.paged(8))
    ),
    "paged_attention decode, 64 sequences": Match(
        "decode", DECODE_64.case(), 0.85, (DECODE_64.ragged(8, 32), DECODE_64.paged(8))
    ),
    "paged_attention prefill, 4 of 256 queries": Match(
        "paged prefill", PREFILL.case(), 1.05, (PREFILL.ragged(8, 64),)
    ),
    "softmax 16384x4096": rows("softmax 16384x4096"),
    "layer_norm 16384x4096": rows("layer_norm 16384x4096"),
    "layer_norm_long 8192x16384": rows("layer_norm_long 8192x16384"),
    "cross_entropy 8192x32768": rows("cross_entropy 8192x32768"),
    **_jagged(),
}

__all__ = ["HEAD", "MATCHES", "Match", "grouped"]
