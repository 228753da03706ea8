"""Kernel.predict: what it asks for, what it refuses, and how a prediction reads.

Evidence: libtpu, ahead of time, where a test needs it; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilelang as tile
from examples.jagged.grouped_gemm import grouped_gemm
from examples.jagged.moe import moe
from tests.aot.written import double, needs_libtpu
from tilelang.aot import Worker
from tilelang.aot.hlo import Transfer
from tilelang.autotune.model import predict
from tilelang.autotune.model.prediction import Prediction, duration, runs_of
from tilelang.codegen.pallas.chips import CHIPS

predicting = sys.modules["tilelang.autotune.model.predict"]

X, W = tile.spec((1024, 512), "bfloat16"), tile.spec((8, 512, 512), "bfloat16")
SHAPE = tile.spec((9,), "int64")
EVEN = np.arange(9) * 128


@pytest.fixture(autouse=True)
def nothing_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def error_of(*arguments: Any, **options: Any) -> str:
    with pytest.raises(tile.TileError) as caught:
        grouped_gemm.predict(*arguments, **{"target": "tpu:v6e", **options})
    return str(caught.value)


def test_offsets_must_have_values() -> None:
    assert error_of(X, W, SHAPE) == (
        "offsets is a shape without data, and its values steer grouped_gemm: how long it takes "
        "depends on them\n"
        '  hint: pass values={"offsets": array}, or a list of arrays for their mean and worst'
    )


def test_values_must_be_of_what_steers() -> None:
    assert error_of(X, W, SHAPE, values={"offset": EVEN}) == (
        "values of offset do not steer grouped_gemm\n  hint: these do: offsets"
    )


def test_values_must_have_the_shape() -> None:
    wanted = "  hint: give integers of shape [9], or a list of such arrays"
    for wrong, what in (
        (EVEN[:8], "int64[8]"),
        (EVEN.astype(np.float32), "float32[9]"),
        ([EVEN[:8]], "int64[1, 8]"),
        (np.zeros((0, 9), np.int32), "int32[0, 9]"),
        ("offsets", "<U7[]"),
        ([EVEN, EVEN[:8]], "of several shapes"),
    ):
        assert error_of(X, W, SHAPE, values={"offsets": wrong}) == (
            f"values of offsets are {what}\n{wanted}"
        )


def test_values_must_fit_in_32_bits() -> None:
    message = error_of(X, W, SHAPE, values={"offsets": EVEN << 40})
    assert message.startswith("offsets[1] = 140737488355328 does not fit in int32")


def test_only_tpus_are_predicted() -> None:
    for target in ("cpu", "cuda:sm90"):
        assert error_of(X, W, SHAPE, target=target) == (
            f"times are predicted for TPUs, {target} is none\n"
            "  hint: use one of 'tpu:v4', 'tpu:v5e', 'tpu:v5p', 'tpu:v6e', 'tpu:7x'"
        )


def test_several_tensors_take_sets_together() -> None:
    case = (
        tile.spec((512, 256), "bfloat16"), tile.spec((8, 256, 512), "bfloat16"),
        tile.spec((1024,), "int32"), tile.spec((512, 2), "int32"),
        tile.spec((512, 2), "float32"), tile.spec((9,), "int32"),
    )  # fmt: skip
    lowered = moe.lower(*case, target="tpu:v6e", config=tile.Config(gathers="inside"))
    assert predicting.steering(lowered) == ("token", "slot", "offsets")
    values = {
        "token": np.zeros(1024, int),
        "slot": [np.zeros((512, 2), int), np.ones((512, 2), int)],
        "offsets": [EVEN, EVEN // 2],
    }
    found = predicting.sets(lowered, {}, values)
    assert [(s["token"].sum(), s["slot"][0, 0], s["offsets"][1]) for s in found] == [
        (0, 0, 128),
        (0, 1, 64),
    ]
    with pytest.raises(tile.CallError) as caught:
        predicting.sets(lowered, {}, {**values, "offsets": [EVEN] * 3})
    assert str(caught.value) == (
        "values has 2 sets of slot and 3 of another argument\n  hint: give as many of each, or one"
    )


def test_values_of_arguments_are_used_and_others_go_first() -> None:
    lowered = grouped_gemm.lower(X, W, SHAPE, target="tpu:v6e")
    (found,) = predicting.sets(lowered, {"offsets": EVEN}, {})
    assert found["offsets"].dtype == np.int32 and (found["offsets"] == EVEN).all()
    (found,) = predicting.sets(lowered, {"offsets": EVEN}, {"offsets": EVEN // 2})
    assert (found["offsets"] == EVEN // 2).all()


# ------------------------------------------------------------ how it reads

KERNEL = {
    "name": "grouped_gemm.1", "ours": True, "cycles": 17500.0, "bundles": 3500,
    "stalls": {"units": 1750.0, "reads": 8750.0, "writes": 3500.0}, "read": 7_250_000,
    "written": 0, "matrix": 7000.0, "spills": 0, "notes": {},
}  # fmt: skip
COPY = {
    **KERNEL, "name": "copy.2", "ours": False, "cycles": 1750.0, "stalls": {}, "spills": 12,
    "read": 0, "matrix": 0.0,
}  # fmt: skip


def prediction(*runs: list[dict[str, Any]], transfers: tuple[Transfer, ...] = ()) -> Prediction:
    lowered = grouped_gemm.lower(X, W, SHAPE, target="tpu:v6e")
    answer = {"runs": list(runs), "transfers": [[t.bytes, t.beside] for t in transfers]}
    found = runs_of(answer, CHIPS["v6e"], moved_once=1_450_000)
    return Prediction(lowered.target, lowered.config, found)


def test_a_prediction_is_a_few_lines() -> None:
    found = prediction([KERNEL, COPY], transfers=(Transfer(1_450_000, ("tuple.3",)),))
    assert str(found) == (
        "tpu:v6e, blocks tk=512, tm=256, tn=512: 12.31 us predicted, limit 2 us: 6.16x of it\n"
        "  grouped_gemm.1: 10 us; compute 3 us, traffic 5 us (7,250,000 B read, 0 written); waits: "
        "units 10%, reads 50%, writes 20%; matrix units 20%\n"
        "  copy.2 (XLA): 1 us; compute 1 us, traffic 0 ns (0 B read, 0 written); waits: none; "
        "matrix units 0%; 12 spills\n"
        "  waits for arrays that XLA moves: 1.313 us"
    )
    assert found.seconds == pytest.approx(12.313e-6) and found.limit == pytest.approx(2e-6)
    assert found.runs[0].around == pytest.approx(2.313e-6)


@pytest.mark.parametrize(
    ("transfers", "waits"),
    [
        ((), 0),
        (((1_450_000, ("grouped_gemm.1",)),), 0),  # 1 us, beside a kernel that leaves 5
        (((1_450_000, ("copy.2",)), (1_450_000, ("copy.2",))), 1),  # that kernel's 1 us is gone
        (((8_700_000, ("grouped_gemm.1", "copy.2")),), 0),
        (((8_700_000, ("grouped_gemm.1",)), (1_450_000, ("copy.2",))), 1),
        (((8_700_000, ()), (1_450_000, ("fusion.1",))), 7),
    ],
)
def test_transfers_of_xla_have_the_bandwidth_that_kernels_leave(
    transfers: tuple[tuple[int, tuple[str, ...]], ...], waits: int
) -> None:
    found = prediction([KERNEL, COPY], transfers=tuple(Transfer(*each) for each in transfers))
    latency = CHIPS["v6e"].read if waits else 0
    assert found.runs[0].fetched == pytest.approx(waits * 1e-6 + latency, abs=1e-12)
    assert found.seconds == pytest.approx(11e-6 + found.runs[0].fetched)


def test_what_is_unresolved_is_said() -> None:
    doubtful = {**KERNEL, "notes": {"a condition that is not known": 3}}
    found = prediction([doubtful])
    assert found.notes == {"a condition that is not known": 3}
    assert str(found).splitlines()[-2:] == [
        "  UNRESOLVED, do not compare this time with others:",
        "    a condition that is not known (3 times)",
    ]
    assert prediction([KERNEL]).notes == {}
    assert replace(prediction([KERNEL]), loops=2).notes == {
        "a loop of XLA, of which one turn is counted": 2
    }


def test_several_sets_have_a_mean_and_a_worst() -> None:
    found = prediction([KERNEL], [{**KERNEL, "cycles": 35000.0}])
    assert (found.seconds, found.worst) == (pytest.approx(15e-6), pytest.approx(20e-6))
    assert "15 us (mean of 2 sets, worst 20 us) predicted" in str(found)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(2.5, "2.5 s"), (1e-3, "1 ms"), (12.346e-6, "12.35 us"), (5e-9, "5 ns"), (0.0, "0 ns")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


# ------------------------------------------------------------ workers


def asked(code: str, timeout: float, at: Path) -> str:
    lowered = double.lower(tile.spec((512, 128), "float32"), target="tpu:v6e")
    with Worker((sys.executable, "-c", code)) as worker:
        compiler = predicting.Compiler(worker, str(at))
        with pytest.raises(tile.CompileError) as caught:
            predict(lowered, {}, {}, timeout=timeout, folder=at, compiler=compiler)
    return str(caught.value)


@needs_libtpu
def test_a_worker_that_aborts_is_a_compile_error(tmp_path: Path) -> None:
    message = asked("import os; input(); os.abort()", 60, tmp_path)
    assert "the compiler aborted its process (SIGABRT)" in message


@needs_libtpu
def test_a_worker_that_hangs_is_a_compile_error(tmp_path: Path) -> None:
    message = asked("import time; input(); time.sleep(60)", 1, tmp_path)
    assert "double for tpu:v6e was not compiled within 1 seconds" in message


LEAVING = """
import json, os, sys
for line in sys.stdin:
    dump = json.loads(line)["dump"]
    print(json.dumps({"runs": [[]], "transfers": [], "loops": len(os.listdir(dump))}), flush=True)
    open(os.path.join(dump, "of a program that was refused"), "w").close()
"""


def test_what_an_earlier_program_left_is_no_part_of_an_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """libtpu writes schedules of what XLA does around a kernel before it refuses the kernel."""
    monkeypatch.setattr(predicting, "require_compiler", lambda target: None)
    (dump := tmp_path / "dump").mkdir()
    with Worker((sys.executable, "-c", LEAVING)) as worker:
        compiler = predicting.Compiler(worker, str(dump))
        for rows in (512, 1024):
            lowered = double.lower(tile.spec((rows, 128), "float32"), target="tpu:v6e")
            found = predict(lowered, {}, {}, folder=tmp_path / "kept", compiler=compiler)
            assert found.loops == 0


def test_answers_depend_on_source_versions_target_and_integers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every question that differs in one of them is asked anew; the same one is not."""
    made: list[str] = []

    def answer(lowered: Any, question: Any, *rest: Any) -> dict[str, Any]:
        made.append(question["generation"])
        return {"runs": [[KERNEL]], "transfers": [], "loops": 0}

    monkeypatch.setattr(predicting, "_answer", answer)
    monkeypatch.setattr(predicting, "require_compiler", lambda target: None)
    monkeypatch.setattr(predicting, "_versions", lambda: "libtpu 1")

    def ask(config: tile.Config | None = None, target: str = "tpu:v6e", end: int = 1024) -> int:
        values = np.minimum(EVEN, end)
        lowered = grouped_gemm.lower(X, W, SHAPE, target=target, config=config)
        predict(lowered, {}, {"offsets": values}, folder=tmp_path)
        return len(made)

    assert (ask(), ask(), ask()) == (1, 1, 1)
    assert (ask(end=1000), ask(end=1000)) == (2, 2)
    assert (ask(target="tpu:v5e"), ask(target="tpu:v5e")) == (3, 3)
    assert (ask(tile.Config({"tm": 128})), ask(tile.Config({"tm": 128}))) == (4, 4)
    assert ask() == 4
    monkeypatch.setattr(predicting, "_versions", lambda: "libtpu 2")
    assert ask() == 5


TEXT = """
def moved(size, rate):
    \"\"\"How long it takes.\"\"\"
    return size / rate  # s
"""


@pytest.mark.parametrize(
    ("was", "becomes", "same"),
    [
        ("How long it takes.", "Seconds.", True),
        ("  # s", "", True),
        ("(size, rate)", "(\n    size,\n    rate,\n)", True),
        (" / ", " * ", False),
        ("return", '"How long it takes."\n    return', False),
    ],
)
def test_answers_depend_on_what_code_computes_not_on_its_layout(was, becomes, same):
    changed = TEXT.replace(was, becomes)
    assert changed != TEXT
    assert (predicting.code_of(changed) == predicting.code_of(TEXT)) == same


# ------------------------------------------------------------ the real compiler


@needs_libtpu
def test_a_second_look_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("platformdirs", reason="this environment was made before it was needed")
    x = tile.spec((512, 128), "float32")
    first = double.predict(x, target="tpu:v6e")
    monkeypatch.setattr(predicting, "_answer", None)
    assert double.predict(x, target="tpu:v6e") == first
    assert first.notes == {} and 1e-7 < first.limit < first.seconds < 1e-5
    assert [k.ours for k in first.runs[0].kernels] == [True]
