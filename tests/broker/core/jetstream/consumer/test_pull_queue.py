from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from headrace.api.consumers import PullRequest
from headrace.broker.core.jetstream.consumer.pull_queue import (
    PullQueue,
    PullTerms,
    Thresholds,
    WaitingRequest,
)

SECOND = 1_000_000_000
ALL = 10


def request(inbox: bytes = b"i", lane: int = 0, now_ns: int = 0, **fields: Any) -> WaitingRequest:
    made = WaitingRequest(inbox, PullTerms(PullRequest(**fields)), now_ns)
    made.lane = lane
    return made


def filled(*requests: WaitingRequest, lanes: int = 1) -> PullQueue:
    queue = PullQueue(512, lanes)
    for one in requests:
        queue.add(one)
    return queue


def test_requests_take_turns() -> None:
    first, second = request(b"1", batch=2), request(b"2", batch=2)
    queue = filled(first, second)
    served = []
    for _ in range(4):
        one = queue.pop(ALL)
        assert one is not None
        served.append(one.inbox)
        queue.push_back(one)
    assert served == [b"1", b"2", b"1", b"2"]


def test_a_lower_lane_is_served_first_and_takes_turns_within_itself() -> None:
    queue = filled(request(b"late", 3), request(b"a", 1), request(b"b", 1), lanes=10)
    served = []
    while one := queue.pop(ALL):
        served.append(one.inbox)
    assert served == [b"a", b"b", b"late"]


def test_what_is_wanted_follows_deliveries_and_ends() -> None:
    first, second = request(batch=5), request(batch=0)
    queue = filled(first, second)
    assert (queue.waiting, queue.wanted) == (2, 6)
    queue.delivered(first, 3, 0, 0)
    assert queue.wanted == 3
    queue.delivered(second, 1, 0, 0)
    assert second.left == -1
    queue.finish(second)
    queue.finish(second)
    assert (queue.waiting, queue.wanted) == (1, 2)
    queue.finish(first)
    assert (queue.waiting, queue.wanted) == (0, 0)


def test_requests_expire_in_order_of_their_time() -> None:
    times = [0.2, 0.1, 0.025, 0.075]
    queue = filled(*(request(str(t).encode(), expires=t) for t in times))
    assert queue.next_time_ns() == SECOND // 40
    due = []
    for one, expired in queue.due(SECOND):
        assert expired
        queue.finish(one)
        due.append(one.inbox)
    assert due == [b"0.025", b"0.075", b"0.1", b"0.2"]
    assert queue.next_time_ns() is None


def test_a_negative_expiry_is_due_at_once() -> None:
    one = request(expires=-1.0, now_ns=5 * SECOND)
    assert [expired for _, expired in filled(one).due(5 * SECOND)] == [True]


def test_a_heartbeat_comes_after_silence_and_again_after_it() -> None:
    one = request(idle_heartbeat=1.0, expires=10.0)
    queue = filled(one)
    assert [expired for _, expired in queue.due(SECOND)] == [False]
    assert not list(queue.due(2 * SECOND - 1))
    assert [expired for _, expired in queue.due(2 * SECOND)] == [False]


def test_a_delivery_puts_the_heartbeat_off() -> None:
    one = request(idle_heartbeat=1.0, expires=10.0, batch=5)
    queue = filled(one)
    queue.delivered(one, 1, 0, SECOND // 2)
    assert not list(queue.due(SECOND))
    assert queue.next_time_ns() == SECOND + SECOND // 2
    assert [expired for _, expired in queue.due(SECOND + SECOND // 2)] == [False]


def test_finished_requests_leave_no_trace() -> None:
    queue = PullQueue(1 << 30)
    keep = request(expires=1000.0)
    queue.add(keep)
    for _ in range(10_000):
        one = request(expires=1000.0)
        queue.add(one)
        queue.finish(one)
    assert len(queue._times) < 2_100
    assert len(queue._lanes[0].requests) < 2_100
    assert list(queue) == [keep]


def test_a_one_shot_waits_for_its_first_message_only_when_it_has_an_expiry() -> None:
    assert request(no_wait=True).one_shot
    patient = request(no_wait=True, expires=1.0, batch=2)
    assert not patient.one_shot
    filled(patient).delivered(patient, 1, 0, 0)
    assert patient.one_shot


class Receiver:
    """A target that only knows whether it has enough."""

    def __init__(self, blocked: bool = False) -> None:
        self.blocked = blocked


def turns(
    queue: PullQueue, count: int, targets: dict[bytes, Receiver], number: int = 1
) -> list[str]:
    names = {id(target): inbox.decode() for inbox, target in targets.items()}
    taken = queue.serve_in_turn(count, ALL, "", number, 7, targets.get, Thresholds(0, 0, 1))  # type: ignore[arg-type]
    return [names[id(target)] for target in taken]


def test_turns_taken_at_once_are_those_taken_one_by_one() -> None:
    targets = {b"1": Receiver(), b"2": Receiver(), b"3": Receiver()}
    first, second, third = request(b"1", batch=2), request(b"2", batch=0), request(b"3", batch=9)
    queue = filled(first, second, third)
    assert turns(queue, 6, targets) == ["1", "2", "3", "1", "3", "3"]
    assert [(one.delivered, one.waiting) for one in (first, second, third)] == [
        (2, False),
        (1, False),
        (3, True),
    ]
    assert (queue.waiting, queue.wanted) == (1, 6)
    assert third.quiet_since_ns == 7


def test_turns_end_at_a_request_that_needs_a_closer_look() -> None:
    for targets, limited in (
        ({b"1": Receiver()}, {}),  # nobody listens
        ({b"1": Receiver(), b"2": Receiver(blocked=True)}, {}),
        ({b"1": Receiver(), b"2": Receiver()}, {"max_bytes": 10}),
    ):
        queue = filled(request(b"1", batch=5), request(b"2", batch=5, **limited))
        assert turns(queue, 4, targets) == ["1"]
        closer = queue.pop(ALL)
        assert closer is not None
        assert closer.inbox == b"2"
        queue.finish(closer)
        assert turns(queue, 3, targets) == ["1", "1", "1"]


def test_turns_taken_at_once_keep_to_the_first_lane_that_has_anybody() -> None:
    targets = {b"late": Receiver(), b"a": Receiver(), b"b": Receiver()}
    queue = filled(
        request(b"late", 3, batch=9),
        request(b"a", 1, batch=2),
        request(b"b", 1, batch=1),
        lanes=10,
    )
    assert turns(queue, 2, targets) == ["a", "b"]
    assert turns(queue, 3, targets) == ["a", "late", "late"]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 40)), min_size=1, max_size=6),
    st.lists(st.integers(1, 70), min_size=1, max_size=4),
)
def test_many_turns_at_once_are_as_many_turns_one_by_one(
    wanted: list[tuple[int, int]], counts: list[int]
) -> None:
    targets = {b"%d" % number: Receiver() for number in range(len(wanted))}
    made = [
        filled(
            *(request(b"%d" % n, lane, batch=batch) for n, (lane, batch) in enumerate(wanted)),
            lanes=3,
        )
        for _ in range(2)
    ]
    for number, count in enumerate(counts, 1):
        together = turns(made[0], count, targets, number)
        one_by_one: list[str] = []
        while len(one_by_one) < count and (one := turns(made[1], 1, targets, number)):
            one_by_one += one
        assert together == one_by_one
        told = [[(one.inbox, one.left, one.delivered, one.turn) for one in queue] for queue in made]
        assert told[0] == told[1]
        totals = [(queue.waiting, queue.wanted, queue.wanted_in(1)) for queue in made]
        assert totals[0] == totals[1]
