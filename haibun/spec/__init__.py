"""What comes in as text: job files, cluster files, quantities with units, parameters of policies."""

from haibun.spec.cluster import load_cluster, parse_cluster
from haibun.spec.job import JobSpec, Resources, expand, schema
from haibun.spec.jobfile import load_job_file, parse_jobs
from haibun.spec.params import ParamError, check_params, parse_params
from haibun.spec.problems import SpecError, SpecProblem
from haibun.spec.units import (
    UnitError,
    format_bytes,
    format_duration,
    format_rate,
    parse_bytes,
    parse_duration,
    parse_rate,
)

__all__ = [
    "JobSpec",
    "ParamError",
    "Resources",
    "SpecError",
    "SpecProblem",
    "UnitError",
    "check_params",
    "expand",
    "format_bytes",
    "format_duration",
    "format_rate",
    "load_cluster",
    "load_job_file",
    "parse_bytes",
    "parse_cluster",
    "parse_duration",
    "parse_jobs",
    "parse_params",
    "parse_rate",
    "schema",
]
