"""The API, over a controller that is a fake, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from fake_controller import FULL_DISK, TOKEN, FakeController, job_view

from haibun.run.views import JobView
from haibun.server.api import create_app
from haibun.server.guard import MOST_BODY

JOB = {"name": "train", "run": "python train.py", "resources": {"devices": 2}}


def ask(
    controller: FakeController,
    method: str,
    path: str,
    *,
    token: str | None = TOKEN,
    on_shutdown: Callable[[bool], None] | None = None,
    **more: Any,
) -> httpx.Response:
    """One request to the application."""

    async def go() -> httpx.Response:
        app = create_app(controller, TOKEN, on_shutdown)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        headers = {"Authorization": f"Bearer {token}"} if token is not None else {}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://haibun", headers=headers
        ) as client:
            return await client.request(method, path, **more)

    return asyncio.run(go())


def submit(controller: FakeController, *jobs: dict[str, Any], workdir: str = "/work") -> httpx.Response:
    return ask(controller, "POST", "/v1/jobs", json={"workdir": workdir, "jobs": jobs})


def test_jobs_are_accepted_in_order_and_arrays_become_one_job_each(controller: FakeController) -> None:
    answer = submit(controller, JOB, {**JOB, "name": "sweep", "array": "0-2"})
    assert (answer.status_code, answer.json()) == (201, {"ids": ["1", "2", "3", "4"]})
    assert [v.name for v in controller.table.values()] == ["train", "sweep[0]", "sweep[1]", "sweep[2]"]


def test_a_job_is_shown_as_its_view(controller: FakeController) -> None:
    submit(controller, JOB)
    shown = ask(controller, "GET", "/v1/jobs/train").json()
    assert shown["job"]["id"] == "1"
    assert set(shown["job"]) == set(JobView.__struct_fields__)
    assert json.loads(shown["spec"])["resources"] == {"devices": 2}


def test_a_job_file_is_refused_with_file_line_column_and_field(controller: FakeController) -> None:
    text = "name: a\nrun: x\nresources:\n  devises: 2\n"
    answer = ask(
        controller, "POST", "/v1/jobs", json={"workdir": "/w", "files": [{"name": "job.yaml", "text": text}]}
    )
    problem = answer.json()
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    (field,) = problem["fields"]
    assert (field["file"], field["line"], field["field"]) == ("job.yaml", 4, "resources.devises")
    assert "devices" in field["hint"]
    assert controller.table == {}


def test_all_that_is_wrong_with_all_jobs_is_told_at_once(controller: FakeController) -> None:
    answer = submit(controller, {"run": "x", "retries": -1}, {"name": "b"})
    assert [f["field"] for f in answer.json()["fields"]] == ["retries", "run"]


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        (b"{", 400, "not JSON"),
        (b"[]", 422, "Expected `object`"),
        (b'{"workdir": "/w", "spam": 1}', 422, "spam"),
        (b'{"workdir": "/w"}', 422, "no job"),
        (b'{"workdir": "w", "jobs": [{"run": "x"}]}', 422, "absolute"),
        (b'{"workdir": "/w", "jobs": [{"run": "x", "resources": {"devices": 64}}]}', 422, "never be placed"),
        (b'{"workdir": "/w", "jobs": [{"run": "x", "resources": {"devices": -1}}]}', 422, "devices"),
        (b"\xff\xfe", 400, "not JSON"),
    ],
)
def test_a_bad_submission_is_refused_in_words(
    controller: FakeController, body: bytes, status: int, said: str
) -> None:
    answer = ask(controller, "POST", "/v1/jobs", content=body)
    assert answer.status_code == status
    assert said in answer.json()["message"]
    assert controller.table == {}


@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_that_is_too_large_is_refused(controller: FakeController, chunked: bool) -> None:
    async def pieces() -> Any:
        for _ in range(5):
            yield b" " * (1 << 20)

    content = pieces() if chunked else b" " * (MOST_BODY + 1)
    answer = ask(controller, "POST", "/v1/jobs", content=content)
    assert (answer.status_code, answer.json()["code"]) == (413, "too-large")


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN + "x", "ключ"])
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/nodes", "/metrics", "/v1/openapi.json", "/nowhere"])
def test_nothing_is_told_without_the_token(controller: FakeController, token: str | None, path: str) -> None:
    if token == "ключ":
        headers = {"Authorization": b"Bearer " + token.encode()}
        answer = ask(controller, "GET", path, token=None, headers=headers)
    else:
        answer = ask(controller, "GET", path, token=token)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "token" in answer.json()["message"]


def test_whether_it_lives_may_be_asked_without_a_token(controller: FakeController) -> None:
    assert ask(controller, "GET", "/healthz", token=None).json()["status"] == "ok"


def test_jobs_are_filtered_and_paged(controller: FakeController) -> None:
    for i in range(5):
        controller.table[str(i)] = job_view(
            str(i), state="running" if i % 2 else "queued", tenant=f"t{i // 3}"
        )

    def ids(query: str) -> list[str]:
        return [j["id"] for j in ask(controller, "GET", f"/v1/jobs?{query}").json()["jobs"]]

    assert ids("state=running") == ["1", "3"]
    assert ids("state=running&state=queued&tenant=t1") == ["3", "4"]
    first = ask(controller, "GET", "/v1/jobs?limit=2").json()
    assert ([j["id"] for j in first["jobs"]], first["next"]) == (["3", "4"], "3")
    assert ids("limit=2&after=3") == ["1", "2"]


@pytest.mark.parametrize(
    ("method", "path", "status", "said"),
    [
        ("GET", "/v1/jobs?state=runing", 422, "runing"),
        ("GET", "/v1/jobs?limit=0", 422, "limit"),
        ("GET", "/v1/jobs?limit=many", 422, "limit"),
        ("GET", "/v1/jobs/tain", 404, "did you mean 'train'"),
        ("POST", "/v1/jobs/7/cancel", 404, "no job '7'"),
        ("GET", "/v1/jobs/1/logs?rank=-1", 422, "rank"),
        ("POST", "/v1/nodes/n1x/drain", 404, "did you mean 'n1'"),
        ("GET", "/nowhere", 404, "Not Found"),
        ("DELETE", "/v1/nodes", 405, "Method Not Allowed"),
    ],
)
def test_a_bad_request_is_refused_in_words(
    controller: FakeController, method: str, path: str, status: int, said: str
) -> None:
    controller.table["1"] = job_view("1", "train")
    answer = ask(controller, method, path)
    assert answer.status_code == status
    assert said in answer.json()["message"]
    assert answer.headers["content-type"] == "application/problem+json"


def test_verbs_reach_the_controller(controller: FakeController) -> None:
    controller.table["1"] = job_view("1", "a/b")
    ask(controller, "POST", "/v1/jobs/1/pause", json={"hold": True})
    ask(controller, "POST", "/v1/jobs/a%2Fb/resume")
    ask(controller, "POST", "/v1/jobs/1/priority", json={"priority": 7})
    ask(controller, "POST", "/v1/nodes/n1/drain", json={"evict": False})
    ask(controller, "POST", "/v1/nodes/n1/undrain")
    assert controller.calls == [
        ("pause", "1", True),
        ("resume", "1"),
        ("priority", "1", 7),
        ("drain", "n1", False),
        ("undrain", "n1"),
    ]


def test_what_the_state_of_a_job_forbids_is_a_conflict(controller: FakeController) -> None:
    controller.table["1"] = job_view("1", state="succeeded")
    answer = ask(controller, "POST", "/v1/jobs/1/pause")
    assert (answer.status_code, answer.json()["code"]) == (409, "conflict")


def test_a_full_disk_is_told_and_nothing_is_accepted(controller: FakeController) -> None:
    controller.broken = FULL_DISK
    answer = submit(controller, JOB)
    assert (answer.status_code, answer.json()["code"]) == (503, "unavailable")
    assert "no space left" in answer.json()["message"]


def test_an_internal_error_shows_a_number_and_no_traceback(
    controller: FakeController, caplog: pytest.LogCaptureFixture
) -> None:
    controller.broken = RuntimeError("secret detail")
    answer = ask(controller, "GET", "/v1/jobs")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["id"] in caplog.text
    assert "secret detail" in caplog.text


def test_waiting_ends_with_the_job_or_with_patience(controller: FakeController) -> None:
    controller.table["1"] = job_view("1", state="succeeded")
    controller.table["2"] = job_view("2", state="running")
    assert ask(controller, "GET", "/v1/jobs/1/wait").json()["state"] == "succeeded"
    assert ask(controller, "GET", "/v1/jobs/2/wait?timeout=0").json()["state"] == "running"


def test_explanations_nodes_and_overview_are_their_views(controller: FakeController) -> None:
    controller.table["1"] = job_view("1")
    assert ask(controller, "GET", "/v1/jobs/1/explain").json()["ahead"] == ["7", "8"]
    assert [n["name"] for n in ask(controller, "GET", "/v1/nodes").json()["nodes"]] == ["n1", "n2"]
    assert ask(controller, "GET", "/v1/overview").json()["counts"] == {"queued": 1}


def test_metrics_list_all_states(controller: FakeController) -> None:
    controller.table["1"] = job_view("1", state="running")
    lines = ask(controller, "GET", "/metrics").text.splitlines()
    assert 'haibun_jobs{state="running"} 1' in lines
    assert 'haibun_jobs{state="failed"} 0' in lines
    assert 'haibun_devices{state="free"} 1' in lines
    assert 'haibun_devices{state="unusable"} 2' in lines
    assert 'haibun_nodes{health="lost"} 1' in lines
    assert "haibun_events_total 12" in lines


def test_shutting_down_is_for_the_owner_of_the_loop(controller: FakeController) -> None:
    asked: list[bool] = []
    answer = ask(controller, "POST", "/v1/shutdown", json={"keep_jobs": True}, on_shutdown=asked.append)
    assert (answer.status_code, asked) == (202, [True])
    assert ask(controller, "POST", "/v1/shutdown").status_code == 409
