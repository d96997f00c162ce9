"""Events to bytes and back, with versions.

A record is ``version, kind, body``. ``VERSIONS`` holds the version now written of each kind (1 where absent). When a
kind changes so that old bodies no longer decode, raise its version and register an upcaster from the old one:
a function from the old body (plain dict) to the new. Upcasters chain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from haibun.core.events import AnyEvent

Upcaster = Callable[[dict[str, Any]], dict[str, Any]]

VERSIONS: dict[str, int] = {}
UPCASTERS: dict[tuple[str, int], Upcaster] = {}

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[AnyEvent] = msgspec.msgpack.Decoder(AnyEvent)


class CodecError(ValueError):
    """A record that this version of Haibun cannot read."""


def kind_of(event: AnyEvent) -> str:
    """The tag under which the event is journalled."""
    return str(type(event).__struct_config__.tag)


def encode(event: AnyEvent) -> tuple[str, int, bytes]:
    """Return ``(kind, version, body)``; the body is msgpack and bears the kind too."""
    kind = kind_of(event)
    return kind, VERSIONS.get(kind, 1), _encoder.encode(event)


def decode(kind: str, version: int, body: bytes) -> AnyEvent:
    """Read a record, lifting it from older versions where needed.

    Raises:
        CodecError: the version is newer than this code, no upcaster leads on from it, or the body is damaged.
    """
    current = VERSIONS.get(kind, 1)
    if version > current:
        raise CodecError(
            f"event {kind!r} has version {version}; this Haibun reads up to {current}: upgrade it"
        )
    try:
        if version == current:
            event: AnyEvent = _decoder.decode(body)
            return event
        raw: dict[str, Any] = msgspec.msgpack.decode(body)
        for v in range(version, current):
            raw = UPCASTERS[kind, v](raw)
        lifted: AnyEvent = msgspec.convert(raw, AnyEvent)
        return lifted
    except KeyError:
        raise CodecError(f"no upcaster leads event {kind!r} on from version {version}") from None
    except (msgspec.DecodeError, msgspec.ValidationError) as e:
        raise CodecError(f"event {kind!r} is damaged: {e}") from e
