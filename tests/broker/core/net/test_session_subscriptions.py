"""The subscriptions of one session: which kind each is, what was delivered, what ``renew`` keeps."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.auth.authentication import Identity
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.session_subscriptions import SessionSubscriptions
from headrace.broker.core.net.subscription import GuardedSubscription, Subscription
from headrace.broker.core.options import HubOptions
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.subjects import SubjectFilter

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


def connected(kind: type[Session] = Session) -> tuple[Hub, Session]:
    hub = Hub(ManualClock(), random.Random(1))
    session = hub.connect(Peer(), kind)
    session.receive(CONNECT)
    return hub, session


LINES = st.one_of(
    st.builds(b"SUB w.%d.* %d\r\n".__mod__, st.tuples(st.integers(0, 9), st.integers(0, 60))),
    st.builds(b"SUB a.b q %d\r\n".__mod__, st.tuples(st.integers(0, 60))),
    st.sampled_from(
        [
            b"SUB a..b 77\r\n",
            b"SUB \xff 78\r\n",
            b"SUB a.b.c.d.e 79\r\n",
            b"SUB $JS.ACK.> 80\r\n",
            b"SUB > 81\r\n",
            b"UNSUB 3\r\n",
            b"PUB w.1.x 2\r\nhi\r\n",
            b"PUB a.b 2\r\nhi\r\n",
            b"PING\r\n",
        ]
    ),
)


def life(chunks: list[bytes]) -> tuple[bytes, list[tuple[bytes, bytes, bytes, int]], list[int]]:
    """What a client hears that says this, and what it has subscribed to at the end."""
    options = HubOptions(subscriptions_max=20, subscription_tokens_max=4)
    hub = Hub(ManualClock(), random.Random(1), options)
    session = hub.connect(Peer(), Session)
    session.receive(CONNECT)
    session.take_output()
    heard = b""
    for chunk in chunks:
        session.receive(chunk)
        hub.end_of_tick()
        heard += said(session)
    kept = [
        (sid, each.pattern, each.queue, each.delivered)
        for sid, each in session.subscriptions.items()
    ]
    router = hub.router
    receivers = [
        len(router.find(subject).plain) for subject in (b"w.1.x", b"a.b", b"$JS.ACK.S.C.1")
    ]
    return heard, kept, [router.subscriptions, router.added, *receivers]


@given(st.lists(LINES, max_size=50))
def test_lines_that_come_together_do_what_they_do_alone(lines: list[bytes]) -> None:
    assert life([b"".join(lines)]) == life(lines)


def test_lines_that_come_together_are_taken_together(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, together = [], SessionSubscriptions._add_together

    def counted(each: SessionSubscriptions, options: Any, frames: Any) -> bool:
        taken.append(len(frames))
        assert together(each, options, frames)
        return True

    monkeypatch.setattr(SessionSubscriptions, "_add_together", counted)
    _hub, session = connected()
    session.receive(b"".join([b"SUB w.%d.* %d\r\n" % (n, n) for n in range(200)]) + b"PING\r\n")
    assert (taken, len(session.subscriptions)) == ([32] * 6 + [8], 200)
    assert said(session).endswith(b"PONG\r\n")


def said(session: Session) -> bytes:
    return b"".join(session.take_output())


def denied(*patterns: bytes) -> Permissions:
    return Permissions(subscribe_deny=SubjectFilter(patterns))


@pytest.mark.parametrize("kind", [Session, InProcessSession])
def test_whoever_has_permissions_is_asked_about_each_message(kind: type[Session]) -> None:
    _hub, session = connected(kind)
    session.receive(b"SUB a.> 1\r\n")
    free = session.subscriptions[b"1"]
    assert type(free) is Subscription or kind is InProcessSession
    session.identity = Identity(permissions=denied(b"a.secret"))
    session.receive(b"SUB a.> 2\r\n")
    guarded = session.subscriptions[b"2"]
    assert isinstance(guarded, GuardedSubscription)
    assert guarded.admits(b"a.b")
    assert not guarded.admits(b"a.secret")
    assert free.admits(b"a.secret")


def test_what_ended_subscriptions_delivered_still_counts() -> None:
    hub, session = connected()
    session.receive(b"SUB a 1\r\nSUB a 2\r\n")
    for _ in range(3):
        hub.router.publish(b"a", b"", b"", b"x")
    assert session.out_messages == 6
    session.receive(b"UNSUB 1\r\n")
    assert (session.out_messages, list(session.subscriptions)) == (6, [b"2"])
    session.disconnected()
    assert (session.out_messages, list(session.subscriptions)) == (6, [])
    assert hub.past_traffic[1] == 6


def test_a_subscription_ends_after_the_messages_it_asked_for() -> None:
    hub, session = connected()
    session.receive(b"SUB a 1\r\nUNSUB 1 2\r\n")
    assert [hub.router.publish(b"a", b"", b"", b"x") for _ in range(3)] == [1, 1, 0]
    assert not session.subscriptions


def test_renewing_keeps_counts_and_drops_what_is_not_permitted_any_more() -> None:
    hub, session = connected()
    session.receive(b"SUB a 1\r\nSUB b 2\r\nUNSUB 1 5\r\n")
    hub.router.publish(b"a", b"", b"", b"x")
    said(session)
    session.change_identity(Identity(permissions=denied(b"b")))
    assert b'Permissions Violation for Subscription to "b" (sid "2")' in said(session)
    kept = session.subscriptions[b"1"]
    assert (list(session.subscriptions), kept.delivered, kept.messages_max) == ([b"1"], 1, 5)
    assert hub.router.publish(b"a", b"", b"", b"x") == 1
    assert hub.router.publish(b"b", b"", b"", b"x") == 0


def test_the_first_subscription_of_an_id_stays() -> None:
    hub, session = connected()
    session.receive(b"SUB a 1\r\nSUB b 1\r\n")
    assert session.subscriptions[b"1"].pattern == b"a"
    assert not hub.router.has_interest(b"b")
