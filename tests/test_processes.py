"""Chapter `processes`: what travels between processes, and what only seems to."""

from multiprocessing import active_children
from statistics import median

import matplotlib
import pytest
import torch

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from snippets.processes import share_memory


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
        for name in ("array", "shared", "share", "copy"):
            assert len(row[f"{name}_us_trials"]) == 7
            assert row[f"{name}_us"] == pytest.approx(median(row[f"{name}_us_trials"]))
        assert row["copy_gb_s"] == pytest.approx(row["kib"] * 1024 / row["copy_us"] / 1e3)


def test_a_child_that_dies_is_noticed():
    with pytest.raises(RuntimeError, match="exit code 1"), share_memory.child() as connection:
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


def test_plot_shows_both_sends_and_the_copy():
    row = {"array_us": 90.0, "shared_us": 500.0, "copy_us": 1.0}
    rows = [{"kib": 4} | row, {"kib": 256} | row]
    ax = share_memory.plot({"rows": rows}, {}).axes[0]
    assert [line.get_ydata()[0] for line in ax.get_lines()] == [90, 500, 1]
    assert ax.get_lines()[-1].get_color() == "gray" and ax.get_xscale() == ax.get_yscale() == "log"
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["4", "256"]
    plt.close(ax.figure)


def test_recorded_runs_have_every_size_and_can_be_drawn(recorded):
    for result in recorded("processes/share_memory").values():
        assert [row["kib"] for row in result["rows"]] == share_memory.SIZES_KIB
        for row in result["rows"]:
            assert row["shared_us"] == pytest.approx(median(row["shared_us_trials"]))
            assert row["array_payload_bytes"] > 1024 * row["kib"]
        ax = share_memory.plot(result, {}).axes[0]
        assert list(ax.get_lines()[0].get_ydata()) == [row["array_us"] for row in result["rows"]]
        plt.close(ax.figure)
