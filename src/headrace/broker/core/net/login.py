"""Decides who a client is, and again when the operator changes permissions.

nats-server decides while its reader waits. Here a slow decision is made beside the event loop. Until then the
client's input is kept (``session_input``), and the shell reads no more of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from ..auth.authentication import Identity
from ..auth.passwords import SlowDecision
from ..peer import ConnectOptions

if TYPE_CHECKING:
    from .host import Host
    from .session import Session


class Login:
    """Logs one session in."""

    __slots__ = ("_hub", "_reviews", "_session")

    def __init__(self, session: Session, hub: Host) -> None:
        self._session = session
        self._hub = hub
        self._reviews = 0

    def ask(self, options: ConnectOptions) -> None:
        """Let the client in, or hang up: now, or when the decision is made."""
        if not self._hub.options.headers:
            options = msgspec.structs.replace(options, headers=False)
        authenticator = self._hub.authenticator
        verdict = authenticator.authenticate(options, self._session.peer)
        if not isinstance(verdict, SlowDecision):
            self._session.enter(options, verdict)
            return

        def decided(identity: Identity | None) -> None:
            if authenticator is self._hub.authenticator:
                self._session.enter(options, identity)
            else:
                self.ask(options)  # the operator changed who may come in meanwhile

        self._session.defer()
        self._begin(verdict, lambda identity: self._let_go_on(lambda: decided(identity)))

    def end(self) -> None:
        """The session has ended, and is let go; a decision that comes still is ignored."""
        del self._session

    def review(self) -> None:
        """Judge the credentials of the session anew, and act on it."""
        if self._session.state.is_deciding:
            return  # will be decided by what holds then
        verdict = self._hub.authenticator.authenticate(self._session.options, self._session.peer)
        self._reviews = number = self._reviews + 1
        if not isinstance(verdict, SlowDecision):
            self._session.change_identity(verdict)
            return

        def decided(identity: Identity | None) -> None:
            is_newest = self._reviews == number
            if is_newest and not self._session.state.is_deciding:
                self._session.change_identity(identity)

        self._begin(verdict, decided)

    def _begin(self, verdict: SlowDecision, decided: Callable[[Identity | None], None]) -> None:
        session = self._session

        def decide() -> Identity | None:
            return None if session.closed else verdict.decide()

        def unless_gone(identity: Identity | None) -> None:
            if not session.closed:
                decided(identity)

        self._hub.decisions.begin(session, decide, unless_gone)

    def _let_go_on(self, decided: Callable[[], None]) -> None:
        """Act on a decision, then on what the client said meanwhile."""
        session = self._session
        session.decided()
        decided()
        session.release()
