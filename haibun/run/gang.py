"""What the nodes of one gang report, put together: the core hears of an attempt, never of its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from haibun.core.events import (
    AnyEvent,
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
)
from haibun.core.vocabulary import JobId, NodeName
from haibun.run.protocol import Launch

AttemptEvent = (
    AttemptStarted | AttemptProgressed | AttemptHeld | AttemptStopped | AttemptSucceeded | AttemptFailed
)
Ends = AttemptSucceeded | AttemptFailed | AttemptStopped


@dataclass(slots=True)
class Gang:
    """One attempt over ``nodes`` (in the order of ranks).

    Attributes:
        ends: how each part ended; None where its node was lost, and nobody knows.
        launches: what each node was told to launch; empty where a former controller did that.
        owed: acknowledgements of ends that the core has not heard of yet: should this controller die, the agents
            report them again to the next one.
    """

    job: JobId
    epoch: int
    nodes: tuple[NodeName, ...]
    started: set[NodeName] = field(default_factory=set)
    held: set[NodeName] = field(default_factory=set)
    ends: dict[NodeName, Ends | None] = field(default_factory=dict)
    launches: dict[NodeName, Launch] = field(default_factory=dict)
    owed: list[Callable[[], None]] = field(default_factory=list)

    @property
    def over(self) -> bool:
        """Whether every part has ended."""
        return len(self.ends) == len(self.nodes)

    @property
    def broken(self) -> bool:
        """Whether some part has ended and another lives: unless all end well, the rest must be ended too."""
        return bool(self.ends) and not self.over

    def living(self) -> tuple[NodeName, ...]:
        """Nodes that have not reported their end."""
        return tuple(node for node in self.nodes if node not in self.ends)

    def merge(self, node: NodeName, event: AttemptEvent) -> AnyEvent | None:
        """Take one node's report; returns what the core should hear of the whole attempt, if anything."""
        if node not in self.nodes:
            return None
        if isinstance(event, Ends):
            self.ends.setdefault(node, event)
            return self.end() if self.over else None
        if isinstance(event, AttemptStarted):
            self.held.discard(node)
            self.started.add(node)
            return event if self.started.issuperset(self.nodes) and not self.held else None
        if isinstance(event, AttemptHeld):
            self.held.add(node)
            return event if self.held.issuperset(self.nodes) else None
        return event if node == self.nodes[0] else None

    def lose(self, node: NodeName) -> None:
        """A node is lost, and its part with it."""
        if node in self.nodes:
            self.ends.setdefault(node, None)

    def end(self) -> AnyEvent | None:
        """How the whole ended. None: all nodes are lost.

        Failed if a part failed (the first that did tells why), succeeded if all did, else stopped, with what is
        durable on all nodes that are left.
        """
        ends = [end for end in self.ends.values() if end is not None]
        for end in ends:
            if isinstance(end, AttemptFailed):
                return end
        if not ends or all(isinstance(end, AttemptSucceeded) for end in ends):
            whole = ends and len(ends) == len(self.nodes)
            return ends[0] if whole else self._stopped(ends)
        return self._stopped([end for end in ends if isinstance(end, AttemptStopped)])

    def _stopped(self, ends: list[Ends]) -> AttemptStopped | None:
        if not ends:
            return None
        step = min(float(end.step or 0.0) for end in ends)
        durable = min(getattr(end, "durable", 0.0) for end in ends)
        return AttemptStopped(ends[0].at, self.job, self.epoch, step, durable)
