"""findings(installed) -> Finding...: versions that are known not to work together, and what to do.

The rules are functions of version numbers alone; only `look` asks the machine.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

NAMES = ("jax", "jaxlib", "libtpu", "torch", "numpy")
OLDEST_JAX = (0, 10, 2)
# Printed by a process of its own: a runtime that hangs or aborts must not take the doctor with it.
DEVICES = (
    "import json, jax; print(json.dumps([f'{d.platform}: {d.device_kind}' for d in jax.devices()]))"
)


@dataclass(frozen=True)
class Installed:
    """Versions by name, None if absent.

    wanted  the libtpu that the installed JAX was released with, as it asks for it: "0.0.42.*"
    other   version of another distribution that is named `tilelang`
    """

    python: str
    jax: str | None = None
    jaxlib: str | None = None
    libtpu: str | None = None
    torch: str | None = None
    numpy: str | None = None
    wanted: str | None = None
    other: str | None = None


@dataclass(frozen=True)
class Finding:
    """Something worth knowing; `harmless` if nothing needs to be done."""

    what: str
    do: str
    harmless: bool = False

    def __str__(self) -> str:
        return f"{'note' if self.harmless else 'PROBLEM'}: {self.what}; {self.do}"


def findings(installed: Installed) -> tuple[Finding, ...]:
    """Every rule that these versions break."""
    return tuple(_distribution(installed)) + tuple(_jax(installed)) + tuple(_libtpu(installed))


def look() -> Installed:
    """What is installed here; imports none of it."""
    versions = {name: _version(name) for name in NAMES}
    return Installed(
        python=platform.python_version(), wanted=_wanted(), other=_version("tilelang"), **versions
    )


def devices(installed: Installed, initialise: bool) -> str:
    """The devices that JAX sees, in a line.

    Where libtpu is installed JAX would take hold of a TPU, so that only the CPU is asked for unless
    `initialise` says otherwise.
    """
    if installed.jax is None:
        return "JAX is not installed"
    environment = dict(os.environ)
    hidden = installed.libtpu is not None and not initialise
    if hidden:
        environment["JAX_PLATFORMS"] = "cpu"
    elif initialise:
        environment.pop("JAX_PLATFORMS", None)
    found = _devices(environment)
    return f"{found} (no TPU was looked for: --devices looks)" if hidden else found


def lines(installed: Installed, seen: str) -> Iterator[str]:
    """The report: versions, devices, findings."""
    yield f"python   {installed.python}"
    for name in NAMES:
        yield f"{name:8} {getattr(installed, name) or 'not installed'}"
    yield f"devices  {seen}"
    found = findings(installed)
    yield from map(str, found)
    if not found:
        yield "nothing known is wrong with these versions"


def sick(installed: Installed) -> bool:
    """Whether something needs to be done."""
    return any(not finding.harmless for finding in findings(installed))


def _distribution(installed: Installed) -> Iterator[Finding]:
    if installed.other is not None:
        yield Finding(
            f"tilelang {installed.other} is another project that installs into the same directory",
            "pip uninstall -y tilelang && pip install --force-reinstall raggedtile",
        )


def _jax(installed: Installed) -> Iterator[Finding]:
    if installed.jax is None:
        yield Finding(
            "JAX is not installed: kernels can be printed, not run",
            "pip install 'raggedtile[jax]'",
            harmless=True,
        )
        return
    version = number(installed.jax)
    if version < OLDEST_JAX:
        yield Finding(f"JAX {installed.jax} is older than 0.10.2", "pip install -U jax")
    if (0, 11, 0) <= version <= (0, 11, 2):
        yield Finding(
            f"JAX {installed.jax} freezes the grid of a kernel function that serves several grids",
            "nothing to do for kernels of this package, each source has its own function",
            harmless=True,
        )


def _libtpu(installed: Installed) -> Iterator[Finding]:
    if installed.libtpu is None:
        yield Finding(
            "libtpu is not installed: kernels cannot be compiled for TPUs",
            "pip install 'raggedtile[tpu]'",
            harmless=True,
        )
        return
    version = number(installed.libtpu)
    if (0, 0, 43) <= version[:3] <= (0, 0, 45):
        yield Finding(
            f"libtpu {installed.libtpu} may hand zeros to kernels with an operand that is not read",
            "upgrade: pip install -U 'jax[tpu]'",
        )
    if installed.wanted is not None and version < number(installed.wanted):
        yield Finding(
            f"jaxlib {installed.jaxlib} is newer than libtpu {installed.libtpu} "
            f"(JAX asks for {installed.wanted})",
            "install a pair that was released together: pip install -U 'jax[tpu]'",
        )


def number(version: str) -> tuple[int, ...]:
    """(0, 11, 1) for "0.11.1rc2", (0, 0, 42) for "0.0.42.*"."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release.group().split(".")) if release else ()


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _wanted() -> str | None:
    """The libtpu that the installed JAX names in its extra `tpu`."""
    try:
        asked = metadata.requires("jax") or []
    except metadata.PackageNotFoundError:
        return None
    named = (re.match(r"libtpu\s*[=~>]=\s*([\d.*]+)", text) for text in asked)
    return next((match[1] for match in named if match), None)


def _devices(environment: dict[str, str]) -> str:
    command = [sys.executable, "-P", "-c", DEVICES]
    try:
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    except subprocess.TimeoutExpired:
        return "JAX found none within 60 seconds"
    if run.returncode:
        said = run.stderr.strip().splitlines()
        return f"JAX cannot start: {said[-1] if said else f'exit code {run.returncode}'}"
    return ", ".join(json.loads(run.stdout.splitlines()[-1]))
