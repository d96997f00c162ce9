"""What a replay needs, read and checked before anything runs: jobs, cluster, rates, costs, policies."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from haibun.app import make_engine, make_stages
from haibun.core.admission import AdmissionError, admit
from haibun.core.vocabulary import Cluster, Locality
from haibun.profile import ThroughputTable, find_beside, read_throughputs
from haibun.spec.cluster import load_cluster
from haibun.spec.params import ParamError, parse_value
from haibun.spec.problems import did_you_mean
from haibun.spec.units import UnitError, parse_duration
from haibun.trace import Problem, Trace, TraceError, Workload, generate, read
from haibun.trace.problems import summarise
from haibun.twin.costs import Costs

GENERATED = "generate:"
# Published simulators do not confine a gang to a site, nor to a type that a trace does not name.
LOCALITY = Locality.ANY


class InputError(ValueError):
    """Something asked for cannot be; ``hint`` says what would do."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


@dataclass(frozen=True, slots=True)
class Request:
    """What the command line asks for. ``params``: of each policy; ``limit``: only the first so many jobs."""

    trace: str
    cluster: str
    policies: Sequence[str]
    params: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    format: str | None = None
    throughputs: Path | None = None
    costs: str | None = None
    limit: int | None = None
    strict: bool = False


class KnownRates:
    """A throughput table in the twin: where it has no answer a job cannot run, for no one could say how fast."""

    def __init__(self, table: ThroughputTable) -> None:
        self._table = table

    def rate(self, model: str | None, device_type: str, devices: int, consolidated: bool) -> float:
        """Steps/s; 0.0 where not known."""
        rate = self._table.rate(model, device_type, devices, consolidated)
        return rate if rate == rate else 0.0

    def observe(self, model: str, device_type: str, devices: int, consolidated: bool, rate: float) -> None:
        """Add a measurement."""
        self._table.observe(model, device_type, devices, consolidated, rate)

    def to_rows(self) -> Sequence[tuple[Any, ...]]:
        """What is in the table."""
        return self._table.to_rows()

    def restore(self, rows: Sequence[Sequence[Any]]) -> None:
        """Take back what ``to_rows`` gave."""
        self._table.restore(rows)


@dataclass(frozen=True, slots=True)
class Inputs:
    """All that is needed to replay. ``rejected``: jobs that can never run here; ``read_s``: CPU seconds of reading."""

    trace: Trace
    cluster: Cluster
    rates: KnownRates
    costs: Costs
    policies: Sequence[str]
    params: Mapping[str, Mapping[str, Any]]
    throughputs: Path | None
    rejected: Sequence[Problem]
    read_s: float

    @property
    def skipped(self) -> Sequence[Problem]:
        """Rows of the trace that could not be read."""
        return self.trace.problems


def cpu_seconds() -> float:
    """CPU time of this process by the operating system."""
    times = os.times()
    return times.user + times.system


def prepare(request: Request) -> Inputs:
    """Read and check everything.

    Raises:
        InputError, ParamError, UnknownPolicyError, SpecError, TraceError, ThroughputFileError: what is wrong.
    """
    for policy in request.policies:
        make_stages(policy, request.params.get(policy))
    cluster = load_cluster(request.cluster)
    costs = read_costs(request.costs)
    before = cpu_seconds()
    trace = read_trace(request, cluster)
    read_s = cpu_seconds() - before
    path, table = _throughputs(request, trace)
    _check_types(table, path, trace, cluster)
    rates = KnownRates(table)
    trace, rejected = reject(trace, cluster, rates, path)
    if rejected and (request.strict or not len(trace)):
        which = (
            f"{len(rejected):,} jobs can never" if len(trace) else f"none of {len(rejected):,} jobs can ever"
        )
        raise TraceError(f"{which} run on this cluster:\n{summarise(rejected)}", rejected)
    return Inputs(trace, cluster, rates, costs, request.policies, request.params, path, rejected, read_s)


def read_trace(request: Request, cluster: Cluster) -> Trace:
    """The trace that is asked for: from a file, or ``generate:jobs=1000,load=0.9,seed=1``."""
    if request.trace.startswith(GENERATED):
        trace = generated(request.trace.removeprefix(GENERATED), cluster.devices)
    else:
        trace = read(request.trace, request.format, request.strict)
    return trace if request.limit is None else trace.select(limit=request.limit)


def generated(text: str, devices: int) -> Trace:
    """Draw a trace by ``name=value,...``: jobs, load, seed, devices, and single numbers of a ``Workload``.

    Raises:
        InputError: a name or value is not understood.
    """
    of_call = {"jobs": int, "load": float, "seed": int, "devices": int}
    of_shape = {
        name: type(default)
        for name in Workload.__dataclass_fields__
        if not isinstance(default := getattr(Workload(), name), tuple)
    }
    call: dict[str, Any] = {"devices": devices}
    shape: dict[str, Any] = {}
    for item in filter(None, text.split(",")):
        name, _, value = (part.strip() for part in item.partition("="))
        kind = of_call.get(name) or of_shape.get(name)
        if kind is None:
            hint = did_you_mean(name, [*of_call, *of_shape])
            raise InputError(f"generate: has no parameter {name!r}", hint)
        try:
            (call if name in of_call else shape)[name] = kind(value)
        except ValueError:
            raise InputError(f"generate: {name}={value!r} is no {_WORDS[kind]}") from None
    try:
        return generate(**call, workload=Workload(**shape))
    except ValueError as e:
        raise InputError(f"generate: {e}") from None


_WORDS = {int: "whole number", float: "number", str: "text"}


def read_costs(text: str | None) -> Costs:
    """``start=10,resume=30s`` or a YAML file of such values, in seconds or with a unit.

    Raises:
        InputError: a name or value is not understood, or there is no such file.
    """
    if text is None:
        return Costs()
    known = Costs.__struct_fields__
    values: dict[str, float] = {}
    for name, value in (_pairs(text) if "=" in text else _from_file(Path(text))).items():
        if name not in known:
            raise InputError(f"--costs: there is no cost {name!r}", did_you_mean(str(name), known))
        try:
            values[name] = parse_duration(value)
        except UnitError as e:
            raise InputError(f"--costs: {name}: {e}") from None
    return Costs(**values)


def _pairs(text: str) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        if not (equals and value):
            raise InputError(f"--costs {item!r}: write NAME=SECONDS, for instance start=10,resume=30")
        try:
            number = parse_value(value)
        except ParamError:
            number = value
        pairs[name] = number if isinstance(number, int | float | str) else value
    return pairs


def _from_file(path: Path) -> dict[str, Any]:
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        hint = f"write a file, or {', '.join(f'{name}=0' for name in Costs.__struct_fields__)}"
        raise InputError(f"--costs: cannot read {path}: {e.strerror}", hint) from None
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise InputError(f"--costs: {path} is not YAML: {e}") from None
    if not isinstance(found, dict):
        raise InputError(f"--costs: {path} must hold names and seconds, such as 'start: 10'")
    return found


def _throughputs(request: Request, trace: Trace) -> tuple[Path | None, ThroughputTable]:
    """The table that is named, else for a Gavel trace the one beside it, else an empty one."""
    path = request.throughputs
    if path is None and trace.format == "gavel":
        path = find_beside(trace.path)
        if path is None:
            raise InputError(
                f"{trace.path} counts in steps, and no throughputs lie beside it",
                "name a table with --throughputs",
            )
    # A job that names no model takes as long as it took in the trace: one step is one second.
    if path is None:
        return None, ThroughputTable(unmodelled=1.0)
    return path, read_throughputs(path, unmodelled=1.0)


def _check_types(table: ThroughputTable, path: Path | None, trace: Trace, cluster: Cluster) -> None:
    """That the table knows at least one device type of the cluster, where jobs count in steps."""
    types = cluster.device_types
    if path is not None and (trace.model >= 0).any() and not any(table.type_code(t) >= 0 for t in types):
        known = ", ".join(table.device_types)
        raise InputError(
            f"{path} knows no throughput of {' or '.join(types)}",
            f"name device types that it knows in --cluster ({known}), or another table with --throughputs",
        )


def reject(
    trace: Trace, cluster: Cluster, rates: KnownRates, table: Path | None
) -> tuple[Trace, list[Problem]]:
    """Take out the jobs that could never run, were the cluster empty; each with its reason."""
    engine = make_engine(cluster, rates=rates)
    kinds = np.stack([trace.devices, trace.model, np.isnan(trace.total_steps).astype(np.int64)])
    _, first, which = np.unique(kinds, axis=1, return_index=True, return_inverse=True)
    reasons: list[str] = []
    for row in first.tolist():
        job = trace.job(row, locality=LOCALITY)
        devices = job.shapes[0].devices
        types = cluster.device_types
        if not any(rates.rate(job.model, t, devices, True) > 0 for t in types):
            known = f"{table} knows no throughput" if table is not None else "no throughput is known"
            reasons.append(f"{known} of {job.model!r} with {devices} devices of type {' or '.join(types)}")
            continue
        try:
            admit(engine.state, job)
            reasons.append("")
        except AdmissionError as e:
            reasons.append(str(e))
    bad = np.array([bool(reason) for reason in reasons])[which.ravel()]
    if not bad.any():
        return trace, []
    file = trace.path or trace.name
    problems = [
        Problem(file, 0, "", f"job {trace.ids[row]}: {reasons[int(which.ravel()[row])]}")
        for row in np.flatnonzero(bad).tolist()
    ]
    return trace.take(np.flatnonzero(~bad)), problems
