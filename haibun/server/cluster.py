"""Routes of nodes, and of the whole."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import PlainTextResponse, Response

import haibun
from haibun.server import metrics
from haibun.server.problems import Problem, ProblemError
from haibun.server.wire import Controller, answer, body_of

router = APIRouter(tags=["cluster"])


class Drain(Struct, frozen=True, forbid_unknown_fields=True):
    """``evict`` moves what runs there now."""

    evict: bool = True


class Shutdown(Struct, frozen=True, forbid_unknown_fields=True):
    """``keep_jobs``: agents and jobs go on, and are found again by the next controller of this home."""

    keep_jobs: bool = False


@router.get("/healthz")
async def healthz() -> Response:
    """Whether somebody is there; needs no token."""
    return answer({"status": "ok", "version": haibun.__version__})


@router.get("/metrics")
async def numbers(control: Controller) -> Response:
    """Metrics in Prometheus' text form."""
    return PlainTextResponse(metrics.render(await control.overview()), media_type=metrics.MEDIA_TYPE)


@router.get("/v1/overview")
async def overview(control: Controller) -> Response:
    """The whole at a glance."""
    return answer(await control.overview())


@router.get("/v1/nodes")
async def nodes(control: Controller) -> Response:
    """All nodes ever known."""
    return answer({"nodes": await control.nodes()})


@router.post("/v1/nodes/{node:path}/drain")
async def drain(node: str, request: Request, control: Controller) -> Response:
    """Start nothing new there; see ``Drain``."""
    await control.drain(node, (await body_of(request, Drain)).evict)
    return answer({})


@router.post("/v1/nodes/{node:path}/undrain")
async def undrain(node: str, control: Controller) -> Response:
    """Let it take work again."""
    await control.undrain(node)
    return answer({})


@router.post("/v1/shutdown")
async def shutdown(request: Request) -> Response:
    """End the controller soon; see ``Shutdown``."""
    ask: Callable[[bool], None] | None = request.app.state.on_shutdown
    if ask is None:
        raise ProblemError(Problem(409, "conflict", "this server cannot be ended by request"))
    wish = await body_of(request, Shutdown)
    ask(wish.keep_jobs)
    return answer({}, 202)
