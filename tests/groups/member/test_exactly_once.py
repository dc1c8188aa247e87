"""Prepare, acknowledge, commit: with a transaction that takes notes, and with processes that die."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from headrace.client import JetStream, connect
from headrace.errors import RequestTimeoutError
from headrace.groups import GroupConfigurationError, NotOwnedError, PartitioningFilter, elastic
from headrace.groups.exactly_once import exactly_once, was_acknowledged
from member_world import GROUP, STREAM, World
from peers import ServerProcess
from waiting import until

BANK = Path(__file__).with_name("recoverable_bank.py")


class Message:
    """Answers to ``ack_sync`` as told."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)

    async def ack_sync(self, timeout: float | None = None) -> None:
        notes.append("ack")
        if (answer := self.answers.pop(0)) is not None:
            raise answer


class Notes:
    """A transaction whose steps fail as told."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    async def prepare(self) -> None:
        self._note("prepare")

    def commit(self) -> None:
        self._note("commit")

    def rollback(self) -> None:
        self._note("rollback")

    def _note(self, what: str) -> None:
        notes.append(what)
        if what == self.fails:
            raise RuntimeError(what)


notes: list[str] = []
LOST = NotOwnedError("lost")
DOUBT = NotOwnedError("lost", in_doubt=True)


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        ([None], ["prepare", "ack", "commit"]),
        ([LOST], ["prepare", "ack", "rollback"]),
        ([DOUBT], ["prepare", "ack"]),  # it may be acknowledged: left as it is
        ([RequestTimeoutError("silent")], ["prepare", "ack"]),
    ],
)
async def test_it_takes_effect_with_the_confirmation_only(
    answers: list[Any], expected: list[str]
) -> None:
    notes.clear()
    message: Any = Message(*answers)
    try:
        async with exactly_once(message, Notes(), recoverable=True):
            pass
    except (NotOwnedError, RequestTimeoutError) as error:
        assert error is answers[-1]
    assert notes == expected


async def test_what_would_be_lost_with_the_process_is_refused_before_anything_is_done() -> None:
    notes.clear()
    message: Any = Message()
    given: list[dict[str, Any]] = [{}, {"recoverable": False}, {"recoverable": "yes"}]
    for options in given:
        with pytest.raises(GroupConfigurationError, match=r"Store message\.sequence in the transa"):
            async with exactly_once(message, Notes(), **options):
                notes.append("body")
    assert notes == []


async def test_a_body_or_a_preparation_that_fails_is_rolled_back() -> None:
    notes.clear()
    message: Any = Message()
    with pytest.raises(ZeroDivisionError):
        async with exactly_once(message, Notes(), recoverable=True):
            raise ZeroDivisionError
    with pytest.raises(RuntimeError, match="prepare"):
        async with exactly_once(message, Notes("prepare"), recoverable=True):
            pass
    assert notes == ["rollback", "prepare", "rollback"]


@pytest.mark.peer
async def test_a_message_that_is_gone_was_acknowledged(world: World, js: JetStream) -> None:
    await world.create(members=("a",))
    await world.publish(1)
    work = f"{STREAM}-{GROUP}"

    async def arrived() -> bool:
        return (await (await js.stream(work)).info()).state.messages == 1

    await until(arrived)
    assert not await was_acknowledged(js, work, 1)
    async with world.join("a"):
        await world.until_seen()
    assert await was_acknowledged(js, work, 1)
    consumer = await js.create_consumer(STREAM, durable_name="d", max_ack_pending=1)
    assert not await was_acknowledged(js, STREAM, 1, "d")
    await (await consumer.next()).ack_sync()
    assert await was_acknowledged(js, STREAM, 1, "d")


WORKER = """
import asyncio, importlib.util, os, sys
from pathlib import Path
import headrace

path, url, database, member, die_in, at = sys.argv[1:]
spec = importlib.util.spec_from_file_location("exactly_once_example", path)
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)
left = int(at)

def dying(method):
    def call(self):
        global left
        left -= 1
        if die_in == "prepare":
            method(self)
        if left == 0:
            os._exit(9)
        if die_in != "prepare":
            method(self)
    return call

if die_in:
    setattr(example.Payment, die_in, dying(getattr(example.Payment, die_in)))

async def main():
    bank = example.Bank(Path(database))
    async with headrace.connect(url) as connection:
        done = asyncio.Event()
        js = connection.jetstream()
        task = asyncio.create_task(example.work(js, bank, member, done))
        work = await js.stream("PAYMENTS-books")
        while (await work.info()).state.messages:
            await asyncio.sleep(0.02)
        done.set()
        await task

asyncio.run(main())
"""


async def test_processes_that_die_between_preparing_and_booking_book_each_payment_once(
    headrace_server: Any, tmp_path: Path
) -> None:
    server: ServerProcess = headrace_server()
    database = tmp_path / "bank.db"
    async with connect(server.url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="PAYMENTS", subjects=["pay.*"])
        await elastic.create(
            js,
            "PAYMENTS",
            "books",
            4,
            partitioning_filters=[PartitioningFilter("pay.*", (1,))],
            members=["a"],
        )
        for number in range(30):
            await js.publish(f"pay.account-{number % 5}", b"%d" % number)

    def run(die_in: str, at: int) -> int:
        arguments = [BANK, server.url, database, "a", die_in, at]
        command = [sys.executable, "-c", WORKER, *map(str, arguments)]
        return subprocess.run(command, timeout=60, check=False).returncode

    assert run("prepare", 7) == 9  # prepared, not acknowledged
    assert run("commit", 7) == 9  # acknowledged, not booked
    bank = sqlite3.connect(database)
    assert bank.execute("SELECT count(*) FROM prepared").fetchone() == (1,)
    assert bank.execute("SELECT count(*) FROM booked").fetchone() == (12,)
    assert run("", 0) == 0
    rows = bank.execute("SELECT amount FROM booked").fetchall()
    assert sorted(amount for (amount,) in rows) == list(range(30))
    assert bank.execute("SELECT count(*) FROM prepared").fetchone() == (0,)
    bank.close()
