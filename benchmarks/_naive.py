"""Schedulers as one would write them in an afternoon, for the benchmarks to measure against.

Plain lists and floats, no placement, no reasons, no journal: what a queueing model needs and no more.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence

Key = Callable[[int], tuple[float, ...]]


def fifo(
    submit: Sequence[float], duration: Sequence[float], width: Sequence[int], devices: int
) -> list[float]:
    """Completion times (submission to finish, seconds) under strict FIFO, where any free devices will do.

    The job at the head blocks those behind it. Jobs are given in order of submission.
    """
    queue: deque[int] = deque()
    ends: list[tuple[float, int]] = []
    free, at, n = devices, 0, len(submit)
    jct = [0.0] * n
    while at < n or ends:
        now = min(submit[at] if at < n else ends[0][0], ends[0][0] if ends else submit[at])
        while ends and ends[0][0] <= now:
            free += width[heapq.heappop(ends)[1]]
        while at < n and submit[at] <= now:
            queue.append(at)
            at += 1
        while queue and width[queue[0]] <= free:
            job = queue.popleft()
            free -= width[job]
            end = now + duration[job]
            jct[job] = end - submit[job]
            heapq.heappush(ends, (end, job))
    return jct


class Tiresias:
    """Discretised 2D-LAS with promotion, by sorting all active jobs at every event; any free devices will do."""

    def __init__(self, width: Sequence[int], duration: Sequence[float], submit: Sequence[float]) -> None:
        self.width, self.left, self.submit = width, list(duration), submit
        n = len(width)
        self.service, self.base = [0.0] * n, [0.0] * n
        self.queue, self.first = [0] * n, [float("inf")] * n
        self.queued_at = list(submit)
        self.limits, self.knob = (3600.0, 36000.0), 8.0

    def run(self, devices: int) -> list[float]:
        """Completion times in seconds."""
        n, at, now = len(self.width), 0, 0.0
        running: set[int] = set()
        waiting: set[int] = set()
        jct = [0.0] * n
        while at < n or running or waiting:
            then = min(self.submit[at] if at < n else float("inf"), self._next(running, waiting, now))
            for job in running:
                self.left[job] -= then - now
                self.service[job] += self.width[job] * (then - now)
            now = then
            for job in [j for j in running if self.left[j] <= 1e-9]:
                running.remove(job)
                jct[job] = now - self.submit[job]
            while at < n and self.submit[at] <= now:
                waiting.add(at)
                at += 1
            self._requeue(running, waiting, now)
            self._choose(running, waiting, devices, now)
        return jct

    def _next(self, running: set[int], waiting: set[int], now: float) -> float:
        when = float("inf")
        for job in running:
            when = min(when, now + self.left[job])
            if self.queue[job] < len(self.limits):
                short = self.limits[self.queue[job]] - (self.service[job] - self.base[job])
                when = min(when, now + short / self.width[job])
        for job in waiting:
            when = min(when, self._promoted_at(job))
        return when

    def _promoted_at(self, job: int) -> float:
        had = (self.service[job] - self.base[job]) / self.width[job]
        return self.queued_at[job] + self.knob * had if self.queue[job] and had > 0 else float("inf")

    def _requeue(self, running: set[int], waiting: set[int], now: float) -> None:
        for job in running:
            had = self.service[job] - self.base[job]
            while self.queue[job] < len(self.limits) and had >= self.limits[self.queue[job]] - 1e-3:
                self.queue[job] += 1
        for job in waiting:
            if self._promoted_at(job) <= now + 1e-3:
                self.queue[job], self.base[job] = 0, self.service[job]

    def _choose(self, running: set[int], waiting: set[int], devices: int, now: float) -> None:
        free = devices
        for job in sorted(running | waiting, key=lambda j: (self.queue[j], self.first[j], self.submit[j], j)):
            if self.width[job] <= free:
                free -= self.width[job]
                if job in waiting:
                    waiting.remove(job)
                    running.add(job)
                    self.first[job] = min(self.first[job], now)
            elif job in running:
                running.remove(job)
                waiting.add(job)
                self.queued_at[job] = now


def decide(
    order: Sequence[int], key: Key, width: Sequence[int], holds: dict[int, int], room: list[int]
) -> list[int]:
    """One decision as one would write it: sort all active jobs, walk them by count, then first-fit those that start.

    ``holds``: jobs that run; ``room``: free devices by node. Returns the jobs to start.
    """
    free = sum(room) + sum(width[job] for job in holds)
    start: list[int] = []
    for job in sorted(order, key=key):
        if width[job] <= free:
            free -= width[job]
            if job not in holds:
                start.append(job)
    left = list(room)
    for job in start:
        need = width[job]
        for node, have in enumerate(left):
            take = min(have, need)
            left[node] -= take
            need -= take
            if not need:
                break
    return start
