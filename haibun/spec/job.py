"""A job as its user writes it. Units: seconds, bytes, devices, cores. See docs/job-spec.md."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    WithJsonSchema,
    model_validator,
)

from haibun.core.vocabulary import Job, JobId, Locality, Shape
from haibun.spec.array import Array
from haibun.spec.fields import Bytes, Finite, PositiveSeconds, Text
from haibun.spec.validate import Spec

MAX_DEVICES = 100_000
MAX_PRIORITY = 1_000_000
MAX_PROCESSES = 4_096
ARRAY_INDEX = "HAIBUN_ARRAY_INDEX"
RESERVED_ENV = frozenset(
    (
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
        "LOCAL_WORLD_SIZE",
        "MASTER_ADDR",
        "MASTER_PORT",
        "CUDA_VISIBLE_DEVICES",
    )
)  # set by Haibun for each worker
_INDEX = re.compile(r"(?<!\$)\{index\}")  # not ${index}, which is the shell's
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


_STORED = {"stored": True}  # context: accepted once, by rules that may have been others


def _line(value: str, info: ValidationInfo) -> str:
    """What is shown in lists and logs, or names a folder: no line breaks, escapes and the like."""
    odd = next((c for c in value if unicodedata.category(c) == "Cc"), None)
    if odd is not None and info.context != _STORED:
        raise ValueError(f"holds a control character, {odd!r}; remove it")
    return value


def _name(value: str, info: ValidationInfo) -> str:
    if _INDEX.sub("0", value).isdecimal() and info.context != _STORED:
        raise ValueError(f"{value!r} looks like the id of a job; put a letter into it")
    return value


def _script(value: str | list[str], info: ValidationInfo) -> str | list[str]:
    words = [value] if isinstance(value, str) else value
    if any("\0" in word for word in words) and info.context != _STORED:
        raise ValueError("holds a NUL character, which no command can be given; remove it")
    return value


def _run(value: Any) -> Any:
    if isinstance(value, str):
        if not value.strip():
            raise ValueError("must not be empty: write the command to run")
        return value
    if isinstance(value, list) and value and all(isinstance(a, str) for a in value):
        if not value[0].strip():
            raise ValueError("begins with an empty word: the first one is the program")
        return value
    if isinstance(value, list) and value:
        wrong = next(a for a in value if not isinstance(a, str))
        raise ValueError(f"has an argument that is no text: {wrong!r}; put it in quotes")
    raise ValueError("must be a script (text) or a command (a list of words)")


def _types(value: Any) -> Any:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(n, str) and n.strip() for n in names):
        raise ValueError("must be a device type, or a list of them with the best first")
    if len(set(names)) < len(names):
        raise ValueError("names a device type twice")
    return names


def _variable(name: str) -> str:
    if not _ENV_NAME.fullmatch(name):
        raise ValueError("is no name for a variable: use letters, digits and _ only")
    if name in RESERVED_ENV or (name.startswith("HAIBUN_") and name != ARRAY_INDEX):
        raise ValueError("is set by Haibun itself; remove it")
    return name


def _plain_text(value: Any) -> Any:
    """Whole numbers are text as they stand; a number with a point would not arrive as it was written."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if value is None:
        raise ValueError("has no value; for empty text write ''")
    if not isinstance(value, str):
        raise ValueError("must be text: put the value in quotes, so that it is passed on as written")
    if "\0" in value:
        raise ValueError("holds a NUL character")
    return value


Run = Annotated[
    str | list[str],
    BeforeValidator(_run),
    AfterValidator(_script),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]},
    ),
]
DeviceTypes = Annotated[
    list[str],
    BeforeValidator(_types),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
PlainText = Annotated[str, BeforeValidator(_plain_text), WithJsonSchema({"type": ["string", "integer"]})]
Line = Annotated[Text, AfterValidator(_line)]
Env = dict[Annotated[str, AfterValidator(_variable)], PlainText]
ArrayField = Annotated[
    Array,
    WithJsonSchema(
        {
            "anyOf": [
                {"type": "string", "pattern": r"^\d+(-\d+(:\d+)?)?(,\d+(-\d+(:\d+)?)?)*(%[1-9]\d*)?$"},
                {"type": "integer", "minimum": 0},
                {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
            ],
            "examples": ["0-9", "0-9%2", [1, 2, 5]],
        }
    ),
]


class Resources(Spec):
    """What the gang needs. CPUs and memory are for each device of it."""

    devices: int = Field(default=1, ge=1, le=MAX_DEVICES, description="devices of the whole gang")
    device_type: DeviceTypes = Field(
        default=[], description="type, or types with the best first; any if left out"
    )
    cpus: Finite = Field(default=0.0, ge=0, le=100_000, description="cores for each device")
    memory: Bytes = Field(default=0, description="bytes for each device, as 4GiB")


class JobSpec(Spec):
    """One job, or one array of jobs.

    Attributes: see the descriptions of the fields, which the JSON schema and docs/job-spec.md repeat.
    """

    name: Annotated[str, AfterValidator(_line), AfterValidator(_name)] = Field(
        default="", max_length=200, description="for people; others may name it in depends_on"
    )
    tenant: Line = Field(default="default", description="who pays: quota and fairness go by it")
    priority: int = Field(default=0, ge=-MAX_PRIORITY, le=MAX_PRIORITY, description="larger goes first")
    resources: Resources = Field(default=Resources(), description="what the gang needs")
    num_nodes: int | None = Field(
        default=None, ge=1, le=MAX_DEVICES, description="exactly so many nodes, evenly"
    )
    locality: Literal["node", "site", "any"] = Field(
        default="site", description="how far apart its devices may lie"
    )
    env: Env = Field(default={}, description="environment variables; {index} is replaced in arrays")
    setup: Annotated[str, AfterValidator(_script)] | None = Field(
        default=None, description="script run once on each node before the workers start"
    )
    run: Run = Field(description="script for bash, or a command as a list of words, for each worker")
    workdir: Line | None = Field(
        default=None, description="where it runs; the folder of submission if left out"
    )
    walltime: PositiveSeconds | None = Field(default=None, description="it is ended after running so long")
    depends_on: list[Text] = Field(
        default=[], max_length=10_000, description="ids, or names in this file, that must succeed before"
    )
    array: ArrayField | None = Field(
        default=None, description="one job for each index: 0-9, 0-9%2 (two at a time), or a list"
    )
    retries: int = Field(default=0, ge=0, le=1_000, description="how often it is tried again after failing")
    processes_per_device: int = Field(
        default=1, ge=1, le=MAX_PROCESSES, description="workers for each device"
    )
    processes_per_node: int | None = Field(
        default=None, ge=1, le=MAX_PROCESSES, description="workers on each node, whatever its devices"
    )
    total_steps: Finite | None = Field(default=None, gt=0, le=1e15, description="its length, if known")
    model: Line | None = Field(default=None, description="key into the throughput profile")
    checkpoint_every: PositiveSeconds | None = Field(default=None, description="time between checkpoints")
    hang_after: PositiveSeconds | None = Field(
        default=None, description="without a step for so long, it counts as hung"
    )
    preemptible: bool = Field(default=True, description="false: once it runs, its devices are not taken")
    labels: dict[Annotated[str, AfterValidator(_line)], PlainText] = Field(
        default={}, description="for your own use"
    )

    @model_validator(mode="after")
    def _fits(self) -> Self:
        devices, nodes = self.resources.devices, self.num_nodes
        if nodes is not None and devices % nodes:
            more = -(-devices // nodes) * nodes
            raise ValueError(
                f"num_nodes: {devices} devices do not divide evenly among {nodes} nodes; ask for {more}, say"
            )
        if nodes is not None and nodes > 1 and self.locality == "node":
            raise ValueError(
                f"num_nodes: {nodes} nodes cannot be met with 'locality: node'; remove one of the two"
            )
        if self.processes_per_node is not None and self.processes_per_device != 1:
            raise ValueError("processes_per_node: give this or processes_per_device, not both")
        if self.name and self.name in self.depends_on:
            raise ValueError(f"depends_on: the job depends on itself ({self.name!r}); remove it")
        if len(set(self.depends_on)) < len(self.depends_on):
            twice = next(d for d in self.depends_on if self.depends_on.count(d) > 1)
            raise ValueError(f"depends_on: names {twice!r} twice")
        return self

    def processes_on(self, devices: int) -> int:
        """Workers to launch on a node that holds so many devices of the gang."""
        return self.processes_per_node or devices * self.processes_per_device

    def to_core(self, job_id: JobId, depends_on: Sequence[JobId] | None = None) -> Job:
        """What the scheduler needs to know of it.

        Args:
            job_id: the id given to it.
            depends_on: ids of the jobs that ``depends_on`` names; None: those are ids already.

        Raises:
            ValueError: the job depends on its own id, or is an array not yet split up (see `expand`).
        """
        if self.array is not None:
            raise ValueError(f"{job_id}: an array is several jobs; expand() it first")
        needs = tuple(self.depends_on if depends_on is None else depends_on)
        if job_id in needs:
            raise ValueError(f"{job_id}: the job depends on itself")
        r = self.resources
        return Job(
            id=job_id,
            shapes=tuple(
                Shape(r.devices, kind, Locality(self.locality), self.num_nodes)
                for kind in r.device_type or (None,)
            ),
            name=self.name,
            tenant=self.tenant,
            priority=self.priority,
            cpus=r.cpus,
            memory=r.memory,
            model=self.model,
            total_steps=self.total_steps,
            walltime=self.walltime,
            retries=self.retries,
            depends_on=needs,
            preemptible=self.preemptible,
        )

    def to_json(self) -> str:
        """For storage; what is left at its default is left out."""
        return self.model_dump_json(exclude_defaults=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> JobSpec:
        """The spec that `to_json` wrote.

        Raises:
            pydantic.ValidationError: it is not one.
        """
        return cls.model_validate_json(text, context=_STORED)


def expand(spec: JobSpec) -> list[JobSpec]:
    """The tasks of an array, in the order of their indices; the job itself if it is none.

    ``{index}`` is replaced in name, run, setup, workdir and in the values of env; the variable
    HAIBUN_ARRAY_INDEX is set. A name without ``{index}`` gets ``[index]`` at its end, so that names stay
    distinct.
    """
    return [spec] if spec.array is None else [_task(spec, i) for i in spec.array.indices]


def _task(spec: JobSpec, index: int) -> JobSpec:
    def fill(text: str) -> str:
        return _INDEX.sub(str(index), text)

    name = fill(spec.name)
    return spec.model_copy(
        update={
            "name": f"{name}[{index}]" if name and name == spec.name else name,
            "run": fill(spec.run) if isinstance(spec.run, str) else [fill(word) for word in spec.run],
            "setup": fill(spec.setup) if spec.setup else spec.setup,
            "workdir": fill(spec.workdir) if spec.workdir else spec.workdir,
            "env": {name: fill(value) for name, value in spec.env.items()} | {ARRAY_INDEX: str(index)},
            "array": None,
        }
    )


def schema() -> Mapping[str, Any]:
    """The JSON schema of a job file's document, as published in docs/job.schema.json."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Haibun job",
        **JobSpec.model_json_schema(mode="validation"),
    }
