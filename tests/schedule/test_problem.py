"""Planning finds what is true of a kernel once: its uses, and the window of every reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.schedule.written import Writing, mul
from tests.subjects import SUBJECTS, Subject
from tests.test_golden import TARGET
from tests.tiers import share
from tilelang.analysis import analyze
from tilelang.analysis import uses as analysis_uses
from tilelang.analysis.uses import IndexedSite
from tilelang.codegen.pallas.plan import forms, search
from tilelang.codegen.pallas.plan.windows import choose, outputs
from tilelang.codegen.pallas.target import Target
from tilelang.schedule.config import Config
from tilelang.schedule.problem import Problem

MOST_WALKS = 3  # of the kernel: for gathers, for its uses, and for the windows of its launch
NAMES = [s.name for s in SUBJECTS]


@dataclass
class Calls:
    """How often things were found while one kernel was planned.

    walks     of all loads and stores
    lowered   nests that were put on blocks of arrays: launches, in every attempt
    surveys   choices of windows
    windows   (survey, tensor, index, part) -> how often its dimensions were found
    """

    walks: int = 0
    lowered: int = 0
    surveys: int = 0
    windows: Counter[object] = field(default_factory=Counter)


def subject_of(name: str) -> Subject:
    return next(s for s in SUBJECTS if s.name == name)


def planning(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, config: Config | None = None
) -> Calls:
    lowered = subject.kernel.lower(*subject.cases[-2], target=TARGET)
    problem, calls = Problem(lowered.ir, lowered.facts), Calls()

    def counting(module: object, name: str, count: Callable[..., None]) -> None:
        function = getattr(module, name)

        def counted(*given: Any) -> Any:
            count(*given)
            return function(*given)

        monkeypatch.setattr(module, name, counted)

    def walk(*_: object) -> None:
        calls.walks += 1

    def lower(*_: object) -> None:
        calls.lowered += 1

    def survey(*_: object) -> None:
        calls.surveys += 1

    def dims(_: object, to: IndexedSite, part: int = 0) -> None:
        calls.windows[calls.surveys, to.tensor, to.index, part] += 1

    counting(analysis_uses, "statements", walk)
    counting(forms, "plan_launch", lower)
    counting(outputs, "survey", survey)
    counting(choose, "_dims", dims)
    search.plan(problem, config or Config(), Target.of(TARGET))
    return calls


def test_grouped_gemm_is_walked_a_few_times(monkeypatch):
    blocks = Config({"tm": 128, "tn": 512, "tk": 512})  # else blocks are ranked: several plans
    calls = planning(subject_of("grouped_gemm"), monkeypatch, blocks)
    assert (calls.walks <= MOST_WALKS, calls.surveys) == (True, 1)


@pytest.mark.parametrize("name", share(NAMES, 6))
def test_every_attempt_walks_a_launch_once_and_every_window_is_found_once(name, monkeypatch):
    calls = planning(subject_of(name), monkeypatch)
    # an attempt walks a launch once more where the index of a loop that runs once is written out
    # and two are planned anew with more blocks in flight, from the author's kernel on: the one that
    # was chosen first, and the one of blocks of groups
    assert calls.walks <= 2 * MOST_WALKS + 2 * calls.lowered + 2
    assert calls.surveys <= 2 * calls.lowered
    assert set(calls.windows.values()) == {1}


def scaled() -> Problem:
    k = Writing("scaled")
    k.input("x", 512, 256)
    k.output("y", 512, 256, fill=None)
    with k.tile("tm", 0, 512), k.tile("tn", 0, 256):
        k.store("y", "tm", "tn", value=mul(k.load("x", "tm", "tn"), 2))
    ir = k.ir()
    return Problem(ir, analyze(ir))


def test_a_problem_says_what_its_axes_index():
    problem = scaled()
    found = [(u.tensor, u.dim, u.place, u.written) for u in problem.uses("tm")]
    assert found == [("x", 0, 2, False), ("y", 0, 2, True)]
    assert problem.uses("tm") == problem.all_uses("tm")
    assert (problem.extent("tm"), problem.extent("tn"), problem.shift("tn")) == (512, 256, None)
    assert (problem.uses("tk"), problem.stored, problem.alike) == ((), (frozenset({"y"}),), ())


def test_what_was_found_is_kept_and_another_kernel_is_another_problem():
    problem = scaled()
    assert problem.references is problem.references
    wider = replace(
        problem.ir, tensors=tuple(replace(t, shape=(512, 384)) for t in problem.ir.tensors)
    )
    assert (problem.extent("tn"), replace(problem, ir=wider).extent("tn")) == (256, 384)
