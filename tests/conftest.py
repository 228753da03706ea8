"""What every test may rely on: the CPU, no deadlines, and --update-golden."""

from __future__ import annotations

import importlib.util
import os

import pytest
from hypothesis import settings

# Before anything imports JAX: where libtpu is installed, JAX would look for a TPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# The first example of a kernel compiles it: no deadline.  CI draws the same examples every time.
settings.register_profile("local", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# Kernels spelled in torch and calls from it; the Python of `make test-next` has no torch.
if importlib.util.find_spec("torch") is None:
    collect_ignore = [
        "frontend",
        "runtime/test_launch.py",
        "runtime/test_tensors.py",
        "test_api.py",
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest --update-golden` writes the expected files anew; the diff is what to review."""
    parser.addoption("--update-golden", action="store_true", help="write expected sources anew")


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    """Whether golden files are to be written instead of compared."""
    return bool(request.config.getoption("--update-golden"))
