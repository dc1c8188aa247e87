"""The address of the database and its password: none of it has to be among the arguments of a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psycopg
import pytest

import postgres_server
from headrace.cli.jobs.database import has_password, take_database
from headrace.cli.shared.errors import Failure
from waiting import until_here

WITH_PASSWORD = "postgresql://u:sesame@h/d"


def taken(**values: Any) -> tuple[dict[str, Any], list[str]]:
    """What a command gets of what was typed, and what is said of it."""
    whole = {"database": None, "database_file": None, **values}
    said = take_database(whole)
    return whole, said


def test_an_address_comes_from_an_option_a_file_or_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "database"
    file.write_text(f"{WITH_PASSWORD}\n")
    monkeypatch.delenv("HEADRACE_JOBS_DATABASE", raising=False)
    assert taken() == ({"database": None}, [])
    assert taken(database_file=file) == ({"database": WITH_PASSWORD}, [])
    monkeypatch.setenv("HEADRACE_JOBS_DATABASE", "sqlite:///other.db")
    assert taken() == ({"database": "sqlite:///other.db"}, [])
    assert taken(database_file=file) == ({"database": WITH_PASSWORD}, [])
    assert taken(database="sqlite:///d.db") == ({"database": "sqlite:///d.db"}, [])
    with pytest.raises(Failure, match="--database-file goes without --database"):
        taken(database="sqlite:///d.db", database_file=file)
    with pytest.raises(Failure, match=r"--database-file .*: No such file"):
        taken(database_file=tmp_path / "none")


def test_a_password_among_the_arguments_is_taken_with_one_sentence() -> None:
    values, (sentence,) = taken(database=WITH_PASSWORD)
    assert values == {"database": WITH_PASSWORD}
    for word in ("--database-file", "HEADRACE_JOBS_DATABASE", "PGPASSFILE"):
        assert word in sentence
    assert "sesame" not in sentence


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (WITH_PASSWORD, True),
        ("postgresql://h/d?user=u&password=sesame", True),
        ("postgresql://h/d?sslkey=k&sslpassword=sesame", True),
        ("postgresql://u:sesame@[bad/d", True),
        ("postgresql://u@h/d", False),
        ("postgresql://u:@h/d", False),
        ("postgresql:///d?host=/run/postgresql", False),
        ("sqlite:////var/lib/jobs@home.db", False),
        ("", False),
    ],
)
def test_a_password_is_found_wherever_an_address_may_have_it(url: str, *, shown: bool) -> None:
    assert has_password(url) is shown


def guarded(server: postgres_server.PostgresServer) -> str:
    """The address of an empty database whose owner needs the password ``sesame``; without it."""
    address = server.create("guarded").replace("postgres@", "guarded@")
    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute("CREATE ROLE guarded LOGIN PASSWORD 'sesame'")
        connection.execute("ALTER DATABASE guarded OWNER TO guarded")
        ((path,),) = connection.execute("SHOW hba_file").fetchall()
        rules = Path(path).read_text()
        Path(path).write_text(f"host all guarded 127.0.0.1/32 scram-sha-256\n{rules}")
        connection.execute("SELECT pg_reload_conf()")

    def refuses() -> bool:
        try:
            psycopg.connect(address, passfile="/nowhere").close()
        except psycopg.OperationalError:
            return True
        return False

    until_here(refuses, "the server asks for no password")
    return address


def prune(*options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run the command, with these variables of the environment and without others that matter."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return subprocess.run(
        [sys.executable, "-m", "headrace", "jobs", "prune", *options],
        env={**kept, **variables},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_each_way_to_give_a_password_opens_the_database_and_shows_it_nowhere(
    postgres: postgres_server.PostgresServer, tmp_path: Path
) -> None:
    address = guarded(postgres)
    whole = address.replace("guarded@", "guarded:sesame@")
    file, passes = tmp_path / "database", tmp_path / "pgpass"
    file.write_text(whole)
    passes.write_text("127.0.0.1:*:guarded:guarded:sesame\n")
    passes.chmod(0o600)
    try:
        for options, variables in (
            (("--database-file", str(file)), {}),
            ((), {"HEADRACE_JOBS_DATABASE": whole}),
            (("--database", address), {"PGPASSFILE": str(passes)}),
            (("--database", address), {"PGPASSWORD": "sesame"}),
        ):
            done = prune(*options, **variables)
            assert done.returncode == 0, done.stderr
            assert done.stdout.startswith("removed ")
            assert "deprecated" not in done.stderr

        done = prune("--database", whole)
        assert done.returncode == 0, done.stderr
        assert done.stderr.count("deprecated") == 1

        for options in ((), ("--database", address.replace("guarded@", "guarded:wrong@"))):
            done = prune(*options, HEADRACE_JOBS_DATABASE=address)
            assert done.returncode != 0
            assert "cannot be used" in done.stderr
            assert "wrong" not in done.stderr
            assert "Traceback" not in done.stderr
    finally:
        postgres.drop("guarded")
