"""What the controller refuses, in words for people."""

from __future__ import annotations

from difflib import get_close_matches


class NotFoundError(LookupError):
    """No job or node goes by that name."""

    def __init__(self, kind: str, name: str, known: list[str]) -> None:
        close = get_close_matches(name, known, 3)
        hint = f"; did you mean {' or '.join(repr(c) for c in close)}?" if close else ""
        super().__init__(f"there is no {kind} {name!r}{hint}")
        self.kind, self.name, self.close = kind, name, close


class AmbiguousError(LookupError):
    """Several jobs bear that name; the message lists their ids."""


class ConflictError(ValueError):
    """The job is in a state in which that cannot be asked of it."""


class UnavailableError(RuntimeError):
    """The controller can accept nothing just now (disk full, database gone); what it has is safe."""
