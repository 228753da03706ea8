"""The compiler's answers are kept: by text, shapes and versions; deaths are not."""

from __future__ import annotations

import pytest

from tests import compile_cache
from tests.compile_cache import CachedWorker
from tilelang.aot import Gone

REQUEST = {"text": "def f(): ...", "operands": [], "topology": "v5e:2x2", "serialize": True}


class Counting:
    """A worker that answers with the number of requests that were made of any."""

    asked = 0
    alive = True

    def ask(self, request, timeout):
        Counting.asked += 1
        if request["text"] == "die":
            self.alive = False
            raise Gone(-6, "")
        return {"number": Counting.asked, "serialize": request["serialize"]}

    def close(self):
        self.alive = False


@pytest.fixture
def cache(monkeypatch, tmp_path):
    monkeypatch.setattr(compile_cache, "Worker", Counting)
    monkeypatch.setattr(compile_cache, "versions", lambda compiler: "libtpu 1")
    Counting.asked = 0
    return tmp_path / "compiled"


def test_an_answer_is_asked_for_once(cache):
    with CachedWorker(cache) as first:
        assert first.ask(REQUEST, 1) == {"number": 1, "serialize": False}
        assert first.ask(REQUEST, 1)["number"] == 1
        assert first.ask({**REQUEST, "text": "def g(): ..."}, 1)["number"] == 2
        assert first.compiled == 2
    with CachedWorker(cache) as second:
        assert second.ask(REQUEST, 1)["number"] == 1
        assert second.compiled == 0
    assert len(list(cache.iterdir())) == 2


def test_other_versions_are_asked_again(cache, monkeypatch):
    with CachedWorker(cache) as worker:
        worker.ask(REQUEST, 1)
        monkeypatch.setattr(compile_cache, "versions", lambda compiler: "libtpu 99")
        assert worker.ask(REQUEST, 1)["number"] == 2


def test_a_death_is_not_kept(cache):
    with CachedWorker(cache) as worker:
        for _ in range(2):
            with pytest.raises(Gone):
                worker.ask({**REQUEST, "text": "die"}, 1)
        assert worker.alive and Counting.asked == 2
        assert worker.ask(REQUEST, 1)["number"] == 3


def test_where_answers_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert compile_cache.folder() == tmp_path / "raggedtile" / "compiled"
