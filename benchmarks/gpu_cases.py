"""cases() -> Case...: examples on a GPU at production shapes, beside torch's own kernels."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F

import tilelang as tile
from examples.dense.flash_attention import flash_attention
from examples.dense.layer_norm import layer_norm
from examples.dense.matmul import matmul
from examples.dense.softmax import softmax
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.hstu_attention import hstu_attention
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_mean import jagged_mean
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum

DTYPE = torch.bfloat16


@dataclass(frozen=True)
class Family:
    """What the cases of a family are held against.

    least      the speed against `peer`, or the share of the bandwidth of a copy
    """

    least: float | None = None
    peer: str = ""
    bandwidth: bool = False


FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "dense GEMM": Family(0.9, "cuBLAS"),
        "grouped GEMM": Family(1.0, "grouped_mm"),
        "grouped GEMM, skewed": Family(1.2, "grouped_mm"),
        "jagged attention": Family(1.2, "varlen_attn"),
        "dense attention": Family(),
        "HSTU": Family(),
        "jagged rows": Family(0.8, bandwidth=True),
        "rows": Family(0.8, bandwidth=True),
    }
)


@dataclass(frozen=True)
class Case:
    """One call of ours, and what torch has for the same.

    exact   the result in float32 or better
    flops   of the products; 0 where there are none
    bytes   that must be read and written at least
    most    the largest relative error that is right
    """

    name: str
    family: str
    kernel: tile.Kernel
    arguments: tuple[Any, ...]
    exact: Callable[[], torch.Tensor]
    others: Mapping[str, Callable[[], torch.Tensor]] = field(default_factory=dict)
    flops: float = 0.0
    bytes: float = 0.0
    most: float = 1e-2

    def ours(self) -> torch.Tensor:
        return self.kernel(*self.arguments)


def cases() -> Iterator[Case]:
    """One after the other: what the last one holds is free before the next is made."""
    yield from _dense()
    yield from _grouped()
    yield from _attention()
    yield from _hstu()
    yield from _rows()


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(shape, device="cuda", dtype=torch.float32).to(DTYPE)


@dataclass(frozen=True)
class Groups:
    """Groups of rows: their lengths, as who calls the others' kernels knows them, and offsets."""

    lengths: tuple[int, ...]
    offsets: torch.Tensor

    @property
    def longest(self) -> int:
        return max(self.lengths)


def groups_of(lengths: Sequence[int]) -> Groups:
    """Groups of these lengths, one after the other."""
    ends = itertools.accumulate(lengths, initial=0)
    return Groups(tuple(lengths), torch.tensor(list(ends), dtype=torch.int32, device="cuda"))


def even(rows: int, groups: int) -> Groups:
    return groups_of([rows // groups] * groups)


def skewed(rows: int, groups: int) -> Groups:
    """Groups whose lengths differ up to twenty times, as in benchmarks/production.py."""
    weights = 0.05 + torch.sin(torch.arange(groups) * 2.399 + 1).abs() ** 2
    last = torch.floor(weights.cumsum(0) / weights.sum() * rows).int()
    last[-1] = rows
    return groups_of(torch.diff(last, prepend=torch.zeros(1, dtype=torch.int32)).tolist())


def size(*tensors: torch.Tensor) -> int:
    return sum(t.numel() * t.element_size() for t in tensors)


# ---------------------------------------------------------------- products


def _dense() -> Iterator[Case]:
    for m, k, n in ((8192, 8192, 8192), (8192, 4096, 4096), (1024, 8192, 8192), (16, 4096, 4096)):
        x, w = normal(m, k), normal(k, n)
        yield Case(
            f"matmul {m}x{k}x{n}",
            "dense GEMM",
            matmul,
            (x, w),
            functools.partial(_exact_product, x, w),
            {"cuBLAS": lambda x=x, w=w: x @ w},
            flops=2.0 * m * k * n,
            bytes=size(x, w) + m * n * 2,
        )


def _exact_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x.float() @ w.float()


def _grouped() -> Iterator[Case]:
    for rows, k, groups, n in (
        (8192, 4096, 8, 2048),
        (16384, 2048, 128, 768),
        (32768, 1024, 64, 1024),
    ):
        x, w = normal(rows, k), normal(groups, k, n)
        for word, cut in (("", even(rows, groups)), (", skewed", skewed(rows, groups))):
            yield Case(
                f"grouped_gemm {groups} of {k}x{n}, {rows} rows{word}",
                f"grouped GEMM{word}",
                grouped_gemm,
                (x, w, cut.offsets),
                functools.partial(_exact_groups, x, w, cut),
                {"grouped_mm": lambda x=x, w=w, o=cut.offsets: F.grouped_mm(x, w, offs=o[1:])},
                flops=2.0 * rows * k * n,
                bytes=size(x, w) + rows * n * 2,
            )


def _exact_groups(x: torch.Tensor, w: torch.Tensor, cut: Groups) -> torch.Tensor:
    parts = zip(x.split(cut.lengths), w, strict=True)
    return torch.cat([_exact_product(*one) for one in parts])


# ---------------------------------------------------------------- attention


def _attention() -> Iterator[Case]:
    heads, rows, groups = 16, 32768, 16
    for width in (128, 64):
        q, k, v = (normal(rows, heads, width) for _ in range(3))
        ours = tuple(t.transpose(0, 1).contiguous() for t in (q, k, v))
        for word, cut in (("", even(rows, groups)), (", skewed", skewed(rows, groups))):
            for causal in (False, True):
                yield Case(
                    f"jagged_attention D={width}{' causal' if causal else ''}{word}",
                    "jagged attention",
                    jagged_attention,
                    (*ours, cut.offsets, causal),
                    functools.partial(_exact_attention, *ours, cut, causal),
                    {
                        "varlen_attn": functools.partial(_varlen, q, k, v, cut, causal),
                        "nested SDPA": functools.partial(_nested, q, k, v, cut, causal),
                    },
                    flops=_score_count(cut, causal) * heads * width * 4,
                    bytes=size(q, k, v, q),
                )
    dense = tuple(normal(4, 16, 4096, 128) for _ in range(3))
    for causal in (False, True):
        yield Case(
            f"flash_attention 4x16x4096x128{' causal' if causal else ''}",
            "dense attention",
            flash_attention,
            (*dense, causal),
            functools.partial(_exact_dense, *dense, causal),
            {"SDPA": lambda c=causal: F.scaled_dot_product_attention(*dense, is_causal=c)},
            flops=4 * 16 * 4096 * 4096 * 128 * 4 / (2 if causal else 1),
            bytes=4 * size(dense[0]),
        )


def _score_count(cut: Groups, causal: bool) -> float:
    return float(sum(n * (n + 1) / 2 if causal else n * n for n in cut.lengths))


def _varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cut: Groups, causal: bool
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    ends, longest = cut.offsets, cut.longest
    how: dict[str, Any] = {"window_size": (-1, 0) if causal else (-1, -1)}
    if _asks_for_causal():
        how = {"is_causal": causal}
    return varlen_attn(q, k, v, ends, ends, longest, longest, **how).transpose(0, 1)


@functools.cache
def _asks_for_causal() -> bool:
    """Whether this torch's varlen_attn is told so by name; later ones take a window."""
    from torch.nn.attention.varlen import varlen_attn

    return "is_causal" in inspect.signature(varlen_attn).parameters


def _nested(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cut: Groups, causal: bool
) -> torch.Tensor:
    made = [
        torch.nested.nested_tensor_from_jagged(
            t, cut.offsets.long(), min_seqlen=1, max_seqlen=cut.longest
        ).transpose(1, 2)
        for t in (q, k, v)
    ]
    found = F.scaled_dot_product_attention(*made, is_causal=causal)
    return found.transpose(1, 2).values().transpose(0, 1)


def _exact_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cut: Groups, causal: bool
) -> torch.Tensor:
    parts = zip(*(t.split(cut.lengths, 1) for t in (q, k, v)), strict=True)
    return torch.cat([_exact_dense(*one, causal) for one in parts], 1)


def _exact_dense(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """Softmax of float32 scores, a head at a time."""
    if q.dim() > 2:
        heads = zip(q, k, v, strict=True)
        return torch.stack([_exact_dense(*one, causal) for one in heads])
    scores = q.float() @ k.float().T * q.shape[-1] ** -0.5
    if causal:
        scores = scores.masked_fill(torch.ones_like(scores).triu(1).bool(), float("-inf"))
    return scores.softmax(-1) @ v.float()


def _hstu() -> Iterator[Case]:
    heads, rows, groups, width = 4, 32768, 32, 128
    q, k, v = (normal(heads, rows, width) for _ in range(3))
    cut = skewed(rows, groups)
    yield Case(
        f"hstu_attention D={width} causal, skewed",
        "HSTU",
        hstu_attention,
        (q, k, v, cut.offsets, cut.longest),
        lambda: _hstu_of_torch(q.float(), k.float(), v.float(), cut),
        {"torch, sequence by sequence": functools.partial(_hstu_of_torch, q, k, v, cut)},
        flops=_score_count(cut, True) * heads * width * 4,
        bytes=size(q, k, v, q),
    )


def _hstu_of_torch(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cut: Groups) -> torch.Tensor:
    """As users write it without a kernel: a product, silu, a mask, a product, for each sequence."""
    made = []
    for one in zip(*(t.split(cut.lengths, 1) for t in (q, k, v)), strict=True):
        weights = F.silu(one[0] @ one[1].transpose(1, 2) * q.shape[-1] ** -0.5) / cut.longest
        made.append(weights.tril() @ one[2])
    return torch.cat(made, 1)


# ---------------------------------------------------------------- rows


def _rows() -> Iterator[Case]:
    rows, width = 262144, 512
    x, weight, bias = normal(rows, width), normal(width), normal(width)
    for groups in (256, 16384):
        for word, cut in (("", even(rows, groups)), (", skewed", skewed(rows, groups))):
            name = f"{groups} groups of {rows}x{width}{word}"
            offsets, lengths = cut.offsets, torch.tensor(cut.lengths, device="cuda")
            for kernel, how in ((jagged_sum, "sum"), (jagged_mean, "mean")):
                yield Case(
                    f"{kernel.__name__} {name}",
                    "jagged rows",
                    kernel,
                    (x, offsets),
                    functools.partial(_segments, x.float(), lengths, how),
                    {"segment_reduce": functools.partial(_segments, x, lengths, how)},
                    bytes=size(x) + groups * width * 2,
                )
            yield Case(
                f"jagged_softmax {name}",
                "jagged rows",
                jagged_softmax,
                (x, offsets),
                functools.partial(_exact_softmax, x, lengths),
                bytes=2 * size(x),
            )
            yield Case(
                f"jagged_layer_norm {name}",
                "jagged rows",
                jagged_layer_norm,
                (x, weight, bias, offsets),
                functools.partial(_exact_layer_norm, x, weight, bias, lengths),
                bytes=2 * size(x),
            )
    x, weight, bias = normal(32768, 4096), normal(4096), normal(4096)
    yield Case(
        "softmax 32768x4096",
        "rows",
        softmax,
        (x,),
        lambda: x.float().softmax(-1),
        {"torch": lambda: x.softmax(-1)},
        bytes=2 * size(x),
    )
    yield Case(
        "layer_norm 32768x4096",
        "rows",
        layer_norm,
        (x, weight, bias),
        lambda: F.layer_norm(x.float(), (4096,), weight.float(), bias.float()),
        {"torch": lambda: F.layer_norm(x, (4096,), weight, bias)},
        bytes=2 * size(x),
    )


def _segments(x: torch.Tensor, lengths: torch.Tensor, how: str) -> torch.Tensor:
    return torch.segment_reduce(x, how, lengths=lengths, initial=0)


def _owners(lengths: torch.Tensor) -> torch.Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths), device="cuda"), lengths)


def _exact_softmax(x: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    own, rows = _owners(lengths), x.float()
    weights = (rows - torch.segment_reduce(rows, "max", lengths=lengths, initial=-1e30)[own]).exp()
    total = torch.segment_reduce(weights, "sum", lengths=lengths, initial=0)
    return weights / total[own]


def _exact_layer_norm(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, lengths: torch.Tensor
) -> torch.Tensor:
    own, rows = _owners(lengths), x.double()
    mean = torch.segment_reduce(rows.mean(1), "mean", lengths=lengths, initial=0)[own][:, None]
    squares = ((rows - mean) ** 2).mean(1)
    variance = torch.segment_reduce(squares, "mean", lengths=lengths, initial=0)[own][:, None]
    return (rows - mean) * (variance + 1e-5).rsqrt() * weight.double() + bias.double()


# ---------------------------------------------------------------- calls


def small() -> tuple[tile.Kernel, tuple[torch.Tensor, ...]]:
    """A kernel that the GPU ends before the next call arrives."""
    return grouped_gemm, (
        normal(256, 128),
        normal(4, 128, 64),
        groups_of([10, 90, 100, 56]).offsets,
    )


def bare_launch(kernel: tile.Kernel, arguments: Sequence[torch.Tensor]) -> Callable[[], Any]:
    """Triton's own launcher of the compiled program, with pointers that are known."""
    lowered = kernel.lower(*arguments)
    (launch,) = lowered.plan.launches
    made = torch.zeros(arguments[0].shape[0], arguments[1].shape[2], dtype=DTYPE, device="cuda")
    named = dict(zip([t.name for t in lowered.plan.ir.tensors], (*arguments, made), strict=True))
    tensors = [named[name] for name in launch.arguments]
    function = lowered.source.load().__globals__[launch.name]
    options = {"num_warps": launch.warps, "num_stages": launch.stages}
    from triton import set_allocator

    set_allocator(lambda size, *_: torch.empty(size, dtype=torch.int8, device="cuda"))
    compiled = function.warmup(*tensors, grid=(launch.programs,), **options)
    run = compiled[(launch.programs, 1, 1)]
    return lambda: run(*tensors)
