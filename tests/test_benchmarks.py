"""What benchmarks ask and print; the figures themselves are pages of docs."""

from __future__ import annotations

import numpy as np
import pytest

import tilelang as tile
from benchmarks import defaults
from benchmarks.steered import values_of
from tests.subjects import SUBJECTS, Subject

EXAMPLES = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


@EXAMPLES
def test_integers_of_every_case_have_values(subject: Subject) -> None:
    for case in subject.cases:
        given = dict(zip(subject.kernel.signature.names, case, strict=False))
        integers = {n for n, a in given.items() if str(getattr(a, "dtype", "")) == "int32"}
        values = values_of(subject, case)
        assert values.keys() == integers
        assert {n: v.shape for n, v in values.items()} == {n: given[n].shape for n in integers}
        for name in (n for n in integers if n.endswith("offsets")):
            assert values[name][0] == 0 and (np.diff(values[name]) >= 0).all(), "sorted"
            sizes = {n for a in case for n in getattr(a, "shape", (a,))}
            assert {values[name][-1], values[name][-1] + 1} & sizes, "all rows, but for rounding"


def row(example: str, chip: str, default: float, best: float) -> defaults.Row:
    first, least = (
        defaults.Tried(us, tile.Config({"tm": size})) for us, size in ((default, 8), (best, 16))
    )
    return defaults.Row(example, "small", chip, first, least, 8)


def test_the_page_of_defaults_counts_what_is_behind() -> None:
    rows = [row("a", "v5e", 1.0, 1.0), row("b", "v6e", 1.2, 1.0), row("c", "v6e", 3.0, 2.0)]
    text = defaults.page(rows, "--configs 8")
    assert "python -m benchmarks.defaults --configs 8" in text
    assert "3 cases,\n24 configs in all" in text
    assert "best of its case in **33%**" in text and "more than 25 % behind in 1 " in text
    assert "| v5e | small | 1 | 100% | 1.00 |\n| v6e | small | 2 | 0% | 1.50 |" in text
    behind = [line for line in text.splitlines() if line.startswith(("| a |", "| b |", "| c |"))]
    assert behind == [
        "| c | small | v6e | 3.0 | tm=8 | 2.0 | tm=16 | 1.50 | 8 |",
        "| b | small | v6e | 1.2 | tm=8 | 1.0 | tm=16 | 1.20 | 8 |",
    ]


def test_rows_are_kept_and_the_last_of_a_case_counts() -> None:
    rows = [row("a", "v5e", 2.0, 1.0), row("b", "v6e", 1.2, 1.0), row("a", "v5e", 1.0, 1.0)]
    text = "".join(f"{one.to_json()}\n" for one in rows)
    assert defaults.read(text) == rows
    assert defaults.last(rows) == [rows[2], rows[1]]
