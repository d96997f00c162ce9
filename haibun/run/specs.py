"""Launch specs of the jobs in the State, in memory: an order to start must not wait for the store."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping

from pydantic import ValidationError

from haibun.core.vocabulary import JobId
from haibun.spec.job import JobSpec
from haibun.store import Store

log = logging.getLogger("haibun.controller")


class Specs:
    """Specs by job. They enter with a submission or at the start, and leave with their job."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[JobId, JobSpec] = {}

    def get(self, job: JobId) -> JobSpec | None:
        """The spec of a job that is in the State."""
        return self._known.get(job)

    def keep(self, specs: Mapping[JobId, JobSpec]) -> None:
        """Remember those of a submission."""
        self._known |= specs

    def forget(self, jobs: Iterable[JobId]) -> None:
        """Their jobs have left the State, or were refused."""
        for job in jobs:
            self._known.pop(job, None)

    def load(self, jobs: Iterable[JobId]) -> None:
        """Read those of the jobs in the State. Blocks; raises StoreError."""
        for job in jobs:
            spec = self.read(job)
            if spec is not None:
                self._known[job] = spec

    def read(self, job: JobId) -> JobSpec | None:
        """The spec of any job ever. Blocks; raises StoreError."""
        known = self._known.get(job)
        text = self._store.spec(job) if known is None else None
        if text is None:
            return known
        try:
            return JobSpec.from_json(text)
        except ValidationError as e:
            log.warning("the launch spec of job %s cannot be read: %s", job, e)
            return None
