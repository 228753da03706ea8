"""losses(model, ...) -> [loss of each step]: training with jax.jit and jax.value_and_grad."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp

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
    silu=jax.nn.silu,
    softmax=jax.nn.softmax,
    log_softmax=jax.nn.log_softmax,
    sorting=lambda x: jnp.argsort(x, stable=True),
    count=jnp.arange,
    where=jnp.where,
)

jax.tree_util.register_dataclass(Batch, ["tokens", "following", "places", "weights", "offsets"], [])


def losses(loss: Loss, batches: Sequence[Batch], steps: int, kernels: bool = True) -> list[float]:
    """Of each step, with our kernels or with dense masked operations of JAX."""
    layers = KERNELS if kernels else DENSE

    @jax.jit
    def step(p: Any, state: Any, batch: Batch, number: Any) -> Any:
        value, gradient = jax.value_and_grad(loss)(p, batch, OWN, layers)
        return value, *adam(p, gradient, state, number)

    p = {name: jnp.asarray(value) for name, value in parameters().items()}
    state, found = moments(p), []
    for number in range(steps):
        batch = jax.tree.map(jnp.asarray, batches[number % len(batches)])
        value, p, state = step(p, state, batch, jnp.float32(number + 1))
        found.append(float(value))
    return found


# ---------------------------------------------------------------- without kernels


def _attention(q: Any, k: Any, v: Any, offsets: Any) -> Any:
    sees = seen(OWN, offsets, q.shape[1])
    mixed = jax.nn.dot_product_attention(
        *(x.swapaxes(0, 1) for x in (q, k, v)), mask=sees | jnp.eye(len(sees), dtype=bool)
    )
    return jnp.where(sees.any(1)[:, None], mixed.swapaxes(0, 1), 0)


def _products(x: Any, w: Any, offsets: Any) -> Any:
    return jax.lax.ragged_dot(x, w, jnp.diff(offsets))


DENSE = Layers(_attention, partial(dense_hstu, OWN), _products)
