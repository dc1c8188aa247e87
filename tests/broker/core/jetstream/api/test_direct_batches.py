"""Batches of direct gets, answered in pieces, are what a reader makes who takes message by message."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.api import direct_get
from headrace.errors import StoreReadError
from headrace.subjects import matches
from jetstream_world import Client, HeldStorage, Received, World, publication

GET = b"$JS.API.DIRECT.GET.S"


class Put(NamedTuple):
    """A message that is stored."""

    subject: bytes
    payload: bytes
    headers: dict[str, str]


def filled(puts: list[Put], storage: HeldStorage | None = None) -> tuple[World, Client]:
    world = World(storage)
    client = world.client()
    client.stream("S", subjects=["s.>"], allow_direct=True)
    for put in puts:
        client.put(put.subject, put.payload, **put.headers)
    return world, client


def asked(client: Client, **request: Any) -> list[Received]:
    """The answers without where they went to."""
    inbox = client.request(GET, json.dumps(request).encode())
    client.world.settle()
    inbox.close()
    return [each._replace(subject=b"") for each in inbox.take()]


def in_pieces_of_one(client: Client, patch: pytest.MonkeyPatch, **request: Any) -> list[Received]:
    """The same, each message read and sent by itself."""
    with patch.context() as context:
        context.setattr(direct_get, "_READ", 1)
        return asked(client, **request)


def block_of(put: Put) -> bytes:
    """The header block that is stored."""
    return publication(b"s", b"", **put.headers).split(b"\r\n", 1)[1][:-2] if put.headers else b""


SUBJECTS = [b"s.%d" % number for number in range(6)]
HEADERS: list[dict[str, str]] = [
    {},
    {"Trace": "t"},
    {"Nats_Sequence": "7", "Nats_Stream": "lie"},
    {"Headrace_Version": "sink 3 17 ab 5 0.5 cd"},
]
puts = st.lists(
    st.builds(Put, st.sampled_from(SUBJECTS), st.binary(max_size=30), st.sampled_from(HEADERS)),
    max_size=12,
)
wanted = st.lists(
    st.sampled_from([*(each.decode() for each in SUBJECTS), "s.none", "s.*", "s.>", "t.>"]),
    min_size=1,
    max_size=8,
)
limits = st.fixed_dictionaries(
    {},
    optional={
        "batch": st.integers(0, 6),
        "max_bytes": st.integers(0, 90),
        "seq": st.integers(0, 8),
        "up_to_seq": st.integers(0, 12),
    },
)


@given(puts=puts, wanted=wanted, limits=limits)
def test_the_last_of_many_subjects_are_those_that_a_reader_of_all_finds(
    puts: list[Put], wanted: list[str], limits: dict[str, int]
) -> None:
    _, client = filled(puts)
    ceiling = min(limits.get("up_to_seq") or len(puts), len(puts))
    lasts = {put.subject: seq for seq, put in enumerate(puts[:ceiling], 1)}
    found = sorted(
        seq
        for subject, seq in lasts.items()
        if any(matches(each.encode(), subject) for each in wanted) and seq >= limits.get("seq", 0)
    )
    answers = asked(client, multi_last=wanted, **limits)
    *messages, end = answers
    if not found:
        assert [end.status, messages] == ["404 No Results", []]
        return
    left = limits.get("max_bytes") or 1000
    sent: list[int] = []
    for seq in found[: limits.get("batch") or 1000]:
        alone, stored = asked(client, seq=seq)[0], puts[seq - 1]
        header = messages[len(sent)].header
        assert header.pop("Nats-Num-Pending") == str(len(found) - len(sent) - 1)
        assert header.pop("Nats-Last-Sequence") == str(sent[-1] if sent else 0)
        assert (header, messages[len(sent)].payload) == (alone.header, alone.payload)
        sent.append(seq)
        left -= len(stored.subject) + len(stored.payload) + len(block_of(stored))
        if left <= 0:
            break
    assert len(messages) == len(sent)
    assert end.status == "204 EOB"
    assert end.header["Nats-Num-Pending"] == str(len(found) - len(sent))
    assert end.header["Nats-Last-Sequence"] == str(sent[-1])
    assert end.header["Nats-UpTo-Sequence"] == str(ceiling)


@given(puts=puts, wanted=wanted, limits=limits, ranged=st.booleans(), bare=st.booleans())
def test_pieces_of_any_length_give_the_same_answers(
    puts: list[Put], wanted: list[str], limits: dict[str, int], ranged: bool, bare: bool
) -> None:
    _, client = filled(puts)
    request: dict[str, Any] = {**limits, "no_hdr": bare}
    if ranged:
        start = {"batch": limits.get("batch") or 3, "seq": limits.get("seq") or 1}
        request = {**request, **start, "next_by_subj": wanted[0]}
    else:
        request["multi_last"] = wanted
    whole = asked(client, **request)
    assert whole
    with pytest.MonkeyPatch.context() as patch:
        assert in_pieces_of_one(client, patch, **request) == whole


def test_a_subject_whose_last_is_not_on_disk_is_answered_with_the_one_before() -> None:
    storage = HeldStorage()
    _, client = filled([Put(b"s.1", b"old", {}), Put(b"s.2", b"b", {})], storage)
    storage.hold = True
    client.publish(b"s.1", b"new")
    *messages, end = asked(client, multi_last=["s.1", "s.2"])
    assert [each.payload for each in messages] == [b"old", b"b"]
    assert end.header["Nats-UpTo-Sequence"] == "2"


@pytest.mark.parametrize("bad", ["", "s..a", "s.a b", ".", "s.a.", "a\x7f"])
def test_one_subject_that_is_none_is_a_bad_request(bad: str) -> None:
    _, client = filled([Put(b"s.1", b"a", {})])
    for wanted in ([bad], ["s.1", bad], [bad, "s.1"], ["s.1", bad, "s.2"]):
        (answer,) = asked(client, multi_last=wanted)
        assert answer.status == "408 Bad Request", wanted


def test_a_piece_that_cannot_be_read_ends_the_batch_behind_what_was_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, client = filled([Put(each, b"a", {}) for each in SUBJECTS])
    monkeypatch.setattr(direct_get, "_READ", 2)
    store = world.streams["S"].store
    read = store.rows_at

    def fail(sequences: list[int], max_bytes: int) -> object:
        if 3 in sequences:
            raise StoreReadError("reading 1.seg: Input/output error", "1.seg", 5)
        return read(sequences, max_bytes)

    monkeypatch.setattr(store, "rows_at", fail)
    *messages, end = asked(client, multi_last=[each.decode() for each in SUBJECTS])
    assert [each.header["Nats-Subject"] for each in messages] == ["s.0", "s.1"]
    assert end.status.startswith("500 reading 1.seg")


def test_what_is_too_much_for_one_reading_is_read_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_get, "_READ_BYTES", 10)
    _, client = filled([Put(each, b"a" * 20, {}) for each in SUBJECTS])
    *messages, _ = asked(client, multi_last=[each.decode() for each in SUBJECTS])
    assert [each.header["Nats-Sequence"] for each in messages] == list("123456")
