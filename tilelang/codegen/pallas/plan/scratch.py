"""Scratch memory as data."""

from __future__ import annotations

from dataclasses import dataclass


def in_scratch(dtype: str) -> str:
    """The dtype of scratch memory for such values: of bools, single rows could not be stored."""
    return "int32" if dtype == "bool" else dtype


@dataclass(frozen=True)
class Scratch:
    """Vector memory that lives through the whole launch; `why` it has the shape that it has."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    why: str = ""
