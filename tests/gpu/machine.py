"""Where kernels for GPUs run: in Triton's interpreter with TRITON_INTERPRET=1, or else on the GPU.

Triton decides once, when it is imported, so that a process has one of them.  `MARKS` are those of
tests that run on either: `make triton` interprets them, `make gpu` is `pytest -m gpu` on a GPU.
`LACKS` says why neither is possible here.
"""

from __future__ import annotations

import importlib.util
import os

import pytest

INTERPRETS = os.environ.get("TRITON_INTERPRET") == "1"
MARKS = [] if INTERPRETS else [pytest.mark.gpu]


def _lacks() -> str:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed: pip install 'raggedtile[triton]'"
    if INTERPRETS:
        return ""
    import torch

    return "" if torch.cuda.is_available() else "needs a GPU, or TRITON_INTERPRET=1"


LACKS = _lacks()
if not LACKS and INTERPRETS:
    from tests.gpu.interpreter import TARGET, call, host, small
    from tests.gpu.memory import watched
elif not LACKS:
    from tests.gpu.device import TARGET, call, host, small, watched

__all__ = ["INTERPRETS", "LACKS", "MARKS", "TARGET", "call", "host", "small", "watched"]
