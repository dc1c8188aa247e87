"""The brain of the broker: sessions, router, timers and JetStream around one deterministic object.

The hub has no threads and no sockets, and arms no timers. The shell hands it connections and their bytes,
calls ``end_of_tick`` after a round of input, writes what the returned sessions have to say, and calls
``run_timers`` at ``next_deadline_ns``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from ... import wire
from ..._version import __version__
from ...clock import Clock, SteadyClock
from ...errors import ConfigurationError
from .accounts.accounts import Accounts
from .auth.authentication import AtOnce, Authenticator, NoAuthentication, SlowDecisions
from .budget import Budget
from .monitor.connections import EndedConnections
from .net.output import NOBODY, Output
from .net.session import Session
from .net.session_subscriptions import Leaving, subscriptions_max
from .options import (
    COMPATIBLE_API_LEVEL,
    COMPATIBLE_VERSION,
    SYSTEM_ACCOUNT,
    AccountOptions,
    HubOptions,
)
from .peer import Peer
from .ports import Randomness, Storage
from .timers import TimerQueue

if TYPE_CHECKING:
    from .jetstream.config.options import JetStreamOptions
    from .jetstream.engine.engine import JetStream
    from .monitor.system_services import SystemServices

S = TypeVar("S", bound=Session)

TIMERS_NS = 5_000_000  # for what is due in one turn; the rest is due in the next one
_BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"


class Hub:
    """See the module docstring. ``random`` also picks the members of queue groups."""

    def __init__(
        self,
        clock: Clock,
        random: Randomness,
        options: HubOptions | None = None,
        authenticator: Authenticator | None = None,
    ) -> None:
        self.clock = clock = SteadyClock(clock)
        self.random = random
        self.options = options or HubOptions()
        self.authenticator = authenticator or NoAuthentication()
        self.decisions: SlowDecisions = AtOnce()  # the shell has threads for them
        self.budget = Budget()  # the shell knows when a turn is over; without one, none ever is
        self.timers = TimerQueue()
        self.leaving = Leaving(clock, self.timers)
        self.accounts = Accounts(clock, random, self.timers)
        self._services: SystemServices | None = None
        self.router = self.accounts.default.router
        self.touched: list[Output[Session]] = []
        self.sessions: dict[int, Session] = {}
        self.storage: Storage | None = None
        self.server_id = "N" + "".join(_BASE32[random.getrandbits(5)] for _ in range(55))
        self.server_name = self.options.server_name or self.server_id
        self.started_ns = self.configured_ns = clock.now_ns()
        self.started_monotonic_ns = clock.monotonic_ns()
        self.connections_total = 0
        self.slow_consumers = 0
        self.ended_connections = EndedConnections()
        self.about_store: Callable[[], dict[str, Any]] = dict  # what the shell adds to `/jsz`
        self.about_process: Callable[[], dict[str, Any]] = dict  # and to VARZ and STATSZ
        self.past_traffic = [0, 0, 0, 0]  # in and out messages, in and out bytes, of ended sessions
        self._client_ids = 4  # nats-server has used the first ones for itself, too
        self.is_shutting_down = False

    def start_jetstream(self, storage: Storage, options: JetStreamOptions | None = None) -> None:
        """Recover streams and consumers from ``storage`` and serve them; before the first connection.

        Raises StoreError, and ConfigurationError if a client was connected before.
        """
        # A broker without streams starts without the engine.
        from .jetstream.config.options import JetStreamOptions

        if self.connections_total:
            raise ConfigurationError("JetStream starts before the first client connects")
        if options is None:
            options = JetStreamOptions(server_name=self.server_name)
        self.accounts.start_jetstream(storage, options)
        self.storage = storage

    @property
    def engine(self) -> JetStream | None:
        """JetStream of the default account."""
        return self.accounts.default.engine

    # Connections

    @overload
    def connect(self, peer: Peer) -> Session: ...

    @overload
    def connect(self, peer: Peer, kind: type[S]) -> S: ...

    def connect(self, peer: Peer, kind: type[Session] = Session) -> Session:
        """Open a session, with INFO to send. It is closed at once if there are too many."""
        self._client_ids += 1
        self.connections_total += 1
        peer.nonce = self.authenticator.new_nonce()
        session = kind(self, self._client_ids, peer)
        self.sessions[session.client_id] = session
        session.output.write(wire.encode.info(self.info(session)))
        if len(self.sessions) > self.options.connections_max:
            session.close("maximum connections exceeded")
        return session

    def info(self, session: Session, *, entered: bool = False) -> bytes:
        """The INFO document for one client; one that has ``entered`` learns which account it is in."""
        options = self.options
        document: dict[str, Any] = {
            "server_id": self.server_id,
            "server_name": self.server_name,
            "version": COMPATIBLE_VERSION,
            "headrace": __version__,
            "proto": 1,
            "go": "",
            "host": options.host,
            "port": options.port,
            "headers": options.headers,
        }
        if self.authenticator.required:
            document["auth_required"] = True
        if options.tls_required and session.peer.transport == "nats":
            document["tls_required"] = True
            if options.tls_verify:
                document["tls_verify"] = True
        document["max_payload"] = session.payload_max
        if self.storage is not None:
            document["jetstream"] = True
            if options.domain:
                document["domain"] = options.domain
        if session.peer.nonce and not entered:
            document["nonce"] = session.peer.nonce
        document["client_id"] = session.client_id
        document["client_ip"] = session.peer.host
        document["api_lvl"] = COMPATIBLE_API_LEVEL
        if entered:
            document["connect_info"] = True
            document["remote_account"] = session.account.name
            if session.account is self.accounts.system:
                document["acc_is_sys"] = True
        if self.is_shutting_down:
            document["ldm"] = True
        return msgspec.json.encode(document) + b" "

    def entered(self, session: Session) -> None:
        """A client has logged in."""
        if self._services is not None:
            self._services.events.entered(session)

    def ended(self, session: Session) -> None:
        self.sessions.pop(session.client_id, None)
        self.ended_connections.add(session, self.clock.now_ns())
        if self._services is not None:
            self._services.events.left(session)
        if session.close_reason.startswith("Slow Consumer"):
            self.slow_consumers += 1
        past = self.past_traffic
        past[0] += session.in_messages
        past[1] += session.out_messages
        past[2] += session.in_bytes
        past[3] += session.output.payload_bytes

    def configure_accounts(
        self, accounts: Iterable[AccountOptions], system: str = SYSTEM_ACCOUNT
    ) -> list[str]:
        """Set the accounts; see ``Accounts.configure``. Raises ConfigurationError, StoreError."""
        left = self.accounts.configure(accounts, system)
        self._offer_services()
        return left

    def reconfigure(self, options: HubOptions, authenticator: Authenticator) -> None:
        """Apply new limits, credentials and permissions, to connected clients as well.

        If there are now too many connections, of an account or of all, the newest are closed; so is one
        that has more subscriptions than it may.
        """
        self.configured_ns = self.clock.now_ns()
        self.options = options
        self.authenticator = authenticator
        for session in list(self.sessions.values()):
            session.authenticate_again()
            session.apply_limits(session.identity)
            most = subscriptions_max(session, options)
            if session.authenticated and len(session.subscriptions) > most:
                session.close("maximum subscriptions exceeded")
        self._close_excess_of_accounts()
        excess = max(0, len(self.sessions) - options.connections_max)
        for session in list(self.sessions.values())[len(self.sessions) - excess :]:
            session.close("maximum connections exceeded")

    def _close_excess_of_accounts(self) -> None:
        excess = {
            account: account.connections - account.options.connections_max
            for account in self.accounts
            if 0 <= account.options.connections_max < account.connections
        }
        for session in reversed(list(self.sessions.values())) if excess else ():
            if session.account in excess and session.authenticated and excess[session.account] > 0:
                excess[session.account] -= 1
                session.close("maximum account active connections exceeded")

    def _offer_services(self) -> None:
        """Answer ``$SYS.REQ.…`` once accounts are configured. Without accounts nothing asks for it."""
        if self._services is None:
            from .monitor.system_services import SystemServices

            self._services = SystemServices(self)
        for account in self.accounts:
            self._services.join(account)
        self._services.serve(self.accounts.system)

    # Time

    def end_of_tick(self) -> list[Session]:
        """Finish what the input of this tick began. Returns the sessions that need the shell.

        Each of them has something to write, or is closed.
        """
        self.deliver()
        return self.settle()

    def deliver(self) -> None:
        """The first half of ``end_of_tick``: send what can be delivered.

        The second half may take its time, and wait for the disk; so the shell writes ``to_write`` first.
        """
        for engine in self.accounts.engines:
            engine.work()

    def settle(self) -> list[Session]:
        """The second half of ``end_of_tick``."""
        engines = self.accounts.engines
        for engine in engines:
            engine.report()
        if engines:
            engines[0].flush()  # of them all: they share the storage
        return self.to_write()

    def to_write(self) -> list[Session]:
        """The sessions that need the shell by now."""
        touched = self.touched
        if not touched:
            return []
        sessions = dict.fromkeys([output.session for output in touched])
        sessions.pop(NOBODY, None)
        touched.clear()  # in place: every output knows this list
        return list(sessions)

    def next_deadline_ns(self) -> int | None:
        """The reading of ``Clock.monotonic_ns`` at which ``run_timers`` is next needed."""
        return self.timers.next_deadline_ns()

    def run_timers(self) -> int:
        """Run the timers that are due, within the time of one turn. Call ``end_of_tick`` afterwards.

        Returns how many timers ran.
        """
        monotonic_ns = self.clock.monotonic_ns
        now_ns = monotonic_ns()
        ends_ns = now_ns + TIMERS_NS
        return self.timers.run_due(now_ns, lambda: monotonic_ns() >= ends_ns)

    # Pressure

    @property
    def ingest_blocked(self) -> bool:
        """Whether the disk is so far behind that the shell should read no more for now."""
        return self.queued_bytes > self.options.ingest_pending_bytes_max

    @property
    def queued_bytes(self) -> int:
        """How many bytes of messages wait for the disk."""
        return 0 if self.storage is None else self.storage.pending_bytes

    @property
    def storage_error(self) -> Exception | None:
        """Why the store accepts nothing more; None if it does."""
        return None if self.storage is None else self.storage.failed or self.storage.full

    def wrote(self, session: Session, unsent: int) -> None:
        """The shell reports how many bytes the session's socket has not accepted yet."""
        output = session.output
        if output.took(unsent):
            session.router.unblocked()
        if output.room < 0:  # by answers, which nobody asked whether there was room for
            session.overflow()

    # The end

    def announce_shutdown(self) -> None:
        """Tell every client to look for another server (lame duck mode)."""
        self.is_shutting_down = True
        for session in self.sessions.values():
            if session.authenticated:
                session.output.write(wire.encode.info(self.info(session)))

    def shutdown(self) -> None:
        """End JetStream: nothing more is delivered, and what is staged goes to the disk."""
        self.is_shutting_down = True
        for engine in self.accounts.engines:
            engine.shutdown()

    def close_sessions(self) -> None:
        """End every session; the shell still writes what they have to say."""
        for session in list(self.sessions.values()):
            session.close("", "Server Shutdown")
