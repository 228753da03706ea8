"""The lock file: what it answers, when it says that it does not, and that nothing stale is run."""

from __future__ import annotations

import json
import shutil
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.tuning.kernels import BEST, DEFAULT, arguments, scale_rows, sums, tuned
from tilelang.autotune import lock as locks


@pytest.fixture(autouse=True)
def none_used(monkeypatch):
    monkeypatch.delenv(locks.VARIABLE, raising=False)
    monkeypatch.setattr(locks, "_used", [None])
    monkeypatch.setattr(locks, "_SAID", set())


@pytest.fixture(scope="module")
def tried(tmp_path_factory):
    """A folder with the trials of a tuning, and the lock file of what it chose."""
    folder = tmp_path_factory.mktemp("tuned")
    tuned(folder / "trials").save(folder / "tilelang.lock")
    return folder


@pytest.fixture
def path(tried, tmp_path):
    """That lock file, and the trials beside it, for one test alone."""
    shutil.copytree(tried, tmp_path, dirs_exist_ok=True)
    return tmp_path / "tilelang.lock"


def chosen(kernel=scale_rows, rows=1000):
    return kernel.lower(*arguments(rows), target="cpu").config


def test_the_choice_is_used_and_explained(path):
    default = chosen()
    tile.use(path)
    assert chosen() == tile.Config({"tm": 128, "tn": 8}) != default
    assert f"{chosen()} from {path}" in scale_rows.explain(*arguments(), target="cpu")
    assert chosen(rows=999) == scale_rows.default_config(*arguments(999), target="cpu")
    assert scale_rows.lower(*arguments(), target="cpu", config=default).config == default
    tile.use(None)
    assert chosen() == default and " from " not in scale_rows.explain(*arguments()).split("\n")[1]


def test_another_target_has_its_default(path):
    x, s = arguments()
    default = scale_rows.default_config(x, s, target="tpu:v6e")
    tile.use(path)
    assert default != tile.Config({"tm": 128, "tn": 8})
    assert scale_rows.lower(x, s, target="tpu:v6e").config == default


def test_the_environment_names_it(path, monkeypatch):
    monkeypatch.setenv(locks.VARIABLE, str(path))
    monkeypatch.setattr(locks, "_used", [])
    assert chosen().block("tm") == BEST


def test_calls_after_use_run_what_the_lock_says(path, monkeypatch):
    x, s = arguments()
    ran = []
    real = type(scale_rows)._kept
    monkeypatch.setattr(
        type(scale_rows), "_kept",
        lambda self, *asked: ran.append(asked[1]) or real(self, *asked),
    )  # fmt: skip
    for call in (lambda: scale_rows(x, s), lambda: scale_rows(jnp.asarray(x), jnp.asarray(s))):
        for used, config in ((None, None), (path, tile.Config({"tm": 128, "tn": 8})), (None, None)):
            ran.clear()
            tile.use(used)
            np.testing.assert_array_equal(call(), x * s[:, None])
            assert set(ran) <= {config}, "a config that is not asked for any more"
    tile.use(path)
    ran.clear()
    jax.jit(scale_rows)(jnp.asarray(x), jnp.asarray(s))
    assert set(ran) <= {tile.Config({"tm": 128, "tn": 8})}


def test_the_launch_of_a_call_is_that_of_the_lock(path):
    x, s = arguments()
    fresh = tile.Kernel(scale_rows.__wrapped__)
    for used, count in ((None, 1), (path, 2), (None, 2), (path, 2)):
        tile.use(used)
        fresh(x, s)
        assert fresh.stats().specialisations == count, "a launch of another lock file was found"


def test_a_changed_kernel_is_said_once_and_not_served(path):
    namespace = {"hl": hl, "tile": tile, "__name__": "changed"}
    source = (
        "@tile.kernel\ndef scale_rows(x, s):\n    out = hl.empty(x.shape, dtype=x.dtype)\n"
        "    for tm, tn in hl.tile(x.shape):\n"
        "        out[tm, tn] = x[tm, tn] * s[tm][:, None] + 1\n    return out\n"
    )
    import linecache

    linecache.cache["/elsewhere/kernels.py"] = (
        len(source), None, source.splitlines(True), "/elsewhere/kernels.py",
    )  # fmt: skip
    exec(compile(source, "/elsewhere/kernels.py", "exec"), namespace)
    changed = namespace["scale_rows"]
    tile.use(path)
    with pytest.warns(tile.LockWarning, match="is not used: the kernel has changed; the default"):
        assert chosen(changed) == changed.default_config(*arguments(), target="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert chosen(changed).block("tm") == DEFAULT


def edit(path, change, digest=True):
    """Changes the one entry of a file, with the right digest if that is wanted."""
    data = json.loads(path.read_text())
    (entry,) = data["entries"]
    change(entry)
    if digest:
        entry["digest"] = locks._digest({k: v for k, v in entry.items() if k != "digest"})
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "digest", "says"),
    [
        (lambda e: e["config"].update(blocks={"tm": 64}), False, "it was changed after it was"),
        pytest.param(
            lambda e: e["config"].update(blocks={"tq": 64}),
            True,
            "its config is refused (config na",
            marks=pytest.mark.slow,
        ),
        (lambda e: e["config"].update(warps=4), True, "its config is refused"),
        (lambda e: e["config"].update(tiles=4), True, "its config cannot be read (unknown config"),
        (lambda e: e.update(source="0" * 16), True, "the kernel has changed"),
    ],
)
def test_an_entry_that_does_not_hold_is_said_and_the_default_used(path, change, digest, says):
    edit(path, change, digest)
    tile.use(path)
    with pytest.warns(tile.LockWarning) as warned:
        assert chosen().block("tm") == DEFAULT
    assert says in str(warned[0].message)
    assert "the default config is. Run python -m tilelang tune again" in str(warned[0].message)


def test_two_entries_for_one_thing_are_no_answer(path):
    data = json.loads(path.read_text())
    data["entries"] *= 2
    path.write_text(json.dumps(data))
    tile.use(path)
    with pytest.warns(tile.LockWarning, match="there are two of them"):
        assert chosen().block("tm") == DEFAULT


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("", "is no lock file: it is no JSON"),
        ("<<<<<<< HEAD\n{}", "is no lock file: it is no JSON"),
        ("[]", "is no lock file: it has no entries"),
        ('{"format": 2, "entries": []}', "its format is 2, this version reads 1"),
        ('{"format": 1, "entries": [{}]}', "has an entry of no kernel"),
    ],
)
def test_what_is_no_lock_file_is_an_error(tmp_path, content, says):
    (tmp_path / "x.lock").write_text(content)
    with pytest.raises(tile.CallError) as raised:
        tile.use(tmp_path / "x.lock")
    assert says in str(raised.value)
    assert locks.active() is None


def test_what_is_no_path_is_an_error():
    with pytest.raises(tile.CallError, match="3 is no path of a lock file"):
        tile.use(3)


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(tile.CallError, match="cannot be read: No such file"):
        tile.use(tmp_path / "none.lock")


def test_the_file_is_sorted_and_stable(path):
    text = path.read_text()
    (entry,) = locks.read(path).entries.values()
    other = locks.LockEntry(locks.Subject("a.py:b", "x: int32[2]", "cpu"), "s", entry.config, {})
    locks.write(path, [other])
    both = path.read_text()
    assert both.index("a.py:b") < both.index("kernels.py:scale_rows")
    locks.write(path, [entry])
    assert path.read_text() == both and text != both
    assert set(json.loads(text)["entries"][0]) == {
        "kernel", "arguments", "target", "source", "config", "facts", "digest"
    }  # fmt: skip


def test_check_says_whether_it_holds(path, tmp_path):
    held = tuned(tmp_path / "trials", check=True, lock=path)
    assert held.trials[-1].config.block("tm") == BEST
    edit(path, lambda e: e.update(source="0" * 16))
    with pytest.raises(tile.CallError, match="was made for another text of the kernel"):
        tuned(tmp_path / "trials", check=True, lock=path)
    edit(path, lambda e: e.update(source=scale_rows.subject(*arguments(), target="cpu")[1]))
    edit(path, lambda e: e["config"].update(blocks={"tm": 64}))
    with pytest.raises(tile.CallError):
        tuned(tmp_path / "trials", {64: "wrong"}, check=True, lock=path)


def test_a_slower_choice_does_not_hold(path, tmp_path):
    subject, source = scale_rows.subject(*arguments(), target="cpu")
    trial = tuned(tmp_path / "trials", trials=2).trials
    from dataclasses import replace

    from tilelang import tuning

    slow = replace(trial[1], seconds=(trial[0].seconds[0] * 1.5,))
    found = tile.Tuned(subject, source, "device", "mean", (trial[0], slow), {})
    with pytest.raises(tile.CallError, match=r"takes 1.50 times as long as the default"):
        tuning._require_held(found, path)


def test_a_ragged_class_serves_every_length(tmp_path):
    subject, source = sums.subject(
        tile.spec((64, 8), "float32"), tile.spec((3,), "int32"), target="cpu"
    )
    config = tile.Config({"tf": 8, "tm": 16})
    locks.write(tmp_path / "l", [locks.LockEntry(subject, source, config, {})])
    tile.use(tmp_path / "l")
    for rows in (33, 48, 64):
        x = np.ones((rows, 8), np.float32)
        assert sums.lower(x, tile.spec((3,), "int32"), target="cpu").config == config
        got = sums(x, np.array([0, 5, rows], np.int32))
        np.testing.assert_array_equal(got[:, 0], [5, rows - 5])
    assert sums.lower(np.ones((65, 8), np.float32), tile.spec((3,), "int32")).config != config
