"""Small signs at the end of a bar: how the attempt ended. Their shapes differ, not only their colours."""

from __future__ import annotations

from haibun.report import svg

MEANING = {
    "preempted": "gave its devices back",
    "failed": "failed",
    "lost": "lost with its node",
    "cancelled": "cancelled",
}


def sign(outcome: str, right: float, y: float, size: float) -> str:
    """The sign of an outcome in ``MEANING``, ``size`` pixels from its middle, its right edge at ``right``."""
    x = right - size - 1.5
    if outcome == "preempted":  # points back to the queue
        corners = f"{x - size:.1f},{y:.1f} {x + size:.1f},{y - size:.1f} {x + size:.1f},{y + size:.1f}"
        return svg.element("polygon", points=corners, class_="sign paused")
    if outcome == "cancelled":
        side = size * 1.6
        return svg.element(
            "rect", x=x - side / 2, y=y - side / 2, width=side, height=side, class_="sign ended"
        )
    if outcome == "lost":
        return svg.element("circle", cx=x, cy=y, r=size * 0.85, class_="sign bad")
    a, b, c, d = (f"{v:.1f}" for v in (x - size, x + size, y - size, y + size))
    cross = f"M{a} {c}L{b} {d}M{a} {d}L{b} {c}"
    return svg.element("path", d=cross, class_="sign halo") + svg.element("path", d=cross, class_="sign bad")
