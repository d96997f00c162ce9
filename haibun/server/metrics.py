"""The overview as metrics in Prometheus' text format, version 0.0.4."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from haibun.core.vocabulary import JobState
from haibun.run.views import Overview

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(overview: Overview) -> str:
    """The whole page. All states are listed, with 0 where no job is in one: series must not vanish."""
    states = {state.name.lower(): 0 for state in JobState} | overview.counts
    nodes = overview.nodes
    usable = [n for n in nodes if n.health == "up"]
    health = {"up": 0, "draining": 0, "lost": 0}
    for node in nodes:
        health[node.health] = health.get(node.health, 0) + 1
    devices = {
        "free": sum(n.free for n in usable),
        "held": sum(h is not None for n in nodes for h in n.holders),
        "unusable": sum(n.free for n in nodes if n.health != "up"),
    }
    parts = [
        _metric("haibun_jobs", "gauge", "Jobs by state.", _labelled("state", states)),
        _metric("haibun_nodes", "gauge", "Nodes by health.", _labelled("health", health)),
        _metric("haibun_devices", "gauge", "Devices by state.", _labelled("state", devices)),
        _metric("haibun_events_total", "counter", "Events applied.", [("", overview.events)]),
        _metric("haibun_decisions_total", "counter", "Decisions made.", [("", overview.decisions)]),
        _metric(
            "haibun_degraded",
            "gauge",
            "1 while nothing can be accepted.",
            [("", overview.degraded is not None)],
        ),
        _metric(
            "haibun_policy_info", "gauge", "The policy in force.", _labelled("policy", {overview.policy: 1})
        ),
    ]
    return "".join(parts)


def _metric(name: str, kind: str, what: str, samples: Iterable[tuple[str, float]]) -> str:
    lines = [f"# HELP {name} {what}", f"# TYPE {name} {kind}"]
    lines += [
        f"{name}{labels} {float(value):g}" if value < 1e6 else f"{name}{labels} {value}"
        for labels, value in samples
    ]
    return "\n".join(lines) + "\n"


def _labelled(label: str, values: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(f'{{{label}="{_escaped(name)}"}}', value) for name, value in values.items()]


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
