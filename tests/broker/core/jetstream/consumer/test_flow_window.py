"""Flow control and rates as plain arithmetic."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.jetstream.consumer.push import FlowWindow, RateLimit
from headrace.limits import FLOW_WINDOW_BYTES_FIRST, FLOW_WINDOW_BYTES_MAX

SECOND = 1_000_000_000


def test_half_a_window_asks_once_and_a_full_one_waits() -> None:
    window = FlowWindow()
    window.sent(FLOW_WINDOW_BYTES_FIRST // 2)
    assert not window.should_ask
    window.sent(1)
    assert window.should_ask
    window.ask(b"r1")
    window.sent(FLOW_WINDOW_BYTES_FIRST // 2)
    assert not window.should_ask
    assert window.is_full
    assert not window.answered(b"r0")
    assert window.is_full
    assert window.answered(b"r1")
    assert not window.is_full
    assert window.outstanding == FLOW_WINDOW_BYTES_FIRST // 2


def test_who_comes_next_begins_with_nothing_on_its_way() -> None:
    window = FlowWindow()
    window.sent(FLOW_WINDOW_BYTES_FIRST + 1)
    window.ask(b"r1")
    window.forget()
    assert not window.is_full
    assert not window.answered(b"r1")


@given(st.lists(st.integers(1, 3 * FLOW_WINDOW_BYTES_FIRST), max_size=200))
def test_flow_control_never_stops_for_good_and_never_lets_more_than_a_window_through(
    sizes: list[int],
) -> None:
    window = FlowWindow()
    numbers = iter(range(1_000_000))
    for size in sizes:
        while window.is_full:
            assert window.request, "nobody would ever open the window again"
            window.answered(window.request)
            if window.should_ask:
                window.ask(b"%d" % next(numbers))
        assert window.outstanding <= FLOW_WINDOW_BYTES_MAX
        slack, asked = window.slack, bool(window.request)
        window.sent(size)
        assert (size >= slack) == (window.is_full if asked else window.should_ask)
        if window.should_ask:
            window.ask(b"%d" % next(numbers))


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    rate = RateLimit(8_000, 2_000, 0)
    for _ in range(3):
        assert rate.due_ns <= 0
        rate.sent(1_000, 0)
    assert rate.due_ns == SECOND
    rate.sent(1_000, SECOND)
    assert rate.due_ns == 2 * SECOND


def test_a_burst_is_saved_up_but_not_more() -> None:
    rate = RateLimit(8_000, 2_000, 0)
    rate.sent(2_000, 0)
    rate.sent(2_000, 100 * SECOND)
    assert rate.due_ns == 100 * SECOND


@given(st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, SECOND)), max_size=100))
def test_the_rate_is_kept_whatever_is_sent(messages: list[tuple[int, int]]) -> None:
    rate = RateLimit(80_000, 4_000, 0)
    now_ns = total = 0
    for size, pause_ns in messages:
        now_ns = max(now_ns + pause_ns, rate.due_ns)
        assert total <= 4_000 + 10_000 * now_ns / SECOND
        rate.sent(size, now_ns)
        total += size
