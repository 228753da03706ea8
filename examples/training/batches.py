"""text -> batches of bytes: sequences of unequal length, end to end, in arrays of one size.

    tokens     T h e   c a t . | I t . | H o w   s o ? | . . . . .
    offsets    0                 8       11              18     20

The last rows of a batch are in no sequence, so that every batch has the same shapes: nothing is
compiled again, and what the kernels make of such rows is zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from examples.real_text import text

VOCABULARY = 256  # bytes


@dataclass(frozen=True)
class Batch:
    """Bytes [rows], the bytes that follow them, and where sequences begin and end.

    places   of a byte in its sequence
    weights  1 where there is something to be learned, 0 in rows of no sequence
    offsets  [sequences + 1]; sequences may be empty
    """

    tokens: np.ndarray
    following: np.ndarray
    places: np.ndarray
    weights: np.ndarray
    offsets: np.ndarray


def batches(count: int, rows: int, sequences: int, longest: int) -> list[Batch]:
    """That many batches of the documentation that is installed here."""
    documents = text.documentation()
    sentences = text.batch(documents, count * rows)
    strings = [" ".join(sentence).encode()[: longest + 1] for sentence in sentences]
    stream = iter([s for s in strings if len(s) > 1])
    return [_filled(stream, rows, sequences) for _ in range(count)]


def _filled(stream: Iterator[bytes], rows: int, sequences: int) -> Batch:
    """As many sequences of the stream as fit."""
    chosen: list[bytes] = []
    for string in stream:
        if sum(len(s) - 1 for s in chosen) + len(string) - 1 > rows:
            break
        chosen.append(string)
        if len(chosen) == sequences:
            break
    lengths = [len(s) - 1 for s in chosen] + [0] * (sequences - len(chosen))
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return Batch(
        tokens=_row(b"".join(s[:-1] for s in chosen), rows, np.int32),
        following=_row(b"".join(s[1:] for s in chosen), rows, np.int32),
        places=_row([p for n in lengths for p in range(n)], rows, np.int32),
        weights=_row([1] * sum(lengths), rows, np.float32),
        offsets=offsets,
    )


def _row(values: Sequence[int], rows: int, dtype: type) -> np.ndarray:
    found = np.zeros(rows, dtype)
    found[: len(values)] = list(values)
    return found
