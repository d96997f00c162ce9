"""What an ended attempt is reported as."""

from __future__ import annotations

import pytest

from haibun.core.events import AttemptFailed, AttemptStopped, AttemptSucceeded
from haibun.run.ending import EndEvent, Exit, Memory, Standing, cause, ended, first_failure, size

WHO = Standing("j", 2, "n1", step=57.0, durable=50.0, attached=True)


def end(*exits: Exit, asked: bool = False, forced: bool = False, memory: Memory | None = None) -> EndEvent:
    return ended(9.0, WHO, list(exits), memory or Memory(counted=True), asked, forced)


@pytest.mark.parametrize(
    ("exit_", "memory", "said"),
    [
        (Exit(1, 3), Memory(), "rank 1 exited with code 3"),
        (Exit(1, 1, "ValueError: no"), Memory(), "rank 1 exited with code 1: ValueError: no"),
        (Exit(0, -9), Memory(), "rank 0 was killed by SIGKILL (out of memory?)"),
        (Exit(0, -9), Memory(counted=True), "rank 0 was killed by SIGKILL"),
        (
            Exit(0, -9),
            Memory(2 * 10**9, 1, True),
            "rank 0 was killed by SIGKILL (out of memory: the limit is 2.0 GB)",
        ),
        (Exit(0, -11, "boom"), Memory(), "rank 0 was killed by SIGSEGV: boom"),
        (Exit(0, -99), Memory(), "rank 0 was killed by signal 99"),
    ],
)
def test_causes_say_who_and_why(exit_: Exit, memory: Memory, said: str) -> None:
    assert cause(exit_, memory) == said


def test_the_first_death_by_a_signal_is_what_the_others_follow_from() -> None:
    exits = [Exit(0, 0), Exit(2, 1), Exit(1, -9)]
    assert first_failure(exits) == Exit(1, -9)
    assert first_failure(exits[:2]) == Exit(2, 1)
    assert first_failure(exits[:1]) is None


def test_all_zero_is_success() -> None:
    assert end(Exit(0, 0), Exit(1, 0)) == AttemptSucceeded(9.0, "j", 2, step=57.0)


def test_a_failure_names_the_node_and_what_is_safe() -> None:
    assert end(Exit(0, 3)) == AttemptFailed(
        9.0, "j", 2, "rank 0 exited with code 3", 57.0, 50.0, node="n1", fatal=False
    )


def test_a_yield_is_a_stop_when_asked_for_and_a_failure_when_not() -> None:
    yielded = Exit(0, 0, yielded=True)
    assert isinstance(end(yielded, asked=True), AttemptStopped)
    assert isinstance(end(yielded), AttemptFailed)


def test_a_job_that_finished_before_it_could_obey_has_succeeded() -> None:
    assert isinstance(end(Exit(0, 0), asked=True), AttemptSucceeded)


def test_after_a_signal_an_exit_code_says_nothing() -> None:
    assert isinstance(end(Exit(0, 0), asked=True, forced=True), AttemptStopped)
    assert isinstance(end(Exit(0, 143), asked=True, forced=True), AttemptStopped)
    assert isinstance(end(Exit(0, 1), asked=True), AttemptStopped)


def test_sizes_are_for_people() -> None:
    assert [size(n) for n in (12, 1500, 2.5e6, 3.21e9)] == ["12 bytes", "2 kB", "2 MB", "3.2 GB"]
