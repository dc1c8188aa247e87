"""Which inboxes are kept for the next fetch, and which are not."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from headrace.client import Connection, Consumer, JetStream, Stream
from headrace.client.net.routes import IDLE_MAX
from headrace.errors import PullError

pytestmark = [pytest.mark.peer, pytest.mark.usefixtures("no_leaks")]


class Inboxes:
    """What the connection has subscribed to for fetches."""

    def __init__(self, connection: Connection) -> None:
        self._session = connection._session
        self._before = self.routes
        self._made_before = self.all

    @property
    def routes(self) -> int:
        return len(self._session.routes.by_sid)

    @property
    def all(self) -> int:
        return self._session.routes._last

    @property
    def made(self) -> int:
        return self.all - self._made_before

    @property
    def open(self) -> int:
        return self.routes - self._before

    @property
    def idle(self) -> int:
        return len(self._session.inboxes)


@pytest.fixture
async def consumer(js: JetStream, stream: Stream) -> Consumer:
    async with js.publisher() as publisher:
        await publisher.send_many((f"{stream.name}.a", b"x" * 10) for _ in range(100))
    return await stream.create_consumer(durable_name="c")


async def test_fetches_one_after_the_other_share_an_inbox(
    connection: Connection, consumer: Consumer
) -> None:
    inboxes = Inboxes(connection)
    taken = [await consumer.next() for _ in range(10)]
    assert len(await consumer.fetch(20)) == 20
    assert [message.metadata.stream_seq for message in taken] == list(range(1, 11))
    assert (inboxes.made, inboxes.open, inboxes.idle) == (1, 1, 1)


async def test_fetches_at_the_same_time_have_inboxes_of_their_own(
    connection: Connection, consumer: Consumer
) -> None:
    inboxes = Inboxes(connection)
    for _ in range(2):
        batches = await asyncio.gather(*[consumer.fetch(2) for _ in range(IDLE_MAX + 3)])
        seen = [message.metadata.stream_seq for batch in batches for message in batch]
        assert len(set(seen)) == 2 * (IDLE_MAX + 3)
    assert inboxes.made == IDLE_MAX + 3 + 3
    assert inboxes.open == inboxes.idle == IDLE_MAX


async def test_an_inbox_is_kept_after_the_last_word_of_the_server(
    connection: Connection, consumer: Consumer
) -> None:
    inboxes = Inboxes(connection)
    assert len(await consumer.fetch(1_000, eager=True)) == 100
    assert not await consumer.fetch(1, no_wait=True)
    assert not await consumer.fetch(1, max_wait=0.1)
    assert (inboxes.made, inboxes.idle) == (1, 1)


async def test_an_inbox_is_not_kept_when_the_server_may_think_otherwise(
    connection: Connection, consumer: Consumer, stream: Stream
) -> None:
    inboxes = Inboxes(connection)
    assert len(await consumer.fetch_bytes(300)) > 0
    single = await stream.create_consumer(durable_name="single", max_batch=2)
    with pytest.raises(PullError):
        await single.fetch(3)
    assert (inboxes.open, inboxes.idle) == (0, 0)


async def test_an_inbox_is_not_kept_when_the_fetch_is_cancelled(
    connection: Connection, stream: Stream, js: JetStream
) -> None:
    consumer = await stream.create_consumer(durable_name="c")
    inboxes = Inboxes(connection)
    fetching = asyncio.create_task(consumer.fetch(10, max_wait=5))
    await connection.flush()
    fetching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await fetching
    await connection.flush()
    await js.publish(f"{stream.name}.a", b"for the next")
    assert (await consumer.next(2)).payload == b"for the next"
    assert (inboxes.made, inboxes.open, inboxes.idle) == (2, 1, 1)


async def test_inboxes_are_forgotten_with_the_connection_to_a_server(
    connection: Connection, consumer: Consumer
) -> None:
    inboxes = Inboxes(connection)
    await consumer.next()
    fetching = asyncio.create_task(consumer.fetch(1_000, max_wait=2))
    await asyncio.sleep(0)
    link = connection._session.link
    assert link is not None
    link.abort(ConnectionResetError())
    await fetching
    assert inboxes.idle == 0
    await consumer.fetch(1, no_wait=True)
    assert (inboxes.open, inboxes.idle) == (1, 1)


async def test_what_comes_to_an_idle_inbox_is_sent_back(
    connection: Connection, consumer: Consumer
) -> None:
    await consumer.next()
    back = await connection.subscribe("back")
    inbox = connection._session.inboxes._idle[0].subject.decode()
    await connection.publish(inbox, b"stray", reply="back")
    await connection.publish(inbox, b"no reply")
    assert (await back.next(2)).payload == b"-NAK"
    assert (await consumer.next()).metadata.stream_seq == 2
