"""Who is woken by which messages, and that nobody who should be is forgotten."""

from __future__ import annotations

import json
import random
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.stream.waiters import Waiters
from headrace.subjects import SubjectFilter
from jetstream_world import World

SECOND = 1_000_000_000


class Waiter:
    """As much of a consumer as waiting asks for."""

    def __init__(self, *patterns: bytes, next_seq: int = 1) -> None:
        self.filter = SubjectFilter(patterns) if patterns else None
        self.state = SimpleNamespace(next_seq=next_seq)

    def skip_to(self, sequence: int) -> None:
        self.state.next_seq = max(self.state.next_seq, sequence)


def empty() -> Any:
    """Nobody waits yet; those who will are no consumers, only as much of one as it takes."""
    return Waiters()


def woken(waiters: Any, *subjects: bytes, first: int = 1) -> list[Any]:
    found: list[Any] = waiters.wake(first, lambda: subjects)
    return found


def test_who_waits_for_anything_is_woken_by_whatever_and_once() -> None:
    waiters, waiter = empty(), Waiter()
    waiters.add(waiter, None)
    assert woken(waiters) == [waiter]
    assert not waiters
    assert woken(waiters) == []


def test_subjects_are_asked_for_only_if_somebody_is_choosy() -> None:
    waiters, waiter = empty(), Waiter()
    waiters.add(waiter, None)
    assert waiters.wake(1, lambda: pytest.fail("nobody asked")) == [waiter]


def test_what_lies_between_is_skipped_by_who_had_seen_everything() -> None:
    waiters = empty()
    seen, behind, moved = (Waiter(b"a", next_seq=5) for _ in range(3))
    waiters.add(seen, seen.filter, 5)
    waiters.add(behind, behind.filter)
    waiters.add(moved, moved.filter, 5)
    moved.state.next_seq = 2  # it was reset
    assert len(woken(waiters, b"a", first=90)) == 3
    assert [w.state.next_seq for w in (seen, behind, moved)] == [90, 5, 2]


def test_who_changes_its_mind_waits_for_the_new_one() -> None:
    waiters, waiter = empty(), Waiter(b"a")
    for number in range(20):  # enough for a tree
        other = Waiter(b"x.%d" % number)
        waiters.add(other, other.filter)
    waiters.add(waiter, waiter.filter)
    assert woken(waiters, b"q") == []
    waiters.add(waiter, SubjectFilter([b"b"]))
    assert woken(waiters, b"a") == []
    assert waiter in waiters
    assert woken(waiters, b"b") == [waiter]
    waiters.add(waiter, None)
    waiters.discard(waiter)
    assert waiter not in waiters


def test_long_filters_wait_beside_the_tree_until_there_are_many() -> None:
    waiters = empty()
    waiting = [
        Waiter(*(b"w%d.%d.>" % (number, each) for each in range(20))) for number in range(90)
    ]
    for waiter in waiting:
        waiters.add(waiter, waiter.filter)
    for number in (0, 50, 63, 64, 89):
        assert woken(waiters, b"w%d.7.x" % number) == [waiting[number]]
        assert waiting[number] not in waiters
    for waiter in waiting:
        waiters.discard(waiter)
    assert not waiters


PATTERNS = st.sampled_from([b"a", b"b", b"a.b", b"a.*", b"*.b", b"a.>", b">", b"*", b"b.c.d"])
SUBJECTS = st.sampled_from([b"a", b"b", b"c", b"a.b", b"a.c", b"b.b", b"b.c.d", b"c.c.c"])


@given(
    st.lists(st.lists(PATTERNS, min_size=1, max_size=3, unique=True), max_size=20),
    st.lists(st.lists(SUBJECTS, max_size=4, unique=True), max_size=6),
)
def test_exactly_those_whose_filter_matches_are_woken(
    filters: list[list[bytes]], batches: list[list[bytes]]
) -> None:
    waiters = empty()
    waiting = [Waiter(*patterns) for patterns in filters]
    for waiter in waiting:
        waiters.add(waiter, waiter.filter)
    for subjects in batches:
        found = woken(waiters, *subjects)
        expected = [w for w in waiting if w.filter and any(map(w.filter.matches, subjects))]
        assert set(found) == set(expected)
        assert len(found) == len(expected)
        waiting = [waiter for waiter in waiting if waiter not in expected]
        for waiter in expected[::2]:  # some come back
            waiters.add(waiter, waiter.filter)
            waiting.append(waiter)


def test_many_waiting_pulls_with_all_kinds_of_filters_get_exactly_theirs() -> None:
    world = World()
    client = world.client()
    client.stream()
    rng = random.Random(3)
    inboxes, filters = {}, {}
    for number in range(60):
        patterns = rng.choice(
            [["s.1.>"], [f"s.{number % 5}.x"], ["s.*.y", "s.3.z"], ["s.never.>"], []]
        )
        name = f"C{number}"
        client.consumer(name, filter_subjects=patterns)
        filters[name] = SubjectFilter([p.encode() for p in patterns] or [b">"])
        inboxes[name] = client.pull({"batch": 1_000, "expires": 3_600 * SECOND}, name)
    published = []
    for _ in range(100):
        batch = [
            f"s.{rng.randrange(6)}.{rng.choice('xyz')}".encode() for _ in range(rng.randrange(1, 6))
        ]
        published += batch
        client.send(b"".join(b"PUB %b 0\r\n\r\n" % subject for subject in batch))
    world.settle()
    for name, inbox in inboxes.items():
        expected = [s for s in published if filters[name].matches(s)]
        assert [message.subject for message in inbox.take()] == expected, name
        info = client.info(name)
        assert (info["num_pending"], info["num_ack_pending"]) == (0, len(expected))


def test_a_new_filter_and_a_reset_are_heeded_while_waiting() -> None:
    world = World()
    client = world.client()
    client.stream()
    client.consumer(filter_subject="s.a")
    for number in range(12):
        client.consumer(f"N{number}", filter_subject=f"s.n{number}.*")
        client.pull({"batch": 10, "expires": 3_600 * SECOND}, f"N{number}")
    inbox = client.pull({"batch": 10, "expires": 3_600 * SECOND})
    client.put(b"s.b")
    client.put(b"s.a")
    assert [m.stream_seq for m in inbox.take()] == [2]
    client.put(b"s.b")
    client.consumer(filter_subject="s.b")
    client.put(b"s.a")
    client.put(b"s.b")
    assert [m.stream_seq for m in inbox.take()] == [3, 5]
    client.publish(b"$JS.API.CONSUMER.RESET.S.C", json.dumps({"seq": 1}).encode(), b"x")
    assert [m.stream_seq for m in inbox.take()] == [1, 3, 5]
