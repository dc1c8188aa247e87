"""What a consumer delivers first that begins with the last of each subject."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headrace.broker.core.jetstream.consumer.backlog import EXACT_MAX
from jetstream_world import Client, HeldStorage, World


def with_lasts(world: World, *subjects: bytes, **config: str) -> Client:
    client = world.client()
    client.stream()
    for subject in subjects:
        client.publish(subject)
    client.consumer(deliver_policy="last_per_subject", filter_subject="s.>", **config)
    return client


def pulled(client: Client, batch: int = 10) -> list[int]:
    inbox = client.pull(b"%d" % batch)
    found = [message.stream_seq for message in inbox.take()]
    inbox.close()
    return found


def test_what_was_removed_is_not_waited_for() -> None:
    client = with_lasts(World(), b"s.a", b"s.b", b"s.c", b"s.b")
    assert client.info()["num_pending"] == 3
    client.api("STREAM.MSG.DELETE.S", {"seq": 3})
    assert client.info()["num_pending"] == 2
    client.publish(b"s.d")
    assert client.info()["num_pending"] == 3
    assert pulled(client, 2) == [1, 4]
    assert client.info()["num_pending"] == 1
    assert pulled(client) == [5]


def test_with_nothing_left_of_them_everything_since_follows() -> None:
    client = with_lasts(World(), b"s.a", b"s.b", b"s.b")
    client.publish(b"s.b")
    client.api("STREAM.PURGE.S", {"keep": 1})
    assert client.info()["num_pending"] == 1
    assert pulled(client) == [4]


def test_a_reset_forgets_them() -> None:
    world = World()
    client = world.client()
    client.stream()
    for subject in (b"s.a", b"s.b", b"s.b"):
        client.publish(subject)
    client.consumer(deliver_policy="last_per_subject", filter_subject="s.>")
    assert world.hub.engine is not None
    consumer = world.hub.engine.registry.streams["S"].consumers["C"]
    consumer.restart_at(2)
    assert client.info()["num_pending"] == 2
    assert pulled(client) == [2, 3]


def test_one_that_is_not_on_disk_yet_waits_for_that() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream()
    client.publish(b"s.a")
    storage.hold = True
    client.publish(b"s.b")
    client.publish(b"s.b")
    config = b'{"stream_name":"S","config":{"durable_name":"C","ack_policy":"explicit",'
    config += b'"deliver_policy":"last_per_subject","filter_subject":"s.>"}}'
    client.publish(b"$JS.API.CONSUMER.CREATE.S.C", config)
    inbox = client.pull(b"10")
    assert [message.stream_seq for message in inbox.take()] == [1]
    storage.hold = False
    while storage.held:
        storage.release()
        world.tick()
    assert [message.stream_seq for message in inbox.take()] == [3]


def test_a_consumer_that_is_deleted_lets_go_of_them_at_once() -> None:
    """A thousand such consumers, freed by one pass of the garbage collector, held up everybody."""
    world = World()
    client = with_lasts(world, b"s.a", b"s.b")
    assert world.hub.engine is not None
    [consumer] = world.hub.engine.registry.streams["S"].consumers.values()
    assert consumer.backlog.last_per_subject
    backlog = consumer.backlog
    client.api(f"CONSUMER.DELETE.S.{consumer.name}")
    assert not backlog.last_per_subject


def test_while_messages_go_what_is_left_of_thousands_is_looked_up_a_few_times_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, count = World(), 2 * EXACT_MAX
    subjects = [b"s.%d" % number for number in range(count)]
    client = with_lasts(world, *subjects, ack_policy="none")
    store = world.streams["S"].store
    looks: list[int] = []
    present = store.present

    def counted(sequences: Sequence[int]) -> list[int]:
        looks.append(len(sequences))
        return present(sequences)

    monkeypatch.setattr(store, "present", counted)
    found: list[int] = []
    gone = set()
    while found[-1:] != [count]:
        if len(found) < count // 2 - 200:
            gone.add(found[-1] + 150 if found else 150)
            client.api("STREAM.MSG.DELETE.S", {"seq": max(gone)})
        found += pulled(client, 100)
    assert found == [sequence for sequence in range(1, count + 1) if sequence not in gone]
    assert client.info()["num_pending"] == 0
    assert len([look for look in looks if look > EXACT_MAX]) <= 3
    assert len(gone) > 30


def test_where_all_of_thousands_are_gone_the_rest_of_the_stream_follows() -> None:
    world = World()
    client = with_lasts(world, *(b"s.%d" % number for number in range(EXACT_MAX + 10)))
    client.api("STREAM.PURGE.S", {"seq": EXACT_MAX + 10})
    client.publish(b"s.new")
    assert pulled(client, 5) == [EXACT_MAX + 10, EXACT_MAX + 11]


def test_where_the_next_of_thousands_are_gone_those_behind_them_are_found() -> None:
    world = World()
    client = with_lasts(world, *(b"s.%d" % number for number in range(EXACT_MAX + 300)))
    assert pulled(client, 10) == list(range(1, 11))
    for sequence in range(11, 31):
        client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
    assert pulled(client, 10) == list(range(31, 41))


def test_the_last_is_the_newest_that_is_there() -> None:
    client = World().client()
    client.stream()
    for number in range(4):
        client.put(b"s.%d" % number, b"%d" % number)
    for sequence in (3, 4):
        client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
    client.consumer(deliver_policy="last")
    assert [message.payload for message in client.pull().take()] == [b"1"]
    client.api("STREAM.PURGE.S")
    client.consumer("D", deliver_policy="last")
    client.put(b"s.5", b"new")
    assert [message.payload for message in client.pull(name="D").take()] == [b"new"]
