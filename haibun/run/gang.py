"""What the nodes of one gang report, put together: the core hears of an attempt, never of its parts."""

from __future__ import annotations

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

_ENDS = (AttemptSucceeded, AttemptFailed, AttemptStopped)


@dataclass(slots=True)
class Gang:
    """One attempt over ``nodes`` (in the order of ranks)."""

    job: JobId
    epoch: int
    nodes: tuple[NodeName, ...]
    started: set[NodeName] = field(default_factory=set)
    held: set[NodeName] = field(default_factory=set)
    ends: dict[NodeName, AnyEvent] = field(default_factory=dict)

    @property
    def over(self) -> bool:
        """Whether every node has reported its end."""
        return len(self.ends) == len(self.nodes)

    @property
    def broken(self) -> bool:
        """Whether some part has ended and another lives: the rest must be ended too."""
        return bool(self.ends) and not self.over

    def living(self) -> tuple[NodeName, ...]:
        """Nodes that have not reported their end."""
        return tuple(node for node in self.nodes if node not in self.ends)

    def merge(self, node: NodeName, event: AnyEvent) -> AnyEvent | None:
        """Take one node's report; returns what the core should hear of the whole attempt, if anything."""
        if node not in self.nodes:
            return None
        if isinstance(event, _ENDS):
            self.ends.setdefault(node, event)
            return self._end() if self.over else None
        if isinstance(event, AttemptStarted):
            self.held.discard(node)
            self.started.add(node)
            return event if self.started.issuperset(self.nodes) and not self.held else None
        if isinstance(event, AttemptHeld):
            self.held.add(node)
            return event if self.held.issuperset(self.nodes) else None
        if isinstance(event, AttemptProgressed):
            return event if node == self.nodes[0] else None
        return event

    def _end(self) -> AnyEvent:
        """Failed if a part failed (the first that did tells why), succeeded if all did, else stopped."""
        ends = list(self.ends.values())
        for end in ends:
            if isinstance(end, AttemptFailed):
                return end
        if all(isinstance(end, AttemptSucceeded) for end in ends):
            return ends[0]
        stopped = [end for end in ends if isinstance(end, AttemptStopped)]
        return min(stopped, key=lambda end: end.durable)
