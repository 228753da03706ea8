"""The demo's text and batches: whatever the bytes are, a bounded and right batch comes out."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from examples.real_text import batches, text


def _document(content: str | bytes, folder) -> text.Document:
    path = folder / "input"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return text.read(path)


def test_sentences_end_at_full_stops_and_empty_lines():
    found = list(text.sentences("One two. Three, four!\nfive\n\nsix 3.14 (e.g. seven)"))
    assert found == [
        ["One", "two", "."],
        ["Three", ",", "four", "!"],
        ["five"],
        ["six", "3", ".", "14", "(", "e", ".", "g", "."],
        ["seven", ")"],
    ]


@pytest.mark.parametrize("content", ["", " \n\n\t ", "\n" * 5000], ids=["empty", "blank", "lines"])
def test_text_without_words_is_an_empty_batch(content, tmp_path):
    assert text.batch([_document(content, tmp_path)], 2048) == []


def test_one_word_is_one_sentence(tmp_path):
    assert text.batch([_document("word", tmp_path)], 2048) == [["word"]]


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 64, b"\x00" * 4096, b"\xff\xfe" * 4096, b"\xf0\x9f\x92" + b"a" * 300],
    ids=["all-bytes", "zeros", "no-utf8", "cut-utf8"],
)
def test_binary_is_taken_as_it_comes(content, tmp_path):
    batch = text.batch([_document(content, tmp_path)], 2048)
    assert batch and all(0 < len(s) <= text.MAX_SENTENCE for s in batch)


def test_a_long_run_is_cut_and_the_batch_is_bounded(tmp_path):
    batch = text.batch([_document("word " * 10_000, tmp_path)], 1000)
    assert [len(s) for s in batch] == [256, 256, 256]


def test_a_huge_file_is_read_in_part(tmp_path):
    document = _document(b"a. " * (text.MAX_BYTES // 2), tmp_path)
    assert len(document.text) == text.MAX_BYTES


def test_documents_take_turns():
    documents = [text.Document("a", "A one. A two. A three."), text.Document("b", "B one.")]
    firsts = [" ".join(s) for s in text.batch(documents, 2048)]
    assert firsts == ["A one .", "B one .", "A two .", "A three ."]


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(text.UnreadableError, match=r"cannot read .*nowhere: No such file"):
        text.read(tmp_path / "nowhere")


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(text.UnreadableError, match="Is a directory"):
        text.read(tmp_path)


def test_the_default_documentation_is_the_same_every_time_and_no_constant():
    first = text.documentation()
    assert first == text.documentation()
    lengths = {len(s) for s in text.batch(first, 2048)}
    assert 10 < len(first) <= text.MAX_DOCUMENTS and len(lengths) > 10


def test_embeddings_depend_on_the_token_alone():
    rows, offsets = batches.embed([["A", "b"], ["a"], ["c", "b", "B"]], width=4)
    assert offsets.tolist() == [0, 2, 3, 6] and offsets.dtype == np.int64
    np.testing.assert_array_equal(rows[0], rows[2])
    np.testing.assert_array_equal(rows[1], rows[5])
    assert not np.array_equal(rows[0], rows[1])


def test_the_router_sends_every_row_to_two_different_experts():
    rows, _ = batches.embed([[f"token{i}" for i in range(50)]], width=8)
    routed, offsets = batches.route(rows, experts=6)
    assert routed.shape == (100, 8) and offsets[0] == 0 and offsets[-1] == 100
    for begin, end in pairwise(offsets):
        assert len(np.unique(routed[begin:end], axis=0)) == end - begin
    np.testing.assert_array_equal(np.sort(routed, axis=0), np.sort(np.repeat(rows, 2, 0), axis=0))


def test_no_rows_make_empty_groups():
    rows, offsets = batches.embed([], width=8)
    routed, groups = batches.route(rows, experts=3)
    assert rows.shape == routed.shape == (0, 8)
    assert offsets.tolist() == [0] and groups.tolist() == [0, 0, 0, 0]
    assert [a.shape for a in batches.heads(rows, 2, 4)] == [(2, 0, 4)] * 3
    assert batches.Lengths.of(offsets).summary() == "-"
