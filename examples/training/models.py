"""transformer, hstu, experts: the loss of three models, written once for JAX and for torch.

`own` is everything that the two frameworks write in different ways; `layers` are the ragged parts,
which are kernels or what the framework has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.hstu_attention import hstu_attention
from examples.jagged.jagged_attention import jagged_attention

from .batches import VOCABULARY

WIDTH, HIDDEN, HEADS, EXPERTS = 64, 128, 2, 8
LONGEST = 96  # bytes of a sequence

Array = Any
Parameters = Mapping[str, Array]
Attention = Callable[[Array, Array, Array, Array], Array]  # q, k, v [H, T, D], offsets


@dataclass(frozen=True)
class Layers:
    """The ragged parts of the models.

    attention  causal, within each sequence
    hstu       the same with silu in the place of softmax
    products   x [T, K], w [E, K, N], offsets [E + 1]: the rows of each expert times its weights
    """

    attention: Attention
    hstu: Attention
    products: Callable[[Array, Array, Array], Array]


KERNELS = Layers(
    attention=lambda q, k, v, offsets: jagged_attention(q, k, v, offsets, True, LONGEST),
    hstu=lambda q, k, v, offsets: hstu_attention(q, k, v, offsets, LONGEST),
    products=grouped_gemm,
)


@dataclass(frozen=True)
class Own:
    """What JAX and torch call differently; along the last dimension where there is one."""

    silu: Callable[[Array], Array]
    softmax: Callable[[Array], Array]
    log_softmax: Callable[[Array], Array]
    sorting: Callable[[Array], Array]  # a stable argsort
    count: Callable[[int], Array]  # 0, 1, ... n - 1
    where: Callable[[Array, Array, Any], Array]


Loss = Callable[[Parameters, Any, Own, Layers], Array]


def seen(own: Own, offsets: Array, rows: int) -> Array:
    """Which positions see which, [rows, rows]: what a dense attention masks by."""
    position = own.count(rows)
    owner = (position[:, None] >= offsets[None, 1:]).sum(1)
    alive = position < offsets[-1]
    same = (owner[:, None] == owner[None, :]) & alive[:, None] & alive[None, :]
    return same & (position[None, :] <= position[:, None])


def dense_hstu(own: Own, q: Array, k: Array, v: Array, offsets: Array) -> Array:
    """The layer `hstu` without a kernel."""
    weights = own.silu(q @ k.swapaxes(1, 2) * q.shape[2] ** -0.5) / LONGEST
    return own.where(seen(own, offsets, q.shape[1]), weights, 0) @ v


def parameters(seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights for every model: what one of them does not use has no gradient."""
    rng = np.random.default_rng(seed)
    shapes = {
        "embedding": (VOCABULARY, WIDTH), "places": (LONGEST, WIDTH),
        "q": (WIDTH, WIDTH), "k": (WIDTH, WIDTH), "v": (WIDTH, WIDTH), "u": (WIDTH, WIDTH),
        "out": (WIDTH, WIDTH), "up": (WIDTH, HIDDEN), "down": (HIDDEN, WIDTH),
        "router": (WIDTH, EXPERTS),
        "ups": (EXPERTS, WIDTH, HIDDEN), "downs": (EXPERTS, HIDDEN, WIDTH),
        "logits": (WIDTH, VOCABULARY),
    }  # fmt: skip
    return {
        name: (rng.standard_normal(shape) * shape[-2] ** -0.5).astype(np.float32)
        for name, shape in shapes.items()
    }


def transformer(p: Parameters, batch: Any, own: Own, layers: Layers) -> Array:
    """A block of causal attention and a layer of silu, around each of them a residual."""
    x = p["embedding"][batch.tokens] + p["places"][batch.places]
    h = _normal(x)
    mixed = layers.attention(*(_heads(h @ p[name]) for name in "qkv"), batch.offsets)
    x = x + _rows(mixed) @ p["out"]
    x = x + own.silu(_normal(x) @ p["up"]) @ p["down"]
    return _cross_entropy(p, x, batch, own)


def hstu(p: Parameters, batch: Any, own: Own, layers: Layers) -> Array:
    """A block of a sequential recommender: silu attention, gated by the positions themselves."""
    x = p["embedding"][batch.tokens] + p["places"][batch.places]
    h = _normal(x)
    q, k, v, u = (own.silu(h @ p[name]) for name in "qkvu")
    mixed = _rows(layers.hstu(_heads(q), _heads(k), _heads(v), batch.offsets))
    x = x + (_normal(mixed) * u) @ p["out"]
    return _cross_entropy(p, x, batch, own)


def experts(p: Parameters, batch: Any, own: Own, layers: Layers) -> Array:
    """A layer of experts: every row goes to the one that its router likes best."""
    x = p["embedding"][batch.tokens] + p["places"][batch.places]
    h = _normal(x)
    scores = own.softmax(h @ p["router"])
    rows = own.count(len(x))
    best = own.where(batch.weights > 0, scores.argmax(-1), EXPERTS)  # rows of no sequence: nobody
    order = own.sorting(best)
    offsets = (best[:, None] < own.count(EXPERTS + 1)[None, :]).sum(0)
    hidden = own.silu(layers.products(h[order], p["ups"], offsets))
    made = layers.products(hidden, p["downs"], offsets)[own.sorting(order)]
    chosen = own.where(best < EXPERTS, best, 0)
    x = x + made * scores[rows, chosen][:, None]
    return _cross_entropy(p, x, batch, own)


MODELS: dict[str, Loss] = {"transformer": transformer, "hstu": hstu, "experts": experts}


def _normal(x: Array) -> Array:
    return x * ((x * x).mean(-1) + 1e-6)[:, None] ** -0.5


def _heads(x: Array) -> Array:
    """[T, H * D] -> [H, T, D]"""
    return x.reshape(len(x), HEADS, -1).swapaxes(0, 1)


def _rows(x: Array) -> Array:
    """[H, T, D] -> [T, H * D]"""
    return x.swapaxes(0, 1).reshape(x.shape[1], -1)


def _cross_entropy(p: Parameters, x: Array, batch: Any, own: Own) -> Array:
    """Nats per byte."""
    found = own.log_softmax(_normal(x) @ p["logits"])[own.count(len(x)), batch.following]
    return -(found * batch.weights).sum() / batch.weights.sum()


def adam(
    p: Parameters, gradient: Parameters, state: Parameters, step: int, rate: float = 3e-3
) -> tuple[dict[str, Array], dict[str, Array]]:
    """One step of Adam (Kingma and Ba, 2015): the new parameters, and both moments by name."""
    moved, kept = {}, {}
    for name, g in gradient.items():
        first = 0.9 * state[f"first {name}"] + 0.1 * g
        second = 0.99 * state[f"second {name}"] + 0.01 * g * g
        spread = (second / (1 - 0.99**step)) ** 0.5 + 1e-8
        moved[name] = p[name] - rate * (first / (1 - 0.9**step)) / spread
        kept |= {f"first {name}": first, f"second {name}": second}
    return {**p, **moved}, kept


def moments(p: Parameters) -> dict[str, Array]:
    """The state that Adam begins with."""
    return {
        f"{which} {name}": 0 * value for which in ("first", "second") for name, value in p.items()
    }
