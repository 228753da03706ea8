"""Every planted bug is caught, and what is printed without one passes the same checks.

Also a share of `python -m tests.interpreter`, and what tells its findings from silence.
"""

from __future__ import annotations

from functools import partial

import jax
import pytest
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from tests import checks, interpreter
from tests.planted import trial
from tests.planted.bug import Bug, bug
from tests.planted.bugs import BUGS
from tests.planted.cores import unsafe_splits
from tests.planted.ranges import RANGES
from tests.ragged import wild_offsets
from tests.subjects import HAS_TORCH, SUBJECTS

NAMES = {subject.name for subject in SUBJECTS}
HERE = [b for b in BUGS if b.subject in NAMES]  # without torch not every example is there
PRINTED = sorted({(b.subject, b.form) for b in HERE})
LONG = ("varlen_attention", "exact")  # as long as all the others together
SHARE_SEED = 7

# What only a strict interpreter has to notice.
_SUM = partial(bug, "jagged_sum", "table")
PAST_THE_END = _SUM("window past the end", "(tm_of[n], tf)", "(tm_of[n] + 90, tf)")
NOT_INITIALISED = _SUM("not initialised", "= jnp.zeros((1, 128), jnp.float32)", "= acc_ref[...]")


@pytest.mark.slow
@pytest.mark.parametrize("planted", HERE, ids=str)
def test_a_planted_bug_is_caught(planted):
    assert trial.verdict(planted) is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "form"),
    [
        pytest.param(*p, marks=pytest.mark.thorough if p == LONG or n % 2 else ())
        for n, p in enumerate(PRINTED)
    ],
)
def test_without_a_bug_nothing_is_reported(name, form):
    assert trial.soundness(name, form) is None


def test_there_are_enough_bugs_and_each_has_a_name():
    assert len(HERE) >= 30 and len({str(b) for b in BUGS}) == len(BUGS)
    assert not HAS_TORCH or len(HERE) == len(BUGS)


@pytest.mark.parametrize("planted", HERE, ids=str)
def test_a_bug_changes_the_text(planted):
    text = trial.printed(planted.subject, planted.form).source.text
    assert planted.plant(text) != text


@pytest.mark.parametrize("edit", [("not in the text", ""), ("import", "import")])
def test_a_dead_bug_is_an_error(edit):
    with pytest.raises(ValueError, match="the text has no"):
        Bug("dead", "grouped_gemm", "table", (edit,)).plant("import jax")


@pytest.mark.parametrize("subject", SUBJECTS, ids=str)
def test_no_example_splits_a_block_over_cores(subject):
    for form in ("default", "emit_pipeline", "cores"):
        text = trial.text_of(subject, form)
        assert text is None or unsafe_splits(text) == [], form


# ---------------------------------------------------------------- the TPU interpreter


@pytest.mark.slow
def test_a_share_of_the_interpreter_runs():
    chosen = interpreter.able(SHARE_SEED)[::24]
    for program, outcome in interpreter.run_all(chosen, 2 * len(chosen), SHARE_SEED):
        assert (outcome.runs, outcome.findings) == (2, ()), str(program)


@pytest.mark.slow
@pytest.mark.parametrize("planted", [PAST_THE_END, NOT_INITIALISED], ids=str)
def test_the_interpreter_is_not_silent(planted):
    lowered = trial.printed(planted.subject, planted.form)
    strict = pltpu.InterpretParams(detect_races=True)
    call = trial.runnable(lowered, planted.plant(lowered.source.text), strict)
    subject = trial.named(planted.subject)
    layout = trial.LAYOUTS[-1]
    assert interpreter.one_run(subject, call, trial.arrays_of(subject.name), layout) != []


def strictly(planted: Bug, text: str, offsets: str) -> list[str]:
    """What the strict interpreter finds in a text under wild offsets."""
    lowered, subject = trial.printed(planted.subject, planted.form), trial.named(planted.subject)
    call = trial.runnable(lowered, text, pltpu.InterpretParams(detect_races=True))
    try:
        cuts = wild_offsets(trial.SPACE)[offsets]
        return list(checks.unchecked(subject, call, trial.arrays_of(subject.name), cuts))
    except Exception as error:  # an access outside of a buffer raises
        return [f"{type(error).__name__}: {error}"]
    finally:
        pltpu.reset_tpu_interpret_mode_state()


@pytest.mark.slow
@pytest.mark.parametrize(("planted", "offsets"), RANGES, ids=str)
def test_a_missing_clamp_is_found(planted, offsets):
    text = trial.printed(planted.subject, planted.form).source.text
    assert strictly(planted, planted.plant(text), offsets) != []


@pytest.mark.slow
@pytest.mark.parametrize("form", sorted({planted.form for planted, _ in RANGES}))
def test_no_clamp_is_missing(form):
    planted = next(b for b, _ in RANGES if b.form == form)
    text = trial.printed(planted.subject, form).source.text
    for offsets in sorted({o for _, o in RANGES}):
        assert strictly(planted, text, offsets) == []


@pytest.mark.parametrize("early", [False, True])
def test_a_race_is_found(early):
    """A block is read while it is copied, or after that."""

    def kernel(x, y, block, done):
        copy = pltpu.make_async_copy(x, block, done)
        copy.start()
        if not early:
            copy.wait()
        y[...] = block[...]
        if early:
            copy.wait()

    shape = jax.ShapeDtypeStruct((8, 128), "float32")
    run = pl.pallas_call(
        kernel,
        out_shape=shape,
        in_specs=[pl.BlockSpec(memory_space=pl.ANY)],
        scratch_shapes=[
            pltpu.VMEM((8, 128), jax.numpy.dtype("float32")),
            pltpu.SemaphoreType.DMA(()),
        ],
        interpret=pltpu.InterpretParams(detect_races=True),
    )
    try:
        jax.block_until_ready(run(jax.numpy.ones((8, 128))))
        found = interpreter.races_found()
    except jax.errors.JaxRuntimeError as error:  # JAX 0.12 stops at a race
        found = "RACE DETECTED" in str(error)
    finally:
        pltpu.reset_tpu_interpret_mode_state()
    assert found == early


def test_runs_are_shared_out_exactly(monkeypatch):
    counts = []

    def run(program, count, seed):
        counts.append(count)
        return interpreter.Outcome(count, (), 0)

    monkeypatch.setattr(interpreter, "run", run)
    outcomes = list(interpreter.run_all(interpreter.programs(0)[:3], 10, 0))
    assert sum(outcome.runs for _, outcome in outcomes) == 10
    assert counts == [4, 3, 3]
