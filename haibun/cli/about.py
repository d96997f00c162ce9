"""``policies``, ``demo``, ``version``."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any

import typer

from haibun.cli.output import Json, print_json


def policies(json: Json = False) -> None:
    """List scheduling policies, ours and those that other packages bring, with their parameters.

    Example: `haibun policies`
    """
    from haibun.app import policies as known

    described = [_describe(name, point) for name, point in known().items()]
    if json:
        print_json({"policies": described})
        return
    for policy in described:
        print(f"{policy['name']}: {policy['about']}")
        for name, default in policy["params"].items():
            print(f"    --set {policy['name']}.{name}={_written(default)}")


def _describe(name: str, point: Any) -> dict[str, Any]:
    try:
        policy = point.load()
    except Exception as e:  # a third party's: it must not hide the others
        return {"name": name, "about": f"cannot be loaded: {e}", "params": {}}
    params = {
        p.name: None if p.default is p.empty else p.default
        for p in inspect.signature(policy).parameters.values()
        if p.name != "self"
    }
    about = inspect.cleandoc(policy.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return {"name": name, "about": about, "params": params}


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value).lower()


def demo(
    home: Annotated[
        Path | None, typer.Option(help="Folder for what it leaves; a temporary one if left out.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="HTML", help="Where to write the report.")] = None,
    short: Annotated[
        bool, typer.Option("--short", help="A shorter form, with fewer and smaller jobs.")
    ] = False,
    json: Json = False,
) -> None:
    """Show the whole of Haibun on this machine: real jobs, a preemption, a crash, and the same in the twin.

    Takes about two minutes. The exit code is 0 if all that it claims was seen to hold.

    Example: `haibun demo --report demo.html`
    """
    from haibun.demo import DemoOptions
    from haibun.demo import demo as perform

    raise typer.Exit(perform(DemoOptions(home, report, json, short)))


def version(json: Json = False) -> None:
    """Print the version of Haibun, of Python, and of the server if one is up.

    Example: `haibun version --json`
    """
    import platform

    import haibun

    told = {"haibun": haibun.__version__, "python": platform.python_version(), "server": _server_version()}
    if json:
        print_json(told)
    else:
        print(f"haibun {told['haibun']} (Python {told['python']})")
        if told["server"]:
            print(f"server {told['server']}")


def _server_version() -> str | None:
    import httpx

    from haibun.client import ClientError, find_server

    try:
        url, _ = find_server()
        return str(httpx.get(f"{url}/healthz", timeout=2.0, trust_env=False).json()["version"])
    except (ClientError, httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError):
        return None
