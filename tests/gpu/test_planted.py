"""Every planted bug is caught by a check of the examples; the texts without it are right."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import tilelang as tile
from tests import checks
from tests.gpu.planted import BUGS, SPLIT
from tests.ragged import Space, every_stratum
from tests.subjects import SUBJECTS
from tilelang.codegen.source import Source

if os.environ.get("TRITON_INTERPRET") != "1" or importlib.util.find_spec("triton") is None:
    pytest.skip("needs Triton, and TRITON_INTERPRET=1", allow_module_level=True)

from tests.frameworks import from_torch
from tests.gpu import interpreter

SPACE = Space(45, 4, 16)


def caught(planted):
    """What a check says about the text with the bug; "" if none says anything."""
    subject = next(s for s in SUBJECTS if s.name == planted.subject)
    asked: Any = {"split": 3} if planted.form == SPLIT else {"worklist": planted.form}
    config = tile.Config(subject.blocks, **asked)
    arrays = subject.arrays("float32", rows=SPACE.rows, groups=SPACE.groups)

    def run(*args):
        lowered = subject.kernel.lower(*args, config=config, target=interpreter.TARGET)
        host = Source(planted.plant(lowered.source.text), lowered.source.entry).load()
        return from_torch(host, [a for a in args if isinstance(a, np.ndarray)])

    layouts = every_stratum(subject.ragged.space(SPACE))
    for layout in layouts:
        found = checks.every_layout(subject, run, arrays, [layout], "float32")
        if found:
            return found[0]
    found = checks.neighbours(subject, run, arrays, layouts[-2:])
    return found[0] if found else ""


def apart(planted):
    """The same in a process of its own: a wrong address may end it, which is found out as well."""
    number = BUGS.index(planted)
    code = f"from tests.gpu.test_planted import BUGS, caught; print(caught(BUGS[{number}]))"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return run.stdout.strip() or (f"ended with {run.returncode}" if run.returncode else "")


@pytest.mark.thorough
@pytest.mark.parametrize("planted", BUGS, ids=str)
def test_every_bug_is_caught(planted):
    assert apart(planted)
