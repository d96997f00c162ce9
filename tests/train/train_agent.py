"""A stand-in for the node agent: makes the board, sets the environment, starts the workers, posts commands.

Workers are forked from a process that has imported torch, as Haibun's warm pool does: a start takes 0.1 s.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path

from haibun.train.board import Board, Command, Phase, Slot

SCRIPT = Path(__file__).with_name("train_script.py")
PATIENCE = 60.0  # seconds; only ever used up by a failure

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["torch", "torch._dynamo", "haibun.train.saver", "torch.distributed.fsdp"])


def until(condition: Callable[[], bool], what: str) -> None:
    """Wait for a condition, looking at it every half millisecond."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {PATIENCE} s for {what}")
        time.sleep(0.0005)


def work(environ: dict[str, str], script: Path, arguments: list[str], log: Path) -> None:
    """In the worker: become a script in that environment."""
    fd = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(fd, 1)
    os.dup2(fd, 2)
    for name in [n for n in os.environ if n.startswith("HAIBUN_")]:
        del os.environ[name]
    os.environ.update(environ)
    sys.argv = [str(script), *arguments]
    runpy.run_path(str(script), run_name="__main__")


class Workers:
    """A gang of processes on this host, as torchrun would start them."""

    def __init__(
        self, log: Path, world: int, arguments: list[str], *, script: Path = SCRIPT, **environ: str
    ) -> None:
        self.log = log
        self.processes = []
        port = _free_port()
        for rank in range(world):
            places = {
                "RANK": str(rank),
                "WORLD_SIZE": str(world),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(world),
                "HAIBUN_SLOT": str(rank),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            process = _context.Process(target=work, args=(places | environ, script, arguments, log))
            process.start()
            self.processes.append(process)

    def wait(self) -> list[int | None]:
        """Exit codes, in the order of ranks."""
        deadline = time.monotonic() + PATIENCE
        for p in self.processes:
            p.join(deadline - time.monotonic())
        return [p.exitcode for p in self.processes]

    def kill(self) -> None:
        """kill -9, all ranks."""
        for p in self.processes:
            p.kill()
        self.wait()


class Attempt(Workers):
    """One life of a gang under Haibun."""

    def __init__(
        self,
        folder: Path,
        epoch: int,
        world: int,
        arguments: list[str],
        *,
        script: Path = SCRIPT,
        **environ: str,
    ) -> None:
        self.board = Board.create(folder / f"board.{epoch}", world, epoch)
        haibun = {
            "HAIBUN_BOARD": str(self.board.path),
            "HAIBUN_JOB": "1",
            "HAIBUN_EPOCH": str(epoch),
            "HAIBUN_CHECKPOINTS": str(folder / "checkpoints"),
            "HAIBUN_CHECKPOINT_EVERY": "0",
        }
        super().__init__(folder / f"log.{epoch}", world, arguments, script=script, **(haibun | environ))

    @property
    def slots(self) -> list[Slot]:
        return self.board.slots

    def until(self, condition: Callable[[Slot], bool], what: str) -> None:
        """Wait for a condition to hold for all slots; a worker that fails meanwhile fails the test."""

        def holds() -> bool:
            if any(p.exitcode for p in self.processes):
                raise AssertionError(f"a worker failed: {self.log.read_text()}")
            return all(condition(s) for s in self.slots)

        until(holds, what)

    def ask(self, command: Command) -> None:
        """Post a command and wait until all ranks have carried it out."""
        seq = self.board.ask(command)
        self.until(lambda s: s.done_seq >= seq, command.name)

    def phases(self) -> list[Phase]:
        return [Phase(s.phase) for s in self.slots]


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
