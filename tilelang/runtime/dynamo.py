"""How torch.compile sees a kernel: one node of the graph, which AOT Autograd traces into.

Dynamo reads `Kernel.__call__` as far as `in_graph`, which it runs and takes for a constant; from
there on it records one call of the kernel's `entry`, and looks into nothing else.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from operator import index
from types import NoneType
from typing import Any

import numpy as np

from ..schedule.config import Config
from .signature import Signature, bind

Called = Callable[[tuple, Any, Any], Any]
CHOICES = tuple(field.name for field in fields(Config))
PLAIN = (bool, int, float, complex, str, bytes, NoneType, np.ndarray, np.generic)


def in_graph() -> bool:
    """Whether Dynamo asks, or a call runs while it traces; torch is never imported for it."""
    if "torch._dynamo" not in sys.modules:
        return False
    return sys.modules["torch"]._guards.TracingContext.try_get() is not None


def mark_constant(function: Any) -> None:
    """Dynamo runs the function and takes its result for a constant: `assume_constant_result`."""
    function._dynamo_marked_constant = True


mark_constant(in_graph)


class Entries:
    """What Dynamo records for calls of a kernel: one node each, whose inside it does not look into.

    A node takes tensors and plain values.  Functions, and the object that a kernel is a method of,
    are held by the entry: there is one for each combination of them, and what the kernel reads of
    them is read again at every call.
    """

    def __init__(self, signature: Signature, called: Called) -> None:
        self._signature, self._called = signature, called
        self._held: list[tuple[Config | None, dict[int | str, Any]]] = []

    def holding(
        self, choices: Sequence[Any] | None, places: Sequence[int | str], *values: Any
    ) -> str:
        """The attribute that is the entry for calls with these values, by position or keyword.

        Dynamo runs this, and takes the name for a constant: functions that are made it cannot call.
        """
        config = None if choices is None else Config(**dict(zip(CHOICES, choices, strict=True)))
        held = dict(zip(places, values, strict=True))
        for number, (chosen, other) in enumerate(self._held):
            same = other.keys() == held.keys() and all(other[p] is held[p] for p in held)
            if chosen == config and same:
                return f"entry_{number}"
        name = f"entry_{len(self._held)}"
        setattr(self, name, self._entry(config, held))
        self._held.append((config, held))
        return name

    mark_constant(holding)

    def _entry(self, chosen: Config | None, held: Mapping[int | str, Any]) -> Callable[..., Any]:
        signature, called = self._signature, self._called
        by_name = {p: v for p, v in held.items() if isinstance(p, str)}
        by_place = [(p, v) for p, v in held.items() if isinstance(p, int)]  # first ones first

        def entry(*args: Any, config: Any = None, target: Any = None, **kwargs: Any) -> Any:
            given = list(args)
            for place, value in by_place:
                given.insert(place, value)
            values = bind(signature, tuple(given), kwargs | by_name)
            return called(values, chosen or config, target)

        entry.__name__ = entry.__qualname__ = signature.kernel
        return sys.modules["torch._dynamo"].allow_in_graph(entry)


def traced(nodes: Entries, args: tuple, kwargs: dict[str, Any], config: Any, target: Any) -> Any:
    """A call of a kernel as Dynamo traces it."""
    choices = None
    if isinstance(config, Config):  # one that is made in the function has values, and no object
        choices, config = [_fixed(getattr(config, name)) for name in CHOICES], None
    places = [place for place, value in enumerate(args) if not _enters(value)]
    names = [name for name, value in kwargs.items() if not _enters(value)]
    held = [args[place] for place in places] + [kwargs[name] for name in names]
    for value in held:
        _guard(value)
    entry = getattr(nodes, nodes.holding(choices, (*places, *names), *held))
    given = [value for place, value in enumerate(args) if place not in places]
    named = {name: value for name, value in kwargs.items() if name not in names}
    return entry(*given, config=config, target=target, **named)


def _fixed(value: Any) -> Any:
    """Numbers that Dynamo has for symbols, as they are now."""
    if isinstance(value, tuple):
        return tuple([_fixed(each) for each in value])
    return index(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _enters(value: Any) -> bool:
    """Whether a node of a graph takes such an argument."""
    import torch

    if isinstance(value, (tuple, list)):
        return all(_enters(each) for each in value)
    return isinstance(value, (torch.Tensor, torch.dtype, *PLAIN)) or is_dataclass(value)


def _guard(value: Any) -> None:
    """Dynamo guards what `id` is asked of by identity, and functions by their code, which two of
    one text share."""
    if isinstance(value, (tuple, list)):
        for each in value:
            _guard(each)
    elif not _enters(value):
        id(value)


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
