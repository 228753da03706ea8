"""What every test may rely on: the CPU, cheap programs, no deadlines, and --update-golden."""

from __future__ import annotations

import gc
import importlib.util
import os
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

from tests import xla
from tests.forgotten import forget
from tilelang import Kernel

# Before anything imports JAX: where libtpu is installed, JAX would look for a TPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")
xla.compile_cheaply()

# The first example of a kernel compiles it: no deadline.  CI draws the same examples every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Folders of tests most of which compile programs, and then run them for milliseconds.
COMPILED = {"aot", "bodies", "by_hand", "codegen", "examples", "gradients", "passes", "runtime",
            "schedule", "transforms"}  # fmt: skip

# The Python of `make test-next` has no torch: what cannot be imported without it is left out.
if importlib.util.find_spec("torch") is None:
    collect_ignore = ["frontend"]  # its cases are spelled in torch

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(collector: pytest.Collector):
        report = yield
        if report.failed and "No module named 'torch'" in str(report.longrepr):
            report.outcome, report.result = "skipped", []
            report.longrepr = (str(collector.path), 0, "Skipped: needs torch, here or in an import")
        return report


def pytest_collection_finish() -> None:
    """What is there now stays: looking through it again and again is a sixth of all tracing.

    Most of what is new is gone before so much more is there.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 20, 50)


@pytest.fixture(scope="module", autouse=True)
def _stays() -> Iterator[None]:
    """What a file of tests leaves behind, compiled programs most of all, is not looked through."""
    yield
    gc.freeze()


@pytest.fixture
def monkeypatch(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """What kernels file while something is patched is forgotten: other tests call them too."""
    made: list[Kernel] = []
    parsed = Kernel._parsed

    def noted(kernel: Kernel, given: Any) -> Any:
        made.append(kernel)
        return parsed(kernel, given)

    with mock.patch.object(Kernel, "_parsed", noted):
        yield monkeypatch
    for kernel in made:
        forget(kernel)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --update-golden` writes the expected files anew; the diff is what to review."""
    parser.addoption("--update-golden", action="store_true", help="write expected sources anew")
    parser.addoption("--every", type=int, default=1, help="so manieth cases of what has many")
    parser.addoption("--every-slow", type=int, default=1, help="the same of slow cases")
    parser.addoption("--rest", default="slow", help="the tier of the others that are not slow")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`make test` runs every sixth case of a test that has several, CI every third.

    Of the cases that are marked as slow CI runs every sixth; `make thorough` runs all.  Tests of
    one file take turns, as those of `tests.tiers` do.  It goes for tests that compile a program for
    each case, but for goldens and planted bugs, which lie beside this file.
    """
    rest = config.getoption("--rest")
    cases: dict[tuple[object, str, bool], list[pytest.Item]] = {}
    for item in (i for i in items if i.path.parent.name in COMPILED and "[" in i.name):
        if isinstance(item, pytest.Function):
            slow = any(item.iter_markers("slow"))
            cases.setdefault((item.path, item.originalname, slow), []).append(item)
    for turn, ((_, _, slow), several) in enumerate(cases.items()):
        every = config.getoption("--every-slow" if slow else "--every")
        kept = range(turn % min(every, len(several)), len(several), every)
        for place in set(range(len(several))) - set(kept):
            several[place].add_marker("thorough" if slow else rest)


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))
