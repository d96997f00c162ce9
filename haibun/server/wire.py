"""Values to JSON and back, and the controller to routes."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Request
from starlette.responses import Response

from haibun.server.ports import Control
from haibun.server.problems import Problem, ProblemError

T = TypeVar("T")
_encoder = msgspec.json.Encoder()


async def _control(request: Request) -> Control:
    control: Control = request.app.state.control
    return control


Controller = Annotated[Control, Depends(_control)]


def answer(value: Any, status: int = 200) -> Response:
    """A JSON answer; nan becomes null."""
    return Response(_encoder.encode(value), status, media_type="application/json")


async def body_of(request: Request, kind: type[T]) -> T:
    """The body of a request. An empty one stands for ``{}``.

    Raises:
        ProblemError: it is no JSON, or of another form; the field is named.
    """
    raw = await request.body() or b"{}"
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as e:
        raise ProblemError(Problem(422, "invalid", f"the body is not as it should be: {e}")) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as e:
        raise ProblemError(Problem(400, "invalid", f"the body is not JSON: {e}")) from None
