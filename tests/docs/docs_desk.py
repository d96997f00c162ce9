"""A shell in a page's own folder."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

from docs_pages import ROOT

WITHIN = 150.0  # seconds for one command: on an idle machine none takes five


class Desk:
    """A folder with the examples in it, and commands run there as a newcomer would run them.

    ``home``: that of the server, else ``~/.haibun`` in the folder; ``guest``: the server is another desk's.
    """

    def __init__(self, folder: Path, home: Path | None = None, guest: bool = False) -> None:
        self.folder, self.guest = folder, guest
        shutil.copytree(ROOT / "examples", folder / "examples", dirs_exist_ok=True)
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("HAIBUN_", "PYTEST_"))}
        self.env = kept | {
            "PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}",
            "HOME": str(folder),  # a page that starts a server itself finds its state in ~/.haibun
        }
        if home is not None:
            self.env["HAIBUN_HOME"] = str(home)

    def run(self, command: str) -> tuple[int, str]:
        """The exit code of a shell command, and what it printed on stdout and stderr."""
        done = subprocess.run(
            ["bash", "-c", command],
            cwd=self.folder,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=WITHIN,
            check=False,
        )
        host = socket.gethostname().split(".")[0]
        return done.returncode, done.stdout.replace(host, "myhost") if len(host) > 1 else done.stdout

    def install(self) -> None:
        """What ``pip install -e .`` does to this folder's package, without fetching a build system."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text())["project"]
        told = self.folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
        told.mkdir()
        (told / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        groups = project.get("entry-points", {}).items()
        lines = [
            f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in points.items()) for group, points in groups
        ]
        (told / "entry_points.txt").write_text("".join(lines))
        self.env["PYTHONPATH"] = f"{self.folder}:{self.env.get('PYTHONPATH', '')}"

    def close(self) -> None:
        """End the server of this folder, if the page has left one; nothing of it outlives the test."""
        try:
            if not self.guest and (self._home / "server.json").exists():
                code, said = self.run("haibun down")
                assert code == 0, f"the server does not go down: {said}"
        finally:
            self._kill()

    @property
    def _home(self) -> Path:
        return Path(self.env.get("HAIBUN_HOME", self.folder / ".haibun"))

    def _kill(self) -> None:
        """Processes that bear this folder as their home: a server on its way up, say, and its agents."""
        mark = f"HOME={self.folder}".encode()
        for proc in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if mark in (proc / "environ").read_bytes().split(b"\0") and int(proc.name) != os.getpid():
                    os.kill(int(proc.name), signal.SIGKILL)
