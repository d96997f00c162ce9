"""The warm pool: workers forked from a process that has imported torch, and what to do where that does not
fit.

A warm start must be told from a cold one by nothing but its speed; where the two could differ, the start is
cold.
"""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from haibun.run.clock import Clock
from haibun.run.processes import Process, Reaper, Request, SpawnError, Zygote, spawn

# Read once by the interpreter or a library while it loads: a forked worker would not see the job's value.
_READ_AT_START = re.compile(
    r"^(PYTHON|LD_|GLIBC_|MALLOC_|OMP_|GOMP_|KMP_|MKL_|OPENBLAS_|BLIS_|NUMEXPR_|TORCH|PYTORCH|TRITON_|LC_|LANG|NPY_|"
    r"CUBLAS_|CUDA_MODULE)"
)
# ... but for these, which the zygote sets in the worker itself, or which act later.
_HANDLED = frozenset(
    (
        "OMP_NUM_THREADS",
        "PYTHONUNBUFFERED",
        "PYTHONPATH",
        "PYTHONDONTWRITEBYTECODE",
        "TORCHELASTIC_RUN_ID",
        "TORCHELASTIC_RESTART_COUNT",
        "TORCHELASTIC_MAX_RESTARTS",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING",
        "PYTORCH_NVML_BASED_CUDA_CHECK",
    )
)
_SHELL = re.compile(r"[;&|<>$`\\*?(){}\[\]~#!\n=]")
# A zygote that dies at once each time is not worth a busy loop.
RESTART_AFTER = 5.0


@dataclass(frozen=True, slots=True)
class Script:
    """A command line taken apart: ``python [-u] SCRIPT ARGUMENTS`` or ``python [-u] -m MODULE ARGUMENTS``."""

    interpreter: str
    arguments: tuple[str, ...]
    module: bool
    unbuffered: bool


def python_command(argv: tuple[str, ...] | None, run: str | None) -> Script | None:
    """The Python script that a command runs; None if anything else. ``run`` may hold one plain command."""
    if argv is None:
        if run is None or _SHELL.search(run.strip()):
            return None
        try:
            argv = tuple(shlex.split(run))
        except ValueError:
            return None
    if len(argv) < 2 or not re.fullmatch(r"python(3(\.\d+)?)?", os.path.basename(argv[0])):
        return None
    rest, unbuffered = argv[1:], False
    while rest and rest[0] == "-u":
        rest, unbuffered = rest[1:], True
    module = bool(rest) and rest[0] == "-m"
    rest = rest[1:] if module else rest
    if not rest or rest[0].startswith("-"):
        return None
    return Script(argv[0], rest, module, unbuffered)


def same_interpreter(name: str, cwd: str, env: dict[str, str]) -> bool:
    """Whether ``name``, run in ``cwd`` with the job's PATH, is the interpreter that the pool runs."""
    found = shutil.which(name, path=env.get("PATH", os.defpath))
    if os.sep in name:
        found = os.path.join(cwd, name)
    if not found or not os.path.exists(found):
        return False
    same_place = os.path.realpath(os.path.dirname(found)) == os.path.realpath(os.path.dirname(sys.executable))
    return same_place and os.path.samefile(found, sys.executable)


def changes_start(env: dict[str, str], zygote: dict[str, str]) -> str | None:
    """A variable that a fresh interpreter reads at its start and the zygote found otherwise; None: none."""
    for name in env.keys() | zygote.keys():
        if _READ_AT_START.match(name) and name not in _HANDLED and env.get(name) != zygote.get(name):
            return name
    return None


def shadows(folders: list[str], modules: dict[str, str]) -> str | None:
    """A module in ``folders`` that a fresh interpreter would import in place of ours.

    ``modules``: those that the zygote has, and their files.
    """
    for folder in folders:
        try:
            entries = os.listdir(folder)
        except OSError:
            continue
        for entry in entries:
            name, dot, suffix = entry.partition(".")
            if name in ("sitecustomize", "usercustomize"):
                return entry
            path = os.path.join(folder, entry) if dot else os.path.join(folder, entry, "__init__.py")
            module = suffix == "py" or suffix.endswith("so") or (not dot and os.path.exists(path))
            if (
                name in modules
                and module
                and os.path.realpath(path) != os.path.realpath(modules[name] or "/")
            ):
                return entry
    return None


def fit(request: Request, script: Script | None, zygote: Zygote) -> Request | None:
    """The request for a warm start, if a warm start equals a cold one; else None."""
    if script is None or not same_interpreter(script.interpreter, request.cwd, request.env):
        return None
    threads = request.env.get("OMP_NUM_THREADS", "1")
    if changes_start(request.env, zygote.env) or not threads.isdigit():
        return None
    path = tuple(
        os.path.join(request.cwd, p) for p in request.env.get("PYTHONPATH", "").split(os.pathsep) if p
    )
    target = Path(request.cwd, script.arguments[0])
    if not script.module and not target.is_file():
        return None
    first = request.cwd if script.module else os.path.dirname(os.path.realpath(target))
    if shadows([first, *path], zygote.modules):
        return None
    return msgspec.structs.replace(
        request,
        python=True,
        argv=(script.interpreter, *script.arguments),
        arguments=script.arguments,
        module=script.module,
        unbuffered=script.unbuffered,
        python_path=path,
        threads=int(threads),
    )


class Launcher:
    """Starts programs: warm where that fits, else by a small zygote that forks and executes.

    ``spares``: warm workers kept ready; 0: no warm pool.
    """

    def __init__(
        self, agent: str, reaper: Reaper, clock: Clock, say: Callable[[str], None], spares: int
    ) -> None:
        self._agent, self._reaper, self._clock, self._say = agent, reaper, clock, say
        self._cold, self._warm = Zygote(agent, reaper), Zygote(agent, reaper, spares)
        self._use_warm = spares > 0
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Start both zygotes, and keep them up."""
        self._cold.start()
        self._tasks.append(asyncio.create_task(self._keep(self._cold)))
        if self._use_warm:
            self._warm.start()
            self._tasks.append(asyncio.create_task(self._keep(self._warm)))

    async def _keep(self, zygote: Zygote) -> None:
        while True:
            began = self._clock.now()
            assert zygote.gone is not None
            code = await asyncio.shield(zygote.gone)
            what = "warm pool" if zygote.warm else "launcher"
            self._say(f"the {what} (process {zygote.pid}) ended with code {code}; it is started again")
            if self._clock.now() - began < RESTART_AFTER:
                await self._clock.sleep(RESTART_AFTER if zygote.warm else 0.05)
            zygote.stop()
            zygote.start()

    @property
    def zygotes(self) -> set[int]:
        """Process ids of the zygotes."""
        return {z.pid for z in (self._cold, self._warm) if z.pid}

    @property
    def is_warm(self) -> bool:
        """Whether a warm start is possible now."""
        return self._use_warm and self._warm.ready.is_set()

    async def until_warm(self) -> bool:
        """Wait for the warm pool; False if there will be none."""
        while self._use_warm and not self.is_warm:
            if self._warm.failed:
                return False
            await self._clock.sleep(0.05)
        return self.is_warm

    async def launch(
        self, request: Request, script: Script | None = None, terminal: int | None = None
    ) -> Process:
        """Start a program.

        Raises:
            SpawnError: it cannot be started.
        """
        if self._warm.failed and self._use_warm:
            self._use_warm = False
            self._say(
                f"no warm pool, workers start cold: {self._warm.failed} (install the extra: haibun[train])"
            )
        if self.is_warm and (warm := fit(request, script, self._warm)):
            try:
                return await spawn(self._warm, self._reaper, warm)
            except SpawnError as e:
                if e.fatal:
                    raise
                self._say(f"{e}; this start is cold")
        for _ in range(2):  # once more, should the small zygote have died just now
            try:
                return await spawn(self._cold, self._reaper, request, terminal)
            except SpawnError as e:
                if e.fatal:
                    raise
                await self._clock.sleep(0.2)
        return await spawn(self._cold, self._reaper, request, terminal)

    async def close(self) -> None:
        """End both zygotes."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._cold.stop()
        self._warm.stop()
