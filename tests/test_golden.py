"""The generated source of every example for TPU v6e and sm_90, byte for byte as last reviewed.

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
from tests.tiers import HALF, share

ROOT = Path(__file__).resolve().parent.parent
GOLDEN = ROOT / "tests" / "golden"
TARGET = "tpu:v6e"
TARGETS = {"pallas": TARGET, "triton": "cuda:sm90"}  # back end -> what its goldens are for
each = pytest.mark.parametrize("subject", SUBJECTS, ids=str)


def source(subject: Subject, backend: str = "pallas") -> str:
    """For the example's production shapes in bfloat16."""
    return subject.kernel.source(*subject.cases[-2], target=TARGETS[backend])


def path(subject: Subject, backend: str = "pallas") -> Path:
    return GOLDEN / f"{subject.name}.{backend}.py"


@each
@pytest.mark.parametrize("backend", TARGETS)
def test_golden(subject, backend, update_golden):
    text, golden = source(subject, backend), path(subject, backend)
    if update_golden:
        GOLDEN.mkdir(exist_ok=True)
        golden.write_text(text, encoding="utf-8")
    assert golden.exists(), "run pytest --update-golden and review what it writes"
    assert text == golden.read_text(encoding="utf-8")


@pytest.mark.skipif(not HAS_TORCH, reason="the examples spelled in torch are not loaded")
def test_no_golden_without_an_example():
    known = [path(s, backend) for s in SUBJECTS for backend in TARGETS]
    assert sorted(GOLDEN.glob("*.py")) == sorted(known)


def test_goldens_are_clean():
    rules = ["--isolated", "--no-cache", "--select", "E,F,I,W", "--line-length", "100"]
    command = [sys.executable, "-m", "ruff", "check", *rules, *map(str, GOLDEN.glob("*.py"))]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr


DIGESTS = """
import hashlib
from tests.subjects import SUBJECTS
from tests.test_golden import source
texts = (source(s, backend) for s in SUBJECTS for backend in ("pallas", "triton"))
print(*(hashlib.sha256(text.encode()).hexdigest() for text in texts), sep="\\n")
"""


@pytest.mark.parametrize("seed", share(["1", "2"], 3, 2, HALF))
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
    goldens = (path(s, backend) for s in SUBJECTS for backend in TARGETS)
    here = [hashlib.sha256(golden.read_bytes()).hexdigest() for golden in goldens]
    assert run.stdout.split() == here
