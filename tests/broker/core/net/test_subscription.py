"""Subscriptions of clients whose permissions are decided message by message."""

from __future__ import annotations

import random

from headrace.broker.core.auth.authentication import User, UserAuthentication
from headrace.broker.core.auth.permissions import Permissions, ResponsePermission
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.session import Session
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.subjects import SubjectFilter

GUARDED = Permissions(subscribe_deny=SubjectFilter([b"a.secret"]))
ANSWERING = Permissions(
    publish_deny=SubjectFilter([b">"]), responses=ResponsePermission(1, 1_000_000_000)
)


def hub_of(permissions: Permissions) -> Hub:
    users = [User("ann", "p", permissions), User("admin", "p")]
    return Hub(ManualClock(), random.Random(1), None, UserAuthentication(users))


def connect(hub: Hub, user: str, *lines: bytes) -> Session:
    session = hub.connect(Peer())
    session.receive(
        b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,'
        b'"user":"%b","pass":"p"}\r\n' % user.encode()
    )
    session.take_output()
    for line in lines:
        session.receive(line + b"\r\n")
    return session


def said(session: Session) -> bytes:
    return b"".join(session.take_output())


def test_a_denied_subject_is_kept_out_by_whatever_way_it_comes() -> None:
    hub = hub_of(GUARDED)
    ann = connect(hub, "ann", b"SUB a.> 1")
    router = hub.router
    router.publish_many([(b"a.b", b"1"), (b"a.secret", b"2"), (b"a.b", b"3")])
    assert said(ann) == b"MSG a.b 1 1\r\n1\r\nMSG a.b 1 1\r\n3\r\n"
    assert router.publish(b"a.secret", b"", b"", b"x") == 0
    assert router.publish(b"a.b", b"", b"", b"x") == 1
    said(ann)
    target = router.resolve(b"a.inbox")
    assert target is not None
    target.send(b"a.secret", b"", b"", b"x")  # a stream shows the subject it was stored with
    target.send(b"other", b"", b"", b"x")
    assert said(ann) == b"MSG other 1 1\r\nx\r\n"


def test_a_request_that_nobody_may_see_has_no_responders() -> None:
    hub = hub_of(GUARDED)
    ann = connect(hub, "ann", b"SUB a.> 1")
    admin = connect(hub, "admin", b"SUB inbox 1", b"PUB a.secret inbox 1\r\nx")
    assert b"503" in said(admin)
    assert said(ann) == b""


def test_another_member_of_the_queue_group_stands_in() -> None:
    hub = hub_of(GUARDED)
    ann = connect(hub, "ann", b"SUB a.> workers 1")
    admin = connect(hub, "admin", b"SUB a.> workers 1")
    for _ in range(20):
        assert hub.router.publish(b"a.secret", b"", b"", b"x") == 1
    assert said(ann) == b""
    assert said(admin).count(b"MSG") == 20


def test_a_publisher_without_echo_does_not_hear_itself_when_guarded() -> None:
    hub = hub_of(GUARDED)
    ann = connect(hub, "ann", b'CONNECT {"verbose":false,"echo":false,"user":"ann","pass":"p"}')
    ann.receive(b"SUB a.> 1\r\nPUB a.b 1\r\nx\r\n")
    assert b"MSG" not in said(ann)


def test_a_stream_s_message_may_be_acknowledged_by_who_may_only_answer() -> None:
    hub = hub_of(ANSWERING)
    ann = connect(hub, "ann", b"SUB inbox 1")
    admin = connect(hub, "admin", b"SUB $JS.ACK.> 1")
    target = hub.router.resolve(b"inbox")
    assert target is not None
    target.send(b"orders", b"$JS.ACK.S.C.1", b"", b"x")
    ann.receive(b"PUB $JS.ACK.S.C.1 4\r\n+ACK\r\nPUB $JS.ACK.S.C.1 4\r\n+ACK\r\n")
    assert said(admin).count(b"+ACK") == 1
    assert said(ann).count(b"Permissions Violation") == 1


def test_a_limit_of_messages_counts_only_what_was_delivered() -> None:
    hub = hub_of(GUARDED)
    ann = connect(hub, "ann", b"SUB a.> 1", b"UNSUB 1 1")
    hub.router.publish(b"a.secret", b"", b"", b"x")
    hub.router.publish(b"a.b", b"", b"", b"x")
    assert said(ann) == b"MSG a.b 1 1\r\nx\r\n"
    assert ann.subscriptions == {}
