"""losses(model, ...) -> [loss of each step]: training with loss.backward()."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F

from .batches import Batch
from .models import (
    KERNELS,
    Layers,
    Loss,
    Own,
    adam,
    dense_hstu,
    moments,
    parameters,
    seen,
)

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


def _attention(q: Any, k: Any, v: Any, offsets: Any) -> Any:
    sees = seen(OWN, offsets, q.shape[1])
    mask = sees | torch.eye(len(sees), dtype=torch.bool)
    return torch.where(
        sees.any(1)[:, None], F.scaled_dot_product_attention(q, k, v, attn_mask=mask), 0
    )


def _products(x: Any, w: Any, offsets: Any) -> Any:
    ends = offsets.tolist()
    parts = [x[a:b] @ w[e] for e, (a, b) in enumerate(pairwise(ends))]
    return torch.cat([*parts, x.new_zeros(len(x) - ends[-1], w.shape[2])])


DENSE = Layers(_attention, partial(dense_hstu, OWN), _products)
