"""``shell``: a terminal in a job's environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from haibun.cli.errors import Failure
from haibun.cli.jobs import ENDED, Job
from haibun.cli.output import say

if TYPE_CHECKING:
    from haibun.run.views import JobDetail


def shell(
    job: Job,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[COMMAND...]", help="Instead of your shell.", show_default=False),
    ] = None,
) -> None:
    """Open a terminal in a job's environment: its variables, folder, devices and limits while it runs.

    Of a job that does not run, its folder and variables. Works on the machine whose agent runs the job.

    Example: `haibun shell train nvidia-smi`
    """
    import msgspec

    from haibun.client import Client, home_folder
    from haibun.run.shell import attach
    from haibun.run.terminal import Ask

    with Client() as client:
        detail = client.show(job)
        names = detail.job.nodes or tuple(node.name for node in client.nodes() if node.connected)
    spec = msgspec.json.decode(detail.spec)
    if command and command[0] == "--":
        command = command[1:]
    ask = Ask(
        job=detail.job.id if detail.job.nodes else None,
        cwd=spec.get("workdir") or str(Path.cwd()),
        argv=tuple(command or ()),
        env={} if detail.job.nodes else {k: str(v) for k, v in spec.get("env", {}).items()},
    )
    socket = _socket(home_folder(), names, detail)
    if detail.job.state in ENDED:
        say(
            f"job {detail.job.id} has ended ({detail.job.state}): "
            f"this is a plain shell in its folder, {ask.cwd}, with the variables that it set"
        )
    raise typer.Exit(attach(socket, ask))


def _socket(home: Path, names: tuple[str, ...], detail: JobDetail) -> Path:
    """Where an agent on this machine listens."""
    for name in names:
        path = home / "agents" / name / "agent.sock"
        if path.is_socket():
            return path
    if detail.job.nodes:
        where = (
            f"job {detail.job.id} runs on {', '.join(names)}, and no agent of that name is on this machine"
        )
        raise Failure(where, "call 'haibun shell' there")
    raise Failure("no agent is up on this machine", "start one with 'haibun up'")
