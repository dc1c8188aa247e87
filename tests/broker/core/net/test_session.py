"""Sessions as functions from bytes to bytes; what is expected was seen on nats-server 2.15.1."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace import __version__
from headrace.broker.core.auth.authentication import TokenAuthentication, User, UserAuthentication
from headrace.broker.core.auth.permissions import Permissions
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.session import Session
from headrace.broker.core.options import HubOptions
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.subjects import SubjectFilter

PLAIN = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Talk:
    """One hub and its clients."""

    def __init__(self, authenticator: Any = None, **options: Any) -> None:
        self.clock = ManualClock()
        self.hub = Hub(self.clock, random.Random(1), HubOptions(**options), authenticator)

    def connect(self, *lines: bytes) -> Session:
        session = self.hub.connect(Peer("127.0.0.1", 5000))
        assert b"".join(session.take_output()).startswith(b"INFO {")
        for line in lines:
            session.receive(line)
        return session

    def said(self, session: Session) -> bytes:
        self.hub.end_of_tick()
        return b"".join(session.take_output())

    def ask(self, *chunks: bytes) -> bytes:
        """What one new client hears; ``<closed>`` at the end if it is hung up on."""
        session = self.connect(*chunks)
        return self.said(session) + (b"<closed>" if session.closed else b"")

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.hub.run_timers()


@pytest.mark.parametrize(
    ("sent", "heard"),
    [
        (b"CONNECT {}\r\nPING\r\n", b"+OK\r\nPONG\r\n"),
        (b"PUB foo 2\r\nhi\r\nPING\r\n", b"+OK\r\nPONG\r\n"),
        (b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n", b"+OK\r\n+OK\r\nMSG foo 1 2\r\nhi\r\n"),
        (b"CONNECT {x\r\nPING\r\n", b"<closed>"),
        (PLAIN + b"SUB foo..a 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n"),
        (PLAIN + b"SUB foo.>.a 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n"),
        (b"CONNECT {}\r\nSUB foo..a 1\r\n", b"+OK\r\n-ERR 'Invalid Subject'\r\n"),
        (PLAIN + b"UNSUB 9\r\nPING\r\n", b"PONG\r\n"),
        (PLAIN + b"FOO\r\nPING\r\n", b"-ERR 'Unknown Protocol Operation'\r\n<closed>"),
        (PLAIN + b"PUB foo 2000000\r\n", b"-ERR 'Maximum Payload Violation'\r\n<closed>"),
        (
            PLAIN + b"PUB " + b"a" * 5000 + b" 2\r\nhi\r\n",
            b"-ERR 'maximum control line exceeded'\r\n<closed>",
        ),
        (PLAIN + b"PUB foo\r\n", b"<closed>"),
        (PLAIN + b"PUB foo x\r\n", b"<closed>"),
        (PLAIN + b"PUB foo 2\r\nhello\r\n", b"-ERR 'Unknown Protocol Operation'\r\n<closed>"),
        (
            b'CONNECT {"verbose":false,"protocol":2}\r\n',
            b"-ERR 'invalid client protocol'\r\n<closed>",
        ),
        (
            b'CONNECT {"verbose":false,"headers":false,"no_responders":true}\r\n',
            b"-ERR 'no responders requires headers support'\r\n<closed>",
        ),
        (b'CONNECT {"verbose":false}\r\nHPUB foo 12 12\r\nNATS/1.0\r\n\r\n\r\n', b"<closed>"),
        (PLAIN + b'CONNECT {"verbose":true}\r\nPING\r\n', b"+OK\r\nPONG\r\n"),
        (
            PLAIN + b"SUB foo 1\r\nPUB foo $JS.ACK.x 1\r\nx\r\nPING\r\n",
            b"-ERR 'Permissions Violation for Publish with Reply of \"$JS.ACK.x\"'\r\nPONG\r\n",
        ),
        (
            b"CONNECT {}\r\nSUB foo 1\r\nPUB foo $JS.ACK.x 1\r\nx\r\n",
            (
                b"+OK\r\n+OK\r\n"
                b"-ERR 'Permissions Violation for Publish with Reply of \"$JS.ACK.x\"'\r\n"
            ),
        ),
        (
            (
                b'CONNECT {"verbose":true,"pedantic":false}\r\nSUB foo 1\r\nPUB foo 1\r\nx\r\nUNSUB 1\r\n'
                b"PING\r\nPONG\r\n"
            ),
            b"+OK\r\n+OK\r\n+OK\r\nMSG foo 1 1\r\nx\r\n+OK\r\nPONG\r\n",
        ),
        (
            (
                b'CONNECT {"verbose":false,"pedantic":true}\r\nSUB > 1\r\nPUB foo.* 2\r\nhi\r\n'
                b"PUB foo..a 2\r\nhi\r\n"
            ),
            (
                b"-ERR 'Invalid Publish Subject'\r\nMSG foo.* 1 2\r\nhi\r\n"
                b"-ERR 'Invalid Publish Subject'\r\n"
            ),
        ),
        (
            PLAIN + b"SUB > 1\r\nPUB foo..a 1\r\nx\r\nPUB foo.* 1\r\nx\r\nPUB > 1\r\nx\r\n",
            b"MSG foo.* 1 1\r\nx\r\nMSG > 1 1\r\nx\r\n",
        ),
        (PLAIN + b"SUB foo.bar 1\r\nPUB foo.* 2\r\nhi\r\nPUB foo.> 2\r\nhi\r\n", b""),
    ],
)
def test_a_client_hears_what_nats_server_says(sent: bytes, heard: bytes) -> None:
    assert Talk().ask(sent) == heard


def test_the_greeting_says_who_and_what_the_server_is() -> None:
    talk = Talk(server_name="mill", port=4333, max_payload=1000)
    session = talk.hub.connect(Peer("10.1.2.3", 5000))
    line = b"".join(session.take_output())
    assert line.startswith(b'INFO {"server_id":"N')
    for part in (
        b'"server_name":"mill"',
        b'"port":4333',
        b'"max_payload":1000',
        b'"headers":true',
        b'"client_ip":"10.1.2.3"',
        b'"api_lvl":4',
        b'"version":"2.14.0"',  # what clients switch their features by
        b'"headrace":"' + __version__.encode() + b'"',  # what people ask for
    ):
        assert part in line
    assert b"auth_required" not in line
    assert line.endswith(b"} \r\n")


def test_a_second_subscription_with_the_same_id_is_ignored() -> None:
    heard = Talk().ask(PLAIN, b"SUB foo 1\r\nSUB bar 1\r\nPUB bar 1\r\nx\r\nPUB foo 1\r\ny\r\n")
    assert heard == b"MSG foo 1 1\r\ny\r\n"


@pytest.mark.parametrize(
    ("before", "limit", "after", "expected"),
    [(0, 2, 3, 2), (2, 2, 1, 2), (2, 3, 2, 3), (1, 0, 1, 1)],
)
def test_unsubscribing_counts_from_the_beginning(
    before: int, limit: int, after: int, expected: int
) -> None:
    publish = b"PUB foo 1\r\nx\r\n"
    unsubscribe = b"UNSUB 1 %d\r\n" % limit if limit else b"UNSUB 1\r\n"
    talk = Talk()
    heard = talk.ask(PLAIN + b"SUB foo 1\r\n" + publish * before + unsubscribe + publish * after)
    assert heard == b"MSG foo 1 1\r\nx\r\n" * expected
    assert talk.hub.router.subscriptions == (0 if expected == limit or not limit else 1)


def test_a_request_nobody_hears_is_answered_at_once() -> None:
    heard = Talk().ask(PLAIN, b"SUB inbox.* 1\r\nSUB inbox.* 2\r\nPUB foo inbox.7 2\r\nhi\r\n")
    assert heard == b"HMSG inbox.7 1 35 35\r\nNATS/1.0 503\r\nNats-Subject: foo\r\n\r\n\r\n"


def test_only_the_requester_hears_that_nobody_is_there() -> None:
    talk = Talk()
    other = talk.connect(PLAIN, b"SUB inbox 1\r\n")
    asker = talk.connect(PLAIN, b"SUB inbox 8\r\n", b"PUB foo inbox 0\r\n\r\n")
    assert talk.said(other) == b""
    assert talk.said(asker).startswith(b"HMSG inbox 8 35 35\r\n")


def test_a_client_that_did_not_ask_for_it_hears_nothing_of_missing_responders() -> None:
    connect = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\n'
    assert Talk().ask(connect + b"SUB inbox 1\r\nPUB foo inbox 2\r\nhi\r\n") == b""


def test_a_sink_that_declines_is_nobody() -> None:
    talk = Talk()
    talk.hub.router.add_sink(b"svc", lambda *args: False)
    relaxed = talk.ask(PLAIN + b"SUB inbox 1\r\nPUB svc inbox 0\r\n\r\n")
    assert b"NATS/1.0 503" in relaxed
    verbose = PLAIN.replace(b"false", b"true", 1)
    assert b"NATS/1.0 503" in talk.ask(verbose + b"SUB inbox 1\r\nPUB svc inbox 0\r\n\r\n")


def test_without_echo_a_client_does_not_hear_itself() -> None:
    connect = PLAIN.replace(b"}", b',"echo":false}')
    talk = Talk()
    other = talk.connect(PLAIN, b"SUB foo 9\r\n")
    own = talk.connect(connect, b"SUB foo 1\r\nPUB foo 2\r\nhi\r\n")
    assert talk.said(own) == b""
    assert talk.said(other) == b"MSG foo 9 2\r\nhi\r\n"
    alone = talk.ask(connect, b"SUB inbox 1\r\nSUB bar q 2\r\nPUB bar inbox 2\r\nhi\r\n")
    assert alone.startswith(b"HMSG inbox 1 35 35")


def test_headers_arrive_or_are_left_out() -> None:
    talk = Talk()
    old = talk.connect(b'CONNECT {"verbose":false}\r\nSUB foo 1\r\n')
    heard = talk.ask(PLAIN, b"SUB foo 1\r\nHPUB foo r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert heard == b"HMSG foo 1 r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"
    assert talk.said(old) == b"MSG foo 1 r 2\r\nhi\r\n"


def test_authentication_comes_first() -> None:
    def talk() -> Talk:
        return Talk(UserAuthentication([User("u", "p")]))

    violation = b"-ERR 'Authorization Violation'\r\n<closed>"
    good = b'CONNECT {"verbose":false,"user":"u","pass":"p"}\r\nPING\r\n'
    assert talk().ask(good) == b"PONG\r\n"
    for bad in (
        good.replace(b'"p"', b'"x"'),
        b'CONNECT {"verbose":true}\r\n',
        b'CONNECT {"auth_token":"p"}\r\n',
        b"PING\r\n",
        b"PUB foo 1\r\nx\r\n",
        b"PUB foo 1000000\r\n",  # at once, without waiting for a payload
        b"XX\r\n",
    ):
        assert talk().ask(bad) == violation
    assert talk().ask(b"CONNECT x\r\n") == b"<closed>"


def test_a_token_is_asked_for_in_the_greeting() -> None:
    talk = Talk(TokenAuthentication("t"))
    session = talk.hub.connect(Peer())
    assert b'"auth_required":true' in b"".join(session.take_output())
    session.receive(b'CONNECT {"verbose":false,"auth_token":"t"}\r\nPING\r\n')
    assert talk.said(session) == b"PONG\r\n"


def test_who_does_not_authenticate_in_time_is_hung_up_on() -> None:
    talk = Talk(TokenAuthentication("t"))
    silent = talk.connect()
    quick = talk.connect(b'CONNECT {"verbose":false,"auth_token":"t"}\r\n')
    talk.pass_time(2.0)
    assert silent.closed
    assert talk.said(silent) == b"-ERR 'Authentication Timeout'\r\n"
    assert not quick.closed


def test_a_silent_client_is_pinged_and_then_given_up() -> None:
    talk = Talk(ping_interval_ns=10 * 10**9, pings_out_max=2)
    session = talk.connect(PLAIN)
    talk.pass_time(2)
    assert talk.said(session) == b"PING\r\n"
    talk.clock.advance(0.25)
    session.receive(b"PONG\r\n")
    assert session.round_trip_ns == 250_000_000
    talk.pass_time(10)
    assert talk.said(session) == b""  # it was heard of
    talk.pass_time(10)
    talk.pass_time(10)
    assert talk.said(session) == b"PING\r\nPING\r\n"
    talk.pass_time(10)
    assert talk.said(session) == b"-ERR 'Stale Connection'\r\n"
    assert session.close_reason == "Stale Connection"


def test_one_subscription_too_many_is_refused() -> None:
    talk = Talk(subscriptions_max=2)
    heard = talk.ask(b"CONNECT {}\r\nSUB a 1\r\nSUB b 2\r\nSUB c 3\r\nPING\r\n")
    assert heard == b"+OK\r\n" * 3 + b"-ERR 'maximum subscriptions exceeded'\r\nPONG\r\n"


def test_a_reader_too_slow_is_told_so_and_forgotten() -> None:
    talk = Talk(outbound_bytes_max=10_000)
    slow = talk.connect(PLAIN, b"SUB foo 1\r\n")
    other = talk.connect(PLAIN, b"SUB foo 1\r\n")
    talk.hub.wrote(slow, 9_000)  # its socket has not taken these yet
    publisher = talk.connect(PLAIN, b"PUB foo 1000\r\n" + bytes(1000) + b"\r\n")
    assert slow.closed
    assert not other.closed
    assert talk.said(slow) == b"-ERR 'Slow Consumer'\r\n"
    assert talk.hub.slow_consumers == 1
    assert len(talk.said(other)) > 1000
    publisher.receive(b"PUB foo 1\r\nx\r\n")
    assert talk.said(slow) == b""


def test_what_a_reader_too_slow_has_published_with_it_is_delivered() -> None:
    talk = Talk(outbound_bytes_max=10_000)
    other = talk.connect(PLAIN, b"SUB other 1\r\n")
    slow = talk.connect(PLAIN, b"SUB own 1\r\n")
    slow.receive(12 * (b"PUB own 1000\r\n" + bytes(1000) + b"\r\nPUB other 1\r\nx\r\n"))
    assert talk.said(slow) == b"-ERR 'Slow Consumer'\r\n"
    assert talk.said(other).count(b"MSG other 1 1\r\nx\r\n") == 12


def test_permissions_are_checked_and_explained() -> None:
    permissions = Permissions(
        publish_allow=SubjectFilter([b"a"]), subscribe_allow=SubjectFilter([b"a"])
    )
    talk = Talk(UserAuthentication([User("u", "p", permissions)]))
    connect = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"user":"u","pass":"p"}\r\n'
    heard = talk.ask(
        connect, b"SUB a 1\r\nSUB b 2\r\nSUB b q 3\r\nPUB b 1\r\nx\r\nPUB a 1\r\nx\r\n"
    )
    assert heard == (
        b"-ERR 'Permissions Violation for Subscription to \"b\"'\r\n"
        b'-ERR \'Permissions Violation for Subscription to "b" using queue "q"\'\r\n'
        b"-ERR 'Permissions Violation for Publish to \"b\"'\r\n"
        b"MSG a 1 1\r\nx\r\n"
    )


def test_a_closed_session_leaves_nothing_behind_and_says_its_last_words_once() -> None:
    talk = Talk()
    session = talk.connect(PLAIN, b"SUB a 1\r\nSUB b 2\r\n", b"PUB a 1\r\nx\r\n", b"XX\r\n")
    assert session.closed
    assert talk.hub.sessions == {}
    assert talk.hub.router.subscriptions == 0
    assert talk.said(session) == b"MSG a 1 1\r\nx\r\n-ERR 'Unknown Protocol Operation'\r\n"
    session.receive(b"PING\r\n")
    session.disconnected()
    assert talk.said(session) == b""
    assert len(talk.hub.timers) == 0


def test_traffic_is_counted() -> None:
    talk = Talk()
    session = talk.connect(PLAIN, b"SUB a 1\r\n")
    chunk = b"PUB a 1\r\nx\r\nPUB b 1\r\nx\r\nUNSUB 1\r\n"
    session.receive(chunk)
    talk.said(session)
    assert session.in_messages == 2
    assert session.in_bytes == 2
    assert (session.out_messages, session.output.payload_bytes) == (1, 1)
    session.disconnected()
    assert talk.hub.past_traffic == [2, 1, 2, 1]


COMMANDS = st.sampled_from(
    [
        PLAIN,
        b'CONNECT {"verbose":true,"headers":true}\r\n',
        b"SUB a 1\r\n",
        b"SUB * 2\r\n",
        b"SUB a q 3\r\n",
        b"UNSUB 1\r\n",
        b"UNSUB 2 1\r\n",
        b"PUB a 1\r\nx\r\n",
        b"PUB a in 1\r\nx\r\n",
        b"SUB in 9\r\n",
        b"PING\r\n",
        b"HPUB a 12 13\r\nNATS/1.0\r\n\r\nx\r\n",
        b"PUB a..b 1\r\nx\r\n",
    ]
)


@given(st.lists(COMMANDS, max_size=20), st.integers(1, 40))
def test_chunks_do_not_matter(commands: list[bytes], size: int) -> None:
    data = b"".join(commands)
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert Talk().ask(*chunks) == Talk().ask(data)
