"""How fast a model trains: steps/s by (model, device type, number of devices, consolidated or not).

One class serves both sides; it is a `haibun.core.demand.Rates`. The twin reads a file once and looks up
thousands of jobs at a time; the live side adds what is measured, step by step. Rows of plain values
(`to_rows`) make it part of a snapshot.

What a lookup answers, first that applies:

1. the entry itself (one device is always consolidated);
2. the entry of the same count with the other consolidation: a gang on several nodes is taken to be as fast
   as on one, and the other way round, until somebody measures it;
3. where the count has no entry, by ``missing``:
   ``scale``: the nearest smaller count, times (devices / count) ** ``scaling``; if there is none, the
   nearest larger one, scaled down alike. Own consolidation first. ``nearest``: the same entry, not scaled.
   ``nan``: unknown;
4. nan: unknown. (0.0 is an answer: the model does not run there, as ResNet-50 with batch size 128 on a K80.)

Gavel's own code (scheduler.py, ``_set_initial_throughput``) ends with a KeyError at 3, and has no rule. In
its tables ``Recommendation``, ``A3C`` and ``CycleGAN`` have entries for one device alone, and nothing has
one above 8.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haibun.core.events import ThroughputMeasured

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Missing = Literal["scale", "nearest", "nan"]
MAX_DEVICES = 8_192  # answers are kept for each count up to the largest asked for; above: nan


class Row(NamedTuple):
    """One entry, as plain values. ``samples`` counts measurements; 0: from a file."""

    model: str
    device_type: str
    devices: int
    consolidated: bool
    rate: float
    samples: int


class UnknownProfileError(KeyError):
    """A model or device type that the table does not know; its text names the closest ones."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True, slots=True)
class _Entry:
    rate: float
    samples: int


Key = tuple[int, int, int, bool]  # model code, type code, devices, consolidated


class ThroughputTable:
    """Rates in steps/s. See the module for the rule of lookup.

    Args:
        missing: what to answer for a count without an entry: ``scale``, ``nearest`` or ``nan``.
        scaling: exponent of ``scale``; 1: linear (optimistic), 0: no faster than the smaller gang.
        smoothing: weight of a new measurement in the exponentially weighted mean. The first few weigh more
            (1/n), so that the mean starts as a plain one; a value from a file gives way to the first
            measurement.
        unmodelled: rate of a job that names no model: 1.0 where steps are seconds of a trace, else nan.
    """

    def __init__(
        self,
        missing: Missing = "scale",
        scaling: float = 1.0,
        smoothing: float = 0.2,
        unmodelled: float = math.nan,
    ) -> None:
        if missing not in ("scale", "nearest", "nan"):
            raise ValueError(f"missing is {missing!r}; it must be 'scale', 'nearest' or 'nan'")
        if not 0 <= scaling <= 2:
            raise ValueError(f"scaling is {scaling}; it must lie between 0 and 2")
        if not 0 < smoothing <= 1:
            raise ValueError(f"smoothing is {smoothing}; it must be greater than 0 and at most 1")
        self.missing = missing
        self.scaling = scaling
        self.smoothing = smoothing
        self.unmodelled = unmodelled
        self._models: dict[str, int] = {}
        self._types: dict[str, int] = {}
        self._entries: dict[Key, _Entry] = {}
        self._grid: Floats = np.full((0, 0, 2, 1), np.nan)  # model, type, consolidated, devices
        self._stale: set[tuple[int, int]] = set()
        self._widest = 1  # largest count of an entry

    # ---- what is in it

    def __len__(self) -> int:
        return len(self._entries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ThroughputTable):
            return NotImplemented
        return self._rule() == other._rule() and sorted(self.to_rows()) == sorted(other.to_rows())

    __hash__ = None  # type: ignore[assignment]

    def _rule(self) -> tuple[str, float, float, str]:
        return self.missing, self.scaling, self.smoothing, repr(self.unmodelled)  # repr: nan equals itself

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, by code."""
        return tuple(self._models)

    @property
    def device_types(self) -> tuple[str, ...]:
        """Names of the device types, by code."""
        return tuple(self._types)

    def to_rows(self) -> list[Row]:
        """All entries, in the order in which they came."""
        models, types = self.models, self.device_types
        return [
            Row(models[m], types[t], n, consolidated, e.rate, e.samples)
            for (m, t, n, consolidated), e in self._entries.items()
        ]

    @classmethod
    def from_rows(
        cls,
        rows: Iterable[Sequence[Any]],
        missing: Missing = "scale",
        scaling: float = 1.0,
        smoothing: float = 0.2,
        unmodelled: float = math.nan,
    ) -> ThroughputTable:
        """The table that `to_rows` told of; codes come out the same. Rows may be lists (JSON, msgpack).

        Raises:
            ValueError: a row is malformed; it is named.
        """
        table = cls(missing, scaling, smoothing, unmodelled)
        table.restore(rows)
        return table

    def restore(self, rows: Iterable[Sequence[Any]]) -> None:
        """Put in rows that `to_rows` gave.

        Raises:
            ValueError: a row is malformed; it is named.
        """
        for row in rows:
            try:
                model, device_type, devices, consolidated, rate, samples = row
                entry = _Entry(_rate(float(rate)), int(samples))
                self._put(str(model), str(device_type), int(devices), bool(consolidated), entry)
            except (TypeError, ValueError) as e:
                raise ValueError(f"not a row of a throughput table: {row!r}: {e}") from None

    def copy(self) -> ThroughputTable:
        """An independent copy, for a fork: O(entries)."""
        other = ThroughputTable(self.missing, self.scaling, self.smoothing, self.unmodelled)
        other._models, other._types, other._entries = (
            dict(self._models),
            dict(self._types),
            dict(self._entries),
        )
        other._grid, other._stale = self._grid.copy(), set(self._stale)
        other._widest = self._widest
        return other

    # ---- putting things in

    def set(self, model: str, device_type: str, devices: int, rate: float, consolidated: bool = True) -> None:
        """Enter a rate in steps/s that was not measured here: from a file, or an estimate.

        Raises:
            ValueError: the rate is negative or not finite, or the count below 1.
        """
        self._put(model, device_type, devices, consolidated, _Entry(_rate(rate), 0))

    def observe(self, model: str, device_type: str, devices: int, consolidated: bool, rate: float) -> None:
        """Add a measurement in steps/s to the weighted mean.

        Raises:
            ValueError: as for `set`.
        """
        rate = _rate(rate)
        consolidated = consolidated or devices == 1
        key = (self._models.get(model, -1), self._types.get(device_type, -1), devices, consolidated)
        old = self._entries.get(key, _Entry(0.0, 0))
        weight = max(self.smoothing, 1.0 / (old.samples + 1))
        mean = old.rate + weight * (rate - old.rate)
        self._put(model, device_type, devices, consolidated, _Entry(mean, old.samples + 1))

    def apply(self, event: ThroughputMeasured) -> None:
        """`observe` what the event tells."""
        self.observe(event.model, event.device_type, event.devices, event.consolidated, event.rate)

    def _put(self, model: str, device_type: str, devices: int, consolidated: bool, entry: _Entry) -> None:
        if not 1 <= devices <= MAX_DEVICES:
            raise ValueError(f"devices is {devices}; it must lie between 1 and {MAX_DEVICES}")
        m = self._models.setdefault(model, len(self._models))
        t = self._types.setdefault(device_type, len(self._types))
        self._entries[m, t, devices, consolidated] = entry
        self._stale.add((m, t))
        self._widest = max(self._widest, devices)

    # ---- looking up

    def rate(self, model: str | None, device_type: str, devices: int, consolidated: bool = True) -> float:
        """Steps/s; nan where the rule has no answer or a name is unknown; ``unmodelled`` for None."""
        if model is None:
            return self.unmodelled
        m, t = self._models.get(model, -1), self._types.get(device_type, -1)
        if m < 0 or t < 0 or not 1 <= devices <= MAX_DEVICES:
            return math.nan
        return float(self._view(devices)[m, t, int(consolidated), devices])

    def require(self, models: Iterable[str | None] = (), device_types: Iterable[str] = ()) -> None:
        """Make sure that names are known, before a replay that needs them.

        Raises:
            UnknownProfileError: the table has no entry of a model or a type; the closest are named.
        """
        for name in models:
            if name is not None and name not in self._models:
                raise UnknownProfileError(_unknown(self._models, name, "model"))
        for name in device_types:
            if name not in self._types:
                raise UnknownProfileError(_unknown(self._types, name, "device type"))

    def samples(self, model: str, device_type: str, devices: int, consolidated: bool = True) -> int:
        """How often exactly this was measured; 0 if never."""
        key = (
            self._models.get(model, -1),
            self._types.get(device_type, -1),
            devices,
            consolidated or devices == 1,
        )
        return self._entries[key].samples if key in self._entries else 0

    def model_codes(self, names: Iterable[str | None]) -> Ints:
        """Codes of model names, for `rates`; -1 for None and for unknown ones."""
        return np.array([-1 if n is None else self._models.get(n, -1) for n in names], dtype=np.int64)

    def type_code(self, device_type: str) -> int:
        """Code of a device type, for `rates`; -1 if unknown."""
        return self._types.get(device_type, -1)

    def rates(
        self,
        models: Ints,
        types: Ints | int,
        devices: Ints,
        consolidated: NDArray[np.bool_] | bool = True,
    ) -> Floats:
        """Steps/s of many jobs at once, broadcast over the arguments; nan where unknown.

        ``models`` and ``types`` are codes (`model_codes`, `type_code`), ``devices`` counts; -1 and 0 give
        nan.
        """
        counts = np.asarray(devices, dtype=np.int64)
        counts = np.where((counts < 0) | (counts > MAX_DEVICES), 0, counts)
        grid = self._view(int(counts.max(initial=1)))
        if not grid.size:
            shape = np.broadcast_shapes(
                np.shape(models), np.shape(types), counts.shape, np.shape(consolidated)
            )
            return np.full(shape, np.nan)
        rates = grid[models, types, np.asarray(consolidated, dtype=np.int64), counts]
        return np.where((np.asarray(models) < 0) | (np.asarray(types) < 0), np.nan, rates)

    def _view(self, devices: int) -> Floats:
        """The dense answers, up to date and wide enough for a count."""
        models, types, _, width = self._grid.shape
        widest = max(devices, self._widest)
        if widest >= width or len(self._models) > models or len(self._types) > types:
            shape = (len(self._models), len(self._types), 2, 1 << widest.bit_length())
            self._grid = np.full(shape, np.nan)
            self._stale = {(m, t) for m, t, _, _ in self._entries}
        if self._stale:
            self._refresh()
        return self._grid

    def _refresh(self) -> None:
        known: dict[tuple[int, int], tuple[dict[int, float], dict[int, float]]]
        known = {pair: ({}, {}) for pair in self._stale}
        for (m, t, n, consolidated), entry in self._entries.items():
            if (m, t) in known:
                known[m, t][consolidated][n] = entry.rate
        for (m, t), (apart, together) in known.items():
            self._grid[m, t, 0] = self._answers(apart, together)
            self._grid[m, t, 1] = self._answers(together, apart)
            self._grid[m, t, 0, 1] = self._grid[m, t, 1, 1]
        self._stale.clear()

    def _answers(self, own: dict[int, float], other: dict[int, float]) -> Floats:
        """Rates for counts 0, 1, 2, ...: entries, those of the other consolidation, then ``missing``."""
        counts = np.arange(self._grid.shape[3])
        out = np.full(len(counts), np.nan)
        for source in (own, other):
            if source and self.missing != "nan":
                out = np.where(np.isnan(out), self._spread(source, counts), out)
        for source in (other, own):
            out[list(source)] = list(source.values())
        out[0] = np.nan
        return out

    def _spread(self, known: dict[int, float], counts: Ints) -> Floats:
        """For each count the rate at the nearest smaller known one (or the smallest), scaled."""
        at = np.array(sorted(known))
        base = at[np.maximum(np.searchsorted(at, counts, side="right") - 1, 0)]
        rate: Floats = np.array([known[n] for n in at.tolist()])[np.searchsorted(at, base)]
        return rate if self.missing == "nearest" else rate * (counts / base) ** self.scaling


def _rate(rate: float) -> float:
    if not 0 <= rate < float("inf"):
        raise ValueError(f"a rate of {rate} steps/s: it must be finite, and 0 or more")
    return rate


def _unknown(known: Iterable[str], name: str, what: str) -> str:
    names = list(known)
    close = get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"the closest are {', '.join(map(repr, close))}" if close else f"it has {len(names)} others"
    return f"the throughput table knows no {what} {name!r}; {hint}"
