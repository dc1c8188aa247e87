"""What a start makes of a journal that does not fit: nothing comes back in part, nothing is skipped.

What damage does to the journal's files is in ``tests/crash/test_journal_damage.py``.
"""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from faultfs import FaultFS
from headrace.broker.core.jetstream.engine.lost import CONSUMER, STATE
from headrace.broker.store import FileStorage
from jetstream_world import Client, World


class Place:
    """A world whose files are opened again, with a client in each life."""

    def __init__(self) -> None:
        self.fs = FaultFS()
        self.world = World(self._open())
        self.client: Client = self.world.client()

    def _open(self) -> FileStorage:
        return FileStorage("/s", fs=self.fs, threaded=False, salts=random.Random(1))

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
