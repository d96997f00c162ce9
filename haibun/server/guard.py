"""What stands before every route: the token, the largest body, and what becomes of an error of ours."""

from __future__ import annotations

import hmac
import logging
import secrets

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haibun.server.problems import Problem, ProblemError, describe, respond

log = logging.getLogger("haibun.server")

MOST_BODY = 4 << 20  # bytes; ten thousand job specs, and no more than the parser can chew in a second or two
OPEN = frozenset({"/healthz"})  # says only that somebody is there
_POLICY_VIOLATION = 1008  # of websocket close codes (RFC 6455, section 7.4.1)

_NO_TOKEN = Problem(
    401,
    "unauthorised",
    "this request bears no valid token",
    "send 'Authorization: Bearer TOKEN'; the token lies in the file 'token' of the server's home folder",
)
_TOO_LARGE = Problem(
    413, "too-large", f"the body is larger than {MOST_BODY >> 20} MiB", "submit the jobs in several requests"
)


class Guard:
    """ASGI middleware round all routes."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what is allowed."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
        elif scope["path"] not in OPEN and not self._knows(Headers(scope=scope)):
            await self._refuse(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._app(scope, receive, send)
        else:
            await self._answer(scope, receive, send)

    def _knows(self, headers: Headers) -> bool:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        same = hmac.compare_digest(token.strip().encode(), self._token)  # in constant time
        return same and scheme.lower() == "bearer"

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _POLICY_VIOLATION, "reason": "no valid token"})
        else:
            await respond(_NO_TOKEN)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False
        taken = 0

        async def counted() -> Message:
            nonlocal taken
            message = await receive()
            taken += len(message.get("body", b""))
            if taken > MOST_BODY:
                raise ProblemError(_TOO_LARGE)
            return message

        async def noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            if int(Headers(scope=scope).get("content-length", "0")) > MOST_BODY:
                raise ProblemError(_TOO_LARGE)
            await self._app(scope, counted, noted)
        except Exception as error:
            problem = describe(error) or _internal(scope, error)
            if begun:
                raise  # the answer is under way: cutting it off is all that is left
            await respond(problem)(scope, receive, send)


def _internal(scope: Scope, error: Exception) -> Problem:
    number = secrets.token_hex(4)
    log.error("internal error %s at %s %s", number, scope.get("method"), scope["path"], exc_info=error)
    return Problem(
        500,
        "internal",
        f"internal error {number}: this is a fault of Haibun's, not yours",
        "the controller's log tells more under that number",
        id=number,
    )
