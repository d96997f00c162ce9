"""The profiling pass: one job of each kind, all at once, so that each has the neighbours that it will have."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from haibun.client import Client
from haibun.demo.cluster import Live
from haibun.demo.errors import DemoError
from haibun.demo.profile import Profile, fit
from haibun.demo.workload import KINDS, scripts, spec
from haibun.run.views import JobView

STEPS = 10_000_000  # it is stopped long before
LOOK = 0.1
WITHIN = 90.0  # seconds for any one wait: far more than it takes, so that a broken script ends the demo with a word


def machine(live: Live) -> str:
    """What a profile depends on: another machine, other devices or other scripts make it void."""
    node = live.client.nodes()[0]
    jobs = [(k.script, k.arguments, len((scripts() / k.script).read_bytes())) for k in KINDS]
    return f"{os.uname().nodename} {node.devices}x{node.type} {os.cpu_count()} {live.isolated} {jobs}"


def measure(live: Live, seconds: float, workdir: Path) -> Profile:
    """Run each kind for ``seconds``, stop it with a checkpoint, resume it, stop it again; read the journal.

    Raises:
        DemoError: a job failed, or makes no steps.
    """
    client, mark = live.client, live.mark()
    ids = client.submit(*(spec(f"measure-{kind.name}", kind, STEPS, workdir) for kind in KINDS))
    stopped_at = dict.fromkeys(ids, 0.0)
    for share in (1.0, 0.5):
        before = stopped_at
        _until(client, ids, lambda job: bool(job.rate) and (job.step or 0.0) > before[job.id])  # noqa: B023 (at once)
        time.sleep(seconds * share)
        for job in ids:
            client.pause(job)
        paused = _until(client, ids, lambda job: job.state == "paused")
        stopped_at = {job.id: job.durable or 0.0 for job in paused}
        if share == 1.0:
            for job in ids:
                client.resume(job)
    for job in ids:
        client.cancel(job)
    _until(client, ids, lambda job: job.state == "cancelled")
    events = live.events(mark)
    fits = {kind.name: fit(events, job) for kind, job in zip(KINDS, ids, strict=True)}
    return Profile(
        client.nodes()[0].type,
        machine(live),
        {name: f.rate for name, f in fits.items()},
        {name: f.costs() for name, f in fits.items()},
    )


def _until(client: Client, ids: list[str], there: Callable[[JobView], bool]) -> list[JobView]:
    """Wait until it is true of all of these jobs; they as they are then."""
    end = time.monotonic() + WITHIN
    while True:
        jobs = [job for job in client.ls() if job.id in ids]
        if all(map(there, jobs)):
            return jobs
        for job in jobs:
            if job.state in ("failed", "succeeded") or time.monotonic() > end:
                raise DemoError(f"measuring: {job.name} is {job.state}, {job.why}{_words(client, job)}")
        time.sleep(LOOK)


def _words(client: Client, job: JobView) -> str:
    """The last line that it wrote."""
    lines = [line.text for line in client.logs(job.id, tail=1)]
    return f"; its last words: {lines[-1]}" if lines else ""
