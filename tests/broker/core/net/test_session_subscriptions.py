"""The subscriptions of one session: which kind each is, what was delivered, what ``renew`` keeps."""

from __future__ import annotations

import random

import pytest

from headrace.broker.core.auth.authentication import Identity
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.net.subscription import GuardedSubscription, Subscription
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.subjects import SubjectFilter

CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'


def connected(kind: type[Session] = Session) -> tuple[Hub, Session]:
    hub = Hub(ManualClock(), random.Random(1))
    session = hub.connect(Peer(), kind)
    session.receive(CONNECT)
    return hub, session


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
