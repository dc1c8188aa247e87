"""A member deletes its consumer when the work queue is without what was acknowledged, not before."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace import Broker
from headrace.api.consumers import ConsumerConfig
from headrace.client.jetstream.consumer import Consumer
from headrace.errors import ConnectionClosedError, NoRespondersError, RequestTimeoutError
from headrace.groups import GroupMessage, elastic
from headrace.groups.member.consumer import consuming
from headrace.groups.member.consumer.consuming import until_removed
from member_world import GROUP, STREAM, World
from waiting import until

STORED = b'{"message":{"subject":"0.s","seq":7,"data":"eA==","time":"2026-01-01T00:00:00Z"}}'
GONE = b'{"error":{"code":404,"err_code":10037,"description":"no message found"}}'
FAILED = b'{"error":{"code":503,"err_code":10008,"description":"temporarily unavailable"}}'


class Stream:
    """Answers what it is asked as told, and then always the same."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, bytes]] = []
        self.connection = self
        self._api = SimpleNamespace(subject=lambda *tokens: ".".join(tokens))

    async def request(self, subject: str, body: bytes, timeout: float) -> Any:
        assert timeout > 0
        self.asked.append((subject, body))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(payload=answer)


async def removed(stream: Any, seconds: float = 5.0, goes_on: Any = lambda: True) -> bool:
    return await until_removed(stream, "S", 7, seconds, goes_on)


async def test_it_asks_until_the_message_is_gone() -> None:
    stream = Stream(
        STORED, NoRespondersError("no leader"), FAILED, RequestTimeoutError("lost"), GONE
    )
    assert await removed(stream)
    assert stream.asked == 5 * [("STREAM.MSG.GET.S", b'{"seq":7}')]


async def test_it_asks_no_longer_than_it_may() -> None:
    assert not await removed(Stream(STORED), seconds=0.05)


async def test_it_asks_no_more_when_there_is_no_reason_to() -> None:
    stream = Stream(STORED)
    assert not await removed(stream, goes_on=lambda: len(stream.asked) < 2)
    assert len(stream.asked) == 2


async def test_a_connection_that_is_closed_is_not_asked_again() -> None:
    with pytest.raises(ConnectionClosedError):
        await removed(Stream(ConnectionClosedError("closed")))


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with Broker(store_dir=tmp_path / "broker") as broker, broker.connect() as connection:
        yield World(connection.jetstream())


@pytest.mark.parametrize(
    ("answer", "concurrency", "is_asked"),
    [("ack", 1, True), ("ack", 3, True), ("term", 1, True), ("nak", 1, False)],
)
async def test_a_planned_change_asks_for_what_was_acknowledged_last(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
    concurrency: int,
    is_asked: bool,
) -> None:
    """Then it deletes the consumer; of what was sent back there is nothing to be waited for."""
    done: list[Any] = []
    answered: list[int] = []
    is_handled = asyncio.Event()
    delete = Consumer.delete

    async def asking(*args: Any) -> bool:
        done.append(args[2])
        return await until_removed(*args)

    async def deleting(consumer: Consumer) -> None:
        done.append("deleted")
        await delete(consumer)

    monkeypatch.setattr(consuming, "until_removed", asking)
    monkeypatch.setattr(Consumer, "delete", deleting)

    async def handle(message: GroupMessage) -> None:
        if answer != "nak" or not is_handled.is_set():
            answered.append(message.metadata.stream_seq)
        if answer == "nak":
            message.nak(delay=60)
        else:
            getattr(message, answer)()
        if len(answered) == (1 if answer == "nak" else 8):
            is_handled.set()

    await world.create(members=("a",))
    await world.publish(1 if answer == "nak" else 8)
    config = ConsumerConfig(ack_wait=5.0, max_ack_pending=4)
    async with world.join("a", handle, config=config, concurrency=concurrency):
        await is_handled.wait()
        await elastic.add_members(world.js, STREAM, GROUP, ["b"])
        await until(lambda: "deleted" in done, "the consumer was not deleted")
    if is_asked:
        assert done[0] in answered
        assert done[1] == "deleted"
    else:
        assert done[0] == "deleted"
