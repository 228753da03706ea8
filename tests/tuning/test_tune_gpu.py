"""tile.tune for GPUs: what it tries next, what is not run, and what it says without a GPU.

Evidence: the worker of GPUs in Triton's interpreter, with a clock of its own; Triton's compiler
and ptxas in one test.  tests/gpu/test_device.py tunes on a GPU.
"""

from __future__ import annotations

import itertools
import json
import sys
from dataclasses import fields

import numpy as np
import pytest

pytest.importorskip("torch", reason="kernels on GPUs are called from torch")
pytest.importorskip("triton", reason="pip install 'raggedtile[triton]'")

import tilelang as tile
from tests.tuning.kernels import sums
from tilelang import tuning
from tilelang.autotune import benches

TARGET = "cuda:sm90"
ROWS = np.array([0, 0, 7, 40])  # int64, as torch makes them


def case() -> tuple[np.ndarray, np.ndarray]:
    return np.random.default_rng(0).standard_normal((300, 32), np.float32), ROWS


def tuned(folder, faults: dict[int, str] | None = None, **options) -> tile.Tuned:
    """Tunes `sums` by a worker in which larger blocks are faster, with faults of some blocks."""
    text = json.dumps({str(size): fault for size, fault in (faults or {}).items()})
    command = (sys.executable, "-m", "tests.gpu.tuning_worker", text)
    chosen = {"target": TARGET, "by": "device", "folder": folder, "command": command} | options
    return tile.tune(sums, [case()], **chosen)


def changes(a: tile.Config, b: tile.Config) -> int:
    """How many fields differ, each block by itself."""
    blocks = sum(dict(a.blocks).get(name) != size for name, size in b.blocks)
    rest = (f.name for f in fields(tile.Config) if f.name != "blocks")
    return blocks + sum(getattr(a, name) != getattr(b, name) for name in rest)


def test_configs_near_another_are_one_change_away():
    near = sums.default_config(*case(), target=TARGET)
    first, *rest = itertools.islice(sums.configs(*case(), target=TARGET, near=near), 5)
    assert first.config == near and rest
    assert {changes(near, candidate.config) for candidate in rest} == {1}
    moved = rest[0].config
    again = next(sums.configs(*case(), target=TARGET, near=moved))
    assert again.config == moved != near


def test_near_is_planned_like_any_config():
    with pytest.raises(tile.PlanError, match="config names a block for 'tq'"):
        next(sums.configs(*case(), target=TARGET, near=tile.Config({"tq": 8})))
    with pytest.raises(tile.CallError) as raised:
        next(sums.configs(*case(), target="tpu:v6e", near=tile.Config()))
    assert str(raised.value) == (
        "configs for tpu:v6e come in the order of their estimates, not by near=\n"
        "  hint: leave near= out"
    )


@pytest.mark.slow  # a process that imports torch
def test_without_that_gpu_nothing_is_tried(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(tile.CallError) as raised:
        tile.tune(sums, [case()], target=TARGET, by="device", folder=tmp_path)
    assert str(raised.value) == (
        "cuda:sm90 cannot be timed here: torch sees no GPU\n"
        "  hint: tune on a machine with that GPU, torch for CUDA and triton"
    )


def test_a_worker_that_ends_says_why(tmp_path):
    with pytest.raises(
        tile.CallError, match="cuda:sm90 cannot be timed here: SystemExit: no torch"
    ):
        command = (sys.executable, "-c", "import sys; sys.exit('SystemExit: no torch')")
        tuned(tmp_path, command=command)


@pytest.fixture
def spilling(monkeypatch):
    """Configs of these rows spill so many bytes, by a compiler that takes no time."""

    def spill(rows: dict[int, int]) -> None:
        monkeypatch.setattr(
            tuning, "spills",
            lambda plans, *_: max(rows.get(p.config.block("tm"), 0) for p in plans),
        )  # fmt: skip

    return spill


@pytest.fixture
def timed(monkeypatch):
    """Trials that run nothing: larger blocks of rows are faster, some are wrong."""

    def wrong(*sizes: int) -> None:
        def trial(ask, candidate):
            size = candidate.config.block("tm")
            end, seconds = ("wrong", ()) if size in sizes else ("good", (1 / size,))
            return tuning.Trial(candidate, end, seconds)

        monkeypatch.setattr(tuning, "_trial", trial)
        monkeypatch.setattr(benches.GpuBench, "facts", lambda self: {"GPU": "none"})

    return wrong


@pytest.mark.slow
def test_it_goes_on_from_the_best(tmp_path, timed):
    timed(128)
    found = tuned(tmp_path, trials=12)
    sizes = [t.config.block("tm") for t in found.trials]
    assert found.default is found.trials[0] and len({t.config for t in found.trials}) == 12
    assert (sizes[0], found.config.block("tm"), max(sizes)) == (16, 64, 128)
    first = sizes.index(64)
    assert all(size >= 32 for size in sizes[first:]), "what is near the default is left"
    assert f"{found.best.candidate.memory:,} bytes" in str(found)


def test_noise_changes_nothing(tmp_path, timed, monkeypatch):
    timed()
    monkeypatch.setattr(
        tuning,
        "_trial",
        lambda ask, c: tuning.Trial(c, "good", (1 - 0.015 * (c.config != ask.default),)),
    )
    found = tuned(tmp_path, trials=4)
    assert found.best is found.default and found.time(found.ranked[0]) < found.time(found.default)


@pytest.mark.slow
def test_the_choice_for_a_gpu_is_used_there(tmp_path, timed):
    timed(128)
    found = tuned(tmp_path, trials=12)
    found.save(tmp_path / "a.lock")
    tile.use(tmp_path / "a.lock")
    try:
        assert sums.lower(*case(), target=TARGET).config == found.config
        assert sums.lower(*case(), target="cuda:sm80").config != found.config
    finally:
        tile.use(None)


@pytest.mark.slow
def test_what_spills_more_than_the_default_is_not_run(tmp_path, spilling):
    default = sums.default_config(*case(), target=TARGET).block("tm")
    assert default is not None
    spilling({default: 8, 2 * default: 16, default // 2: 8})
    found = tuned(tmp_path, {2 * default: "crash"}, trials=3)
    refused = [t for t in found.trials if t.config.block("tm") == 2 * default]
    assert [t.end for t in refused] == ["refused"] * len(refused) and refused
    assert refused[0].why == "registers do not hold 16 bytes per thread, 8 with the default"
    assert {t.end for t in found.trials if t not in refused} == {"good"}


@pytest.mark.slow
def test_configs_are_compiled_run_and_compared(tmp_path):
    larger = 2 * (sums.default_config(*case(), target=TARGET).block("tm") or 0)
    found = tuned(tmp_path, {larger: "wrong"}, trials=3)
    ends = {t.end: t for t in found.trials}
    assert ends.keys() == {"good", "wrong"} and ends["wrong"].config.block("tm") == larger
    assert "differs from the default's in" in ends["wrong"].why
    assert found.best is found.default
    assert found.versions["GPU"] == "Triton's interpreter" and "triton" in found.versions
    again = tuned(tmp_path, dict.fromkeys((larger, larger // 2), "crash"), trials=3)
    assert again == found, "trials are kept"
