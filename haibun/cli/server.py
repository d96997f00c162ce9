"""``up`` and ``down``: the server on this machine."""

from __future__ import annotations

import contextlib
import json as json_
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from haibun.cli.errors import Failure
from haibun.cli.output import Json, print_json, say

UP_WITHIN = 180.0  # seconds until a detached server must answer: it may have to compile its kernels first
JOIN_WITHIN = 20.0  # seconds more for the local agents: a job submitted before they have joined is refused
DOWN_WITHIN = 60.0
LOOK_EVERY = 0.05
LOOPBACK = ("127.0.0.1", "localhost", "::1")

Home = Annotated[Path | None, typer.Option(help="Folder of the server's data; HAIBUN_HOME, else ~/.haibun.")]


def up(
    home: Home = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; that of the last time, else 7878, if left out."),
    ] = None,
    nodes: Annotated[int, typer.Option(min=0, max=64, help="Local agents to start, each a node.")] = 1,
    virtual_devices: Annotated[
        int | None, typer.Option(min=1, help="Devices of each node, made of CPUs; real GPUs if left out.")
    ] = None,
    policy: Annotated[str, typer.Option(help="Who runs next; 'haibun policies' lists them.")] = "fifo",
    sets: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="POLICY.PARAM=VALUE", help="A parameter of the policy."),
    ] = None,
    db: Annotated[
        str | None, typer.Option(metavar="URL", help="Database; SQLite in the home if left out.")
    ] = None,
    warm: Annotated[bool, typer.Option(help="Keep a process with torch loaded, to start jobs from.")] = True,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return once the server answers.")] = False,
    json: Json = False,
) -> None:
    """Start Haibun here: controller, API, and an agent that runs jobs on this machine.

    Runs until interrupted; jobs are then saved and ended, and queue for the next time.

    Example: `haibun up --virtual-devices 4 --policy tiresias`
    """
    from haibun.client import home_folder
    from haibun.spec.params import parse_params

    if json and not detach:
        raise typer.BadParameter(
            "goes with --detach: a server in the foreground gives no result", param_hint="--json"
        )
    where = home_folder(home)
    params = parse_params(sets or (), [policy]).get(policy, {})
    if host not in LOOPBACK:
        say(f"warning: listening on {host}, without encryption: whoever sees the token can run jobs as you")
    if detach:
        _detach(where, nodes, json)
        return
    from haibun.server.up import UpOptions, up

    options = UpOptions(
        home=where,
        host=host,
        port=port,
        policy=policy,
        params=params,
        database=db,
        nodes=nodes,
        virtual_devices=virtual_devices,
        warm=warm,
        agents=nodes > 0,
    )
    up(options)


def _detach(home: Path, nodes: int, json: bool) -> None:
    """Start the same command again in the background; return when jobs can be run, or fail with its last words."""
    words = [word for word in sys.argv[1:] if word not in ("--detach", "-d", "--json")]
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    log = home / "server.log"
    start = log.stat().st_size if log.exists() else 0
    with open(log, "ab") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "haibun.cli.main", *words],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            env={**os.environ, "HAIBUN_HOME": str(home)},
        )
    end, compiles = time.monotonic() + UP_WITHIN, ""
    while child.poll() is None and time.monotonic() < end:
        if not compiles and (compiles := _compiling(log, start)):
            say(compiles)
        written = _written(home)
        if written.get("pid") == child.pid and _answers(written["url"]):
            _await_agents(home, nodes)
            told = {"url": written["url"], "pid": child.pid, "home": str(home), "log": str(log)}
            print_json(told) if json else print(f"Haibun is up: {told['url']} (log: {log})")
            return
        time.sleep(LOOK_EVERY)
    with open(log, "rb") as f:
        f.seek(start)
        said = f.read().decode(errors="replace").strip()
    if child.poll() is None:
        raise Failure(f"the server has not answered within {UP_WITHIN:g} s; it goes on trying", f"see {log}")
    raise Failure(
        said.removeprefix("error: ") or f"the server ended with code {child.returncode}", f"see {log}"
    )


def _compiling(log: Path, start: int) -> str:
    """What a server that must compile its kernels said of it."""
    with open(log, encoding="utf-8", errors="replace") as f:
        f.seek(start)
        return next((line.strip() for line in f if line.startswith("Compiling") and line.endswith("\n")), "")


def _await_agents(home: Path, nodes: int) -> None:
    from haibun.client import Client, ClientError

    end = time.monotonic() + JOIN_WITHIN
    with contextlib.suppress(ClientError), Client(home=home) as client:
        while time.monotonic() < end:
            if sum(node.connected for node in client.nodes()) >= nodes:
                return
            time.sleep(LOOK_EVERY)
    say(f"warning: not all agents have joined within {JOIN_WITHIN:g} s; {home / 'agents'} has their logs")


def _written(home: Path) -> dict[str, Any]:
    """What the server wrote about itself."""
    with contextlib.suppress(OSError, ValueError):
        found = json_.loads((home / "server.json").read_text())
        return found if isinstance(found, dict) else {}
    return {}


def _answers(url: str) -> bool:
    import httpx

    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/healthz", timeout=2.0, trust_env=False).status_code == 200
    return False


def down(
    home: Home = None,
    keep_jobs: Annotated[
        bool, typer.Option("--keep-jobs", help="Let jobs go on; the next 'haibun up' finds them again.")
    ] = False,
    json: Json = False,
) -> None:
    """Stop the server of this machine. Jobs are told, saved and ended, unless they are to be kept.

    Example: `haibun down --keep-jobs`
    """
    from haibun.client import Client, home_folder

    where = home_folder(home)
    pid = _written(where).get("pid")
    with Client(home=where) as client:
        client.shutdown(keep_jobs)
        url = client.url
    _await_end(pid, url)
    if json:
        print_json({"url": url, "kept_jobs": keep_jobs})
    else:
        print("Haibun is down" + ("; jobs go on" if keep_jobs else ""))


def _await_end(pid: int | None, url: str) -> None:
    end = time.monotonic() + DOWN_WITHIN
    while time.monotonic() < end:
        if pid is not None and not _alive(pid):
            return
        if pid is None and not _answers(url):
            return
        time.sleep(LOOK_EVERY)
    raise Failure(
        f"the server (process {pid}) is still there after {DOWN_WITHIN:g} s", "it may be saving jobs"
    )


def _alive(pid: int) -> bool:
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
