"""The cache: names that follow the inputs, and files that are whole."""

import os

import pytest

from overlap.cache import Cache, write


def test_a_name_follows_the_inputs(tmp_path):
    cache = Cache(tmp_path)
    first = cache.path("runs", "streams/fork_join", {"hash": "a", "gpus": 1}, ".json")
    assert first.parent == tmp_path / "runs"
    assert first.name.startswith("streams-fork_join-") and first.suffix == ".json"
    assert first == cache.path("runs", "streams/fork_join", {"gpus": 1, "hash": "a"}, ".json")
    assert first != cache.path("runs", "streams/fork_join", {"hash": "a", "gpus": 2}, ".json")


def test_a_file_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path):
    cache = Cache(tmp_path)
    path = cache.path("pages", "streams", [], ".html")
    write(path, "é")
    write(path, "second")
    assert path.read_text() == "second"
    assert os.listdir(path.parent) == [path.name]


def test_a_write_that_fails_keeps_the_old_file_and_names_it(tmp_path, monkeypatch):
    path = tmp_path / "kept.json"
    write(path, "old")
    monkeypatch.setattr(
        os, "replace", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(OSError, match="No space left") as error:
        write(path, "new")
    assert error.value.filename == str(path)
    assert path.read_text() == "old" and os.listdir(tmp_path) == [path.name]
