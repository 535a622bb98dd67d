"""The cache: names that follow the inputs, and files that are whole."""

import os
import tempfile
from pathlib import Path

import pytest

from overlap import OverlapError
from overlap.book import local_runs
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
    with pytest.raises(OverlapError, match=r"kept\.json: .*No space left.*free some space"):
        write(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize(
    ("spoil", "remedy"),
    [
        (lambda folder: folder.write_text("a file"), "stands a file: move that away"),
        (lambda folder: (folder / "x.json").mkdir(parents=True), "a folder has its name: move that away"),
    ],
)
def test_a_file_that_cannot_be_written_says_where_and_what_to_do(tmp_path, spoil, remedy):
    folder = tmp_path / "folder"
    spoil(folder)
    with pytest.raises(OverlapError) as caught:
        write(folder / "x.json", "new")
    assert str(caught.value).startswith(f"{folder}/x.json: cannot be written (") and remedy in str(
        caught.value
    )


def test_a_checkout_that_cannot_be_written_has_its_cache_elsewhere(tmp_path, monkeypatch):
    checkout, users = tmp_path / "checkout", tmp_path / "users"
    checkout.mkdir()
    users.mkdir()
    monkeypatch.setenv("XDG_CACHE_HOME", str(users))
    assert local_runs.cache_folder(checkout) == checkout / ".cache/overlap"
    locked = {checkout}
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) not in locked)
    elsewhere = local_runs.cache_folder(checkout)
    assert elsewhere.parent == users and elsewhere != local_runs.cache_folder(tmp_path / "another")
    locked.add(users)
    assert local_runs.cache_folder(checkout).parent == Path(tempfile.gettempdir())
