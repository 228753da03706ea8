"""structured(structure, values): results the way the author returned them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .written import listed


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


def text_of(structure: str, values: Sequence[str]) -> str:
    """The same of expressions, as an expression."""
    match structure:
        case "single":
            return values[0]
        case "tuple":
            return listed(values)
        case "list":
            return f"[{', '.join(values)}]"
        case _:
            return "None"
