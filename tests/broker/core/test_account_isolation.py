"""Whoever publishes what where: nobody hears what is not of their account, or imported into it."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from headrace.broker.core.auth.authentication import User, UserAuthentication
from headrace.broker.core.hub import Hub
from headrace.broker.core.net.inprocess import InProcessSession
from headrace.broker.core.net.session import Session
from headrace.broker.core.options import AccountOptions, Export, Import
from headrace.broker.core.peer import Peer
from headrace.clock import ManualClock
from headrace.subjects import matches
from headrace.wire import Parser, frames

NAMES = ("A", "B", "C")
EXPORTED, LOCAL = b"x.*", b"in.x.*"
OPTIONS = (
    AccountOptions(name="A", exports=(Export(kind="stream", subject=EXPORTED),)),
    AccountOptions(
        name="B",
        imports=(Import(kind="stream", account="A", subject=EXPORTED, local=LOCAL),),
    ),
    AccountOptions(name="C"),
)
PATTERNS = (b"x.*", b"x.1", b"in.>", b"in.x.1", b">", b"*.*", b"y")
SUBJECTS = (b"x.1", b"x.2", b"in.x.1", b"y", b"x.1.2")

subscriptions = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(PATTERNS), st.booleans()), max_size=6
)
publications = st.lists(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(SUBJECTS)), min_size=1, max_size=5
)


def _log_in(hub: Hub, account: str, kind: type[Session] = Session) -> Session:
    session = hub.connect(Peer(), kind)
    document = {"user": account, "pass": "p", "verbose": False, "pedantic": False}
    session.receive(b"CONNECT %b\r\n" % json.dumps({**document, "headers": True}).encode())
    assert session.account.name == account
    session.take_output()
    return session


def _expected(account: str, pattern: bytes, published: list[tuple[str, bytes]]) -> list[bytes]:
    heard: list[bytes] = []
    for publisher, subject in published:
        if publisher == account and matches(pattern, subject):
            heard.append(subject)
        if publisher == "A" and account == "B" and matches(EXPORTED, subject):
            imported = b"in." + subject
            if matches(pattern, imported):
                heard.append(imported)
    return heard


@given(subscriptions, publications)
def test_everybody_hears_their_own_account_and_nothing_else(
    wanted: list[tuple[str, bytes, bool]], published: list[tuple[str, bytes]]
) -> None:
    users = [User(name, "p", account=name) for name in NAMES]
    hub = Hub(ManualClock(), random.Random(1), authenticator=UserAuthentication(users))
    hub.configure_accounts(OPTIONS)
    listeners: list[tuple[str, bytes, Session]] = []
    for account, pattern, in_process in wanted:
        session = _log_in(hub, account, InProcessSession if in_process else Session)
        session.receive(b"SUB %b 1\r\n" % pattern)
        listeners.append((account, pattern, session))
    publishers = {name: _log_in(hub, name) for name in NAMES}
    for account, subject in published:
        publishers[account].receive(b"PUB %b 0\r\n\r\n" % subject)
    for account, pattern, session in listeners:
        heard: list[bytes] = []
        parser = Parser.for_client()
        for part in session.take_output():
            found = parser.feed(part) if isinstance(part, bytes) else [part]
            heard += [frame[1] for frame in found if frame[0] == frames.MSG]
        assert heard == _expected(account, pattern, published)
