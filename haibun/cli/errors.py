"""Errors to words: what went wrong, what to do; never a traceback. HAIBUN_DEBUG=1 shows one after all."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

INTERRUPTED = 130  # as shells have it: 128 + SIGINT
MOST_FIELDS = 20  # places that one JSON error lists; the message says how many there are
INTERNAL = 70  # EX_SOFTWARE of sysexits.h

# Errors whose text is made for people, by module: those that were never imported were never raised.
_EXPECTED = {
    "haibun.app": ("UnknownPolicyError",),
    "haibun.client.errors": ("ClientError",),
    "haibun.core.admission": ("AdmissionError",),
    "haibun.demo.errors": ("DemoError",),
    "haibun.profile.gavel": ("ThroughputFileError",),
    "haibun.profile.throughput": ("UnknownProfileError",),
    "haibun.run.shell": ("ShellError",),
    "haibun.server.up": ("UpError",),
    "haibun.simulate.inputs": ("InputError",),
    "haibun.spec.params": ("ParamError",),
    "haibun.spec.problems": ("SpecError",),
    "haibun.spec.units": ("UnitError",),
    "haibun.store.errors": ("StoreError",),
    "haibun.trace.problems": ("TraceError",),
    "haibun.twin.replay": ("ReplayError",),
}


class Failure(Exception):  # noqa: N818
    """An expected error of a command: ``message``, what to do (``hint``), and the exit code."""

    def __init__(self, message: str, hint: str = "", code: int = 1) -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code


def report(error: BaseException, as_json: bool, usage: bool = False) -> int:
    """Tell of an error on stderr. Returns the exit code: 1; usage: 2; Ctrl-C: 130; a fault of ours: 70."""
    _silence_broken_pipe(error)
    if isinstance(error, BrokenPipeError):
        return 1
    if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "Abort":
        told, code = {"message": "interrupted"}, INTERRUPTED
    elif usage:
        told, code = _usage(error), 2
    else:
        told, code = _expected(error)
    if os.environ.get("HAIBUN_DEBUG") == "1":
        traceback.print_exception(error, file=sys.stderr)
    if as_json:
        import msgspec

        sys.stderr.write(msgspec.json.encode({"error": told}).decode() + "\n")
    else:
        _say(told)
    return code


def _say(told: dict[str, Any]) -> None:
    red, plain = ("\x1b[31m", "\x1b[0m") if sys.stderr.isatty() and "NO_COLOR" not in os.environ else ("", "")
    sys.stderr.write(f"{red}error:{plain} {told['message']}\n")
    if told.get("hint"):
        sys.stderr.write(f"hint: {told['hint']}\n")


def _usage(error: Any) -> dict[str, Any]:
    path = error.ctx.command_path if getattr(error, "ctx", None) is not None else "haibun"
    return {"message": error.format_message(), "hint": f"'{path} --help' tells more", "code": "usage"}


def _expected(error: BaseException) -> tuple[dict[str, Any], int]:
    if isinstance(error, Failure):
        return {"message": error.message, "hint": error.hint}, error.code
    for module, names in _EXPECTED.items():
        loaded = sys.modules.get(module)
        for name in names:
            if loaded is not None and isinstance(error, getattr(loaded, name, ())):
                return _told(error), 1
    if isinstance(error, TimeoutError) and str(error):
        return {"message": str(error)}, 1
    if isinstance(error, OSError) and error.strerror:
        where = f"{error.filename}: " if error.filename else ""
        return {"message": f"{where}{error.strerror}"}, 1
    return _internal(error), INTERNAL


def _told(error: BaseException) -> dict[str, Any]:
    told: dict[str, Any] = {"message": str(getattr(error, "message", "") or error)}
    for name in ("hint", "code"):
        if getattr(error, name, ""):
            told[name] = getattr(error, name)
    places = getattr(error, "fields", None) or getattr(error, "problems", None)
    if places:
        told["fields"] = [
            {
                k: v
                for k in ("file", "line", "column", "field", "message", "reason", "hint")
                if (v := getattr(p, k, None))
            }
            for p in places[:MOST_FIELDS]
        ]
    return told


def _internal(error: BaseException) -> dict[str, Any]:
    """A fault of ours: its traceback goes to a file, and the message says which."""
    log = Path(os.environ.get("HAIBUN_HOME") or Path.home() / ".haibun").expanduser() / "errors.log"
    told = {"message": f"internal error: {type(error).__name__}: {error}", "code": "internal"}
    text = "".join(traceback.format_exception(error))
    with contextlib.suppress(OSError):
        log.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with open(log, "a", encoding="utf-8") as f:
            f.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {' '.join(sys.argv)}\n{text}\n")
        told["hint"] = f"this is a fault of Haibun's; {log} has the details"
        return told
    told["hint"] = "this is a fault of Haibun's; HAIBUN_DEBUG=1 shows where"
    return told


def _silence_broken_pipe(error: BaseException) -> None:
    """Our reader has gone (``haibun ls | head``): the interpreter must not complain of that at its end."""
    if isinstance(error, BrokenPipeError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
