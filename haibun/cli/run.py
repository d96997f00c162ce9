"""``run`` and ``submit``: bringing jobs in."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from haibun.cli.errors import INTERRUPTED, Failure
from haibun.cli.output import Json, print_json, say

if TYPE_CHECKING:
    from haibun.client import Client
    from haibun.run.views import JobView

_CODE = re.compile(r"exited with code (\d+)")
Pairs = list[str] | None


def run(
    command: Annotated[
        list[str], typer.Argument(metavar="COMMAND...", help="What each worker runs.", show_default=False)
    ],
    devices: Annotated[int, typer.Option("--devices", "-n", help="Devices of the whole gang.")] = 1,
    name: Annotated[
        str | None, typer.Option(help="For people; other commands take it in place of the id.")
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Who pays: quota and fairness go by it.")] = None,
    priority: Annotated[int | None, typer.Option(help="Larger goes first.")] = None,
    cpus: Annotated[float | None, typer.Option(help="Cores for each device.")] = None,
    memory: Annotated[str | None, typer.Option(help="Memory for each device, as 4GiB.")] = None,
    num_nodes: Annotated[int | None, typer.Option(help="On exactly so many nodes, evenly.")] = None,
    device_type: Annotated[
        list[str] | None, typer.Option("--type", help="Type of device; repeat it for others, best first.")
    ] = None,
    locality: Annotated[
        str | None, typer.Option(help="How far apart its devices may lie: node, site or any.")
    ] = None,
    retries: Annotated[int | None, typer.Option(help="How often it is tried again after failing.")] = None,
    walltime: Annotated[str | None, typer.Option(help="It is ended after running so long, as 90m.")] = None,
    env: Annotated[
        Pairs, typer.Option("--env", "-e", metavar="K=V", help="A variable; may be repeated.")
    ] = None,
    label: Annotated[Pairs, typer.Option(metavar="K=V", help="For your own use; may be repeated.")] = None,
    after: Annotated[Pairs, typer.Option(metavar="JOB", help="Start once that job has succeeded.")] = None,
    workdir: Annotated[str | None, typer.Option(help="Where it runs; here if left out.")] = None,
    model: Annotated[str | None, typer.Option(help="Key into the throughput profile.")] = None,
    total_steps: Annotated[float | None, typer.Option(help="Its length in steps, if known.")] = None,
    rank: Annotated[int, typer.Option(min=-1, help="Whose log is shown; -1: all ranks'.")] = 0,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Print the id and return at once.")] = False,
    json: Json = False,
) -> None:
    """Run a command as a job: queue it, show its log and how it fares, and exit with its exit code.

    Ctrl-C asks whether to leave the job running or to cancel it. With `--json` the log goes to stderr.

    Example: `haibun run --devices 2 --name train -- python train.py --epochs 3`
    """
    from haibun.client import Client

    resources = {"devices": devices, "device_type": device_type or None, "cpus": cpus, "memory": memory}
    spec = {
        "run": command,
        "name": name,
        "resources": _given(resources),
        "env": _pairs("--env", env),
        "labels": _pairs("--label", label),
        "tenant": tenant,
        "priority": priority,
        "num_nodes": num_nodes,
        "locality": locality,
        "retries": retries,
        "walltime": walltime,
        "depends_on": after,
        "workdir": _folder(workdir),
        "model": model,
        "total_steps": total_steps,
    }
    with Client() as client:
        (job,) = client.submit(_given(spec))
        if detach:
            print_json({"id": job}) if json else print(job)
            return
        view = _attend(client, job, None if rank < 0 else rank, json)
    if json and view is not None:
        print_json(view)
    raise typer.Exit(_exit_code(view))


def submit(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Job files (YAML); - is stdin.", show_default=False),
    ],
    json: Json = False,
) -> None:
    """Submit job files: all of their jobs, or none if anything is wrong with one.

    Prints the ids, one a line. See docs/job-spec.md for what a job file holds.

    Example: `haibun submit job.yaml`
    """
    from haibun.client import Client

    with Client() as client:
        if Path("-") in files:
            files = [Path("/dev/stdin") if f == Path("-") else f for f in files]
        ids = client.submit(*files)
    if json:
        print_json({"ids": ids})
    else:
        print("\n".join(ids))


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value not in (None, {})}


def _folder(workdir: str | None) -> str | None:
    return None if workdir is None else str(Path(workdir).expanduser().absolute())


def _pairs(option: str, items: Pairs) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for item in items or ():
        name, equals, value = item.partition("=")
        if not (name and equals):
            raise Failure(f"{option} {item!r}: write NAME=VALUE", code=2)
        pairs[name] = value
    return pairs


def _attend(client: Client, job: str, rank: int | None, json: bool) -> JobView | None:
    """Show log and states until the job ends; None if its user lets it go on alone."""
    out = sys.stderr if json else sys.stdout
    say(f"job {job} is submitted; Ctrl-C to leave it or to cancel it")
    while True:
        try:
            return _show(client, job, rank, out)
        except KeyboardInterrupt:
            if _leave(client, job):
                return None


def _show(client: Client, job: str, rank: int | None, out: Any) -> JobView:
    from haibun.run.views import JobView

    view: JobView | None = None
    told = ""
    for item in client.follow(job, rank=rank):
        if isinstance(item, JobView):
            view, standing = item, _standing(item)
            if standing != told:
                told = standing
                say(f"job {job} {standing}")
            continue
        prefix = f"[{item.rank}] " if rank is None else ""
        out.write(f"{prefix}{item.text}\n")
        out.flush()
    assert view is not None
    return view


def _standing(view: JobView) -> str:
    from haibun.run.views import reason

    if view.state in ("starting", "running"):
        again = f", attempt {view.attempts}" if view.attempts > 1 else ""
        return f"is {view.state} on {', '.join(view.on)}{again}"
    if view.state in ("succeeded", "failed", "cancelled"):
        why = reason(view)
        words = "was cancelled" if view.state == "cancelled" else f"has {view.state}"
        return words + (f": {why}" if why else "")
    why = reason(view)
    return f"is {view.state}" + (f": {why}" if why else "")


def _leave(client: Client, job: str) -> bool:
    """After Ctrl-C: whether to stop showing. Where nobody can be asked, the job goes on."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        say(f"\njob {job} goes on; 'haibun cancel {job}' ends it")
        return True
    try:
        answer = input(f"\nJob {job}: [d]etach, [c]ancel, or Enter to keep watching? ").strip().lower()
    except (EOFError, KeyboardInterrupt):
        answer = "d"
    if answer.startswith("c"):
        client.cancel(job)
        return False  # its end is still to be seen
    if answer.startswith("d"):
        say(f"job {job} goes on; 'haibun logs -f {job}' shows it again")
        return True
    return False


def _exit_code(view: JobView | None) -> int:
    """That of the worker which failed first, where one is known."""
    if view is None or view.state == "cancelled":
        return INTERRUPTED
    if view.state == "succeeded":
        return 0
    code = _CODE.search(view.exit or view.why)
    return int(code[1]) if code and 0 < int(code[1]) < 256 else 1
