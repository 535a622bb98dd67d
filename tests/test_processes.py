"""Chapter `processes`: what travels between processes, and what only seems to."""

import json
from multiprocessing import Pipe, active_children
from statistics import median
from threading import Thread
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from snippets.processes import pickling_stages, share_memory


@pytest.fixture(scope="module")
def result() -> dict:
    """One run of the whole snippet, on small messages."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(share_memory, "SIZES_KIB", [1, 256])
        result = share_memory.main()
    torch.set_num_threads(threads)
    return result


def test_no_child_is_left(result):
    assert not active_children()


def test_the_array_travels_and_the_tensor_does_not(result):
    small, large = result["rows"]
    assert small["array_payload_bytes"] > 1024 and large["array_payload_bytes"] > 256 * 1024
    assert max(row["shared_payload_bytes"] for row in result["rows"]) < 1000
    assert abs(small["shared_payload_bytes"] - large["shared_payload_bytes"]) <= 16


def test_the_childs_write_is_seen_in_shared_memory_only(result):
    assert [row["shared_write_seen"] for row in result["rows"]] == [True, True]
    assert [row["array_write_seen"] for row in result["rows"]] == [False, False]


def test_a_plain_tensor_moves_to_shared_memory_when_sent(result):
    assert (result["plain_shared_before"], result["plain_shared_after"]) == (False, True)


def test_figures_follow_from_the_trials(result):
    for row in result["rows"]:
        assert set(row["us"]) == set(row["us_trials"]) == {"array", "shared", "copy", "clone and share"}
        for name, trials in row["us_trials"].items():
            assert len(trials) == 7 and row["us"][name] == pytest.approx(median(trials))


def test_a_child_that_dies_is_noticed():
    with pytest.raises(RuntimeError, match="exit code 1"), share_memory.child(share_memory.receive) as connection:
        connection.send_bytes(b"this is no pickle")
        with pytest.raises(EOFError):
            connection.recv()
        connection.send_bytes = lambda payload: None  # nobody is left to be told to stop


def test_the_child_answers_each_message_until_told_to_stop():
    class Connection:
        def __init__(self, *inbox):
            self.inbox, self.answers = list(inbox), []

        def recv_bytes(self):
            return self.inbox.pop(0)

        def send(self, answer):
            self.answers.append(answer)

    message = bytes(share_memory.ForkingPickler.dumps([4.0, 5.0, 6.0]))
    connection = Connection(message, message, b"")
    share_memory.receive(connection)
    assert connection.answers == [(4.0, len(message))] * 2 and not connection.inbox


def test_a_wrong_answer_is_an_error():
    class Connection:
        def send_bytes(self, payload):
            pass

        def recv(self):
            return 2.0, 99

    assert share_memory.send(Connection(), torch.tensor([2.0, 3.0])) == 99
    with pytest.raises(AssertionError):
        share_memory.send(Connection(), torch.tensor([1.0, 3.0]))


def answer_with_double(connection) -> None:
    for payload in iter(connection.recv_bytes, b""):
        connection.send(2 * share_memory.ForkingPickler.loads(payload))


def test_a_borrower_starts_a_child_of_his_own():
    with share_memory.child(answer_with_double) as connection:
        connection.send(21)
        assert connection.recv() == 42
    assert not active_children()


def test_plot_shows_both_sends_and_the_copy(result):
    ax = share_memory.plot(result, {}).axes[0]
    assert len(ax.get_lines()) == 3 and ax.get_lines()[-1].get_color() == "gray"
    assert list(ax.get_lines()[0].get_ydata()) == [row["us"]["array"] for row in result["rows"]]
    assert ax.get_xscale() == ax.get_yscale() == "log"
    plt.close(ax.figure)


def test_stages_of_a_message_follow_each_other():
    ours, theirs = Pipe()
    child = Thread(target=pickling_stages.receive, args=(theirs,))
    child.start()
    rows = [pickling_stages.send(ours, np.arange(100_000.0)) for _ in range(2)]
    ours.send_bytes(b"")
    child.join()
    for row in rows:
        assert min(row["dumps"], row["pipe"], row["loads"]) > 0
    assert rows[1]["pages"] >= rows[0]["pages"] > 0


def test_new_memory_is_counted_by_message(monkeypatch, capsys):
    asked = []

    def run(command, env, stdout, check):
        asked.append({name: value for name, value in env.items() if name.startswith("MALLOC_")})
        kept = bool(asked[-1])
        times = {"dumps": 2.0, "pipe": 3.0, "loads": 1.0, "copy": 0.5}
        pages = [0 if kept else 1000 * i for i in range(pickling_stages.TRIALS)]
        return SimpleNamespace(stdout=json.dumps([{"pages": each} | times for each in pages]))

    monkeypatch.setattr(pickling_stages, "run", run)
    result = pickling_stages.main()
    assert asked == [{}, pickling_stages.KEEP]
    mib = round(1000 * pickling_stages.getpagesize() / 2**20)
    assert result["new_mib"] == {"as it is": mib, "memory kept": 0}
    assert result["ms"]["as it is"] == {"dumps": 2, "pipe": 3, "loads": 1, "copy": 0.5}
    assert "memory kept dumps 2.0, pipe 3.0" in capsys.readouterr().out
    (ax,) = pickling_stages.plot(result, {}).axes
    assert [bar.get_x() for bar in ax.patches] == [0, 0, 2, 2, 5, 5]
    plt.close(ax.figure)


def test_recorded_runs_can_be_drawn(recorded):
    for snippet in (share_memory, pickling_stages):
        for result in recorded(f"processes/{snippet.__name__.split('.')[-1]}").values():
            plt.close(snippet.plot(result, {}))
