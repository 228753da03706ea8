"""python -m tilelang tune: choices go to the lock file, and --check says whether they hold."""

from __future__ import annotations

import functools
import json

import pytest

from tests.tuning.kernels import COMMAND
from tilelang import __main__, tuning

FILE = """
import numpy as np
import tilelang as tile
import tilelang.language as hl


@tile.kernel
def scale_rows(x, s):
    out = hl.empty(x.shape, dtype=x.dtype)
    for tm, tn in hl.tile(x.shape):
        out[tm, tn] = x[tm, tn] * s[tm][:, None]
    return out


def cases():
    for rows in ROWS:
        yield scale_rows, (np.ones((rows, 8), np.float32), np.ones(rows, np.float32))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made = functools.partial(tuning.tune, command=COMMAND, folder=tmp_path / "trials")
    monkeypatch.setattr(__main__, "tune", made)

    def run(*more: str, rows: str = "(1000, 600)", name: str = "tried") -> int:
        (tmp_path / f"{name}.py").write_text(FILE.replace("ROWS", rows))
        options = ("--targets", "cpu", "--by", "device", "--trials", "4")
        return __main__.main(["tune", f"{name}.py", *options, *more])

    return run


def test_choices_go_to_the_lock_file_and_hold(run, tmp_path, capsys):
    assert run() == 0
    out = capsys.readouterr().out
    assert out.count("chosen: tm=128, tn=8") == 2
    data = json.loads((tmp_path / "tilelang.lock").read_text())
    assert [e["arguments"].partition(",")[0] for e in data["entries"]] == [
        "x: float32[1000", "x: float32[600"
    ]  # fmt: skip
    assert run("--check") == 0
    assert capsys.readouterr().out.count("the config in tilelang.lock holds") == 2


def test_check_fails_where_nothing_was_chosen(run, tmp_path, capsys):
    (tmp_path / "tilelang.lock").write_text('{"format": 1, "entries": []}')
    assert run("--check", rows="(500,)", name="other") == 1
    assert "other.py:scale_rows(x: float32[500, 8], s: float32[500]) on cpu has no entry" in (
        capsys.readouterr().out
    )
