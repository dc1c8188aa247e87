"""Copies whose origin is put back, made anew or cut short: nothing is skipped, and what is known is not
copied again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headrace.broker.core.jetstream import JetStreamOptions
from headrace.broker.store import FileStorage
from headrace.message import StoredMessage
from jetstream_world import Client, World, put_back, stored

MOMENTS = ("never", "before", "while it is away", "after")
POSITIONS = "intake/T"


class Place:
    """A broker on a disk, with an origin ``S`` and a copy ``T``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.said: list[str] = []
        options = JetStreamOptions(warn=self.said.append)
        self.world = World(FileStorage(directory, threaded=False), options)
        self.client = self.world.client()
        self.count = 0

    def restart(self, change: Callable[[World], None] | None = None) -> None:
        def reopen() -> FileStorage:
            return FileStorage(self._directory, threaded=False)

        if change is not None:
            change(self.world)
        self.world.restart(reopen)
        self.client = self.world.client()
        self.world.settle()

    def fill(self, count: int, subject: bytes = b"s.x") -> None:
        for _ in range(count):
            self.world.clock.advance(0.5)
            self.client.put(subject, b"%d" % self.count)
            self.count += 1
        self.world.settle()

    def copy(self, **config: Any) -> None:
        answer = self.client.api("STREAM.CREATE.T", {"name": "T", **config})
        assert "error" not in answer, answer
        self.world.settle()

    def source(self, source: dict[str, Any] | None = None, **config: Any) -> None:
        self.copy(sources=[{"name": "S", **(source or {})}], **config)

    @property
    def copied(self) -> list[int]:
        return [int(message.payload) for message in stored(self.client, "T")]

    def replace(self, moment: str, put: Callable[[Client], None]) -> None:
        """Delete the origin and ``put`` another one, with a restart at a moment."""
        if moment == "before":
            self.restart()
        self.client.api("STREAM.DELETE.S")
        self.world.clock.advance(1)
        if moment == "while it is away":
            self.restart()
        put(self.client)
        if moment == "after":
            self.restart()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def back(messages: list[StoredMessage], **more: Any) -> Callable[[Client], None]:
    return lambda client: put_back(client, messages, **more)


@pytest.mark.parametrize("moment", MOMENTS)
class TestASource:
    def test_goes_on_in_an_origin_that_was_put_back(self, place: Place, moment: str) -> None:
        place.client.stream()
        place.source()
        place.fill(5)
        place.replace(moment, back(stored(place.client)))
        place.fill(2)
        assert place.copied == list(range(7))
        place.restart()
        place.fill(1)
        assert place.copied == list(range(8))
        assert place.said == []

    def test_goes_on_if_what_it_copied_last_is_its_own_no_more(
        self, place: Place, moment: str
    ) -> None:
        """As in a group's work queue, whose positions are journaled with every flush."""
        place.client.stream()
        place.source(retention="workqueue")
        place.fill(5)
        place.client.api("STREAM.PURGE.T")
        place.replace(moment, back(stored(place.client)))
        place.fill(2)
        assert place.copied == [5, 6]

    def test_copies_all_of_another_stream(self, place: Place, moment: str) -> None:
        place.client.stream()
        place.source()
        place.fill(5)

        def other(client: Client) -> None:
            client.stream()
            place.client = client
            place.fill(8)

        place.replace(moment, other)
        place.fill(1)
        assert place.copied == list(range(14))

    def test_copies_all_of_an_older_stream_that_is_another_one(
        self, place: Place, moment: str
    ) -> None:
        place.client.stream()
        place.fill(6)
        other = stored(place.client)
        place.client.api("STREAM.DELETE.S")
        place.client.stream()
        place.source()
        place.fill(5)
        place.replace(moment, back(other))
        place.fill(1)
        assert place.copied == [6, 7, 8, 9, 10, 0, 1, 2, 3, 4, 5, 11]

    @pytest.mark.parametrize("left", [1, 3, 5])
    def test_takes_new_messages_of_an_older_copy_with_their_old_sequences(
        self, place: Place, moment: str, left: int
    ) -> None:
        place.client.stream()
        place.source()
        place.fill(1)
        place.restart()  # with what is known of the first one
        place.fill(4)
        older = stored(place.client)[:left]
        place.replace(moment, back(older))
        place.fill(8)
        expected = list(range(13))
        assert sorted(set(place.copied)) == expected
        if moment == "never":
            assert place.copied == expected

    def test_goes_on_in_a_work_queue_that_was_put_back(self, place: Place, moment: str) -> None:
        place.client.stream(retention="workqueue")
        place.source()
        place.fill(5)
        assert stored(place.client) == []
        place.replace(moment, back([], last=5, retention="workqueue"))
        place.fill(2)
        if (
            moment == "while it is away"
        ):  # its newest copy says what it was, and the origin does not
            assert place.copied[-2:] == [5, 6]
        else:
            assert place.copied == list(range(7))
        place.restart()
        place.fill(1)
        assert place.copied[-3:] == [5, 6, 7]
        assert len([text for text in place.said if "cannot be told" in text]) <= 1

    def test_with_a_filter_goes_on_where_it_was(self, place: Place, moment: str) -> None:
        place.client.stream()
        place.source({"filter_subject": "s.x"})
        place.fill(2)
        place.fill(4, b"s.y")
        place.replace(moment, back(stored(place.client)))
        place.fill(1, b"s.y")
        place.fill(2)
        assert place.copied == [0, 1, 7, 8]


def test_a_source_says_once_that_it_cannot_tell(place: Place) -> None:
    place.client.stream(retention="workqueue")
    place.source()
    place.fill(5)
    place.replace("never", back([], last=5, retention="workqueue"))
    place.fill(1)
    place.restart()
    (said,) = place.said
    assert "stream 'T': stream 'S' was made anew, and message 5" in said


class TestAMirror:
    @pytest.mark.parametrize("moment", MOMENTS)
    def test_goes_on_in_an_origin_that_was_put_back(self, place: Place, moment: str) -> None:
        place.client.stream()
        place.copy(mirror={"name": "S"})
        place.fill(5)
        place.replace(moment, back(stored(place.client)))
        place.fill(2)
        assert stored(place.client, "T") == stored(place.client)
        assert len(place.copied) == 7

    @pytest.mark.parametrize("moment", MOMENTS)
    def test_goes_on_if_the_last_message_has_left_the_origin(
        self, place: Place, moment: str
    ) -> None:
        place.client.stream()
        place.copy(mirror={"name": "S"})
        place.fill(5)
        place.replace(moment, back(stored(place.client)[:3], last=5))
        place.fill(2)
        assert place.copied == list(range(7))

    @pytest.mark.parametrize("moment", MOMENTS)
    @pytest.mark.parametrize("left", [3, 5])
    def test_takes_nothing_of_an_origin_that_lost_messages(
        self, place: Place, moment: str, left: int
    ) -> None:
        place.client.stream()
        place.copy(mirror={"name": "S"})
        place.fill(5)
        older = stored(place.client)[:left]
        if left == 5:
            older[-1] = older[-1]._replace(timestamp_ns=older[-1].timestamp_ns + 1)
        place.replace(moment, back(older))
        place.fill(4)
        assert place.copied == list(range(5))
        assert "made again" in place.client.api("STREAM.INFO.T")["mirror"]["error"]["description"]


class TestTheJournal:
    def saved(self, world: World) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(world.storage.meta.load()[POSITIONS][0])
        return value

    def test_without_times_is_read(self, place: Place) -> None:
        place.client.stream()
        place.source(retention="workqueue")
        place.fill(5)
        place.client.api("STREAM.PURGE.T")
        place.world.settle()

        def older(world: World) -> None:
            entry = self.saved(world)
            entry["positions"] = {key: at[:2] for key, at in entry["positions"].items()}
            world.storage.meta.put(POSITIONS, json.dumps(entry).encode())

        place.restart(older)
        place.fill(2)
        assert place.copied == [5, 6]
        origin = stored(place.client)
        place.replace("never", back(origin))
        place.fill(1)
        assert place.copied == [5, 6, 7]

    @pytest.mark.parametrize("stamped", [True, False])
    def test_beyond_the_origin_has_what_comes_next_copied(
        self, place: Place, stamped: bool
    ) -> None:
        """The origin lost its end in a power cut, and gives those sequences again."""
        place.client.stream()
        place.source(retention="workqueue")
        place.fill(5)

        def ahead(world: World) -> None:
            entry = self.saved(world)
            (key,) = entry["positions"]
            _, identity, stamp_ns, *_ = entry["positions"][key]
            entry["positions"][key] = [8, identity, stamp_ns + 1 if stamped else 0]
            world.storage.meta.put(POSITIONS, json.dumps(entry).encode())

        place.restart(ahead)
        place.fill(2)
        place.restart()
        place.fill(2)
        assert place.copied == list(range(9))

    @pytest.mark.parametrize("lost", [1, 2, 4])
    @pytest.mark.parametrize("retention", ["limits", "workqueue"])
    def test_beyond_the_last_message_has_as_many_copied_again_as_are_lost(
        self, place: Place, retention: str, lost: int
    ) -> None:
        """A power cut, in a mode that does not wait for the disk."""
        place.client.stream()
        place.source({"filter_subject": "s.x"}, retention=retention)
        place.fill(3)
        place.fill(2, b"s.y")
        place.fill(2)
        if retention == "workqueue":
            place.client.api("STREAM.PURGE.T")
        place.world.settle()

        def ahead(world: World) -> None:
            entry = self.saved(world)
            entry["at"] = 5 + lost
            (key,) = entry["positions"]
            stamps = {m.sequence: m.timestamp_ns for m in stored(place.client)}
            entry["positions"][key] = [7, entry["positions"][key][1], stamps[7]]
            world.storage.meta.put(POSITIONS, json.dumps(entry).encode())

        place.restart(ahead)
        place.fill(1)
        wanted = [0, 1, 2, 5, 6]
        if retention == "workqueue":
            assert place.copied == [*wanted[-lost:], 7]
        else:
            assert place.copied == [*wanted, 7], "the newest copy says where to go on"
        place.restart()
        place.fill(1)
        assert place.copied[-2:] == [7, 8]
