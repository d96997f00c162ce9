"""The client against a real server over a fake controller."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from fake_controller import FULL_DISK, TOKEN, job_view
from live_server import Live

from haibun.client import (
    Client,
    Conflict,
    Invalid,
    LogLine,
    NotFound,
    ServerNotRunning,
    Unauthorised,
    Unavailable,
    find_server,
)
from haibun.run.views import JobView
from haibun.spec import JobSpec, Resources


def test_jobs_are_submitted_as_files_values_and_specs(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: from-file\nrun: python a.py\n---\nname: second\nrun: python b.py\n")
    spec = JobSpec(name="spec", run=["python", "c.py"], resources=Resources(devices=2))
    with Client() as client:
        assert client.submit(file, {"name": "value", "run": "x"}, spec) == ["1", "2", "3", "4"]
        assert [job.name for job in client.ls()] == ["from-file", "second", "value", "spec"]
        assert client.show("spec").job.devices == 2
    assert live.controller.calls[0][2] == str(Path.cwd())


def test_a_command_is_one_job(live: Live) -> None:
    with Client() as client:
        job = client.run(
            ["python", "train.py"], devices=2, name="train", resources={"cpus": 2.0}, workdir="/w"
        )
        detail = client.show(job)
    assert json.loads(detail.spec)["resources"] == {"devices": 2, "cpus": 2.0}
    assert live.controller.calls == [("submit", ["1"], "/w")]


def test_what_is_wrong_with_a_file_is_told_with_its_place(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("run: x\nretrys: 1\n")
    with Client() as client, pytest.raises(Invalid, match="retrys") as caught:
        client.submit(file)
    (field,) = caught.value.fields
    assert (field.file, field.line, field.field) == (str(file), 2, "retrys")
    assert "retries" in field.hint


def test_all_verbs_reach_the_controller(live: Live) -> None:
    live.controller.table["1"] = job_view("1", "a/b c?")
    with Client() as client:
        client.pause("a/b c?", hold=True)
        client.resume("1")
        client.set_priority("1", 3)
        client.drain("n1", evict=False)
        client.undrain("n1")
        client.cancel("1")
        client.shutdown(keep_jobs=True)
        assert client.explain("1").ahead == ("7", "8")
        assert [node.name for node in client.nodes()] == ["n1", "n2"]
        assert client.top().policy == "fifo"
    assert live.controller.calls == [
        ("pause", "1", True),
        ("resume", "1"),
        ("priority", "1", 3),
        ("drain", "n1", False),
        ("undrain", "n1"),
        ("cancel", "1"),
    ]
    assert live.asked == [True]


def test_lists_are_filtered_and_paged(live: Live) -> None:
    for i in range(4):
        live.controller.table[str(i)] = job_view(str(i), state="running" if i % 2 else "failed")
    with Client() as client:
        assert [j.id for j in client.ls("running")] == ["1", "3"]
        page = client.ls(limit=3)
        assert [j.id for j in page] == ["1", "2", "3"]
        assert [j.id for j in client.ls(after=page[0].id)] == ["0"]


def test_following_gives_states_and_lines_until_the_end(live: Live) -> None:
    live.controller.table["1"] = job_view("1")

    def goes_on() -> None:
        live.controller.write("1", 1, 0, "hello\n")
        live.controller.change("1", state="running", attempts=1)
        live.controller.change("1", state="succeeded")

    live.when_followed(goes_on, listeners=2)
    with Client() as client:
        told = list(client.follow("1"))
    assert LogLine(1, 0, "hello") in told
    states = [item.state for item in told if isinstance(item, JobView)]
    assert (states[0], states[-1]) == ("queued", "succeeded")
    assert isinstance(told[-1], JobView)


def test_logs_are_read_without_waiting(live: Live) -> None:
    live.controller.table["1"] = job_view("1", state="running")
    live.controller.write("1", 1, 0, "a\nb\n")
    with Client() as client:
        assert [line.text for line in client.logs("1", tail=1)] == ["b"]
        with pytest.raises(NotFound):
            list(client.logs("2"))


def test_waiting_ends_with_the_job_or_with_patience(live: Live) -> None:
    live.controller.table["1"] = job_view("1", state="running")
    with Client() as client:
        with pytest.raises(TimeoutError, match="still running"):
            client.wait("1", timeout=0)
        live.when_followed(lambda: live.controller.change("1", state="failed"))
        assert client.wait("1").state == "failed"


def test_events_come_as_they_happen(live: Live) -> None:
    live.when_followed(lambda: live.controller.say("node-lost", node="n2"))
    with Client() as client:
        event = next(client.events("node-lost"))
    assert (event["kind"], event["node"]) == ("node-lost", "n2")


def test_errors_are_of_their_kind(live: Live) -> None:
    live.controller.table["1"] = job_view("1", "train", state="succeeded")
    with Client() as client:
        with pytest.raises(NotFound, match="did you mean 'train'"):
            client.show("trian")
        with pytest.raises(Conflict, match="cannot be paused"):
            client.pause("1")
        with pytest.raises(Invalid, match="never be placed"):
            client.run(["x"], devices=100)
        with pytest.raises(Invalid, match="no job file"):
            client.submit("/nowhere/job.yaml")
        with pytest.raises(NotFound, match="empty"):
            client.show("")
        live.controller.broken = FULL_DISK
        with pytest.raises(Unavailable, match="no space left"):
            client.run(["x"])
    with Client(token="wrong") as client, pytest.raises(Unauthorised, match="token"):
        client.ls()


def test_no_server_is_told_with_how_to_start_one(home: Path) -> None:
    with pytest.raises(ServerNotRunning, match="haibun up"):
        Client()
    with Client("http://127.0.0.1:1", TOKEN) as client, pytest.raises(ServerNotRunning, match="haibun up"):
        client.ls()


def test_a_server_is_found_by_what_it_wrote_into_its_home(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.mkdir()
    (home / "server.json").write_text('{"url": "http://127.0.0.1:7878/", "pid": 1}')
    with pytest.raises(Unauthorised, match="no token"):
        find_server()
    (home / "token").write_text("secret\n")
    assert find_server() == ("http://127.0.0.1:7878", "secret")
    monkeypatch.setenv("HAIBUN_URL", "http://elsewhere:1")
    monkeypatch.setenv("HAIBUN_TOKEN", "other")
    assert find_server() == ("http://elsewhere:1", "other")
    assert find_server("http://here", "mine") == ("http://here", "mine")


def test_without_a_token_the_server_that_runs_is_named(home: Path) -> None:
    home.mkdir()
    about = {"url": "http://127.0.0.1:7878/", "pid": os.getpid()}
    (home / "server.json").write_text(json.dumps(about))
    with pytest.raises(Unauthorised, match=f"process {os.getpid()}; 'kill -TERM {os.getpid()}' saves"):
        find_server()
    (home / "server.json").write_text(json.dumps(about | {"pid": 2**22 + 1}))
    with pytest.raises(Unauthorised, match="set HAIBUN_TOKEN"):
        find_server()


@pytest.mark.parametrize("text", ["", "[]", '{"port": 1}', "{"])
def test_a_damaged_server_file_is_no_server(home: Path, text: str) -> None:
    home.mkdir()
    (home / "server.json").write_text(text)
    with pytest.raises(ServerNotRunning):
        find_server()
