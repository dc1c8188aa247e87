"""A PostgreSQL of our own: made by ``initdb`` in a directory, on a free port, ended by the test.

The one place that decides what happens without the server programs: a laptop skips, ``CI=true`` fails.
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg

import peers

__all__ = ["PostgresServer", "postgres_programs", "require_postgres"]

_FAST = {"fsync": "off", "full_page_writes": "off"}


def postgres_programs() -> Path | None:
    """The directory of ``initdb`` and ``pg_ctl``: on PATH, or where Debian keeps them."""
    found = shutil.which("initdb")
    if found:
        return Path(found).resolve().parent
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: path.parts[4]
    )
    return versions[-1].parent if versions else None


def require_postgres() -> Path:
    """The same, skipping or failing the test when there is none."""
    programs = postgres_programs()
    if programs is None:
        peers.missing_peer("PostgreSQL", "run scripts/install-postgres")
    return programs


def _as_user() -> list[str]:
    """The server refuses to run as root; the packages made a user for it."""
    if os.geteuid() != 0:
        return []
    pwd.getpwnam("postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


class PostgresServer:
    """A cluster in a directory of its own; ``start``, ``stop`` and ``kill`` as often as wanted.

    The directory is not one of pytest's: its user must be able to reach it. ``remove`` deletes it.
    ``durable`` keeps PostgreSQL's own defaults about syncing; otherwise it is made fast, which survives
    the end of its processes though not of the machine.
    """

    def __init__(self, *, durable: bool = False, settings: Mapping[str, str] | None = None) -> None:
        self._programs = require_postgres()
        directory = self._directory = Path(tempfile.mkdtemp(prefix="headrace-postgres-"))
        self.port = peers.free_port()
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "max_connections": "100",
            "shared_buffers": "256MB",
            **({} if durable else _FAST),
            **(settings or {}),
        }
        if os.geteuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(directory, user.pw_uid, user.pw_gid)
        self._run(
            "initdb", "-A", "trust", "-U", "postgres", "-E", "UTF8", "--no-sync", "--no-locale"
        )
        with (directory / "data" / "postgresql.conf").open("a") as config:
            config.writelines(f"{name} = '{value}'\n" for name, value in self._settings.items())

    def _run(self, program: str, *arguments: str) -> None:
        command: Sequence[str] = [
            *_as_user(),
            str(self._programs / program),
            "-D",
            str(self._directory / "data"),
            *arguments,
        ]
        done = subprocess.run(
            command, cwd=self._directory, capture_output=True, text=True, timeout=60, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{program} failed:\n{done.stdout}\n{done.stderr}")

    def start(self) -> None:
        """Start and wait until it accepts connections."""
        log = self._directory / "log"
        # pg_ctl's own output must not be a pipe: the server would keep it open.
        command = [
            *_as_user(),
            *(str(self._programs / "pg_ctl"), "-D", str(self._directory / "data")),
            *("-l", str(log), "-w", "-t", "60", "start"),
        ]
        subprocess.run(
            command,
            cwd=self._directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=True,
        )

    def stop(self) -> None:
        """Stop, ending connections."""
        self._run("pg_ctl", "-m", "fast", "-w", "stop")

    def kill(self) -> None:
        """Stop at once, as in a crash: nothing is written down first."""
        self._run("pg_ctl", "-m", "immediate", "-w", "stop")

    def remove(self) -> None:
        """Stop if need be, and delete everything."""
        if (self._directory / "data" / "postmaster.pid").exists():
            self.kill()
        shutil.rmtree(self._directory)

    @property
    def pid(self) -> int:
        """The number of the server's first process, whose children are the others."""
        return int((self._directory / "data" / "postmaster.pid").read_text().split()[0])

    def url(self, database: str = "postgres") -> str:
        """The address of one of its databases."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, database: str, *, template: str = "template1") -> str:
        """Make a database as a copy of ``template``; its address."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{database}" TEMPLATE "{template}"'.encode())
        return self.url(database)

    def drop(self, database: str) -> None:
        """Remove a database, ending its connections."""
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(f'DROP DATABASE IF EXISTS "{database}" WITH (FORCE)'.encode())
