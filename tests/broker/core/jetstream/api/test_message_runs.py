"""Requests for neighbouring messages: answered together as one after the other, byte for byte."""

from __future__ import annotations

import base64
import json

import pytest

from headrace.broker.core.budget import LOOK_AT_ONCE
from headrace.broker.core.jetstream.api import messages
from headrace.errors import StoreReadError
from jetstream_world import Client, HeldStorage, Received, World, publication


def filled(storage: HeldStorage | None = None) -> tuple[World, Client]:
    """A work queue of forty messages with a gap, odd subjects, headers and no payload among them."""
    world = World(storage)
    client = world.client()
    client.stream(retention="workqueue", subjects=["s.>"])
    for number in range(40):
        if number % 9 == 4:
            client.put(b"s.h", b"x" * number, Trace=f"t{number}", Quote='"')
        else:
            client.publish(b"s.\xff%d" % number if number % 10 == 3 else b's."%d"' % number)
    for sequence in (1, 12, 13, 14, 40):
        client.api("STREAM.MSG.DELETE.S", {"seq": sequence})
    return world, client


def get(body: bytes, reply: bytes, /, **headers: str) -> bytes:
    return publication(b"$JS.API.STREAM.MSG.GET.S", body, reply, **headers)


def answers(client: Client, bodies: list[bytes], *, together: bool) -> list[Received]:
    inbox = client.subscribe(b"_INBOX.answers.*")
    lines = [get(body, b"_INBOX.answers.%d" % at) for at, body in enumerate(bodies)]
    for chunk in [b"".join(lines)] if together else lines:
        client.send(chunk)
    client.world.settle()
    inbox.close()
    return inbox.take()


def answered(world: World) -> int:
    engine = world.hub.engine
    assert engine is not None
    return engine.message_runs.answered


PLAIN = [b'{"seq":%d}' % sequence for sequence in range(1, 46)]


@pytest.mark.parametrize(
    "bodies, in_runs",
    [
        (PLAIN, 40),  # what is beyond the end is answered by itself
        ([body.replace(b":", b": ") for body in PLAIN], 40),
        (PLAIN[10:20], 10),
        (PLAIN[:7], 0),
        (PLAIN[::-1], 0),
        ([*PLAIN[:20], b'{"seq":0}', *PLAIN[20:30]], 20),
        ([*PLAIN[:20], b"{", *PLAIN[20:30]], 20),
        ([*PLAIN[:20], b'{"seq":21,"no_hdr":true}', *PLAIN[21:30]], 20),
        ([*PLAIN[:9], b'{"seq":99999999999999999999}'], 9),
        ([b'{"last_by_subj":"s.h"}'] * 10, 0),
    ],
)
def test_answers_do_not_depend_on_whether_requests_came_together(
    bodies: list[bytes], in_runs: int
) -> None:
    world, client = filled()
    alone = answers(client, bodies, together=False)
    assert answered(world) == 0
    before = client.api("INFO")["api"]
    together = answers(client, bodies, together=True)
    after = client.api("INFO")["api"]
    assert together == alone
    assert len(together) == len(bodies)
    assert answered(world) == (0 if World.pedantic else in_runs)
    errors = sum(b'"error"' in each.payload for each in alone)
    assert after["total"] - before["total"] == len(bodies) + 1
    assert after["errors"] - before["errors"] == errors


def test_what_a_run_says_is_what_is_stored() -> None:
    _, client = filled()
    found = [json.loads(each.payload) for each in answers(client, PLAIN[:15], together=True)]
    missing = [at + 1 for at, each in enumerate(found) if "error" in each]
    assert missing == [1, 12, 13, 14]
    message = found[4]["message"]
    assert (message["subject"], message["seq"]) == ("s.h", 5)
    assert base64.b64decode(message["data"]) == b"xxxx"
    assert base64.b64decode(message["hdrs"]).startswith(b"NATS/1.0\r\nTrace: t4\r\n")
    assert found[0]["error"]["err_code"] == 10037


def test_a_run_ends_where_its_bytes_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "RUN_BYTES", 60)
    world, client = filled()
    alone = answers(client, PLAIN, together=False)
    assert answers(client, PLAIN, together=True) == alone
    assert 0 < answered(world) < 15 or World.pedantic


def test_messages_that_are_not_on_disk_are_not_shown_by_a_run() -> None:
    storage = HeldStorage()
    world, client = filled(storage)
    storage.hold = True
    for number in range(20):
        client.publish(b"s.new", b"%d" % number)
    bodies = [b'{"seq":%d}' % sequence for sequence in range(31, 61)]
    early = answers(client, bodies, together=True)
    assert [each.subject for each in early] == [b"_INBOX.answers.%d" % at for at in range(10)]
    storage.hold = False
    while storage.held:
        storage.release()
    world.tick()
    assert len(answers(client, bodies, together=True)) == 30


def test_requests_that_audits_are_told_of_go_one_by_one() -> None:
    world, client = filled()
    audits = client.subscribe(b"$JS.EVENT.ADVISORY.API")
    assert len(answers(client, PLAIN, together=True)) == len(PLAIN)
    assert answered(world) == 0
    assert len(audits.take()) == len(PLAIN)


def test_of_other_requests_and_unknown_streams_a_run_takes_nothing() -> None:
    world, client = filled()
    inbox = client.subscribe(b"_INBOX.mixed")
    name = b"$JS.API.STREAM.MSG.GET.NONE"
    client.send(b"".join(publication(name, body, inbox.subject) for body in PLAIN))
    infos = publication(b"$JS.API.STREAM.INFO.S", b"", inbox.subject) * 20
    client.send(infos)
    client.send(b"".join(get(body, inbox.subject, Any="header") for body in PLAIN))
    world.settle()
    assert len(inbox.take()) == 2 * len(PLAIN) + 20
    assert answered(world) == 0


def test_what_cannot_be_read_now_is_refused_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    world, client = filled()
    store = world.streams["S"].store

    def unreadable(*_: object) -> None:
        raise StoreReadError("the disk does not answer")

    monkeypatch.setattr(type(store), "rows", unreadable)
    found = answers(client, PLAIN[:20], together=True)
    assert answered(world) == 0
    assert len(found) == 20


def test_a_call_of_the_api_still_has_its_turn_looked_at() -> None:
    world, _ = filled()
    router = world.hub.accounts.default.router
    assert router.find(b"$JS.API.STREAM.MSG.GET.S").weight >= LOOK_AT_ONCE
    assert router.find(b"s.h").weight < LOOK_AT_ONCE
