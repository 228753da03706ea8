"""Every config that is planned compiles: a share of them, and the tool that counts.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import itertools

import pytest

import tilelang as tile
from tests import legality
from tests.aot.written import lowered, needs_libtpu
from tests.compile_cache import TPU, shared
from tests.legality import Draw, Verdict, draws, judge, judged, kind, lifted, report
from tests.subjects import SUBJECTS
from tests.vmem import granted, needed
from tilelang.aot import compile_lowered
from tilelang.codegen.pallas.target import Target

SUBJECT = next(s for s in SUBJECTS if s.name == "softmax")
COUNT, SEED = 12, 5


class Refusing:
    """A compiler that takes nothing."""

    alive = True

    def ask(self, request, timeout):
        return {"error": "NotImplementedError: no", "line": None}

    def close(self):
        pass


def draw(blocks=(), **choices):
    config = tile.Config(dict(blocks), **choices)
    return Draw(SUBJECT, SUBJECT.cases[0], "v6e", config)


@needs_libtpu
@pytest.mark.slow
def test_configs_that_are_planned_compile():
    verdicts = judged(SEED, COUNT, 1, SUBJECTS)
    accepted = [v for v in verdicts if v.accepted]
    assert len(accepted) >= COUNT
    assert [f"{v.draw}: {v.problem}" for v in accepted if v.problem] == []


@needs_libtpu
def test_a_verdict_on_a_good_config_and_on_a_bad_one():
    worker = shared(TPU)
    assert judge(draw({"tm": 64}), worker) == Verdict(draw({"tm": 64}), True)
    odd = judge(draw({"tm": 3}), worker)
    assert (odd.accepted, odd.reason) == (False, "block is no multiple")
    ragged = judge(draw(steps="table"), worker)
    assert (ragged.accepted, ragged.reason, ragged.tried) == (False, "steps do not fit", False)


def test_a_config_that_is_planned_and_does_not_compile_is_found(monkeypatch, capsys):
    monkeypatch.setattr(legality, "CachedWorker", Refusing)
    assert legality.main(["--count", "3", "--only", "softmax", "--jobs", "1"]) == 1
    printed = capsys.readouterr().out
    assert "WRONG softmax" in printed and " do not compile\n" in printed


def test_a_default_config_that_is_refused_is_found():
    large = tile.spec((8, 1 << 30), "float32"), *SUBJECT.cases[0][1:]
    verdict = judge(Draw(SUBJECT, large, "v6e", legality.DEFAULT), Refusing())
    assert verdict.accepted and verdict.problem.startswith("the default is refused: softmax needs")


@pytest.mark.slow
def test_draws():
    first, again = (list(itertools.islice(draws(3), 100)) for _ in range(2))
    assert first == again
    assert len({str(d) for d in first}) > 90
    assert {d.generation for d in first} == set(legality.GENERATIONS)
    configs = [d.config for d in first]
    for field in ("loop_type", "steps", "buffers", "cores"):
        assert len({getattr(c, field) for c in configs}) >= 3


def test_the_report():
    good, bad = Verdict(draw({"tm": 64}), True), Verdict(draw(), True, problem="no such op")
    strict = Verdict(draw({"tm": 8}), False, "vector memory")
    lines = report([good, bad, strict, Verdict(draw({"tm": 3}), False, "cores", tried=False)])
    assert lines[0].startswith("WRONG softmax") and lines[0].endswith("no such op")
    assert lines[1] == "2 configs accepted: 1 do not compile"
    assert lines[2].startswith("2 configs refused, 1 compiled all the same")
    assert lines[2].endswith("1 would have compiled")
    assert "      1 vector memory: 1 of 1 tried would compile" in lines


def test_reasons_without_names():
    with pytest.raises(tile.PlanError) as caught:
        SUBJECT.kernel.lower(*SUBJECT.cases[0], config=tile.Config({"tm": 3}), target="tpu:v6e")
    assert kind(caught.value.what) == "block is no multiple"
    assert kind("something else") == "something else"


def test_limits_are_lifted():
    target = Target.of("tpu:v5e")
    assert lifted(target).vmem_physical > 1000 * target.vmem_physical
    assert lifted(target).name == target.name


# ------------------------------------------------------------ the compiler's own sum


@needs_libtpu
@pytest.mark.parametrize("rows", [512, 4096])
def test_memory_that_a_kernel_needs(rows):
    """It compiles with that much, not with a little less, and the plan predicts no less."""
    kernel, worker = lowered(rows), shared(TPU)
    need = needed(kernel, worker)
    compile_lowered(granted(kernel, need), worker=worker)
    with pytest.raises(tile.CompileError, match="vector memory"):
        compile_lowered(granted(kernel, need * 9 // 10), worker=worker)
    assert 64 * 1024 < need <= kernel.plan.launches[0].memory.vmem
