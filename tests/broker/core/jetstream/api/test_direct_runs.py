"""Direct gets of keys, together or alone, are answered as those that ask for more, byte for byte."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.api import direct_get
from headrace.broker.core.jetstream.api.direct_get import DirectGet
from headrace.errors import StoreReadError
from jetstream_world import Client, HeldStorage, Received, World, publication

BUCKET = {
    "max_msgs_per_subject": 1,
    "discard": "new",
    "allow_rollup_hdrs": True,
    "allow_direct": True,
    "allow_msg_ttl": True,
}


def filled(storage: HeldStorage | None = None) -> tuple[World, Client]:
    """A bucket of twenty keys: some written twice, some with headers, one removed."""
    world = World(storage)
    client = world.client()
    client.stream("S", subjects=["s.>"], **BUCKET)
    for number in range(20):
        client.put(b"s.%d" % number, b"old")
        if number % 3:
            client.put(b"s.%d" % number, b"x" * number)
        if number % 5 == 1:
            client.put(b"s.%d" % number, b"h", Trace=f"t{number}", Nats_Stream_Source="O 1 > > a")
    client.put(b"s.lie", b"", Nats_Sequence="7")
    client.api("STREAM.MSG.DELETE.S", {"seq": 1})
    return world, client


def answers(
    client: Client, keys: list[bytes], *, together: bool, body: bytes = b""
) -> list[Received]:
    inbox = client.subscribe(b"_INBOX.answers.*")
    lines = [
        publication(b"$JS.API.DIRECT.GET.S." + key, body, b"_INBOX.answers.%d" % at)
        for at, key in enumerate(keys)
    ]
    for chunk in [b"".join(lines)] if together else lines:
        client.send(chunk)
    client.world.settle()
    inbox.close()
    return inbox.take()


def plain_answers(client: Client, keys: list[bytes], body: bytes = b"") -> list[Received]:
    """The answers of the way that all requests can go."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DirectGet, "_answer_plain", lambda *asked: False)
        return answers(client, keys, together=False, body=body)


def answered(world: World) -> int:
    engine = world.hub.engine
    assert engine is not None
    return engine.direct_runs.answered


KEYS = [b"s.%d" % number for number in range(20)]


@pytest.mark.parametrize(
    ("keys", "in_runs"),
    [
        (KEYS, 20),
        ([*KEYS, b"s.none", b"s.lie", b"t"], 23),
        (KEYS[::-1], 20),
        ([b"s.3"] * 12, 12),
        (KEYS[:7], 0),
        ([*KEYS, b"s.*", *KEYS], 20),
        ([*KEYS[:9], b"s.\xc3\xbc", *KEYS[:9]], 9),
        ([*KEYS[:9], b"s.\xff", *KEYS[:9]], 9),
        ([b"s.>", *KEYS], 0),
    ],
)
def test_answers_do_not_depend_on_whether_requests_came_together(
    keys: list[bytes], in_runs: int
) -> None:
    world, client = filled()
    alone = plain_answers(client, keys)
    assert answers(client, keys, together=False) == alone
    assert answered(world) == 0
    assert answers(client, keys, together=True) == alone
    assert len(alone) == len(keys)
    assert answered(world) == (0 if World.pedantic else in_runs)


@given(
    st.lists(st.sampled_from([*KEYS, b"s.none", b"s.*", b"s", b"s.lie"]), min_size=8, max_size=40)
)
def test_any_keys_are_answered_as_one_by_one(keys: list[bytes]) -> None:
    _, client = filled()
    alone = plain_answers(client, keys)
    assert answers(client, keys, together=False) == alone
    assert answers(client, keys, together=True) == alone


def test_a_key_asked_for_alone_takes_the_short_way(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, plain = [], DirectGet._answer_plain

    def counted(api: DirectGet, subject: bytes, reply: bytes) -> bool:
        taken.append(plain(api, subject, reply))
        return taken[-1]

    monkeypatch.setattr(DirectGet, "_answer_plain", counted)
    _, client = filled()
    asked = [*KEYS, b"s.lie", b"s.none", b"s.*", b"s.\xff", b"s.\xc3\xbc"]
    assert len(answers(client, asked, together=False)) == len(asked)
    assert (
        taken
        == [each.payload != b"" for each in plain_answers(client, KEYS)] + [True] + [False] * 4
    )


def test_a_run_ends_where_its_bytes_are_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_get, "RUN_BYTES", 60)
    world, client = filled()
    alone = plain_answers(client, KEYS)
    assert answers(client, KEYS, together=True) == alone
    assert 0 < answered(world) < 15 or World.pedantic


def test_a_message_that_is_not_on_disk_is_answered_when_it_is() -> None:
    storage = HeldStorage()
    world, client = filled(storage)
    storage.hold = True
    client.publish(b"s.5", b"new")
    early = answers(client, KEYS, together=True)
    assert [each.subject for each in early if each.subject.endswith(b".5")] == []
    inbox = client.subscribe(b"_INBOX.answers.*")
    storage.hold = False
    while storage.held:
        storage.release()
    world.tick()
    assert [each.payload for each in inbox.take()] == [b"new"]


def test_answers_to_several_receivers_keep_their_order() -> None:
    world, client = filled()
    heard = []
    for together in (False, True):
        inboxes = [client.subscribe(b"_INBOX.%b.>" % name) for name in (b"a", b"b", b"*")]
        replies = [b"_INBOX.%b.%d" % (b"abbc"[at % 4 : at % 4 + 1], at) for at in range(20)]
        lines = [
            publication(b"$JS.API.DIRECT.GET.S." + key, b"", reply)
            for key, reply in zip(KEYS, replies, strict=True)
        ]
        for chunk in [b"".join(lines)] if together else lines:
            client.send(chunk)
        heard.append([inbox.take() for inbox in inboxes])
        for inbox in inboxes:
            inbox.close()
    assert heard[0] == heard[1]
    assert [len(messages) for messages in heard[1]] == [5, 10, 20]
    assert answered(world) == (0 if World.pedantic else 20)


@pytest.mark.parametrize("body", [b"{}", b" ", b'{"no_hdr":true}', b'{"seq":3}', b"{"])
def test_requests_that_say_more_go_one_by_one(body: bytes) -> None:
    world, client = filled()
    alone = plain_answers(client, KEYS, body)
    assert answers(client, KEYS, together=False, body=body) == alone
    assert answers(client, KEYS, together=True, body=body) == alone
    assert answered(world) == 0


def test_a_stream_without_direct_gets_looks_as_if_nobody_were_there() -> None:
    world, client = filled()
    client.api(
        "STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"], **BUCKET, "allow_direct": False}
    )
    assert {each.status for each in answers(client, KEYS, together=True)} <= {"503"}
    assert answered(world) == 0


def test_what_cannot_be_read_now_is_said_by_each_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    world, client = filled()
    assert world.hub.engine is not None
    store = world.hub.engine.registry.streams["S"].store

    def fail(*asked: object) -> None:
        raise StoreReadError("reading 1.seg: Input/output error", "1.seg", 5)

    monkeypatch.setattr(store, "get", fail)
    monkeypatch.setattr(store, "rows_at", fail)
    found = answers(client, KEYS, together=True)
    assert answers(client, KEYS, together=False) == plain_answers(client, KEYS) == found
    told = [str(each.status) for each in found]
    assert len([text for text in told if text.startswith("500 reading 1.seg")]) == 19
    assert answered(world) == 0
