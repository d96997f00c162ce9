"""Jobs as columns: one row a job, from submission until it is retired."""

from __future__ import annotations

import math
from enum import IntEnum

from haibun.core.columns import Bools, Codes, Columns, Floats, Ints, bools, floats, ints
from haibun.core.reasons import Reason
from haibun.core.vocabulary import CANCELLED, RUNNING, Job, JobId, JobState


class Intent(IntEnum):
    """What becomes of a job that is being stopped, once it has."""

    NONE = 0
    REQUEUE = 1
    PAUSE = 2
    CANCEL = 3
    END = 4  # its walltime is over
    RECOVER = 5  # part of its gang was lost


class JobColumns(Columns):
    """What the scheduler keeps up for each job. Times in seconds on the engine's clock, nan where not yet.

    Work: ``done`` steps were done at ``as_of``, and ``rate`` steps/s are being done since; ``service`` device-seconds
    were had by then, at ``width`` devices since, if it is launched. ``speed`` is the steps/s last seen or profiled for
    the gang it has or had. ``waited`` sums the time spent queued, up to the last start; ``ran`` that spent running;
    ``lost`` that whose work was lost.
    """

    state: Ints = ints()
    intent: Ints = ints()
    demand: Ints = ints()
    priority: Ints = ints()
    tenant: Ints = ints()
    preemptible: Bools = bools(True)
    held: Bools = bools()
    launched: Bools = bools()
    submitted: Floats = floats(math.nan)
    queued_at: Floats = floats(math.nan)
    first_start: Floats = floats(math.nan)
    started_at: Floats = floats(math.nan)
    running_since: Floats = floats(math.nan)
    ended_at: Floats = floats(math.nan)
    not_before: Floats = floats(-math.inf)
    walltime: Floats = floats(math.inf)
    total: Floats = floats(math.nan)
    done: Floats = floats()
    durable: Floats = floats()
    rate: Floats = floats()
    speed: Floats = floats(math.nan)
    as_of: Floats = floats()
    service: Floats = floats()
    width: Ints = ints()
    type: Ints = ints(-1)
    waited: Floats = floats()
    ran: Floats = floats()
    lost: Floats = floats()
    epoch: Ints = ints()
    preemptions: Ints = ints()
    failures: Ints = ints()
    retries: Ints = ints()
    avoid: Ints = ints(-1)
    blockers: Ints = ints()

    def accrue(self, row: int, at: float) -> None:
        """Book the work done and the service had between ``as_of`` and ``at``."""
        elapsed = at - self.as_of[row]
        if elapsed <= 0.0:
            return
        self.as_of[row] = at
        width = self.width[row]
        if width and self.launched[row]:
            self.service[row] += width * elapsed
        rate = self.rate[row]
        if rate:
            self.done[row] += rate * elapsed
        if self.state[row] == RUNNING:
            self.ran[row] += elapsed


class JobTable:
    """Rows by job id, and what does not fit in a column: the job itself, its gang, why it is where it is."""

    def __init__(self) -> None:
        self.columns = JobColumns()
        self.tenants = Codes()
        self.row_of: dict[JobId, int] = {}
        self.jobs: list[Job | None] = []
        self.gangs: dict[int, tuple[int, ...]] = {}
        self.reasons: dict[int, Reason] = {}
        self.dependents: dict[JobId, list[JobId]] = {}
        self.free_rows: list[int] = []
        self.highest = 0  # the highest id that is a number, of all jobs ever

    def add(self, job: Job) -> int:
        """A row for a new job, an old row if one was given back."""
        c = self.columns
        if self.free_rows:
            row = self.free_rows.pop()
            self.jobs[row] = job
        else:
            row = c.add_row()
            self.jobs.append(job)
        self.row_of[job.id] = row
        if job.id.isdecimal():
            self.highest = max(self.highest, int(job.id))
        c.priority[row] = job.priority
        c.tenant[row] = self.tenants.code(job.tenant)
        c.preemptible[row] = job.preemptible
        c.retries[row] = job.retries
        if job.total_steps is not None:
            c.total[row] = job.total_steps
        if job.walltime is not None:
            c.walltime[row] = job.walltime
        for needed in (*job.depends_on, *job.after):
            self.dependents.setdefault(needed, []).append(job.id)
        return row

    def retire(self, row: int) -> None:
        """Forget a job that has ended; its row will be used again."""
        job = self.job(row)
        del self.row_of[job.id]
        self.dependents.pop(job.id, None)
        for needed in (*job.depends_on, *job.after):
            if job.id in self.dependents.get(needed, ()):
                self.dependents[needed].remove(job.id)
        self.reasons.pop(row, None)
        self.jobs[row] = None
        self.columns.reset_row(row)
        self.columns.state[row] = CANCELLED
        self.free_rows.append(row)

    def job(self, row: int) -> Job:
        """The job in a row that is in use."""
        job = self.jobs[row]
        assert job is not None, f"row {row} is not in use"
        return job

    def state(self, row: int) -> JobState:
        """The state of the job in a row."""
        return JobState(int(self.columns.state[row]))

    def __len__(self) -> int:
        return len(self.row_of)
