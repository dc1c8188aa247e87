"""Records of the metadata journal are lost, or all of it: streams and consumers come back all the same."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from crash.flip_world import open_store, owed, registry_of
from faultfs import FaultFS, PowerCut
from headrace.broker.core.accounts.storage import AccountStorage
from headrace.broker.core.monitor.server import jsz
from headrace.broker.store import FileStorage
from headrace.broker.store.format.entries import (
    APPEND,
    DELETE,
    FILE_HEADER_BYTES,
    PUT,
    decode_file_header,
    key_and_value,
)
from headrace.broker.store.format.record import HEAD_BYTES, scan
from headrace.broker.store.meta.journal import MAGIC
from jetstream_world import World

JOURNAL = "/s/meta/journal-00000001"


class Place:
    """A broker on a disk whose files can be damaged between two lives."""

    def __init__(self) -> None:
        self.world = World(open_store(FaultFS()))
        self.client = self.world.client()

    @property
    def fs(self) -> FaultFS:
        return self.world.storage._fs  # type: ignore[union-attr, return-value]

    @property
    def storage(self) -> FileStorage:
        assert isinstance(self.world.storage, FileStorage)
        return self.world.storage

    @property
    def report(self) -> list[str]:
        return [finding.what for finding in self.storage.report]

    def stop(self) -> FaultFS:
        """Everything is on the disk, and the process is gone."""
        self.world.advance(1)
        return self.fs.kill()

    def start(self, fs: FaultFS) -> None:
        self.world = World(open_store(fs))
        self.client = self.world.client()

    def deliver(self, count: int, name: str = "C", stream: str = "S") -> list[Any]:
        inbox = self.client.pull({"batch": count, "no_wait": True}, name, stream)
        return [message for message in inbox.take() if message.reply]

    def owed(self, key: str) -> set[int]:
        stream, _, name = key.partition("/")
        return owed(registry_of(self.world).streams[stream].consumers[name])


def hit(fs: FaultFS, key: str, kind: int, which: int = 0) -> None:
    """Flip a bit in a record of the journal: of this key and kind, the one with this number."""
    data = fs.content(JOURNAL)
    _, salt = decode_file_header(MAGIC, data, JOURNAL) or (0, 0)
    places = [
        item.offset
        for item in scan(data, FILE_HEADER_BYTES, len(data), salt)
        if item.kind == kind
        and key_and_value(data, item.offset, item.size, item.subject_len)[0] == key
    ]
    fs.flip_bit(JOURNAL, 8 * (places[which] + HEAD_BYTES))


def without_copies(fs: FaultFS) -> FaultFS:
    for path in fs.files():
        if path.endswith("/spare"):
            fs.unlink(path)
    return fs


def consumed(*, messages: int = 20) -> Place:
    """A stream and a consumer that has acknowledged some messages out of order, in several flushes."""
    place = Place()
    place.client.stream()
    place.client.consumer()
    for number in range(messages):
        place.client.put(b"s.x", b"%d" % number)
    for taken in range(4):
        received = place.deliver(4)
        for message in received[:2] if taken else received[2:]:
            place.client.ack(message)
        place.world.advance(0.2)
    return place


def test_a_lost_snapshot_of_a_consumer_is_in_the_copy_and_the_deltas_follow_it() -> None:
    place = consumed()
    before = place.owed("S/C")
    fs = place.stop()
    hit(fs, "state/S/C", PUT)
    place.start(fs)
    assert place.owed("S/C") == before
    assert any("'state/S/C'" in what for what in place.report)


def test_without_a_copy_deltas_behind_a_lost_snapshot_tell_what_is_over() -> None:
    place = consumed()
    before = place.owed("S/C")
    fs = without_copies(place.stop())
    hit(fs, "state/S/C", PUT)
    place.start(fs)
    assert place.owed("S/C") >= before
    assert any("'C' is lost" in what for what in place.report)
    assert place.deliver(50)


@pytest.mark.parametrize("which", [0, 1, 2, -1])
def test_a_lost_delta_means_redelivery_and_never_a_skip(which: int) -> None:
    place = consumed()
    before = place.owed("S/C")
    fs = place.stop()
    hit(fs, "state/S/C", APPEND, which)
    place.start(fs)
    now = place.owed("S/C")
    assert now >= before
    assert now <= set(range(1, 21))
    received = set()
    for _ in range(6):
        received |= {message.stream_seq for message in place.deliver(50)}
        place.world.advance(31)
    assert received == now
    fs = place.stop()  # and what was made of it lasts
    place.start(fs)
    assert place.owed("S/C") == now
    assert place.report == []


def test_a_lost_record_of_a_stream_is_in_the_copy() -> None:
    place = consumed()
    place.client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>", "t"], "max_msgs": 99})
    fs = place.stop()
    hit(fs, "stream/S", PUT, -1)
    hit(fs, "stream/S", PUT, 0)
    place.start(fs)
    assert place.client.api("STREAM.INFO.S")["config"]["max_msgs"] == 99
    assert any("'stream/S'" in what for what in place.report)


@pytest.mark.parametrize("key", ["stream/S", "consumer/S/C", "state/S/C"])
@pytest.mark.parametrize("again", [False, True])
def test_a_lost_record_of_a_deletion_brings_nothing_back(key: str, again: bool) -> None:
    place = consumed()
    place.client.api("STREAM.DELETE.S")
    if again:
        place.client.stream()
    fs = place.stop()
    hit(fs, key, DELETE)
    place.start(fs)
    assert ("S" in registry_of(place.world).streams) is again
    assert place.report
    if again:
        place.client.api("STREAM.DELETE.S")
    assert "error" not in place.client.stream()
    assert place.client.info()["error"]["err_code"] == 10014


def test_a_stream_whose_deletion_only_the_copy_of_later_knows_stays_deleted() -> None:
    place = Place()
    place.client.stream("A", subjects=["s"])
    place.client.stream("B", subjects=["b"])
    place.world.advance(1)
    before = place.fs.content(JOURNAL)
    place.client.api("STREAM.DELETE.A")
    place.client.stream("C", subjects=["s"])
    place.storage.meta.keep_beside("much", "B")
    size = 0
    while size <= (size := len(place.fs.content("/s/meta/spare"))):
        place.storage.meta.put("much", bytes(100_000))
        place.storage.flush(lambda error: None)
    fs = place.stop()
    fs.overwrite(JOURNAL, before)
    place.start(fs)
    assert place.client.api("STREAM.NAMES")["streams"] == ["B", "C"]
    assert any("the deletion of 'A'" in what for what in place.report)
    assert place.client.put(b"s", b"x")["stream"] == "C"
    place.start(place.stop())
    assert (place.client.api("STREAM.NAMES")["streams"], place.report) == (["B", "C"], [])


def test_a_lost_record_of_a_consumers_deletion_does_not_bring_it_back() -> None:
    for key in ("consumer/S/C", "state/S/C"):
        for old in (False, True):
            place = consumed()
            place.client.api("CONSUMER.DELETE.S.C")
            fs = place.stop()
            hit(fs, key, DELETE)
            place.start(without_copies(fs) if old else fs)
            assert place.client.info()["error"]["err_code"] == 10014, (key, old)
            assert place.report


@pytest.mark.parametrize("how", ["removed", "emptied", "zeroed", "header"])
def test_a_missing_journal_is_filled_from_the_copies_and_said(how: str) -> None:
    place = consumed()
    place.client.stream("KV_b", subjects=["$KV.b.>"], max_msgs_per_subject=1)
    fs = place.stop()
    content = fs.content(JOURNAL)
    if how == "removed":
        fs.unlink(JOURNAL)
    else:
        damaged = {
            "emptied": b"",
            "zeroed": bytes(len(content)),
            "header": bytes(128) + content[128:],
        }
        fs.overwrite(JOURNAL, damaged[how])
    place.start(fs)
    names = place.client.api("STREAM.NAMES")["streams"]
    assert names == ["KV_b", "S"]
    assert place.client.api("STREAM.INFO.KV_b")["config"]["max_msgs_per_subject"] == 1
    assert place.owed("S/C") == set(range(1, 21))  # as it was made: nothing is skipped
    assert any("journal" in what for what in place.report)
    assert jsz(place.world.hub)["store_findings"] == len(place.report)
    place.start(place.stop())
    assert (place.client.api("STREAM.NAMES")["streams"], place.report) == (names, [])


def test_a_journal_that_went_with_its_streams_is_missed() -> None:
    place = consumed()
    place.client.api("STREAM.DELETE.S")
    fs = place.stop()
    fs.unlink(JOURNAL)
    place.start(fs)
    assert any("no readable metadata journal" in what for what in place.report)


def test_a_stream_that_was_put_there_is_adopted_with_its_consumers() -> None:
    """A directory from another store, or from a backup: its copy tells what it is."""
    place = consumed()
    source = place.stop()
    place = Place()
    place.client.stream("T")
    fs = place.stop()
    fs.mkdir("/s/streams/S")
    for path in source.files():
        if path.startswith("/s/streams/S/"):
            fs.close(fs.open(path, create=True))
            fs.overwrite(path, source.content(path))
    place.start(fs)
    assert place.client.api("STREAM.NAMES")["streams"] == ["S", "T"]
    assert place.owed("S/C") == set(range(1, 21))
    assert any("'stream/S'" in what for what in place.report)
    place.start(place.stop())
    assert (place.client.info()["name"], place.report) == ("C", [])


def test_a_copy_that_missed_a_deletion_brings_nothing_back() -> None:
    place = consumed()
    place.client.consumer("D")
    place.world.advance(1)
    before = place.fs.content("/s/streams/S/spare")
    place.client.api("CONSUMER.DELETE.S.D")
    fs = place.stop()
    fs.overwrite("/s/streams/S/spare", before)
    place.start(fs)
    assert place.client.api("CONSUMER.NAMES.S")["consumers"] == ["C"]
    fs = place.stop()
    fs.unlink(JOURNAL)  # the copy has been made anew by now
    place.start(fs)
    assert place.client.api("CONSUMER.NAMES.S")["consumers"] == ["C"]


def test_a_damaged_copy_is_made_anew_and_said() -> None:
    place = consumed()
    fs = place.stop()
    content = fs.content("/s/streams/S/spare")
    fs.flip_bit("/s/streams/S/spare", 8 * content.index(b"consumer/S/C"))
    place.start(fs)
    assert [what for what in place.report if "copy of metadata is damaged" in what]
    fs = place.stop()
    fs.unlink(JOURNAL)
    place.start(fs)
    assert place.client.info()["name"] == "C"


def test_a_copy_beside_the_journal_is_left_alone_and_named() -> None:
    place = consumed()
    before = place.owed("S/C")
    fs = place.stop()
    for name in (JOURNAL + ".bak", "/s/meta/notes", "/s/streams/S/old.seg"):
        fs.close(fs.open(name, create=True))
        fs.overwrite(name, fs.content(JOURNAL))
    place.start(fs)
    assert place.owed("S/C") == before
    assert sorted(finding.path for finding in place.storage.report) == [
        JOURNAL + ".bak",
        "/s/meta/notes",
        "/s/streams/S/old.seg",
    ]
    assert JOURNAL in place.fs.files()


def lost() -> Place:
    """A stream whose configuration is lost in both places."""
    place = consumed()
    fs = without_copies(place.stop())
    hit(fs, "stream/S", PUT)
    place.start(fs)
    return place


def test_a_stream_without_a_configuration_is_named_and_its_name_reserved() -> None:
    place = lost()
    answer = place.client.stream()
    assert answer["error"]["err_code"] == 10049
    for part in ("/s/streams/S", "STREAM.UPDATE", "STREAM.DELETE"):
        assert part in answer["error"]["description"]
    (shown,) = jsz(place.world.hub)["lost_streams"]
    assert (shown["account"], shown["stream"]) == ("$G", "S")
    assert "/s/streams/S" in shown["why"]
    place.start(place.stop())
    assert place.client.stream()["error"]["err_code"] == 10049


def test_a_lost_stream_is_brought_back_by_an_update() -> None:
    place = lost()
    answer = place.client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    assert answer["state"]["messages"] == 20
    assert place.owed("S/C") == {s for s in range(1, 21) if s in place.owed("S/C")}
    assert place.deliver(50)
    assert place.client.put(b"s.x", b"more")["seq"] == 21
    place.start(place.stop())
    assert place.client.api("STREAM.INFO.S")["state"]["messages"] == 21
    assert place.client.info()["name"] == "C"
    assert place.report == []


def test_a_lost_stream_is_removed_by_a_deletion() -> None:
    place = lost()
    assert place.client.api("STREAM.DELETE.S") == {
        "type": "io.nats.jetstream.api.v1.stream_delete_response",
        "success": True,
    }
    assert "error" not in place.client.stream()
    place.start(place.stop())
    assert place.client.api("STREAM.INFO.S")["state"]["messages"] == 0
    assert place.client.info()["error"]["err_code"] == 10014


def test_a_flush_that_is_taken_back_leaves_lost_streams_alone() -> None:
    place = lost()
    place.fs.capacity = sum(len(place.fs.content(path)) for path in place.fs.files()) + 100
    assert "error" not in place.client.stream("T")  # it needs no file yet
    answer = json.loads(place.client.request(b"t.1", b"x").messages[0].payload)
    assert "error" in answer
    place.fs.capacity = None
    place.start(place.stop())
    answer = place.client.api("STREAM.UPDATE.S", {"name": "S", "subjects": ["s.>"]})
    assert answer["state"]["messages"] == 20


def test_a_deletion_that_was_cut_off_is_completed() -> None:
    """The journal has it, the directory is still there: nobody was answered, and nothing is half."""
    lines = _deleting(consumed())
    steps = next(n for n, line in enumerate(lines, 1) if " rename /s/streams/S " in line)
    place = consumed()
    fs = place.fs
    fs.fail(fs.operations + steps, "crash")
    with pytest.raises(PowerCut):
        place.client.api("STREAM.DELETE.S")
    fs._off = False
    assert "/s/streams/S/spare" in fs.files()
    place.start(fs.kill())
    assert "S" not in registry_of(place.world).streams
    assert place.client.stream()["state"]["messages"] == 0
    place.start(place.stop())
    assert place.client.info()["error"]["err_code"] == 10014


def _deleting(place: Place) -> list[str]:
    before = len(place.fs.log)
    place.client.api("STREAM.DELETE.S")
    return place.fs.log[before:]


def test_a_creation_that_was_cut_off_with_messages_in_it_makes_room() -> None:
    place = Place()
    place.client.stream("A")
    before = len(place.fs.log)
    config = b'{"name":"S","subjects":["s"]}'
    creation = b"PUB $JS.API.STREAM.CREATE.S %d\r\n%b\r\nPUB s 1\r\nx\r\n" % (len(config), config)
    place.client.send(creation)
    journal = f" write {place.storage._journal._handle} "
    step = next(n for n, line in enumerate(place.fs.log[before:], 1) if journal in line)
    place = Place()
    place.client.stream("A")
    place.fs.fail(place.fs.operations + step, "crash")
    with pytest.raises(PowerCut):
        place.client.send(creation)
    place.fs._off = False
    fs = place.fs.kill()
    assert "/s/streams/S/0000000001.seg" in fs.files()
    place.start(fs)
    assert "error" not in place.client.stream("S", subjects=["s"])


def test_acks_do_not_write_the_copies() -> None:
    place = consumed()
    before = place.fs.content("/s/streams/S/spare")
    received = place.deliver(10)
    assert received
    for message in received:
        place.client.ack(message)
    place.world.advance(1)
    assert place.fs.content("/s/streams/S/spare") == before


def test_old_stores_get_their_copies() -> None:
    place = consumed()
    fs = without_copies(place.stop())
    place.start(fs)
    assert place.report == []
    fs = place.stop()
    assert "/s/streams/S/spare" in fs.files()
    fs.unlink(JOURNAL)
    place.start(fs)
    assert place.client.info()["name"] == "C"


def test_a_copy_that_found_no_room_is_made_with_the_next_change() -> None:
    place = Place()
    place.client.stream()
    before = place.fs.log[-1]
    place.client.consumer("A")
    steps = place.fs.log[place.fs.log.index(before) + 1 :]
    spare = max(n for n, line in enumerate(steps, 1) if " write " in line)
    place.fs.fail(place.fs.operations + spare, "enospc")
    assert place.client.consumer("B")["name"] == "B"
    assert place.client.consumer("C")["name"] == "C"
    fs = place.stop()
    fs.unlink(JOURNAL)
    place.start(fs)
    names = place.client.api("CONSUMER.NAMES.S")["consumers"]
    assert set(names) == {"A", "B", "C"}


def test_a_long_name_with_an_emptied_segment_is_found_by_its_copy() -> None:
    name = "L" * 230
    for journal in (True, False):
        place = Place()
        place.client.stream(name, subjects=["long"])
        place.client.put(b"long", b"x")
        fs = place.stop()
        (segment,) = [path for path in fs.files() if path.endswith(".seg")]
        fs.overwrite(segment, b"")
        if not journal:
            fs.unlink(JOURNAL)
        place.start(fs)
        assert place.client.api("STREAM.NAMES")["streams"] == [name]
        assert place.client.put(b"long", b"y")["seq"] == 2


def test_streams_of_accounts_have_copies_of_their_own_names() -> None:
    fs = FaultFS()
    storage = open_store(fs)
    part = AccountStorage(storage, "A/b")
    part.create_stream("S")
    part.meta.keep_beside("stream/S", "S")
    part.meta.put("stream/S", b"config")
    storage.flush(lambda error: None)
    fs = fs.kill()
    fs.unlink(JOURNAL)
    storage = open_store(fs)
    assert AccountStorage(storage, "A/b").meta.load() == {"stream/S": (b"config", [])}


def test_random_work_with_the_whole_journal_lost_keeps_every_configuration() -> None:
    rng, place = random.Random(4), Place()
    expected: dict[str, set[str]] = {}
    for _ in range(150):
        name = rng.choice("ABC")
        if name not in expected:
            place.client.stream(name)
            expected[name] = set()
        elif rng.random() < 0.1:
            place.client.api(f"STREAM.DELETE.{name}")
            del expected[name]
        else:
            consumer = rng.choice("uvwxyz")
            if consumer in expected[name]:
                place.client.api(f"CONSUMER.DELETE.{name}.{consumer}")
            else:
                place.client.consumer(consumer, name)
            expected[name] ^= {consumer}
        if rng.random() < 0.1:
            fs = place.stop()
            if rng.random() < 0.5:
                fs.unlink(next(path for path in fs.files() if "/meta/journal-" in path))
            place.start(fs)
            streams = registry_of(place.world).streams
            assert {name: set(stream.consumers) for name, stream in streams.items()} == expected
