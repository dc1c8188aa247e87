"""Logins that take a while, with a checker that knows which password belongs to which hash."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from headrace.broker.core.auth.authentication import (
    Identity,
    SlowDecision,
    TokenAuthentication,
    User,
    UserAuthentication,
)
from headrace.broker.core.auth.permissions import Permissions, read_rules
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.options import HubOptions
from headrace.broker.core.peer import ConnectOptions, Peer
from headrace.clock import ManualClock
from headrace.errors import ConfigurationError
from headrace.wire.frames import PUB
from headrace.wire.inprocess import FrameBatch

HASH = "$2a$11$" + "A" * 53
OTHER = "$2b$04$" + "B" * 53
ANN = b'CONNECT {"verbose":false,"headers":true,"user":"ann","pass":"right"}\r\n'
WRONG = b'CONNECT {"verbose":false,"headers":true,"user":"ann","pass":"wrong"}\r\n'
OPEN = Permissions(subscribe_allow=read_rules(["open"])[0])


class Checker:
    """``right`` fits HASH, ``other`` fits OTHER."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.found: set[tuple[str, str]] = set()

    def known(self, hashed: str, password: str) -> bool:
        return (hashed, password) in self.found

    def matches(self, hashed: str, password: str) -> bool:
        self.asked.append((hashed, password))
        fits = (hashed, password) in ((HASH, "right"), (OTHER, "other"))
        if fits:
            self.found.add((hashed, password))
        return fits


class Later:
    """Decisions wait until the test makes them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Callable[[], Any], Callable[[Any], None]]] = deque()

    def begin(
        self, session: Any, decide: Callable[[], Any], decided: Callable[[Any], None]
    ) -> None:
        self.waiting.append((decide, decided))

    def make_one(self) -> None:
        decide, decided = self.waiting.popleft()
        decided(decide())


class Door:
    """One hub whose users have hashes."""

    def __init__(self, *users: User, default: str | None = None) -> None:
        self.clock = ManualClock()
        self.checker = Checker()
        users = users or (User("ann", HASH),)
        authenticator = UserAuthentication(users, passwords=self.checker, default=default)
        self.hub = Hub(self.clock, random.Random(1), authenticator=authenticator)
        self.later = Later()
        self.hub.decisions = self.later

    def connect(self, kind: type[Session] = Session) -> Session:
        session = self.hub.connect(Peer("127.0.0.1", 5000), kind)
        self.said(session)
        return session

    def said(self, session: Session) -> bytes:
        self.hub.end_of_tick()
        return b"".join(session.take_output())

    def reconfigure(self, *users: User) -> None:
        authenticator = UserAuthentication(users, passwords=self.checker)
        self.hub.reconfigure(HubOptions(), authenticator)


def test_a_client_is_let_in_when_its_password_was_compared() -> None:
    door = Door()
    session = door.connect()
    session.receive(ANN + b"PING\r\n")
    assert session.holds_input
    assert not session.authenticated
    assert door.said(session) == b""
    door.later.make_one()
    assert not session.holds_input
    assert session.authenticated
    assert door.said(session) == b"PONG\r\n"


def test_what_was_said_meanwhile_is_done_in_its_order() -> None:
    door = Door()
    session = door.connect()
    session.receive(ANN + b"SUB a 1\r\nPUB a 1\r\nx\r\nPUB a 2\r\nyz")
    session.receive(b"\r\nPUB a 1\r\nz\r\n")
    session.receive(b"PING\r\n")
    door.later.make_one()
    messages = b"MSG a 1 1\r\nx\r\nMSG a 1 2\r\nyz\r\nMSG a 1 1\r\nz\r\n"
    assert door.said(session) == messages + b"PONG\r\n"


def test_frames_of_a_client_in_process_wait_among_its_lines() -> None:
    door = Door()
    session = door.connect(InProcessSession)
    assert isinstance(session, InProcessSession)
    frame = (PUB, b"a", b"", b"", b"x")
    session.receive_chunks([ANN + b"SUB a 1\r\n", FrameBatch([frame], 20), b"PING\r\n"])
    assert session.holds_input
    door.later.make_one()
    door.hub.end_of_tick()
    parts: list[Any] = session.take_output()
    assert [part[5] for part in parts if not isinstance(part, bytes)] == [b"x"]
    assert parts[-1] == b"PONG\r\n"


def test_who_has_the_wrong_password_is_refused_and_not_listened_to() -> None:
    door = Door(User("ann", HASH), User("bob", "plain"))
    bob = door.connect()
    bob.receive(b'CONNECT {"verbose":false,"user":"bob","pass":"plain"}\r\nSUB > 1\r\n')
    session = door.connect()
    session.receive(WRONG + b"PUB a 1\r\nx\r\n")
    session.receive(b"PUB a 1\r\ny\r\n")
    door.later.make_one()
    assert door.said(session) == b"-ERR 'Authorization Violation'\r\n"
    assert session.closed
    assert not session.holds_input
    assert door.said(bob) == b""


def test_a_password_that_was_right_before_is_not_compared_again() -> None:
    door = Door()
    first, second = door.connect(), door.connect()
    first.receive(ANN)
    door.later.make_one()
    second.receive(ANN + b"PING\r\n")
    assert not door.later.waiting
    assert door.said(second) == b"PONG\r\n"


def test_a_stranger_waits_as_long_as_a_user_with_a_wrong_password() -> None:
    door = Door()
    session = door.connect()
    session.receive(b'CONNECT {"user":"eve","pass":"right"}\r\n')
    assert door.later.waiting
    door.later.make_one()
    assert door.checker.asked == [(HASH, "right")]
    assert session.closed


def test_an_empty_password_and_the_hash_itself_are_wrong() -> None:
    door = Door()
    session = door.connect()
    session.receive(b'CONNECT {"user":"ann"}\r\n')
    assert session.closed
    session = door.connect()
    session.receive(b'CONNECT {"user":"ann","pass":"%b"}\r\n' % HASH.encode())
    door.later.make_one()
    assert session.closed


def test_the_time_to_log_in_goes_on_and_nothing_is_compared_for_who_is_gone() -> None:
    door = Door()
    session = door.connect()
    session.receive(ANN)
    door.clock.advance(60.0)
    door.hub.run_timers()
    assert door.said(session) == b"-ERR 'Authentication Timeout'\r\n"
    door.later.make_one()
    assert door.checker.asked == []
    assert session.closed


def test_a_second_login_in_what_was_said_meanwhile_waits_in_its_turn() -> None:
    door = Door(User("ann", HASH), User("bob", OTHER, OPEN))
    session = door.connect()
    bob = b'CONNECT {"verbose":false,"headers":true,"user":"bob","pass":"other"}\r\n'
    session.receive(ANN + b"SUB shut 1\r\n" + bob + b"SUB shut 2\r\n")
    session.receive(b"PING\r\n")
    door.later.make_one()
    assert session.holds_input
    assert door.said(session) == b""
    door.later.make_one()
    refused = b"-ERR 'Permissions Violation for Subscription to \"shut\"'\r\n"
    assert door.said(session) == refused + b"PONG\r\n"
    assert [*session.subscriptions] == [b"1"]


def test_a_reload_while_a_login_is_decided_counts() -> None:
    door = Door()
    session = door.connect()
    session.receive(ANN)
    door.reconfigure(User("ann", OTHER))
    door.later.make_one()
    assert session.holds_input  # it fitted what is no longer the hash
    door.later.make_one()
    assert door.checker.asked == [(HASH, "right"), (OTHER, "right")]
    assert session.closed


def test_a_guest_who_logs_in_during_a_reload_is_decided_once() -> None:
    guest = User("guest", "g", OPEN)
    door = Door(User("ann", HASH), guest, default="guest")
    session = door.connect()
    session.receive(ANN + b"PING\r\n")
    authenticator = UserAuthentication(
        [User("ann", HASH), guest], passwords=door.checker, default="guest"
    )
    door.hub.reconfigure(HubOptions(), authenticator)
    while door.later.waiting:
        door.later.make_one()
    assert door.said(session) == b"PONG\r\n"
    assert session.identity == Identity("ann")


def test_a_reload_hangs_up_on_who_no_longer_fits_when_that_is_known() -> None:
    door = Door()
    session = door.connect()
    session.receive(ANN)
    door.later.make_one()
    door.reconfigure(User("ann", OTHER))
    session.receive(b"PING\r\n")
    assert door.said(session) == b"PONG\r\n"
    door.later.make_one()
    assert session.closed


def test_of_two_reloads_the_later_one_counts() -> None:
    door = Door()
    session = door.connect()
    session.receive(ANN)
    door.later.make_one()
    door.reconfigure(User("ann", OTHER))
    door.reconfigure(User("ann", HASH, OPEN))
    assert session.identity.permissions == OPEN
    door.later.make_one()
    assert not session.closed


def test_a_token_may_be_a_hash() -> None:
    checker = Checker()
    token = TokenAuthentication(HASH, passwords=checker)
    assert token.authenticate(ConnectOptions()) is None
    verdicts = [token.authenticate(ConnectOptions(auth_token=said)) for said in ("right", HASH)]
    decided = [verdict.decide() for verdict in verdicts if isinstance(verdict, SlowDecision)]
    assert decided == [Identity(), None]
    assert token.authenticate(ConnectOptions(auth_token="right")) == Identity()


@pytest.mark.parametrize(
    ("secret", "complaint"),
    [
        ("$2a$11$short", "give all of its 60 characters"),
        ("$2a$11$" + "A" * 54, "give all of its 60 characters"),
        ("$2y$32$" + "A" * 53, "cost 32; accepted is 4 to 31"),
        ("$2y$03$" + "A" * 53, "cost 03; accepted is 4 to 31"),
    ],
)
def test_a_hash_nothing_can_match_is_refused(secret: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint) as refusal:
        UserAuthentication([User("ann", secret)], passwords=Checker())
    assert secret not in str(refusal.value)
    with pytest.raises(ConfigurationError, match=complaint):
        TokenAuthentication(secret, passwords=Checker())


def test_without_a_checker_hashes_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="compares passwords"):
        UserAuthentication([User("ann", HASH)])
    with pytest.raises(ConfigurationError, match="compares passwords"):
        TokenAuthentication(HASH)
