"""``nodes``, ``drain``, ``undrain``: the machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from haibun.cli.output import Json, print_json, print_table, say

if TYPE_CHECKING:
    from haibun.run.views import NodeView

Node = Annotated[str, typer.Argument(metavar="NODE", help="Name of the node.", show_default=False)]


def nodes(json: Json = False) -> None:
    """List nodes: their health, devices, and who holds them.

    Example: `haibun nodes`
    """
    from haibun.client import Client

    with Client() as client:
        found = client.nodes()
    if json:
        print_json(found)
    elif found:
        header = ("NODE", "SITE", "HEALTH", "TYPE", "FREE", "CPUS FREE", "MEMORY FREE", "JOBS")
        print_table(header, [_row(node) for node in found], state=2)
    else:
        say("no node has joined yet")


def _row(node: NodeView) -> tuple[str, ...]:
    health = node.health if node.connected or node.health == "lost" else f"{node.health}, not connected"
    jobs = ", ".join(dict.fromkeys(job for job in node.holders if job is not None))
    return (
        *(node.name, node.site, health, node.type, f"{node.free}/{node.devices}"),
        f"{node.cpus_free:g}/{node.cpus:g}" if node.cpus else "",
        f"{node.memory_free / 2**30:.1f}/{node.memory / 2**30:.1f} GiB" if node.memory else "",
        jobs,
    )


def drain(
    node: Node,
    keep: Annotated[
        bool, typer.Option("--keep", help="Let what runs there finish; only start nothing new.")
    ] = False,
    json: Json = False,
) -> None:
    """Take a node out of service: nothing new starts there, and what runs is moved elsewhere.

    Example: `haibun drain gpu-03`
    """
    from haibun.client import Client

    with Client() as client:
        client.drain(node, evict=not keep)
    _told({"node": node, "health": "draining"}, f"node {node}: nothing new will start there", json)


def undrain(node: Node, json: Json = False) -> None:
    """Put a drained node back into service.

    Example: `haibun undrain gpu-03`
    """
    from haibun.client import Client

    with Client() as client:
        client.undrain(node)
    _told({"node": node, "health": "up"}, f"node {node}: takes work again", json)


def _told(value: dict[str, str], text: str, json: bool) -> None:
    if json:
        print_json(value)
    else:
        print(text)
