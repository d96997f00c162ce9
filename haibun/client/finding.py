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
    token = token or os.environ.get("HAIBUN_TOKEN")
    if url is None:
        try:
            found = json.loads((folder / "server.json").read_text())
            url = str(found["url"])
        except (OSError, ValueError, TypeError, KeyError):
            raise not_running(f"no server is up for {folder}") from None
    if token is None:
        try:
            token = (folder / "token").read_text().strip()
        except OSError as e:
            hint = "set HAIBUN_TOKEN, or HAIBUN_HOME to the home folder of the server"
            raise Unauthorised(
                f"no token at {folder / 'token'}: {e.strerror}", hint, "unauthorised"
            ) from None
    return url.rstrip("/"), token
