"""Streams that copy from others: what is copied, where they go on, and what they wait for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.jetstream.consumer.consumer import Consumer, ConsumerMarks
from headrace.broker.store import FileStorage, MemoryStorage
from headrace.errors import StoreFullError
from headrace.transforms import partition
from jetstream_world import SECOND, Client, HeldStorage, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def client(world: World) -> Client:
    return world.client()


def state(client: Client, name: str = "T") -> dict[str, Any]:
    info: dict[str, Any] = client.api(f"STREAM.INFO.{name}")["state"]
    return info


def source_info(client: Client, name: str = "T") -> dict[str, Any]:
    info: dict[str, Any] = client.api(f"STREAM.INFO.{name}")["sources"][0]
    return info


def target(client: Client, *sources: Any, **config: Any) -> dict[str, Any]:
    config = {"name": "T", "sources": [*sources], "allow_direct": True, **config}
    answer = client.api("STREAM.CREATE.T", config)
    client.world.settle()
    return answer


def fill(client: Client, count: int, prefix: str = "s", start: int = 0) -> None:
    for number in range(start, start + count):
        client.publish(f"{prefix}.{number}".encode(), b"%d" % number)
    client.world.settle()


def contents(client: Client, name: str = "T") -> list[tuple[int, str, bytes]]:
    """Sequence, subject and payload of everything in a stream."""
    client.world.settle()
    stream = client.world.hub.engine.registry.streams[name]  # type: ignore[union-attr]
    store = stream.store
    messages = store.read(0, None, 1 << 20, 1 << 30, store.last_seq)
    return [(m.sequence, m.subject.decode(), m.payload) for m in messages]


def payloads(client: Client, name: str = "T") -> list[int]:
    return [int(payload) for _, _, payload in contents(client, name)]


def file_storage(directory: Path) -> FileStorage:
    return FileStorage(directory, threaded=False)


def test_what_is_there_and_what_comes_is_copied_in_order(client: Client) -> None:
    client.stream()
    fill(client, 3)
    target(client, {"name": "S"})
    fill(client, 3, start=3)
    assert payloads(client) == [0, 1, 2, 3, 4, 5]
    info = source_info(client)
    assert (info["name"], info["lag"], info["seq"]) == ("S", 0, 6)


def test_a_copy_says_where_it_comes_from(client: Client) -> None:
    client.stream()
    fill(client, 2)
    target(client, {"name": "S"})
    (message,) = client.request(b"$JS.API.DIRECT.GET.T", b'{"seq":2}').take()
    header = message.header["Nats-Stream-Source"].split(" ")
    assert header[:5] == ["S", "2", ">", ">", "s.1"]
    assert len(header[5]) == 8


def test_a_message_is_copied_only_when_it_is_durable_in_its_own_stream() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream()
    target(client, {"name": "S"})
    storage.hold = True
    client.publish(b"s.0", b"0")
    world.settle()
    assert payloads(client) == []
    storage.hold = False
    storage.release()
    world.tick()
    assert payloads(client) == [0]


def test_several_sources_each_keep_their_own_order(client: Client) -> None:
    client.stream("A")
    client.stream("B")
    target(client, {"name": "A"}, {"name": "B"})
    for number in range(4):
        client.publish(b"a.x", b"%d" % number)
        client.publish(b"b.x", b"%d" % (10 + number))
    found = payloads(client)
    assert [n for n in found if n < 10] == [0, 1, 2, 3]
    assert [n for n in found if n >= 10] == [10, 11, 12, 13]


def test_a_filter_lets_through_what_matches(client: Client) -> None:
    client.stream()
    target(client, {"name": "S", "filter_subject": "s.1"})
    fill(client, 3)
    fill(client, 3)
    assert payloads(client) == [1, 1]
    assert source_info(client)["lag"] == 0


def test_the_first_transform_that_matches_is_applied(client: Client) -> None:
    client.stream()
    rules = [{"src": "s.1", "dest": "one"}, {"src": "s.2", "dest": ""}]
    target(client, {"name": "S", "subject_transforms": rules})
    fill(client, 4)
    assert [subject for _, subject, _ in contents(client)] == ["one", "s.2"]


def test_a_transform_may_have_blanks(client: Client) -> None:
    client.stream()
    rule = {"src": "s.*", "dest": "{{ partition( 2, 1 ) }}.{{wildcard( 1 )}}"}
    target(client, {"name": "S", "subject_transforms": [rule]})
    fill(client, 3)
    expected = [f"{partition(b'%d' % n, 2)}.{n}" for n in range(3)]
    assert [subject for _, subject, _ in contents(client)] == expected


@pytest.mark.parametrize(
    ("start", "expected"), [({"opt_start_seq": 3}, [2, 3]), ({"opt_start_seq": 9}, [])]
)
def test_a_source_may_start_at_a_sequence(
    client: Client, start: dict[str, Any], expected: list[int]
) -> None:
    client.stream()
    fill(client, 4)
    target(client, {"name": "S", **start})
    assert payloads(client) == expected


def test_a_source_that_is_configured_again_begins_no_earlier_than_it_is_to_start(
    client: Client,
) -> None:
    """Where it had been copied to the first time is remembered, and means nothing any more."""
    client.stream()
    target(client, {"name": "S", "filter_subject": "s.*"})
    fill(client, 2)

    def change(**source: Any) -> None:
        client.api("STREAM.UPDATE.T", {"name": "T", "sources": [{"name": "S", **source}]})

    change(filter_subject="s.>", opt_start_seq=3)
    fill(client, 2, start=2)
    change(filter_subject="s.*", opt_start_seq=5)
    fill(client, 2, start=4)
    assert payloads(client) == [0, 1, 2, 3, 4, 5]


def test_a_source_may_start_at_a_time(world: World, client: Client) -> None:
    client.stream()
    fill(client, 2)
    world.advance(60)
    fill(client, 2, start=2)
    target(client, {"name": "S", "opt_start_time": "2023-11-14T22:14:00Z"})
    assert payloads(client) == [2, 3]


def test_a_repeated_message_id_is_passed_over(client: Client) -> None:
    client.stream(duplicate_window=0)
    target(client, {"name": "S"}, subjects=["t"], duplicate_window=60_000_000_000)
    client.put(b"t", b"0", Nats_Msg_Id="one")
    client.put(b"s.x", b"1", Nats_Msg_Id="one")
    client.put(b"s.x", b"2", Nats_Msg_Id="two")
    assert payloads(client) == [0, 2]


def test_a_long_catch_up_is_done_in_pieces_with_publishing_in_between(world: World) -> None:
    client = world.client()
    client.stream()
    client.send(b"".join(b"PUB s.x 4\r\n%04d\r\n" % number for number in range(5000)))
    client.api("STREAM.CREATE.T", {"name": "T", "sources": [{"name": "S"}]})
    world.tick()
    first = state(client)["messages"]
    assert 0 < first < 5000
    client.put(b"s.x", b"5000")
    assert payloads(client) == list(range(5001))


class TestAFullTarget:
    """One that refuses new messages holds its sources back, and nothing is lost."""

    def test_it_goes_on_as_soon_as_messages_are_acknowledged(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"}, retention="workqueue", discard="new", max_msgs=3)
        fill(client, 10)
        client.consumer(stream="T")
        seen = []
        for _ in range(10):
            (message,) = client.pull(b"1", stream="T").take()
            seen.append(int(message.payload))
            client.ack(message)
            client.world.settle()
            assert state(client)["messages"] == min(3, 10 - len(seen))
        assert seen == list(range(10))

    def test_it_goes_on_when_it_is_purged(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"}, discard="new", max_msgs=2)
        fill(client, 5)
        assert payloads(client) == [0, 1]
        assert source_info(client)["lag"] == 3
        client.api("STREAM.PURGE.T")
        assert payloads(client) == [2, 3]

    def test_it_goes_on_when_a_message_is_deleted(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"}, discard="new", max_msgs=2)
        fill(client, 3)
        client.api("STREAM.MSG.DELETE.T", {"seq": 1})
        assert payloads(client) == [1, 2]

    def test_it_goes_on_when_its_limit_is_raised(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"}, discard="new", max_msgs=2)
        fill(client, 5)
        config = {"name": "T", "sources": [{"name": "S"}], "discard": "new", "max_msgs": 4}
        client.api("STREAM.UPDATE.T", config)
        assert payloads(client) == [0, 1, 2, 3]

    def test_it_goes_on_when_messages_have_grown_old(self, world: World, client: Client) -> None:
        client.stream()
        second = 1_000_000_000
        target(client, {"name": "S"}, discard="new", max_msgs=2, max_age=second)
        fill(client, 4)
        world.advance(1.5)
        assert payloads(client) == [2, 3]

    @pytest.mark.parametrize("limit", [{"max_msgs": 3}, {"max_bytes": 3 * 1150}], ids=str)
    def test_no_more_is_read_for_it_than_fits(
        self, client: Client, limit: dict[str, int], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        client.stream()
        target(client, {"name": "S"}, retention="workqueue", discard="new", **limit)
        client.consumer(stream="T")
        for number in range(200):
            client.publish(b"s.%d" % number, b"%01000d" % number)
        client.world.settle()
        there = state(client)["messages"]
        assert 1 < there < 6
        read: list[int] = []
        log: type = type(client.world.streams["S"].store)
        real = log.read  # type: ignore[attr-defined]

        def noted(self: object, *args: Any) -> Any:
            messages = real(self, *args)
            read.append(len(messages))
            return messages

        monkeypatch.setattr(log, "read", noted)
        for _ in range(50):
            (message,) = client.pull(b"1", stream="T").take()
            client.ack(message)
            client.world.settle()
        monkeypatch.undo()
        assert payloads(client) == list(range(50, 50 + there))
        assert 50 <= sum(read) <= 2 * 50 + 10

    def test_the_bytes_of_the_source_header_count(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"}, discard="new", max_bytes=200)
        fill(client, 5)
        assert state(client)["bytes"] <= 200
        kept = payloads(client)
        client.api("STREAM.PURGE.T")
        assert payloads(client) == list(range(len(kept), 2 * len(kept)))


class TestThatCanNotStoreAMessage:
    def test_shows_why_and_goes_on_when_it_can(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"}, max_msg_size=100)
        client.put(b"s.x", b"0" * 200)
        client.put(b"s.x", b"1")
        assert payloads(client) == []
        assert source_info(client)["error"]["err_code"] == 10054
        client.api("STREAM.UPDATE.T", {"name": "T", "sources": [{"name": "S"}]})
        assert payloads(client) == [0, 1]
        assert "error" not in source_info(client)

    def test_a_sealed_target_copies_no_more(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 1)
        client.api("STREAM.UPDATE.T", {"name": "T", "sources": [{"name": "S"}], "sealed": True})
        fill(client, 1, start=1)
        assert payloads(client) == [0]
        assert source_info(client)["error"]["err_code"] == 10109


def test_a_counter_adds_up_the_counters_it_copies(client: Client) -> None:
    for name in ("A", "B"):
        client.stream(name, allow_msg_counter=True)
    rules = [[{"src": f"{name}.>", "dest": "sum.>"}] for name in ("a", "b")]
    sources = [
        {"name": name, "subject_transforms": rule}
        for name, rule in zip(("A", "B"), rules, strict=True)
    ]
    target(client, *sources, subjects=["sum.>"], allow_msg_counter=True)
    for subject, step in ((b"a.x", "+5"), (b"b.x", "+7"), (b"a.x", "-2"), (b"sum.x", "+100")):
        client.put(subject, Nats_Incr=step)
        client.world.settle()
    assert [payload for _, _, payload in contents(client)] == [
        b'{"val":"5"}',
        b'{"val":"12"}',
        b'{"val":"10"}',
        b'{"val":"110"}',
    ]


def test_a_source_that_does_not_count_can_not_be_added_up(client: Client) -> None:
    client.stream("A")
    target(client, {"name": "A"}, allow_msg_counter=True)
    client.put(b"a.x", b"7")
    client.world.settle()
    assert source_info(client)["error"]["err_code"] == 10169


def test_a_source_waits_while_the_server_has_no_room() -> None:
    options = JetStreamOptions(max_storage_bytes=2000)
    world = World(options=options)
    client = world.client()
    client.stream(max_msgs=10, storage="memory")
    target(client, {"name": "S"})
    client.put(b"s.x", b"0" * 1500)
    client.put(b"s.x", b"1" * 600)
    world.settle()
    assert len(contents(client)) == 1
    assert source_info(client)["error"]["err_code"] == 10023
    client.api("STREAM.PURGE.T")
    world.advance(3)
    assert [payload[:1] for _, _, payload in contents(client)] == [b"1"]


class TestAnOrigin:
    def test_may_come_later(self, client: Client) -> None:
        target(client, {"name": "S"})
        assert source_info(client)["error"]["err_code"] == 10059
        client.stream()
        fill(client, 2)
        assert payloads(client) == [0, 1]
        assert "error" not in source_info(client)

    def test_made_anew_is_copied_from_its_beginning(self, world: World, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 5)
        client.api("STREAM.DELETE.S")
        assert source_info(client)["error"]["err_code"] == 10059
        world.advance(1)
        client.stream()
        fill(client, 2, start=5)
        assert payloads(client) == list(range(7))

    def test_that_was_purged_is_copied_from_what_is_left(self, client: Client) -> None:
        client.stream()
        fill(client, 5)
        client.api("STREAM.PURGE.S", {"seq": 4})
        target(client, {"name": "S"})
        client.api("STREAM.PURGE.S")
        fill(client, 1, start=5)
        assert payloads(client) == [3, 4, 5]

    @pytest.mark.parametrize("retention", ["workqueue", "interest"])
    def test_lets_go_of_what_is_copied_and_durable(self, retention: str) -> None:
        storage = HeldStorage()
        world = World(storage)
        client = world.client()
        target(client, {"name": "S"})
        client.stream(retention=retention)
        storage.hold = True
        client.publish(b"s.0", b"0")
        storage.release()
        world.settle()
        assert payloads(client, "S") == [0]
        while storage.held:
            storage.release()
            world.settle()
        assert payloads(client, "S") == []
        assert payloads(client) == [0]

    def test_by_interest_keeps_what_a_waiting_copy_needs(self, client: Client) -> None:
        target(client, {"name": "S"}, discard="new", max_msgs=1)
        client.stream(retention="interest")
        fill(client, 3)
        assert payloads(client, "S") == [1, 2]
        client.api("STREAM.DELETE.T")
        assert payloads(client, "S") == []


class TestAnUpdate:
    def test_may_add_a_source(self, client: Client) -> None:
        client.stream()
        fill(client, 2)
        client.stream("T")
        answer = client.api(
            "STREAM.UPDATE.T", {"name": "T", "subjects": ["t.>"], "sources": [{"name": "S"}]}
        )
        assert answer["sources"][0]["name"] == "S"
        assert payloads(client) == [0, 1]

    def test_that_takes_a_source_out_and_back_goes_on_where_it_was(self, client: Client) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 2)
        client.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t"]})
        fill(client, 2, start=2)
        assert payloads(client) == [0, 1]
        client.api("STREAM.UPDATE.T", {"name": "T", "sources": [{"name": "S"}]})
        assert payloads(client) == [0, 1, 2, 3]


class TestARestart:
    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return World(file_storage(tmp_path))

    def restart(self, world: World, tmp_path: Path) -> Client:
        world.restart(lambda: file_storage(tmp_path))
        world.settle()
        return world.client()

    def test_goes_on_where_it_was(self, world: World, client: Client, tmp_path: Path) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 3)
        client = self.restart(world, tmp_path)
        fill(client, 2, start=3)
        assert payloads(client) == [0, 1, 2, 3, 4]

    def test_does_not_copy_again_what_was_taken_out_meanwhile(
        self, world: World, client: Client, tmp_path: Path
    ) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 3)
        client.api("STREAM.PURGE.T")
        client = self.restart(world, tmp_path)
        fill(client, 1, start=3)
        assert payloads(client) == [3]

    def test_remembers_sources_that_were_taken_out(
        self, world: World, client: Client, tmp_path: Path
    ) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 2)
        client.api("STREAM.UPDATE.T", {"name": "T", "subjects": ["t"]})
        client = self.restart(world, tmp_path)
        fill(client, 1, start=2)
        client.api("STREAM.UPDATE.T", {"name": "T", "sources": [{"name": "S"}]})
        assert payloads(client) == [0, 1, 2]

    def test_in_which_the_journal_is_behind_the_messages_reads_their_headers(
        self, world: World, client: Client, tmp_path: Path
    ) -> None:
        client.stream()
        target(client, {"name": "S"})
        fill(client, 2)
        key = "intake/T"
        before = world.storage.meta.load()[key][0]
        fill(client, 2, start=2)
        world.storage.meta.put(key, before)
        client = self.restart(world, tmp_path)
        assert payloads(client) == [0, 1, 2, 3]


def test_a_flush_that_fails_takes_the_position_back_with_the_messages() -> None:
    storage = HeldStorage()
    world = World(storage)
    client = world.client()
    client.stream()
    target(client, {"name": "S"})
    fill(client, 2)
    storage.hold = True
    client.publish(b"s.2", b"2")
    storage.release()
    world.settle()
    storage.fail = StoreFullError("no space left")
    log = storage.open_stream("T")
    while storage.held:
        log.fail()  # as a storage does whose flush did not fit
        storage.release()
    storage.fail, storage.hold = None, False
    world.advance(5)
    assert payloads(client) == [0, 1, 2]


def test_the_work_queue_of_an_elastic_consumer_group(client: Client) -> None:
    """A work queue of partitions, with little room, fed by a stream: what groups stand on."""
    client.stream("ORDERS", subjects=["orders.>"])
    rule = {
        "src": "orders.*.*",
        "dest": "{{Partition(4,1)}}.orders.{{Wildcard(1)}}.{{Wildcard(2)}}",
    }
    client.api(
        "STREAM.CREATE.ORDERS-group",
        {
            "name": "ORDERS-group",
            "retention": "workqueue",
            "discard": "new",
            "max_msgs": 5,
            "allow_direct": True,
            "sources": [{"name": "ORDERS", "subject_transforms": [rule]}],
        },
    )
    sent = [(f"c{number % 7}", b"%d" % number) for number in range(60)]
    for customer, payload in sent:
        client.publish(f"orders.{customer}.new".encode(), payload)
    client.publish(b"orders.of.another.shape", b"-1")
    for member, partitions in {"m1": (0, 1), "m2": (2, 3)}.items():
        config = {
            "name": member,
            "ack_policy": "explicit",
            "filter_subjects": [f"{p}.>" for p in partitions],
            "inactive_threshold": 60_000_000_000,
        }
        body = {"stream_name": "ORDERS-group", "config": config, "action": "create"}
        answer = client.api(f"CONSUMER.CREATE.ORDERS-group.{member}", body)
        assert "error" not in answer, answer
    seen: dict[str, list[bytes]] = {}
    for _ in range(100):
        for member in ("m1", "m2"):
            client.world.settle()
            for message in client.pull(
                {"batch": 5, "no_wait": True}, member, "ORDERS-group"
            ).take():
                if message.reply:
                    place, _, customer, _ = message.subject.decode().split(".")
                    assert int(place) == partition(customer.encode(), 4)
                    seen.setdefault(customer, []).append(message.payload)
                    client.ack(message)
    for customer in seen:
        assert seen[customer] == [payload for name, payload in sent if name == customer]
    assert sum(map(len, seen.values())) == len(sent)
    assert state(client, "ORDERS-group")["messages"] == 0


def test_a_dead_job_is_known_after_a_restart_and_in_a_backup() -> None:
    """What was delivered as often as allowed is nobody's, and a copy must not take it away."""
    world = World(MemoryStorage())
    client = world.client()
    client.stream(retention="workqueue")
    client.consumer(max_deliver=1, ack_wait=SECOND)
    fill(client, 2)
    (first, _second) = client.pull({"batch": 2, "no_wait": True}).take()
    world.advance(2)
    stream = world.streams["S"]
    consumer = stream.consumers["C"]
    assert consumer.state.dead == {1: 1, 2: 1}
    assert consumer.backup(2).redelivered == {1: 1, 2: 1}
    again = Consumer(stream.context, stream, "D", consumer.config, 1, ConsumerMarks())
    again.restore_backup(consumer.backup(2))
    assert again.state.dead == consumer.state.dead
    target(client, {"name": "S"})
    world.settle()
    assert payloads(client) == payloads(client, "S") == [0, 1]
    client.ack(first)  # late, but the work is done
    assert payloads(client, "S") == [1]
    client.api("STREAM.MSG.DELETE.S", {"seq": 2})
    assert consumer.state.dead == {}
