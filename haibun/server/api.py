"""The HTTP API: a thin layer over the controller. See docs/internals/server.md."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

import haibun
from haibun.server import agents, cluster, jobs, streams
from haibun.server.guard import Guard
from haibun.server.ports import Control
from haibun.server.problems import Problem, describe, respond


def create_app(control: Control, token: str, on_shutdown: Callable[[bool], None] | None = None) -> FastAPI:
    """The application over a controller.

    Args:
        token: what every request but ``/healthz`` must bear.
        on_shutdown: called by ``POST /v1/shutdown`` with ``keep_jobs``; None: that route refuses.
    """
    app = FastAPI(
        title="Haibun",
        version=haibun.__version__,
        docs_url=None,  # it would load scripts from elsewhere
        redoc_url=None,
        openapi_url="/v1/openapi.json",
    )
    app.state.control = control
    app.state.on_shutdown = on_shutdown
    for part in (streams, jobs, cluster, agents):  # streams first: jobs has a route that takes any path
        app.include_router(part.router)
    app.add_exception_handler(HTTPException, _told)
    app.add_exception_handler(RequestValidationError, _told)
    app.add_middleware(Guard, token=token)
    return app


async def _told(request: Request, error: Exception) -> Response:
    return respond(describe(error) or Problem(500, "internal", "internal error"))
