"""What a client cannot have the server say, or do, in its name.

What both servers answer to each of these stands in ``tests/conformance/scenarios/forgeries.py``; here is
what ours does where it differs, and what comes of it later.
"""

from __future__ import annotations

import base64
import json
import random
from typing import Any

import pytest

from headrace.broker.core.auth.authentication import User, UserAuthentication
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.core.hub import Hub
from headrace.broker.core.peer import Peer
from headrace.subjects import SubjectFilter
from jetstream_world import Client, World

LIES = {
    "Nats-Stream": "L", "Nats-Subject": "s.lie", "Nats-Sequence": "7", "Nats-Time-Stamp": "now",
    "Nats-Last-Sequence": "6", "Nats-Num-Pending": "5",
}  # fmt: skip
PURGE, DELETE = b"$JS.API.STREAM.PURGE.S", b"$JS.API.STREAM.DELETE.S"


class Rights(World):
    """A world of users by their permissions; who has none may do everything."""

    def __init__(self, **users: Permissions | None) -> None:
        self.users = [User(name, "p", granted) for name, granted in users.items()]
        super().__init__()

    def _start(self) -> None:
        self.hub = Hub(self.clock, random.Random(1), authenticator=UserAuthentication(self.users))
        self.hub.start_jetstream(self.storage, self.options)

    def user(self, name: str) -> Client:
        session = self.hub.connect(Peer())
        client = self.clients[session.client_id] = Client(self, session)
        said = {"user": name, "pass": "p", "headers": True, "verbose": False, "pedantic": False}
        client.send(b"CONNECT %b\r\n" % json.dumps(said).encode())
        return client


def allowed(*subjects: bytes) -> Permissions:
    return Permissions(publish_allow=SubjectFilter(subjects))


def headers_of(message: Any) -> list[bytes]:
    return [line for line in message.headers.split(b"\r\n") if line.startswith(b"Nats-")]


@pytest.mark.parametrize("request_", [{"seq": 1}, {"multi_last": ["s.>"]}, {"seq": 1, "batch": 1}])
def test_a_direct_get_tells_the_place_of_a_message_once(request_: dict[str, Any]) -> None:
    client = World().client()
    client.stream(allow_direct=True)
    client.put(b"s.true", b"x", **LIES)
    got = client.request(b"$JS.API.DIRECT.GET.S", json.dumps(request_).encode()).take()[0]
    said = headers_of(got)
    for name, value in ((b"Stream", b"S"), (b"Subject", b"s.true"), (b"Sequence", b"1")):
        assert [h for h in said if h.startswith(b"Nats-%b:" % name)] == [
            b"Nats-%b: %b" % (name, value)
        ]


def test_a_republished_message_tells_its_place_once_and_what_was_said_before() -> None:
    client = World().client()
    client.stream(republish={"src": ">", "dest": "out.>"})
    heard = client.subscribe(b"out.>")
    client.put(b"s.true", b"x", **LIES)
    (message,) = heard.take()
    assert len(headers_of(message)) == len(LIES)  # and Nats-Num-Pending, which says nothing there
    assert b"Nats-Subject: s.true" in headers_of(message)
    assert b"\r\nWas-Nats-Subject: s.lie\r\n" in message.headers


def test_what_a_consumer_adds_is_said_once() -> None:
    client = World().client()
    client.stream()
    client.put(b"s.1", b"four", **{"Nats-Msg-Size": "9", "Nats-Pin-Id": "mine"})
    groups: dict[str, Any] = {"priority_groups": ["g"], "priority_policy": "pinned_client"}
    client.consumer(headers_only=True, **groups, priority_timeout=10**10)
    (message,) = client.pull({"batch": 1, "group": "g"}).take()
    size, pin = headers_of(message)
    assert size == b"Nats-Msg-Size: 4"
    assert pin.startswith(b"Nats-Pin-Id: ")
    assert pin != b"Nats-Pin-Id: mine"


def test_a_publisher_cannot_say_what_others_have_counted() -> None:
    client = World().client()
    client.stream("O", subjects=["o.>"], allow_msg_counter=True)
    client.stream(
        "S",
        subjects=["s.>"],
        allow_msg_counter=True,
        sources=[{"name": "O", "subject_transforms": [{"src": "o.>", "dest": "s.>"}]}],
    )
    forged = {"Nats-Incr": "1", "Nats-Counter-Sources": '{"O":{"o.a":"1000"}}'}
    assert client.put(b"s.a", **forged)["val"] == "1"
    assert client.put(b"s.a", **{**forged, "Nats-Counter-Sources": "{"})["val"] == "2"
    client.put(b"o.a", **{"Nats-Incr": "5"})
    client.world.settle()
    got = client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.a"})["message"]
    assert json.loads(base64.b64decode(got["data"])) == {"val": "7"}


@pytest.mark.parametrize("reply", [PURGE, DELETE])
@pytest.mark.parametrize(
    ("subject", "body"),
    [
        (b"$JS.API.STREAM.INFO.S", b""),
        (b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":9,"no_wait":true}'),
        (b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":9,"expires":1000000}'),
        (b"$JS.API.CONSUMER.MSG.NEXT.S.C", b'{"batch":-1}'),
        (b"$JS.API.CONSUMER.MSG.NEXT.S.C", b""),
        (b"$JS.API.DIRECT.GET.S", b'{"seq":1}'),
        (b"$JS.API.DIRECT.GET.S", b'{"seq":99}'),
        (b"$JS.API.DIRECT.GET.S", b'{"multi_last":[">"]}'),
        (b"$JS.ACK.S.C.1.1.1.0.0", b"+ACK"),
        (b"$JS.ACK.S.C.1.1.1.0.0", b'+NXT {"no_wait":true}'),
        (b"s.2", b""),
        (b"nobody.is.here", b""),
        (b"$JS.FC.S.C.x", b""),
    ],
)
def test_no_answer_is_a_request(subject: bytes, body: bytes, reply: bytes) -> None:
    world = World()
    client = world.client()
    client.stream(allow_direct=True)
    client.consumer()
    client.put(b"s.1", b"")  # which as a body would be a request for all
    if subject.startswith(b"$JS.ACK"):
        client.pull()
    client.publish(subject, body, reply)
    world.advance(1)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1 + (subject == b"s.2")


@pytest.mark.parametrize("way", ["push", "republish", "schedule"])
def test_nor_is_what_a_stream_sends_by_itself(way: str) -> None:
    client = World().client()
    client.stream("T", subjects=["t"])
    client.put(b"t", b"")
    if way == "push":
        config = {"name": "P", "deliver_subject": "$JS.API.STREAM.PURGE.T", "ack_policy": "none"}
        client.stream()
        client.put(b"s.1", b"")
        client.api("CONSUMER.CREATE.S.P", {"stream_name": "S", "config": config})
    elif way == "republish":
        rule = {"src": "s.1", "dest": "$JS.API.STREAM.PURGE.T"}
        assert client.stream(republish=rule)["did_create"]
        client.put(b"s.1", b"")
    else:
        client.stream(allow_msg_schedules=True)
        target = {"Nats-Schedule": "@at 2001-01-01T00:00:00Z", "Nats-Schedule-Target": "t"}
        assert "error" in client.put(b"s.1", b"", **target)  # only within the stream
    client.world.advance(1)
    assert client.api("STREAM.INFO.T")["state"]["messages"] == 1


def test_an_answer_goes_into_a_stream_only_for_who_may_publish_there() -> None:
    pulls = b"$JS.API.CONSUMER.MSG.NEXT.S.C"
    world = Rights(
        all=None,
        reader=allowed(pulls, b"t.mine"),
        denied=Permissions(publish_deny=SubjectFilter([b"t.>"])),
    )
    everybody = world.user("all")
    everybody.stream()
    everybody.stream("T", subjects=["t.>", "_INBOX.kept.>"])
    everybody.consumer()
    everybody.put(b"s.1", b"a key for somebody else")

    def stored() -> dict[str, int]:
        return dict(
            everybody.api("STREAM.INFO.T", {"subjects_filter": ">"})["state"].get("subjects", {})
        )

    for name in ("reader", "denied"):
        client = world.user(name)
        client.publish(pulls, b'{"no_wait":true}', b"t.others")
        client.publish(
            pulls, b'{"no_wait":true}', b"$JS.API.STREAM.DELETE.T" if name == "reader" else b"t.x"
        )
        assert stored() == {}
        assert [e.partition(' "')[0] for e in client.errors] == [
            "Permissions Violation for Publish with Reply of"
        ] * 2
    reader = world.user("reader")
    reader.publish(pulls, b'{"no_wait":true}', b"t.mine")
    assert stored() == {"t.mine": 1}
    reader.publish(pulls, b'{"no_wait":true}', b"_INBOX.kept.1")  # as every answer may be kept
    reader.publish(pulls, b'{"no_wait":true}', b"somebody.who.listens")
    assert stored() == {"t.mine": 1, "_INBOX.kept.1": 1}


def test_what_a_schedule_makes_of_a_copied_message_is_no_copy() -> None:
    """Or whoever copies again later would take it for the newest copy."""
    client = World().client()
    client.stream("O", subjects=["o.>"])
    client.stream(subjects=[], sources=[{"name": "O"}])
    client.put(b"o.a", b"content")
    client.world.settle()
    config = {"name": "S", "subjects": ["s.>"], "allow_msg_schedules": True}
    client.api("STREAM.DELETE.O")
    assert "error" not in client.api(
        "STREAM.UPDATE.S", {**config, "subjects": ["s.>", "o.>"], "sources": []}
    )
    asked = {
        "Nats-Schedule": "@every 1s",
        "Nats-Schedule-Target": "s.made",
        "Nats-Schedule-Source": "o.a",
    }
    assert "error" not in client.put(b"s.plan", b"", **asked)
    client.world.advance(1.5)
    made = client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.made"})["message"]
    copied = client.api("STREAM.MSG.GET.S", {"last_by_subj": "o.a"})["message"]
    assert base64.b64decode(made["data"]) == b"content"
    assert b"Nats-Stream-Source" in base64.b64decode(copied["hdrs"])
    assert b"Nats-Stream-Source" not in base64.b64decode(made["hdrs"])
