"""What a start makes of a journal that does not fit: nothing comes back in part, nothing is skipped.

What damage does to the journal's files is in ``tests/crash/test_journal_damage.py``.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream.engine.registry import CONSUMER, STATE
from headrace.broker.store import FileStorage
from jetstream_world import Client, World


class Place:
    """A world whose files are opened again, with a client in each life."""

    def __init__(self) -> None:
        self.fs = FaultFS()
        self.sync = "always"
        self.world = World(self._open())
        self.client: Client = self.world.client()

    def _open(self) -> FileStorage:
        salts = random.Random(self.fs.operations)
        return FileStorage("/s", fs=self.fs, threaded=False, salts=salts, sync=self.sync)

    def cut_power(self) -> None:
        """The power goes: messages that were not synced are lost, and the journal is not."""
        self.world.advance(1)  # what is still to be journaled
        for path in self.fs.files():
            if path.endswith(".seg") or (path.endswith("/watermark") and "/meta/" not in path):
                self.fs.overwrite(path, bytes(self.fs._file(path).synced))
        self.journal = {path: self.fs.content(path) for path in self.journal_files()}
        self.kill()

    def journal_files(self) -> list[str]:
        """The journal and what is kept of it beside the streams."""
        return [path for path in self.fs.files() if "/meta/" in path or path.endswith("/spare")]

    def kill(self) -> None:
        """End the process."""
        self.fs = self.fs.kill()
        self.world.clients.clear()
        self.world.storage = self._open()
        self.world.clock.advance(1)
        self.world._start()
        self.client = self.world.client()

    def take(self, name: str = "C") -> list[tuple[int, bytes]]:
        """What a consumer is given now, acknowledged."""
        given = self.client.pull({"batch": 99, "no_wait": True}, name).take()
        messages = [message for message in given if not message.status]
        for message in messages:
            self.client.ack(message)
        return [(message.stream_seq, message.payload) for message in messages]

    def restart(self) -> None:
        self.world.restart(self._open)
        self.client = self.world.client()

    @property
    def meta(self) -> Any:
        return self.world.storage.meta

    @property
    def notes(self) -> str:
        storage = self.world.storage
        assert isinstance(storage, FileStorage)
        return "\n".join(finding.what for finding in storage.report)

    def error(self, verb: str) -> int:
        code: int = self.client.api(verb).get("error", {}).get("err_code", 0)
        return code


@pytest.fixture
def place() -> Place:
    """Four messages, of which a consumer has two, one of them acknowledged."""
    place = Place()
    place.client.stream()
    place.client.consumer()
    for number in range(4):
        place.client.put(b"s.%d" % number)
    first, _ = place.client.pull(b"2").take()
    place.client.ack(first)
    return place


def test_streams_and_consumers_come_back_as_they_were(place: Place) -> None:
    def known() -> dict[str, Any]:
        info = place.client.info()
        for position in ("delivered", "ack_floor"):
            info[position].pop("last_active", None)  # of this life
        wanted = ("created", "config", "delivered", "ack_floor", "num_pending", "num_ack_pending")
        return {field: info[field] for field in wanted}

    before = known()
    place.restart()
    assert known() == before
    assert [m.stream_seq for m in place.client.pull(b"4").take()] == [3, 4]
    assert not place.notes


def test_a_consumer_of_a_deleted_stream_of_this_name_is_none_of_this_one(place: Place) -> None:
    key = CONSUMER + "S/C"
    entry = json.loads(dict(place.meta.load())[key][0])
    place.meta.put(key, json.dumps({**entry, "stream_ns": 7}).encode())
    place.restart()
    assert place.error("CONSUMER.INFO.S.C") == 10014
    assert "one of a deleted stream" in place.notes
    assert not [key for key in place.meta.load() if key.endswith("S/C")]


def test_a_deletion_that_was_cut_off_half_way_is_completed(place: Place) -> None:
    place.meta.delete(STATE + "S/C")
    place.restart()
    assert place.error("CONSUMER.INFO.S.C") == 10014
    assert "deletion of consumer 'C' was completed" in place.notes
    place.client.consumer()
    assert [m.stream_seq for m in place.client.pull(b"9").take()] == [1, 2, 3, 4]


def test_what_belongs_to_nothing_does_not_come_back_with_the_next_of_its_name(place: Place) -> None:
    state = dict(place.meta.load())[STATE + "S/C"][0]
    for key in (STATE + "S/D", STATE + "T/C", CONSUMER + "T/C"):
        place.meta.put(key, state if key.startswith(STATE) else b"{}")
    place.restart()
    left = [key for key in place.meta.load() if "/" in key]
    assert STATE + "S/C" in left
    assert not [key for key in left if key.endswith(("S/D", "T/C"))]
    place.client.consumer("D")
    assert [m.stream_seq for m in place.client.pull(b"9", "D").take()] == [1, 2, 3, 4]


# A journal that is newer than the messages: the power went in a mode that does not wait for the disk


def put(place: Place, *payloads: bytes) -> None:
    for payload in payloads:
        assert "error" not in place.client.put(b"s.a", payload)
        place.world.clock.advance(0.001)


def lost_tail(*, stand: tuple[str, ...] = ("C",)) -> Place:
    """Five messages, of which the last three are lost; the consumers in ``stand`` were given all of them."""
    place = Place()
    place.client.stream()
    place.client.consumer()
    place.client.consumer("N", deliver_policy="new")
    place.client.consumer("X", ack_policy="none")
    put(place, b"1", b"2")
    place.sync = "os"
    place.restart()
    put(place, b"3", b"4", b"5")
    place.client.consumer("L", deliver_policy="new")
    for name in stand:
        place.take(name)
    place.cut_power()
    assert place.client.api("STREAM.INFO.S")["state"]["last_seq"] == 2
    return place


@pytest.mark.parametrize("name", ["C", "N", "X", "L"])
def test_new_messages_with_the_sequences_of_lost_ones_are_delivered(name: str) -> None:
    place = lost_tail(stand=("C", "N", "X"))
    assert f"consumer '{name}' had been given messages up to 5" in place.notes
    put(place, b"three", b"four", b"five", b"six")
    wanted = [(3, b"three"), (4, b"four"), (5, b"five"), (6, b"six")]
    assert place.client.info(name)["num_pending"] == 4
    assert place.take(name) == wanted
    place.restart()
    assert not place.notes
    assert place.take(name) == []


@pytest.mark.parametrize("name", ["C", "N", "X", "L"])
def test_they_are_delivered_where_the_journal_has_lost_that_the_consumer_was_put_back(
    name: str,
) -> None:
    place = lost_tail(stand=("C", "N", "X"))
    put(place, b"three", b"four", b"five", b"six")
    for path in place.journal_files():
        place.fs.unlink(path)
    for path, content in place.journal.items():
        place.fs.close(place.fs.open(path, create=True))
        place.fs.overwrite(path, content)
    place.kill()
    assert f"consumer '{name}' had been given messages up to 5" in place.notes
    assert place.take(name) == [(3, b"three"), (4, b"four"), (5, b"five"), (6, b"six")]


def test_a_message_that_was_not_acknowledged_before_the_loss_comes_again() -> None:
    place = lost_tail(stand=())
    assert "up to 5" not in place.notes.replace("consumer 'L' had been given messages up to 5", "")
    first, second = place.client.pull(b"2").take()
    assert (first.stream_seq, second.stream_seq) == (1, 2)
    put(place, b"three")
    place.client.pull(b"1").take()
    assert place.client.info()["num_ack_pending"] == 3
    place.cut_power()
    assert place.client.info()["num_ack_pending"] == 2
    assert place.client.info()["delivered"]["stream_seq"] == 2


def test_a_consumer_that_is_to_start_later_waits_for_its_sequence_all_the_same() -> None:
    place = Place()
    place.client.stream()
    place.client.consumer(deliver_policy="by_start_sequence", opt_start_seq=4)
    put(place, b"1")
    place.restart()
    assert not place.notes
    put(place, b"2", b"3", b"4")
    assert place.take() == [(4, b"4")]


# A journal that is older than what was removed


def test_what_the_stream_has_no_more_is_not_pending_after_a_kill() -> None:
    """A removal is durable with the next publish, the ack in the journal somewhat later."""
    place = Place()
    place.client.stream(retention="workqueue")
    place.client.consumer(max_ack_pending=3)
    put(place, b"1", b"2", b"3", b"4", b"5")
    given = place.client.pull(b"3").take()
    place.world.advance(1)
    place.world.settle()
    for message in (given[0], given[2]):
        place.client.publish(message.reply, b"+ACK")
    place.meta.append = lambda *_: None  # the process ends before it is written
    put(place, b"6")
    place.kill()
    info = place.client.info()
    assert (info["num_ack_pending"], info["ack_floor"]["stream_seq"]) == (1, 1)
    assert place.client.api("STREAM.INFO.S")["state"]["messages"] == 4
    assert [seq for seq, _ in place.take()] == [4, 5]
