"""What the demo shows while it runs: a live table on a terminal, else a line whenever something changes."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live as RichLive

from haibun.client.look import view_of
from haibun.report.live import live
from haibun.run.views import JobView, Overview, has_become, reason

_JOB = re.compile(r"\bjob (\w+)")
LINE_EVERY = 5.0  # seconds between lines of progress where there is no terminal


class Screen:
    """A context manager; ``show`` takes one look. ``mine``: only jobs of whom it says so are shown."""

    def __init__(self, console: Console, mine: Callable[[JobView], bool]) -> None:
        self._console, self._mine = console, mine
        self._live = (
            RichLive(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        )
        self._states: dict[str, str] = {}
        self._line_at = LINE_EVERY

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, overview: Overview, seconds: float) -> None:
        """Draw, or say what is new."""
        jobs = tuple(job for job in overview.jobs if self._mine(job))
        for job in jobs:
            if self._states.get(job.id) != job.state:
                self._states[job.id] = job.state
                self._print(f"{seconds:6.1f} s  {news(job, overview.jobs)}")
        if self._live is not None:
            from msgspec.structs import replace

            self._live.update(live(view_of(replace(overview, jobs=jobs))), refresh=True)
        elif seconds >= self._line_at:
            self._line_at = seconds + LINE_EVERY
            self._print(f"{seconds:6.1f} s  {progress(jobs)}")

    def _print(self, line: str) -> None:
        self._console.print(line, highlight=False, soft_wrap=True, style="dim")


def news(job: JobView, jobs: Sequence[JobView]) -> str:
    """What has become of a job, and why where its state does not say it; other jobs by their names."""
    names = {other.id: other.name for other in jobs if other.name}
    why = _JOB.sub(lambda found: names.get(found[1], found[0]), reason(job))
    return f"{job.name} {has_become(job.state)}" + (f": {why}" if why else "")


def progress(jobs: tuple[JobView, ...]) -> str:
    """Running jobs and how far they are, then those that wait, on one line."""
    running = [
        f"{j.name} {(j.step or 0.0) / j.total:.0%}" if j.total else j.name
        for j in jobs
        if j.state == "running"
    ]
    waiting = [j.name for j in jobs if j.state in ("queued", "recovering", "starting")]
    words = [f"running {', '.join(running)}"] if running else []
    words += [f"waiting {', '.join(waiting)}"] if waiting else []
    return "; ".join(words) or "nothing runs"
