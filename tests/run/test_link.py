"""The line to the controller: what is kept, what is sent again, how long it waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from haibun.core.events import AttemptStarted
from haibun.run.link import FIRST_RETRY, LAST_RETRY, Outbox, backoff


def event(n: int) -> AttemptStarted:
    return AttemptStarted(float(n), "j", n)


def test_reports_are_sent_once_a_connection_and_kept_until_acknowledged() -> None:
    box = Outbox()
    box.add(event(1))
    box.add(event(2))
    assert [r.seq for r in box.to_send()] == [1, 2]
    assert box.to_send() == []
    box.acknowledged(1)
    box.acknowledged(1)
    box.reconnected()
    box.add(event(3))
    assert [r.seq for r in box.to_send()] == [2, 3]


@given(st.lists(st.sampled_from(["add", "send", "drop", "ack"]), max_size=60))
def test_no_report_is_lost_or_reordered_whatever_the_connection_does(what: list[str]) -> None:
    box, made = Outbox(), 0
    seen: list[int] = []
    unacknowledged: list[int] = []
    for action in what:
        if action == "add":
            made += 1
            box.add(event(made))
        elif action == "send":
            sent = [r.seq for r in box.to_send()]
            assert sent == sorted(sent)
            seen += sent
            unacknowledged += sent
        elif action == "ack" and unacknowledged:
            box.acknowledged(unacknowledged.pop(0))
        elif action == "drop":
            unacknowledged.clear()
            box.reconnected()
    box.reconnected()
    seen += [r.seq for r in box.to_send()]
    assert set(seen) == set(range(1, made + 1))


@given(st.integers(0, 10_000), st.floats(0, 1))
def test_back_off_grows_to_a_cap_and_is_never_without_chance(tries: int, draw: float) -> None:
    wait = backoff(tries, lambda: draw)
    assert FIRST_RETRY / 2 <= wait <= LAST_RETRY
    assert backoff(tries, lambda: 0.0) < backoff(tries, lambda: 1.0)
    assert backoff(tries + 1, lambda: draw) >= wait
