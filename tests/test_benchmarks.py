"""What benchmarks ask and print; the figures themselves are pages of docs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import tilelang as tile
from benchmarks import defaults, experts, performance, timed
from benchmarks.steered import values_of
from benchmarks.timed import Row, Time
from tests.subjects import SUBJECTS, Subject
from tilelang.autotune import model
from tilelang.autotune.model import KernelTime, Prediction, ProgramRun
from tilelang.codegen.pallas.target import TARGETS

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


# ------------------------------------------------------------ performance

PRODUCT = "matmul 1024x8192x8192"


def test_the_page_of_performance_is_made_of_what_is_kept() -> None:
    kept = timed.KEPT.read_text(encoding="utf-8")
    rows = timed.read(kept)
    assert timed.written(rows) == kept
    _, _, told = performance.page(rows).partition("## All")
    assert performance.PAGE.read_text(encoding="utf-8").partition("## All")[2] == told


@pytest.mark.parametrize(
    ("doubt", "us", "believed"), [(True, 1e6, False), (True, 900.0, True), (False, 1e6, True)]
)
def test_what_unknown_counts_make_is_no_time(doubt: bool, us: float, believed: bool) -> None:
    time = timed._believed(Time("megablox", "digest", us=us, limit=1.0, doubt=doubt))
    assert (time.us, bool(time.refused)) == ((us, False) if believed else (0.0, True))


def test_a_time_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[str]()

    def ours(lowered: object, *_: object, **__: object) -> Prediction:
        asked.append("ours")
        kernel = KernelTime("k", True, 4e-6, 3e-6, 2e-6, {}, 0.5, 0, 0, 0, {})
        run = ProgramRun((kernel,), 1e-6, 2e-6)
        return Prediction(TARGETS["tpu:v5e"], tile.Config({"tm": 8}), (run,))

    def theirs(expert: experts.Expert, *_: object) -> experts.Answer:
        asked.append(expert.name)
        return experts.Answer(None, {}, "too large")

    monkeypatch.setattr(model, "predict", ours)
    monkeypatch.setattr(experts, "predicted", theirs)
    monkeypatch.setattr(timed.Asking, "compiler", lambda self: None)
    asking = timed.Asking()
    row = timed.timed(None, PRODUCT, "v5e", asking)
    assert row is not None and asked == ["ours", "XLA"]
    assert (row.ours.us, row.ours.compute, row.ours.fetched, row.ours.matrix) == (5, 3, 1, 0.4)
    assert row.experts[0].refused == "too large" and row.ratio is None
    assert timed.read(timed.written([row])) == [row]
    assert timed.timed(row, PRODUCT, "v5e", asking) == row and asked == ["ours", "XLA"]
    older = replace(row, ours=replace(row.ours, digest="of another tree"))
    marked = timed.timed(older, PRODUCT, "v5e", None)
    assert marked is not None and marked.ours.old and not marked.experts[0].old
    assert asked == ["ours", "XLA"], "nothing is asked to mark what is older"
    assert timed.timed(older, PRODUCT, "v5e", asking) == row and asked == ["ours", "XLA", "ours"]


def test_the_page_of_performance_says_what_is_missed_and_by_how_much() -> None:
    ours = Time("tm=8", "1", 110.0, 50.0, compute=100.0, traffic=40.0, matrix=0.75)
    theirs = (Time("a", "2", 90.0, doubt=True), Time("b", "3", 100.0, fetched=20.0, old=True))
    rows = [Row(PRODUCT, "v5p", ours, theirs), Row(PRODUCT, "v6e", replace(ours, us=95.0), theirs)]
    text = performance.page(rows)
    assert "2 of 6 times on this page\nhad to be asked again" in text
    assert "1 of 2 targets are met. Against the best expert: 1.02 of its time in the " in text
    assert "mean of 2 cases (target 0.75, missed by 36%), quicker in 1." in text
    assert "| matmul | 0.95 | - | **1.10** (over 1.05) | - | 1.02 |" in text
    assert f"Slower: {PRODUCT} (1.10)." in text
    assert (
        f"| {PRODUCT} | 110.0 | tm=8 | 100.0† | b | 1.10 | 50.0 | 2.20 | 1.05 | 1.05x of it |"
        in text
    )
    assert (
        f"* {PRODUCT}, by 4.8%: 100.0 of 110.0 us are work (matrix units 75% of the time), " in text
    )
    assert "10.0 waits for copies, whose bytes alone take 40.0; one core does all, " in text
    assert (
        f"* {PRODUCT}: 20% of the expert's time, 0% of ours; without them ours would take 1.38"
        in text
    )
