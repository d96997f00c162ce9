"""One look at the cluster, as ``haibun.report.live`` draws it."""

from __future__ import annotations

from haibun.report.live import LiveDevice, LiveJob, LiveNode, LiveView
from haibun.run.views import NodeView, Overview, reason

_ORDER = ("running", "starting", "stopping", "recovering", "paused", "queued", "pending")


def view_of(overview: Overview) -> LiveView:
    """An overview as ``haibun.report.live`` draws it: first what runs, then what waits, then what has ended."""
    place = {state: i for i, state in enumerate(_ORDER)}
    jobs = sorted(overview.jobs, key=lambda j: (place.get(j.state, len(place)), -j.priority, j.submitted))
    started = min((job.submitted for job in overview.jobs), default=overview.now)
    messages = [f"Nothing can be accepted just now: {overview.degraded}"] if overview.degraded else []
    return LiveView(
        policy=overview.policy,
        elapsed=overview.now - started,
        nodes=[LiveNode(node.name, _devices(node), node.health) for node in overview.nodes],
        jobs=[
            LiveJob(
                id=job.id,
                name=job.name or job.id,
                state=job.state,
                devices=job.devices,
                step=job.step or 0.0,
                total=job.total,
                rate=job.rate,
                priority=job.priority,
                since=overview.now - job.submitted,
                why=reason(job),
            )
            for job in jobs
        ],
        messages=messages,
    )


def _devices(node: NodeView) -> list[LiveDevice]:
    healthy = node.health != "lost"
    return [LiveDevice(str(i), holder, healthy) for i, holder in enumerate(node.holders)]
