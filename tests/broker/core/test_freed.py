"""What has ended is freed at once: the collector passes over old objects so seldom that cycles would stay."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream.consumer.consumer import Consumer
from headrace.broker.core.jetstream.stream.stream import Stream
from headrace.broker.core.jetstream.tick.flush_barrier import STREAMS_PER_COMMIT
from headrace.broker.core.jetstream.tick.removals import DISPOSALS
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.output import Output
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.broker.store import FileStorage
from headrace.broker.store.log.file_log import FileLog
from headrace.broker.store.meta.spare import _Copy, _Home
from jetstream_world import CONNECT, Client, HeldStorage, World

ENDING = (Session, InProcessSession, Output, Stream, Consumer)


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive(kinds: Iterable[type] = ENDING) -> Counter[type]:
    found: Counter[type] = Counter(map(type, gc.get_objects()))
    return Counter({kind: found[kind] for kind in kinds if found[kind]})


def said(world: World, kind: Any, *lines: bytes) -> None:
    session = world.hub.connect(Peer(), kind)
    session.receive(CONNECT % b"false" + b"".join(lines))
    world.tick()
    session.disconnected()
    session.take_output()


LINES: dict[str, tuple[bytes, ...]] = {
    "nothing": (),
    "subscriptions": (b"SUB a 1\r\nSUB b.> q 2\r\n", b"PUB a 1\r\nx\r\n"),
    "thousands of them": tuple(b"SUB a.%d %d\r\n" % (n, n) for n in range(3_000)),
    "what is not understood": (b"SUB a 1\r\nNOISE\r\n",),
    "half a message": (b"PUB a 100\r\nhalf",),
    "requests": (b"SUB _R 1\r\nPUB $JS.API.INFO _R 0\r\n\r\n",),
}


@pytest.mark.parametrize("kind", [Session, InProcessSession])
@pytest.mark.parametrize("name", LINES)
def test_a_session_that_has_ended(kind: type, name: str) -> None:
    world = World()
    before = alive()
    said(world, kind, *LINES[name])
    while world.hub.leaving:
        world.advance(0.001)
    world.tick()
    assert alive() == before


def fetched(client: Client) -> None:
    [message] = client.pull(b"1").take()
    client.ack(message)


def left_waiting(client: Client) -> None:
    client.pull(b'{"batch":5,"expires":60000000000}')


def nothing(_client: Client) -> None: ...


CONSUMERS: dict[str, tuple[dict[str, Any], Callable[[Client], None]]] = {
    "pull": ({}, nothing),
    "with messages in hand": ({"ack_policy": "explicit"}, fetched),
    "with requests": ({}, left_waiting),
    "pinned": (
        {"priority_policy": "pinned_client", "priority_groups": ["g"], "priority_timeout": 10**9},
        nothing,
    ),
    "last per subject": (
        {"deliver_policy": "last_per_subject", "filter_subject": "s.>"},
        nothing,
    ),
    "push": (
        {
            "ack_policy": "none",
            "deliver_subject": "out",
            "idle_heartbeat": 10**9,
            "flow_control": True,
        },
        nothing,
    ),
    "paused": ({"pause_until": "2999-01-01T00:00:00Z"}, nothing),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_a_consumer_that_is_deleted(name: str) -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.>"])
    for _ in range(3):
        client.put(b"s.a", b"x")
    before = alive()
    config, use = CONSUMERS[name]
    client.consumer(**config)
    use(client)
    assert alive()[Consumer] == before[Consumer] + 1
    assert client.api("CONSUMER.DELETE.S.C")["success"]
    world.tick()
    assert alive() == before


def test_a_consumer_that_nobody_uses_any_more() -> None:
    world = World()
    client = world.client()
    client.stream(subjects=["s.>"])
    before = alive()
    client.consumer(inactive_threshold=10**9)
    world.advance(5)
    world.tick()
    assert alive() == before


@pytest.mark.parametrize("storage", ["file", "memory"])
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"max_msgs_per_subject": 1, "max_age": 10**12},
        {"allow_msg_schedules": True, "allow_msg_ttl": True},
        {"allow_atomic": True, "allow_batched": True},
        {"retention": "workqueue", "max_bytes": 10_000},
        {"republish": {"src": ">", "dest": "r.>"}},
    ],
    ids=str,
)
def test_a_stream_that_is_deleted(storage: str, config: dict[str, Any]) -> None:
    world = World()
    client = world.client()
    before = alive()
    client.stream(subjects=["s.>"], storage=storage, **config)
    client.consumer(ack_policy="explicit")
    for number in range(5):
        client.put(b"s.%d" % number, b"x")
    fetched(client)
    assert client.api("STREAM.DELETE.S")["success"]
    world.settle()
    for _ in range(3):
        world.advance(0.01)
    assert alive() == before


def test_streams_that_are_deleted_together_wait_for_no_further_commit() -> None:
    """One of them for each commit would be one that stays, where they are made and deleted all the time."""
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    before = alive()
    for number in range(STREAMS_PER_COMMIT):
        client.stream(f"S{number}", subjects=[f"s{number}"], storage="memory")
    storage.hold = True
    answers = [
        client.request(b"$JS.API.STREAM.DELETE.S%d" % number)
        for number in range(STREAMS_PER_COMMIT)
    ]
    while not all(each.messages for each in answers):
        storage.release()
        world.tick()
    for _ in range(STREAMS_PER_COMMIT // DISPOSALS):
        world.hub.run_timers()
    world.tick()
    assert alive() == before


def test_what_the_store_keeps_of_a_stream_that_is_deleted() -> None:
    kinds = (FileLog, _Copy, _Home)
    world = World(FileStorage("/store", fs=FaultFS(), threaded=False))
    client = world.client()
    client.stream("KEPT", subjects=["kept"])
    client.put(b"kept", b"x")
    before = alive(kinds)
    for messages in (0, 3):
        client.stream(subjects=["s.>"])
        for number in range(messages):
            client.put(b"s.%d" % number, b"x")
        assert alive(kinds) != before
        assert client.api("STREAM.DELETE.S")["success"]
        world.settle()
        for _ in range(3):
            world.advance(0.01)
        assert alive(kinds) == before
