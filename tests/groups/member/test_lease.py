"""How long the pin is surely ours: never longer than a server that honours the pulls keeps it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.member.lease import Lease


def test_it_runs_from_the_moment_a_pull_was_sent() -> None:
    lease = Lease(5.0, since=100.0)
    assert lease.holds(104.9)
    assert not lease.holds(105.0)
    assert lease.answered(sent=103.0, now=104.0)
    assert lease.until == 108.0


def test_an_answer_that_comes_too_late_proves_nothing() -> None:
    lease = Lease(5.0, since=100.0)
    assert not lease.answered(sent=104.9, now=105.1)
    assert not lease.holds(105.1)


def test_an_older_pull_does_not_shorten_it_and_an_end_is_final() -> None:
    lease = Lease(5.0, since=100.0)
    lease.seen(sent=99.0)
    assert lease.until == 105.0
    lease.end()
    assert not lease.holds(100.0)
    assert not lease.answered(sent=100.0, now=100.1)


def test_it_is_due_once_a_third_of_it_is_over_whenever_it_begins() -> None:
    lease = Lease(6.0, since=100.0)
    assert lease.due_s(100.0) == 2.0
    assert lease.due_s(101.5) == 0.5
    assert lease.due_s(103.9) == 0.0
    assert lease.answered(sent=104.0, now=105.0)
    assert lease.due_s(105.0) == 1.0
    lease.end()
    assert lease.due_s(105.0) == 0.0


@given(
    st.floats(1, 10),
    st.lists(st.tuples(st.floats(0, 4), st.floats(0, 4), st.floats(0, 4)), min_size=1, max_size=20),
)
def test_the_server_holds_the_pin_for_at_least_as_long(
    seconds: float, pulls: list[tuple[float, float, float]]
) -> None:
    """A server that lets go when its timer runs out, and answers whether or not the pin is still ours."""
    now, kept_until = 0.0, seconds  # the pin was given when the first pull came, or later
    lease = Lease(seconds, since=0.0)
    for pause, out, back in pulls:
        sent = now + pause
        arrived = sent + out
        if arrived < kept_until:
            kept_until = arrived + seconds
        now = arrived + back
        if not lease.answered(sent, now):
            break
        assert lease.until <= kept_until
