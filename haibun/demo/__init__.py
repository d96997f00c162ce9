"""``haibun demo``: real jobs on this machine, and the same jobs in the twin."""

from haibun.demo.errors import DemoError
from haibun.demo.run import DemoOptions, demo

__all__ = ["DemoError", "DemoOptions", "demo"]
