"""Hangs and stragglers, told from what workers write on the board: no I/O, time comes in as a number."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from statistics import median

from haibun.train.board import Phase

# A step that takes ten times the median is no noise; below the floor a garbage collection, a page-in or a
# busy neighbour may be.
FACTOR = 10.0
FLOOR = 10.0
# ... nor is it one while the job has had gaps like this before (an evaluation every thousand steps).
GAPS = 3.0
# While some late rank burns CPU, it may be at something long and rare (an evaluation outside of BUSY); one
# that is idle is not. NCCL spins while it waits, so this too must end.
BUSY_FACTOR = 6.0
BUSY_FLOOR = 60.0
IDLE_CPU = 0.05  # cores; an idle Python process with its threads asleep uses less than 0.01
LEARN_STEPS = 5  # intervals before a median means anything
UNLEARNT = 600.0  # until then: a first step may compile kernels for minutes
# The phases without beats, by what may take long in them.
PHASE_LIMITS = {
    Phase.STARTING: 1800.0,  # reading a data set, building indexes, waiting at the rendezvous
    Phase.SAVING: 900.0,  # hundreds of GB to a network disk
    Phase.BUSY: 3600.0,  # the script said so: evaluation, generation
    Phase.YIELDED: 120.0,  # saved already: only exit handlers are left
    Phase.FINISHED: 900.0,  # a last evaluation, an export
}
# A stopped process does not go on by itself; a debugger that attaches stops it too, but only for moments.
STOPPED = 5.0
STRAGGLES = 1.5  # times the median of its gang's step time


@dataclass(frozen=True, slots=True)
class Sight:
    """What is seen of one worker at one time; ``cpu``: seconds used so far; ``stopped``: by SIGSTOP."""

    phase: Phase
    step: int
    beat: float
    cpu: float | None = None
    stopped: bool = False


@dataclass(slots=True)
class WorkerWatch:
    """The history of one worker: how long its steps take, since when it is where it is."""

    rank: int
    since: float
    phase: Phase = Phase.STARTING
    step: int = -1
    beat: float = 0.0
    intervals: deque[float] = field(default_factory=lambda: deque(maxlen=64))
    longest: float = 0.0
    skip: bool = True  # the next interval spans more than steps: a start, a save, a hold
    cpu_then: float | None = None
    at_then: float = 0.0
    cores: float | None = None
    stopped_since: float | None = None

    def see(self, sight: Sight, now: float) -> None:
        """Take in one observation."""
        moved = sight.step != self.step or sight.phase != self.phase
        if sight.step > self.step and sight.beat > self.beat:
            if not self.skip and self.beat:
                took = (sight.beat - self.beat) / max(1, sight.step - self.step)
                self.intervals.append(took)
                self.longest = max(self.longest, took)
            self.skip = False
        if sight.phase != Phase.STEPPING:
            self.skip = True
        if moved:
            self.phase, self.step, self.beat, self.since = sight.phase, sight.step, sight.beat, now
            self.cpu_then = self.cores = None
        if sight.cpu is not None:
            if self.cpu_then is None:
                self.cpu_then, self.at_then = sight.cpu, now
            elif now > self.at_then:
                self.cores = (sight.cpu - self.cpu_then) / (now - self.at_then)
        self.stopped_since = (self.stopped_since or now) if sight.stopped else None

    def resume(self, now: float) -> None:
        """It stood still rightly: count from here."""
        self.since, self.skip, self.stopped_since, self.cpu_then, self.cores = now, True, None, None, None

    @property
    def step_time(self) -> float | None:
        """Median seconds of a step; None until enough are seen."""
        return median(self.intervals) if len(self.intervals) >= LEARN_STEPS else None

    def limit(self, given: float | None) -> float:
        """Seconds without news that are too long, if nothing speaks for the worker."""
        if self.phase != Phase.STEPPING:
            return PHASE_LIMITS.get(self.phase, UNLEARNT)
        if given is not None:
            return given
        if (usual := self.step_time) is None:
            return UNLEARNT
        return max(FLOOR, FACTOR * usual, GAPS * self.longest)


class GangWatch:
    """Watches the workers of one attempt on this node. ``hang_after``: the job's own limit, in seconds."""

    def __init__(self, ranks: list[int], hang_after: float | None, now: float) -> None:
        self._given = hang_after
        self.workers = [WorkerWatch(rank, now) for rank in ranks]

    def resume(self, now: float) -> None:
        """The attempt stood still because it was told to: count from here again."""
        for w in self.workers:
            w.resume(now)

    def suspicious(self, now: float) -> bool:
        """Whether some worker is late enough that its process is worth a look."""
        return any(now - w.since > min(1.0, 0.25 * w.limit(self._given)) for w in self.workers)

    def verdict(self, now: float) -> str | None:
        """The cause, if the attempt hangs: which rank, where, for how long; None if it does not."""
        for w in self.workers:
            if w.stopped_since and now - w.stopped_since > min(STOPPED, self._given or STOPPED):
                return self._cause(w, now)
        late = [w for w in self.workers if now - w.since > w.limit(self._given)]
        if not late:
            return None
        busy = any(w.cores is None or w.cores > IDLE_CPU for w in late if w.step_time is not None)
        if busy and self._given is None:
            late = [
                w
                for w in late
                if w.phase != Phase.STEPPING
                or w.step_time is None
                or now - w.since > max(BUSY_FLOOR, BUSY_FACTOR * w.limit(None))
            ]
        if not late:
            return None
        return self._cause(min(late, key=lambda w: (w.stopped_since is None, w.step, w.rank)), now)

    def _cause(self, w: WorkerWatch, now: float) -> str:
        silent = f"{now - w.since:.0f} s" if now - w.since >= 10 else f"{now - w.since:.1f} s"
        if w.phase != Phase.STEPPING:
            what = f"no news for {silent} while {w.phase.name.lower()}"
        else:
            usual = f" (its steps take {w.step_time:.2g} s)" if w.step_time is not None else ""
            what = f"no step for {silent}{usual}"
        return f"rank {w.rank} hung at step {max(0, w.step)}: {what}" + (
            "; it is stopped (SIGSTOP)" if w.stopped_since else ""
        )

    def stragglers(self) -> tuple[int, ...]:
        """Ranks whose steps take much longer than the gang's; a gang in lockstep shows none."""
        times = {w.rank: t for w in self.workers if (t := w.step_time) is not None}
        if len(times) < 2:
            return ()
        usual = median(times.values())
        return tuple(sorted(r for r, t in times.items() if t > STRAGGLES * usual))
