"""keep_out(function): torch.compile breaks its graph at a call and runs it as it is.

Without that, Dynamo traces into the function, and through it into JAX.
"""

from __future__ import annotations

import sys
from typing import Any


def keep_out(function: Any) -> None:
    """What `torch.compiler.disable` says, without its wrapper, which would cost at every call.

    torch is never imported for it: to be called again when it may have been.
    """
    function._torchdynamo_disable = True  # not inlined into a caller's graph
    function._torchdynamo_disable_msg = "tilelang kernels are no graphs of torch operations"
    torch = sys.modules.get("torch")
    frames = getattr(getattr(torch, "_C", None), "_dynamo", None)
    if frames is not None:  # nor compiled as a frame of its own, with all that it calls
        skip = frames.eval_frame._FrameAction.SKIP
        strategy = frames.eval_frame._FrameExecStrategy(skip, skip)
        frames.eval_frame.set_code_exec_strategy(function.__code__, strategy)
