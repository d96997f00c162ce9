"""What the parts of a gang report, merged."""

from __future__ import annotations

from haibun.core.events import (
    AttemptFailed,
    AttemptHeld,
    AttemptProgressed,
    AttemptStarted,
    AttemptStopped,
    AttemptSucceeded,
)
from haibun.run.gang import Gang


def gang() -> Gang:
    return Gang("j", 1, ("a", "b"))


def test_it_has_started_when_all_parts_have_and_is_held_when_all_are() -> None:
    g, started, held = gang(), AttemptStarted(1.0, "j", 1), AttemptHeld(2.0, "j", 1, 5.0)
    assert g.merge("a", started) is None
    assert g.merge("b", started) == started
    assert g.merge("a", held) is None
    assert g.merge("b", held) == held
    assert g.merge("a", started) is None, "b stands still yet"
    assert g.merge("b", started) == started


def test_progress_is_that_of_the_first_node() -> None:
    g, progress = gang(), AttemptProgressed(1.0, "j", 1, 5.0)
    assert g.merge("b", progress) is None
    assert g.merge("a", progress) == progress


def test_it_ends_when_all_parts_have_and_failed_if_one_did() -> None:
    g, failed = gang(), AttemptFailed(1.0, "j", 1, "boom", node="b")
    assert g.merge("b", failed) is None
    assert (g.broken, g.living()) == (True, ("a",))
    assert g.merge("b", failed) is None, "said twice"
    assert g.merge("a", AttemptStopped(2.0, "j", 1, 9.0, 5.0)) == failed
    assert g.over


def test_it_succeeded_if_all_parts_did_and_stopped_with_what_is_durable_everywhere() -> None:
    g = gang()
    g.merge("a", AttemptSucceeded(1.0, "j", 1, 9.0))
    assert g.merge("b", AttemptSucceeded(2.0, "j", 1, 9.0)) == AttemptSucceeded(1.0, "j", 1, 9.0)
    g = gang()
    g.merge("a", AttemptStopped(1.0, "j", 1, 9.0, 9.0))
    assert g.merge("b", AttemptStopped(2.0, "j", 1, 9.0, 4.0)) == AttemptStopped(1.0, "j", 1, 9.0, 4.0)


def test_a_part_that_was_lost_is_no_success() -> None:
    g = gang()
    g.merge("a", AttemptSucceeded(1.0, "j", 1, 9.0))
    g.lose("b")
    assert isinstance(g.end(), AttemptStopped)
    g = gang()
    g.lose("a")
    g.lose("b")
    assert g.over
    assert g.end() is None, "nobody can tell; the core knows that the nodes are lost"


def test_strangers_are_not_heard() -> None:
    assert gang().merge("c", AttemptFailed(1.0, "j", 1, "boom")) is None
