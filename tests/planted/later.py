"""Bugs planted in what finds later calls; tests/runtime/test_later.py must notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilelang.runtime import entries, later, tensors, torch_ops


@dataclass(frozen=True)
class Planted:
    """`value` instead of `owner.name`, and the test that shows it, with what it is given."""

    what: str
    owner: Any
    name: str
    value: Any
    test: str
    given: Callable[[Any], tuple[Any, ...]] = lambda _: ()

    def __str__(self) -> str:
        return self.what


def _without(home: str, field: str) -> dict[str, tuple[str, ...]]:
    return {h: tuple(f for f in fields if (h, f) != (home, field)) for h, fields in _FIELDS.items()}


_FIELDS = dict(tensors.FIELDS)
KEY = "test_a_field_that_changes_is_another_key"
FOUND = "test_a_field_that_changes_finds_no_later_call"
STATE = "test_what_torch_does_is_asked_in_every_call"
FIELDS = tuple(
    Planted(f"{home} without {field.format('value')}, {test[-5:]}", entries, "FIELDS",
            _without(home, field), test, lambda patch, change=(home, field): (change, patch))
    for home, fields in _FIELDS.items() for field in fields for test in (KEY, FOUND)
)  # fmt: skip
PLANTED = (
    *FIELDS,
    *(
        Planted(f"torch without {state}", torch_ops, "STATE",
                tuple(s for s in torch_ops.STATE if s != state), STATE,
                lambda patch, state=state: (state,))
        for state in torch_ops.STATE
        if state != "_tracing()"  # sizes are tensors then, and no key with them is known
    ),
    Planted("what was chosen is no part", entries, "CHOSEN", ("None",) * 3,
            "test_what_was_chosen_is_part_of_what_is_found",
            lambda patch: (Path(),)),
    Planted("nothing is read again", later, "unchanged", lambda *_: ((), {}),
            "test_what_was_read_is_read_again", lambda patch: (patch, 3.0)),
    Planted("nobody wants a gradient", torch_ops, "EACH", "False",
            "test_a_gradient_is_asked_for_in_every_call"),
    Planted("all arrays of NumPy are alike", entries, "_alike",
            lambda n, kind: iter(("'numpy'",)), "test_types_that_differ_are_told_apart"),
    Planted("names are as they are", later, "local", lambda name: name,
            "test_names_of_authors_are_never_ours"),
)  # fmt: skip
