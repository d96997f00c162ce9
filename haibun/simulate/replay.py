"""Replays: one policy after the other, or side by side in processes of their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

from haibun.app import make_engine
from haibun.simulate.inputs import LOCALITY, InputError, Inputs, cpu_seconds
from haibun.simulate.outcome import Outcome, rows_of
from haibun.twin.executor import TwinExecutor
from haibun.twin.metrics import summary
from haibun.twin.replay import History, Replay

Progress = Callable[[str, int, int, float], None]  # policy, jobs arrived, jobs in all, seconds of the trace


def replay(
    inputs: Inputs, policy: str, *, rows: bool = False, spans: bool = False, progress: Progress | None = None
) -> Outcome:
    """Replay the trace under one policy.

    Args:
        rows: keep a row a job. spans: and each attempt, for a report: much more memory.
        progress: called now and then.

    Raises:
        ReplayError: the replay cannot go on.
    """
    before = cpu_seconds()
    params = inputs.params.get(policy)
    engine = make_engine(inputs.cluster, policy, params, rates=inputs.rates)
    history = History() if spans else None
    trace = inputs.trace
    run = Replay(
        engine, trace.jobs(locality=LOCALITY), trace.submit.tolist(), TwinExecutor(inputs.costs), history
    )
    run.run(None if progress is None else lambda arrived, jobs, now: progress(policy, arrived, jobs, now))
    figures = summary(engine.state, round(cpu_seconds() - before, 3))
    figures |= {"rejected": len(inputs.rejected), "skipped": len(inputs.skipped)}
    if not (rows or spans):
        return Outcome(figures)
    return Outcome(figures, *rows_of(engine.state, figures, history))


def replay_all(
    inputs: Inputs,
    *,
    rows: bool = False,
    spans: bool = False,
    processes: int = 1,
    progress: Progress | None = None,
) -> Iterator[Outcome]:
    """Replay under each policy, in order; ``processes`` at a time (then without progress).

    Raises:
        ReplayError: a replay cannot go on. InputError: one of the processes died.
    """
    if processes <= 1 or len(inputs.policies) == 1:
        for policy in inputs.policies:
            yield replay(inputs, policy, rows=rows, spans=spans, progress=progress)
        return
    with ProcessPoolExecutor(min(processes, len(inputs.policies)), mp_context=get_context("spawn")) as pool:
        tasks = [pool.submit(replay, inputs, policy, rows=rows, spans=spans) for policy in inputs.policies]
        try:
            for task in tasks:
                yield task.result()
        except BrokenProcessPool:
            message = "a process that replayed was killed (out of memory?)"
            raise InputError(message, "replay fewer at a time with a smaller --parallel") from None
        finally:
            for task in tasks:
                task.cancel()
