"""What is checked before a job becomes an event: an event in the journal is always one that applies."""

from __future__ import annotations

from haibun.core.demand import LOCALITIES, most
from haibun.core.fleet import millicpus
from haibun.core.state import State
from haibun.core.vocabulary import Job, Locality


class AdmissionError(ValueError):
    """The job cannot be admitted; the message says why, and what would do."""


def admit(state: State, job: Job) -> None:
    """Check a job against the State; returns nothing. Before the first node has joined, any gang may be possible.

    Raises:
        AdmissionError: its id is taken, it depends on an unknown job, or no nodes ever known could hold its gang.
    """
    if job.id in state.jobs.row_of:
        raise AdmissionError(f"job {job.id} was submitted already")
    for needed in job.depends_on:
        if needed not in state.jobs.row_of:
            raise AdmissionError(f"it depends on job {needed}, which is not known")
    if not state.fleet.nodes.n:
        return  # nothing is known of the cluster yet: the job waits until there is
    _check_types(state, job)
    demand = state.demands.number(job, state.fleet, state.rates)
    rows, options = state.demands.rows, state.demands.options
    if short := _short_of(state, job):
        raise AdmissionError(short)
    offers = []
    for option in range(int(rows.first[demand]), int(rows.last[demand])):
        could = most(state.demands, option, state.fleet, ever=True)
        if could >= options.devices[option]:
            return
        kind = state.fleet.types.names[options.type[option]]
        where = LOCALITIES[options.locality[option]]
        offers.append(f"{could} {kind}" + ("" if where is Locality.ANY else f" on one {where.value}"))
    raise AdmissionError(_impossible(job, offers))


def _check_types(state: State, job: Job) -> None:
    known = state.fleet.types.names
    for shape in job.shapes:
        if shape.device_type is not None and shape.device_type not in known:
            have = ", ".join(sorted(known)) or "none yet"
            raise AdmissionError(f"no device is of type {shape.device_type!r}; this cluster has: {have}")


def _short_of(state: State, job: Job) -> str | None:
    """What a single device of the job asks of its node and no node has, in words."""
    nodes = state.fleet.nodes
    most_cpus, most_memory = int(nodes.cpus[: nodes.n].max()), int(nodes.memory[: nodes.n].max())
    if millicpus(job.cpus) > most_cpus:
        return f"it asks for {job.cpus:g} CPUs for each device; no node has more than {most_cpus / 1000:g}"
    if job.memory > most_memory:
        asked, has = (f"{n / 2**30:.1f} GiB" for n in (job.memory, most_memory))
        return f"it asks for {asked} of memory for each device; no node has more than {has}"
    return None


def _impossible(job: Job, offers: list[str]) -> str:
    shape = job.shapes[0]
    each = []
    if job.cpus:
        each.append(f"{job.cpus:g} CPUs")
    if job.memory:
        each.append(f"{job.memory / 2**30:.1f} GiB of memory")
    with_ = f" with {' and '.join(each)} each" if each else ""
    on = f" on exactly {shape.nodes} nodes" if shape.nodes else ""
    offer = " or ".join(dict.fromkeys(offers)) or "nothing: no node has joined"
    devices = "1 device" if shape.devices == 1 else f"{shape.devices} devices"
    return f"a gang of {devices}{on}{with_} can never be placed; the whole cluster, empty, offers {offer}"
