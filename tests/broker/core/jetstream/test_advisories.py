from __future__ import annotations

import json
from typing import Any

import pytest

from jetstream_world import SECOND, Client, HeldStorage, Inbox, World


@pytest.fixture
def client() -> Client:
    return World().client()


def listen(client: Client) -> Inbox:
    return client.subscribe(b"$JS.EVENT.ADVISORY.>")


def told(inbox: Inbox) -> list[dict[str, Any]]:
    """The advisories besides those of API calls, without what differs every time."""
    found = []
    for message in inbox.take():
        if message.subject.endswith(b".API"):
            continue
        advisory = json.loads(message.payload)
        assert len(advisory.pop("id")) == 22
        assert advisory.pop("timestamp").endswith("Z")
        kind = advisory.pop("type").removeprefix("io.nats.jetstream.advisory.v1.")
        found.append({"on": message.subject.decode().split(".", 3)[3], "kind": kind, **advisory})
    return found


def test_streams_and_consumers_come_and_go(client: Client) -> None:
    inbox = listen(client)
    client.stream()
    client.consumer()
    client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], "max_msgs": 5})
    client.api("STREAM.DELETE.S")
    assert [(a["on"], a["kind"], a["action"]) for a in told(inbox)] == [
        ("STREAM.CREATED.S", "stream_action", "create"),
        ("CONSUMER.CREATED.S.C", "consumer_action", "create"),
        ("STREAM.UPDATED.S", "stream_action", "modify"),
        ("CONSUMER.DELETED.S.C", "consumer_action", "delete"),
        ("STREAM.DELETED.S", "stream_action", "delete"),
    ]


def test_refusals_terminations_and_the_last_delivery_are_told(client: Client) -> None:
    client.stream()
    client.consumer(max_deliver=1)
    for _ in range(3):
        client.publish(b"s.a")
    first, second, _third = client.pull(b"3").take()
    inbox = listen(client)
    client.ack(first, b"-NAK")
    client.ack(second, b"+TERM broken")
    client.api("STREAM.MSG.DELETE.S", {"seq": 3})
    both = {"stream": "S", "consumer": "C", "deliveries": 1}
    assert told(inbox) == [
        {
            "on": "CONSUMER.MSG_NAKED.S.C",
            "kind": "nak",
            **both,
            "consumer_seq": 1,
            "stream_seq": 1,
        },
        {"on": "CONSUMER.MAX_DELIVERIES.S.C", "kind": "max_deliver", **both, "stream_seq": 1},
        {
            "on": "CONSUMER.MSG_TERMINATED.S.C",
            "kind": "terminated",
            **both,
            "consumer_seq": 2,
            "stream_seq": 2,
            "reason": "broken",
        },
        {
            "on": "CONSUMER.MSG_TERMINATED.S.C",
            "kind": "terminated",
            **both,
            "consumer_seq": 3,
            "stream_seq": 3,
            "reason": "Unacknowledged message was deleted",
        },
    ]


def test_a_pause_is_told_at_both_ends(client: Client) -> None:
    client.stream()
    client.consumer()
    inbox = listen(client)
    client.api("CONSUMER.PAUSE.S.C", {"pause_until": "2023-11-14T22:13:30Z"})
    client.world.advance(11)
    assert [(a["on"], a["paused"], a["pause_until"]) for a in told(inbox)] == [
        ("CONSUMER.PAUSE.S.C", True, "2023-11-14T22:13:30Z"),
        ("CONSUMER.PAUSE.S.C", False, "2023-11-14T22:13:30Z"),
    ]


def test_a_consumer_that_starts_with_a_pause_tells_of_it(client: Client) -> None:
    client.stream()
    inbox = listen(client)
    client.consumer(pause_until="2099-01-01T00:00:00Z")
    assert [(a["on"], a.get("paused")) for a in told(inbox)] == [
        ("CONSUMER.CREATED.S.C", None),
        ("CONSUMER.PAUSE.S.C", True),
    ]


def test_a_pin_is_told_when_given_and_when_lost(client: Client) -> None:
    client.stream()
    client.consumer(priority_policy="pinned_client", priority_groups=["A"], priority_timeout=SECOND)
    inbox = listen(client)
    client.pull({"group": "A", "batch": 5, "expires": 60 * SECOND})
    client.publish(b"s.a")
    client.world.advance(1)
    client.publish(b"s.a")
    client.api("CONSUMER.UNPIN.S.C", {"group": "A"})
    advisories = told(inbox)
    assert [(a["on"], a.get("reason")) for a in advisories] == [
        ("CONSUMER.PINNED.S.C", None),
        ("CONSUMER.UNPINNED.S.C", "timeout"),
        ("CONSUMER.UNPINNED.S.C", "admin"),
    ]
    assert advisories[0]["group"] == "A"
    assert len(advisories[0]["pinned_id"]) == 22


def test_every_api_call_is_told_with_who_called_and_what_was_said(client: Client) -> None:
    inbox = client.subscribe(b"$JS.EVENT.ADVISORY.API")
    answer = client.stream()
    client.api("CONSUMER.INFO.S.C", {"x": 1})
    client.request(b"$JS.API.NONSENSE")
    made, refused = (json.loads(message.payload) for message in inbox.take())
    assert made["type"] == "io.nats.jetstream.advisory.v1.api_audit"
    assert made["subject"] == "$JS.API.STREAM.CREATE.S"
    assert json.loads(made["request"])["name"] == "S"
    assert json.loads(made["response"]) == answer
    assert made["client"]["id"] == client.session.client_id
    assert made["server"]
    assert refused["request"] == '{"x": 1}'
    assert json.loads(refused["response"])["error"]["err_code"] == 10038


def test_a_call_that_did_not_become_durable_is_not_told_as_done() -> None:
    storage = HeldStorage()
    client = World(storage).client()
    inbox = client.subscribe(b"$JS.EVENT.ADVISORY.API")
    storage.hold = True
    client.request(b"$JS.API.STREAM.CREATE.S", b'{"name":"S"}')
    assert not inbox.messages
    storage.release()
    client.world.tick()
    assert len(inbox.messages) == 1
