"""How busy the node is: telemetry for the beats."""

from __future__ import annotations

from collections.abc import Iterable

import psutil

from haibun.run.attempt import Attempt
from haibun.run.clock import Clock
from haibun.run.devices import GpuProbe, LocalDevice
from haibun.run.environment import split_devices
from haibun.run.processes import cpu_seconds


class Usage:
    """Measures between one call and the next. A virtual device is as busy as its worker's process."""

    def __init__(self, clock: Clock, probe: GpuProbe | None) -> None:
        self._clock, self._probe = clock, probe
        self._then: dict[int, float] = {}
        self._at = clock.now()

    def measure(
        self, devices: tuple[LocalDevice, ...], attempts: Iterable[Attempt]
    ) -> tuple[float, int, tuple[float, ...]]:
        """Busy cores of the host, bytes of memory in use, and each device's utilisation, 0 to 1."""
        cores = psutil.cpu_percent() / 100.0 * (psutil.cpu_count() or 1)
        memory = int(psutil.virtual_memory().used)
        if self._probe is not None:
            busy = [self._probe.utilisation(d.gpu.index) if d.gpu else 0.0 for d in devices]
        else:
            busy = self._of_workers(len(devices), attempts)
        return cores, memory, tuple(busy)

    def _of_workers(self, count: int, attempts: Iterable[Attempt]) -> list[float]:
        now, busy, seen = self._clock.now(), [0.0] * count, {}
        for attempt in attempts:
            shares = split_devices(attempt.devices, attempt.launch.processes)
            for worker, share in zip(attempt.workers, shares, strict=False):
                used = seen[worker.pid] = cpu_seconds(worker.pid)
                passed = (now - self._at) * sum(d.cores for d in share)
                part = (used - self._then.get(worker.pid, used)) / passed if passed > 0 else 0.0
                for device in share:
                    busy[device.number] = min(1.0, busy[device.number] + part)
        self._then, self._at = seen, now
        return busy
