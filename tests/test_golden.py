"""The generated source of every example for TPU v6e, byte for byte as it was last reviewed.

    pytest --update-golden -k golden     writes tests/golden anew; the diff is what to review

Goldens are also linted, and are the same in processes that hash strings differently.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.subjects import HAS_TORCH, SUBJECTS, Subject

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
TARGET = "tpu:v6e"
each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


def source(subject: Subject) -> str:
    """For the example's production shapes in bfloat16."""
    return subject.kernel.source(*subject.cases[-2], target=TARGET)


def path(subject: Subject) -> Path:
    return GOLDEN / f"{subject.name}.pallas.py"


@each
def test_golden(subject, update_golden):
    text = source(subject)
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        path(subject).write_text(text, encoding="utf-8")
    assert path(subject).exists(), "run pytest --update-golden and review what it writes"
    assert text == path(subject).read_text(encoding="utf-8")


@pytest.mark.skipif(not HAS_TORCH, reason="the examples spelled in torch are not loaded")
def test_no_golden_without_an_example():
    assert sorted(GOLDEN.glob("*.py")) == sorted(map(path, SUBJECTS))


def test_goldens_are_clean():
    rules = ["--isolated", "--no-cache", "--select", "E,F,I,W", "--line-length", "100"]
    command = [sys.executable, "-m", "ruff", "check", *rules, *map(str, GOLDEN.glob("*.py"))]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


DIGESTS = """
import hashlib
from tests.subjects import SUBJECTS
from tests.test_golden import source
print(*(hashlib.sha256(source(s).encode()).hexdigest() for s in SUBJECTS), sep="\\n")
"""


@pytest.mark.slow
@pytest.mark.parametrize("seed", ["1", "2"])
def test_golden_is_the_same_in_every_process(seed):
    run = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    here = [hashlib.sha256(path(s).read_bytes()).hexdigest() for s in SUBJECTS]
    assert run.stdout.split() == here
