"""What the store cannot read now: nobody passes it over, who asks is told, and the neighbours are served."""

from __future__ import annotations

import errno
import json
import random
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.core.jetstream.headers import expires_at
from headrace.broker.core.jetstream.stream import expiry, removing
from headrace.broker.core.jetstream.tick import removals
from headrace.broker.store import FileStorage
from jetstream_world import Client, Inbox, World

ROOT = "/store"


class Disk:
    """A world on a disk, whose sealed segments of stream S can be made unreadable."""

    def __init__(self) -> None:
        self.fs = FaultFS()
        self.said: list[str] = []
        self.world = World(self.opened(), JetStreamOptions(warn=self.said.append))

    def opened(self) -> FileStorage:
        return FileStorage(
            ROOT,
            fs=self.fs,
            clock=None if not hasattr(self, "world") else self.world.clock,
            threaded=False,
            segment_bytes=8192,
            cache_bytes=0,
            salts=random.Random(3),
        )

    def restart(self, error: int = 0) -> None:
        """``error`` comes when the stream is open, and before anything of its messages was read."""

        def reopen() -> FileStorage:
            storage = self.opened()
            storage.open_stream("S", expires_at)
            self.bar(error)
            return storage

        self.world.restart(reopen)

    def bar(self, error: int) -> None:
        paths = [path for path in self.fs.files() if "/streams/S/" in path and ".seg" in path]
        for path in paths[:-1]:
            self.fs.bar(path, error)


def filled(count: int = 150, **config: Any) -> Disk:
    disk = Disk()
    client = disk.world.client()
    client.stream(allow_direct=True, **config)
    client.stream("N")
    for name in "SN":
        client.consumer("C", name)
    for number in range(count):
        client.publish(b"s.%d" % (number % 3), b"%d " % number + b"x" * 100)
    client.put(b"n.x", b"near")
    disk.restart()
    return disk


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.EACCES])
def test_a_consumer_stays_where_it_is_until_it_can_read_on(error: int) -> None:
    disk = filled()
    world, client = disk.world, disk.world.client()
    disk.bar(error)
    inbox = client.pull({"batch": 1000, "expires": 10**12})
    near = client.pull({"batch": 1}, stream="N")
    assert [message.payload for message in near.take()] == [b"near"]
    world.advance(30)
    assert inbox.take() == []
    assert len(disk.said) == 1, disk.said
    (said,) = disk.said
    assert "'C' of stream 'S'" in said
    assert f"/streams/S/0000000001.seg: {OSError(error, '').strerror or ''}" in said
    assert f"errno {error}" in said
    world.advance(40)
    assert len(disk.said) == 2  # once a minute
    assert world.storage.open_stream("S").messages == 150
    tries = len(disk.fs.failed_reads)
    assert tries < 100  # pauses grow
    disk.bar(0)
    world.advance(11)
    assert [message.stream_seq for message in inbox.take()] == list(range(1, 151))
    assert "can be read again" in disk.said[-1]


def test_who_asks_for_it_is_told_and_may_ask_again() -> None:
    disk = filled()
    client = disk.world.client()
    disk.bar(errno.EIO)
    answer = client.api("STREAM.MSG.GET.S", {"seq": 3})
    assert (answer["error"]["code"], answer["error"]["err_code"]) == (500, 10051)
    assert "/streams/S/0000000001.seg: Input/output error" in answer["error"]["description"]
    (direct,) = client.request(b"$JS.API.DIRECT.GET.S", b'{"seq":3}').take()
    assert direct.status.startswith("500 reading")
    (at_once,) = client.pull({"batch": 1, "no_wait": True}).take()
    assert at_once.status.startswith("500 ")
    assert client.api("STREAM.PURGE.S", {"filter": "s.1"})["error"]["code"] == 500
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 150
    (refused,) = client.request(b"s.0", b"x", Nats_Expected_Last_Subject_Sequence="1").take()
    assert b'"error"' in refused.payload
    assert not client.errors
    disk.bar(0)
    assert client.api("STREAM.MSG.GET.S", {"seq": 3})["message"]["seq"] == 3
    (direct,) = client.request(b"$JS.API.DIRECT.GET.S", b'{"seq":3}').take()
    assert direct.header["Nats-Sequence"] == "3"
    disk.world.advance(1)
    (at_once,) = client.pull({"batch": 1, "no_wait": True}).take()
    assert at_once.stream_seq == 1
    assert client.api("STREAM.PURGE.S", {"filter": "s.1"})["purged"] == 50


@pytest.mark.parametrize("retention", ["workqueue", "interest"])
def test_what_is_acknowledged_leaves_when_it_can_be_read(retention: str) -> None:
    disk = filled(retention=retention)
    messages = disk.world.client().pull({"batch": 100, "expires": 10**9}).take()
    assert len(messages) == 100
    disk.restart(errno.EIO)  # the index of what was delivered is not in memory any more
    client = disk.world.client()
    for message in messages:
        client.publish(message.reply, b"+ACK")
    assert disk.said
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 150
    assert client.put(b"n.x", b"near")["seq"] == 2
    disk.bar(0)
    disk.world.advance(11)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 50
    inbox = client.pull({"batch": 100, "expires": 10**9})
    assert [message.stream_seq for message in inbox.take()] == list(range(101, 151))


def test_a_consumer_stays_while_what_it_acknowledged_cannot_leave() -> None:
    disk = filled(retention="workqueue")
    client = disk.world.client()
    client.consumer(inactive_threshold=5 * 10**9)
    messages = client.pull({"batch": 100, "expires": 10**9}).take()
    disk.restart(errno.EIO)
    client = disk.world.client()
    for message in messages:
        client.publish(message.reply, b"+ACK")
    assert "error" in client.api("CONSUMER.DELETE.S.C")
    disk.world.advance(30)
    assert client.api("CONSUMER.NAMES.S")["consumers"] == ["C"]
    disk.bar(0)
    disk.world.advance(11)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 50
    assert not client.api("CONSUMER.NAMES.S")["consumers"]  # it was as inactive as before


def test_limits_wait_for_what_they_have_to_read() -> None:
    disk = filled(max_msgs_per_subject=50, discard="old")
    disk.restart(errno.EIO)
    client = disk.world.client()
    assert client.put(b"s.0", b"new")["seq"] == 151
    assert client.put(b"n.x", b"near")["seq"] == 2
    info = client.api("STREAM.INFO.S")
    assert info["state"]["messages"] == 151
    disk.bar(0)
    disk.world.advance(11)
    state = client.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"]) == (150, 2)


def test_nothing_expires_while_it_is_not_known_what_never_does() -> None:
    disk = Disk()
    client = disk.world.client()
    client.stream(max_age=60 * 10**9, allow_msg_ttl=True)
    client.put(b"s.keep", b"for ever", Nats_TTL="never")
    for number in range(150):
        client.publish(b"s.%d" % (number % 3), b"x" * 100)
    disk.restart(errno.EIO)
    assert disk.said
    client = disk.world.client()
    disk.world.advance(120)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 151
    disk.bar(0)
    disk.world.advance(12)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1
    assert client.api("STREAM.MSG.GET.S", {"last_by_subj": "s.keep"})["message"]["seq"] == 1


def test_what_has_expired_by_itself_goes_when_it_can_be_read() -> None:
    disk = Disk()
    client = disk.world.client()
    client.stream(allow_msg_ttl=True, duplicate_window=0)
    for number in range(150):
        client.put(b"s.%d" % (number % 3), b"x" * 100, Nats_TTL="30s")
    client.put(b"s.0", b"stays")
    disk.restart(errno.EIO)
    client = disk.world.client()
    disk.world.advance(60)
    assert disk.said
    assert client.api("STREAM.INFO.S")["state"]["messages"] > 100
    disk.bar(0)
    disk.world.advance(12)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 1


def test_what_has_expired_and_leaves_a_marker_goes_when_it_can_be_read() -> None:
    disk = Disk()
    client = disk.world.client()
    client.stream(allow_msg_ttl=True, subject_delete_marker_ttl=20 * 10**9)
    for number in range(150):
        client.put(b"s.%d" % (number % 3), b"x" * 100, Nats_TTL="30s")
    disk.restart()
    disk.bar(errno.EIO)
    assert isinstance(disk.world.storage, FileStorage)
    disk.world.storage._cache.blocks._blocks.clear()  # what the start has read
    client = disk.world.client()
    disk.world.advance(60)
    assert disk.said
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 150
    disk.bar(0)
    disk.world.advance(12)
    state = client.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (3, 151, 153)


def test_schedules_go_on_when_they_can_be_read() -> None:
    disk = Disk()
    client = disk.world.client()
    client.stream(allow_msg_schedules=True, duplicate_window=0)
    client.put(b"s.plan", Nats_Schedule="@every 10s", Nats_Schedule_Target="s.made")
    for number in range(150):
        client.publish(b"s.%d" % (number % 3), b"x" * 100)
    disk.restart(errno.EIO)
    client = disk.world.client()
    disk.world.advance(30)
    assert disk.said
    assert "s.made" not in subjects_of(client)
    disk.bar(0)
    disk.world.advance(30)
    assert subjects_of(client)["s.made"] >= 1


def subjects_of(client: Client) -> dict[str, int]:
    found: dict[str, int] = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"][
        "subjects"
    ]
    return found


def test_an_id_that_may_have_been_stored_is_refused_until_that_is_known() -> None:
    disk = Disk()
    client = disk.world.client()
    client.stream()
    for number in range(150):
        client.put(b"s.%d" % (number % 3), b"x" * 100, Nats_Msg_Id=f"id{number}")
    disk.restart(errno.EIO)
    client = disk.world.client()
    refused = client.put(b"s.0", b"again", Nats_Msg_Id="id1")
    assert (refused["error"]["code"], refused["error"]["err_code"]) == (500, 10051)
    assert client.put(b"s.0", b"without an id")["seq"] == 151
    disk.bar(0)
    disk.world.advance(11)
    assert client.put(b"s.0", b"again", Nats_Msg_Id="id1") == {
        "stream": "S",
        "seq": 2,
        "duplicate": True,
    }
    assert client.put(b"s.0", b"new", Nats_Msg_Id="new")["seq"] == 152


def test_where_copies_stand_is_read_before_they_go_on() -> None:
    disk = Disk()
    client = disk.world.client()
    client.stream("O")
    client.stream("S", subjects=[], sources=[{"name": "O"}])
    for number in range(150):
        client.publish(b"o.x", b"%d" % number + b"x" * 100)
    disk.world.advance(1)
    assert client.api("STREAM.INFO.S")["state"]["messages"] == 150
    disk.restart(errno.EIO)
    client = disk.world.client()
    client.put(b"o.x", b"last")
    disk.world.advance(5)
    disk.bar(0)
    disk.world.advance(15)
    state = client.api("STREAM.INFO.S")["state"]
    assert (state["messages"], state["last_seq"]) == (151, 151)


class TestLargeRemovals:
    """What does not fit into a turn waits in the middle, and goes on from there."""

    @pytest.fixture(autouse=True)
    def small_slices(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (removals, removing):
            monkeypatch.setattr(module, "SLICE", 2_000)
        monkeypatch.setattr(removing, "_LOOKS", 200)
        monkeypatch.setattr(expiry, "_READ", 50)
        monkeypatch.setattr(expiry, "_READS", 1)

    def bar_the_middle(self, disk: Disk) -> None:
        paths = [path for path in disk.fs.files() if "/streams/S/" in path and ".seg" in path]
        assert len(paths) > 14
        self.barred = paths[8:12]
        for path in self.barred:
            disk.fs.bar(path, errno.EIO)

    def mend(self, disk: Disk) -> None:
        for path in self.barred:
            disk.fs.bar(path, 0)
        disk.world.advance(12)
        disk.world.settle()

    def begin(self, client: Client, verb: str, document: object) -> Inbox:
        return client.request(f"$JS.API.{verb}".encode(), json.dumps(document).encode())

    def answer(self, inbox: Inbox) -> dict[str, Any]:
        (message,) = inbox.take()
        answer: dict[str, Any] = json.loads(message.payload)
        return answer

    def test_a_purge_that_has_begun_waits_and_goes_on(self) -> None:
        disk = filled(900)
        client = disk.world.client()
        self.bar_the_middle(disk)
        inbox = self.begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        disk.world.advance(5)
        disk.world.settle()
        assert not inbox.messages
        assert len(disk.said) == 1
        state = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]
        assert 600 < state["messages"] < 900
        assert state["messages"] - 600 == state["subjects"]["s.1"]
        assert state["num_deleted"] == 900 - state["messages"]
        assert client.put(b"s.1", b"new")["seq"] == 901
        assert client.put(b"n.x", b"near")["seq"] == 2
        tries = len(disk.fs.failed_reads)
        disk.world.advance(60)
        assert len(disk.fs.failed_reads) - tries < 100  # pauses grow
        self.mend(disk)
        assert self.answer(inbox)["purged"] == 300
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 601
        assert "can be read again" in disk.said[-1]

    def test_a_purge_that_cannot_begin_is_refused_and_removes_nothing(self) -> None:
        disk = filled(900)
        client = disk.world.client()
        paths = [path for path in disk.fs.files() if "/streams/S/" in path and ".seg" in path]
        disk.fs.bar(paths[1], errno.EIO)  # the first slice goes beyond the first segment
        error = client.api("STREAM.PURGE.S", {"filter": "s.1"})["error"]
        assert (error["code"], error["err_code"]) == (500, 10051)
        assert paths[1] in error["description"]
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 900
        assert not disk.said
        disk.fs.bar(paths[1], 0)
        assert client.api("STREAM.PURGE.S", {"filter": "s.1"})["purged"] == 300

    def test_a_purge_that_waits_ends_with_its_stream(self) -> None:
        disk = filled(900)
        client = disk.world.client()
        self.bar_the_middle(disk)
        inbox = self.begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        disk.world.advance(5)
        disk.world.settle()
        assert not inbox.messages
        assert client.api("STREAM.DELETE.S")["success"]
        disk.world.settle()
        assert "error" in self.answer(inbox)
        disk.world.advance(30)
        client.stream()
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 0

    def test_an_update_is_answered_and_its_limits_are_met_when_they_can_be(self) -> None:
        disk = filled(900)
        client = disk.world.client()
        self.bar_the_middle(disk)
        limit = {"max_msgs_per_subject": 10, "allow_direct": True}
        config = {"name": "S", "subjects": ["s.>"], **limit}
        inbox = self.begin(client, "STREAM.UPDATE.S", config)
        disk.world.advance(1)
        disk.world.settle()
        assert 30 < self.answer(inbox)["state"]["messages"] < 900
        assert client.put(b"s.1", b"new")["seq"] == 901
        assert client.put(b"n.x", b"near")["seq"] == 2
        disk.world.advance(20)
        assert 30 < client.api("STREAM.INFO.S")["state"]["messages"] < 900
        self.mend(disk)
        subjects = client.api("STREAM.INFO.S", {"subjects_filter": ">"})["state"]["subjects"]
        assert set(subjects.values()) == {10}

    def test_a_rollup_is_acknowledged_and_carried_out_when_it_can_be(self) -> None:
        disk = filled(900, allow_rollup_hdrs=True)
        client = disk.world.client()
        self.bar_the_middle(disk)
        inbox = client.request(b"s.1", b"new", Nats_Rollup="sub")
        disk.world.advance(1)
        disk.world.settle()
        assert self.answer(inbox)["seq"] == 901
        assert client.put(b"s.1", b"after it")["seq"] == 902
        assert 602 < client.api("STREAM.INFO.S")["state"]["messages"] < 902
        self.mend(disk)
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 602

    def test_a_rollup_that_the_disk_refuses_is_not_carried_out_later(self) -> None:
        disk = filled(900, allow_rollup_hdrs=True)
        client = disk.world.client()
        disk.bar(errno.EIO)
        disk.fs.fail(disk.fs.operations + 1, "enospc")
        inbox = client.request(b"s.1", b"new", Nats_Rollup="sub")
        disk.world.settle()
        assert "error" in self.answer(inbox)
        assert disk.said
        disk.bar(0)
        disk.world.advance(12)
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 900
        inbox = client.request(b"s.1", b"new", Nats_Rollup="sub")
        disk.world.settle()
        assert self.answer(inbox)["seq"] == 901
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 601

    def test_a_server_stops_while_a_removal_waits(self) -> None:
        disk = filled(900)
        client = disk.world.client()
        self.bar_the_middle(disk)
        self.begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        disk.world.advance(5)
        left = client.api("STREAM.INFO.S")["state"]["messages"]
        disk.world.hub.shutdown()
        disk.world.settle()
        for path in self.barred:
            disk.fs.bar(path, 0)
        disk.restart()
        client = disk.world.client()
        assert client.api("STREAM.INFO.S")["state"]["messages"] == left
        inbox = self.begin(client, "STREAM.PURGE.S", {"filter": "s.1"})
        disk.world.settle()
        assert self.answer(inbox)["purged"] == left - 600

    def test_what_nobody_needs_any_more_goes_when_it_can_be_read(self) -> None:
        disk = filled(900, retention="interest")
        client = disk.world.client()
        client.consumer("D", filter_subject="s.1")
        self.bar_the_middle(disk)
        assert client.api("CONSUMER.DELETE.S.C")["success"]
        disk.world.advance(5)
        disk.world.settle()
        assert 300 < client.api("STREAM.INFO.S")["state"]["messages"] < 900
        assert client.put(b"n.x", b"near")["seq"] == 2
        self.mend(disk)
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 300
        assert client.info("D")["num_pending"] == 300

    def test_what_is_too_old_goes_when_it_can_be_read(self) -> None:
        disk = filled(900, max_age=60 * 10**9, allow_msg_ttl=True)
        client = disk.world.client()
        client.put(b"s.keep", b"for ever", Nats_TTL="never")  # so every message is looked at
        self.bar_the_middle(disk)
        disk.world.advance(90)
        disk.world.settle()
        assert 1 < client.api("STREAM.INFO.S")["state"]["messages"] < 901
        assert client.put(b"n.x", b"near")["seq"] == 2
        self.mend(disk)
        assert client.api("STREAM.INFO.S")["state"]["messages"] == 1
