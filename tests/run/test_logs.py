"""Logs: rotation loses nothing, tails and followers see all of it in order."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from agent_fakes import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st

from haibun.run.logs import epoch_folder, follow, last_words, log_files, rank_log, rotate, tail

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def test_a_log_within_its_limit_is_left_alone(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert not rotate(log, 10)
    log.write_text("0123456789")
    assert not rotate(log, 10)


def test_rotation_keeps_so_many_old_parts(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    for n in range(5):
        log.write_text(f"part {n}\n")
        assert rotate(log, 3, keep=3)
    assert [p.read_text() for p in sorted(tmp_path.glob("a.log.*"))] == ["part 4\n", "part 3\n", "part 2\n"]
    assert log.read_text() == ""
    assert tail(log, 2) == ["part 3", "part 4"]


def test_a_writer_that_appends_goes_on_after_a_rotation(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.write(fd, b"before\n")
    rotate(log, 1)
    os.write(fd, b"after\n")
    os.close(fd)
    assert log.read_text() == "after\n"
    assert (tmp_path / "a.log.1").read_text() == "before\n"


@pytest.mark.live
def test_nothing_is_lost_while_a_process_writes_and_the_writer_is_held_for_the_end(tmp_path: Path) -> None:
    import contextlib
    import signal

    log = tmp_path / "a.log"
    code = "for n in range(60000): print(n, flush=True)"
    with open(log, "ab") as f:
        writer = subprocess.Popen([sys.executable, "-c", code], stdout=f)

    @contextlib.contextmanager
    def still():  # type: ignore[no-untyped-def]
        writer.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, writer.pid, os.WSTOPPED | os.WNOWAIT | os.WEXITED)
        yield
        writer.send_signal(signal.SIGCONT)

    rotations = 0
    while writer.poll() is None:
        rotations += rotate(log, 20_000, keep=1000, still=still)
    parts = sorted(tmp_path.glob("a.log.*"), key=lambda p: -int(p.suffix[1:]))
    whole = b"".join(p.read_bytes() for p in [*parts, log])
    assert rotations > 2
    assert whole.split() == [str(n).encode() for n in range(60000)]


@settings(max_examples=50)
@given(
    st.lists(st.text(st.characters(blacklist_characters="\n\r", blacklist_categories=("Cs",)), max_size=50)),
    st.integers(1, 60),
)
def test_a_tail_is_the_end_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], n: int
) -> None:
    log = tmp_path_factory.mktemp("t") / "a.log"
    log.write_text("".join(f"{line}.\n" for line in lines))
    assert tail(log, n) == [f"{line}." for line in lines][-n:]


def test_last_words_are_the_last_line_with_anything_on_it(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    assert last_words(log) == ""
    log.write_text("Traceback:\nValueError: no\n\n  \n")
    assert last_words(log) == "ValueError: no"
    log.write_text("x" * 1000)
    assert last_words(log) == "x" * 200


def test_logs_are_listed_by_rank_of_the_latest_epoch(tmp_path: Path) -> None:
    assert log_files(tmp_path) == []
    for epoch, names in (
        (2, ["rank-0.log"]),
        (10, ["rank-0.log", "rank-10.log", "rank-2.log", "setup.log", "rank-0.log.1"]),
    ):
        epoch_folder(tmp_path, epoch).mkdir()
        for name in names:
            (epoch_folder(tmp_path, epoch) / name).touch()
    assert [p.name for p in log_files(tmp_path)] == ["setup.log", "rank-0.log", "rank-2.log", "rank-10.log"]
    assert log_files(tmp_path, 2) == [rank_log(tmp_path, 2, 0)]


async def test_a_follower_sees_all_lines_of_all_ranks_across_rotations(tmp_path: Path) -> None:
    one, two = tmp_path / "rank-0.log", tmp_path / "rank-1.log"
    script = [
        lambda: one.write_text("a\nb"),
        lambda: two.write_text("x\n"),
        lambda: one.open("a").write("c\nd\n"),
        lambda: rotate(one, 1),
        lambda: one.open("a").write("e\n"),
        lambda: (
            one.open("a").write("f\n"),
            rotate(one, 1),
            one.open("a").write("a line that is longer than before\n"),
        ),
        lambda: two.open("a").write("no end"),
    ]

    class Clock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            await super().sleep(seconds)
            if script:
                script.pop(0)()

    seen: dict[str, list[str]] = {}
    async for line in follow(lambda: [p for p in (one, two) if p.exists()], lambda: not script, Clock()):
        seen.setdefault(line.path.name, []).append(line.text)
    assert seen == {
        "rank-0.log": ["a", "bc", "d", "e", "f", "a line that is longer than before"],
        "rank-1.log": ["x", "no end"],
    }


async def test_a_follower_may_begin_at_the_end(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("old\n")
    script = [lambda: log.open("a").write("new\n")]

    class Clock(FakeClock):
        async def sleep(self, seconds: float) -> None:
            script.pop(0)()

    lines = [line.text async for line in follow([log], lambda: not script, Clock(), from_start=False)]
    assert lines == ["new"]


def test_of_a_log_that_outgrew_its_limit_only_the_end_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    whole = b"".join(b"%07d\n" % n for n in range(1000))
    log.write_bytes(whole)
    assert rotate(log, 500, most=1000)
    notice, kept = (tmp_path / "a.log.1").read_bytes().split(b"\n", 1)
    assert len(notice) + len(kept) < 1000
    assert whole.endswith(kept)
    assert f"{len(whole) - len(kept)} bytes left out".encode() in notice
    assert log.stat().st_size == 0


def test_a_writer_that_outruns_the_copy_does_not_lengthen_it(tmp_path: Path) -> None:
    import contextlib

    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 900)

    @contextlib.contextmanager
    def still():  # type: ignore[no-untyped-def]
        with log.open("ab") as f:
            f.write(b"y" * 5000)
        yield

    assert rotate(log, 500, still=still, most=1000)
    old = (tmp_path / "a.log.1").read_bytes()
    assert len(old) <= 1000
    assert b"5028 bytes left out" in old
    assert old.endswith(b"\n" + b"y" * 872)


@pytest.mark.parametrize(("seen", "lines"), [(b"a\nb", 400), (b"z\n" * 2000, 10)])
async def test_a_follower_goes_on_where_the_beginning_was_left_out(
    tmp_path: Path, seen: bytes, lines: int
) -> None:
    log = tmp_path / "rank-0.log"
    script = [lambda: log.write_bytes(seen), lambda: append_and_rotate()]

    def append_and_rotate() -> None:
        with log.open("ab") as f:
            f.write(b"\n" * (not seen.endswith(b"\n")) + b"".join(b"%07d\n" % n for n in range(lines)))
        assert rotate(log, 10, most=1000)

    def ended() -> bool:
        if script:
            script.pop(0)()
            return False
        return True

    got = [line.text async for line in follow([log], ended, FakeClock())]
    last = [f"{n:07d}" for n in range(lines)]
    if seen == b"a\nb":
        assert got[:2] == ["a", "b"]
        assert "bytes left out" in got[2]
        assert got[-100:] == last[-100:]
    else:
        assert got == ["z"] * 2000 + last
