from __future__ import annotations

import pytest

from headrace.api.streams import StreamConfig
from headrace.spark.links.control import SETTLE_S, Control, settled_head
from headrace.spark.offsets import Offset, StreamHead

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
