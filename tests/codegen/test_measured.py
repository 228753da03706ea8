"""Default configs on sm_90 beside the quickest of those that were timed on an H100.

benchmarks/h100.json has the times, which benchmarks/gpu_sweep.py took.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.subjects import SUBJECTS
from tests.tiers import share

RECORD = json.loads((Path(__file__).parents[2] / "benchmarks" / "h100.json").read_text())
TIMES = {case: told["us"] for case, told in RECORD["times"].items()}
NAMED = {s.name: s for s in SUBJECTS}
NEAR = 1.2
# What is slower than that, and why.
FAR = {
    "attention_backward_of_kv float32": "all that are quicker spill 16 bytes and more",
    "grouped_gemm_swiglu float32": "128 rows spill 64 bytes",
    "sliding_window_attention bfloat16": "16 keys at a time pay only for windows of 20",
}
UNTIMED = {"dense_attention_backward bfloat16"}  # only with 128 rows in its first launch: 2008 us


@pytest.mark.parametrize("case", share(TIMES, of=6))
def test_the_default_is_near_the_quickest(case):
    name, dtype = case.split()
    if name not in NAMED:
        pytest.skip("this example is spelled in torch, which is not installed")
    one = NAMED[name]
    shapes = one.cases[-2 if dtype == "bfloat16" else -1]
    default = one.kernel.default_config(*shapes, target="cuda:sm90").to_json()
    assert (default in TIMES[case]) is (case not in UNTIMED)
    if case not in UNTIMED:
        far = TIMES[case][default] > NEAR * min(TIMES[case].values())
        assert far is (case in FAR), (default, TIMES[case])


def test_what_is_far_was_timed():
    assert {*FAR, *UNTIMED} <= TIMES.keys() and len(TIMES) > 70


def test_a_line_says_which_config_is_quicker():
    sweep = pytest.importorskip("benchmarks.gpu_sweep", reason="needs torch and Triton")
    told = {"default": "a", "us": {"b": 10.0, "a": 12.0}}
    assert sweep.line("x", told).endswith("12.0 us, least      10.0 by b  <-")
    assert not sweep.line("x", {**told, "us": {"b": 10.0, "a": 10.5}}).endswith("<-")
    assert "was not timed" in sweep.line("x", {**told, "us": {"b": 10.0}})


def test_the_sweep_begins_with_the_default():
    sweep = pytest.importorskip("benchmarks.gpu_sweep", reason="needs torch and Triton")
    one = NAMED["matmul"]
    first, second, *_ = sweep.configs(one, one.cases[0], "cuda:sm90")
    assert first == one.kernel.default_config(*one.cases[0], target="cuda:sm90") != second
