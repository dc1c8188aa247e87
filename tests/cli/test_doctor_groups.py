"""``headrace doctor`` about groups that messages cannot reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headrace import sync
from headrace.api.streams import SubjectTransformConfig
from headrace.groups import PartitioningFilter
from headrace.sync.groups import elastic, static
from waiting import until_here

Run = Callable[..., Any]


def test_groups_that_messages_cannot_reach_are_problems(at_server: Run, js: sync.JetStream) -> None:
    numbered = SubjectTransformConfig(src="p.*", dest="{{partition(2,1)}}.p.{{wildcard(1)}}")
    parts = js.create_stream(name="PARTS", subjects=["p.*"], subject_transform=numbered)
    orders = js.create_stream(name="ORDERS", subjects=["o.*"])
    static.create(js, "PARTS", "s", 2, members=["a"])
    by_key = [PartitioningFilter("o.*", (1,))]
    elastic.create(js, "ORDERS", "e", 2, partitioning_filters=by_key)
    done = at_server("doctor")
    assert done.status == 0, done.out
    assert "✓ groups: messages reach 2 groups" in done.out
    parts.update(subject_transform=None)
    orders.update(subjects=["q.*"])
    done = at_server("doctor")
    assert done.status == 1
    assert "✗ group PARTS > s: stream 'PARTS' stores 'p.*', which begin with no part" in done.out
    assert "    headrace stream edit PARTS --transform 'p.*:{{Partition(2,1)}}.p." in done.out
    assert "✗ group ORDERS > e: its filter 'o.*' matches none of the subjects" in done.out
    js.delete_stream("PARTS")
    assert "✗ group PARTS > s: its stream 'PARTS' does not exist" in at_server("doctor").out


def test_what_may_be_meant_is_only_worth_knowing(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["o.>"])
    by_key = [PartitioningFilter("o.*", (1,))]
    elastic.create(js, "ORDERS", "e", 2, partitioning_filters=by_key)
    js.publish("o.eu.1", b"")
    done = at_server("doctor")
    assert done.status == 0, done.out
    assert "! group ORDERS > e: of 1 message in stream 'ORDERS' none matches 'o.*'" in done.out


def test_a_record_that_cannot_be_read_is_a_problem(at_server: Run, js: sync.JetStream) -> None:
    js.create_stream(name="ORDERS", subjects=["o.>"])
    elastic.create(js, "ORDERS", "e", 2)
    js.key_value("elastic-consumer-groups").put("ORDERS.e", b"{")
    done = at_server("doctor")
    assert done.status == 1
    assert "    headrace kv get elastic-consumer-groups ORDERS.e" in done.out


def test_a_queue_whose_members_are_away_waits_for_them_and_for_nobody_else(
    at_server: Run, js: sync.JetStream
) -> None:
    js.create_stream(name="ORDERS", subjects=["o.*"])
    by_key = [PartitioningFilter("o.*", (1,))]
    elastic.create(js, "ORDERS", "e", 2, partitioning_filters=by_key)
    js.publish("o.1", b"waits")
    queue = js.stream("ORDERS-e")
    until_here(lambda: queue.info().state.messages == 1)
    done = at_server("doctor")
    assert done.status == 1
    assert (
        "✗ stream ORDERS-e: 1 message and no member of group 'e' of stream 'ORDERS' at" in done.out
    )
    assert "    headrace group elastic info ORDERS e    names its members: start" in done.out
    assert "consumer create" not in done.out
    assert at_server("group", "elastic", "add", "ORDERS", "e", "a").status == 0
    done = at_server("doctor")
    assert "    headrace group elastic info ORDERS e    names its members: start" in done.out
    assert "a" in at_server("group", "elastic", "info", "ORDERS", "e").out
    assert "consumer create" not in done.out
    handled: list[bytes] = []

    def handle(message: Any) -> Any:
        handled.append(message.payload)
        return message.ack_sync()

    with elastic.join(js, "ORDERS", "e", "a", handle):
        until_here(lambda: handled == [b"waits"])
        assert "stream ORDERS-e" not in at_server("doctor").out


def test_a_consumer_that_keeps_a_queue_from_its_members_is_named(
    at_server: Run, js: sync.JetStream
) -> None:
    js.create_stream(name="ORDERS", subjects=["o.*"])
    by_key = [PartitioningFilter("o.*", (1,))]
    elastic.create(js, "ORDERS", "e", 2, partitioning_filters=by_key, members=["a"])
    js.create_consumer("ORDERS-e", durable_name="mine")
    handled: list[bytes] = []
    with elastic.join(js, "ORDERS", "e", "a", lambda each: handled.append(each.payload)):
        js.publish("o.1", b"waits")
        done = at_server("doctor")
        assert done.status == 1
        text = "✗ group ORDERS > e: its work queue 'ORDERS-e' has a consumer that is no member's, 'mine'"
        assert text in done.out
        assert "    headrace consumer rm ORDERS-e mine" in done.out
        assert handled == []
        assert at_server("consumer", "rm", "ORDERS-e", "mine", "--force").status == 0
        until_here(lambda: handled == [b"waits"])
