"""python -m tilelang check: which kernels of a file, the table, the exit code, workers that die."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tilelang as tile
from tests.aot.written import double, needs_libtpu
from tilelang.__main__ import main
from tilelang.aot import Compiled, CompiledMemory, Worker
from tilelang.codegen.pallas.target import Target
from tilelang.commands import table
from tilelang.commands.cases import Case, cases_of
from tilelang.commands.check import CheckRow, check
from tilelang.schedule.config import Config

ROOT = Path(__file__).resolve().parents[2]
HEAD = "import tilelang as tile\nimport tilelang.language as hl\n"
KERNEL = """
@tile.kernel
def {name}(x):
    y = hl.empty(x.shape, dtype=x.dtype)
    for tm in hl.tile(x.shape[0]):
        y[tm, :] = x[tm, :] + x[tm, :]
    return y
"""
CASE = Case("double", double, (tile.spec((512, 128), "float32"),))
# Answers as the real worker does, except that it dies of the second request.
ONCE = """
import json, os, sys
sys.stdin.readline()
reply = dict(code=1, temporaries=0, copies=[], bundles=None, seconds=0.5, warnings=[], payload="")
print(json.dumps(reply), flush=True)
sys.stdin.readline()
os.abort()
"""


def written(folder, text, name="mine.py"):
    path = folder / name
    path.write_text(HEAD + text)
    return path


def result(**changes):
    parts = {"memory": CompiledMemory(1, 1, 0), "copies": (), "seconds": 0.5, **changes}
    return Compiled(Target.of("tpu:v6e"), Config(), "", **parts)


# ------------------------------------------------------------ which kernels, with what


def test_kernels_and_their_cases(tmp_path):
    text = KERNEL.format(name="plain") + KERNEL.format(name="with_bias")
    text += "from tests.aot.written import double\n"  # somebody else's: not checked here
    text += "CASES = ((tile.spec((8, 128), 'float32'),), (tile.spec((16, 128), 'bfloat16'),))\n"
    text += "BIAS_CASES = CASES[:1]\n"
    found = cases_of(written(tmp_path, text))
    assert [(c.name, str(c)) for c in found] == [
        ("plain", "float32[8, 128]"),
        ("plain", "bfloat16[16, 128]"),
        ("with_bias", "float32[8, 128]"),
    ]


def test_a_function_that_says_which(tmp_path):
    text = KERNEL.format(name="plain") + KERNEL.format(name="left_out")
    text += "def cases():\n    yield plain, (tile.spec((8, 128), 'float32'),)\n"
    assert [c.name for c in cases_of(written(tmp_path, text))] == ["plain"]


WRONG = [
    ("x = 1", "has no kernel"),
    (KERNEL.format(name="plain"), "does not say with which arguments to compile plain"),
    ("raise ValueError('broken')", "cannot be imported: ValueError: broken"),
    ("def cases(): return []", "yields nothing"),
    (
        KERNEL.format(name="plain") + "def cases(): yield plain, tile.spec((8, 128), 'float32')",
        r"cases\(\) of .* yields \(<kernel plain",
    ),
    (
        KERNEL.format(name="plain") + "CASES = (tile.spec((8, 128), 'float32'),)",
        "a case of plain in .* is a TensorSpec",
    ),
    ("def cases(): yield 3", r"cases\(\) of .* yields 3"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_files_that_say_nothing_to_compile(tmp_path, text, message):
    with pytest.raises(tile.CallError, match=message):
        cases_of(written(tmp_path, text))


def test_a_missing_file(tmp_path):
    with pytest.raises(tile.CallError, match=r"nothing\.py is not a file"):
        cases_of(tmp_path / "nothing.py")


# ------------------------------------------------------------ the table


def test_cells():
    moved = result(memory=CompiledMemory(1, 1, 2_500_000), copies=(1, 2))
    assert table.cell(result()) == "ok 0.50 s"
    assert table.cell(moved) == "ok 0.50 s, 2.50 MB, 2 moved"
    assert table.cell(tile.CompileError("f for tpu:v6e does not compile: no\nmore")) == "FAILED no"


def test_a_line_for_each_case_and_each_failure_once():
    error = tile.CompileError("double for tpu:7x does not compile: no such op", hint="another op")
    other = Case("again", double, (tile.spec((8, 128), "int8"), 3))
    rows = [
        CheckRow(CASE, "tpu:v6e", result()),
        CheckRow(other, "tpu:v6e", result()),
        CheckRow(CASE, "tpu:7x", error),
        CheckRow(other, "tpu:7x", error),
    ]
    assert table.plain(*table.table(rows)) == "\n".join(
        [
            "kernel  case               tpu:v6e    tpu:7x",
            "------  -----------------  ---------  -----------------",
            "double  float32[512, 128]  ok 0.50 s  FAILED no such op",
            "again   int8[8, 128], 3    ok 0.50 s  FAILED no such op",
        ]
    )
    assert table.failures(rows) == [
        "CompileError: double for tpu:7x does not compile: no such op\n"
        "  hint: another op\n"
        "  tpu:7x: float32[512, 128]\n"
        "  tpu:7x: int8[8, 128], 3"
    ]


# ------------------------------------------------------------ workers


@needs_libtpu
def test_a_worker_that_dies_is_replaced():
    started = []

    def start(target):
        started.append(Worker([sys.executable, "-c", ONCE]))
        return started[-1]

    rows = check([CASE] * 3, ["tpu:v6e"], timeout=20, start=start)
    assert [row.failed for row in rows] == [False, True, False]
    assert "SIGABRT" in str(rows[1].result)
    assert len(started) == 2 and not any(worker.alive for worker in started)


# ------------------------------------------------------------ the command


@needs_libtpu
def test_the_table_and_the_exit_code(tmp_path, capsys):
    text = KERNEL.format(name="plain") + "CASES = ((tile.spec((512, 128), 'float32'),),"
    good = written(tmp_path, text + ")\n", "good.py")
    bad = written(tmp_path, text + "(tile.spec((512, 128), 'float16'),))\n", "bad.py")
    assert main(["check", str(good), str(bad), "--targets", "v6e,tpu:v5e"]) == 1
    printed = capsys.readouterr().out
    assert "tpu:v6e" in printed and "tpu:v5e" in printed
    assert "FAILED x is float16, and tpu:v6e does not compute in it" in printed
    assert "def plain(x):" in printed and "use bfloat16 or float32" in printed
    assert printed.endswith("4 of 6 compile\n")
    empty = written(tmp_path, "", "__init__.py")
    assert main(["check", str(empty), str(good), "--targets", "v6e"]) == 0


def test_what_makes_no_sense(tmp_path, capsys):
    assert main(["check", str(tmp_path / "nothing.py")]) == 2
    assert "nothing.py is not a file" in capsys.readouterr().err
    assert main(["check", "nothing.py", "--targets", "v9"]) == 2
    assert "unknown target 'tpu:v9'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["check", "--jobs", "0"], "argument --jobs: '0' is not a whole number from 1 on"),
        (["check", "--timeout", "-1"], "argument --timeout: '-1' is not a number of seconds above"),
        (
            ["tune", "--budget", "nan"],
            "argument --budget: 'nan' is not a number of seconds above",
        ),
        (["tune", "--trials", "some"], "argument --trials: 'some' is not a whole number from 1 on"),
    ],
)
def test_numbers_that_make_no_sense(given, words, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*given, "FILE.py"])
    assert caught.value.code == 2
    assert words in capsys.readouterr().err


def test_help():
    command = [sys.executable, "-m", "tilelang", "--help"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0
    assert "check" in run.stdout and "doctor" in run.stdout
