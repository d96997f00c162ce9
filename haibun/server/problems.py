"""What went wrong, told to clients as JSON: one form for all errors (RFC 9457, application/problem+json)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from haibun.core.admission import AdmissionError
from haibun.run.errors import AmbiguousError, ConflictError, NotFoundError, UnavailableError
from haibun.spec.problems import SpecError

MEDIA_TYPE = "application/problem+json"
_OF_STATUS = {401: "unauthorised", 404: "not-found", 405: "not-allowed", 413: "too-large"}


class Field(msgspec.Struct, frozen=True, omit_defaults=True):
    """One thing that is wrong with what was sent; ``line`` and ``column`` from 1, 0 where not known."""

    message: str
    field: str = ""
    file: str = ""
    line: int = 0
    column: int = 0
    hint: str = ""


class Problem(msgspec.Struct, frozen=True, omit_defaults=True):
    """An error. ``code`` is for programs, ``message`` and ``hint`` for people; ``id`` finds it in the log."""

    status: int
    code: str
    message: str
    hint: str = ""
    fields: tuple[Field, ...] = ()
    id: str = ""


class ProblemError(Exception):
    """Raised by a route that knows what to answer."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem.message)
        self.problem = problem


def respond(problem: Problem) -> Response:
    """The answer that tells a client of the problem."""
    headers = {"WWW-Authenticate": "Bearer"} if problem.status == 401 else None
    return Response(msgspec.json.encode(problem), problem.status, headers, MEDIA_TYPE)


def describe(error: Exception) -> Problem | None:
    """What to tell of an expected error; None: it is a fault of ours."""
    match error:
        case ProblemError():
            return error.problem
        case NotFoundError():
            return Problem(404, "not-found", str(error))
        case AmbiguousError():
            return Problem(409, "ambiguous", str(error))
        case ConflictError():
            return Problem(409, "conflict", str(error))
        case UnavailableError():
            return Problem(
                503, "unavailable", str(error), "nothing was changed; try again when that is mended"
            )
        case SpecError():
            return Problem(422, "invalid", error.render(), fields=_fields(error))
        case AdmissionError():
            return Problem(422, "inadmissible", str(error))
        case RequestValidationError():
            return _invalid_request(error.errors())
        case HTTPException():
            code = _OF_STATUS.get(error.status_code, "http")
            return Problem(error.status_code, code, str(error.detail))
        case _:
            return None


def _fields(error: SpecError) -> tuple[Field, ...]:
    return tuple(Field(p.message, p.field, p.file, p.line, p.column, p.hint) for p in error.problems)


def _invalid_request(errors: Sequence[dict[str, object]]) -> Problem:
    fields = []
    for error in errors:
        place = error.get("loc", ())
        name = ".".join(str(step) for step in place[1:]) if isinstance(place, tuple | list) else ""
        fields.append(Field(str(error.get("msg", "is not valid")), name))
    said = "; ".join(f"{f.field}: {f.message}" if f.field else f.message for f in fields)
    return Problem(422, "invalid", said, fields=tuple(fields))
