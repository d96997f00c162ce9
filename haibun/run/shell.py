"""The client's side of a terminal: connects this terminal to a shell that the agent opens."""

from __future__ import annotations

import os
import selectors
import signal
import socket
import struct
import sys
import termios
import tty
from pathlib import Path
from types import FrameType

import msgspec

from haibun.run.terminal import HEAD, Ask, frame, window


class ShellError(Exception):
    """There is no shell to be had."""


def attach(path: Path, ask: Ask, stdin: int | None = None, stdout: int | None = None) -> int:
    """Run a shell through the agent's socket at ``path`` on this terminal; returns its exit code.

    Raises:
        ShellError: no agent listens there, or it cannot start the shell.
    """
    stdin = sys.stdin.fileno() if stdin is None else stdin
    stdout = sys.stdout.fileno() if stdout is None else stdout
    with socket.socket(socket.AF_UNIX) as sock:
        try:
            sock.connect(str(path))
        except OSError as e:
            raise ShellError(f"no agent listens at {path}: {e.strerror}") from e
        terminal = os.isatty(stdin)
        if terminal:
            size = os.get_terminal_size(stdin)
            ask = msgspec.structs.replace(ask, rows=size.lines, columns=size.columns)
        sock.sendall(msgspec.json.encode(ask) + b"\n")
        before = termios.tcgetattr(stdin) if terminal else None

        def resized(number: int, at: FrameType | None) -> None:
            now = os.get_terminal_size(stdin)
            sock.sendall(window(now.lines, now.columns))

        if terminal:
            tty.setraw(stdin)
            old = signal.signal(signal.SIGWINCH, resized)
        try:
            return _relay(sock, stdin, stdout)
        finally:
            if before is not None:
                signal.signal(signal.SIGWINCH, old)
                termios.tcsetattr(stdin, termios.TCSADRAIN, before)


def _relay(sock: socket.socket, stdin: int, stdout: int) -> int:
    buffer = b""
    with selectors.PollSelector() as selector:  # epoll refuses files and /dev/null as stdin
        selector.register(sock, selectors.EVENT_READ)
        selector.register(stdin, selectors.EVENT_READ)
        while True:
            ready = {key.fd for key, _ in selector.select()}
            if stdin in ready:
                typed = os.read(stdin, 1 << 16)
                if typed:
                    sock.sendall(frame(b"d", typed))
                else:  # the end of a pipe: what Ctrl-D is to a terminal
                    selector.unregister(stdin)
                    sock.sendall(frame(b"d", b"\x04"))
            if sock.fileno() in ready:
                data = sock.recv(1 << 16)
                if not data:
                    raise ShellError("the agent closed the connection")
                buffer, code = _take(buffer + data, stdout)
                if code is not None:
                    return code


def _take(buffer: bytes, stdout: int) -> tuple[bytes, int | None]:
    """Act on all whole frames; returns what is left, and the exit code once it came."""
    while len(buffer) >= HEAD.size:
        letter, size = HEAD.unpack_from(buffer)
        if len(buffer) < HEAD.size + size:
            break
        body, buffer = buffer[HEAD.size : HEAD.size + size], buffer[HEAD.size + size :]
        if letter == b"d":
            while body:
                body = body[os.write(stdout, body) :]
        elif letter == b"e":
            raise ShellError(body.decode(errors="replace"))
        elif letter == b"x":
            code: int = struct.unpack("<i", body)[0]
            return buffer, code if code >= 0 else 128 - code
    return buffer, None
