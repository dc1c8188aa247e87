"""The outbox of ``examples``: its page, what it publishes, and what a relay that dies in between leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest

import guides
import peers
from headrace import DisconnectedUnknownError
from headrace.client import JetStream, Stream
from waiting import until

EXAMPLE = guides.ROOT / "examples" / "outbox.py"

pytestmark = pytest.mark.peer


@pytest.fixture(scope="module")
def outbox() -> Any:
    return guides.load(EXAMPLE)


@pytest.fixture
async def database(postgres: str, outbox: Any) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as database:
        await database.execute(outbox.SCHEMA)
        await database.execute("TRUNCATE outbox")
        yield database


def test_the_page_shows_the_example() -> None:
    (block,) = guides.blocks_of(guides.ROOT / "docs" / "how-to" / "outbox.md")
    assert block.code == EXAMPLE.read_text()


async def test_what_commits_is_published_and_what_is_undone_is_not(
    reference_server: peers.ServerProcess,
    postgres: str,
    outbox: Any,
    js: JetStream,
    capsys: pytest.CaptureFixture[str],
) -> None:
    await outbox.main(postgres, reference_server.url)
    assert capsys.readouterr().out.splitlines() == [
        "undone: nobody orders nothing",
        "published: apples",
        "published: plums",
    ]
    await js.delete_stream("OUTBOX")


class Dying:
    """A JetStream whose connection is lost after so many messages are stored, before the answer comes."""

    def __init__(self, js: JetStream, left: int) -> None:
        self._js, self._left = js, left

    async def publish(self, *arguments: Any, **named: Any) -> None:
        await self._js.publish(*arguments, **named)
        self._left -= 1
        if not self._left:
            raise DisconnectedUnknownError("the connection was lost")


async def test_a_relay_that_dies_before_the_commit_publishes_nothing_twice(
    database: psycopg.AsyncConnection[Any], outbox: Any, js: JetStream, stream: Stream
) -> None:
    name = stream.name
    for number in range(250):
        await outbox.put(database, f"{name}.a", b"%d" % number)
    with pytest.raises(DisconnectedUnknownError):
        await outbox.publish_some(database, Dying(js, 70))
    assert (await stream.info()).state.messages == 70
    assert [await outbox.publish_some(database, js) for _ in range(4)] == [100, 100, 50, 0]
    stored = [await stream.get_message(1 + number) for number in range(250)]
    assert [int(each.payload) for each in stored] == list(range(250))
    assert (await stream.info()).state.messages == 250


async def test_a_relay_goes_on_after_the_server_was_away(
    postgres: str,
    database: psycopg.AsyncConnection[Any],
    outbox: Any,
    js: JetStream,
    stream: Stream,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await outbox.put(database, f"{stream.name}.a", b"1")
    async with await psycopg.AsyncConnection.connect(postgres, autocommit=True) as own:
        relaying = asyncio.create_task(outbox.relay(own, Dying(js, 1)))
        await until(lambda: "the server is away" in caplog.text, within=60)
        await outbox.put(database, f"{stream.name}.a", b"2")

        async def is_empty() -> bool:
            row = await (await database.execute("SELECT count(*) FROM outbox")).fetchone()
            return row == (0,)

        await until(is_empty, within=60)
        relaying.cancel()
        with pytest.raises(asyncio.CancelledError):
            await relaying
    assert (await stream.info()).state.messages == 2
