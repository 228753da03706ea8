"""Kernels with a registered backward, and what it must give, in NumPy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import tilelang as tile
import tilelang.language as hl

OFFSETS = np.array([0, 5, 5, 16], np.int32)
ROWS, COLUMNS = 20, 24


def product(x, w, offsets, scale: hl.constexpr = 2.0):
    """y[r] = scale * x[r] * w[r] and total[r] = sum of y[r], for rows in groups; others are 0."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    total = hl.zeros([x.shape[0]], dtype=hl.float32)
    for g in hl.grid(offsets.shape[0] - 1):
        for tm in hl.tile(offsets[g], offsets[g + 1]):
            made = x[tm, :].to(hl.float32) * w[tm, :] * scale
            y[tm, :] = made.to(y.dtype)
            total[tm] = made.sum(-1)
    return y, total


@dataclass(frozen=True)
class Product:
    """A fresh kernel with a registered backward; `asked` lists the gradients that were made."""

    kernel: tile.Kernel
    asked: list[str] = field(default_factory=list)


def registered(forward: Callable[..., Any] | None = None) -> Product:
    """The product with the backward that its author would write."""
    made = Product(tile.kernel(product))
    times = tile.kernel(product)

    def backward(saved, dy, dtotal):
        x, w, offsets, scale = (saved[n] for n in ("x", "w", "offsets", "scale"))
        g = dy + dtotal[:, None]

        def of_x():
            made.asked.append("x")
            return times(g, w, offsets, scale)[0]

        def of_w():
            made.asked.append("w")
            return times(g, x, offsets, scale)[0]

        return {"x": of_x, "w": of_w}

    made.kernel.def_vjp(backward=backward, forward=forward)
    return made


@dataclass(frozen=True)
class Case:
    """Arguments, cotangents and the gradients that they must give."""

    x: np.ndarray
    w: np.ndarray
    dy: np.ndarray
    dtotal: np.ndarray

    def gradients(self, scale: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
        inside = np.zeros((ROWS, 1), np.float32)
        inside[OFFSETS[0] : OFFSETS[-1]] = scale
        g = (self.dy + self.dtotal[:, None]) * inside
        return g * self.w, g * self.x


def case(seed: int = 0) -> Case:
    rng = np.random.default_rng(seed)
    x, w, dy = rng.standard_normal((3, ROWS, COLUMNS), np.float32)
    return Case(x, w, dy, rng.standard_normal(ROWS).astype(np.float32))


CONFIG = tile.Config({"t": 16})


def twice(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for t in hl.tile(x.shape[0]):
        y[t] = x[t] * 2.0
    return y


def configs_of(monkeypatch):
    """The config that each kernel is planned with from now on, by its name."""
    used, kept = {}, tile.Kernel._kept

    def recorded(self, parsed, config, target):
        used[parsed.ir.name] = config
        return kept(self, parsed, config, target)

    monkeypatch.setattr(tile.Kernel, "_kept", recorded)
    return used
