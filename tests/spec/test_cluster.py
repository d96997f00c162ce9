"""Clusters: the compact form and the file."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.core.vocabulary import Cluster, DeviceGroup, Link, Node
from haibun.spec import SpecError, load_cluster, parse_cluster

REPOSITORY = Path(__file__).resolve().parents[2]


def test_the_compact_form_counts_nodes_and_devices() -> None:
    cluster = load_cluster("8x1:v100, 16x2:p100,24x1:k80")
    assert cluster.devices == 8 + 32 + 24
    assert cluster.device_types == ("v100", "p100", "k80")
    assert cluster.nodes[0] == Node("v100-000", (DeviceGroup("v100", 1),))
    assert cluster.nodes[8] == Node("p100-000", (DeviceGroup("p100", 2),))


def test_names_stay_when_a_cluster_grows_at_its_end() -> None:
    small, large = load_cluster("3x1:a,2x1:b,1x2:a"), load_cluster("3x1:a,2x1:b,1x2:a,5x4:b,1200x1:a")
    assert [n.name for n in small.nodes] == [n.name for n in large.nodes[: len(small.nodes)]]
    assert len({n.name for n in large.nodes}) == len(large.nodes)


@given(
    st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 16), st.sampled_from(["v100", "a100", "t4"])),
        min_size=1,
        max_size=5,
    )
)
def test_every_compact_cluster_has_what_it_says(groups: list[tuple[int, int, str]]) -> None:
    cluster = load_cluster(",".join(f"{n}x{d}:{t}" for n, d, t in groups))
    assert len(cluster.nodes) == sum(n for n, _, _ in groups)
    assert cluster.devices == sum(n * d for n, d, _ in groups)
    assert len({n.name for n in cluster.nodes}) == len(cluster.nodes)


FILE = """\
sites: [tokyo, osaka]
switches: [spine]
nodes:
  - name: gpu-{index}
    count: 2
    devices: [{type: v100, count: 8, memory: 16GiB}]
    cpus: 96
    memory: 768GiB
  - name: edge
    site: osaka
    devices: [{type: t4, count: 2}, {type: a10}]
links:
  - {a: tokyo, b: osaka, capacity: 10Gbit/s, latency: 5ms}
  - {a: gpu-000, b: spine, capacity: 12.5GB/s}
"""


def test_a_file_gives_sites_nodes_and_links() -> None:
    v100 = (DeviceGroup("v100", 8, 16 << 30),)
    assert parse_cluster(FILE) == Cluster(
        nodes=(
            Node("gpu-000", v100, "tokyo", 96.0, 768 << 30),
            Node("gpu-001", v100, "tokyo", 96.0, 768 << 30),
            Node("edge", (DeviceGroup("t4", 2), DeviceGroup("a10", 1)), "osaka"),
        ),
        links=(Link("tokyo", "osaka", 1.25e9, 0.005), Link("gpu-000", "spine", 1.25e10)),
    )


def test_a_name_without_a_place_for_the_number_gets_it_at_the_end() -> None:
    cluster = parse_cluster("nodes:\n  - {name: gpu, count: 2, devices: [{type: a}]}\n")
    assert [n.name for n in cluster.nodes] == ["gpu-000", "gpu-001"]


N = "nodes: [{name: n, devices: [{type: a}]}, {name: m, devices: [{type: a}]}]\n"
BAD = [
    ("sites: [x]\n", 1, "nodes", "is required"),
    ("nodes: []\n", 1, "nodes", "must not be empty"),
    ("nodes:\n  - {count: 2}\n", 2, "nodes[0].devices", "is required"),
    ("nodes:\n  - devices: []\n", 2, "nodes[0].devices", "must not be empty"),
    ("nodes:\n  - devices: [{type: a, count: 0}]\n", 2, "nodes[0].devices[0].count", "must be 1 or more"),
    ("nodes:\n  - devices: [{type: a, cuont: 2}]\n", 2, "nodes[0].devices[0].cuont", "did you mean 'count'"),
    ("nodes:\n  - {count: -1, devices: [{type: a}]}\n", 2, "nodes[0].count", "must be 1 or more"),
    ("nodes:\n  - {name: 'a b', devices: [{type: a}]}\n", 2, "nodes[0].name", "no name for a node"),
    ("nodes:\n  - {memory: -1, devices: [{type: a}]}\n", 2, "nodes[0].memory", "negative"),
    ("nodes:\n  - {cpus: .nan, devices: [{type: a}]}\n", 2, "nodes[0].cpus", "finite"),
    (
        "sites: [tokyo]\nnodes:\n  - {site: tokio, devices: [{type: a}]}\n",
        3,
        "nodes[0].site",
        "did you mean 'tokyo'",
    ),
    (N + "  \n" + N.replace("nodes", "x"), 3, "x", "is not a known field"),
    (
        "nodes: [{name: n, devices: [{type: a}]},\n {name: n, devices: [{type: a}]}]\n",
        2,
        "nodes[1].name",
        "two nodes would be called 'n'",
    ),
    (N + "links: [{a: n, b: o, capacity: 1GB/s}]\n", 2, "links[0].b", "nothing is called 'o'"),
    (N + "links: [{a: n, b: n, capacity: 1GB/s}]\n", 2, "links[0]", "to itself"),
    (N + "links: [{a: n, b: m, capacity: 1GB}]\n", 2, "links[0].capacity", "write for instance 1GB/s"),
    (N + "links: [{a: n, b: m, capacity: 0}]\n", 2, "links[0].capacity", "greater than 0"),
    (N + "links: [{a: n, b: m, capacity: 1, latency: -1}]\n", 2, "links[0].latency", "negative"),
    (
        N + "links:\n- {a: n, b: m, capacity: 1}\n- {a: m, b: n, capacity: 1}\n",
        4,
        "links[1]",
        "as link 0 does",
    ),
    (N + "---\n" + N, 3, "", "is a second document"),
    ("nodes: [{count: 100000, devices: [{type: a, count: 1024}]}]\n", 1, "nodes", "at most 1,000,000"),
]


@pytest.mark.parametrize(("text", "line", "field", "words"), BAD)
def test_what_is_wrong_in_a_file_is_told_with_its_place(text: str, line: int, field: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        parse_cluster(text, "c.yaml")
    problem = caught.value.problems[0]
    assert (problem.file, problem.line, problem.field) == ("c.yaml", line, field)


@pytest.mark.parametrize(
    ("text", "column", "words"),
    [
        ("56x8", 1, "'56x8' is not NODESxDEVICES:TYPE; write NODESxDEVICES"),
        ("8x1:v100,16x1", 10, "'16x1' is not"),
        ("8x1:v100,", 10, "'' is not"),
        ("0x8:v100", 1, "has 0 nodes"),
        ("8x0:v100", 1, "with 0 devices"),
        ("-8x8:v100", 1, "'-8x8:v100' is not"),
        ("8x99999:v100", 1, "1 to 1,024 devices"),
        ("99999999999x1:v100", 1, "1 to 100,000 nodes"),
        ("8:v100", 1, "is not NODESxDEVICES:TYPE"),
    ],
)
def test_what_is_wrong_in_the_compact_form_is_told_with_its_column(
    text: str, column: int, words: str
) -> None:
    with pytest.raises(SpecError, match=words) as caught:
        load_cluster(text)
    assert caught.value.problems[0].column == column


def test_a_missing_file_is_refused_with_a_hint(tmp_path: Path) -> None:
    (tmp_path / "cluster.yaml").write_text(FILE)
    assert load_cluster(tmp_path / "cluster.yaml") == load_cluster(FILE)
    with pytest.raises(SpecError, match=r"no such file; did you mean 'cluster.yaml'"):
        load_cluster(str(tmp_path / "clusters.yaml"))
    with pytest.raises(SpecError, match="neither a file nor of the form NODESxDEVICES:TYPE"):
        load_cluster("v100")
    with pytest.raises(SpecError, match="is empty; write NODESxDEVICES"):
        load_cluster("")


@pytest.mark.parametrize(
    "path", sorted((REPOSITORY / "examples/clusters").glob("*.yaml")), ids=lambda p: p.name
)
def test_every_example_is_valid(path: Path) -> None:
    assert load_cluster(path).devices > 0
