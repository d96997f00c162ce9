"""All jobs ever, by name and by page: those in the State, and those that only the tables remember."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from haibun.core.state import State
from haibun.core.vocabulary import SUCCEEDED, JobId, JobState
from haibun.run import describe
from haibun.run.agents import Agents
from haibun.run.errors import AmbiguousError, NotFoundError, UnavailableError
from haibun.run.specs import Specs
from haibun.run.views import JobView
from haibun.store import JobFilter, JobRow, Store, StoreError

T = TypeVar("T")
HINTS_FROM = 1000  # names that a misspelt one is compared with, the latest: all of them would take too long
READERS = 2  # threads; the journal is written by one of its own, and no reader waits for it

_Key = tuple[float, int, str]


class Catalogue:
    """Finds jobs. What reads the tables is a coroutine; nothing here waits for the database in the loop's thread."""

    def __init__(self, state: State, store: Store, agents: Agents, specs: Specs) -> None:
        self._state, self._store, self._agents, self._specs = state, store, agents, specs
        self._threads = ThreadPoolExecutor(READERS, "haibun-tables")

    async def close(self) -> None:
        """End the reading threads."""
        await asyncio.to_thread(self._threads.shutdown, True)

    async def reading(self, read: Callable[[], T]) -> T:
        """What a function reads from the store.

        Raises:
            UnavailableError: the store cannot be read just now.
        """
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, read)
        except StoreError as e:
            raise UnavailableError(str(e)) from e

    # --- one job -----------------------------------------------------------------------------------------------------

    def resolve(self, name: str) -> JobId:
        """The id that an id or a name stands for, among jobs in the State: of several of that name, the one that has
        not ended, else the latest.

        Raises:
            NotFoundError: there is none. AmbiguousError: several of that name have not ended.
        """
        jobs = self._state.jobs
        if name in jobs.row_of:
            return name
        named = [job.id for job in jobs.jobs if job is not None and job.name == name] if name else []
        alive = [i for i in named if jobs.columns.state[jobs.row_of[i]] < SUCCEEDED]
        if len(alive) > 1:
            ids = ", ".join(sorted(alive, key=self._age)[:10])
            raise AmbiguousError(f"{len(alive)} jobs are named {name!r}: say which by id, of {ids}")
        if named:
            return max(alive or named, key=self._age)
        latest = [job for job in jobs.jobs if job is not None][-HINTS_FROM:]
        known = dict.fromkeys(word for job in latest for word in (job.name, job.id) if word)
        raise NotFoundError("job", name, list(known))

    async def find(self, name: str) -> tuple[JobId, JobRow | None]:
        """The id that an id or a name stands for, of all jobs ever, with the row of one that has left the State.

        Raises:
            NotFoundError: there never was one. AmbiguousError: see ``resolve``.
        """
        try:
            return self.resolve(name), None
        except NotFoundError as missing:
            row = await self.reading(lambda: self._retired(name))
            if row is None:
                raise missing from None
            return row.id, row

    def _retired(self, name: str) -> JobRow | None:
        found = self._store.jobs(JobFilter(ids=(name,))) or self._store.jobs(JobFilter(name=name), 1)
        return found[0] if found and name and found[0].id not in self._state.jobs.row_of else None

    def _age(self, job: JobId) -> _Key:
        submitted = float(self._state.jobs.columns.submitted[self._state.jobs.row_of[job]])
        return submitted, len(job), job

    # --- many --------------------------------------------------------------------------------------------------------

    async def page(
        self, states: set[str], tenant: str | None, name: str | None, limit: int, after: JobId | None
    ) -> list[JobView]:
        """The newest ``limit`` jobs that were submitted before ``after``, oldest first.

        While the tables cannot be read, those in the State.

        Raises:
            NotFoundError: there is no job ``after``.
        """
        after, before = await self._key(after) if after is not None else (None, None)
        table = self._state.jobs
        there: dict[JobId, _Key] = {}
        for job, row in table.row_of.items():
            if (
                (not states or JobState(int(table.columns.state[row])).name.lower() in states)
                and (tenant is None or table.job(row).tenant == tenant)
                and (name is None or table.job(row).name == name)
                and (before is None or self._age(job) < before)
            ):
                there[job] = self._age(job)
        old: dict[JobId, JobRow] = {}
        if table.highest > len(table):  # some have left the State
            old = {row.id: row for row in await self._old(states, tenant, name, limit, after)}
        keys = there | {job: _row_key(row) for job, row in old.items()}
        newest = sorted(keys, key=keys.__getitem__)[-limit:] if limit else []
        return [self._view(job, old) for job in newest]

    def _view(self, job: JobId, old: dict[JobId, JobRow]) -> JobView:
        row = self._state.jobs.row_of.get(job)
        spec = self._specs.get(job)
        if row is None:
            return describe.old_job_view(old[job], spec)
        return describe.job_view(self._state, self._agents, row, spec)

    async def _old(
        self, states: set[str], tenant: str | None, name: str | None, limit: int, after: JobId | None
    ) -> list[JobRow]:
        """The newest ``limit`` rows of jobs that have left the State and are older than ``after``."""
        where = JobFilter(states=tuple(sorted(states)), tenant=tenant, name=name)
        many = limit + len(self._state.jobs)  # rows of jobs in the State come in between
        try:
            rows = await self.reading(lambda: self._store.jobs(where, many, after))
        except UnavailableError:
            return []
        return [row for row in rows if row.id not in self._state.jobs.row_of][:limit]

    async def _key(self, job: JobId) -> tuple[JobId, _Key]:
        found, row = await self.find(job)
        return found, _row_key(row) if row is not None else self._age(found)


def _row_key(row: JobRow) -> _Key:
    return row.submitted, len(row.id), row.id
