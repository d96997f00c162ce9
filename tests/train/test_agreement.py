"""Orders: all ranks of a gang obey after the same step, however they and the agent interleave."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.train.agreement import LOOSE_SECONDS, MIRROR_SECONDS, Agreement, Order
from haibun.train.board import SLOT_BYTES, Board, Command, Header

COMMANDS = [Command.YIELD, Command.HOLD, Command.SAVE, Command.RUN]


def blank_header() -> Header:
    raw = memoryview(bytearray(SLOT_BYTES))
    header = Header(raw.cast("q"), raw.cast("d"), 0)
    header.stop_at = -1
    return header


def ask(header: Header, command: Command) -> None:
    header.command = command
    header.command_seq += 1


class Gang:
    """Ranks in lockstep: to end a step, a rank needs all others to have begun it, as a collective does."""

    def __init__(self, ranks: int, total: int | None = None) -> None:
        self.header = blank_header()
        self.views = [Agreement(self.header, leader=r == 0, margin=1, total=total) for r in range(ranks)]
        self.done = [0] * ranks
        self.held = [False] * ranks
        self.obeyed: list[list[Order]] = [[] for _ in range(ranks)]
        self.stopped = [False] * ranks

    def move(self, rank: int) -> None:
        """Let one rank do what it can do next: end a step, or look at the board while held."""
        if self.stopped[rank]:
            return
        view = self.views[rank]
        if self.held[rank]:
            order = view.poll_held(self.done[rank])
            if order is None:
                return
            self.held[rank] = False
        else:
            if any(self.done[r] < self.done[rank] or self.blocked(r, rank) for r in range(len(self.done))):
                return
            self.done[rank] += 1
            order = view.poll(self.done[rank], now=float(self.done[rank]))
        if order is not None:
            self.obey(rank, order)

    def blocked(self, other: int, rank: int) -> bool:
        """Whether ``other`` stands at the boundary from which ``rank`` wants to step on."""
        return self.done[other] == self.done[rank] and (self.held[other] or self.stopped[other])

    def obey(self, rank: int, order: Order) -> None:
        self.obeyed[rank].append(order)
        self.held[rank] = order.command is Command.HOLD
        # To save and to yield are collective: nobody gets past before all are in.
        self.stopped[rank] = order.command in (Command.YIELD, Command.SAVE)

    def settle(self) -> None:
        for _ in range(200):
            for rank in range(len(self.done)):
                self.move(rank)


@given(
    ranks=st.integers(1, 4),
    moves=st.lists(st.one_of(st.integers(0, 3), st.sampled_from(COMMANDS)), max_size=80),
    last=st.sampled_from([Command.YIELD, Command.SAVE]),
)
def test_all_ranks_save_or_yield_after_the_same_step_whatever_was_asked_before(
    ranks: int, moves: list[int | Command], last: Command
) -> None:
    gang = Gang(ranks)
    for move in moves:
        if isinstance(move, Command):
            ask(gang.header, move)
        else:
            gang.move(move % ranks)
    ask(gang.header, last)
    gang.settle()
    assert all(gang.stopped)
    assert len({(o[-1].command, o[-1].at, done) for o, done in zip(gang.obeyed, gang.done, strict=True)}) == 1
    assert gang.obeyed[0][-1].at == gang.done[0]


@given(st.integers(1, 4), st.integers(0, 10))
def test_no_order_is_given_for_a_step_beyond_the_last(ranks: int, left: int) -> None:
    gang = Gang(ranks, total=20)
    while gang.done[0] < 20 - left:
        for rank in range(ranks):
            gang.move(rank)
    ask(gang.header, Command.YIELD)
    while any(d < 20 and not s for d, s in zip(gang.done, gang.stopped, strict=True)):
        for rank in range(ranks):
            if gang.done[rank] < 20:
                gang.move(rank)
    assert len(set(gang.stopped)) == 1
    assert gang.header.stop_at <= 20


def test_a_single_worker_obeys_at_the_boundary_where_it_reads() -> None:
    header = blank_header()
    view = Agreement(header, leader=True, margin=0)
    assert view.poll(4, 0.0) is None
    ask(header, Command.YIELD)
    assert view.poll(5, 0.0) == Order(Command.YIELD, 5, 1)
    assert view.poll(6, 0.0) is None


def test_a_follower_that_missed_the_word_to_go_on_follows_the_leader() -> None:
    header = blank_header()
    leader, follower = (Agreement(header, leader=r == 0, margin=1) for r in range(2))
    ask(header, Command.HOLD)
    assert leader.poll(1, 0.0) is None
    assert follower.poll(1, 0.0) is None
    assert leader.poll(2, 0.0) == follower.poll(2, 0.0) == Order(Command.HOLD, 2, 1)
    ask(header, Command.RUN)
    assert leader.poll_held(2) == Order(Command.RUN, 2, 2)
    ask(header, Command.SAVE)
    assert leader.poll(3, 0.0) is None  # to be obeyed after step 4; the follower has not moved yet
    waiting = follower.poll_held(2)
    assert waiting is not None
    assert waiting.command is Command.RUN
    assert follower.poll(3, 0.0) is None
    assert leader.poll(4, 0.0) == follower.poll(4, 0.0) == Order(Command.SAVE, 4, 3)


def test_orders_that_agents_carry_to_other_nodes_leave_them_the_time() -> None:
    header = blank_header()
    view = Agreement(header, leader=True, margin=1, slack=MIRROR_SECONDS)
    step_seconds = 0.01
    ask(header, Command.YIELD)
    assert view.poll(1, step_seconds) is None
    assert header.stop_no == 0  # how long a step takes is not known yet
    assert view.poll(2, 2 * step_seconds) is None
    assert (header.stop_at - 2) * step_seconds >= MIRROR_SECONDS
    slow = Agreement(blank_header(), leader=True, margin=1, slack=MIRROR_SECONDS)
    slow.poll(1, 10.0)
    slow.poll(2, 500.0)  # a pause in between does not shorten the margin
    slow.poll(3, 500.0 + step_seconds)
    slow.save_due = 0.0
    slow.poll(4, 1000.0)
    assert (slow._header.stop_at - 4) * step_seconds >= MIRROR_SECONDS * 0.9


def test_ranks_that_share_nothing_in_a_step_stop_where_the_furthest_of_them_can() -> None:
    header = blank_header()
    ahead = [0]
    view = Agreement(header, leader=True, margin=2, slack=LOOSE_SECONDS, furthest=lambda: ahead[0])
    view.poll(1, 0.0)
    ahead[0] = 30
    ask(header, Command.YIELD)
    view.poll(2, 0.01)
    assert header.stop_at >= 30 + 2 + LOOSE_SECONDS / 0.01


def test_a_checkpoint_that_is_due_waits_for_a_command_in_hand() -> None:
    header = blank_header()
    view = Agreement(header, leader=True, margin=1)
    view.save_due = 5.0
    assert view.poll(1, 4.0) is None
    assert view.poll(2, 6.0) is None
    ask(header, Command.HOLD)
    assert view.poll(3, 6.1) == Order(Command.SAVE, 3, 0)
    assert view.poll(4, 6.2) is None
    assert view.poll(5, 6.3) == Order(Command.HOLD, 5, 1)


def test_a_yield_that_could_not_be_saved_is_answered_again_later() -> None:
    header = blank_header()
    view = Agreement(header, leader=True, margin=0)
    ask(header, Command.YIELD)
    assert view.poll(1, 0.0) is not None
    view.reopen(0.0)
    assert view.poll(2, 0.5) is None
    assert view.poll(3, 1.5) == Order(Command.YIELD, 3, 1)


def test_a_new_command_does_not_take_back_an_agreed_step(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "board", 2, epoch=1)
    leader, follower = (Agreement(board.header, leader=r == 0, margin=1) for r in range(2))
    board.ask(Command.YIELD)
    leader.poll(1, 0.0)
    board.ask(Command.RUN)
    assert follower.poll(2, 0.0) == leader.poll(2, 0.0) == Order(Command.YIELD, 2, 1)


@pytest.mark.parametrize("name", ["stop_at", "stop_seq", "stop_command", "stop_no", "command", "command_seq"])
def test_the_header_keeps_its_fields_apart(tmp_path: Path, name: str) -> None:
    header = Board.create(tmp_path / "board", 1, epoch=1).header
    setattr(header, name, 42)
    others = {"slots": 1, "epoch": 1, "stop_at": -1, "stop_seq": 0, "stop_command": 0, "stop_no": 0}
    assert all(getattr(header, k) == v for k, v in others.items() if k != name)
    assert getattr(header, name) == 42
