from __future__ import annotations

import random
from collections.abc import Callable

import pytest

import peers
from headrace.api.streams import StreamConfig
from headrace.identity import Sameness
from headrace.spark.links.control import SETTLE_S, Control, settled_head
from headrace.spark.links.link import Link
from headrace.spark.offsets import Offset, StreamHead, reset_of
from headrace.spark.options import Connection

from ..conftest import Feed
from ..virtual import Time

EPOCH = "2026-01-02T03:04:05Z"


class Leaders(Control):
    """Answers as servers that lead the stream one after another: each tells its last sequence."""

    def __init__(self, *ends: int, replicas: int = 3, epoch: str = EPOCH) -> None:
        self.stream = "S"
        self._ends = list(ends)
        self._replicas = replicas
        self._epoch = epoch

    def head(self) -> tuple[StreamHead, StreamConfig]:
        end = self._ends.pop(0) if len(self._ends) > 1 else self._ends[0]
        config = StreamConfig(name="S", num_replicas=self._replicas)
        return StreamHead(self._epoch, 1, end, end, 100), config


def settled(leaders: Leaders) -> tuple[int, float]:
    time = Time()
    head, _ = settled_head(leaders, Offset(10, EPOCH), time.patience(0.0))
    return head.last_seq, time.clock()


def test_a_leader_that_has_not_caught_up_is_asked_again() -> None:
    end, waited = settled(Leaders(7, 9, 12))
    assert end == 12
    assert 0 < waited < 1


def test_a_replicated_stream_that_stays_behind_was_restored() -> None:
    end, waited = settled(Leaders(7))
    assert end == 7
    assert waited == pytest.approx(SETTLE_S)


@pytest.mark.parametrize(
    "leaders", [Leaders(7, 12, replicas=1), Leaders(7, 12, epoch="2027-01-01T00:00:00Z")]
)
def test_a_stream_of_one_server_and_another_stream_are_not_waited_for(leaders: Leaders) -> None:
    assert settled(leaders) == (7, 0)


def test_a_count_is_exact_and_leaves_no_consumer(feed: Feed) -> None:
    feed.publish([f"k{n % 10}" for n in range(1000)])
    name = feed.name
    assert feed.control.count(100, 900) == 800
    assert feed.control.count(100, 900, (f"{name}.k3",)) == 80
    assert feed.control.count(100, 900, (f"{name}.k3", f"{name}.k4")) == 160
    assert feed.consumers() == 0


def test_the_streams_that_exist_are_named_with_the_nearest_first(feed: Feed) -> None:
    control = Control(feed.link, feed.name + "X")
    assert control._others().startswith(f"; there are: {feed.name}")


@pytest.mark.parametrize("seed", range(4))
def test_what_was_read_of_another_stream_is_found_by_its_time_also_among_gaps(
    feed: Feed, seed: int
) -> None:
    choose = random.Random(seed)
    feed.publish_numbers(1, 40)
    for sequence in choose.sample(range(1, 41), choose.randrange(0, 30)):
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": sequence})
    kept = feed.stored(range(1, 41))
    head, _ = feed.control.head()
    for at_ns in {
        0,
        1,
        2**62,
        *(message.timestamp_ns + more for message in kept for more in (-1, 0, 1)),
    }:
        offset = Offset(50, EPOCH, stored_ns=at_ns or 1)
        place = feed.control.place(offset, head, Sameness.OTHER)
        read = [message.timestamp_ns <= offset.stored_ns for message in kept]
        assert read == [message.sequence <= place for message in kept]
        assert feed.control.place(offset, head, Sameness.GONE) == min(50, place)
        assert feed.control.place(offset, head, Sameness.SAME) == 50


def test_a_message_is_the_one_that_was_read_whatever_was_deleted_around_it(feed: Feed) -> None:
    feed.publish_numbers(1, 10)
    times = {message.sequence: message.timestamp_ns for message in feed.stored(range(1, 11))}

    def said(sequence: int, stored_ns: int) -> Sameness:
        head, _ = feed.control.head()
        return feed.control.sameness(Offset(sequence, EPOCH, stored_ns=stored_ns), head)

    head, _ = feed.control.head()
    for sequence in range(1, 11):
        assert feed.control.stored_ns(sequence, head) == times[sequence]
        assert said(sequence, times[sequence]) is Sameness.SAME
        assert said(sequence, times[sequence] - 1) is Sameness.OTHER
    assert said(11, times[10]) is Sameness.OTHER
    assert said(10, 0) is Sameness.GONE
    assert said(0, 0) is Sameness.SAME
    for sequence in (10, 4):  # the last one, too: what a server then tells of its time is no proof
        feed.call(f"STREAM.MSG.DELETE.{feed.name}", {"seq": sequence})
        assert said(sequence, times[sequence]) is not Sameness.OTHER
        assert said(9, times[9]) is Sameness.SAME
    feed.call(f"STREAM.PURGE.{feed.name}")
    assert said(9, times[9]) is Sameness.GONE
    assert feed.control.stored_ns(10, feed.control.head()[0]) == 0


@pytest.mark.peer
def test_a_user_who_may_get_no_messages_goes_by_the_creation_of_the_stream(
    nats_server: Callable[..., peers.ServerProcess],
) -> None:
    denied = '{ publish: { deny: ["$JS.API.STREAM.MSG.GET.>"] } }'
    users = f'{{ user: "a", password: "a" }}, {{ user: "b", password: "b", permissions: {denied} }}'
    server = nats_server(config=f"authorization {{ users: [ {users} ] }}")
    url = f"127.0.0.1:{server.port}"
    feed = Feed(f"nats://a:a@{url}")
    feed.publish_numbers(1, 10)
    link = Link.open(Connection(servers=(f"nats://b:b@{url}",)))
    control = Control(link, feed.name)
    head, _ = control.head()
    for offset in (Offset(5, head.epoch, stored_ns=1), Offset(5, EPOCH, stored_ns=1)):
        same = control.sameness(offset, head)
        assert same is Sameness.GONE
        assert bool(reset_of(offset, head, feed.name, same)) is (offset.epoch == EPOCH)
    link.close()
    feed.close()
