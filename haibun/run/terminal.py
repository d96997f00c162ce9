"""A terminal in a job's environment: a local socket of the agent, and the client's side of it.

The client sends one line of JSON (``Ask``), then frames; a frame is a letter, a 4-byte length (little endian)
and so many bytes. ``d``: data, both ways; ``w``: the window's rows and columns, 2 bytes each; ``x`` from the
agent: the shell's exit code, 4 bytes, signed, the last frame; ``e`` from the agent: why there is no shell, as
text.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import signal
import struct
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from haibun.run.processes import Process, Request, SpawnError, descendants, signal_all
from haibun.run.warm import Launcher

HEAD = struct.Struct("<cI")
LONGEST = 1 << 20


class Ask(msgspec.Struct, frozen=True):
    """What is wanted: a shell (``argv`` empty: the user's) for ``job``, or in ``cwd`` if it does not run."""

    job: str | None = None
    cwd: str | None = None
    argv: tuple[str, ...] = ()
    env: dict[str, str] = msgspec.field(default_factory=dict)
    rows: int = 24
    columns: int = 80


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shell of a running job belongs."""

    env: dict[str, str]
    cwd: str
    joins: tuple[str, ...]
    cpus: tuple[int, ...]


def frame(letter: bytes, body: bytes) -> bytes:
    """One frame."""
    return HEAD.pack(letter, len(body)) + body


def window(rows: int, columns: int) -> bytes:
    """The frame that tells the size of the window."""
    return frame(b"w", struct.pack("<HH", rows, columns))


async def read_frame(reader: asyncio.StreamReader) -> tuple[bytes, bytes] | None:
    """The next frame; None at the end of the stream, or if it is no frame."""
    try:
        letter, size = HEAD.unpack(await reader.readexactly(HEAD.size))
        return (letter, await reader.readexactly(size)) if size <= LONGEST else None
    except (asyncio.IncompleteReadError, ConnectionError):
        return None


class TerminalService:
    """Listens on ``path``. ``place_of`` finds a running job's place on this node."""

    def __init__(self, path: Path, launcher: Launcher, place_of: Callable[[str], Place | None]) -> None:
        self._path, self._launcher, self._place_of = path, launcher, place_of
        self._server: asyncio.Server | None = None
        self._sessions: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Begin to listen; only this user can connect."""
        self._path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            self._server = await asyncio.start_unix_server(self._accept, self._path)
        finally:
            os.umask(mask)

    async def stop(self) -> None:
        """End all sessions."""
        if self._server is not None:
            self._server.close()
        for session in self._sessions:
            session.cancel()
        await asyncio.gather(*self._sessions, return_exceptions=True)
        self._path.unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._session(reader, writer))
        self._sessions.add(task)
        task.add_done_callback(self._sessions.discard)

    async def _session(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            ask = msgspec.json.decode(await reader.readline(), type=Ask)
            master, process = await self._open(ask)
        except (msgspec.MsgspecError, SpawnError, OSError, ValueError) as e:
            writer.write(frame(b"e", str(e).encode()))
        else:
            try:
                await self._relay(reader, writer, master, process)
            finally:
                os.close(master)
                tree = descendants([process.pid])
                signal_all(tree, signal.SIGHUP)
                signal_all(tree, signal.SIGKILL)
        with contextlib.suppress(ConnectionError):
            await writer.drain()
        writer.close()

    async def _open(self, ask: Ask) -> tuple[int, Process]:
        place = self._place_of(ask.job) if ask.job else None
        if place is None:
            place = Place(dict(os.environ), ask.cwd or os.getcwd(), (), ())
        env = {"TERM": "xterm-256color", **place.env, **ask.env}
        argv = ask.argv or (env.get("SHELL") or "/bin/sh", "-i")
        master, slave = pty.openpty()
        try:
            set_window(master, ask.rows, ask.columns)
            request = Request(argv, env, place.cwd, "", place.joins, place.cpus)
            return master, await self._launcher.launch(request, terminal=slave)
        except BaseException:
            os.close(master)
            raise
        finally:
            os.close(slave)

    async def _relay(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, master: int, process: Process
    ) -> None:
        """Until the shell ends, and all it wrote is sent, or the client goes."""
        os.set_blocking(master, False)
        output = asyncio.create_task(self._send_output(writer, master))
        typed = asyncio.create_task(self._take_input(reader, master))
        try:
            await asyncio.wait((output, typed), return_when=asyncio.FIRST_COMPLETED)
            if output.done():  # the terminal has no user left: the shell has ended, or is about to
                code = await process.exited
                writer.write(frame(b"x", struct.pack("<i", code)))
        finally:
            output.cancel()
            typed.cancel()
            await asyncio.gather(output, typed, return_exceptions=True)

    async def _send_output(self, writer: asyncio.StreamWriter, master: int) -> None:
        while data := await _read(master):
            writer.write(frame(b"d", data))
            await writer.drain()

    async def _take_input(self, reader: asyncio.StreamReader, master: int) -> None:
        while (got := await read_frame(reader)) is not None:
            letter, body = got
            if letter == b"w" and len(body) == 4:
                set_window(master, *struct.unpack("<HH", body))
            while letter == b"d" and body:
                try:
                    body = body[os.write(master, body) :]
                except BlockingIOError:
                    await _ready(master, write=True)
                except OSError:
                    return


def set_window(fd: int, rows: int, columns: int) -> None:
    """Set a terminal's size."""
    fcntl.ioctl(fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


async def _read(master: int) -> bytes:
    """The next output; empty when the last process has let go of the terminal."""
    while True:
        try:
            return os.read(master, 1 << 16)
        except BlockingIOError:
            await _ready(master)
        except OSError:
            return b""


async def _ready(fd: int, write: bool = False) -> None:
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    add, remove = (loop.add_writer, loop.remove_writer) if write else (loop.add_reader, loop.remove_reader)
    add(fd, done.set)
    try:
        await done.wait()
    finally:
        remove(fd)
