"""refuse_more(...), refuse_buckets(...): how often a kernel is compiled, and for which rows."""

from __future__ import annotations

from typing import Literal, get_args

from ..errors import CallError
from ..ir import KernelIR

Rows = Literal["exact", "bucket"]


def checked_rows(rows: Rows) -> Rows:
    """The policy; CallError if there is none of that name."""
    if rows not in get_args(Rows):
        raise CallError(f"rows={rows!r} is neither 'exact' nor 'bucket'")
    return rows


def checked_flag(name: str, value: object) -> bool | None:
    """An option that is on, off or left out; CallError for what is neither."""
    if isinstance(value, bool | None):
        return value
    raise CallError(f"{name}={value!r} is neither True nor False")


def checked_count(name: str, value: object) -> int | None:
    """An option that is a number or left out; CallError for what is none."""
    if value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
        return value
    raise CallError(f"{name}={value!r} is no number of times", hint="give 0 or more")


def refuse_more(ir: KernelIR, compiles: int, most: int | None) -> None:
    """CallError where a kernel was compiled `most` times after the first, and is to be again."""
    if most is None or compiles <= most:
        return
    given = (t for t in ir.tensors if t.role == "input")
    shapes = ", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in given)
    raise CallError(
        f"kernel {ir.name} was compiled {compiles} times, and max_recompiles={most} allows no "
        f"other time: now for {shapes}",
        hint='rows="bucket" shares programs between numbers of rows; else allow more',
    )


def refuse_buckets(ir: KernelIR, rows: Rows) -> None:
    """CallError for a policy that only programs of JAX have."""
    if rows == "bucket":
        raise CallError(
            f'kernel {ir.name} has rows="bucket", which torch tensors on a GPU do not go through',
            hint='leave rows="bucket" out there',
        )
