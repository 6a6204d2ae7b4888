"""Corpora, vocabularies and streams of tokens, on texts small enough to work out by hand."""

import gzip
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asym.data.corpus import Document, cut, from_documents, pieces, split_of, standard_library, text_folder
from asym.data.text import Stream, encode_corpus, load_text
from asym.data.vocabulary import learn_pairs, learn_words, words
from asym.names import TEXTS

TEXT = "The cat sat. The cat's mat!\n\nA dog ran; the dog sat."


def _corpus(*texts, splits=None):
    return from_documents("toy", [Document(f"s{i}", t, splits and splits[i]) for i, t in enumerate(texts)])


def _write(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def test_words_by_hand():
    assert words("The cat's mat!\nNo 3—ok") == ["the", "cat's", "mat", "!", "no", "3", "—", "ok"]


def test_the_most_frequent_words_come_first_and_ties_in_their_order():
    learnt = learn_words(["b a b c", "a d b"], 4)
    assert learnt.tokens == ("<unk>", "b", "a", "c")
    assert learnt.counts.tolist() == [1, 3, 2, 1]
    assert learnt.encode("d a b z c").tolist() == [0, 2, 1, 0, 3]
    assert learn_words(["a"], 100).tokens == ("<unk>", "a")


def test_pairs_lose_nothing():
    learnt = learn_pairs(["low lower lowest é"] * 3, 270)
    assert (np.diff(learnt.counts) <= 0).all()
    inverse = {token: i for i, token in enumerate(learnt.tokens)}
    assert len(inverse) == len(learnt.tokens)
    ids = learnt.encode("slower é\n")
    assert "".join(learnt.tokens[i] for i in ids).replace("Ġ", " ").startswith("slower")
    assert len(learnt.encode("low low low")) < 11


@pytest.mark.parametrize(("learn", "size"), [(learn_words, 1), (learn_pairs, 256)])
def test_a_vocabulary_too_small_is_said_so(learn, size):
    with pytest.raises(ValueError, match=f"size: got {size}"):
        learn(["a b"], size)


def test_without_the_library_its_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ModuleNotFoundError, match=r"asym\[text\]"):
        learn_pairs(["a"], 300)


@pytest.mark.parametrize(
    ("path", "split"),
    [("train_10M/childes.train", "train"), ("babylm_dev/bnc_spoken.dev", "val"), ("test/a.txt", "test"),
     ("dev.txt.gz", "val"), ("train/dev.txt", "val"), ("latest.txt", None), ("emma.txt", None)],
)  # fmt: skip
def test_names_that_say_a_split(path, split):
    from pathlib import Path

    assert split_of(Path(path)) == split


@given(st.text(alphabet="ab \n", max_size=200))
def test_cutting_loses_nothing_but_blanks(text):
    parts = cut(text, (("val", 0.1), ("test", 0.1)))
    assert "".join("".join(part for _, part in parts).split()) == "".join(text.split())
    order = [name for name, _ in parts]
    assert order == [name for name in ("train", "val", "test") if name in order]


def test_splits_by_position_document_and_name():
    text = " ".join(f"w{i}" for i in range(100))
    by_position = list(pieces(_corpus(text, text)))
    assert [(p.document, p.split) for p in by_position] == [(d, s) for d in (0, 1) for s in ("train", "val", "test")]
    assert abs(len(by_position[2].text) / len(text) - 0.1) < 0.02
    whole = list(pieces(_corpus(*[f"d{i} x" for i in range(20)]), "document"))
    assert sorted(p.split for p in whole) == ["test"] * 2 + ["train"] * 16 + ["val"] * 2
    other = list(pieces(_corpus(*[f"d{i} x" for i in range(20)]), "document", seed=1))
    assert [p.split for p in whole] != [p.split for p in other]
    named = _corpus("a b", "c d", "e f", splits=["train", "val", "test"])
    assert [p.split for p in pieces(named)] == ["train", "val", "test"]
    held_out = list(pieces(_corpus(text, "e f", splits=["train", "test"])))
    assert [p.split for p in held_out] == ["train", "val", "test"]


@pytest.mark.parametrize(
    ("split", "text", "match"),
    [("half", "a b", "unknown 'half'"), ("given", "a b", "named train and test"), ("document", "a", "at least 3")],
)
def test_splits_that_cannot_be(split, text, match):
    with pytest.raises(ValueError, match=match):
        list(pieces(_corpus(text), split))


def test_a_folder_in_the_layout_of_babylm(tmp_path):
    files = {"train_10M/a.train": "the cat sat on the mat", "dev/a.dev": "the cat sat", "test/a.test.gz": "a cat ran"}
    data = load_text(f"text:{_write(tmp_path, files)}", size=10, name="baby")
    assert (data.name, data.shards) == ("baby", ("a",))
    assert [len(s) for s in (data.train, data.val, data.test)] == [6, 3, 3]
    assert data.tokens[:2] == ("<unk>", "the")
    assert data.test.ids.tolist() == [0, data.tokens.index("cat"), 0]
    assert data.test.characters == len("a cat ran")


def test_paragraphs_can_be_documents(tmp_path):
    folder = _write(tmp_path, {"book.txt": "\n\n".join(["one two three four five six seven eight nine ten"] * 6)})
    data = load_text(f"text:{folder}", documents="paragraph", split="document", size=20)
    assert [len(s.starts) for s in (data.train, data.val, data.test)] == [4, 1, 1]


@pytest.mark.parametrize(
    ("files", "match"),
    [({"a.txt": "x y", "b.txt": ""}, r"b\.txt is empty"), ({"a.txt": " \n"}, r"a\.txt is empty"),
     ({"a.md": "x"}, "has no text files"), ({}, "has no text files"), ({"a.txt": "one two"}, "no document of two")],
)  # fmt: skip
def test_bad_folders_are_one_line(tmp_path, files, match):
    (tmp_path / "in").mkdir()
    with pytest.raises((ValueError, FileNotFoundError), match=match) as error:
        load_text(f"text:{_write(tmp_path / 'in', files)}")
    assert "\n" not in str(error.value)


def test_bytes_that_are_not_text_name_their_file(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 au lait")
    with pytest.raises(ValueError, match=r"a\.txt is not UTF-8 \(byte 3\)"):
        text_folder(tmp_path)
    (tmp_path / "a.txt").unlink()
    (tmp_path / "a.txt.gz").write_bytes(b"\x1f\x8b no")
    with pytest.raises(ValueError, match=r"a\.txt\.gz cannot be read"):
        text_folder(tmp_path)


def test_bad_arguments_name_the_choices(tmp_path):
    for options, match in (
        ({"dataset": "pydok"}, "choose from pydoc"),
        ({"vocabulary": "char"}, "word, bpe"),
        ({"dataset": f"text:{tmp_path / 'no'}"}, "not a folder"),
        ({"dataset": f"text:{tmp_path}", "documents": "line"}, "file, paragraph"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=match):
            load_text(**options)


def test_a_corpus_shorter_than_the_context(tmp_path):
    folder = _write(tmp_path, {"a.txt": " ".join(f"w{i}" for i in range(60))})
    assert len(load_text(f"text:{folder}", context=3).train) > 3
    with pytest.raises(ValueError, match="context of 32 needs more"):
        load_text(f"text:{folder}", context=32)


def test_kept_text_is_the_text(tmp_path):
    first = load_text(cache_dir=tmp_path, size=300)
    again = load_text(cache_dir=tmp_path, size=300)
    assert len(list(tmp_path.iterdir())) == 1
    assert (first.fingerprint, first.tokens, first.shards) == (again.fingerprint, again.tokens, again.shards)
    for split in ("train", "val", "test"):
        a, b = getattr(first, split), getattr(again, split)
        assert (a.ids == b.ids).all()
        assert (a.starts == b.starts).all()
        assert a.characters == b.characters
    assert load_text(cache_dir=tmp_path, size=200).fingerprint != first.fingerprint


def test_the_offline_default_is_english_in_topics():
    corpus = standard_library()
    assert (corpus.name,) == TEXTS
    data = encode_corpus(corpus, size=500)
    assert "STRINGS" in data.shards or len(data.shards) > 30
    assert len(data.train) > 8 * len(data.test) > 0
    assert data.counts.sum() == len(data.train)
    assert "the" in data.tokens[:20]


STREAM = Stream(np.arange(10, dtype=np.int32), np.array([0, 4, 7]), np.array([0, 1, 1], dtype=np.int32), 40)


def test_first_tokens_are_not_predicted():
    assert STREAM.targets.tolist() == [1, 2, 3, 5, 6, 8, 9]
    assert STREAM.begin.tolist() == [0, 0, 0, 0, 4, 4, 4, 7, 7, 7]


def test_parts_are_whole_shards_or_documents():
    a, b = STREAM.partition(2)
    assert (a.ids.tolist(), b.ids.tolist()) == ([4, 5, 6, 7, 8, 9], [0, 1, 2, 3])
    assert (a.starts.tolist(), a.characters) == ([0, 3], 24)
    assert sorted(i for p in STREAM.partition(3) for i in p.ids.tolist()) == list(range(10))
    dealt = {int(STREAM.partition(3, seed)[0].ids[0]) for seed in range(9)}
    assert len(dealt) > 1
    with pytest.raises(ValueError, match="3 documents cannot be dealt to 4"):
        STREAM.partition(4)


def test_a_fraction_takes_the_beginning_of_every_document():
    assert STREAM.fraction(0.5).ids.tolist() == [0, 1, 4, 5, 7, 8]
    assert STREAM.fraction(1.0).ids.tolist() == STREAM.ids.tolist()
    assert STREAM.fraction(0.01).ids.tolist() == [0, 1, 4, 5, 7, 8]


def test_shuffled_labels_keep_frequencies_only():
    shuffled = STREAM.shuffled_labels(0)
    assert sorted(shuffled.ids.tolist()) == STREAM.ids.tolist()
    assert shuffled.ids.tolist() != STREAM.ids.tolist()
    assert shuffled.starts.tolist() == STREAM.starts.tolist()
