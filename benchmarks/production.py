"""CASES: examples at production shapes, with the offsets of skewed groups; shapes without data."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import tilelang as tile
from examples.dense.attention_backward import attention_backward
from examples.dense.cross_entropy import cross_entropy
from examples.dense.flash_attention import flash_attention
from examples.dense.layer_norm import layer_norm, layer_norm_long
from examples.dense.matmul import matmul
from examples.dense.rms_norm import rms_norm
from examples.dense.softmax import softmax
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.hstu_attention import hstu_attention
from examples.jagged.jagged_attention import jagged_attention
from examples.jagged.jagged_layer_norm import jagged_layer_norm
from examples.jagged.jagged_softmax import jagged_softmax
from examples.jagged.jagged_sum import jagged_sum

SCHEDULES = Path(__file__).with_name("schedules.json")


@dataclass(frozen=True)
class Case:
    """A call: shapes, numbers, and the values of integers that steer it."""

    kernel: tile.Kernel
    arguments: tuple[Any, ...]
    values: Mapping[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Schedule:
    """What libtpu made of a case once: microseconds of each of our kernels, without its copies.

    us  of the whole call, as `Kernel.predict` gives it
    """

    case: str
    chip: str
    blocks: Mapping[str, int]
    us: float
    compute: tuple[float, ...]


def schedules() -> list[Schedule]:
    """All that were kept: libtpu 0.0.42.1, most of them before columns filled all lanes."""
    found = json.loads(SCHEDULES.read_text(encoding="utf-8"))
    return [Schedule(r[0], r[1], r[2], r[3], tuple(r[4])) for r in found]


def bf16(*shape: int) -> Any:
    return tile.spec(shape, "bfloat16")


def int32(length: int) -> Any:
    return tile.spec((length,), "int32")


def skewed(rows: int, groups: int) -> dict[str, np.ndarray]:
    """Offsets of groups whose lengths differ up to twenty times."""
    weights = 0.05 + np.abs(np.sin(np.arange(groups) * 2.399 + 1)) ** 2
    ends = np.floor(np.cumsum(weights) / weights.sum() * rows)
    return {"offsets": np.concatenate([[0], ends]).astype(np.int32)}


def grouped(rows: int, width: int, groups: int, columns: int) -> Case:
    arguments = (bf16(rows, width), bf16(groups, width, columns), int32(groups + 1))
    return Case(grouped_gemm, arguments, skewed(rows, groups))


HEAD = bf16(1, 2, 4096, 128)
LSE = tile.spec((1, 2, 4096), "float32")
TOKENS, HEADS = bf16(2, 8192, 128), (bf16(2, 8192, 128),) * 3
ROWS, WEIGHT = bf16(32768, 512), bf16(512)

CASES: Mapping[str, Case] = {
    "matmul 8192x4096x4096": Case(matmul, (bf16(8192, 4096), bf16(4096, 4096))),
    "matmul 1024x8192x8192": Case(matmul, (bf16(1024, 8192), bf16(8192, 8192))),
    "matmul 16x4096x4096": Case(matmul, (bf16(16, 4096), bf16(4096, 4096))),
    "grouped_gemm 8 of 4096x2048": grouped(8192, 4096, 8, 2048),
    "grouped_gemm 64 of 7168x1024": grouped(8192, 7168, 64, 1024),
    "grouped_gemm 256 of 2048x768": grouped(8192, 2048, 256, 768),
    "flash_attention causal 4096": Case(flash_attention, (HEAD, HEAD, HEAD, True)),
    "flash_attention 4096": Case(flash_attention, (HEAD, HEAD, HEAD, False)),
    "jagged_attention causal 8192": Case(
        jagged_attention, (*HEADS, int32(17), True), skewed(8192, 16)
    ),
    "hstu_attention 8192": Case(hstu_attention, (*HEADS, int32(17), 2048), skewed(8192, 16)),
    "attention_backward 4096": Case(attention_backward, (HEAD, HEAD, HEAD, HEAD, LSE, HEAD)),
    "layer_norm_long 8192x16384": Case(
        layer_norm_long, (bf16(8192, 16384), bf16(16384), bf16(16384))
    ),
    "layer_norm 16384x4096": Case(layer_norm, (bf16(16384, 4096), bf16(4096), bf16(4096))),
    "softmax 16384x4096": Case(softmax, (bf16(16384, 4096),)),
    "rms_norm 262144x128": Case(rms_norm, (bf16(262144, 128), bf16(128))),
    "softmax 131072x256": Case(softmax, (bf16(131072, 256),)),
    "layer_norm 65536x512": Case(layer_norm, (bf16(65536, 512), bf16(512), bf16(512))),
    "cross_entropy 8192x32768": Case(cross_entropy, (bf16(8192, 32768), int32(8192))),
    "jagged_sum 32768x512": Case(jagged_sum, (ROWS, int32(129)), skewed(32768, 128)),
    "jagged_softmax 32768x512": Case(jagged_softmax, (ROWS, int32(129)), skewed(32768, 128)),
    "jagged_layer_norm 32768x512": Case(
        jagged_layer_norm, (ROWS, WEIGHT, WEIGHT, int32(129)), skewed(32768, 128)
    ),
}
