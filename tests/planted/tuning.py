"""Bugs planted in the tuner, the times that it goes by and its lock file, and the test that must
notice each."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

import tilelang as tile
from tests.aot import test_hlo
from tests.autotune import test_predict
from tests.planted.passes import Mutation
from tests.tuning import test_lock, test_tune, test_tune_gpu
from tests.tuning.kernels import tuned
from tilelang import tuning
from tilelang.aot import hlo
from tilelang.api import Kernel
from tilelang.autotune import lock, proof, trials
from tilelang.autotune.model import prediction, store
from tilelang.codegen.triton.plan import space
from tilelang.runtime import shape_class

_entry, _find, _trial = lock._entry, lock.Lock.find, tuning._trial
_completed = space.completed
_differing, _class_of, _kept = proof._differing, shape_class.class_of, store.kept


def _in_a_folder(test, *arguments):
    def run():
        with tempfile.TemporaryDirectory() as at, pytest.MonkeyPatch.context() as patch:
            patch.delenv(lock.VARIABLE, raising=False)
            patch.setattr(lock, "_used", [None])
            patch.setattr(lock, "_SAID", set())
            test(Path(at), *arguments)

    return run


def _with_lock(test, *arguments):
    def run(folder):
        tuned(folder / "trials").save(folder / "tilelang.lock")
        test(folder / "tilelang.lock", *arguments)

    return _in_a_folder(run)


def _without_digest(data, path):
    rest = {name: value for name, value in data.items() if name != "digest"}
    return _entry({**rest, "digest": lock._digest(rest)}, path)


def _any_target(self, subject):
    return next((e for e in self.entries.values() if isinstance(e, lock.LockEntry)), None)


def _whatever_text(self, parsed, target, used):
    arguments, _ = self._subject(parsed)
    return used.find(lock.Subject(self._written, arguments, target.name))


def _open_everywhere(a, b, is_open, tolerance):
    return _differing(a, b, True, tolerance) & ~proof.np.isnan(b)


def _good(ask, candidate):
    found = _trial(ask, candidate)
    return found if found.end == "good" else replace(found, end="good", seconds=(1e-9,))


def _exact(ir, facts, exact=False):
    return _class_of(ir, facts, exact=True)


def _never_kept(key, make, at, patience):
    return make()


def _by_config_alone(key, make, at, patience):
    return _kept("one question", make, at, patience)


def _first_of_default(problem, config, target):
    return _completed(problem, tile.Config(), target)


FAILS = test_tune.test_what_fails_is_reported_and_skipped
EDITED = ((lambda e: e["config"].update(blocks={"tm": 64}), False, "it was changed after it was"),)
CHANGED = _with_lock(test_lock.test_a_changed_kernel_is_said_once_and_not_served)


def _alone(kernels, transfers, bandwidth):
    return sum(_waits(kernels, [each], bandwidth) for each in transfers)


_waits = prediction._waits
TRANSFERS = test_predict.test_transfers_of_xla_have_the_bandwidth_that_kernels_leave
MUTATIONS = [
    Mutation("configs for GPUs are always near the default", space, "completed", _first_of_default,
             test_tune_gpu.test_configs_near_another_are_one_change_away),
    Mutation("an edited entry is served", lock, "_entry", _without_digest,
             _with_lock(test_lock.test_an_entry_that_does_not_hold_is_said_and_the_default_used,
                        *EDITED[0])),
    Mutation("an entry of another target is served", lock.Lock, "find", _any_target,
             _with_lock(test_lock.test_another_target_has_its_default)),
    Mutation("an entry of another text of the kernel is served", Kernel, "_entry", _whatever_text,
             CHANGED),
    Mutation("launches do not know which lock file they are of", lock, "token", lambda: "",
             _with_lock(test_lock.test_the_launch_of_a_call_is_that_of_the_lock)),
    Mutation("poison in a candidate's results is overlooked", proof, "_differing",
             _open_everywhere, _in_a_folder(FAILS, "nan", "wrong")),
    Mutation("what fails counts as fast", tuning, "_trial", _good,
             _in_a_folder(FAILS, "wrong", "wrong")),
    Mutation("candidates are not compared", proof, "wrong", lambda *given: "",
             _in_a_folder(FAILS, "wrong", "wrong")),
    Mutation("trials are not kept", store, "kept", _never_kept,
             lambda: _resumed()),
    Mutation("every trial is one question", store, "kept", _by_config_alone,
             _in_a_folder(test_tune.test_the_fastest_config_is_chosen)),
    Mutation("each length is a class of its own", shape_class, "class_of", _exact,
             lambda: test_tune.test_lengths_of_one_class_go_together()),
    Mutation("the worst case does not count", trials, "OBJECTIVES",
             {"mean": trials.OBJECTIVES["mean"], "worst": trials.OBJECTIVES["mean"]},
             lambda: test_tune.test_mean_and_worst_are_over_the_cases()),
    Mutation("parts of arrays that XLA moves are overlooked", hlo, "ENDS",
             frozenset(("copy-done",)), test_hlo.test_bytes_that_move_between_memories),
    Mutation("XLA moves arrays while nothing runs", prediction, "_waits",
             lambda kernels, transfers, bandwidth: sum(size for size, _ in transfers) / bandwidth,
             lambda: TRANSFERS(((1_450_000, ("grouped_gemm.1",)),), 0)),
    Mutation("each transfer has what a kernel leaves to itself", prediction, "_waits", _alone,
             lambda: TRANSFERS(((1_450_000, ("copy.2",)), (1_450_000, ("copy.2",))), 1)),
    Mutation("a slower choice holds", tuning, "SLOWER", 10.0,
             _with_lock(lambda path: test_lock.test_a_slower_choice_does_not_hold(
                 path, path.parent))),
]  # fmt: skip


def _resumed():
    def run(folder):
        first = tuned(folder, trials=2)
        assert tuned(folder, {512: "crash", 1000: "crash"}, trials=2) == first

    _in_a_folder(run)()
