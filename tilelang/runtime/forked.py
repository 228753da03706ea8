"""Whether this process was forked from one in which JAX ran: a child has none of its threads."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from ..errors import CallError
from .jax_compat import has_begun

_PARENT_HAD_BEGUN = False


def _in_child() -> None:
    global _PARENT_HAD_BEGUN
    _PARENT_HAD_BEGUN = has_begun()


os.register_at_fork(after_in_child=_in_child)


def where_threads_are(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """The same; CallError in a child that would wait for ever for threads of its parent."""

    def call(*arrays: Any) -> Any:
        if _PARENT_HAD_BEGUN:
            raise CallError(
                f"{name} is called in a process that was forked after JAX had begun: "
                "the threads that run programs stayed in the parent",
                hint='start workers with multiprocessing\'s "spawn" (DataLoader(..., '
                'multiprocessing_context="spawn")), or call kernels in the parent',
            )
        return run(*arrays)

    return call
