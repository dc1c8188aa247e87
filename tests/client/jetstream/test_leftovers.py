"""A stream that is made anew, and has messages of a deleted one: nats-server does that, and it is told."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import leftovers
import peers
from headrace import StreamLeftoversError, connect
from headrace.api.streams import StreamConfig, StreamInfo, StreamSource, StreamStateInfo
from headrace.client import JetStream
from headrace.client.events import ErrorEvent, Event
from headrace.client.jetstream import streams
from headrace.client.jetstream.streams import leftovers_in
from headrace.client.seam import create_empty_stream

BEFORE, MADE, SOON, LATE = (f"2026-11-29T01:00:{second:02}Z" for second in (1, 2, 3, 59))
WAITED_NS = 5_000_000_000
X = StreamConfig(name="X", subjects=("x",))


def made(
    last: str, *, asked: str = MADE, messages: int = 5, config: StreamConfig = X
) -> StreamInfo:
    state = StreamStateInfo(messages=messages, first_seq=1, last_seq=5, last_ts=last)
    return StreamInfo(config=config, created=MADE, ts=asked, state=state)


def test_messages_older_than_a_stream_that_was_just_made_are_leftovers() -> None:
    left = leftovers_in(made(BEFORE), WAITED_NS)
    assert left is not None
    assert (left.stream, left.messages, left.first_seq, left.last_seq) == ("X", 5, 1, 5)
    assert "5, sequences 1 to 5. Unless a backup was restored" in str(left)


@pytest.mark.parametrize(
    "info",
    [
        made(BEFORE, messages=0),
        made(SOON),
        made(MADE),
        made(BEFORE, asked=LATE),
        made(BEFORE, config=StreamConfig(name="X", mirror=StreamSource(name="O"))),
        made(BEFORE, asked=""),
    ],
    ids=["none", "published since", "at once", "there before", "a mirror", "an older server"],
)
def test_others_are_not(info: StreamInfo) -> None:
    assert leftovers_in(info, WAITED_NS) is None


async def test_a_restored_stream_is_as_old_as_it_is(js: JetStream, tmp_path: Path) -> None:
    """Its messages are older."""
    told: list[Event] = []
    config = StreamConfig(name="RESTORED", subjects=("restored",))
    async with connect(js.connection.server, on_event=told.append) as connection:
        js = connection.jetstream()
        stream = await js.create_stream(config)
        for _ in range(5):
            await js.publish("restored", b"x")
        await stream.backup(tmp_path / "backup")
        await stream.delete()
        await js.restore_stream(tmp_path / "backup")
        stream = await js.create_stream(config)
        assert stream.cached_info is not None and stream.cached_info.state.messages == 5
        await stream.delete()
    assert not [each for each in told if isinstance(each, ErrorEvent)]


class Leaving:
    """A nats-server that cannot remove the files of a deleted X, until it is let."""

    def __init__(self, js: JetStream, store: Path, told: list[Event]) -> None:
        self.js = js
        self.told = told
        self._store = store
        self._obstacle = store

    async def leave_five(self) -> None:
        stream = await self.js.create_stream(X)
        for _ in range(5):
            await self.js.publish("x", b"old")
        self._obstacle = leftovers.obstruct(self._store, "X")
        await stream.delete()

    def let(self) -> None:
        shutil.rmtree(self._obstacle)


@contextmanager
def closing_server(directory: Path) -> Iterator[peers.ServerProcess]:
    server = peers.start_nats_server(directory)
    try:
        yield server
    finally:
        server.stop()


@pytest.fixture
async def leaving(tmp_path: Path) -> AsyncIterator[Leaving]:
    told: list[Event] = []
    with closing_server(tmp_path) as server:
        async with connect(server.url, on_event=told.append) as connection:
            yield Leaving(connection.jetstream(), tmp_path / "store", told)


@pytest.mark.peer
async def test_the_old_messages_in_a_new_stream_are_an_event(leaving: Leaving) -> None:
    await leaving.leave_five()
    stream = await leaving.js.create_stream(X)
    assert (await stream.info()).state.messages == 5, "nats-server has left them"
    (event,) = [each for each in leaving.told if isinstance(each, ErrorEvent)]
    assert isinstance(event.error, StreamLeftoversError)
    await stream.purge(below=event.error.last_seq + 1)
    assert (await leaving.js.publish("x", b"new")).seq == 6
    await leaving.js.create_stream(X)
    assert len([each for each in leaving.told if isinstance(each, ErrorEvent)]) == 1


@pytest.mark.peer
async def test_a_stream_that_is_to_be_empty_is_made_again(leaving: Leaving) -> None:
    await leaving.leave_five()
    leaving.let()
    await create_empty_stream(leaving.js, X)
    state = (await (await leaving.js.stream("X")).info()).state
    assert (state.messages, state.last_seq) == (0, 0)
    assert not [each for each in leaving.told if isinstance(each, ErrorEvent)]


@pytest.mark.peer
async def test_who_is_interrupted_leaves_none_with_them(
    leaving: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LEFTOVER_WAITS_S", (0.0, 3600.0))
    await leaving.leave_five()
    making = asyncio.ensure_future(create_empty_stream(leaving.js, X))
    deleted = await leaving.js.connection.subscribe("$JS.EVENT.ADVISORY.STREAM.DELETED.X")
    await deleted.next(timeout=10)
    making.cancel()
    with pytest.raises(asyncio.CancelledError):
        await making
    assert [name async for name in leaving.js.stream_names()] == []


@pytest.mark.peer
async def test_where_they_come_back_each_time_it_says_so(
    leaving: Leaving, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "LEFTOVER_WAITS_S", (0.0, 0.0))
    await leaving.leave_five()
    with pytest.raises(StreamLeftoversError, match="older than it is: 5, sequences 1 to 5"):
        await create_empty_stream(leaving.js, X)
    assert [name async for name in leaving.js.stream_names()] == []
