"""python -m tilelang check FILE... | tune FILE... | doctor

check   compile every kernel of some files for TPUs and GPUs, on a machine without one
tune    try configs for every kernel of some files, and put the best into a lock file
doctor  versions, devices, and combinations that are known not to work
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

from .aot import GENERATIONS
from .aot.compile import require_compiler
from .autotune.lock import NAME
from .commands import doctor
from .commands.cases import cases_of
from .commands.check import check
from .commands.table import show
from .commands.tune import jobs, tuned
from .errors import TileError
from .runtime.lowering import target_of
from .tuning import tune


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if all is well, 1 if something failed, 2 if what was asked for makes no sense."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except TileError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parser() -> argparse.ArgumentParser:
    """The command line."""
    top = argparse.ArgumentParser(
        prog="python -m tilelang",
        description="Check kernels for TPUs and GPUs, and the installation.",
    )
    commands = top.add_subparsers(required=True, metavar="COMMAND")
    checks = commands.add_parser(
        "check", help="compile every kernel of some files, without a TPU or a GPU"
    )
    checks.add_argument("files", nargs="+", type=Path, metavar="FILE")
    checks.add_argument(
        "--targets",
        default=",".join(GENERATIONS),
        help="TPU generations and GPUs (cuda:sm90), separated by commas (default: %(default)s)",
    )
    checks.add_argument("--jobs", type=_count, default=2, help="compilers at a time (default: 2)")
    checks.add_argument(
        "--timeout", type=_seconds, default=120, help="seconds for one kernel (default: 120)"
    )
    checks.set_defaults(run=_check)
    _add_tune(commands)
    looks = commands.add_parser("doctor", help="versions, devices, and known-bad combinations")
    looks.add_argument(
        "--devices", action="store_true", help="initialise a TPU to see whether it is there"
    )
    looks.set_defaults(run=_doctor)
    return top


def _count(text: str) -> int:
    """A number of things, of which there has to be one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _seconds(text: str) -> float:
    """A time that passes and ends."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds above 0")
    return value


def _add_tune(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    tunes = commands.add_parser("tune", help="try configs, and put the best into a lock file")
    tunes.add_argument("files", nargs="+", type=Path, metavar="FILE")
    tunes.add_argument(
        "--targets",
        default="v6e",
        help="TPU generations, or cuda:sm90 with --by device, separated by commas (default: v6e)",
    )
    tunes.add_argument("--trials", type=_count, help="configs of each kernel (default: 20)")
    tunes.add_argument(
        "--budget", type=_seconds, help="seconds for each kernel, instead of --trials"
    )
    tunes.add_argument("--by", default="model", choices=("model", "device"))
    tunes.add_argument("--objective", default="mean", choices=("mean", "worst"))
    tunes.add_argument(
        "--timeout", type=_seconds, default=120, help="seconds for one process (default: 120)"
    )
    tunes.add_argument("--lock", type=Path, default=Path(NAME), help=f"(default: {NAME})")
    tunes.add_argument(
        "--check", action="store_true", help="say whether the lock file still holds; change nothing"
    )
    tunes.set_defaults(run=_tune)


def _tune(options: argparse.Namespace) -> int:
    names = [part.strip() for part in options.targets.split(",")]
    targets = [n if ":" in n or n == "cpu" else f"tpu:{n}" for n in dict.fromkeys(names)]
    cases = [case for path in options.files for case in cases_of(path)]
    wanted = {n: getattr(options, n) for n in ("trials", "budget", "by", "objective", "timeout")}
    failed = 0
    for _, text, bad in tuned(jobs(cases, targets), tune, options.lock, options.check, wanted):
        print(text, flush=True)
        failed += bad
    return 1 if failed else 0


def _check(options: argparse.Namespace) -> int:
    names = [part.strip() for part in options.targets.split(",")]
    full = [name if ":" in name else f"tpu:{name}" for name in names]
    targets = [target_of(name) for name in dict.fromkeys(full)]
    # FOLDER/*.py names the folder's own file too, which rarely has kernels.
    files = [path for path in options.files if path.name != "__init__.py"] or options.files
    cases = [case for path in files for case in cases_of(path)]
    for target in targets:
        require_compiler(target)
    rows = check(cases, [t.name for t in targets], jobs=options.jobs, timeout=options.timeout)
    show(rows)
    failed = sum(row.failed for row in rows)
    print(f"\n{len(rows) - failed} of {len(rows)} compile")
    return 1 if failed else 0


def _doctor(options: argparse.Namespace) -> int:
    installed = doctor.look()
    print("\n".join(doctor.lines(installed, doctor.devices(installed, options.devices))))
    return 1 if doctor.sick(installed) else 0


if __name__ == "__main__":
    sys.exit(main())
