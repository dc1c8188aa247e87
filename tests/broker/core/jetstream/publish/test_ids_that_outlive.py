"""An id lives as long as its window, whatever becomes of its message and of the process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from faultfs import Fault, FaultFS, PowerCut
from headrace.broker.core.jetstream.publish.duplicate_window import LEFT_IDS
from headrace.broker.store import FileStorage
from jetstream_world import Client, World, publication

CRASHES: Final[tuple[Fault, ...]] = ("crash", "crash after")


class Place:
    """A world on disk that is stopped, or killed, and begins again."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lives = 0
        self.world = World(self._open())
        self.client = self.world.client()

    def _open(self) -> FileStorage:
        return FileStorage(self._directory / str(self._lives), threaded=False)

    def stop(self) -> None:
        self.world.restart(self._open)
        self.client = self.world.client()

    def kill(self) -> None:
        """Go on with what was on disk at this moment."""
        before = self._directory / str(self._lives)
        self._lives += 1
        shutil.copytree(before, self._directory / str(self._lives))
        self.stop()

    @property
    def journal(self) -> int:
        """How many bytes of ids whose messages have left are kept."""
        value, deltas = self.world.storage.meta.load().get(LEFT_IDS + "S", (b"", []))
        return len(value) + sum(map(len, deltas))

    def close(self) -> None:
        self.world.storage.close()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.close()


def send(client: Client, numbers: range) -> list[bool]:
    """Publish with ids; whether each was one of before."""
    answers = [client.put(b"s.%d" % n, b"%d" % n, Nats_Msg_Id=f"id-{n}") for n in numbers]
    assert not [answer for answer in answers if "error" in answer]
    return [bool(answer.get("duplicate")) for answer in answers]


def acknowledge(client: Client) -> None:
    for message in client.pull({"batch": 5, "no_wait": True}).take()[:5]:
        client.ack(message)


def purge(client: Client) -> None:
    client.api("STREAM.PURGE.S")


def purge_by_subject(client: Client) -> None:
    client.api("STREAM.PURGE.S", {"filter": "s.*"})


def delete(client: Client) -> None:
    for sequence in range(1, 6):
        client.api("STREAM.MSG.DELETE.S", {"seq": sequence})


def publish_others(client: Client) -> None:
    for number in range(5):
        client.put(b"s.%d" % number, b"other")


def roll_up(client: Client) -> None:
    client.put(b"s.all", b"", Nats_Rollup="all")


WAYS: dict[str, tuple[dict[str, Any], Callable[[Client], None]]] = {
    "acknowledged in a work queue": ({"retention": "workqueue"}, acknowledge),
    "acknowledged, of interest": ({"retention": "interest"}, acknowledge),
    "replaced": ({"max_msgs_per_subject": 1}, publish_others),
    "replaced at once": (
        {"max_msgs_per_subject": 1, "max_msgs": 50, "discard": "new"},
        publish_others,
    ),
    "too many": ({"max_msgs": 5}, publish_others),
    "purged": ({}, purge),
    "purged by subject": ({}, purge_by_subject),
    "deleted": ({}, delete),
    "rolled up": ({"allow_rollup_hdrs": True}, roll_up),
}


@pytest.mark.parametrize("end", ["stop", "kill"])
@pytest.mark.parametrize("way", WAYS)
def test_an_id_outlives_its_message_and_the_process(place: Place, way: str, end: str) -> None:
    config, remove = WAYS[way]
    place.client.stream(**config)
    place.client.consumer()
    assert send(place.client, range(5)) == [False] * 5
    remove(place.client)
    state = place.client.api("STREAM.INFO.S")["state"]
    assert state["first_seq"] > 5
    place.world.advance(60)
    for again in (False, True):
        getattr(place, end)()
        assert send(place.client, range(6)) == [True] * 5 + [again]
    place.world.advance(60)  # now the window is over
    assert send(place.client, range(5)) == [False] * 5


def test_an_id_that_nobody_wanted_outlives_the_process(place: Place) -> None:
    place.client.stream(retention="interest")
    assert send(place.client, range(5)) == [False] * 5
    place.kill()
    assert send(place.client, range(5)) == [True] * 5


def test_ids_of_a_message_that_expires_by_itself_live_on(place: Place) -> None:
    place.client.stream(allow_msg_ttl=True)
    assert not place.client.put(b"s.1", b"", Nats_Msg_Id="x", Nats_TTL="1s").get("duplicate")
    place.world.advance(2)
    assert place.client.api("STREAM.INFO.S")["state"]["messages"] == 0
    place.stop()
    assert place.client.put(b"s.1", b"", Nats_Msg_Id="x").get("duplicate")


def test_messages_that_are_still_there_have_no_entry(place: Place) -> None:
    place.client.stream()
    send(place.client, range(5))
    assert place.journal == 0


def test_what_is_over_is_dropped_from_the_journal(place: Place) -> None:
    place.client.stream(max_msgs=1, duplicate_window=10_000_000_000)
    name = "x" * 2000
    sizes = []
    for number in range(200):
        place.client.put(b"s.1", b"", Nats_Msg_Id=f"{name}{number}")
        place.world.advance(1)
        sizes.append(place.journal)
    assert 20_000 < max(sizes) < 150_000
    for _ in range(2):
        assert place.client.put(b"s.1", b"", Nats_Msg_Id=f"{name}195").get("duplicate")
        place.stop()


def test_another_stream_of_the_name_knows_none_of_them(place: Place) -> None:
    place.client.stream(max_msgs=1)
    send(place.client, range(5))
    place.client.api("STREAM.DELETE.S")
    assert place.journal == 0
    place.client.stream(max_msgs=1)
    place.kill()
    assert send(place.client, range(5)) == [False] * 5


def life(disk: FaultFS) -> World:
    return World(FileStorage("/s", fs=disk, threaded=False))


@pytest.mark.parametrize("first", [True, False], ids=["the first to leave", "later ones"])
def test_a_kill_at_any_call_of_the_disk_takes_no_id_along(first: bool) -> None:
    """A removal is never there without the ids of what it removed, whichever call was the last."""

    def begin() -> tuple[FaultFS, Client]:
        disk = FaultFS()
        client = life(disk).client()
        client.stream(retention="workqueue")
        client.consumer()
        if not first:  # the journal has a word of ids already
            send(client, range(10, 13))
            acknowledge(client)
        assert send(client, range(5)) == [False] * 5
        return disk, client

    disk, client = begin()
    began = disk.operations
    acknowledge(client)
    ended = disk.operations
    assert ended - began > 20
    for number in range(began + 1, ended + 1):
        for fault in CRASHES:
            disk, client = begin()
            disk.fail(number, fault)
            with pytest.raises(PowerCut):
                acknowledge(client)
            client = life(disk.kill()).client()
            assert send(client, range(6)) == [True] * 5 + [False], disk.log[-1]


def test_ids_of_what_never_was_stored_say_nothing_of_what_is_stored_there_later() -> None:
    """What came and left in one commit has its ids written ahead; a kill leaves these alone."""

    def begin() -> tuple[FaultFS, Client]:
        disk = FaultFS()
        client = life(disk).client()
        client.stream(max_msgs=1)
        assert send(client, range(1)) == [False]
        return disk, client

    def publish_three_at_once(client: Client) -> None:
        client.send(b"".join(publication(b"s.x", Nats_Msg_Id=f"id-{n}") for n in range(1, 4)))

    disk, client = begin()
    began = disk.operations
    publish_three_at_once(client)
    for number in range(began + 1, disk.operations + 1):
        disk, client = begin()
        disk.fail(number, "crash")
        with pytest.raises(PowerCut):
            publish_three_at_once(client)
        disk = disk.kill()
        client = life(disk).client()
        last_seq = client.api("STREAM.INFO.S")["state"]["last_seq"]
        for _ in range(4):  # they take their sequences, and more
            client.put(b"s.other")
        client = life(disk.kill()).client()
        known = send(client, range(1, 4))
        assert known == [last_seq >= 4] * 3, disk.log[-1]
