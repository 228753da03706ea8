"""What a specialisation read is what it rests on: however it was read, wherever that stands."""

from __future__ import annotations

import importlib.util
import itertools
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

import pytest

import tilelang as tile
from tests.reading import planted
from tests.reading.cases import CASES, PLACES, Case
from tilelang.frontend import parsed
from tilelang.reads import stamp
from tilelang.runtime.choices import Choices
from tilelang.texts import texts

X = tile.spec((40, 24), "float32")
_NUMBERS = itertools.count()


@pytest.fixture(autouse=True)
def _settings():
    torch = pytest.importorskip("torch", reason="some cases read its tensors")
    yield
    torch.set_default_dtype(torch.float32)
    os.environ.pop("TILE_TEST", None)


def load(folder: Any, text: str) -> ModuleType:
    """A module of that text."""
    name = f"reading_{next(_NUMBERS)}"
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Parses:
    """A kernel that is parsed when no earlier parse holds; as Kernel does it, without a plan."""

    def __init__(self, fn: FunctionType) -> None:
        self.fn, self.texts, self.known, self.compiles = fn, texts(fn), Choices(), 0

    def __call__(self, argument: Any) -> str:
        found = self.known.find(stamp(argument), (self.fn, None, argument))
        if found is None:
            made = parsed(self.fn, {"x": X, "c": argument}, self.texts)
            found = str(made.ir)
            self.known.add(stamp(argument), made.reads, found)
            self.compiles += 1
        return found


class Compiles:
    """The kernel itself."""

    def __init__(self, fn: FunctionType) -> None:
        self.kernel = tile.kernel(fn)

    def __call__(self, argument: Any) -> str:
        return str(self.kernel.lower(X, argument).ir)

    @property
    def compiles(self) -> int:
        return self.kernel.stats().compiles


def verdict(folder: Any, case: Case, place: str, made: Any = Parses) -> str:
    """ "" if the kernel follows the change, and parses nothing while nothing changes."""
    module = load(folder, case.program(place))
    fn = module.kernel.__wrapped__
    kernel, argument = made(fn), partial(eval, case.argument, vars(module))
    before = kernel(argument())
    if kernel(argument()) != before or kernel.compiles != 1:
        return "compiled again without a change"
    exec(case.change, vars(module))
    after = kernel(argument())
    if after == before:
        return "stale"
    if after != made(fn)(argument()):
        return "neither old nor new"
    if kernel(argument()) != after or kernel.compiles != 2:
        return "compiled again after the change"
    return ""


# What is inlined has ops of the language, which host functions may not call.
WHERE = [(c, p) for c in CASES for p in PLACES if "inlined" not in c.name or p != "host function"]


@pytest.mark.parametrize(("case", "place"), WHERE, ids=str)
def test_a_change_is_followed(case, place, tmp_path):
    assert verdict(tmp_path, case, place) == ""


@pytest.mark.parametrize("case", CASES[::6], ids=str)
def test_a_kernel_follows_it(case, tmp_path):
    assert verdict(tmp_path, case, "helper", Compiles) == ""


@pytest.mark.parametrize("planted", planted.BUGS, ids=str)
def test_a_planted_bug_is_noticed(planted, tmp_path, monkeypatch):
    monkeypatch.setattr(planted.owner, planted.name, planted.value)
    case = next(c for c in CASES if c.name == planted.case)
    assert verdict(tmp_path, case, planted.place) != ""


WHOLE = """
import numpy as np
import tilelang as tile, tilelang.language as hl
table = np.ones(24)
@tile.kernel
def kernel(x):
    out = hl.empty(x.shape, dtype=x.dtype)
    for r in hl.tile(x.shape[0]):
        out[r, :] = x[r, :] * table
    return out
"""


def test_a_captured_array_is_refused_as_a_whole(tmp_path):
    with pytest.raises(tile.TypingError) as caught:
        load(tmp_path, WHOLE).kernel.source(X)
    assert caught.value.what == "an array from outside of the kernel is used as a value"
    hint = "pass it to the kernel as an argument, and load the part that this step needs"
    assert caught.value.hint == hint
    assert caught.value.loc is not None and "x[r, :] * table" in caught.value.loc.caret()


# ---------------------------------------------------------------- the text

EDITED = """
import tilelang as tile, tilelang.language as hl
def helper(v): return v * 2
@tile.kernel
def kernel(x, c=None):
    out = hl.empty(x.shape, dtype=x.dtype)
    for r in hl.tile(x.shape[0]):
        out[r, :] = helper(x[r, :]) + 2
    return out
"""


@pytest.mark.parametrize(
    "edit", [("2", "77"), ("+", "-"), ("\ndef", "\n\n\ndef"), ("x[r, :]", "(")]
)
def test_a_file_that_is_edited_after_its_import(edit, tmp_path):
    module = load(tmp_path, EDITED)
    before = str(module.kernel.lower(X).ir)
    Path(module.__file__).write_text(EDITED.replace(*edit))
    shorter = tile.spec((10, 24), "float32")
    assert str(module.kernel.lower(shorter).ir) == before.replace("40", "10")


def late(folder):
    """A kernel whose helper stands in a file that it does not name, and which was edited."""
    helpers = load(folder, "def helper(v):\n    return v * 2\n")
    text = EDITED.replace("def helper(v): return v * 2", "holder = []")
    module = load(folder, text.replace("helper(", "holder[0]("))
    module.holder.append(helpers.helper)
    Path(helpers.__file__).write_text("def helper(v):\n    return v - 2\n")
    return helpers, module.kernel


def test_a_helper_whose_file_was_edited_is_refused(tmp_path):
    helpers, kernel = late(tmp_path)
    with pytest.raises(tile.ParseError) as caught:
        kernel.source(X)
    where = f"{helpers.__file__}, line 1"
    assert (
        caught.value.what
        == ("the source of helper is not found where it was (in helper, called from line 8)")
        or caught.value.what == "the source of helper is not found where it was"
    )
    assert caught.value.hint == f"the file was changed after it was imported ({where}): reload it"
    assert caught.value.loc is not None and "holder[0](x[r, :])" in caught.value.loc.caret()


def test_without_the_check_it_would_be_compiled(tmp_path, monkeypatch):
    _, kernel = late(tmp_path)
    bug = planted.UNVERIFIED
    monkeypatch.setattr(bug.owner, bug.name, bug.value)
    assert "- 2" in kernel.source(X)


def test_decorating_loads_no_stage():
    code = (
        "import sys, tests.reading.plain; "
        "assert not {'jax', 'tilelang.frontend', 'tilelang.schedule.problem'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
