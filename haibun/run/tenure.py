"""One agent for one state folder: the lock, who holds it, and cleaning up after the one before."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

from haibun.run.isolation import Cages, processes_in, remove_tree, write
from haibun.run.processes import KILL_TIMEOUT, MARK, ZYGOTE_MARK, marked, signal_all


class TenureError(Exception):
    """This agent cannot take the state folder over."""


@dataclass(frozen=True, slots=True)
class Tenure:
    """A state folder held by this process. ``agent`` names it in marks and cgroups, whoever holds it."""

    folder: Path
    agent: str
    lock: int

    @property
    def boards(self) -> Path:
        """Where boards lie: in memory, since writing to a page of a disk file may wait for its journal."""
        shm = Path("/dev/shm")
        return shm / f"haibun-{self.agent}" if os.access(shm, os.W_OK) else self.folder / "boards"

    def release(self) -> None:
        """Give it up."""
        shutil.rmtree(self.boards, ignore_errors=True)
        os.close(self.lock)


def take(folder: Path) -> Tenure:
    """Hold the state folder.

    Raises:
        TenureError: another agent holds it, or it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as e:
        raise TenureError(f"the state folder {folder} cannot be written: {e.strerror}") from e
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(lock)
        holder = former(folder).get("pid", "unknown")
        raise TenureError(f"another agent (process {holder}) uses the state folder {folder}") from None
    name = hashlib.blake2b(str(folder.resolve()).encode(), digest_size=5).hexdigest()
    return Tenure(folder, name, lock)


def former(folder: Path) -> dict[str, object]:
    """What the last agent wrote about itself; empty if there is nothing to read."""
    try:
        found = json.loads((folder / "agent.json").read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def sweep(tenure: Tenure, cages: Cages, timeout: float = KILL_TIMEOUT) -> int:
    """End all that a former agent of this folder has left, and prove it. Returns how many processes that was.

    Raises:
        TenureError: some of them do not die.
    """
    listed = former(tenure.folder).get("cgroups", ())
    old = {str(p) for p in listed} if isinstance(listed, list) else set()
    roots = [Path(p) for p in {*cages.roots(), *old} if Path(p).name == f"haibun-{tenure.agent}"]
    ended: set[int] = set()
    deadline = time.monotonic() + timeout
    while pids := _left(tenure, roots):
        ended |= pids
        signal_all(pids, signal.SIGKILL)
        for root in roots:
            _thaw(root)
        if time.monotonic() > deadline:
            raise TenureError(
                f"processes {sorted(pids)} of a former agent do not die; see what they wait for"
            )
        time.sleep(0.005)
    for root in roots:
        with contextlib.suppress(FileNotFoundError):
            for child in root.iterdir():
                if child.is_dir():
                    remove_tree(child)
    shutil.rmtree(tenure.boards, ignore_errors=True)
    tenure.boards.mkdir(parents=True, exist_ok=True)
    return len(ended)


def _left(tenure: Tenure, roots: list[Path]) -> set[int]:
    inside = {pid for root in roots for pid in processes_in(root)}
    return inside | marked(tenure.agent, MARK) | marked(tenure.agent, ZYGOTE_MARK)


def _thaw(root: Path) -> None:
    """A frozen process dies only once it is thawed."""
    for at, _, files in os.walk(root):
        for name, value in (("freezer.state", "THAWED"), ("cgroup.freeze", "0")):
            if name in files and Path(at) != root:
                with contextlib.suppress(OSError):
                    write(Path(at) / name, value)


def sign(tenure: Tenure, node: str, boot: str, cages: Cages) -> None:
    """Write who holds the folder: for operators, for the command line, and for the next agent."""
    about = {
        "pid": os.getpid(),
        "started": psutil.Process().create_time(),
        "node": node,
        "boot": boot,
        "agent": tenure.agent,
        "cgroups": list(cages.roots()),
    }
    temporary = tenure.folder / "agent.json.new"
    temporary.write_text(json.dumps(about) + "\n")
    os.replace(temporary, tenure.folder / "agent.json")
