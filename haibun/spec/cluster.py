"""What a cluster is made of: the compact form ``56x8:v100``, or a YAML file. See docs/cluster-file.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from haibun.core.vocabulary import Cluster, DeviceGroup, Link, Node
from haibun.spec.document import Document, load_documents, read_text
from haibun.spec.fields import Bytes, BytesPerSecond, Finite, Seconds, Text
from haibun.spec.problems import SpecError, SpecProblem, did_you_mean
from haibun.spec.validate import Spec, validate

MAX_NODES = 100_000
MAX_DEVICES = 1_000_000
DEFAULT_SITE = "default"
COMPACT = "NODESxDEVICES:TYPE[,...], for instance 56x8:v100 or 8x1:v100,16x1:p100"
_GROUP = re.compile(r"(\d+)x(\d+):([A-Za-z][\w.-]*)")
_LOOKS_COMPACT = re.compile(r"\s*[-+]?\d+\s*[xX*:]")
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


def _pattern(value: Any) -> Any:
    if isinstance(value, str) and not _NAME.fullmatch(value.replace("{index}", "0")):
        raise ValueError(
            f"{value!r} is no name for a node: use letters, digits, '.', '_', '-', and {{index}} for a number"
        )
    return value


class DeviceSpec(Spec):
    """Equal devices of a node."""

    type: Text = Field(description="such as v100")
    count: int = Field(default=1, ge=1, le=1024, description="of them in each node")
    memory: Bytes = Field(default=0, description="bytes of each device; 0: not known, and no constraint")


class NodeSpec(Spec):
    """Equal nodes."""

    name: Annotated[str, BeforeValidator(_pattern)] | None = Field(
        default=None,
        description="{index} stands for the number; without it, -000, -001, ... is added where count > 1",
    )
    count: int = Field(default=1, ge=1, le=MAX_NODES, description="how many nodes")
    site: Text | None = Field(default=None, description="where they stand; the first site if left out")
    devices: list[DeviceSpec] = Field(min_length=1)
    cpus: Finite = Field(
        default=0.0, ge=0, le=100_000, description="cores of each node; 0: not known, and no constraint"
    )
    memory: Bytes = Field(default=0, description="bytes of each node; 0: not known, and no constraint")


class LinkSpec(Spec):
    """A link between nodes, switches or sites."""

    a: Text
    b: Text
    capacity: BytesPerSecond = Field(description="10GB/s or 25Gbit/s")
    latency: Seconds = Field(default=0.0, description="0.5ms")


class ClusterSpec(Spec):
    """A cluster file."""

    sites: list[Text] = Field(default=[], description="names of data centres")
    switches: list[Text] = Field(default=[], description="names of switches, for links")
    nodes: list[NodeSpec] = Field(min_length=1)
    links: list[LinkSpec] = Field(default=[])


def load_cluster(source: str | Path) -> Cluster:
    """Read a cluster from the compact form, from YAML text (a string that holds a line break), or from a
    YAML file.

    Node names: those of the file; else ``TYPE-000``, ``TYPE-001``, ..., counted through the whole cluster by
    the type of a node's first devices, so that a cluster which grows at its end keeps its names.

    Raises:
        SpecError: everything that is wrong, with its place.
    """
    if isinstance(source, str):
        if "\n" in source:
            return parse_cluster(source)
        if _LOOKS_COMPACT.match(source) and not Path(source).exists():
            return _compact(source)
        if not source.strip():
            raise SpecError(
                [SpecProblem("--cluster", 0, 0, "", "is empty", f"write {COMPACT}, or a YAML file")]
            )
    path = Path(source)
    if isinstance(source, str) and not path.exists() and path.suffix not in (".yaml", ".yml"):
        message = f"{source!r} is neither a file nor of the form {COMPACT}"
        raise SpecError([SpecProblem("--cluster", 0, 0, "", message)])
    return parse_cluster(read_text(path), str(path))


def parse_cluster(text: str, file: str = "<text>") -> Cluster:
    """Read a cluster from YAML text; ``file`` is what errors call it.

    Raises:
        SpecError: as for `load_cluster`.
    """
    documents = load_documents(text, file)
    if len(documents) > 1:
        raise SpecError(
            [documents[1].problem((), "is a second document; a cluster file has one", "join them")]
        )
    spec = validate(ClusterSpec, documents[0])
    return _build(spec, documents[0])


def _compact(text: str) -> Cluster:
    """``8x1:v100,16x1:p100``"""
    groups: list[NodeSpec] = []
    at = 0
    for part in text.split(","):
        match = _GROUP.fullmatch(part.strip())
        if not match:
            raise SpecError(
                [_refusal(text, at, f"{part.strip()!r} is not NODESxDEVICES:TYPE", f"write {COMPACT}")]
            )
        nodes, devices = int(match[1]), int(match[2])
        if not (1 <= nodes <= MAX_NODES and 1 <= devices <= 1024):
            limits = f"1 to {MAX_NODES:,} nodes with 1 to 1,024 devices each are possible"
            raise SpecError(
                [_refusal(text, at, f"{part.strip()!r} has {nodes} nodes with {devices} devices", limits)]
            )
        groups.append(NodeSpec(count=nodes, devices=[DeviceSpec(type=match[3], count=devices)]))
        at += len(part) + 1
    return _build(ClusterSpec(nodes=groups), Document(f"--cluster {text!r}", {}, values={(): (1, 1)}))


def _refusal(text: str, at: int, message: str, hint: str) -> SpecProblem:
    return SpecProblem(f"--cluster {text!r}", 1, at + 1, "", message, hint)


def _build(spec: ClusterSpec, document: Document) -> Cluster:
    problems: list[SpecProblem] = []
    nodes = _nodes(spec, document, problems)
    links = _links(spec, document, {n.name for n in nodes}, {n.site for n in nodes}, problems)
    cluster = Cluster(tuple(nodes), tuple(links))
    if cluster.devices > MAX_DEVICES:
        problems.append(
            document.problem(
                ("nodes",), f"has {cluster.devices:,} devices; at most {MAX_DEVICES:,} are possible"
            )
        )
    if problems:
        raise SpecError(problems)
    return cluster


def _nodes(spec: ClusterSpec, document: Document, problems: list[SpecProblem]) -> list[Node]:
    nodes: list[Node] = []
    seen: set[str] = set()
    counters: dict[str, int] = {}
    for i, group in enumerate(spec.nodes):
        site = group.site or (spec.sites[0] if spec.sites else DEFAULT_SITE)
        if spec.sites and site not in spec.sites:
            problems.append(
                document.problem(
                    ("nodes", i, "site"), f"{site!r} is not in sites", did_you_mean(site, spec.sites)
                )
            )
        devices = tuple(DeviceGroup(d.type, d.count, d.memory) for d in group.devices)
        for name in _node_names(group, counters):
            if name in seen:
                message = f"two nodes would be called {name!r}"
                problems.append(
                    document.problem(("nodes", i, "name"), message, "give each group its own name")
                )
                break
            seen.add(name)
            nodes.append(Node(name, devices, site, group.cpus, group.memory))
        if len(nodes) > MAX_NODES:
            problems.append(document.problem(("nodes", i, "count"), f"makes more than {MAX_NODES:,} nodes"))
            break
    return nodes


def _node_names(group: NodeSpec, counters: dict[str, int]) -> list[str]:
    if group.name is None:
        kind = group.devices[0].type
        first = counters.get(kind, 0)
        counters[kind] = first + group.count
        return [f"{kind}-{i:03d}" for i in range(first, first + group.count)]
    if group.count == 1 and "{index}" not in group.name:
        return [group.name]
    pattern = group.name if "{index}" in group.name else group.name + "-{index}"
    return [pattern.replace("{index}", f"{i:03d}") for i in range(group.count)]


def _links(
    spec: ClusterSpec, document: Document, nodes: set[str], sites: set[str], problems: list[SpecProblem]
) -> list[Link]:
    links: list[Link] = []
    ends = nodes | sites | set(spec.sites) | set(spec.switches)
    seen: dict[frozenset[str], int] = {}
    for i, link in enumerate(spec.links):
        for side in ("a", "b"):
            end: str = getattr(link, side)
            if end not in ends:
                near = did_you_mean(end, ends)
                hint = near if near.startswith("did") else "name a node, a site, or one of 'switches'"
                problems.append(document.problem(("links", i, side), f"nothing is called {end!r}", hint))
        pair = frozenset((link.a, link.b))
        if link.a == link.b:
            problems.append(document.problem(("links", i), f"leads from {link.a!r} to itself", "remove it"))
        elif pair in seen:
            message = f"joins {link.a!r} and {link.b!r}, as link {seen[pair]} does (links run both ways)"
            problems.append(document.problem(("links", i), message, "keep one, with the capacity of both"))
        seen.setdefault(pair, i)
        links.append(Link(link.a, link.b, link.capacity, link.latency))
    return links
