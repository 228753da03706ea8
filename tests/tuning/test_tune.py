"""tile.tune: what it tries, how trials end, what it chooses and what it says."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tilelang as tile
from tests.tuning.kernels import BEST, DEFAULT, SECOND, arguments, scale_rows, sums, tuned


def test_the_fastest_config_is_chosen(tmp_path):
    found = tuned(tmp_path)
    assert found.config.block("tm") == BEST
    assert found.gain is not None and found.gain > 20
    assert found.default is found.trials[0] and found.default.config.block("tm") == DEFAULT
    text = str(found)
    assert "<- default" in text and "<- chosen" in text
    assert text.splitlines()[-1].startswith("chosen: tm=128, tn=8") and "as fast as" in text
    x, s = arguments()
    np.testing.assert_array_equal(scale_rows(x, s, config=found.config), x * s[:, None])


def test_trials_are_kept_and_the_same_every_time(tmp_path, capfd):
    first = tuned(tmp_path, trials=3)
    again = tuned(tmp_path, {1000: "crash", 256: "crash", 512: "crash"}, trials=3)
    assert again == first, "a kept trial was run again"
    more = tuned(tmp_path, trials=4, progress=True)
    assert more.trials[:3] == first.trials
    assert "[4/4]" in capfd.readouterr().err
    assert more == tuned(tmp_path / "another", trials=4)


@pytest.mark.parametrize(
    ("fault", "end"),
    [
        ("crash", "crashed"), ("error", "refused"), ("wrong", "wrong"),
        *(pytest.param(*pair, marks=pytest.mark.slow) for pair in
          (("garbage", "crashed"), ("cut", "crashed"), ("nan", "wrong"), ("short", "wrong"))),
    ],
)  # fmt: skip
def test_what_fails_is_reported_and_skipped(tmp_path, fault, end):
    found = tuned(tmp_path, {BEST: fault})
    (failed, *_) = [t for t in found.trials if t.config.block("tm") == BEST]
    assert failed.end == end and failed.why
    assert found.config.block("tm") == SECOND
    assert f"  {end}: tm=128, tn=8" in str(found)


def test_what_hangs_is_ended(tmp_path):
    found = tuned(tmp_path, {BEST: "hang"}, timeout=2.0)
    ends = {t.config.block("tm"): t for t in found.trials if t.config.loop_type is None}
    assert (ends[BEST].end, ends[BEST].why) == ("hung", "no answer in 2 seconds")
    assert found.config.block("tm") == SECOND


def test_a_default_that_fails_is_said(tmp_path):
    with pytest.raises(tile.CallError) as raised:
        tuned(tmp_path, {DEFAULT: "crash"})
    assert "the default config of scale_rows crashed where trials are compared" in str(raised.value)
    assert "checks=[...]" in str(raised.value)


def test_a_budget_of_seconds_ends(tmp_path):
    found = tuned(tmp_path, trials=None, budget=0.0)
    assert len(found.trials) == 1 and found.best is found.default
    assert str(found).endswith("chosen: the default, nothing that was tried is better")


def test_mean_and_worst_are_over_the_cases():
    candidate = tile.Candidate(tile.Config({"tm": 8}), None, 0)
    trial = __import__("tilelang.autotune.trials", fromlist=["Trial"]).Trial
    subject, source = scale_rows.subject(*arguments(), target="cpu")
    steady = trial(tile.Candidate(tile.Config({"tm": 16}), None, 0), "good", (3.0, 3.0))
    uneven = trial(candidate, "good", (1.0, 4.0))
    for objective, best in (("mean", uneven), ("worst", steady)):
        found = tile.Tuned(subject, source, "device", objective, (steady, uneven), {})
        assert found.best is best


def test_cases_of_several_classes_are_refused(tmp_path):
    with pytest.raises(tile.CallError, match="cases of one choice have shapes of one class"):
        tile.tune(scale_rows, [arguments(8), arguments(9)], target="cpu", by="device")


def test_lengths_of_one_class_go_together():
    offsets, fresh = np.array([0, 10, 30], np.int32), tile.Kernel(sums.__wrapped__)
    names = {
        fresh.subject(tile.spec((rows, 8), "float32"), offsets, target="cpu")
        for rows in (33, 50, 64)
    }
    assert len(names) == 1
    ((subject, _),) = names
    assert subject.arguments == "x: float32[<=64, 8], offsets: int32[3]"
    assert sums.subject(tile.spec((65, 8), "float32"), offsets, target="cpu")[0] != subject


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"by": "guess"}, "by='guess' is not known\n  hint: use one of model, device"),
        ({"objective": "best"}, "objective='best' is not known\n  hint: use one of mean, worst"),
        ({"trials": 0}, "trials=0 is no number of configs"),
        ({"trials": "many"}, "trials='many' is no number of configs"),
        ({"by": "model", "target": "cpu"}, "nothing predicts times for cpu"),
        ({"by": "model", "target": "cuda:sm90"}, "nothing predicts times for cuda:sm90"),
    ],
)
def test_what_cannot_be_tuned_says_so(tmp_path, options, says):
    with pytest.raises(tile.CallError, match=re.escape(says)):
        tuned(tmp_path, **options)


@pytest.mark.parametrize(
    ("kernel", "cases", "says"),
    [
        (sums, [], "tile.tune got no cases"),
        (sums, [tile.spec((64, 8), "float32")], "a case is a TensorSpec"),
        (sums.__wrapped__, [()], "tile.tune takes a kernel, and got sums\n"),
        (np.zeros((40, 64)), np.zeros((40, 64)), "tile.tune takes a kernel, and got ndarray\n"),
    ],
)
def test_what_is_no_kernel_or_no_case_says_so(kernel, cases, says):
    with pytest.raises(tile.CallError, match=f"^{re.escape(says)}"):
        tile.tune(kernel, cases)


def test_integers_need_values():
    case = (tile.spec((64, 8), "float32"), tile.spec((3,), "int32"))
    with pytest.raises(tile.CallError, match="offsets is a shape without data, and integers steer"):
        tile.tune(sums, [case], target="tpu:v6e")


@pytest.mark.slow
def test_the_real_worker_runs_and_compares(tmp_path):
    case = (tile.spec((40, 8), "float32"), np.array([0, 0, 7, 40], np.int32))
    found = tile.tune(sums, [case], target="cpu", by="device", trials=2, folder=tmp_path)
    assert [t.end for t in found.trials] == ["good", "good"]
    assert all(seconds > 0 for t in found.trials for seconds in t.seconds)


@pytest.mark.slow
def test_tuning_by_the_model(tmp_path):
    case = (tile.spec((256, 128), "float32"), np.array([0, 0, 70, 256], np.int32))
    found = tile.tune(sums, [case], target="tpu:v6e", trials=2, folder=tmp_path)
    assert found.default.end == "good" and found.default.seconds
    assert tile.tune(sums, [case], target="tpu:v6e", trials=2, folder=tmp_path) == found
    found.save(tmp_path / "tilelang.lock")
    lock = tmp_path / "tilelang.lock"
    held = tile.tune(sums, [case], target="tpu:v6e", check=True, lock=lock, folder=tmp_path)
    assert held.trials[-1].config == found.config
