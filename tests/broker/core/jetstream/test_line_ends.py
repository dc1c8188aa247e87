"""Text of strangers that would end a line of the protocol, by every way that is not the parser.

It is refused, or carried where a size goes before it (JSON, headers' values, payloads). What files have
that somebody else wrote is shown with ``_`` in place of such bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.store import FileStorage
from headrace.broker.store.index import index
from headrace.broker.store.io.findings import Finding
from headrace.subjects import carried, is_carried, is_valid_subject
from headrace.wire import encode, frames
from headrace.wire.parser import Parser
from jetstream_world import Client, World

EVIL = "x\r\nMSG forged 1 1\r\nz"
"""In a control line: a message that nobody has published."""


class Hearing(Client):
    """A client that notes each subject it is told of."""

    def __init__(self, world: World) -> None:
        super().__init__(world, world.client().session)
        self.heard: list[bytes] = []
        self._lines = Parser.for_client()
        world.clients[self.session.client_id] = self
        self.subscribe(b">")

    def received(self, parts: Sequence[bytes]) -> None:
        for frame in self._lines.feed(b"".join(parts)):
            assert frame[0] in (frames.MSG, frames.ERR, frames.PING), frame
            if frame[0] == frames.MSG:
                self.heard.append(frame[1])
        super().received(parts)


STREAM: dict[str, dict[str, Any]] = {
    "subjects": {"subjects": [EVIL]},
    "transform": {"subject_transform": {"src": "t.>", "dest": f"{EVIL}.>"}},
    "transform of": {"subject_transform": {"src": f"{EVIL}.>", "dest": "t.>"}},
    "republish": {"republish": {"src": "t.>", "dest": f"{EVIL}.>"}},
    "mirror": {"subjects": [], "mirror": {"name": EVIL}},
    "mirror of": {"subjects": [], "mirror": {"name": "S", "filter_subject": EVIL}},
    "source": {"sources": [{"name": EVIL}]},
    "source of": {"sources": [{"name": "S", "filter_subject": EVIL}]},
    "source as": {
        "sources": [{"name": "S", "subject_transforms": [{"src": "s.>", "dest": f"{EVIL}.>"}]}]
    },
    "source's api": {"sources": [{"name": "S", "external": {"api": EVIL, "deliver": "d"}}]},
    "source's inbox": {"sources": [{"name": "S", "external": {"api": "a", "deliver": EVIL}}]},
}
CONSUMER: dict[str, dict[str, Any]] = {
    "name": {"durable_name": EVIL},
    "deliver": {"deliver_subject": EVIL},
    "filter": {"filter_subject": EVIL},
    "filters": {"filter_subjects": [EVIL, "s.a"]},
    "group": {"priority_groups": [EVIL], "priority_policy": "overflow"},
}
CALLS: dict[str, tuple[str, Any]] = {
    "the last of a subject": ("STREAM.MSG.GET.S", {"last_by_subj": EVIL}),
    "the next of a subject": ("STREAM.MSG.GET.S", {"next_by_subj": EVIL, "seq": 1}),
    "subjects": ("STREAM.INFO.S", {"subjects_filter": EVIL}),
    "purge": ("STREAM.PURGE.S", {"filter": EVIL}),
    "names": ("STREAM.NAMES", {"subject": EVIL}),
    "snapshot": ("STREAM.SNAPSHOT.S", {"deliver_subject": EVIL}),
    "restore": ("STREAM.RESTORE.R", {"config": {"name": "R", "subjects": [EVIL]}, "state": {}}),
    "unpin": ("CONSUMER.UNPIN.S.C", {"group": EVIL}),
}
DIRECT: dict[str, Any] = {
    "last": {"last_by_subj": EVIL},
    "several": {"multi_last": [EVIL]},
    "next": {"next_by_subj": EVIL, "seq": 1},
}
HEADERS = {
    "Nats-Schedule": "@at 1970-01-01T00:00:00Z",
    "Nats-Schedule-Target": "s.a 1 1",
    "Nats-Rollup": "sub x",
    "Nats-Expected-Last-Msg-Id": "x 1 1",
}


@pytest.fixture
def world() -> World:
    world = World()
    client = world.client()
    client.stream(allow_direct=True, allow_msg_schedules=True, allow_rollup_hdrs=True)
    client.consumer()
    client.put(b"s.a", b"a")
    return world


@pytest.mark.parametrize("what", STREAM)
def test_a_streams_configuration_has_no_text_of_more_lines(what: str, world: World) -> None:
    hearing = Hearing(world)
    answer = world.client().stream("T", **STREAM[what])
    assert "error" in answer, answer
    assert b"forged" not in hearing.heard


@pytest.mark.parametrize("what", CONSUMER)
def test_a_consumers_configuration_has_no_text_of_more_lines(what: str, world: World) -> None:
    hearing = Hearing(world)
    config = {"durable_name": "D", "ack_policy": "explicit", **CONSUMER[what]}
    document = {"stream_name": "S", "config": config}
    answer = world.client().api("CONSUMER.CREATE.S.D", document)
    assert "error" in answer, answer
    assert b"forged" not in hearing.heard


@pytest.mark.parametrize("what", CALLS)
def test_the_answer_to_a_call_is_one_message(what: str, world: World) -> None:
    hearing = Hearing(world)
    client = world.client()
    client.api(*CALLS[what])
    assert b"forged" not in hearing.heard


@pytest.mark.parametrize("what", DIRECT)
def test_the_answer_to_a_direct_get_is_one_message(what: str, world: World) -> None:
    hearing = Hearing(world)
    client = world.client()
    inbox = client.request(b"$JS.API.DIRECT.GET.S", json.dumps(DIRECT[what]).encode())
    world.settle()
    assert inbox.messages
    assert b"forged" not in hearing.heard


@pytest.mark.parametrize("header", HEADERS)
def test_a_headers_value_does_not_become_a_subject(header: str, world: World) -> None:
    hearing = Hearing(world)
    headers = {"Nats-Schedule": "@at 1970-01-01T00:00:00Z", "Nats-Schedule-Target": "s.b"}
    client = world.client()
    client.put(b"s.timer", b"x", **{**headers, header: HEADERS[header]})
    world.advance(2)
    assert {subject.split(b" ")[0] for subject in hearing.heard} == set(hearing.heard)


def written_by_somebody_else(
    directory: Path, monkeypatch: pytest.MonkeyPatch, store: Callable[[Client], None]
) -> World:
    """A broker on a store of which each record is whole, and one has more lines in its subject."""
    with monkeypatch.context() as patch:
        patch.setattr(index, "carried", lambda subject: subject)
        world = World(FileStorage(directory, threaded=False))
        client = world.client()
        client.stream(allow_direct=True)
        client.put(b"s.a", b"a")
        store(client)
        world.tick()
        world.hub.shutdown()
        world.storage.close()
    return World(FileStorage(directory, threaded=False))


def test_what_lies_in_the_store_is_shown_on_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def put(client: Client) -> None:
        stream = client.world.streams["S"]
        stream.staging.stage(b"s." + EVIL.encode(), b"", b"m")

    world = written_by_somebody_else(tmp_path, monkeypatch, put)
    hearing = Hearing(world)
    client = world.client()
    client.consumer()
    got = client.pull({"batch": 2, "no_wait": True}).take()
    shown = b"s.x__MSG_forged_1_1__z"
    assert [(each.subject, each.payload) for each in got[:2]] == [(b"s.a", b"a"), (shown, b"m")]
    (direct,) = client.request(b"$JS.API.DIRECT.GET.S", b'{"seq":2}').take()
    assert b"Nats-Subject: %b\r\n" % shown in direct.headers
    assert client.api("STREAM.MSG.GET.S", {"seq": 2})["message"]["subject"] == shown.decode()
    assert client.api("STREAM.PURGE.S", {"filter": shown.decode()})["purged"] == 1
    assert b"forged" not in hearing.heard
    findings: list[Finding] = world.storage.report if isinstance(world.storage, FileStorage) else []
    assert [each.what for each in findings if each.stream == "S"] == [
        "subjects that no protocol line can carry are shown with _ for such bytes"
    ]
    world.storage.close()


@pytest.mark.parametrize(
    ("subject", "word"),
    [
        (b"a.b", True),
        (b"a.\x01", True),  # as publishers may
        (b"a.\xff", True),
        (b"a*.b>", True),
        (b"a.*", False),
        (b"a.>", False),
        (b"a..b", False),
        (b".a", False),
        (b"a.", False),
        (b"", False),
        (b"a b", False),
        (b"a\tb", False),
        (b"a\r", False),
        (b"a\nb", False),
    ],
)
def test_one_rule_says_what_a_line_can_carry(subject: bytes, word: bool) -> None:
    assert is_carried(subject) is word
    assert not is_valid_subject(subject) or word
    frame = Parser.for_client().feed(b"MSG %b 1 0\r\n\r\n" % carried(subject))
    if word:
        assert frame == [(frames.MSG, subject, b"1", b"", b"", b"")]
        assert carried(subject) is subject
        assert Parser.for_server().feed(encode.pub(subject, b"", b"", b""))[0][1] == subject
    else:
        assert len(frame) == 1
