"""How torch.compile sees a kernel: one node of the graph, which AOT Autograd traces into.

Dynamo reads `Kernel.__call__` as far as `in_graph`, which it runs and takes for a constant; from
there on it records one call of the kernel's `entry`, and looks into nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from .signature import Signature, bind


def in_graph() -> bool:
    """Whether Dynamo asks, or a call runs while it traces; torch is never imported for it."""
    if "torch._dynamo" not in sys.modules:
        return False
    return sys.modules["torch"]._guards.TracingContext.try_get() is not None


def mark_constant(function: Any) -> None:
    """Dynamo runs the function and takes its result for a constant: `assume_constant_result`."""
    function._dynamo_marked_constant = True


mark_constant(in_graph)


def entry_of(signature: Signature, called: Callable[[tuple, Any, Any], Any]) -> Callable[..., Any]:
    """What Dynamo records for a call of a kernel: one node, whose inside it does not look into."""

    def entry(*args: Any, config: Any = None, target: Any = None, **kwargs: Any) -> Any:
        return called(bind(signature, args, kwargs), config, target)

    entry.__name__ = entry.__qualname__ = signature.kernel
    return sys.modules["torch._dynamo"].allow_in_graph(entry)


def keep_out(function: Any) -> None:
    """Dynamo compiles no frame of that function, nor of what it calls.

    torch is never imported for it: to be called again when it may have been.
    """
    torch = sys.modules.get("torch")
    frames = getattr(getattr(torch, "_C", None), "_dynamo", None)
    if frames is not None:
        skip = frames.eval_frame._FrameAction.SKIP
        strategy = frames.eval_frame._FrameExecStrategy(skip, skip)
        frames.eval_frame.set_code_exec_strategy(function.__code__, strategy)
