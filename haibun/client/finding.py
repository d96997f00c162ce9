"""Where the server is, and the token that it wants."""

from __future__ import annotations

import json
import os
from pathlib import Path

from haibun.client.errors import Unauthorised, not_running


def home_folder(home: str | Path | None = None) -> Path:
    """Where a server keeps what it has: the argument, else HAIBUN_HOME, else ~/.haibun."""
    return Path(home or os.environ.get("HAIBUN_HOME") or Path.home() / ".haibun").expanduser()


def find_server(
    url: str | None = None, token: str | None = None, home: str | Path | None = None
) -> tuple[str, str]:
    """URL and token: the arguments, else HAIBUN_URL and HAIBUN_TOKEN, else what lies in the home.

    Raises:
        ServerNotRunning: none of these says where a server is.
        Unauthorised: there is no token to be found.
    """
    folder = home_folder(home)
    url = url or os.environ.get("HAIBUN_URL")
    pid: int | None = None
    token = token or os.environ.get("HAIBUN_TOKEN")
    if url is None:
        try:
            found = json.loads((folder / "server.json").read_text())
            url = str(found["url"])
            pid = _living(found.get("pid"))
        except (OSError, ValueError, TypeError, KeyError):
            raise not_running(f"no server is up for {folder}") from None
    if token is None:
        try:
            token = (folder / "token").read_text().strip()
        except OSError as e:
            message = f"no token at {folder / 'token'}: {e.strerror}"
            hint = "set HAIBUN_TOKEN, or HAIBUN_HOME to the home folder of the server"
            if pid is not None:
                message += f"; the server is process {pid}"
                hint = (
                    f"'kill -TERM {pid}' saves its jobs and ends it; the next 'haibun up' makes a new token"
                )
            raise Unauthorised(message, hint, "unauthorised") from None
    return url.rstrip("/"), token


def _living(pid: object) -> int | None:
    """The process id, if it is one of a process that runs."""
    if not isinstance(pid, int) or pid <= 0:
        return None
    try:
        os.kill(pid, 0)
    except PermissionError:  # another user's: it lives
        return pid
    except (OSError, OverflowError):
        return None
    return pid
