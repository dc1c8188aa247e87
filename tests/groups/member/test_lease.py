"""How long the pin is surely ours: never longer than a server that honours the pulls keeps it."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.groups.member.lease import Lease


def test_it_runs_from_the_moment_a_pull_was_sent() -> None:
    lease = Lease(5.0, since=100.0)
    assert lease.holds(104.9)
    assert not lease.holds(105.0)
    assert lease.answered(sent=103.0, now=104.0, came=False)
    assert lease.until == 108.0


def test_an_answer_that_comes_too_late_proves_nothing() -> None:
    lease = Lease(5.0, since=100.0)
    assert not lease.answered(sent=104.9, now=105.1, came=False)
    assert not lease.holds(105.1)


def test_an_older_pull_does_not_shorten_it_and_an_end_is_final() -> None:
    lease = Lease(5.0, since=100.0)
    lease.seen(sent=99.0, came=False)
    assert lease.until == 105.0
    lease.end()
    assert not lease.holds(100.0)
    assert not lease.answered(sent=100.0, now=100.1, came=False)


def test_it_is_due_once_a_third_of_it_is_over_whenever_it_begins() -> None:
    lease = Lease(6.0, since=100.0)
    assert lease.due_s(100.0) == 2.0
    assert lease.due_s(101.5) == 0.5
    assert lease.due_s(103.9) == 0.0
    assert lease.answered(sent=104.0, now=105.0, came=False)
    assert lease.due_s(105.0) == 1.0
    lease.end()
    assert lease.due_s(105.0) == 0.0


def test_it_lasts_until_a_third_of_it_is_left_and_not_once_it_has_ended() -> None:
    lease = Lease(6.0, 10.0)
    assert lease.lasts(13.9)
    assert not lease.lasts(14.0)
    lease.end()
    assert not lease.lasts(11.0)


def test_with_messages_that_came_meanwhile_it_runs_from_the_pull_before() -> None:
    lease = Lease(6.0, since=100.0)
    lease.seen(sent=105.0, came=True)
    assert lease.until == 106.0, "they may have been on their way since the beginning"
    lease.seen(sent=105.5, came=True)
    assert lease.until == 111.0
    assert lease.answered(sent=107.0, now=107.1, came=False)
    assert lease.until == 113.0
    assert lease.answered(sent=109.0, now=109.1, came=True)
    assert lease.until == 113.0


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
        if not lease.answered(sent, now, came=False):
            break
        assert lease.until <= kept_until


DELAY = st.sampled_from((0.0, 0.01, 0.5, 2.0, 4.0)) | st.floats(0, 4)


@given(
    st.floats(1, 10),
    st.lists(st.tuples(DELAY, DELAY, DELAY), min_size=1, max_size=12),
    st.lists(st.tuples(st.floats(0, 30), DELAY), max_size=30),
)
def test_no_message_is_another_s_while_it_runs(
    seconds: float,
    pulls: list[tuple[float, float, float]],
    deliveries: list[tuple[float, float]],
) -> None:
    """``seconds``: the time to acknowledge. Answers and deliveries come in the order of their sending."""
    lease = Lease(seconds, since=0.0)
    later = sorted(deliveries)
    here: dict[int, float] = {}  # when a message that came may be another's
    number, asked, came_last = 0, 0.0, -1.0
    for pause, out, back in pulls:
        sent = asked + pause
        heard = sent + out
        due: dict[int, float] = {}
        arrivals: dict[int, float] = {}
        clear = asked  # nothing comes before what was sent before it
        while later and later[0][0] < heard:
            delivered, delay = later.pop(0)
            clear = max(clear, delivered + delay)
            due[number], arrivals[number] = delivered + seconds, clear
            number += 1
        answered = max(clear, heard + back)
        for each, arrival in arrivals.items():
            here[each] = heard + seconds if arrival <= sent else due[each]
            came_last = max(came_last, arrival)
        covered = set(here) - set(arrivals)
        here.update((each, heard + seconds) for each in covered)
        if not lease.holds(answered):
            lease.seen(sent, came=came_last >= sent)  # as one does who begins
        elif not lease.answered(sent, answered, came=came_last >= sent):
            return
        asked = answered
        if lease.holds(answered):
            assert lease.until <= min(here.values(), default=lease.until)
            following = [delivered + seconds for delivered, _ in later]
            assert lease.until <= min(following, default=lease.until)
