"""Names: new ones, which nothing of the author has."""

from __future__ import annotations

from .types import KernelIR


def stem(name: str) -> str:
    """What a name was made from by a number: `acc` of `acc_2`."""
    first, _, number = name.rpartition("_")
    return first if first and number.isdigit() else name


def unique(ir: KernelIR, name: str, suffix: str) -> str:
    """`name_suffix`, or a variant that no tensor of the author's has."""
    taken = {t.name for t in ir.tensors} | {ir.name}
    wish, number = f"{name}_{suffix}", 0
    while wish in taken or wish.removesuffix("_ref") in taken - {name}:
        number += 1
        wish = f"{name}_{number}_{suffix}"
    return wish
