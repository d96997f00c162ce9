"""One line to the job's log, which is its stderr."""

from __future__ import annotations

import sys


def say(message: str) -> None:
    """Write ``message`` to stderr at once, marked as Haibun's."""
    print(f"haibun: {message}", file=sys.stderr, flush=True)
