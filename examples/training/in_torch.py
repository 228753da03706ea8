"""losses(model, ...) -> [loss of each step]: training with loss.backward()."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from .batches import Batch
from .models import KERNELS, LONGEST, Layers, Loss, Own, adam, moments, parameters

OWN = Own(
    silu=F.silu,
    softmax=lambda x: torch.softmax(x, -1),
    log_softmax=lambda x: torch.log_softmax(x, -1),
    sorting=lambda x: torch.argsort(x, stable=True),
    count=torch.arange,
    where=torch.where,
)


def losses(loss: Loss, batches: Sequence[Batch], steps: int, kernels: bool = True) -> list[float]:
    """Of each step, with our kernels or with dense masked operations of torch."""
    layers = KERNELS if kernels else DENSE
    p = {name: torch.tensor(value, requires_grad=True) for name, value in parameters().items()}
    state, found = moments({name: value.detach() for name, value in p.items()}), []
    for number in range(steps):
        value = loss(p, _tensors(batches[number % len(batches)]), OWN, layers)
        value.backward()
        gradient = {name: x.grad for name, x in p.items() if x.grad is not None}
        with torch.no_grad():
            p, state = adam(p, gradient, state, number + 1)
            p = {name: x.detach().requires_grad_() for name, x in p.items()}
        found.append(value.item())
    return found


def _tensors(batch: Batch) -> Any:
    return SimpleNamespace(**{name: torch.from_numpy(x) for name, x in vars(batch).items()})


# ---------------------------------------------------------------- without kernels


def _seen(offsets: torch.Tensor, rows: int) -> torch.Tensor:
    """Which positions see which: [rows, rows]."""
    position = torch.arange(rows)
    owner = (position[:, None] >= offsets[None, 1:]).sum(1)
    alive = position < offsets[-1]
    same = (owner[:, None] == owner[None, :]) & alive[:, None] & alive[None, :]
    return same & (position[None, :] <= position[:, None])


def _attention(q: Any, k: Any, v: Any, offsets: Any) -> Any:
    seen = _seen(offsets, q.shape[1])
    mask = seen | torch.eye(len(seen), dtype=torch.bool)
    return torch.where(
        seen.any(1)[:, None], F.scaled_dot_product_attention(q, k, v, attn_mask=mask), 0
    )


def _hstu(q: Any, k: Any, v: Any, offsets: Any) -> Any:
    scores = F.silu(q @ k.swapaxes(1, 2) * q.shape[2] ** -0.5) / LONGEST
    return torch.where(_seen(offsets, q.shape[1]), scores, 0) @ v


def _products(x: Any, w: Any, offsets: Any) -> Any:
    ends = offsets.tolist()
    parts = [x[a:b] @ w[e] for e, (a, b) in enumerate(pairwise(ends))]
    return torch.cat([*parts, x.new_zeros(len(x) - ends[-1], w.shape[2])])


DENSE = Layers(_attention, _hstu, _products)
