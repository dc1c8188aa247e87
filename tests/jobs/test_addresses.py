"""The address of the database and its password: none of it has to be among the arguments of a process."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

import postgres_server
from headrace.cli import main
from headrace.cli.jobs.serving import has_password, take_database
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


Prune = Callable[..., tuple[int, str, str]]


@pytest.fixture
def prune(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    logs_stay_as_they_were: None,
) -> Prune:
    """Run the command, with these variables of the environment and without others that matter: its status,
    and what it says."""

    def run(*options: str, **variables: str) -> tuple[int, str, str]:
        with monkeypatch.context() as environment:
            for name in [name for name in os.environ if name.startswith("PG")]:
                environment.delenv(name)
            for name, value in variables.items():
                environment.setenv(name, value)
            status = main(["jobs", "prune", *options])
        said = capsys.readouterr()
        return status, said.out, said.err

    return run


def test_each_way_to_give_a_password_opens_the_database_and_shows_it_nowhere(
    postgres: postgres_server.PostgresServer, tmp_path: Path, prune: Prune
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
            status, said, errors = prune(*options, **variables)
            assert status == 0, errors
            assert said.startswith("removed ")
            assert "deprecated" not in errors

        status, _, errors = prune("--database", whole)
        assert status == 0, errors
        assert errors.count("deprecated") == 1

        for options in ((), ("--database", address.replace("guarded@", "guarded:wrong@"))):
            status, _, errors = prune(*options, HEADRACE_JOBS_DATABASE=address)
            assert status != 0
            assert "cannot be used" in errors
            assert "wrong" not in errors
            assert "Traceback" not in errors
    finally:
        postgres.drop("guarded")
