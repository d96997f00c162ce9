"""From a dead controller to one that decides again, on a journal of 1,000,000 events.

The journal is made by driving the engine in the twin: jobs as in Philly, progress reports between, launch specs,
snapshots and retirement of ended jobs as often as the ledger does. It ends just before the next snapshot, so the tail
to be replayed is as long as it gets. Measured is a new process, from its start to the end of its first decision. Beside
it: the same State by replaying all events.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import Claim, MeasureError, Outcome, last_json, main, run, spread

EVENTS = 1_000_000
BATCH = 2_000  # events an append
PROGRESS = 10  # progress reports after each submission
RUNS = 5
SPEC = '{"run":["python","train.py","--epochs","90"],"resources":{"devices":1},"workdir":"/home/someone/project"}'

CLAIM = Claim(f"restart from a journal of {EVENTS:,} events, to the end of the first decision", 2.0, "s")

# What ``haibun up`` does between its start and its first decision, but for the HTTP server.
RESTART = """
import asyncio, json, sys, time
from pathlib import Path
started = time.time()
from haibun import app
from haibun.core.events import Configured
from haibun.profile.throughput import ThroughputTable
from haibun.run.controller import Controller
from haibun.store import Store
imported = time.time()
app.prepare_kernels()
ready = time.time()

async def go(home):
    store = Store.open(f"sqlite:///{home}/haibun.db")
    config = Configured(0.0, "fifo")
    controller = Controller(store, app.make_stages("fifo"), config, Path(home), ThroughputTable())
    restored = time.time()
    controller.engine.decide(controller.state.now)
    now = time.time()
    print(json.dumps({"imports": imported - started, "kernels": ready - imported, "restore": restored - ready,
                      "decide": now - restored, "at": now, "sequence": controller.state.sequence,
                      "jobs": len(controller.state.jobs)}))
    sys.stdout.flush()
    store.close()

asyncio.run(go(sys.argv[1]))
"""


def events(engine: Any) -> Iterator[list[Any]]:
    """Rounds of events for ever, each applied already, decisions among them."""
    from haibun.core.events import AttemptProgressed, JobSubmitted
    from haibun.trace.generate import generate
    from haibun.twin.executor import TwinExecutor

    trace = generate(jobs=200_000, devices=448, load=0.85, seed=3)
    executor, draw = TwinExecutor(), random.Random(5)
    jobs = enumerate(trace.jobs(), 1)
    from msgspec.structs import replace

    for (number, job), submit in zip(jobs, trace.submit.tolist(), strict=True):
        while (due := executor.next_due()) < submit:
            yield _round(engine, executor, executor.take_due(due), due)
        job = replace(job, id=str(number))
        executor.expect(job.id, job.total_steps or 0.0)
        yield _round(engine, executor, [JobSubmitted(submit, job)], submit)
        table = engine.state.jobs
        running = list(table.gangs)
        for row in draw.sample(running, min(PROGRESS, len(running))):
            c = table.columns
            done = float(c.done[row] + c.rate[row] * (submit - c.as_of[row]))
            event = AttemptProgressed(submit, table.job(row).id, int(c.epoch[row]), done, done)
            engine.apply(event)
            yield [event]


def _round(engine: Any, executor: Any, happened: list[Any], now: float) -> list[Any]:
    recorded: list[Any] = []
    while happened:
        actions = engine.handle(happened, now, recorded.append)
        happened = executor.perform(actions, now)
    return recorded


def write_journal(home: Path) -> dict[str, Any]:
    """A store with EVENTS events or a few more; what is in it."""
    from haibun.app import make_engine, prepare_kernels
    from haibun.core import snapshot
    from haibun.core.events import Configured, NodeJoined
    from haibun.run.ledger import SNAPSHOT_EVERY
    from haibun.spec.cluster import load_cluster
    from haibun.store import Store

    prepare_kernels()
    cluster = load_cluster("56x8:v100")
    engine = make_engine(cluster)
    batch: list[Any] = [Configured(0.0, "fifo"), *(NodeJoined(0.0, node) for node in cluster.nodes)]
    taken = snapshots = 0
    with Store.open(f"sqlite:///{home}/haibun.db") as store:
        for happened in events(engine):
            batch += happened
            seq = store.last_seq + len(batch)
            if seq >= EVENTS and seq - taken >= SNAPSHOT_EVERY - 50:
                break
            if len(batch) >= BATCH:
                _append(store, batch)
            if seq - taken >= SNAPSHOT_EVERY:
                batch += _retire(engine)
                _append(store, batch)
                taken = store.last_seq
                snapshots += 1
                store.snapshot(taken, snapshot.dump(engine.state))
        _append(store, batch)
        told = {"events": store.last_seq, "tail": store.last_seq - taken, "snapshots": snapshots}
    return {**told, "jobs_ever": engine.state.jobs.highest, "bytes": (home / "haibun.db").stat().st_size}


def _append(store: Any, batch: list[Any]) -> None:
    from haibun.core.events import JobSubmitted

    store.append(batch, {e.job.id: SPEC for e in batch if isinstance(e, JobSubmitted)})
    batch.clear()


def _retire(engine: Any) -> list[Any]:
    """As the ledger does before a snapshot: ended jobs beyond the newest KEEP_ENDED leave the State."""
    from haibun.core.events import JobsRetired
    from haibun.core.vocabulary import SUCCEEDED
    from haibun.run.ledger import KEEP_ENDED

    jobs = engine.state.jobs
    c = jobs.columns
    ended = sorted(
        (float(c.ended_at[row]), job) for job, row in jobs.row_of.items() if c.state[row] >= SUCCEEDED
    )
    if len(ended) <= KEEP_ENDED + KEEP_ENDED // 4:
        return []
    event = JobsRetired(engine.state.now, tuple(job for _, job in ended[:-KEEP_ENDED]))
    engine.apply(event)
    return [event]


def restarts(home: Path) -> tuple[list[float], list[float], list[dict[str, Any]]]:
    """Seconds and CPU seconds of each restart, and what the processes told."""
    walls, cpus, told = [], [], []
    for _ in range(RUNS):
        started = time.time()
        child = run([sys.executable, "-c", RESTART, str(home)])
        found = last_json(child.out)
        walls.append(found["at"] - started)
        cpus.append(child.cpu)
        told.append(found)
    return walls, cpus, told


def replay_all(home: Path) -> tuple[float, int]:
    """Seconds to read and apply every event, and how many there were."""
    from haibun.core.life import apply
    from haibun.core.state import State
    from haibun.profile.throughput import ThroughputTable
    from haibun.store import Store

    started = time.perf_counter()
    state = State(ThroughputTable())
    with Store.open(f"sqlite:///{home}/haibun.db", read_only=True) as store:
        for _, event in store.events():
            apply(state, event)
    return time.perf_counter() - started, state.sequence


def measure() -> Outcome:
    """Write the journal, restart, replay."""
    with tempfile.TemporaryDirectory(prefix="haibun-bench-") as folder:
        home = Path(folder)
        about = write_journal(home)
        walls, cpus, told = restarts(home)
        full, sequence = replay_all(home)
    if any(t["sequence"] != sequence for t in told):
        raise MeasureError(f"a restart came to event {told[0]['sequence']}, the full replay to {sequence}")
    figure = statistics.median(walls)
    parts = {
        key: statistics.median(t[key] for t in told) for key in ("imports", "kernels", "restore", "decide")
    }
    size = f"{about['events']:,} events, {about['jobs_ever']:,} jobs, {about['bytes'] / 1e6:.0f} MB"
    return Outcome(
        figure,
        [
            ("journal", f"{size}, {about['snapshots']} snapshots, {about['tail']:,} events after the last"),
            ("restart, wall clock", spread(walls, "s")),
            ("CPU of the process", spread(cpus, "s")),
            ("of that", ", ".join(f"{key} {value:.2f} s" for key, value in parts.items())),
            ("replay of all events", f"{full:.1f} s (ratio {full / figure:.0f})"),
        ],
        {
            "cpu": statistics.median(cpus),
            "parts": parts,
            "full_replay": full,
            "ratio": full / figure,
            **about,
        },
    )


if __name__ == "__main__":
    main(CLAIM, measure)
