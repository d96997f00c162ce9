"""What can go wrong with the demo, in words."""

from __future__ import annotations


class DemoError(RuntimeError):
    """The demo cannot go on; the message says why and what to do."""
