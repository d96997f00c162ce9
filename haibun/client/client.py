"""The client."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from haibun.client.errors import (
    ClientError,
    Invalid,
    NotFound,
    ServerNotRunning,
    Unavailable,
    check,
    not_running,
)
from haibun.client.finding import find_server
from haibun.run.views import ExplanationView, JobDetail, JobView, NodeView, Overview

if TYPE_CHECKING:
    from haibun.spec.job import JobSpec

T = TypeVar("T")

CONNECT_WITHIN, ANSWER_WITHIN = 5.0, 90.0  # seconds; a request that waits for a job is answered within sixty
WAIT_AT_A_TIME = 30.0
RETRY_AFTER = 0.5  # seconds: a server that restarts is back within two
ENDED = frozenset({"succeeded", "failed", "cancelled"})


class LogLine(msgspec.Struct, frozen=True):
    """A line of the log of one rank of one attempt."""

    epoch: int
    rank: int
    text: str


class _Followed(msgspec.Struct, frozen=True):
    """A line of a stream: of a log, or how the job is now."""

    epoch: int = 0
    rank: int = 0
    text: str = ""
    job: JobView | None = None


class _Jobs(msgspec.Struct, frozen=True):
    jobs: list[JobView]
    next: str | None = None


class _Nodes(msgspec.Struct, frozen=True):
    nodes: list[NodeView]


class _Ids(msgspec.Struct, frozen=True):
    ids: list[str]


class Client:
    """A connection to a server; see `find_server` for which. Jobs may be named by id or by name.

    All methods raise a `ClientError` of the kind that fits.

    Args:
        transport: for tests: what carries the requests instead of a network.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        home: str | Path | None = None,
        *,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.url, token = find_server(url, token, home)
        self._http = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(ANSWER_WITHIN, connect=CONNECT_WITHIN),
            trust_env=False,  # a proxy must not get to see the token
            transport=transport,
            verify=self.url.startswith("https"),  # loading certificates takes longer than most requests
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self._http.close()

    # ---- jobs

    def submit(
        self, *jobs: str | Path | JobSpec | Mapping[str, Any], workdir: str | Path | None = None
    ) -> list[str]:
        """Submit job files (by path), specs, or dicts: all or none. Returns ids; an array has one a task.

        ``workdir``: where those run that do not say; the current folder if left out.
        """
        files, values = [], []
        for job in jobs:
            if isinstance(job, str | Path):
                files.append({"name": str(job), "text": _text(Path(job))})
            elif isinstance(job, Mapping):
                values.append(dict(job))
            else:
                values.append(json.loads(job.to_json()))
        where = str(Path(workdir or Path.cwd()).absolute())
        body = {"workdir": where, "files": files, "jobs": values}
        return _decode(self._post("/v1/jobs", body), _Ids).ids

    def run(self, argv: Sequence[str], devices: int = 1, **fields: Any) -> str:
        """Submit one command; returns its id. ``fields`` are those of a job file, such as name or env."""
        resources = {"devices": devices, **fields.pop("resources", {})}
        workdir = fields.pop("workdir", None)
        return self.submit({"run": list(argv), "resources": resources, **fields}, workdir=workdir)[0]

    def ls(
        self,
        *states: str,
        tenant: str | None = None,
        name: str | None = None,
        limit: int = 1000,
        after: str | None = None,
    ) -> list[JobView]:
        """The newest jobs, oldest first; ``after`` the oldest of one page gives the page before it."""
        asked = {"state": list(states), "tenant": tenant, "name": name, "limit": limit, "after": after}
        return self._get("/v1/jobs", _Jobs, asked).jobs

    def show(self, job: str) -> JobDetail:
        """All of one job."""
        return self._get(f"/v1/jobs/{_part(job)}", JobDetail)

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        rank: int | None = None,
        epoch: int | None = None,
        tail: int | None = None,
    ) -> Iterator[LogLine]:
        """Lines of the job's logs: of all ranks of its last attempt, unless told otherwise.

        ``follow`` goes on until the job ends; ``tail`` begins with so many last lines of each rank.
        """
        for line in self._follow(job, follow, rank, epoch, tail, states=False):
            yield LogLine(line.epoch, line.rank, line.text)

    def follow(
        self, job: str, *, rank: int | None = None, patience: float = 60.0
    ) -> Iterator[LogLine | JobView]:
        """Lines of the logs and, whenever its state changes, the job: at once, and last when it has ended.

        A server that goes away is waited for, ``patience`` seconds; lines that were told are not told again.
        """
        told: dict[tuple[int, int], int] = {}
        lost_at: float | None = None
        while True:
            seen: dict[tuple[int, int], int] = {}
            try:
                for line in self._follow(job, True, rank, None, None, states=True):
                    lost_at = None
                    if line.job is not None:
                        yield line.job
                        if line.job.state in ENDED:
                            return
                        continue
                    place = (line.epoch, line.rank)
                    seen[place] = seen.get(place, 0) + 1
                    if seen[place] > told.get(place, 0):
                        told[place] = seen[place]
                        yield LogLine(line.epoch, line.rank, line.text)
            except (ServerNotRunning, Unavailable):
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at > patience:
                    raise
            time.sleep(RETRY_AFTER)

    def _follow(
        self, job: str, follow: bool, rank: int | None, epoch: int | None, tail: int | None, states: bool
    ) -> Iterator[_Followed]:
        asked = {"follow": follow, "rank": rank, "epoch": epoch, "tail": tail, "states": states}
        for line in self._stream(f"/v1/jobs/{_part(job)}/logs", asked):
            if line:
                yield _decode(line, _Followed)

    def explain(self, job: str) -> ExplanationView:
        """Why it is where it is."""
        return self._get(f"/v1/jobs/{_part(job)}/explain", ExplanationView)

    def cancel(self, job: str) -> None:
        """End it for good."""
        self._post(f"/v1/jobs/{_part(job)}/cancel")

    def pause(self, job: str, hold: bool = False) -> None:
        """Stop it for now, with its work saved; ``hold`` keeps process and devices."""
        self._post(f"/v1/jobs/{_part(job)}/pause", {"hold": hold})

    def resume(self, job: str) -> None:
        """Let a paused one go on."""
        self._post(f"/v1/jobs/{_part(job)}/resume")

    def set_priority(self, job: str, priority: int) -> None:
        """Change its priority; larger goes first."""
        self._post(f"/v1/jobs/{_part(job)}/priority", {"priority": priority})

    def wait(self, job: str, timeout: float | None = None) -> JobView:
        """The job once it has ended.

        Raises:
            TimeoutError: it has not within ``timeout`` seconds.
        """
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = WAIT_AT_A_TIME if end is None else max(0.0, min(WAIT_AT_A_TIME, end - time.monotonic()))
            view = self._get(f"/v1/jobs/{_part(job)}/wait", JobView, {"timeout": left})
            if view.state in ENDED:
                return view
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"job {view.id} is still {view.state} after {timeout:g} seconds")

    # ---- the cluster

    def nodes(self) -> list[NodeView]:
        """All nodes ever known."""
        return self._get("/v1/nodes", _Nodes).nodes

    def drain(self, node: str, evict: bool = True) -> None:
        """Start nothing new there; ``evict`` moves what runs."""
        self._post(f"/v1/nodes/{_part(node)}/drain", {"evict": evict})

    def undrain(self, node: str) -> None:
        """Let it take work again."""
        self._post(f"/v1/nodes/{_part(node)}/undrain")

    def top(self) -> Overview:
        """The whole at a glance."""
        return self._get("/v1/overview", Overview)

    def events(self, *kinds: str) -> Iterator[dict[str, Any]]:
        """Events from now on, as they are applied; of some kinds, or all."""
        for line in self._stream("/v1/events", {"kind": list(kinds)}, quiet=True):
            if line.startswith("data: "):
                yield json.loads(line[6:])

    def shutdown(self, keep_jobs: bool = False) -> None:
        """End the server; ``keep_jobs``: jobs go on, and the next server of that home finds them again."""
        self._post("/v1/shutdown", {"keep_jobs": keep_jobs})

    # ---- inside

    def _get(self, path: str, kind: type[T], asked: Mapping[str, Any] | None = None) -> T:
        response = self._reach(lambda: self._http.get(path, params=_given(asked)))
        check(response)
        return _decode(response.content, kind)

    def _post(self, path: str, body: Mapping[str, Any] | None = None) -> bytes:
        try:
            content = json.dumps(body or {}, ensure_ascii=False, allow_nan=False).encode()
        except ValueError as e:  # nan, inf, half a character
            raise Invalid(f"this cannot be sent: {e}", code="invalid") from None
        kind = {"Content-Type": "application/json"}
        response = self._reach(lambda: self._http.post(path, content=content, headers=kind))
        check(response)
        return response.content

    def _stream(self, path: str, asked: Mapping[str, Any], quiet: bool = False) -> Iterator[str]:
        """Lines of an answer that does not end at once. ``quiet``: it gives signs of life meanwhile."""
        timeout = httpx.Timeout(CONNECT_WITHIN, read=60.0 if quiet else None)
        request = self._http.build_request("GET", path, params=_given(asked), timeout=timeout)
        response = self._reach(lambda: self._http.send(request, stream=True))
        try:
            if response.is_error:
                response.read()
            check(response)
            yield from response.iter_lines()
        except httpx.TransportError as e:
            raise not_running(f"the connection to {self.url} broke: {e or type(e).__name__}") from e
        finally:
            response.close()

    def _reach(self, go: Callable[[], httpx.Response]) -> httpx.Response:
        try:
            return go()
        except httpx.TimeoutException as e:
            raise Unavailable(f"the server at {self.url} does not answer", "it may be busy", "timeout") from e
        except httpx.TransportError as e:
            raise not_running(f"no server answers at {self.url} ({e or type(e).__name__})") from e
        except (httpx.InvalidURL, httpx.UnsupportedProtocol, UnicodeError) as e:
            raise ClientError(
                f"{self.url!r} is no URL: {e}", "HAIBUN_URL is like http://127.0.0.1:7878"
            ) from e


def _decode(text: str | bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except msgspec.MsgspecError as e:
        hint = "client and server may be of different versions: 'haibun version' tells"
        raise ClientError(f"the server's answer cannot be read: {e}", hint) from e


def _given(asked: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (asked or {}).items() if value is not None}


def _part(name: str) -> str:
    """A name as one part of a path."""
    if not name:
        raise NotFound("the name is empty", code="not-found")
    return quote(name, safe="")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise Invalid(f"no job file at {path}", code="invalid") from None
    except UnicodeDecodeError:
        raise Invalid(f"{path} is not UTF-8 text", "is it a job file?", "invalid") from None
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}", code="invalid") from None
