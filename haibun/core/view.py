"""What a policy or placer sees: read-only windows on the live columns. Only a fork copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from haibun.core.columns import Columns, read_only
from haibun.core.demand import DemandColumns, OptionColumns
from haibun.core.fleet import DeviceColumns, NodeColumns, PoolColumns
from haibun.core.jobs import JobColumns
from haibun.core.state import State
from haibun.core.vocabulary import JobState


class _Windows:
    """The columns of a table, each as a read-only window; taken anew when the table grows."""

    def __init__(self, columns: Columns) -> None:
        self._columns = columns
        self._take()

    def _take(self) -> None:
        self._version = self._columns.version
        for name in self._columns.COLUMNS:
            setattr(self, name, read_only(getattr(self._columns, name)))

    def fresh(self, columns: Columns) -> _Windows:
        """These windows, or new ones where the table has grown or been replaced."""
        if columns is not self._columns:
            return _Windows(columns)
        if columns.version != self._version:
            self._take()
        return self

    @property
    def n(self) -> int:
        """Rows in use."""
        return self._columns.n


class View:
    """Read-only windows on a State.

    Arrays are as long as the tables' capacity, not as their ``n``: rows beyond hold fresh values and appear in no
    ranking. Typed as the columns themselves, so that a policy reads ``view.jobs.service[rows]``; writing raises.
    """

    def __init__(self, state: State) -> None:
        self._state = state
        self._jobs = _Windows(state.jobs.columns)
        self._nodes = _Windows(state.fleet.nodes)
        self._pools = _Windows(state.fleet.pools)
        self._devices = _Windows(state.fleet.devices)
        self._demands = _Windows(state.demands.rows)
        self._options = _Windows(state.demands.options)
        self._memory: dict[str, NDArray[np.float64]] = {}

    def refresh(self) -> View:
        """Take new windows where tables have grown; returns the view itself."""
        s = self._state
        self._jobs = self._jobs.fresh(s.jobs.columns)
        self._nodes = self._nodes.fresh(s.fleet.nodes)
        self._pools = self._pools.fresh(s.fleet.pools)
        self._devices = self._devices.fresh(s.fleet.devices)
        self._demands = self._demands.fresh(s.demands.rows)
        self._options = self._options.fresh(s.demands.options)
        return self

    @property
    def jobs(self) -> JobColumns:
        """One row a job."""
        return cast(JobColumns, self._jobs)

    @property
    def nodes(self) -> NodeColumns:
        """One row a node."""
        return cast(NodeColumns, self._nodes)

    @property
    def pools(self) -> PoolColumns:
        """One row for each group of equal devices on a node."""
        return cast(PoolColumns, self._pools)

    @property
    def devices(self) -> DeviceColumns:
        """One row a device."""
        return cast(DeviceColumns, self._devices)

    @property
    def demands(self) -> DemandColumns:
        """One row a demand; ``view.jobs.demand`` points here."""
        return cast(DemandColumns, self._demands)

    @property
    def options(self) -> OptionColumns:
        """One row an option of a demand."""
        return cast(OptionColumns, self._options)

    @property
    def policy(self) -> str:
        """The name of the policy in force."""
        return self._state.config.policy

    @property
    def device_types(self) -> int:
        """How many device types have been met; their codes are 0 to this."""
        return len(self._state.fleet.types)

    def memory(self, column: str) -> NDArray[np.float64]:
        """One column of the policy's memory, a value a job; 0 where never set."""
        live = self._state.memory.column(column, self._state.jobs.columns.n)
        window = self._memory.get(column)
        if window is None or window.base is not live:
            window = self._memory[column] = read_only(live)
        return window

    def job_ids(self, rows: Iterable[int]) -> tuple[str, ...]:
        """The ids of the jobs in some rows."""
        return tuple(self._state.jobs.job(row).id for row in rows)

    def active(self) -> NDArray[np.int64]:
        """Rows of all jobs that have not ended, ascending."""
        return self._state.active_rows()

    def waiting(self) -> NDArray[np.int64]:
        """Rows of all jobs that are queued, ascending."""
        return self._in_states(JobState.QUEUED)

    def running(self) -> NDArray[np.int64]:
        """Rows of all jobs that have a gang and may lose it, ascending."""
        return self._in_states(JobState.STARTING, JobState.RUNNING)

    def _in_states(self, *states: JobState) -> NDArray[np.int64]:
        column = self._state.jobs.columns.state[: self._state.jobs.columns.n]
        return np.flatnonzero(np.isin(column, states))

    def service(self, rows: Any, now: float) -> NDArray[np.float64]:
        """Device-seconds that the jobs have had by ``now``."""
        j = self.jobs
        service: NDArray[np.float64] = j.service[rows] + j.width[rows] * j.launched[rows] * (
            now - j.as_of[rows]
        )
        return service

    def remaining(self, rows: Any, now: float) -> NDArray[np.float64]:
        """Seconds of running left, at the speed of its gang, or of its best option where it has never run.

        nan where the job has not declared its steps or its speed is not known.
        """
        j = self.jobs
        speed = np.where(np.isnan(j.speed[rows]), self.demands.best_rate[j.demand[rows]], j.speed[rows])
        left = j.total[rows] - (j.done[rows] + j.rate[rows] * (now - j.as_of[rows]))
        with np.errstate(divide="ignore", invalid="ignore"):
            seconds: NDArray[np.float64] = np.maximum(left, 0.0) / speed
        return seconds
