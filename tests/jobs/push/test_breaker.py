"""The circuit breaker and the rate limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.jobs import limits
from headrace.jobs.push.breaker import Breaker, BreakerState, Bucket, Ceiling
from headrace.jobs.retry_policy import BreakerPolicy


def opened(now_s: float = 0.0) -> Breaker:
    breaker = Breaker(BreakerPolicy(failures=3, open_s=10))
    for _ in range(3):
        breaker.record(False, now_s)
    return breaker


def test_it_opens_after_failures_in_a_row_only() -> None:
    breaker = Breaker(BreakerPolicy(failures=3, open_s=10))
    for ok in (False, False, True, False, False):
        assert not breaker.record(ok, 0)
        assert breaker.allowance(0) is None
    assert breaker.record(False, 0)
    assert breaker.allowance(0) == 0
    assert breaker.wait_s(4) == 6


def test_one_probe_at_a_time_when_its_time_is_over() -> None:
    breaker = opened()
    assert breaker.allowance(9.9) == 0
    assert breaker.allowance(10) == 1
    breaker.begin(1)
    assert breaker.allowance(11) == 0
    assert breaker.record(False, 12), "a failing probe opens it again"
    assert breaker.allowance(21.9) == 0
    assert breaker.allowance(22) == 1
    breaker.begin(1)
    breaker.record(True, 23)
    assert (breaker.state, breaker.allowance(23)) == (BreakerState.CLOSED, None)


def test_a_probe_not_used_stays_allowed() -> None:
    breaker = opened()
    assert breaker.allowance(10) == 1
    breaker.begin(0)
    assert breaker.allowance(10) == 1
    breaker.begin(1)
    assert breaker.allowance(10) == 0
    breaker.forget()
    assert breaker.allowance(10) == 1


@given(st.lists(st.tuples(st.booleans(), st.floats(0, 5))))
def test_an_open_breaker_always_lets_a_probe_through_in_the_end(
    steps: list[tuple[bool, float]],
) -> None:
    breaker, now = Breaker(BreakerPolicy(failures=2, open_s=3)), 0.0
    for ok, later in steps:
        now += later
        allowed = breaker.allowance(now)
        if allowed is None or allowed > 0:
            breaker.begin(1)
            breaker.record(ok, now)
    assert breaker.allowance(now + 3) != 0


@given(st.floats(0.1, 500), st.lists(st.floats(0, 2), min_size=1, max_size=100))
def test_a_rate_is_kept_whatever_the_moments(rate: float, pauses: list[float]) -> None:
    bucket, now, taken = Bucket(rate, 0.0), 0.0, 0
    for pause in pauses:
        now += pause
        allowed = bucket.allowance(now)
        assert allowed is not None
        bucket.take(allowed)
        taken += allowed
        assert taken <= max(1.0, rate) + now * rate + 1e-6
        wait = bucket.wait_s()
        assert wait is not None
        assert 0 < wait <= 1 / rate + 1e-9


def test_no_rate_is_no_limit() -> None:
    bucket = Bucket(0, 0)
    assert bucket.allowance(5) is None
    assert bucket.wait_s() is None


def never() -> None:
    raise AssertionError("there was room")


def test_one_channel_and_one_consumer_leave_room_for_others() -> None:
    ceiling = Ceiling(limits.PUSH_CALLS_MAX)
    concurrency = limits.PUSH_CONCURRENCY_MAX
    assert ceiling.take("c", "k1", concurrency, never) == concurrency
    taken = concurrency
    for consumer in ("k2", "k3", "k4", "k5"):
        more = ceiling.take("c", consumer, concurrency, never)
        assert more > 0
        taken += more
    assert taken <= limits.PUSH_CALLS_MAX // 2
    assert ceiling.take("d", "k", 200, never) == 200


@given(
    st.integers(1, 300),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3), st.integers(-50, 50)), max_size=60),
)
def test_no_more_are_under_way_than_allowed_and_who_waits_is_woken(
    calls: int, steps: list[tuple[int, int, int]]
) -> None:
    ceiling = Ceiling(calls)
    has: dict[tuple[str, str], int] = {}
    waiting: set[tuple[str, str]] = set()
    for channel, consumer, wanted in steps:
        key = str(channel), str(consumer)
        if wanted > 0:
            busy = any(has[each] for each in has if each[0] == key[0])
            free = calls - sum(has.values())
            taken = ceiling.take(*key, wanted, lambda key=key: waiting.discard(key))  # type: ignore[misc]
            assert 0 <= taken <= wanted
            assert taken > 0 or busy or not free, "a channel that has none gets one"
            has[key] = has.get(key, 0) + taken
            (waiting.discard if taken else waiting.add)(key)
        else:
            ended = min(-wanted, has.get(key, 0))
            ceiling.give_back(*key, ended)
            has[key] = has.get(key, 0) - ended
        assert sum(has.values()) <= calls
    while any(has.values()):
        key = max(has, key=lambda each: has[each])
        before = len(waiting)
        ceiling.give_back(*key, 1)
        has[key] -= 1
        # Where all are free, one is woken; what it does not take wakes the next.
        assert before - len(waiting) in ((0, 1) if any(has.values()) else (min(1, before),))
