from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.errors import ConfigurationError
from headrace.worker import Done
from waiting import until_here

WORK = "CREATE TABLE IF NOT EXISTS work (what TEXT)"


class About:
    """What is read of a message's metadata."""

    def __init__(self, sequence: int, stored_ns: int) -> None:
        self.stream, self.stream_seq, self.timestamp_ns = "ORDERS", sequence, stored_ns


class Message:
    def __init__(self, sequence: int, stored_ns: int = 5) -> None:
        self.metadata = About(sequence, stored_ns)


@pytest.fixture(params=["sqlite", "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    if request.param == "sqlite":
        connection: Any = sqlite3.connect(tmp_path / "shop.db")
    else:
        connection = psycopg.connect(request.getfixturevalue("postgres"))
    done = Done("billing")
    with connection if request.param == "sqlite" else connection.transaction():
        done.create(connection)
        done.create(connection)  # again: it is there
        connection.execute(WORK)
        connection.execute("DELETE FROM work")
        connection.execute("DELETE FROM headrace_done")
    yield connection
    connection.close()


def transaction(database: Any) -> AbstractContextManager[object]:
    found: AbstractContextManager[object] = (
        database if isinstance(database, sqlite3.Connection) else database.transaction()
    )
    return found


def worked(database: Any) -> int:
    (count,) = database.execute("SELECT count(*) FROM work").fetchone()
    return int(count)


def handle(database: Any, done: Done, message: Any, error: Exception | None = None) -> bool:
    with transaction(database):
        is_new = done.first_time(database, message)
        if is_new:
            database.execute("INSERT INTO work VALUES ('done')")
        if error is not None:
            raise error
        return is_new


def test_the_work_of_a_message_that_comes_again_is_done_once(database: Any) -> None:
    done = Done("billing")
    assert handle(database, done, Message(1))
    assert not handle(database, done, Message(1))
    assert handle(database, done, Message(2))
    assert worked(database) == 2


def test_what_is_undone_with_its_transaction_is_yet_to_be_done(database: Any) -> None:
    done = Done("billing")
    with pytest.raises(ValueError, match="no"):
        handle(database, done, Message(1), ValueError("no"))
    assert worked(database) == 0
    assert handle(database, done, Message(1))
    assert worked(database) == 1


def test_each_consumer_and_each_life_of_a_stream_has_its_own(database: Any) -> None:
    assert handle(database, Done("billing"), Message(1))
    assert handle(database, Done("mail"), Message(1))
    assert handle(database, Done("billing"), Message(1, stored_ns=6))
    assert not handle(database, Done("billing"), Message(1, stored_ns=6))


def test_what_cannot_come_again_is_forgotten(database: Any) -> None:
    done = Done("billing")
    for number in range(4):
        handle(database, done, Message(number, stored_ns=number))
    with transaction(database):
        assert done.forget(database, before_ns=2) == 2
    assert handle(database, done, Message(1, stored_ns=1))
    assert not handle(database, done, Message(2, stored_ns=2))


def test_of_two_at_the_same_time_one_waits_and_does_nothing(postgres: str) -> None:
    done, results = Done("race"), list[bool]()
    with psycopg.connect(postgres) as one:
        with one.transaction():
            done.create(one)
            one.execute(WORK)
        with one.transaction():
            results.append(done.first_time(one, Message(1)))  # type: ignore[arg-type]
            other = threading.Thread(target=lambda: results.append(_elsewhere(postgres, done)))
            other.start()
            _until_it_waits(postgres)
            assert results == [True]
        other.join(10)
    assert results == [True, False]


def _elsewhere(url: str, done: Done) -> bool:
    with psycopg.connect(url) as two, two.transaction():
        return done.first_time(two, Message(1))  # type: ignore[arg-type]


def _until_it_waits(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as look:
        until_here(
            lambda: (
                look.execute("SELECT count(*) FROM pg_locks WHERE NOT granted").fetchone() or [0]
            )[0]
        )


async def test_asynchronous_connections_do_the_same(postgres: str) -> None:
    done = Done("async", table="public.done_async")
    async with await psycopg.AsyncConnection.connect(postgres) as database:
        async with database.transaction():
            await done.create_async(database)
        for expected in (True, False):
            async with database.transaction():
                assert await done.first_time_async(database, Message(1)) is expected  # type: ignore[arg-type]


@pytest.mark.parametrize("table", ["", "a b", "x; DROP TABLE y", "Upper", 5, "a.b.c"])
def test_a_name_that_is_none_is_refused(table: Any) -> None:
    with pytest.raises(ConfigurationError, match="small letters"):
        Done("c", table=table)


def test_what_was_done_holds_under_the_new_name_of_a_stream(database: Any) -> None:
    done, other = Done("billing"), Done("audit")
    message: Any = Message(1)
    with transaction(database):
        assert all(each.first_time(database, message) for each in (done, other))
        message.metadata.stream_seq = 2
        assert done.first_time(database, message)
    moved: Any = Message(1)
    moved.metadata.stream = "SALES"
    with transaction(database):
        assert done.renamed(database, "ORDERS", "SALES") == 2
    with transaction(database):
        assert not done.first_time(database, moved)
        assert other.first_time(database, moved), "whose notes are not of this consumer"
