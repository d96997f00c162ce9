"""After which step all ranks obey: the part of the board's protocol that keeps a gang together.

Global rank 0 leads. It alone looks at what the agent asks and at the clock; at a step boundary it writes an
*order* into the header: what to do, and after which step. The others look for orders at each of their own
boundaries. This needs no message, because a training step holds a collective: a rank that has ended step
``n`` has heard from rank 0 in step ``n``, so rank 0 had begun it, and what rank 0 wrote at the boundary
before is on the board. Hence an order for one step later is seen by all in time.

- One worker: there is nobody to wait for; an order is for the step just done.
- On a GPU the host runs ahead of its device, so that a boundary says that a step was *queued*. ``pace.py``
  bounds that to one step, and the margin grows by it.
- Workers that share nothing within a step (a plain module in each) drift apart. The order is then for a step
  beyond the one that the furthest of them can reach in LOOSE_SECONDS.
- On several nodes the agents carry the order from board to board, which takes them MIRROR_SECONDS at most.

A rank may miss an order that the next one replaced. That is harmless: to save and to yield take all ranks,
so such an order is replaced only once all have read it; to hold and to run is each rank's own affair, and
only the last word counts.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

from haibun.train.board import Command, Header

LOOSE_SECONDS = 0.02  # from reading how far the ranks are to writing the order; the leader may lose its core
MIRROR_SECONDS = 2.0  # agent to controller to agent: two beats of 0.5 s, and as much again in reserve
RETRY_SECONDS = 1.0  # after a yield that could not be saved; long enough for the disk to be cleared a little


class Order(NamedTuple):
    """``command`` is to be obeyed after step ``at``; ``seq`` is the agent's latest answered command."""

    command: Command
    at: int
    seq: int


class Agreement:
    """One rank's view of the orders.

    Args:
        header: the board's header.
        leader: whether this is global rank 0.
        margin: steps between the leader's boundary and the one at which all obey.
        slack: seconds that an order may take to be seen by all, on top of that; 0 for ranks in lockstep.
        furthest: gives the step of the rank furthest ahead, where ranks are not in lockstep.
        total: steps of the run, None if unknown. No order is given for a step beyond it: such a run ends
            sooner by itself.
    """

    def __init__(
        self,
        header: Header,
        *,
        leader: bool,
        margin: int,
        slack: float = 0.0,
        total: int | None = None,
        furthest: Callable[[], int] | None = None,
    ) -> None:
        self.save_due = math.inf  # leader: CLOCK_MONOTONIC seconds at which the next checkpoint is to be made
        self._header, self._leader, self._margin = header, leader, margin
        self._slack, self._furthest = slack, furthest
        self._last = math.inf if total is None else total
        self._order: Order | None = None
        self._no = 0
        self._answered = 0
        self._retry_at = 0.0
        self._beat = math.nan
        self._fastest = math.inf  # seconds of the fastest of the recent steps

    def poll(self, done: int, now: float) -> Order | None:
        """At the boundary after step ``done``: the order to obey here, if there is one."""
        if self._leader:
            self._lead(done, now)
        elif self._header.stop_no != self._no:
            self._order = self._read(done)
        if self._order is None or done < self._order.at:
            return None
        order, self._order = self._order, None
        return order

    def poll_held(self, done: int) -> Order | None:
        """While all ranks stand after step ``done``: the order that ends this, if it has come."""
        if self._leader:
            if self._header.command_seq != self._answered:
                self._answer(done)
        elif self._header.stop_no != self._no:
            self._order = self._read(done)
        order = self._order
        if order is None:
            return None
        if order.at > done:  # the leader is already on: this rank missed the word to go on, and follows
            return Order(Command.RUN, done, order.seq)
        self._order = None
        return order

    def reopen(self, now: float) -> None:
        """The last command could not be carried out: answer it anew after RETRY_SECONDS."""
        self._answered, self._retry_at = -1, now + RETRY_SECONDS

    def _lead(self, done: int, now: float) -> None:
        if self._slack:
            self._time_step(now)
            if self._fastest == math.inf:
                return  # no step was timed yet
        if self._order is not None:
            return
        if self._header.command_seq != self._answered and now >= self._retry_at:
            self._answer(self._in_time(done))
        elif now >= self.save_due:
            self._issue(Command.SAVE, self._in_time(done), self._answered)

    def _answer(self, at: int) -> None:
        seq = self._header.command_seq
        self._issue(Command(self._header.command), at, seq)

    def _issue(self, command: Command, at: int, seq: int) -> None:
        if at > self._last:
            return
        self._order = Order(command, at, seq)
        self._answered = seq
        if command is Command.SAVE:
            self.save_due = math.inf
        h = self._header
        h.stop_at, h.stop_seq, h.stop_command = at, seq, int(command)
        self._no = h.stop_no + 1
        h.stop_no = self._no

    def _read(self, done: int) -> Order:
        h = self._header
        self._no = h.stop_no
        if h.stop_at < done:  # either a step without a collective, or a CPU that shows us stores out of order
            time.sleep(0.001)
        return Order(Command(h.stop_command), h.stop_at, h.stop_seq)

    def _in_time(self, done: int) -> int:
        """The first step after which all ranks will have seen an order that is written now."""
        if self._furthest is not None:
            done = max(done, self._furthest())
        return done + self._margin + math.ceil(self._slack / self._fastest)

    def _time_step(self, now: float) -> None:
        """Keep the fastest recent step; the mean would grow by a save or a hold, and the margin shrink."""
        if self._beat < now:
            self._fastest = min(self._fastest * 1.02, now - self._beat)
        self._beat = now
