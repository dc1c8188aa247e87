"""The timers of one session: time to log in, pings to a silent client, the end of its credentials."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ....wire import encode
from ..peer import UNSAID
from ..timers import Timer

if TYPE_CHECKING:
    from .session import Host, Session


class KeepAlive:
    """The session sets ``heard`` for each chunk of input. ``round_trip_ns`` is 0 until it is known."""

    __slots__ = (
        "_answered",
        "_awaiting_pong_ns",
        "_expiry",
        "_first_ping",
        "_hub",
        "_pings_out",
        "_session",
        "_timer",
        "heard",
        "round_trip_ns",
    )

    def __init__(self, session: Session, hub: Host) -> None:
        self._session = session
        self._hub = hub
        self._awaiting_pong_ns = 0
        self._pings_out = 0
        self._first_ping = True
        self._answered = False
        self._timer: Timer | None = None
        self._expiry: Timer | None = None
        self.heard = False
        self.round_trip_ns = 0

    def await_login(self) -> None:
        """Close the session if the client does not log in in time."""
        self._arm(self._hub.options.auth_timeout_ns, self._not_authenticated_in_time)

    def begin(self) -> None:
        """Start pinging a client that is logged in. The first ping comes early, to measure the round trip."""
        self._arm(self._hub.options.ping_first_ns, self._keep_alive)

    def expire_at(self, until_ns: int) -> None:
        """Close the session at this time, in nanoseconds since the epoch; 0: never."""
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None
        if until_ns:
            left_ns = max(0, until_ns - self._hub.clock.now_ns())
            self._expiry = self._call_in(left_ns, self._expired)

    def pinged(self) -> None:
        """Answer a ping. The first answer after CONNECT also says which account the client is in."""
        session = self._session
        session.output.write(encode.pong())
        if not self._answered and session.options is not UNSAID:
            self._answered = True
            if session.options.protocol:
                session.output.write(encode.info(self._hub.info(session, entered=True)))

    def pong(self) -> None:
        self._pings_out = 0
        if self._awaiting_pong_ns:
            self.round_trip_ns = self._hub.clock.monotonic_ns() - self._awaiting_pong_ns
            self._awaiting_pong_ns = 0

    def end(self) -> None:
        """The session has ended, and is let go."""
        for timer in (self._timer, self._expiry):
            if timer is not None:
                timer.cancel()
        del self._session

    def _arm(self, delay_ns: int, callback: Callable[[], None]) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._call_in(delay_ns, callback)

    def _call_in(self, delay_ns: int, callback: Callable[[], None]) -> Timer:
        deadline_ns = self._hub.clock.monotonic_ns() + delay_ns
        return self._hub.timers.call_at(deadline_ns, callback)

    def _not_authenticated_in_time(self) -> None:
        self._session.close("Authentication Timeout")

    def _expired(self) -> None:
        of = "Account" if self._session.identity.ends_with_account else "User"
        self._session.close(f"{of} Authentication Expired", "Authentication Expired")

    def _keep_alive(self) -> None:
        """Ping a client that has been silent. Close the session of one that does not answer."""
        options = self._hub.options
        if self.heard and not self._first_ping:
            self._pings_out = 0
        elif self._pings_out >= options.pings_out_max:
            self._session.close("Stale Connection")
            return
        else:
            self._pings_out += 1
            self._awaiting_pong_ns = self._hub.clock.monotonic_ns()
            self._session.output.write(encode.ping())
        self._first_ping = False
        self.heard = False
        self._timer = self._call_in(options.ping_interval_ns, self._keep_alive)
