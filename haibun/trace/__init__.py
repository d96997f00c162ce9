"""Public traces, and a generator, to `Trace`: one row a job, in columns. See docs/traces.md."""

from haibun.trace.generate import Workload, generate
from haibun.trace.problems import Problem, TraceError
from haibun.trace.read import read
from haibun.trace.table import Trace
from haibun.trace.write import write_philly

__all__ = ["Problem", "Trace", "TraceError", "Workload", "generate", "read", "write_philly"]
