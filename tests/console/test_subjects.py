"""Lists of subjects and keys: what they show, and what they ask for, however many there are."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

import headrace
from headrace.broker.core.jetstream.api import streams as server_side
from headrace.client import JetStream
from headrace.console import subjects
from headrace.console.subjects import SHOWN, subjects_of

COUNT = 3 * SHOWN + 20
SUBJECT_BYTES = 60  # a subject and its count in an answer, with room


@pytest.fixture
async def js(js: JetStream) -> AsyncIterator[JetStream]:
    """On a server with a stream of many subjects; every hundredth has two messages."""
    await js.create_stream(name="S", subjects=("s.*.*",), storage="memory", allow_direct=True)
    async with js.publisher() as publisher:
        for number in range(COUNT):
            await publisher.send(f"s.{number % 2}.{number:05d}", b"x" * 10)
        for number in range(0, COUNT, 100):
            await publisher.send(f"s.{number % 2}.{number:05d}", b"y")
    yield js


class Asked:
    """What a piece of work asked of the server: calls, and bytes that came."""

    def __init__(self, js: JetStream) -> None:
        self._stats = js.connection.stats
        self._before = self._stats()

    @property
    def calls(self) -> int:
        return self._stats().requests - self._before.requests

    @property
    def nbytes(self) -> int:
        return self._stats().in_bytes - self._before.in_bytes


async def test_the_largest_come_first_and_the_others_in_parts(js: JetStream) -> None:
    seen: list[str] = []
    offset, more = 0, True
    while more:
        found = await subjects_of(js, "S", "", offset, largest=True)
        assert found.matching == COUNT
        assert len(found.counts) <= SHOWN
        seen += found.counts
        offset, more = offset + len(found.counts), found.more
    assert len(seen) == len(set(seen)) == COUNT
    doubled = [f"s.0.{number:05d}" for number in range(0, COUNT, 100)]
    assert seen[: len(doubled)] == doubled


async def test_keys_come_by_name_and_each_part_asks_for_what_is_left(js: JetStream) -> None:
    asked = Asked(js)
    last = await subjects_of(js, "S", "s.*.*", COUNT - 20)
    assert asked.calls == 1
    assert asked.nbytes < 20 * SUBJECT_BYTES + 4_000, "not the ones before"
    assert len(last.counts) == 20
    assert not last.more
    assert list(last.counts) == sorted(last.counts)
    assert list(last.counts)[-1].startswith("s.1.")


async def test_of_a_large_stream_the_first_are_shown_until_a_pattern_is_given(
    js: JetStream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subjects, "LISTED_MAX", COUNT - 1)
    asked = Asked(js)
    found = await subjects_of(js, "S", "")
    assert asked.calls <= 3
    assert asked.nbytes < SHOWN * 300, "the first messages, not every subject"
    assert found.matching is None
    assert found.more
    assert list(found.counts) == [f"s.{n % 2}.{n:05d}" for n in range(SHOWN)]
    narrow = await subjects_of(js, "S", "s.0.00100")
    assert narrow.counts == {"s.0.00100": 2}
    assert not narrow.more
    await js.update_stream(name="S", subjects=("s.*.*",), storage="memory", allow_direct=False)
    found = await subjects_of(js, "S", "")
    assert list(found.counts) == [f"s.{n % 2}.{n:05d}" for n in range(subjects.SINGLE_MAX)]
    assert found.more


async def test_more_than_the_server_gives_at_once_is_asked_for_page_by_page(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The server's page is 100,000 subjects; here it is 700, and a part is 500 as everywhere."""
    for module in (server_side, subjects):
        monkeypatch.setattr(module, "SUBJECTS_PER_PAGE", 700)
    async with headrace.Broker(port=0) as broker, headrace.connect(broker.client_url) as connection:
        js = connection.jetstream()
        await js.create_stream(name="S", subjects=["s.*"], storage="memory")
        async with js.publisher() as publisher:
            await publisher.send_many((f"s.{n:05d}", b"") for n in reversed(range(COUNT)))
        seen: list[str] = []
        asked, parts = Asked(js), 0
        while len(seen) < COUNT:
            found = await subjects_of(js, "S", "s.>", len(seen))
            seen += found.counts
            parts += 1
        assert seen == [f"s.{n:05d}" for n in range(COUNT)]
        assert asked.calls == parts == 4
        assert asked.nbytes < parts * (700 * SUBJECT_BYTES + 2_000)
        asked = Asked(js)
        found = await subjects_of(js, "S", "s.>", 1000, largest=True)
        assert next(iter(found.counts)) == "s.01000", "too many to know the largest: by name"
        assert asked.calls == 2


async def test_the_routes_say_where_they_are(world: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket = await world.js.create_key_value("B", direct=False)
    for number in range(6):
        await bucket.put(f"user.{number}", b"x")
    seen = await world.get("/buckets/B/keys?filter=user.*&offset=4")
    assert [each["key"] for each in seen["keys"]] == ["user.4", "user.5"]
    assert (seen["matching"], seen["offset"], seen["more"]) == (6, 4, False)
    monkeypatch.setattr(subjects, "LISTED_MAX", 3)
    monkeypatch.setattr(subjects, "SHOWN", 2)
    seen = await world.get("/buckets/B/keys")
    assert seen["keys"] == [{"key": f"user.{n}", "revisions": None} for n in range(6)]
    assert (seen["total"], seen["matching"], seen["more"]) == (6, None, True)
    seen = await world.get("/streams/S/subjects")
    assert seen["matching"] is None
    await world.get("/streams/S/subjects?offset=x", 400)
