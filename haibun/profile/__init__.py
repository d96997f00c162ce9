"""Models fitted from what was measured: throughput, for now. See docs/traces.md for files."""

from haibun.profile.gavel import ThroughputFileError, find_beside, read_throughputs
from haibun.profile.throughput import Missing, Row, ThroughputTable, UnknownProfileError

__all__ = [
    "Missing",
    "Row",
    "ThroughputFileError",
    "ThroughputTable",
    "UnknownProfileError",
    "find_beside",
    "read_throughputs",
]
