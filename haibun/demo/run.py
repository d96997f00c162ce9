"""``haibun demo``: the whole of Haibun on this machine, from nothing to a report, and nothing left behind."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from haibun.app import prepare_kernels
from haibun.core.events import NodeJoined
from haibun.core.vocabulary import Cluster
from haibun.demo import checks
from haibun.demo import profile as profiles
from haibun.demo.cluster import Live, virtual_devices
from haibun.demo.conduct import Observed, conduct
from haibun.demo.errors import DemoError
from haibun.demo.measure import machine, measure
from haibun.demo.outcome import Outcome, as_json, print_outcome, write_report
from haibun.demo.profile import Profile
from haibun.demo.record import Record, fold, replayed
from haibun.demo.screen import Screen
from haibun.demo.story import Story
from haibun.demo.workload import DEVICES, FULL, POLICY, SHORT, Scenario, scripts

STEADY = 0.15  # beyond such a change of speed the machine has changed, and the order of starts may
MEASURE, MEASURE_SHORT = 6.0, 3.0  # seconds of steps of each kind


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """What ``haibun demo`` takes.

    Attributes:
        home: folder for journal, logs and checkpoints; a profile kept there is used again. None: a temporary one.
        report: where to write the page; None: beside ``home``, or into it where one is given.
        json: print one JSON object on stdout at the end; what is said meanwhile goes to stderr.
        short: a shorter form, for tests.
    """

    home: Path | None = None
    report: Path | None = None
    json: bool = False
    short: bool = False


def demo(options: DemoOptions) -> int:
    """Run it; returns the exit code: 0 if all that it claims was seen to hold, else 1.

    Raises:
        DemoError, UpError: it could not be run. KeyboardInterrupt: it was interrupted; everything is ended first.
    """
    console = Console(file=sys.stderr if options.json else sys.stdout)
    outcome = perform(options, console)
    if options.json:
        print(json.dumps(as_json(outcome)), flush=True)
    else:
        print_outcome(outcome, console)
    return 0 if outcome.good else 1


def perform(options: DemoOptions, console: Console) -> Outcome:
    """Run it and write the report; what came of it. Raises as ``demo``."""
    began = time.monotonic()

    def say(words: str) -> None:
        console.print(
            f"[{time.monotonic() - began:5.1f} s] {words}", highlight=False, soft_wrap=True, markup=False
        )

    scripts()
    with _terminable(), _folder(options.home) as folder:
        home = folder.path
        report = (options.report or home.parent / "haibun-demo.html").absolute()
        where = f"Files are in {home}" + ("" if folder.keep else ", which is removed at the end")
        say(f"Haibun demo: real training jobs on {DEVICES} devices; about two minutes. {where}")
        prepare_kernels(say)
        virtual = virtual_devices(DEVICES)
        say(f"starting a controller and an agent with {_what(virtual)} ...")
        with Live(home, POLICY, virtual, say) as live:
            profile = _profile(live, home, options.short, say)
            mark = live.mark()
            scenario = SHORT if options.short else FULL
            seen = _conduct(live, scenario, profile, home, console, say)
            cluster = _cluster(live)
            record = fold(live.events(mark), list(seen.ids.values()), cluster, POLICY, profile.table())
            notes = _notes(live, virtual)
        say("everything is ended; replaying the same jobs in the twin ...")
        twin = replayed(record, cluster, POLICY, profile)
        outcome = _outcome(record, twin, seen, scenario, live, profile, notes, report, began)
        write_report(outcome)
        folder.keep = not outcome.good
        if folder.keep:
            say(f"not all went as it should; journal and logs stay in {home}")
    return outcome


def _profile(live: Live, home: Path, short: bool, say: profiles.Say) -> Profile:
    """The one kept from an earlier run where it fits, else a new one."""
    path = home / "profile.json"
    kept = profiles.read(path, machine(live))
    if kept is not None:
        say(f"using the speeds measured before ({path})")
        return kept
    say("measuring each kind of job: steps a second, start, checkpoint, resume; then these are frozen ...")
    found = measure(live, MEASURE_SHORT if short else MEASURE, home)
    found.write(path)
    for name, rate in found.rates.items():
        costs = found.costs[name]
        spent = f"start {costs.start:.2f} s, resume {costs.resume:.2f} s, save and end {costs.stop:.2f} s"
        say(f"  {name}: {rate:.1f} steps/s; {spent}")
    return found


def _conduct(
    live: Live, scenario: Scenario, profile: Profile, home: Path, console: Console, say: profiles.Say
) -> Observed:
    say(f"the run: {len(scenario.plans)} jobs under {POLICY}, by priority and then in order of submission")
    before = {job.id for job in live.client.ls()}
    with Screen(console, lambda job: job.id not in before) as screen:
        return conduct(live, scenario, profile, home, screen.show)


def _outcome(
    record: Record,
    twin: Record,
    seen: Observed,
    scenario: Scenario,
    live: Live,
    profile: Profile,
    notes: list[str],
    report: Path,
    began: float,
) -> Outcome:
    found = checks.agreement(record, twin)
    claims = checks.checks(record, seen, scenario.urgent)
    drift = checks.drift(record, profile)
    if drift > STEADY:
        notes.append(
            f"Speeds in the run were {drift:.0%} off those measured before it (other work on this machine?): "
            "the twin, which goes by the latter, is shown but held to nothing."
        )
    elif live.exact:
        claims.append(checks.order_check(found))
    claims.append(checks.left_check(live.left))
    story = Story(record, seen.restored).tell()
    return Outcome(record, twin, story, found, claims, profile, notes, report, time.monotonic() - began)


def _cluster(live: Live) -> Cluster:
    return Cluster(tuple(event.node for event in live.events() if isinstance(event, NodeJoined))[-1:])


def _what(virtual: int | None) -> str:
    return f"{DEVICES} GPUs" if virtual is None else f"{virtual} virtual devices (equal parts of the CPUs)"


def _notes(live: Live, virtual: int | None) -> list[str]:
    notes = [
        f"Policy {POLICY}: by priority, then in order of submission; jobs of higher priority take devices from lower."
    ]
    if virtual is not None and not live.exact:
        notes.append(
            "Cgroups cannot be used here and there are fewer CPUs than devices, so that jobs slow each other down: "
            "the twin, which knows nothing of that, is shown but held to nothing."
        )
    return notes


@dataclass(slots=True)
class _Folder:
    """Where journal, logs and checkpoints lie; ``keep``: they are of use afterwards."""

    path: Path
    keep: bool = False


@contextmanager
def _folder(home: Path | None) -> Iterator[_Folder]:
    """The home; a temporary one is removed again, unless the demo breaks off: then it may tell why."""
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
        yield _Folder(home.absolute(), keep=True)
        return
    above = Path(tempfile.mkdtemp(prefix="haibun-demo-"))
    folder = _Folder(above / "home")
    folder.path.mkdir()
    try:
        yield folder
    except KeyboardInterrupt:
        shutil.rmtree(above, ignore_errors=True)
        raise
    except DemoError as e:
        raise DemoError(f"{e}\nWhat it left to look at is in {folder.path}") from e
    if not folder.keep:
        shutil.rmtree(folder.path, ignore_errors=True)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
