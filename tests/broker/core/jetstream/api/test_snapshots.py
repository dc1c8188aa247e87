"""Backups out: requests, chunks, flow control, ends. The table of scenarios compares with nats-server."""

from __future__ import annotations

import json

import pytest

from headrace.limits import SNAPSHOTS_MAX
from headrace.snapshots.archive import Unpacker
from headrace.snapshots.contents import Began, ConsumerContent, Ended, MessageContent
from jetstream_world import Client, Inbox, Received, World


def unpacked(chunks: list[bytes], stream: str = "S") -> list[object]:
    """Everything a backup says; raises if it is not whole."""
    unpacker = Unpacker(stream)
    found: list[object] = []
    for chunk in chunks:
        unpacker.feed(chunk)
        while (contents := unpacker.step()) is not None:
            found += contents
    unpacker.finish()
    return found


class Download:
    """A client that takes a backup."""

    def __init__(self, client: Client, stream: str = "S", **request: object) -> None:
        self.client = client
        self.inbox: Inbox = client.subscribe()
        document = {"deliver_subject": self.inbox.subject.decode(), **request}
        self.answer = client.api(f"STREAM.SNAPSHOT.{stream}", document)
        self.messages: list[Received] = []

    def take(self, answer: bool = True) -> list[Received]:
        """What came; each chunk is answered."""
        self.client.world.settle()
        came = self.inbox.take()
        self.messages += came
        for message in came:
            if answer and message.reply:
                self.client.publish(message.reply)
        return came

    def all(self) -> list[bytes]:
        while not self.over:
            assert self.take(), "nothing comes any more"
        assert self.messages[-1].status == "204"
        return [message.payload for message in self.messages]

    @property
    def over(self) -> bool:
        return bool(self.messages) and not self.messages[-1].payload


def full(messages: int = 300, size: int = 1000) -> Client:
    client = World().client()
    client.stream()
    for number in range(messages):
        client.put(b"s.%d" % (number % 3), b"x" * size, X="1")
    return client


def test_a_backup_is_the_stream() -> None:
    client = full(30)
    client.consumer(filter_subject="s.1")
    message = client.pull({"batch": 1}).take()[0]
    client.api("STREAM.MSG.DELETE.S", {"seq": 7})
    download = Download(client)
    assert download.answer["config"]["name"] == "S"
    assert download.answer["state"]["messages"] == 29
    began, consumer, *messages, ended = unpacked(download.all())
    assert began == Began(1, 30)
    assert isinstance(consumer, ConsumerContent)
    assert (consumer.name, consumer.config["filter_subject"]) == ("C", "s.1")
    assert consumer.state.delivered == (1, message.stream_seq)
    assert list(consumer.state.pending) == [message.stream_seq]
    sequences = [one.sequence for one in messages if isinstance(one, MessageContent)]
    assert sequences == [*range(1, 7), *range(8, 31)]
    assert ended == Ended(30, 1)


def test_a_consumer_whose_messages_left_undelivered_is_put_back() -> None:
    client = full(5)
    client.consumer()
    client.api("STREAM.PURGE.S", {"seq": 4})
    client.world.settle()
    assert client.info()["ack_floor"]["stream_seq"] == 3
    chunks = Download(client).all()
    config = client.api("STREAM.INFO.S")["config"]
    client.api("STREAM.DELETE.S")
    began = client.api("STREAM.RESTORE.S", {"config": config, "state": {}})
    for chunk in chunks:  # the last one is empty and ends it
        inbox = client.request(began["deliver_subject"].encode(), chunk)
        client.world.settle()
    assert "error" not in json.loads(inbox.take()[0].payload)
    assert client.info()["ack_floor"]["stream_seq"] == 3
    (message,) = client.pull(b"1").take()
    assert message.stream_seq == 4


def test_no_consumers_and_nothing_published_meanwhile() -> None:
    client = full(3)
    client.consumer()
    download = Download(client, no_consumers=True, chunk_size=1024, window_size=1024)
    client.put(b"s.1", b"later")
    kinds = [type(content) for content in unpacked(download.all())]
    assert kinds == [Began, MessageContent, MessageContent, MessageContent, Ended]


def test_no_more_is_under_way_than_the_window() -> None:
    client = full()
    download = Download(client, chunk_size=4096, window_size=16384)
    assert len(download.take(answer=False)) == 4
    assert {len(message.payload) for message in download.messages} == {4096}
    assert not download.take()
    client.publish(download.messages[0].reply)
    assert len(download.take(answer=False)) == 1
    for message in download.messages[1:]:
        client.publish(message.reply)
    assert len(unpacked(download.all())) == 302


def test_a_slice_of_the_stream_is_read_in_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    client = full(500)
    store = client.world.streams["S"].store
    read = []
    rows = type(store).rows

    def counting(self: object, *given: object) -> object:
        found = rows(self, *given)  # type: ignore[arg-type]
        read.append(len(found))
        return found

    monkeypatch.setattr(type(store), "rows", counting)
    Download(client).all()
    assert sum(read) == 500
    assert max(read) <= 131


def test_who_does_not_answer_is_told_so() -> None:
    client = full()
    download = Download(client, chunk_size=1024, window_size=2048)
    download.take(answer=False)
    client.world.advance(4.9)
    assert not download.take(answer=False)
    client.world.advance(0.2)
    assert [message.status for message in download.take()] == ["408 No Flow Response"]


def test_nobody_listens() -> None:
    client = full(3)
    events = client.subscribe(b"$JS.EVENT.ADVISORY.STREAM.*.S")
    answer = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": "nobody"})
    assert "error" not in answer
    client.world.advance(2.1)
    kinds = [json.loads(message.payload) for message in events.take()]
    assert [kind["type"].rpartition(".")[2] for kind in kinds] == [
        "snapshot_create",
        "snapshot_complete",
    ]
    assert kinds[0]["state"]["messages"] == 3
    assert kinds[1]["error"] == "no interest"
    assert kinds[1]["client"]["id"] == client.session.client_id


def test_who_goes_away_ends_it() -> None:
    client = full()
    other = client.world.client()
    events = client.subscribe(b"$JS.EVENT.ADVISORY.STREAM.SNAPSHOT_COMPLETE.S")
    download = Download(other, chunk_size=1024, window_size=2048)
    download.take(answer=False)
    download.inbox.close()
    client.world.settle()
    assert json.loads(events.take()[0].payload)["error"] == "no interest"


def test_a_deleted_stream_ends_it() -> None:
    client = full()
    download = Download(client, chunk_size=1024, window_size=2048)
    client.api("STREAM.DELETE.S")
    while not download.over:
        download.take()
    assert download.messages[-1].status == "500 stream was deleted"


def test_too_many_at_once() -> None:
    client = full()
    for _ in range(SNAPSHOTS_MAX):
        Download(client, chunk_size=1024, window_size=1024)
    answer = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": "d"})
    assert answer["error"]["err_code"] == 10064


@pytest.mark.parametrize("subject", ["", "a.>", "a b"])
def test_where_to(subject: str) -> None:
    client = full(1)
    answer = client.api("STREAM.SNAPSHOT.S", {"deliver_subject": subject})
    assert answer["error"]["err_code"] == 10015


def test_an_empty_stream() -> None:
    client = World().client()
    client.stream(first_seq=50)
    assert unpacked(Download(client).all()) == [Began(50, 49), Ended(49, 50)]
