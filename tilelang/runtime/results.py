"""structured(structure, values): results the way the author returned them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def structured(structure: str, values: Sequence[Any]) -> Any:
    """The values the way they were returned: one, a tuple, a list or nothing."""
    match structure:
        case "single":
            return values[0]
        case "tuple":
            return tuple(values)
        case "list":
            return list(values)
        case _:
            return None
