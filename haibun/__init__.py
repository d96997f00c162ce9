"""Haibun: a resource manager and workload scheduler for distributed deep-learning training."""

__version__ = "0.1.0"
