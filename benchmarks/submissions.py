"""Submissions accepted a second through the HTTP API, each in the journal and fsynced before its answer.

A real server whose devices are all held by one job, so that what is submitted waits. Clients with a connection each
send one job a request; once one client alone, once several at a time. At the end the server is killed (SIGKILL) and the
journal read: every job that was answered for must be in it. Beside it: bare appends of as many bytes to a file of the
same disk, each with its fsync.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from urllib.parse import urlsplit

from benchmarks import _live
from benchmarks.harness import Claim, Outcome, main, spread

CLIENTS, PER_CLIENT, SEQUENTIAL, ROUNDS = 16, 100, 200, 5
APPENDS, BYTES = 500, 600

CLAIM = Claim(
    f"submissions accepted a second, each fsynced before its answer, {CLIENTS} clients", 300.0, "/s", False
)

JOB = {
    "name": "one",
    "run": ["python", "train.py", "--epochs", "90"],
    "env": {"SEED": "1"},
    "labels": {"of": "us"},
}
BODY = json.dumps({"workdir": "/tmp", "jobs": [JOB]})


def send(url: str, token: str, count: int) -> list[str]:
    """Submit so many jobs, one after the other on one connection; their ids as answered."""
    where = urlsplit(url)
    assert where.hostname is not None
    connection = http.client.HTTPConnection(where.hostname, where.port)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    ids: list[str] = []
    for _ in range(count):
        connection.request("POST", "/v1/jobs", BODY, headers)
        answer = connection.getresponse()
        said = answer.read()
        if answer.status != 201:
            raise RuntimeError(f"{answer.status}: {said.decode()}")
        ids += json.loads(said)["ids"]
    connection.close()
    return ids


def at_once(pool: multiprocessing.pool.Pool, up: _live.Server, token: str) -> tuple[float, list[str]]:
    """Submissions a second of all clients together, and the ids."""
    started = time.perf_counter()
    answered = pool.starmap(send, [(up.client.url, token, PER_CLIENT)] * CLIENTS, chunksize=1)
    took = time.perf_counter() - started
    ids = [i for some in answered for i in some]
    return len(ids) / took, ids


def alone(up: _live.Server, token: str) -> tuple[float, list[str]]:
    """Submissions a second of one client, and the ids."""
    started = time.perf_counter()
    ids = send(up.client.url, token, SEQUENTIAL)
    return len(ids) / (time.perf_counter() - started), ids


def appends(folder: Path) -> float:
    """Bare appends a second, each fsynced."""
    path = folder / "appends"
    with open(path, "ab", buffering=0) as file:
        started = time.perf_counter()
        for _ in range(APPENDS):
            file.write(b"x" * BYTES)
            os.fsync(file.fileno())
        took = time.perf_counter() - started
    path.unlink()
    return APPENDS / took


def in_journal(home: Path) -> set[str]:
    """Ids of the jobs in the journal."""
    from haibun.core.events import JobSubmitted
    from haibun.store import Store

    with Store.open(f"sqlite:///{home}/haibun.db", read_only=True) as store:
        return {event.job.id for _, event in store.events() if isinstance(event, JobSubmitted)}


def measure() -> Outcome:
    """Rounds of: one client, many, bare appends; then the kill."""
    together: list[float] = []
    single: list[float] = []
    bare: list[float] = []
    ids: list[str] = []
    context = multiprocessing.get_context("spawn")
    with _live.server(1, "--no-warm") as up, context.Pool(CLIENTS) as pool:
        token = (up.home / "token").read_text().strip()
        up.client.run(["sleep", "3600"])
        pool.map(os.path.exists, ["/"] * CLIENTS)  # all up
        for _ in range(ROUNDS):
            for rates, (rate, more) in ((single, alone(up, token)), (together, at_once(pool, up, token))):
                rates.append(rate)
                ids += more
            bare.append(appends(up.home))
        up.process.kill()
        up.process.wait()
        lost = set(ids) - in_journal(up.home)
        _live.end_agent(up)
    figure, other = statistics.median(together), statistics.median(bare)
    return Outcome(
        figure,
        [
            (f"{CLIENTS} clients", spread(together, "/s")),
            ("one client, one after the other", spread(single, "/s")),
            ("bare appends with fsync", spread(bare, "/s")),
            (f"{CLIENTS} clients over bare appends", f"{figure / other:.2f}"),
            ("answered for, and lost at SIGKILL", f"{len(ids)}, {len(lost)}"),
        ],
        {
            "sequential": statistics.median(single),
            "bare_appends": other,
            "ratio": figure / other,
            "lost": len(lost),
        },
        also=not lost,
    )


if __name__ == "__main__":
    main(CLAIM, measure)
