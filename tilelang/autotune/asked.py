"""What `tile.tune` was asked for, looked at before anything is tried."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import CallError
from ..reads import is_kernel


def check_asked(kernel: object, cases: Sequence[object], trials: object) -> None:
    """CallError for what is no kernel, no list of cases or no number of trials."""
    if not is_kernel(kernel):
        hint = "write tile.tune(kernel, [(x, w, offsets)]), with a function under @tile.kernel"
        given = getattr(kernel, "__name__", type(kernel).__name__)
        raise CallError(f"tile.tune takes a kernel, and got {given}", hint=hint)
    if not len(cases):
        raise CallError("tile.tune got no cases", hint="write [(x, w, offsets), ...]: arguments")
    if trials is not None and not (isinstance(trials, int) and trials >= 1):
        raise CallError(f"trials={trials!r} is no number of configs", hint="give 1 or more")


def check_case(case: object) -> None:
    """CallError for a case that is neither a tuple nor a mapping of arguments."""
    if not isinstance(case, Mapping | tuple | list):
        hint = "write tile.tune(kernel, [(x, w, offsets)]): each case is a tuple of arguments"
        raise CallError(f"a case is a {type(case).__name__}", hint=hint)


def check_choice(name: str, value: str, legal: tuple[str, ...]) -> None:
    """CallError for a value that is none of the legal ones."""
    if value not in legal:
        raise CallError(f"{name}={value!r} is not known", hint=f"use one of {', '.join(legal)}")
