"""Bytes, durations and rates as people write them, to bytes, seconds and bytes/s; and back, for people to
read.

Prefixes mean what SI and IEC say: ``4GB`` is 4 x 10**9 bytes, ``4GiB`` (or ``4Gi``, as in Kubernetes) 4 x
2**30.
"""

from __future__ import annotations

import math
import re

KIB = 1024
MAX_BYTES = 1 << 60  # 1 EiB; more is a slip of the unit
MAX_SECONDS = 100 * 366 * 86_400.0  # a hundred years; likewise
MAX_RATE = 1e15  # bytes/s

_QUANTITY = re.compile(r"\s*([-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)\s*([A-Za-z/]*)\s*")
_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([A-Za-zµ]+)\s*")
_CLOCK = re.compile(r"(?:(\d+)-)?(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?")
_PREFIXES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15}
_BINARY = {"ki": KIB, "mi": KIB**2, "gi": KIB**3, "ti": KIB**4, "pi": KIB**5}
_SECONDS = {
    1e-6: ("us", "µs"),
    1e-3: ("ms",),
    1.0: ("s", "sec", "secs", "second", "seconds"),
    60.0: ("m", "min", "mins", "minute", "minutes"),
    3600.0: ("h", "hr", "hrs", "hour", "hours"),
    86_400.0: ("d", "day", "days"),
    604_800.0: ("w", "week", "weeks"),
}
_UNIT_SECONDS = {name: seconds for seconds, names in _SECONDS.items() for name in names}


class UnitError(ValueError):
    """A quantity that cannot be understood; the text says what would be."""


def parse_bytes(value: str | int | float) -> int:
    """Bytes of ``4GiB``, ``512M``, ``1.5 TB`` or a plain number.

    Raises:
        UnitError: no number, an unknown unit, bits, negative, not finite, or more than an EiB.
    """
    number, unit = _split(value, "4GiB")
    factor = _byte_factor(unit, value)
    return int(_bounded(number * factor, MAX_BYTES, value, "1 EiB"))


def parse_duration(value: str | int | float) -> float:
    """Seconds of ``2h30m``, ``90s``, ``1d 12h``, ``500ms``, ``1:30:00`` (h:mm:ss), ``2-00:00:00`` or a plain
    number.

    Raises:
        UnitError: no duration, negative, not finite, or more than a hundred years.
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"{value!r} is not a duration; write for instance 2h30m, or seconds")
    if isinstance(value, str):
        return _bounded(_duration(value), MAX_SECONDS, value, "a hundred years")
    return _bounded(float(value), MAX_SECONDS, value, "a hundred years")


def parse_rate(value: str | int | float) -> float:
    """Bytes/s of ``10GB/s``, ``25Gbit/s``, ``25Gbps``, ``1GiB/s`` or a plain number.

    Raises:
        UnitError: as for `parse_bytes`.
    """
    number, unit = _split(value, "10GB/s or 25Gbit/s")
    if not unit:
        return _bounded(number, MAX_RATE, value, "1 PB/s")
    amount, per_second = re.subn(r"(/s|/sec|ps)$", "", unit)
    if not per_second:
        raise UnitError(f"{value!r} is an amount, not a rate; write for instance {number:g}{unit}/s")
    bits = re.fullmatch(r"([kKmMgGtTpP]?i?)(bit|bits|b)", amount)
    if bits:
        factor = _byte_factor(bits[1], value) / 8
    elif unit.endswith("ps"):
        raise UnitError(f"{value!r}: bits or bytes? Write for instance {number:g}Gbit/s or {number:g}GB/s")
    else:
        factor = _byte_factor(amount, value)
    return _bounded(number * factor, MAX_RATE, value, "1 PB/s")


def format_bytes(count: float) -> str:
    """``3.5 GiB``; to three digits."""
    return _scaled(count, KIB, ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"))


def format_rate(rate: float) -> str:
    """``1.25 GB/s``; to three digits."""
    return _scaled(rate, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s", "PB/s"))


def format_duration(seconds: float) -> str:
    """``1h 02m``: the two largest units; ``45s``, ``2.5s``, ``350ms``; ``-`` if not finite."""
    if not math.isfinite(seconds):
        return "-"
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g}us" if seconds else "0s"
    if seconds < 0.9995:
        return f"{seconds * 1e3:.3g}ms"
    if seconds < 9.95:
        return f"{seconds:.1f}s".replace(".0s", "s")
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m {whole % 60:02d}s"
    minutes = round(seconds / 60)
    if minutes < 1440:
        return f"{minutes // 60}h {minutes % 60:02d}m"
    hours = round(seconds / 3600)
    return f"{hours // 24}d {hours % 24:02d}h"


def _split(value: object, example: str) -> tuple[float, str]:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise UnitError(f"{value!r} is not a quantity; write for instance {example}")
    if not isinstance(value, str):
        return float(value), ""
    match = _QUANTITY.fullmatch(value)
    if not match:
        raise UnitError(f"{value!r} is not a quantity; write for instance {example}")
    return float(match[1]), match[2]


def _byte_factor(unit: str, value: object) -> int:
    prefix = unit.lower().removesuffix("b")
    if unit.endswith("b") and unit[:-1] != unit[:-1].lower():
        raise UnitError(f"{value!r}: {unit} reads as bits; write {unit[:-1]}B for bytes")
    factor = _PREFIXES.get(prefix) or _BINARY.get(prefix)
    if factor is None:
        raise UnitError(
            f"{value!r}: no unit is called {unit!r}; there are B, kB, MB, GB, TB, PB, KiB, MiB, GiB, TiB, PiB"
        )
    return factor


def _duration(text: str) -> float:
    stripped = text.strip()
    clock = _CLOCK.fullmatch(stripped)
    if clock:
        days, hours, minutes, seconds = clock.groups()
        if seconds is None:
            raise UnitError(f"{text!r}: minutes or hours? Write {hours}:{minutes}:00, or {hours}h{minutes}m")
        return int(days or 0) * 86_400.0 + int(hours) * 3600.0 + int(minutes) * 60.0 + float(seconds)
    number = _QUANTITY.fullmatch(stripped)
    if number and not number[2]:
        return float(number[1])
    if stripped.startswith("-"):
        raise UnitError(f"{text!r} is negative")
    total, at = 0.0, 0
    for part in _PART.finditer(stripped):
        if part.start() != at:
            break
        at = part.end()
        seconds_each = _UNIT_SECONDS.get(part[2].lower())
        if seconds_each is None:
            raise UnitError(
                f"{text!r}: no unit of time is called {part[2]!r}; there are us, ms, s, m, h, d, w"
            )
        total += float(part[1]) * seconds_each
    if not stripped or at != len(stripped):
        raise UnitError(f"{text!r} is not a duration; write for instance 2h30m, or seconds")
    return total


def _bounded(amount: float, most: float, value: object, most_text: str) -> float:
    if math.isnan(amount):
        raise UnitError(f"{value!r} is not a number")
    if amount < 0:
        raise UnitError(f"{value!r} is negative")
    if amount > most:
        raise UnitError(f"{value!r} is more than {most_text}: is the unit right?")
    return amount


def _scaled(amount: float, base: int, units: tuple[str, ...]) -> str:
    if not math.isfinite(amount):
        return "-"
    if amount < 0:
        return "-" + _scaled(-amount, base, units)
    power = 0
    while power < len(units) - 1 and amount >= base - 0.5:
        amount /= base
        power += 1
    text = f"{amount:.3g}" if amount < 1000 else f"{amount:.0f}"
    return f"{text} {units[power]}"
