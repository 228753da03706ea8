"""Every example compiles with the real TPU compiler for every generation, with its default config.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(
    f"examples.{path.parent.name}.{path.stem}"
    for folder in ("dense", "jagged")
    for path in (ROOT / "examples" / folder).glob("*.py")
    if path.stem != "__init__"
)
GENERATIONS = ("v5e", "v5p", "v6e", "7x")

needs_libtpu = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="the TPU compiler is not installed: pip install 'raggedtile[tpu]'",
)


def test_there_are_examples() -> None:
    assert len(MODULES) >= 13


@needs_libtpu
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_example_compiles(generation: str) -> None:
    command = [sys.executable, "-m", "tests.tpu.compile_worker", generation, *MODULES]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(rows) >= 6 * len(MODULES)
    failed = [f"{r['kernel']} ({r['case']}): {r['error']}" for r in rows if "error" in r]
    assert not failed, "\n".join(failed)
