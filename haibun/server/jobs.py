"""Routes of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request
from msgspec import Struct
from starlette.responses import Response

from haibun.core.vocabulary import JobState
from haibun.server.problems import Problem, ProblemError
from haibun.server.submission import Submission, specs_of
from haibun.server.wire import Controller, answer, body_of
from haibun.spec.problems import did_you_mean

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

STATES = tuple(state.name.lower() for state in JobState)
LONGEST_WAIT = 60.0  # seconds that one request waits: proxies drop those that are silent for longer


class Pause(Struct, frozen=True, forbid_unknown_fields=True):
    """``hold`` keeps process and devices."""

    hold: bool = False


class Priority(Struct, frozen=True, forbid_unknown_fields=True):
    """The new priority; larger goes first."""

    priority: int


@router.post("")
async def submit(request: Request, control: Controller) -> Response:
    """Accept jobs, all or none: durable once answered. The body is a ``Submission``."""
    submission = await body_of(request, Submission)
    ids = await control.submit(await specs_of(submission), submission.workdir)
    return answer({"ids": ids}, 201)


@router.get("")
async def jobs(
    control: Controller,
    state: Annotated[list[str] | None, Query()] = None,
    tenant: str | None = None,
    name: str | None = None,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    after: str | None = None,
) -> Response:
    """The newest jobs, oldest first. ``next``: give it as ``after`` for the (older) page that follows."""
    for wanted in state or ():
        if wanted not in STATES:
            hint = did_you_mean(wanted, STATES)
            raise ProblemError(Problem(422, "invalid", f"no job is ever in state {wanted!r}", hint))
    views = await control.jobs(set(state) if state else None, tenant, name, limit, after)
    return answer({"jobs": views, "next": views[0].id if len(views) == limit else None})


@router.get("/{job:path}/explain")
async def explain(job: str, control: Controller) -> Response:
    """Why it is where it is."""
    return answer(await control.explain(job))


@router.get("/{job:path}/wait")
async def wait(
    job: str, control: Controller, timeout: Annotated[float, Query(ge=0, le=LONGEST_WAIT)] = 30.0
) -> Response:
    """The job once it has ended, or as it is after ``timeout`` seconds."""
    try:
        return answer(await control.wait(job, timeout))
    except TimeoutError:
        return answer((await control.job(job)).job)


@router.post("/{job:path}/cancel")
async def cancel(job: str, control: Controller) -> Response:
    """End it for good."""
    await control.cancel(job)
    return answer({})


@router.post("/{job:path}/pause")
async def pause(job: str, request: Request, control: Controller) -> Response:
    """Stop it for now; see ``Pause``."""
    await control.pause(job, (await body_of(request, Pause)).hold)
    return answer({})


@router.post("/{job:path}/resume")
async def resume(job: str, control: Controller) -> Response:
    """Let a paused one go on."""
    await control.resume(job)
    return answer({})


@router.post("/{job:path}/priority")
async def priority(job: str, request: Request, control: Controller) -> Response:
    """Change its priority; see ``Priority``."""
    await control.set_priority(job, (await body_of(request, Priority)).priority)
    return answer({})


@router.get("/{job:path}")
async def show(job: str, control: Controller) -> Response:
    """All of it."""
    return answer(await control.job(job))
