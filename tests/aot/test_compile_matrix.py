"""docs/compile-matrix.md lists what there is, and a share of it compiles again.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tests import compile_matrix, vmem
from tests.aot.written import needs_libtpu
from tests.compile_cache import TPU, shared
from tests.compile_matrix import GENERATIONS, Cell, Row, page, shown
from tests.subjects import HAS_TORCH, SUBJECTS
from tests.vmem import LEAST, needed

PAGE = Path(__file__).resolve().parents[2] / "docs" / "compile-matrix.md"
SHARE = SUBJECTS[::12]


def sections():
    """Example -> the lines of its table."""
    parts = re.split(r"^## (.+)\n\n", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], (body.split("\n\n")[0].splitlines()[2:] for body in parts[2::2])))


def test_the_page_lists_every_case_of_every_example():
    listed = sections()
    known = {s.name: [f"`{shown(case)}`" for case in s.cases] for s in SUBJECTS}
    if HAS_TORCH:
        assert list(listed) == list(known), "make compile-matrix"
    for name, cases in known.items():
        assert [line.split(" | ")[0].lstrip("| ") for line in listed[name]] == cases


def test_the_totals_of_the_page():
    text, listed = PAGE.read_text(encoding="utf-8"), sections()
    cases = sum(map(len, listed.values()))
    total = (
        f"{cases * len(GENERATIONS)} programs, which are {cases} cases of {len(listed)} examples"
    )
    assert total in " ".join(text.split())
    failed = sum(line.count("**fails**") for lines in listed.values() for line in lines)
    assert failed == 0 and "all of them compile" in " ".join(text.split())


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("subject", SHARE, ids=str)
def test_a_share_of_the_page(subject):
    """The first and the last case compile, and what they need is hardly more than the plan's sum.

    Sums are fitted to the compiler of the page; others may need what is asked for on top.
    """
    worker = shared(TPU)
    fitted = f"libtpu {version('libtpu')}" in PAGE.read_text(encoding="utf-8")
    for case in (subject.cases[0], subject.cases[-1]):
        for generation in GENERATIONS:
            made = compile_matrix.cell(subject, case, f"tpu:{generation}", worker)
            assert made.problem == ""
        lowered = subject.kernel.lower(*case, target="tpu:v6e")
        predicted = max(launch.memory.vmem for launch in lowered.plan.launches)
        assert needed(lowered, worker) <= max(predicted * (1.02 if fitted else 1.25), LEAST)


def test_arrays_that_xla_keeps_are_not_the_kernels():
    def said(size: str, limit: str) -> re.Match[str]:
        text = f"Scoped allocation with size {size} and limit {limit} exceeded scoped vmem limit"
        found = vmem._NEEDS.search(text)
        assert found is not None
        return found

    most = 1024**2
    assert vmem._own(said("3.68M", "1.00M"), most) == int(3.68 * most) + 1
    assert vmem._own(said("3.68M", "1.01M"), most) == int(3.68 * most) + 1  # digits are cut off
    others = vmem._own(said("26.00M", "17.00M"), most)
    assert abs(others - 10 * most) < most // 64


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize(("name", "case"), [("softmax", 3), ("moe", 4)])
def test_memory_of_kernels_whose_arrays_xla_keeps(name, case):
    subject = next(s for s in SUBJECTS if s.name == name)
    lowered = subject.kernel.lower(*subject.cases[case], target="tpu:v6e")
    predicted = max(launch.memory.vmem for launch in lowered.plan.launches)
    assert needed(lowered, shared(TPU)) <= predicted


@pytest.mark.slow
def test_a_page():
    fine, moved, fails = Cell(""), Cell("", 2), Cell("no such op")
    found = [
        Row("first", "f32[8, 128]", (fine, fine, moved, fine), 2 * 1024**2, 1024**2),
        Row("second", "bf16[8, 128]", (fine, fine, fine, fails), 0, 0),
    ]
    text = page(found, "1.0", "2.0")
    total = "8 programs, which are 2 cases of 2 examples for v5e, v5p, v6e and 7x; 1 of them"
    assert total in " ".join(text.split())
    assert "never too low: 0.50 to 0.50 of it is needed" in " ".join(text.split())
    assert "| `f32[8, 128]` | ok | ok | ok, 2 moved | ok | 2.00 MiB | 1.00 MiB |" in text
    assert "| `bf16[8, 128]` | ok | ok | ok | **fails**: no such op | - | - |" in text
    assert max(len(line) for line in text.splitlines() if not line.startswith("|")) <= 100


@pytest.mark.slow
@needs_libtpu
def test_the_command(tmp_path, capsys):
    there = tmp_path / "page.md"
    assert compile_matrix.main(["--only", "embedding", "--write", str(there), "--jobs", "1"]) == 0
    assert capsys.readouterr().out.startswith("24 of 24 compile")
    assert "\n## embedding\n" in there.read_text(encoding="utf-8")
