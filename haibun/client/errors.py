"""What can go wrong between a client and its server, in words."""

from __future__ import annotations

from collections.abc import Sequence

import httpx
import msgspec


class ProblemField(msgspec.Struct, frozen=True):
    """One thing that is wrong with what was sent; ``line`` and ``column`` from 1, 0 where not known."""

    message: str
    field: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""


class ClientError(Exception):
    """What went wrong, in words. ``code`` is for programs; ``hint`` says what to do, and may be empty."""

    def __init__(
        self, message: str, hint: str = "", code: str = "error", fields: Sequence[ProblemField] = ()
    ) -> None:
        super().__init__(message)
        self.message, self.hint, self.code, self.fields = message, hint, code, tuple(fields)

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class ServerNotRunning(ClientError):  # noqa: N818
    """Nobody answers."""


class Unauthorised(ClientError):  # noqa: N818
    """The server does not know the token."""


class NotFound(ClientError):  # noqa: N818
    """No job or node goes by that name."""


class Conflict(ClientError):  # noqa: N818
    """The job is in a state in which that cannot be asked, or several bear the name."""


class Invalid(ClientError):  # noqa: N818
    """What was sent is not as it should be; ``fields`` say where."""


class Unavailable(ClientError):  # noqa: N818
    """The server can accept nothing just now; nothing was changed."""


_KINDS: dict[int, type[ClientError]] = {
    400: Invalid,
    401: Unauthorised,
    404: NotFound,
    409: Conflict,
    413: Invalid,
    422: Invalid,
    503: Unavailable,
}


class _Problem(msgspec.Struct, frozen=True):
    message: str
    code: str = "error"
    hint: str = ""
    fields: tuple[ProblemField, ...] = ()


def not_running(message: str) -> ServerNotRunning:
    """The error that says how to start one."""
    hint = "start one with 'haibun up', or set HAIBUN_URL or HAIBUN_HOME if there is one elsewhere"
    return ServerNotRunning(message, hint, "not-running")


def check(response: httpx.Response) -> None:
    """Raise the error that an answer tells of, if it does. The body must have been read."""
    if not response.is_error:
        return
    kind = _KINDS.get(response.status_code, ClientError)
    try:
        problem = msgspec.json.decode(response.content, type=_Problem)
    except msgspec.MsgspecError:
        message = f"{response.url} answered {response.status_code} {response.reason_phrase}"
        raise kind(message, "is that a server of Haibun's?") from None
    raise kind(problem.message, problem.hint, problem.code, problem.fields)
