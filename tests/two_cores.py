"""The texts of a kernel whose step table two cores share, as one core would run them.

The interpreter runs the first core, then the second: what they do at once, in any order, must come
out the same when the second one goes first.  Each alone must leave untouched, and thus NaN, exactly
what the other one stores.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.checks import parts

PART, CORE = "= part(", "pl.program_id(0)"
CORES = "grid=(2,),"


def has_parts(text: str) -> bool:
    """Whether cores share a step table."""
    return PART in text


def other_order(text: str) -> str:
    """The second core goes first."""
    return _core_is(text, f"(1 - {CORE})")


def alone(text: str, core: int) -> str:
    """One core runs, and the other one never does."""
    assert CORES in text
    return _core_is(text, f"({CORE} + {core})").replace(CORES, "grid=(1,),")


def _core_is(text: str, core: str) -> str:
    """Another core than the number of the step says, where that picks a part."""
    lines = [line.replace(CORE, core) if PART in line else line for line in text.split("\n")]
    assert lines != text.split("\n")
    return "\n".join(lines)


def stored_once(texts: Sequence[Callable[..., Any]], arguments: Sequence[Any]) -> str:
    """What is wrong with what each core stores alone; "" where every number is stored by one."""
    each = [parts(call(*arguments)) for call in texts]
    for number, results in enumerate(zip(*each, strict=True)):
        count = sum(np.isfinite(np.asarray(result)).astype(np.int32) for result in results)
        if (count != 1).any():
            places = np.argwhere(count != 1)
            how = "both cores" if count[tuple(places[0])] else "no core"
            return f"result {number}: {places[0].tolist()} is stored by {how}"
    return ""


def idle(texts: Sequence[Callable[..., Any]], arguments: Sequence[Any]) -> str:
    """The core that stores nothing; "" if both store something."""
    for core, call in enumerate(texts):
        if not any(np.isfinite(np.asarray(result)).any() for result in parts(call(*arguments))):
            return f"core {core} stores nothing"
    return ""
